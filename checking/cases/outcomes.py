"""The outcome of a case, and the limits after which its run is ended."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Job
from paceline.checking.cases.case import Case
from paceline.checking.cases.observed import Finding
from paceline.checking.driver import Entry
from paceline.checking.limits import STUCK_S, interrupted_when_stuck
from paceline.records.figures import SECONDS
from paceline.records.trace import Trace

MOVES_PER_STEP = 200
"""limit of moves for each step of each rank, before a program is said not to end; provenance: ours, layerwise methods
take about 30"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case did: the record of its run, the log of moves (any-order interpreter), and the error that ended it."""

    case: Case
    job: Job
    trace: Trace
    log: tuple[Entry, ...] = ()
    error: Exception | None = None
    findings: tuple[Finding, ...] = ()
    """violated invariants that the run itself has found; the trace does not show them"""
    seconds: float = 0.0
    """that the run took"""


def moves_of(case: Case, job: Job) -> int:
    """Returns the number of moves after which a case is said not to end."""
    return MOVES_PER_STEP * len(job.team) * (case.steps + 2)


class TooLong(PacelineError):
    """A program computes without an operation."""


def interrupted_if_stuck() -> AbstractContextManager[None]:
    """Raises `TooLong` in the block if a program computes without operations."""
    words = f"a program computed for {SECONDS.with_symbol(STUCK_S)} of processor time without an operation"
    return interrupted_when_stuck(lambda: TooLong(words))
