"""The networks of the papers as torch modules, for tracing and training; module names are layer names.

Shapes are those of the papers. Auxiliary heads, dropout and local response normalisation are omitted: none has
parameters in the trunk, and later implementations omit them too. This file imports torch, so it is imported only for
tracing and training.

Inception-v3 (Szegedy et al., 2016) as a torch module, without its auxiliary head. Rules as in `paper_networks`.

A small transformer as a torch module: a decoder that predicts the next of 128 tokens.

Rules as in `paper_networks`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def chain(**modules: nn.Module) -> nn.Sequential:
    """Chains modules in sequence, with these names."""
    return nn.Sequential(OrderedDict(modules))


def relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def mlp() -> nn.Module:
    """Builds a network with two hidden layers for MNIST."""
    first, second = nn.Linear(784, 512), nn.Linear(512, 512)
    return chain(hidden1=first, relu1=relu(), hidden2=second, relu2=relu(), output=nn.Linear(512, 10))


def digits_mlp() -> nn.Module:
    """Builds the network for `workloads.batches.examples`."""
    return chain(hidden=nn.Linear(64, 64), relu=relu(), output=nn.Linear(64, 10))


def lenet() -> nn.Module:
    """Builds Caffe's LeNet for MNIST."""
    return chain(
        conv1=nn.Conv2d(1, 20, 5),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(20, 50, 5),
        pool2=nn.MaxPool2d(2),
        flat=nn.Flatten(),
        ip1=nn.Linear(800, 500),
        relu1=relu(),
        ip2=nn.Linear(500, 10),
    )


def cifar10_full() -> nn.Module:
    """Builds Caffe's cifar10_full, with about 90 000 parameters."""
    modules: dict[str, nn.Module] = {}
    channels = 3
    for number, filters in enumerate((32, 32, 64), start=1):
        modules[f"conv{number}"] = nn.Conv2d(channels, filters, 5, padding=2)
        modules[f"relu{number}"] = relu()
        modules[f"pool{number}"] = nn.MaxPool2d(3, 2, ceil_mode=True)
        channels = filters
    return chain(**modules, flat=nn.Flatten(), ip1=nn.Linear(1024, 10))


def _stages(channels: int, filters: Sequence[int]) -> dict[str, nn.Module]:
    """Builds convolutions of 3 × 3, each followed by ReLU and pooling to half the size."""
    modules: dict[str, nn.Module] = {}
    for number, count in enumerate(filters, start=1):
        modules[f"conv{number}"] = nn.Conv2d(channels, count, 3, padding=1)
        modules[f"relu{number}"] = relu()
        modules[f"pool{number}"] = nn.MaxPool2d(2)
        channels = count
    return modules


def digits_cnn() -> nn.Module:
    """Builds a network with two convolutions for pictures of 8 × 8."""
    return chain(**_stages(1, (16, 32)), flat=nn.Flatten(), output=nn.Linear(128, 10))


def small_cnn(classes: int = 10) -> nn.Module:
    """Builds a network with three convolutions for pictures of 3 × 32 × 32."""
    return chain(**_stages(3, (16, 32, 64)), flat=nn.Flatten(), output=nn.Linear(1024, classes))


def cifar_alexnet() -> nn.Module:
    """Builds AlexNet for pictures of 3 × 32 × 32.

    The first convolution is 5 × 5 with a stride of 1; after 11 × 11 with a stride of 4, too little remains to pool.
    """
    return alexnet(first=(5, 1, 2), places=9, classes=10)


def alexnet(
    filters: Sequence[int] = (96, 256, 384, 384, 256),
    *,
    groups: int = 1,
    first: tuple[int, int, int] = (11, 4, 0),
    places: int = 36,
    classes: int = 1000,
) -> nn.Module:
    """Builds AlexNet without channel groups; with 2 groups it is Caffe's version.

    Args:
        filters: filters of the five convolutions.
        groups: channel groups of the second, fourth and fifth convolution.
        first: width, stride and padding of the first convolution.
        places: positions of a picture that remain before the dense layers.
        classes: number of classes.
    """
    c1, c2, c3, c4, c5 = filters
    width, stride, padding = first
    return chain(
        conv1=nn.Conv2d(3, c1, width, stride=stride, padding=padding), relu1=relu(), pool1=nn.MaxPool2d(3, 2),
        conv2=nn.Conv2d(c1, c2, 5, padding=2, groups=groups), relu2=relu(), pool2=nn.MaxPool2d(3, 2),
        conv3=nn.Conv2d(c2, c3, 3, padding=1), relu3=relu(),
        conv4=nn.Conv2d(c3, c4, 3, padding=1, groups=groups), relu4=relu(),
        conv5=nn.Conv2d(c4, c5, 3, padding=1, groups=groups), relu5=relu(), pool5=nn.MaxPool2d(3, 2),
        flat=nn.Flatten(),
        fc6=nn.Linear(places * c5, 4096), relu6=relu(), fc7=nn.Linear(4096, 4096), relu7=relu(),
        fc8=nn.Linear(4096, classes),
    )  # fmt: skip


def alexnet_bvlc() -> nn.Module:
    """Builds Caffe's AlexNet, with two channel groups."""
    return alexnet(groups=2)


def alexnet_owt() -> nn.Module:
    """Builds AlexNet of "One weird trick", for one GPU."""
    return alexnet((64, 192, 384, 256, 256), first=(11, 4, 2))


VGG = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(depth: int) -> nn.Module:
    """Builds VGG with 11, 16 or 19 layers, without normalisation."""
    modules: dict[str, nn.Module] = {}
    channels = 3
    for stage, (count, filters) in enumerate(zip(VGG[depth], (64, 128, 256, 512, 512), strict=True), start=1):
        for place in range(1, count + 1):
            modules[f"conv{stage}_{place}"] = nn.Conv2d(channels, filters, 3, padding=1)
            modules[f"relu{stage}_{place}"] = relu()
            channels = filters
        modules[f"pool{stage}"] = nn.MaxPool2d(2)
    head = {"fc6": nn.Linear(25088, 4096), "relu6": relu(), "fc7": nn.Linear(4096, 4096), "relu7": relu()}
    return chain(**modules, flat=nn.Flatten(), **head, fc8=nn.Linear(4096, 1000))


class ParallelBranches(nn.ModuleDict):
    """Parallel branches whose channels are concatenated."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.values()], dim=1)


def _plain(channels: int, filters: int, width: int, **options: Any) -> nn.Sequential:
    """Builds a convolution with bias, and ReLU."""
    return chain(conv=nn.Conv2d(channels, filters, width, padding=width // 2, **options), relu=relu())


def _inception(channels: int, *filters: int) -> nn.Module:
    one_by_one, three_by_three_in, three_by_three, five_by_five_in, five_by_five, pooled = filters
    return ParallelBranches(
        {
            "1x1": _plain(channels, one_by_one, 1),
            "3x3": nn.Sequential(_plain(channels, three_by_three_in, 1), _plain(three_by_three_in, three_by_three, 3)),
            "5x5": nn.Sequential(_plain(channels, five_by_five_in, 1), _plain(five_by_five_in, five_by_five, 5)),
            "pool": nn.Sequential(nn.MaxPool2d(3, 1, padding=1), _plain(channels, pooled, 1)),
        }
    )


def googlenet() -> nn.Module:
    """Builds GoogLeNet, the first Inception network, without its two auxiliary heads."""

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    return chain(
        conv1=_plain(3, 64, 7, stride=2), pool1=pool(), conv2r=_plain(64, 64, 1), conv2=_plain(64, 192, 3),
        pool2=pool(),
        i3a=_inception(192, 64, 96, 128, 16, 32, 32), i3b=_inception(256, 128, 128, 192, 32, 96, 64), pool3=pool(),
        i4a=_inception(480, 192, 96, 208, 16, 48, 64), i4b=_inception(512, 160, 112, 224, 24, 64, 64),
        i4c=_inception(512, 128, 128, 256, 24, 64, 64), i4d=_inception(512, 112, 144, 288, 32, 64, 64),
        i4e=_inception(528, 256, 160, 320, 32, 128, 128), pool4=pool(),
        i5a=_inception(832, 256, 160, 320, 32, 128, 128), i5b=_inception(832, 384, 192, 384, 48, 128, 128),
        mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(1024, 1000),
    )  # fmt: skip


def _normed(channels: int, filters: int, width: int | tuple[int, int], **options: Any) -> nn.Sequential:
    """Builds a convolution without bias, and batch normalisation."""
    return chain(conv=nn.Conv2d(channels, filters, width, bias=False, **options), bn=nn.BatchNorm2d(filters))


class Residual(nn.Module):
    """Three convolutions with a shortcut, which is the identity if the shapes allow it."""

    def __init__(self, channels: int, width: int, stride: int, *, late: bool) -> None:
        super().__init__()
        first, second = (1, stride) if late else (stride, 1)
        self.reduce = _normed(channels, width, 1, stride=first)
        self.relu1 = relu()
        self.middle = _normed(width, width, 3, stride=second, padding=1)
        self.relu2 = relu()
        self.expand = _normed(width, 4 * width, 1)
        changes = stride != 1 or channels != 4 * width
        self.shortcut: nn.Module = _normed(channels, 4 * width, 1, stride=stride) if changes else nn.Sequential()
        self.relu = relu()

    def forward(self, x: Tensor) -> Tensor:
        ahead: Tensor = self.expand(self.relu2(self.middle(self.relu1(self.reduce(x)))))
        return self.relu(ahead + self.shortcut(x))  # type: ignore[no-any-return]  # torch leaves calls untyped


class Basic(nn.Module):
    """Two convolutions of 3 × 3 with a shortcut around them: the block of the shallower networks."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = _normed(channels, width, 3, stride=stride, padding=1)
        self.relu1 = relu()
        self.second = _normed(width, width, 3, padding=1)
        changes = stride != 1 or channels != width
        self.shortcut: nn.Module = _normed(channels, width, 1, stride=stride) if changes else nn.Sequential()
        self.relu = relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.second(self.relu1(self.first(x))) + self.shortcut(x))  # type: ignore[no-any-return]


RESNET = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def resnet(depth: int, *, late: bool = False) -> nn.Module:
    """Builds ResNet with 18, 34, 50, 101 or 152 layers.

    Args:
        depth: number of layers.
        late: whether the stride is in the 3 × 3 convolution of a block (v1.5) instead of in the first (v1).
    """
    stages: dict[str, nn.Module] = {}
    channels = 64
    for stage, count in enumerate(RESNET[depth]):
        width = 64 << stage
        for place in range(count):
            stride = 2 if stage and not place else 1
            deep = depth >= 50
            block = Residual(channels, width, stride, late=late) if deep else Basic(channels, width, stride)
            stages[f"stage{stage + 1}_{place + 1}"] = block
            channels = 4 * width if deep else width
    stem = {"stem": _normed(3, 64, 7, stride=2, padding=3), "relu": relu(), "pool": nn.MaxPool2d(3, 2, padding=1)}
    return chain(**stem, **stages, mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(channels, 1000))


def _conv(
    channels: int, filters: int, tall: int, wide: int | None = None, *, same: bool = True, **options: Any
) -> nn.Module:
    """A convolution without bias, batch normalisation and ReLU; `same` keeps the size of the picture."""
    wide = tall if wide is None else wide
    padding = (tall // 2, wide // 2) if same else 0
    conv = nn.Conv2d(channels, filters, (tall, wide), padding=padding, bias=False, **options)
    return chain(conv=conv, bn=nn.BatchNorm2d(filters), relu=relu())


def _pooled(channels: int, filters: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, padding=1), _conv(channels, filters, 1))


def _block_a(channels: int, pooled: int) -> nn.Module:
    return ParallelBranches(
        {
            "1x1": _conv(channels, 64, 1),
            "5x5": nn.Sequential(_conv(channels, 48, 1), _conv(48, 64, 5)),
            "3x3": nn.Sequential(_conv(channels, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3)),
            "pool": _pooled(channels, pooled),
        }
    )


def _block_b(channels: int) -> nn.Module:
    deep = (_conv(channels, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3, same=False, stride=2))
    return ParallelBranches(
        {
            "3x3": _conv(channels, 384, 3, same=False, stride=2),
            "deep": nn.Sequential(*deep),
            "pool": nn.MaxPool2d(3, 2),
        }
    )


def _block_c(width: int) -> nn.Module:
    short = (_conv(768, width, 1), _conv(width, width, 1, 7), _conv(width, 192, 7, 1))
    ahead = (_conv(768, width, 1), _conv(width, width, 7, 1), _conv(width, width, 1, 7))
    long = (*ahead, _conv(width, width, 7, 1), _conv(width, 192, 1, 7))
    return ParallelBranches(
        {
            "1x1": _conv(768, 192, 1),
            "7x7": nn.Sequential(*short),
            "deep": nn.Sequential(*long),
            "pool": _pooled(768, 192),
        }
    )


def _block_d() -> nn.Module:
    wide = (_conv(768, 192, 1), _conv(192, 192, 1, 7), _conv(192, 192, 7, 1))
    return ParallelBranches(
        {
            "3x3": nn.Sequential(_conv(768, 192, 1), _conv(192, 320, 3, same=False, stride=2)),
            "7x7": nn.Sequential(*wide, _conv(192, 192, 3, same=False, stride=2)),
            "pool": nn.MaxPool2d(3, 2),
        }
    )


def _block_e(channels: int) -> nn.Module:
    def split() -> nn.Module:
        return ParallelBranches({"1x3": _conv(384, 384, 1, 3), "3x1": _conv(384, 384, 3, 1)})

    return ParallelBranches(
        {
            "1x1": _conv(channels, 320, 1),
            "3x3": nn.Sequential(_conv(channels, 384, 1), split()),
            "deep": nn.Sequential(_conv(channels, 448, 1), _conv(448, 384, 3), split()),
            "pool": _pooled(channels, 192),
        }
    )


def inception3() -> nn.Module:
    """Inception-v3 for pictures of 299 × 299."""
    return chain(
        conv1=_conv(3, 32, 3, same=False, stride=2), conv2=_conv(32, 32, 3, same=False), conv3=_conv(32, 64, 3),
        pool1=nn.MaxPool2d(3, 2), conv4=_conv(64, 80, 1), conv5=_conv(80, 192, 3, same=False), pool2=nn.MaxPool2d(3, 2),
        a1=_block_a(192, 32), a2=_block_a(256, 64), a3=_block_a(288, 64), b=_block_b(288),
        c1=_block_c(128), c2=_block_c(160), c3=_block_c(160), c4=_block_c(192), d=_block_d(),
        e1=_block_e(1280), e2=_block_e(2048),
        mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(2048, 1000),
    )  # fmt: skip


TOKENS, WORDS, WIDTH, HEADS, DEPTH = 128, 10_000, 256, 4, 4


class Attention(nn.Module):
    """Attention of all tokens to all tokens, in several heads, without a mask, which has no counted cost."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.softmax = nn.Softmax(dim=-1)
        self.outward = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.inward(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        weights = self.softmax(query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5)
        return self.outward((weights @ value).transpose(1, 2).reshape(batch, tokens, width))  # type: ignore[no-any-return]


class EncoderBlock(nn.Module):
    """Attention and a network of two layers, each with normalisation before it and a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = chain(up=nn.Linear(width, 4 * width), gelu=nn.GELU(), down=nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


def transformer() -> tuple[nn.Module, Tensor]:
    """Returns the module and one sample."""
    blocks = {f"block{number}": EncoderBlock(WIDTH, HEADS) for number in range(1, DEPTH + 1)}
    model = chain(
        embedding=nn.Embedding(WORDS, WIDTH), **blocks, norm=nn.LayerNorm(WIDTH), head=nn.Linear(WIDTH, WORDS)
    )
    return model, torch.empty(TOKENS, dtype=torch.int64)
