"""The overhead of a run per step: in total, and the parts of the program's generator and the record.

Rules of this file:

* One rank, a learner without arithmetic, vectors of four numbers: the time of a step is that of the run itself,
  including the fixed cost of torch calls.
* The generator's part is the time between an answer and the next operation, including the program's arithmetic on four
  numbers. The record's part is spans, rows, and writing them to the file. They are timed in separate launches, because
  the timing itself, which is included, would slow down the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawValue
from statistics import median
from typing import Any
from unittest.mock import patch

from common.harness import between
from paceline.algorithms.core.program import Lane
from paceline.backend.rank.interpreter import RankWeightsOwner
from paceline.backend.rank.rank_context import RankStation
from paceline.backend.status.recorder import FileRecorder
from torch_comparison.programs import TRANSPORTS, Nothing, run, step_s

ALLOWED_S = 0.02 * 0.005
"""2 % of a step of 5 ms"""
RECORD_AND_GENERATOR = (
    (Lane, "advance"),
    (RankStation, "span"),
    (RankWeightsOwner, "applied"),
    (FileRecorder, "flush"),
)
"""the timed functions, none of which calls another"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a step of a method with nothing to compute and no other rank."""

    pair: str
    transport: str
    step_s: float
    low: float
    high: float
    generator_and_record_s: float
    share_of_5ms: float
    """of the generator and the record"""


def costs(ways: Iterable[tuple[str, str]], times: int, steps: int) -> Iterator[Cost]:
    """Yields for each method and transport the median of this many launches."""
    for name, transport in ways:
        each = [launched(name, steps, TRANSPORTS[transport]) for _ in range(times)]
        parts = [spent_s(name, steps, TRANSPORTS[transport]) for _ in range(times)]
        low, high = between(each)
        part_s = median(parts)
        yield Cost(f"{name} / nothing", transport, median(each), low, high, part_s, part_s / 0.005)


def launched(name: str, steps: int, shared: bool) -> float:
    """Returns the mean seconds of a step in the second half of a launch."""
    return step_s(run(name, Nothing(), workers=1, steps=2 * steps, shared_memory=shared), 1, steps)


def spent_s(name: str, steps: int, shared: bool) -> float:
    """Returns the seconds of a step that the generator and the record take."""
    with timed() as spent:
        run(name, Nothing(), workers=1, steps=steps, shared_memory=shared)
    return float(spent.value) / steps


@contextmanager
def timed() -> Iterator[Any]:
    """Yields a sum, to which ranks that are forked during the block add the time of these calls."""
    spent: Any = RawValue("d", 0.0)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def body(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                spent.value += time.perf_counter() - began

        return body

    with ExitStack() as patches:
        for owner, name in RECORD_AND_GENERATOR:
            patches.enter_context(patch.object(owner, name, counted(getattr(owner, name))))
        yield spent
