"""Collectives inside a node: in memory that its ranks share they answer what gloo answers, and leave nothing behind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
import torch

from paceline.algorithms.job import Job
from paceline.algorithms.method import Me, Replica
from paceline.algorithms.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.program import Program, program
from paceline.algorithms.values import Step
from paceline.backend.launch import Launch, run_job
from paceline.backend.segment import PIECE_BYTES
from paceline.records.trace import Schedule, Trace
from tests.contract.cases import Case, answers

pytestmark = pytest.mark.backend

THREE = [[0, 1, 2]]


def on(memory: bool) -> Any:
    """An interpreter, as contract cases want it."""

    def run(job: Job) -> Trace:
        schedule = Schedule(every=1)
        return run_job(Launch(job=job, schedule=lambda: schedule, patience_s=2.0, shared_memory=memory))

    return run


KINDS = ["float64", "float32", "float16", "torch.float64", "torch.float32", "torch.float16", "torch.bfloat16"]


def numbers_of(kind: str, rank: int, size: int) -> Any:
    """Numbers of all magnitudes, so that another order of sums is another sum."""
    drawn = np.random.default_rng(rank).standard_normal(size) * 10.0 ** (np.arange(size) % 4)
    if kind.startswith("torch."):
        return torch.from_numpy(drawn).to(getattr(torch, kind.removeprefix("torch.")))
    return drawn.astype(kind)


@dataclass(frozen=True, kw_only=True)
class Everything(Case):
    """Every kind of collective, on one vector each."""

    kind: str
    size: int

    @program
    def body(self, me: Me, step: Step, state: Replica) -> Program[dict[str, Any]]:
        mine, all_, root = numbers_of(self.kind, me.rank, self.size), me.node, me.node.ranks[-1]
        before = bytes_of(mine)
        found = {"sum": (yield from AllReduce(value=mine, group=all_, key="sum", op="sum"))}
        found["mean"] = yield from AllReduce(value=mine, group=all_, key="mean")
        found["at root"] = yield from Reduce(value=mine, group=all_, root=root, key="at root")
        found["mean at root"] = yield from Reduce(value=mine, group=all_, root=root, key="mean at root", op="mean")
        found["roots"] = yield from Broadcast(value=mine, group=all_, root=root, key="roots")
        parts = yield from AllGather(value=mine, group=all_, key="all")
        found |= {f"of {rank}": part for rank, part in zip(all_, parts, strict=True)}
        yield from Barrier(group=all_, key="end")
        assert bytes_of(mine) == before, "an operation must not change what it is given"
        return {name: (str(type(value)), bytes_of(value)) for name, value in found.items()}


def bytes_of(value: Any) -> bytes | None:
    if value is None or len(value) == 0:
        return None if value is None else b""
    return (value.view(torch.uint8).numpy() if isinstance(value, torch.Tensor) else value).tobytes()


def expected(kind: str, size: int, rank: int, ranks: int) -> dict[str, Any]:
    """What the simulator makes of it: sums in the order of ranks."""
    values = [numbers_of(kind, one, size) for one in range(ranks)]
    total, last = reduce(add, values), ranks - 1
    found = {"sum": total, "mean": total / ranks, "at root": None, "mean at root": None, "roots": values[last]}
    if rank == last:
        found |= {"at root": total, "mean at root": total / ranks}
    found |= {f"of {one}": value for one, value in enumerate(values)}
    return {name: (str(type(value)), bytes_of(value)) for name, value in found.items()}


SIZES = [0, 1, 1000, PIECE_BYTES // 4 + 1]
"""elements; of float32 the last is a piece and one more, of float64 two pieces and one more"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_every_collective_answers_bit_for_bit_what_the_simulator_does(kind: str, size: int) -> None:
    for rank, found in enumerate(answers(on(True), Everything(kind=kind, size=size), nodes=THREE)):
        assert found == expected(kind, size, rank, 3)
