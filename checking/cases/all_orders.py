"""Checks a method in every inequivalent order of small jobs, instead of in random cases."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from paceline.algorithms.core.method import Method
from paceline.checking.cases.case import Case
from paceline.checking.cases.checking_methods import Checked, Effort, Progress, Report, note, shrink_all, verdicts_of
from paceline.checking.cases.outcomes import Outcome
from paceline.checking.cases.performing import in_recorded_order
from paceline.checking.cases.random_cases import RandomCases
from paceline.checking.cases.shrinking import Loosely
from paceline.checking.driver import Entry
from paceline.checking.exhaustive import Orders, explore
from paceline.records.trace import Trace

COUNT_S = 10.0
"""seconds for counting the sequences of moves without reduction"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """The orders of one small job."""

    workers: int
    steps: int
    orders: Orders
    deaths: int = 0
    """runs in which a worker died"""


@dataclass(kw_only=True)
class CheckedOrders(Checked):
    """The verdicts of one method, and the numbers of orders."""

    explored: list[Explored] = field(default_factory=list)


def check_all_orders(
    method: Method,
    effort: Effort,
    progress: Progress = lambda *_: None,
    report: Report = lambda _: None,
    *,
    deaths: bool = False,
) -> CheckedOrders:
    """Checks a method in every inequivalent order of moves, with 1 worker, then 2, and so on.

    Args:
        method: the method with its hyper-parameters.
        effort: the number of workers and steps; the limits of schedules and seconds are those of each size.
        progress: receives what is done.
        report: receives the first violation of each guarantee at once.
        deaths: whether, in each order, a worker also dies before its first operation and after each of its operations,
            if the method promises to survive that. The run then continues in the simplest order.

    >>> from paceline.algorithms import find
    >>> found = check_all_orders(find("async-sgd")(), Effort(workers=2, steps=1))
    >>> [(one.workers, one.orders.explored, one.orders.complete) for one in found.explored], found.violated
    ([(1, 1, True), (2, 8, True)], [])
    """
    found = CheckedOrders(method=method, verdicts=verdicts_of(method, effort.same_as))
    begun_s = time.monotonic()
    for case in _cases(method, effort):
        progress(f"{case.workers} workers × {case.steps} steps", 0.0)
        found.explored.append(_explored(found, case, effort, progress, report, deaths=deaths))
        if found.violated:
            break
    shrink_all(found, effort, progress)
    found.seconds = time.monotonic() - begun_s
    return found


def _cases(method: Method, effort: Effort) -> Iterator[Case]:
    """Yields a case for each number of workers, each on a node of its own if the method accepts that."""
    placements = RandomCases(method, workers=effort.workers).placements
    for count in sorted({sum(sizes) for sizes in placements}):
        sizes = max((sizes for sizes in placements if sum(sizes) == count), key=len)
        yield Case(method=method, nodes=sizes, steps=effort.steps, same_as=effort.same_as)


def _explored(
    found: Checked, case: Case, effort: Effort, progress: Progress, report: Report, *, deaths: bool
) -> Explored:
    mortal = deaths and case.job().spare > 0
    died = 0

    def visit(_: Trace, log: Sequence[Entry]) -> None:
        nonlocal died
        note(found, _repeated(case, log), report, costly=False)
        for dying in _dying(case, log) if mortal else ():
            note(found, _repeated(dying, log), report, costly=False)
            died += 1
        progress(f"{case.workers} workers × {case.steps} steps, {found.schedules} schedules", 0.5)

    def failed(_: Exception, log: Sequence[Entry]) -> None:
        visit(Trace(), log)

    orders = explore(
        case.job(), visit=visit, failed=failed, most=effort.schedules, seconds=effort.seconds, count_s=COUNT_S
    )
    return Explored(workers=case.workers, steps=case.steps, orders=orders, deaths=died)


def _repeated(case: Case, log: Sequence[Entry]) -> Outcome:
    """Runs a case with the moves of an earlier run, as far as they are possible; then in the simplest order."""
    return in_recorded_order(case, Loosely(entry.move for entry in log))


def _dying(case: Case, log: Sequence[Entry]) -> Iterator[Case]:
    """Yields the case with the death of each worker before its first operation and after each of its operations."""
    for rank in range(case.workers):
        moves = [0, *(number + 1 for number, entry in enumerate(log) if entry.move.rank == rank)]
        yield from (dataclasses.replace(case, deaths=((rank, move),)) for move in moves)
