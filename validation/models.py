"""Models of published measurements that the catalogue lacks, as functions for `workload.model: module:function`.

Each returns a module and one sample. Only sizes and the order of layers matter: nothing is trained, so dropout and
initial weights are omitted. This file imports torch; it is imported only for tracing.
"""

from __future__ import annotations

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
