"""The rows of `benchmarks/shared.py` about messages inside a host, by gloo and in shared memory.

Programs send as any program does, one operation after the other, and measure the time themselves. Nothing is computed,
so these are the costs of messages while the cores are otherwise idle. The figures of a row are medians over launches of
the median of each launch. Launches of both ways alternate, and each ratio is of two launches next to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import NextStep, Now, Receive, Send
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Rank
from paceline.backend.local.launch import Launch, run_job
from shared_memory.runs import Flat, never

SIZES = {4: 300, 1_000: 300, 16_000: 300, 256_000: 150, 1_000_000: 60, 8_000_000: 15}
"""bytes, and the number of round trips of such a message in one launch"""
PUSHED_BYTES, PUSHES = 810_000, 300
"""the size used in the measurements of gloo: the weights of a perceptron with 784, 256 and 10 units"""
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Timed(Method):
    """A method of one step whose result is the time that the program measured."""

    name = "timed"
    staleness_kind = StalenessKind.STEPS
    source = "a benchmark"
    guarantees = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        memory = None
        while (yield from NextStep(state)):
            memory = yield from self.timed(me)
            state = Replica(state.step + 1, state.weights, memory)
        return state

    def timed(self, me: RankContext) -> Routine[Any]:
        """Runs the rank's part of the step and returns seconds."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RoundTrips(Timed):
    """Rank 0 sends, and rank 1 sends the message back."""

    @program
    def timed(self, me: RankContext) -> Program[dict[int, float]]:
        found: dict[int, float] = {}
        other = Rank(1 - me.rank)
        for size, times in SIZES.items():
            value, took = np.ones(size // 4, np.float32), []
            for _ in range(times):
                start = yield from Now()
                if me.rank == 0:
                    yield from Send(other, value)
                    yield from Receive(other)
                else:
                    yield from Send(other, (yield from Receive(other)).value)
                took.append((yield from Now()) - start)
            found[size] = median(took)
        return found


@dataclass(frozen=True, kw_only=True)
class Pushes(Timed):
    """Rank 0 answers each message with one of the same size, like a server; the others push and pull."""

    @program
    def timed(self, me: RankContext) -> Program[float]:
        value, others = np.ones(PUSHED_BYTES // 4, np.float32), len(me.workers) - 1
        start = yield from Now()
        for _ in range(PUSHES * (others if me.rank == 0 else 1)):
            if me.rank == 0:
                yield from Send((yield from Receive()).source, value)
            else:
                yield from Send(Rank(0), value)
                yield from Receive(Rank(0))
        return (yield from Now()) - start


def launched(method: Method, ranks: int, *, shared_memory: bool) -> Any:
    """Returns the time that rank 0 measured."""
    nodes = [[Rank(rank) for rank in range(ranks)]]
    job = Job.of(method, nodes, Flat(PUSHED_BYTES // 4), batch=1, budget=Budget(samples=ranks))
    return run_job(Launch(job=job, schedule=never, shared_memory=shared_memory)).states[Rank(0)].optimizer_state


def rows_of(rounds: int) -> list[dict[str, Any]]:
    """Returns the round trips of every size, and pushes and pulls per second; both ways, round after round."""
    trips: dict[bool, list[dict[int, float]]] = {False: [], True: []}
    pushes: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for way in (False, True) if number % 2 else (True, False):
            trips[way].append(launched(RoundTrips(), 2, shared_memory=way))
            pushes[way].append(launched(Pushes(), WORKERS + 1, shared_memory=way) / (WORKERS * PUSHES))
    rows = [_row("round trip", size, *([one[size] for one in trips[way]] for way in (False, True))) for size in SIZES]
    return [*rows, _row(f"push and pull of {WORKERS}", PUSHED_BYTES, pushes[False], pushes[True])]


def _row(what: str, size: int, gloo: Sequence[float], memory: Sequence[float]) -> dict[str, Any]:
    ratios = [slow / quick for slow, quick in zip(gloo, memory, strict=True)]
    return {
        "operation": what,
        "bytes": size,
        "gloo_s": median(gloo),
        "memory_s": median(memory),
        "ratio": median(ratios),
        "ratio_least": min(ratios),
        "ratio_largest": max(ratios),
        "rounds": len(ratios),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Renders the rows."""
    shown = Table(title="Messages inside a host", title_justify="left", box=None)
    shown.add_column("messages")
    for column in ("bytes", "gloo us", "memory us", "gloo /s", "memory /s", "ratio", "least", "largest"):
        shown.add_column(column, justify="right")
    for one in rows:
        shown.add_row(
            one["operation"],
            f"{one['bytes']:,}",
            *(f"{one[way] * 1e6:.0f}" for way in ("gloo_s", "memory_s")),
            *(f"{1 / one[way]:,.0f}" for way in ("gloo_s", "memory_s")),
            *(f"{one[name]:.1f}" for name in ("ratio", "ratio_least", "ratio_largest")),
        )
    return shown
