"""Models of published measurements that the catalogue lacks, as functions for `workload.model: module:function`.

Each returns a module and one sample. Only sizes and the order of layers matter: nothing is trained, so dropout and
initial weights are omitted. Modules register their parameters in the order of the originals, because buckets of
gradients follow it. This file imports torch; it is imported only for tracing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.workloads.models.paper_networks import Basic, chain, relu

# --- Gavel (stanford-futuredata/gavel, workloads/pytorch) ---------------------------------------------------------


def cifar_resnet18() -> tuple[nn.Module, Tensor]:
    """Returns ResNet-18 for pictures of 32 × 32: FOUND, image_classification/cifar10/models/resnet.py."""
    stem = {"conv": nn.Conv2d(3, 64, 3, padding=1, bias=False), "bn": nn.BatchNorm2d(64), "relu": relu()}
    blocks: dict[str, nn.Module] = {}
    channels = 64
    for stage in range(4):
        for place in range(2):
            width = 64 << stage
            blocks[f"stage{stage + 1}_{place + 1}"] = Basic(channels, width, 2 if stage and not place else 1)
            channels = width
    return chain(**stem, **blocks, pool=nn.AvgPool2d(4), flat=nn.Flatten(), fc=nn.Linear(512, 10)), torch.empty(
        3, 32, 32
    )


WIKITEXT2_WORDS, BPTT, LM_WIDTH = 33_278, 35, 200
"""words of WikiText-2 (Merity et al., 2016), tokens of a sample and width; FOUND (language_modeling/main.py)"""


class _WordModel(nn.Module):
    """An embedding, two layers of LSTM and a projection that shares no weights with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(WIKITEXT2_WORDS, LM_WIDTH)
        self.rnn = nn.LSTM(LM_WIDTH, LM_WIDTH, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(LM_WIDTH, WIKITEXT2_WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.rnn(self.encoder(tokens))
        return self.decoder(states)  # type: ignore[no-any-return]  # torch leaves calls untyped


def lstm_lm() -> tuple[nn.Module, Tensor]:
    """Returns the language model of PyTorch's examples: FOUND, language_modeling/model.py with its default options."""
    return _WordModel(), torch.empty(BPTT, dtype=torch.int64)


MULTI30K_WORDS = (2_909, 3_149)
"""words of the source and the target with at least 5 occurrences: FOUND, a log of the same program on the same file
(multi30k.atok.low.pt: src_vocab_size=2909, tgt_vocab_size=3149)"""
MULTI30K_TOKENS = 30
"""tokens of a padded sentence: INFERENCE, the longest of a batch (the longest of all has 52)"""


class _Translation(nn.Module):
    """The base Transformer, whose output layer has the weights of the target's embedding."""

    def __init__(self) -> None:
        super().__init__()
        width, heads, inner, depth = 512, 8, 2048, 6
        self.source = nn.Embedding(MULTI30K_WORDS[0], width)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, inner, batch_first=True) for _ in range(depth)
        )
        self.target = nn.Embedding(MULTI30K_WORDS[1], width)
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, inner, batch_first=True) for _ in range(depth)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        memory = self.source(tokens)
        for layer in self.encoder:
            memory = layer(memory)
        states = self.target(tokens)
        for layer in self.decoder:
            states = layer(states, memory)
        return F.linear(states, self.target.weight)


def translation_transformer() -> tuple[nn.Module, Tensor]:
    """Returns the Transformer for Multi30k: FOUND, translation/train.py with -proj_share_weight."""
    return _Translation(), torch.empty(MULTI30K_TOKENS, dtype=torch.int64)


# --- Pollux (petuum/adaptdl, branch osdi21-artifact, benchmark/models) --------------------------------------------


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.heads = nn.LayerNorm(width), heads

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = (batch, tokens, self.heads, width // self.heads)
        query, key, value = (part(x).reshape(split).transpose(1, 2) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        mixed = (scores.softmax(dim=3) @ value).transpose(1, 2).reshape(batch, tokens, width)
        answer: Tensor = self.norm(x + self.out(mixed))
        return answer


class _Encoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.inner, self.outer, self.norm = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.LayerNorm(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x)
        answer: Tensor = self.norm(x + self.outer(F.gelu(self.inner(x))))
        return answer


class _BertForQuestions(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, words: int, positions: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.segments, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.encoders = nn.Sequential(*(_Encoder(width, heads) for _ in range(layers)))
        self.answers = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(places) + self.segments(torch.zeros_like(tokens))
        answer: Tensor = self.answers(self.encoders(self.norm(x)))
        return answer


def bert_squad() -> tuple[nn.Module, Tensor]:
    """Returns BERT base with a head for SQuAD, without the pooler, and a text of 384 tokens.

    Source: `bert-base-uncased` of Hugging Face; length FOUND (--max_seq_length=384).

    >>> sum(parameter.numel() for parameter in bert_squad()[0].parameters())
    108893186
    """
    return _BertForQuestions(768, 12, 12, 30_522, 512), torch.zeros(384, dtype=torch.long)


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class _Weights(nn.Module):
    """Weights that the last module of their layer uses; called without effect, so that they are a layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(outputs, inputs)), nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x

    def of(self, x: Tensor) -> Tensor:
        """Returns the product with these weights."""
        return F.linear(x, self.weight, self.bias)


class _AllWeights(_Weights):
    """The last weights of a layer of gated units, which computes both of its directions.

    As in cuDNN, the products with the inputs of all frames are one, those with the states follow each other, what
    follows them is one kernel, and all gradients of the layer are complete at once: MEMORY high.
    """

    def forward(self, x: Tensor, *others: _Weights) -> Tensor:
        inputs, states, inputs_back = others
        return self._direction(x, inputs, states) + self._direction(x.flip(1), inputs_back, self).flip(1)

    @staticmethod
    def _direction(x: Tensor, inputs: _Weights, states: _Weights) -> Tensor:
        frames, state = [], x.new_zeros(len(x), states.weight.shape[1])
        for gates in inputs.of(x).unbind(1):
            state = (gates + states.of(state)).tanh()[:, : state.shape[1]]  # of the sizes of a gated unit
            frames.append(state)
        return torch.stack(frames, dim=1)


class _Recurrent(nn.Module):
    def __init__(self, inputs: int, width: int, *, normalised: bool) -> None:
        super().__init__()
        self.norm = _Norm(inputs) if normalised else nn.Identity()
        self.inputs, self.states = _Weights(inputs, 3 * width), _Weights(width, 3 * width)
        self.inputs_back, self.states_back = _Weights(inputs, 3 * width), _AllWeights(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        others = self.inputs, self.states, self.inputs_back
        x = self.norm(x)
        for weights in others:
            x = weights(x)
        answer: Tensor = self.states_back(x, *others)
        return answer


class _Norm(nn.Module):
    """Normalises the numbers of frames over frames and samples."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return answer


class _Frames(nn.Module):
    """Turns channels and frequencies into the numbers of a frame."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1, 2).transpose(1, 2)


def deepspeech2() -> tuple[nn.Module, Sequence[int]]:
    """Returns Deep Speech 2 with five bidirectional layers of 800 gated units, and the shape of a spectrogram.

    A frame is taken every 10 ms. Recordings last some seconds; as the work of all layers grows with them alike, a
    shorter one gives the same shares of a step.

    >>> sum(parameter.numel() for parameter in deepspeech2()[0].parameters())
    41187968
    """
    width, labels = 800, 29
    convolutions = [
        nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
    ]  # fmt: skip
    layers = [_Recurrent(width if number else 32 * 41, width, normalised=number > 0) for number in range(5)]
    head = [_Norm(width), nn.Linear(width, labels, bias=False)]
    return nn.Sequential(*convolutions, _Frames(), *layers, *head), (1, 161, 32)


class _NeuMF(nn.Module):
    def __init__(self, users: int, items: int, factors: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.deep_users, self.deep_items = nn.Embedding(users, 4 * factors), nn.Embedding(items, 4 * factors)
        sizes = (8 * factors, 4 * factors, 2 * factors, factors)
        layers = [layer for inputs, outputs in pairwise(sizes) for layer in (nn.Linear(inputs, outputs), nn.ReLU())]
        self.layers, self.answer = nn.Sequential(*layers), nn.Linear(2 * factors, 1)

    def forward(self, pair: Tensor) -> Tensor:
        user, item = pair[:, 0], pair[:, 1]
        product = self.users(user) * self.items(item)
        deep = self.layers(torch.cat((self.deep_users(user), self.deep_items(item)), dim=1))
        answer: Tensor = self.answer(torch.cat((product, deep), dim=1))
        return answer


def neumf_movielens() -> tuple[nn.Module, Tensor]:
    """Returns NeuMF with 32 factors for MovieLens 1M, and a pair of user and item.

    6,040 users and 3,706 items: MEMORY certain (the ratings of MovieLens 1M).

    >>> sum(parameter.numel() for parameter in neumf_movielens()[0].parameters())
    1602657
    """
    return _NeuMF(6040, 3706, 32), torch.zeros(2, dtype=torch.long)


def _block(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        _convolution(inputs, outputs, size, stride), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)
    )  # fmt: skip


class _Shortcut(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_block(width, width // 2, 1), _block(width // 2, width, 3))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = x + self.body(x)
        return answer


def _stage(inputs: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(_block(inputs, 2 * inputs, 3, 2), *(_Shortcut(2 * inputs) for _ in range(blocks)))


class _Detection(nn.Module):
    """The layers of one scale; what the next scale needs is taken before its last two convolutions."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        sizes = ((inputs, width, 1), (width, 2 * width, 3), (2 * width, width, 1), (width, 2 * width, 3),
                 (2 * width, width, 1))  # fmt: skip
        self.body = nn.Sequential(*(_block(*size) for size in sizes))
        self.head = nn.Sequential(_block(width, 2 * width, 3), nn.Conv2d(2 * width, outputs, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return x, self.head(x)


class _Yolo(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        outputs = 3 * (classes + 5)
        self.start = nn.Sequential(_block(3, 32, 3), _stage(32, 1), _stage(64, 2), _stage(128, 8))
        self.middle, self.end = _stage(256, 8), _stage(512, 4)
        self.large, self.to_medium = _Detection(1024, 512, outputs), _block(512, 256, 1)
        self.medium, self.to_small = _Detection(512 + 256, 256, outputs), _block(256, 128, 1)
        self.small = _Detection(256 + 128, 128, outputs)

    def forward(self, x: Tensor) -> Tensor:
        small = self.start(x)
        medium = self.middle(small)
        x, first = self.large(self.end(medium))
        x, second = self.medium(torch.cat((medium, F.interpolate(self.to_medium(x), scale_factor=2)), dim=1))
        _, third = self.small(torch.cat((small, F.interpolate(self.to_small(x), scale_factor=2)), dim=1))
        return torch.cat([scale.flatten(2) for scale in (first, second, third)], dim=2)


def yolov3_voc() -> tuple[nn.Module, Sequence[int]]:
    """Returns YOLOv3 (Darknet-53) for the 20 classes of PASCAL VOC, and the shape of a picture.

    Pictures have 448 × 448 pixels first, and other sizes between 320 and 608 in later steps (multi-scale training).

    >>> sum(parameter.numel() for parameter in yolov3_voc()[0].parameters())
    61626049
    """
    return _Yolo(20), (3, 448, 448)
