"""Inception-v3 (Szegedy et al., 2016) as a torch module, without its auxiliary head. Rules as in `paper_networks`."""

from __future__ import annotations

from typing import Any

from torch import nn

from paceline.workloads.models.paper_networks import ParallelBranches, chain, relu


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
