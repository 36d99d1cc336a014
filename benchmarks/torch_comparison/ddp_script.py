"""A training script as a user of PyTorch has it: DistributedDataParallel, recorded by `paceline.torch.hook` or not.

    torchrun --nproc-per-node 2 ddp_script.py MODEL STEPS OUT FOLDER

trains STEPS steps, as many recorded ones, and again STEPS; rank 0 writes the mean seconds of an unrecorded step to the
JSON file OUT, and the recording into FOLDER. Without FOLDER nothing is recorded.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import paceline.torch

WARM_UP = 10
BATCH, IMAGE, CLASSES = 32, 28, 10
SENTENCES, TOKENS, WORDS, WIDTH = 8, 64, 512, 128


class Transformer(nn.Module):
    """An encoder of four layers over random tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layers(self.embed(tokens))).flatten(0, 1)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 256), nn.ReLU(), nn.Linear(256, CLASSES),
    )  # fmt: skip


def batch_of(model: str) -> tuple[Tensor, Tensor]:
    if model == "cnn":
        return torch.randn(BATCH, 1, IMAGE, IMAGE), torch.randint(CLASSES, (BATCH,))
    tokens = torch.randint(WORDS, (2, SENTENCES, TOKENS))
    return tokens[0], tokens[1].flatten()


def main(name: str, steps: int, out: Path, folder: str | None = None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(cnn() if name == "cnn" else Transformer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [batch_of(name) for _ in range(8)]

    def trained(count: int) -> float:
        """Trains so many steps, and returns the mean seconds of one."""
        dist.barrier()
        start = time.perf_counter()
        for step in range(count):
            inputs, labels = batches[step % len(batches)]
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return (time.perf_counter() - start) / count

    trained(WARM_UP)
    before_s = trained(steps)
    if folder:
        with paceline.torch.hook(model, optimizer, out=folder, steps=steps, warm_up=1):
            trained(steps + 1)
    after_s = trained(steps)
    if dist.get_rank() == 0:
        parameters = sum(1 for _ in model.parameters())
        out.write_text(json.dumps({"step_s": (before_s + after_s) / 2, "parameters": parameters}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
