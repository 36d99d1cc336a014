"""Real measurements for the claims on HSGD: shared memory against sockets, and contiguous against scattered reading."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import AllReduce, NextStep, Now
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Samples
from paceline.backend.calibration.storage_costs import Readers, scratch
from paceline.backend.local.launch import Launch, run_job
from paceline.papers.core.claim import Effort, Predicted, over_range, over_seeds
from paceline.records.trace import Schedule
from paceline.workloads import build
from paceline.workloads.reading import Order, Strategy
from paceline.workloads.reading.reader import Opened, Reader

RANKS = 2
NUMBERS = (5_000, 200_000, 2_000_000)
"""lengths of the vectors, of 20 kB, 0.8 MB and 8 MB: from a layer of a small network to a part of a large one"""
TIMES = 30
INPUTS = 3072
"""bytes of a sample's inputs: a picture of CIFAR-10"""
BATCH, BUFFER = 64, 1024
SCATTERED_SHARE = 16
"""scattered reading takes this part of the batches, because it is slow"""


@dataclass(frozen=True, kw_only=True)
class TimedAllReduces(Method):
    """A method of one step that times all-reduces of several sizes; its state has the median times in seconds."""

    name = "timed-all-reduces"
    staleness_kind = StalenessKind.STEPS
    source = "a measurement"
    guarantees = frozenset()

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        found: list[float] = []
        while (yield from NextStep(state)):
            for length in NUMBERS:
                vector, took = np.ones(length, np.float32), []
                for number in range(TIMES):
                    start = yield from Now()
                    yield from AllReduce(value=vector, group=me.workers, key=f"{length} numbers, {number}", op="sum")
                    took.append((yield from Now()) - start)
                found.append(median(took))
            state = Replica(state.step + 1, state.weights, found)
        return state


def _all_reduce_s(*, shared_memory: bool) -> list[float]:
    """Returns the median time of an all-reduce of each size in one launch, in seconds."""
    learner = build("digits-mlp", dataset="digits", learning="train", seed=1)
    nodes = [[Rank(rank) for rank in range(RANKS)]]
    job = Job.of(TimedAllReduces(), nodes, learner, batch=1, budget=Budget(samples=RANKS))
    trace = run_job(Launch(job=job, schedule=lambda: Schedule(every=float("inf")), shared_memory=shared_memory))
    found: list[float] = trace.states[Rank(0)].optimizer_state
    return found


def sockets_over_memory(effort: Effort) -> Predicted:
    """Returns the time of an all-reduce over sockets divided by that in shared memory.

    It is the geometric mean over the sizes and rounds, with the interval over rounds.

    Args:
        effort: Decides on the number of rounds; in each, both ways are launched one after the other.
    """
    ratios = []
    for number in range(effort.choose(9, 4)):
        ways = (False, True) if number % 2 else (True, False)
        times = {way: np.array(_all_reduce_s(shared_memory=way)) for way in ways}
        ratios.append(times[False] / times[True])
    every = np.array(ratios)
    by_size = ", ".join(
        f"{ratio:.1f} for {length * 4 / 1000:,.0f} kB"
        for length, ratio in zip(NUMBERS, np.median(every, 0), strict=True)
    )
    found = over_seeds(np.log(every).mean(axis=1).tolist())
    return Predicted(
        value=math.exp(found.value),
        low=math.exp(found.low),
        high=math.exp(found.high),
        reason=f"Rounds differ, as while other programs use the cores. By size: {by_size}.",
        details=(f"Median times of {TIMES} all-reduces among {RANKS} processes; ratio {by_size}.",),
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """The batches that one process reads."""

    strategy: Strategy
    num_samples: int
    first: int
    steps: int

    def ready(self, opened: Opened) -> Callable[[], None]:
        """Returns the reading, prepared so that only the requests and the handling of their bytes are timed."""
        order = Order(strategy=self.strategy, num_samples=self.num_samples, seed=1, buffer=BUFFER)
        reader = Reader(opened.file, order, opened=opened)
        batches = [Samples(0, 1, self.first + number, BATCH) for number in range(self.steps)]
        order.positions(batches[0])

        def run() -> None:
            for samples in batches:
                reader.records(samples)

        return run


def contiguous_over_scattered(effort: Effort) -> Predicted:
    """Returns the records per second of contiguous reading divided by those of scattered reading, past the page cache.

    Args:
        effort: Decides on the size of the file and the number of repeats.
    """
    ratios: list[float] = []
    folder, mebibytes = Path(tempfile.gettempdir()), effort.choose(128, 48)
    with scratch(folder, mebibytes=mebibytes, inputs=INPUTS) as file, Readers(file, 1) as readers:
        whole = file.num_samples // BATCH
        part = max(2, whole // SCATTERED_SHARE)
        for turn in range(effort.choose(7, 3)):
            scattered = Reading("scattered", file.num_samples, turn * part, part)
            rates = {
                one.strategy: one.steps * BATCH / readers.seconds([one])
                for one in (scattered, Reading("contiguous", file.num_samples, 0, whole))
            }
            ratios.append(rates["contiguous"] / rates["scattered"])
        way = readers.past_cache
    found = over_range(ratios)
    return Predicted(
        value=found.value,
        low=found.low,
        high=found.high,
        reason="Both were read from a cache.",
        details=(f"One process, records of {INPUTS} bytes, runs of {BUFFER} records against single ones; {way}.",),
    )
