"""Checks a method on many cases, or in every inequivalent order of small jobs, with a verdict for each guarantee.

Rules of this file:

* A schedule is one case that was run. Each guarantee counts the schedules on which it was checked.
* A part of the schedules is a directed search for the worst values.
* Costly invariants, which run a case again, are checked on the first schedules and on some of the later ones.
* After a violation has been found, some more schedules are tried, since a bug often violates several guarantees.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from paceline.algorithms.core.guarantees import CustomGuarantee, Guarantee
from paceline.algorithms.core.method import Method
from paceline.checking.cases.case import Case
from paceline.checking.cases.gradient_weights import changes_of
from paceline.checking.cases.invariants import AFTER_DEATHS, INVARIANTS, SAME_AS, Violation, violations
from paceline.checking.cases.performing import Outcome, TooLong, in_recorded_order, performed
from paceline.checking.cases.random_cases import CONSERVING, DrawnCase, RandomCases
from paceline.checking.cases.shrinking import Loosely, shrunk
from paceline.checking.cases.worst_values import STARTS, Measured, Search, measured, searches
from paceline.checking.check_guarantees import check_of
from paceline.checking.defaults import SCHEDULES, SEED, STEPS, WORKERS
from paceline.checking.driver import LoggedMove
from paceline.checking.exhaustive import Orders, explore
from paceline.records.trace import Trace

FURTHER = 100
"""schedules after the first violation, so that the result does not depend on the machine's speed; provenance: ours"""
COSTLY_FIRST, COSTLY_EVERY = 20, 20
"""costly invariants are checked on the first schedules, and then on every so many"""
DIRECTED = 0.2
"""the share of the schedules that are used for the directed search; provenance: ours"""
SHRINK_RUNS = 2000
"""smaller cases for a counterexample; provenance: ours, a few seconds, and most need some hundred"""
ERRORS = ("no-deadlock", "ends", "no-errors", "collectives-match")
Progress = Callable[[str, float], Any]
"""receives a description and the completed fraction"""
Report = Callable[[Violation], Any]
"""receives the first violation of each guarantee as soon as it is found, before it is made smaller"""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is tried.

    Args:
        schedules: number of schedules.
        seconds: limit of the time; None without a limit.
        workers: the largest number of workers.
        steps: the largest number of steps of a worker in most schedules; a tenth of them has up to twice as many.
        seed: of the random cases.
        shrink_runs: smaller cases that are tried for each counterexample, and a tenth of them where a check is costly.
        same_as: a method that is to have the same weights, with its hyper-parameters; None: none.
    """

    schedules: int = SCHEDULES
    seconds: float | None = None
    workers: int = WORKERS
    steps: int = STEPS
    seed: int = SEED
    shrink_runs: int = SHRINK_RUNS
    same_as: Method | None = None


@dataclass(kw_only=True)
class Verdict:
    """What was found about one guarantee."""

    guarantee: str
    words: str
    """its description"""
    schedules: int = 0
    seconds: float = 0.0
    """of the schedules on which it was checked"""
    worst: Measured | None = None
    """the value nearest to the bound, of a guarantee with a quantity"""
    worst_case: Case | None = None
    violation: Violation | None = None

    @property
    def verdict(self) -> Literal["holds", "violated", "not checked"]:
        """Whether a violation was found."""
        if self.violation is not None:
            return "violated"
        return "holds" if self.schedules else "not checked"


@dataclass(kw_only=True)
class Checked:
    """The verdicts of one method."""

    method: Method
    verdicts: dict[str, Verdict]
    schedules: int = 0
    seconds: float = 0.0
    extremes: dict[str, tuple[Measured, Case]] = field(default_factory=dict)
    """the worst values that the directed search has found, each with its case"""
    hyper_parameters: dict[str, list[Any]] = field(default_factory=dict)
    """the values with which the method was run, by name; the given one first"""

    def __post_init__(self) -> None:
        self.hyper_parameters = {option.name: [getattr(self.method, option.name)] for option in fields(self.method)}

    @property
    def not_checked(self) -> dict[str, str]:
        """What no schedule could show: each invariant and guarantee with what it needs, empty if that is unknown."""
        needs = {name: invariant.needs for name, invariant in INVARIANTS.items()}
        return {
            name: needs.get(name, "") for name, verdict in self.verdicts.items() if verdict.verdict == "not checked"
        }

    @property
    def measured_with(self) -> list[str]:
        """The changes of hyper-parameters with which the weight of gradients was measured, if it was."""
        form = self.method.linear_form() if self.verdicts[AFTER_DEATHS].schedules else None
        return [] if form is None else list(changes_of(self.method, form))

    @property
    def violated(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts.values() if verdict.verdict == "violated"]


def verdicts_of(method: Method, same_as: Method | None = None) -> dict[str, Verdict]:
    """Returns an empty verdict for each invariant of all methods and each guarantee that the method promises.

    Args:
        method: the method.
        same_as: the method that is to have the same weights.
    """
    names = {
        invariant.name: invariant.words
        for invariant in INVARIANTS.values()
        if invariant.name != SAME_AS or same_as is not None
    }
    for guarantee in sorted(method.guarantees, key=lambda promised: promised.slug):
        names[guarantee.slug] = guarantee.value
    return {name: Verdict(guarantee=name, words=words) for name, words in names.items()}


def check_method(
    method: Method, effort: Effort, progress: Progress = lambda *_: None, report: Report = lambda _: None
) -> Checked:
    """Checks a method on random cases.

    Args:
        method: the method with its hyper-parameters.
        effort: how much is tried.
        progress: receives what is done.
        report: receives the first violation of each guarantee at once.

    Raises:
        InputError: the method accepts no cluster with so few workers.

    >>> from paceline.algorithms import find
    >>> found = check_method(find("sync-sgd")(), Effort(schedules=30))
    >>> found.schedules, found.violated, found.verdicts["synchronous"].verdict
    (30, [], 'holds')
    """
    checked = Checked(method=method, verdicts=verdicts_of(method, effort.same_as))
    begun_s, stop = time.monotonic(), effort.schedules
    for number, (outcome, search) in enumerate(_outcomes(method, effort)):
        checked.seconds = time.monotonic() - begun_s
        if note(checked, outcome, report, costly=number < COSTLY_FIRST or number % COSTLY_EVERY == 0):
            stop = min(stop, number + FURTHER)
        if search is not None and search.best is not None and search.best_case is not None:
            checked.extremes[search.objective.name] = (search.best, search.best_case)
        progress(f"{checked.schedules} schedules", number / effort.schedules)
        late = effort.seconds is not None and checked.seconds >= effort.seconds
        if number + 1 >= stop or late or isinstance(outcome.error, TooLong):  # others would take as long
            break
    shrink_all(checked, effort, progress)
    checked.seconds = time.monotonic() - begun_s
    return checked


def _outcomes(method: Method, effort: Effort) -> Iterator[tuple[Outcome, Search | None]]:
    """Yields the outcomes of random cases, and between them those of directed searches."""
    cases = RandomCases(method, effort.seed, effort.workers, effort.steps, effort.same_as)
    random = np.random.default_rng(np.random.SeedSequence((effort.seed, 24)))
    most = max(cases.placements, key=lambda sizes: (sum(sizes), len(sizes)))
    directed = searches(Case(method=method, nodes=most, steps=effort.steps, same_as=effort.same_as), random)
    every = round(1 / DIRECTED)
    tries = max(1, effort.schedules // (every * len(directed)))
    for number, drawn in enumerate(cases):
        if number % every == every - 1:
            turn, search = number // every // len(directed), directed[number // every % len(directed)]
            yield search.next_outcome(turn < STARTS * tries), search
        else:
            yield outcome_of(drawn), None


def shrink_all(checked: Checked, effort: Effort, progress: Progress) -> None:
    """Makes the counterexamples of all violated guarantees smaller.

    Args:
        checked: the verdicts.
        effort: limits the cases that are tried for each.
        progress: receives what is done.
    """
    for verdict in checked.violated:
        assert verdict.violation is not None, "that is what violated means"
        progress(f"shrinking the counterexample of {verdict.guarantee}", 1.0)
        verdict.violation = shrunk(verdict.violation, effort.shrink_runs)


def outcome_of(drawn: DrawnCase) -> Outcome:
    """Runs a random case; the case of the outcome contains the choices that were made."""
    if drawn.choose is None:
        return performed(drawn.case)
    return in_recorded_order(drawn.case, drawn.choose)


def note(checked: Checked, outcome: Outcome, report: Report, *, costly: bool) -> bool:
    """Checks an outcome and adds it to the verdicts.

    Args:
        checked: the verdicts so far.
        outcome: of the next schedule.
        report: receives the first violation of each guarantee.
        costly: whether costly invariants are checked too.

    Returns:
        Whether this is the first schedule with a violation.
    """
    begun_s, before = time.monotonic(), len(checked.violated)
    values = measured(outcome)
    new = violations(outcome, costly=costly, values=values)
    spent_s = time.monotonic() - begun_s + outcome.seconds
    checked.schedules += 1
    for name, tried in checked.hyper_parameters.items():
        if (value := getattr(outcome.case.method, name)) not in tried:
            tried.append(value)
    for name in checked_by(outcome, costly=costly):
        verdict = checked.verdicts[name]
        verdict.schedules += 1
        verdict.seconds += spent_s
        if name in values and values[name].worse_than(verdict.worst):
            verdict.worst, verdict.worst_case = values[name], outcome.case
    for violation in new:
        verdict = checked.verdicts[violation.guarantee]
        if verdict.violation is None:
            report(violation)
        if verdict.violation is None or _size(violation.case) < _size(verdict.violation.case):
            verdict.violation = violation
    return not before and bool(checked.violated)


def _size(case: Case) -> tuple[int, int, int, int]:
    return case.workers, case.steps, len(case.stops), sum(map(bool, case.choices))


def checked_by(outcome: Outcome, *, costly: bool) -> Iterator[str]:
    """Yields the names of the guarantees that `violations` checks on this outcome."""
    case, method = outcome.case, outcome.job.method
    if case.deaths:
        yield Guarantee.SURVIVES_WORKERS.slug
        if costly and outcome.error is None and INVARIANTS[AFTER_DEATHS].applies(outcome):
            yield AFTER_DEATHS
        return
    if outcome.error is not None:
        yield from ERRORS
        return
    for invariant in INVARIANTS.values():
        if (costly or not invariant.costly) and invariant.applies(outcome):
            yield invariant.name
    for guarantee in method.guarantees:
        if isinstance(guarantee, CustomGuarantee) and not guarantee.applies_to(outcome.trace):
            continue
        conserving = guarantee in CONSERVING
        if conserving != case.gradients and (conserving or check_of(guarantee) is not None):
            yield guarantee.slug


COUNTED_SETS = 2_000_000
"""sets of events that are examined to count the sequences of moves without reduction; provenance: ours, some seconds"""


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
    checked = CheckedOrders(method=method, verdicts=verdicts_of(method, effort.same_as))
    begun_s = time.monotonic()
    for case in _cases(method, effort):
        progress(f"{case.workers} workers × {case.steps} steps", 0.0)
        checked.explored.append(_explored(checked, case, effort, progress, report, deaths=deaths))
        if checked.violated:
            break
    shrink_all(checked, effort, progress)
    checked.seconds = time.monotonic() - begun_s
    return checked


def _cases(method: Method, effort: Effort) -> Iterator[Case]:
    """Yields a case for each number of workers, each on a node of its own if the method accepts that."""
    placements = RandomCases(method, workers=effort.workers).placements
    for count in sorted({sum(sizes) for sizes in placements}):
        sizes = max((sizes for sizes in placements if sum(sizes) == count), key=len)
        yield Case(method=method, nodes=sizes, steps=effort.steps, same_as=effort.same_as)


def _explored(
    checked: Checked, case: Case, effort: Effort, progress: Progress, report: Report, *, deaths: bool
) -> Explored:
    mortal = deaths and case.job().spare > 0
    died = 0

    def visit(_: Trace, log: Sequence[LoggedMove]) -> None:
        nonlocal died
        note(checked, _repeated(case, log), report, costly=False)
        for dying in _dying(case, log) if mortal else ():
            note(checked, _repeated(dying, log), report, costly=False)
            died += 1
        progress(f"{case.workers} workers × {case.steps} steps, {checked.schedules} schedules", 0.5)

    def failed(_: Exception, log: Sequence[LoggedMove]) -> None:
        visit(Trace(), log)

    orders = explore(
        case.job(), visit=visit, failed=failed, most=effort.schedules, seconds=effort.seconds, count_sets=COUNTED_SETS
    )
    return Explored(workers=case.workers, steps=case.steps, orders=orders, deaths=died)


def _repeated(case: Case, log: Sequence[LoggedMove]) -> Outcome:
    """Runs a case with the moves of an earlier run, as far as they are possible; then in the simplest order."""
    return in_recorded_order(case, Loosely(entry.move for entry in log))


def _dying(case: Case, log: Sequence[LoggedMove]) -> Iterator[Case]:
    """Yields the case with the death of each worker before its first operation and after each of its operations."""
    for rank in range(case.workers):
        moves = [0, *(number + 1 for number, entry in enumerate(log) if entry.move.rank == rank)]
        yield from (dataclasses.replace(case, deaths=((rank, move),)) for move in moves)
