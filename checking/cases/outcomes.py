"""The outcome of a case, and the limits after which its run is ended."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Job
from paceline.checking.cases.case import Case
from paceline.checking.cases.observed import Finding
from paceline.checking.driver import Entry
from paceline.checking.limits import interrupted_after
from paceline.records.trace import Trace

MOVES_PER_STEP = 200
"""limit of moves for each step of each rank, before a program is said not to end; provenance: ours, layerwise methods
take about 30"""
LIMIT_S = 5.0
"""processor seconds that a run may take; provenance: ours, the largest runs take a tenth of a second"""


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
    """A run has used `LIMIT_S` of processor time."""


def limited_processor_time(seconds: float = LIMIT_S) -> AbstractContextManager[None]:
    """Raises `TooLong` in the block after so much processor time, for a program that computes without operations."""
    words = f"a program computed for {seconds:g} s without reaching the end of its run"
    return interrupted_after(seconds, "processor time", lambda: TooLong(words))
