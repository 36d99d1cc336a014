"""`check_method` finds each kind of fault, makes it small, and finds nothing in a method without a fault."""

from __future__ import annotations

import cProfile
import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from paceline.algorithms import METHODS, AppliedGradient, Guarantee, custom_guarantee, find
from paceline.algorithms.core.errors import DeadlockError, InputError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, RankContext
from paceline.algorithms.core.operations import Now
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import GradientResult, Step
from paceline.algorithms.methods.parameter_server import SyncSgdPs
from paceline.algorithms.methods.periodic import KAvg
from paceline.algorithms.methods.ssp import Ssp
from paceline.checking.cases import (
    Case,
    Effort,
    Times,
    check_method,
    from_json,
    performed,
    shrunk,
    to_json,
    violations,
)
from paceline.checking.cases.checking_methods import Checked, check_all_orders
from paceline.checking.cases.gradient_weights import measured_weights, wrong_weights
from paceline.checking.cases.purity import dependence_on_shared_state, impure_calls
from paceline.checking.cases.random_cases import RandomCases
from paceline.checking.cases.worst_values import OBJECTIVES, Measured, Search
from paceline.checking.check_guarantees import broken
from paceline.checking.limits import DoesNotEnd
from paceline.records.trace import Trace
from tests.faulty_methods import FAULTS, Changing, Deadlocked, Early, Endless, Failing, Faultless, Timed
from tests.thorough import FAMILIES, cases, sampled

FEW = Effort(schedules=cases(20, 40), shrink_runs=cases(150, 4000))
SHORT = Effort(schedules=3, workers=2, steps=2, shrink_runs=20)
"""for runs that are ended by their number of moves"""


@cache
def searched(kind: type[Faultless]) -> Checked:
    """The result of a search in a method, which several tests examine."""
    return check_method(kind(), SHORT if kind is Endless else FEW)


@pytest.mark.parametrize(("kind", "guarantee"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_it_finds_the_fault_and_makes_it_small(kind: type[Faultless], guarantee: str) -> None:
    found = searched(kind)
    violation = found.verdicts[guarantee].violation
    assert violation is not None
    assert (violation.case.workers <= 2, violation.case.steps <= 2) == (True, True)
    again = violations(performed(violation.case))
    assert violation.words in [one.words for one in again if one.guarantee == guarantee] or kind is not Deadlocked


def test_it_finds_nothing_in_a_method_without_a_fault() -> None:
    found = check_method(Faultless(), Effort(schedules=60))
    assert found.violated == []
    assert found.schedules == 60
    assert found.not_checked == {"newest-weights": "needs a server"}
    assert {one.verdict for name, one in found.verdicts.items() if name not in found.not_checked} == {"holds"}


def test_a_deadlock_names_the_line_of_each_rank() -> None:
    found = searched(Deadlocked)
    violation = found.verdicts["no-deadlock"].violation
    assert violation is not None
    assert isinstance(performed(violation.case).error, DeadlockError)
    one, other = violation.words.splitlines()[1:]
    assert "rank 0 (worker) at tests/faulty_methods.py:" in one
    assert "in fault, step 1: waits for a message from rank 0" in other


def test_messages_name_the_line_of_the_fault() -> None:
    words = {kind: searched(kind).violated[0].violation for kind in (Failing, Changing, Timed, Endless)}
    for violation in words.values():
        assert violation is not None
        assert "tests/faulty_methods.py:" in violation.words or "0/main Charge" in violation.words


def test_an_order_that_needs_three_ranks_is_found() -> None:
    """Rank 0 differs only if another message arrives before that of rank 1; both the search and all orders show it."""
    effort = Effort(schedules=cases(40, 400), workers=3, steps=1)
    for found in (check_method(Early(), effort), check_all_orders(Early(), Effort(workers=3, steps=1))):
        assert {one.guarantee for one in found.violated} - {"gradient-weights"} == {"deterministic"}
        violation = found.verdicts["deterministic"].violation
        assert violation is not None
        assert (violation.case.workers, violation.case.steps) == (3, 1)


# --- cases -----------------------------------------------------------------------------------------------------------


def test_a_case_comes_back_from_json() -> None:
    for drawn, _ in zip(RandomCases(find("hbs-sgd")(), seed=3), range(20), strict=False):
        assert from_json(to_json(drawn.case)) == drawn.case


def test_mistakes_in_a_case_are_all_reported() -> None:
    document = {"method": "agd", "hyper_parameters": {"delay": "two"}, "nodes": [], "steps": -1, "odd": 3}
    with pytest.raises(InputError) as raised:
        from_json(document)
    for words in ("hyper_parameters.delay: found 'two'", "steps: found -1", "odd: unknown"):
        assert words in str(raised.value)


def test_the_same_seed_draws_the_same_cases() -> None:
    one, other = (check_method(find("async-sgd")(), Effort(schedules=15, workers=3, steps=3, seed=5)) for _ in range(2))
    assert {name: (case, value) for name, (value, case) in one.extremes.items()} == {
        name: (case, value) for name, (value, case) in other.extremes.items()
    }


def test_a_simulated_run_ends_after_a_number_of_operations() -> None:
    """It does not take the processor for seconds, as a program that requests no operation does."""
    outcome = performed(Case(method=Endless(), nodes=(1, 1), steps=2, times=Times(compute_s=(1.0,))))
    assert isinstance(outcome.error, DoesNotEnd)


def test_shrinking_keeps_the_guarantee_and_simplifies_the_times() -> None:
    case = Case(method=Failing(), nodes=(2, 2), steps=5, seed=3, times=Times(compute_s=(0.3, 1.7), latency_s=0.5))
    (violation,) = violations(performed(case), costly=False)
    small = shrunk(violation, 1000).case
    assert (small.nodes, small.steps, small.times, small.seed) == ((1,), 2, None, 1)


# --- guarantees and values -------------------------------------------------------------------------------------------


@custom_guarantee("small-weights", "no weight exceeds 1")
def small_weights(job: Job, trace: Trace) -> Iterator[str]:
    largest = float(np.abs(trace.weights).max())
    if largest > 1:
        yield f"found a weight of {largest:.3g}"


@custom_guarantee("wrong-check", "its check fails")
def wrong_check(job: Job, trace: Trace) -> Iterator[str]:
    yield from trace.nothing  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Large(Faultless):
    """Promises what it cannot keep with such a learning rate."""

    guarantees = frozenset({Guarantee.SYNCHRONOUS, small_weights})
    learning_rate: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Unchecked(Faultless):
    """Promises a guarantee whose check fails."""

    guarantees = frozenset({wrong_check})


def test_a_custom_guarantee_is_checked_like_the_others() -> None:
    case = Case(method=Large(), nodes=(1,), steps=3)
    outcome = performed(case)
    assert broken(outcome.job, outcome.trace, Large.guarantees) == [
        f"small-weights: found a weight of {float(np.abs(outcome.trace.weights).max()):.3g}"
    ]
    assert [one.guarantee for one in violations(outcome)] == ["small-weights"]
    assert violations(performed(dataclasses.replace(case, method=Large(learning_rate=0.01)))) == []
    assert check_method(Large(), Effort(schedules=3, shrink_runs=50)).verdicts["small-weights"].verdict == "violated"


@custom_guarantee("an-hour", "a run takes an hour", needs_times=True)
def an_hour(job: Job, trace: Trace) -> Iterator[str]:
    if trace.wall_s < 3600:
        yield f"the run took {trace.wall_s:g} s"


@dataclass(frozen=True, kw_only=True)
class Short(Faultless):
    """Promises a guarantee about seconds, which no small run keeps."""

    guarantees = frozenset({an_hour})


def test_a_custom_guarantee_about_seconds_is_not_checked_without_a_clock() -> None:
    case = Case(method=Short(), nodes=(1, 1), steps=2)
    timed = dataclasses.replace(case, times=Times(compute_s=(1.0,)))
    assert violations(performed(case)) == []
    assert [one.words for one in violations(performed(timed))] == ["the run took 2 s"]
    in_any_order, simulated = (performed(one).trace.in_seconds for one in (case, timed))
    assert (in_any_order, simulated) == (False, True)


def test_only_runs_with_a_clock_count_for_a_guarantee_about_seconds() -> None:
    found = check_method(Short(), Effort(schedules=15, shrink_runs=50)).verdicts
    assert found["an-hour"].verdict == "violated"
    assert 0 < found["an-hour"].schedules < found["gradients-once"].schedules
    violation = found["an-hour"].violation
    assert violation is not None and violation.case.times is not None


def test_a_check_that_fails_is_reported() -> None:
    found = violations(performed(Case(method=Unchecked(), nodes=(1,), steps=1)))
    assert [one.words.partition(":")[0] for one in found] == ["its check failed"]


@pytest.mark.parametrize("name", ["Small", "a b", "synchronous", ""])
def test_names_of_custom_guarantees_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="found the name"):
        custom_guarantee(name, "words")


def test_the_worst_value_is_relative_to_its_bound() -> None:
    assert Measured("staleness", 3, 3).worse_than(Measured("staleness", 9, 15))
    assert not Measured("staleness", 2, 3).worse_than(Measured("staleness", 3, 3))
    assert Measured("difference", float("nan"), 1.0).worse_than(Measured("difference", 5.0, 1.0))


def test_the_directed_search_finds_the_bound_of_ssp() -> None:
    """A fast worker can be slack + 1 steps ahead, which few random schedules with four workers show."""
    base = Case(method=Ssp(slack=2), nodes=(1, 1, 1, 1), steps=5)
    objective = next(one for one in OBJECTIVES if one.name == "largest clock gap")
    search = Search(objective, base, np.random.default_rng(1))
    for number in range(40):
        search.next_outcome(number < 12)
    assert search.best == Measured("largest clock gap", 3, 3)
    assert search.best_case is not None
    assert objective.measure(search.base.job(), performed(search.best_case)) == 3


# --- deaths ----------------------------------------------------------------------------------------------------------

SURVIVING: list[Method] = [method() for method in METHODS.values() if Guarantee.SURVIVES_WORKERS in method().guarantees]


@pytest.mark.parametrize("method", SURVIVING, ids=lambda method: method.name)
def test_a_run_continues_without_a_worker_that_dies_at_any_move(method: Method) -> None:
    sizes = ((1,) * count for count in (2, 4))
    base = next(case for one in sizes if (case := Case(method=method, nodes=one, steps=2)).job().spare)
    moves = len(performed(base).log)
    for move in range(0, moves, cases(4, 1)):
        for rank in range(2):
            case = dataclasses.replace(base, deaths=((rank, move),))
            assert violations(performed(case)) == []


def test_a_death_that_a_method_does_not_survive_is_reported() -> None:
    case = Case(method=find("sync-sgd-ps")(), nodes=(1, 1), steps=2, deaths=((1, 3),))
    (violation,) = violations(performed(case))
    assert violation.guarantee == "survives-workers"
    assert violation.words.startswith("after the death of rank 1 before move 3: no-deadlock")


# --- all orders ------------------------------------------------------------------------------------------------------


def test_all_orders_of_two_asynchronous_workers() -> None:
    """Two steps of two workers: 2 · 2 orders of pushes, times what a run with one more push can end with."""
    found = check_all_orders(find("async-sgd")(), Effort(workers=2, steps=2))
    assert found.violated == []
    assert [(one.workers, one.orders.complete) for one in found.explored] == [(1, True), (2, True)]
    assert found.explored[0].orders.explored == 1
    assert found.verdicts["no-deadlock"].schedules == sum(one.orders.explored for one in found.explored)


class Mortal(SyncSgdPs):
    """Promises to survive a death of one of its workers, although its server waits for all of them."""

    name = "mortal"
    guarantees = frozenset({Guarantee.SURVIVES_WORKERS})

    def bounds(self, workers: int) -> dict[Guarantee, float]:
        return {Guarantee.SURVIVES_WORKERS: workers - 1}


def test_deaths_in_all_orders() -> None:
    """Each of the orders is repeated with a death before the first and after each of the operations of a worker."""
    survived = check_all_orders(find("async-sgd")(), Effort(workers=2, steps=1), deaths=True)
    assert survived.violated == []
    assert [one.deaths > one.orders.explored for one in survived.explored] == [False, True]
    assert survived.verdicts["survives-workers"].schedules == survived.explored[1].deaths
    lost = check_all_orders(Mortal(), Effort(workers=2, steps=1), deaths=True)
    assert [one.guarantee for one in lost.violated] == ["survives-workers"]


def test_a_method_is_compared_with_the_one_that_is_named() -> None:
    """Averaging after every step is synchronous SGD, and after every second step it is not."""
    effort = Effort(schedules=15, workers=3, steps=4, shrink_runs=50, same_as=METHODS["sync-sgd"]())
    equal, unequal = (check_method(KAvg(k=k), effort).verdicts["same-as"] for k in (1, 2))
    assert (equal.verdict, unequal.verdict) == ("holds", "violated")
    assert equal.schedules > 5
    assert unequal.violation is not None
    assert "from those of sync-sgd" in unequal.violation.words
    assert from_json(to_json(unequal.violation.case)) == unequal.violation.case


def test_a_method_without_one_result_is_compared_with_one_worker_only() -> None:
    found = check_method(METHODS["ssp"](), Effort(schedules=25, same_as=METHODS["async-sgd"]()))
    assert 0 < found.verdicts["same-as"].schedules < 15
    assert found.verdicts["same-as"].verdict == "holds"


def test_the_hyper_parameters_that_were_tried_are_known() -> None:
    found = check_method(METHODS["diloco"](), Effort(schedules=20))
    assert {name: tried for name, tried in found.hyper_parameters.items() if len(tried) > 1} == {"period": [8, 1, 2]}
    assert found.hyper_parameters["inner"] == ["adamw"]
    assert "inner='sgd'" in found.measured_with
    assert found.not_checked == {"newest-weights": "needs a server"}


LINEAR = [name for name, method in METHODS.items() if method().linear_form() is not None]


@pytest.mark.parametrize("name", sampled(LINEAR, {*FAMILIES, "chip-partitioned-sgd"}))  # which divides one batch
def test_every_built_in_method_declares_how_much_a_gradient_counts(name: str) -> None:
    """The law is not vacuous: the weights are measured, and a declaration that is half as large is found."""
    method = METHODS[name]()
    drawn = RandomCases(method, seed=3)
    short, sizes = drawn.variants[-1], drawn.placements[-1]
    case = Case(method=short, nodes=sizes, steps=1, seed=2)
    measured = measured_weights(case)
    assert measured is not None
    assert {round(measured.found(copy, measured.learner.count, 0), 6) for copy in measured.copies} == {1.0}
    halved = replace(case, method=declaring_half(short))
    assert list(wrong_weights(case)) == []
    assert "by Half.gradient_weight" in next(wrong_weights(halved))


def declaring_half(method: Method) -> Method:
    """Returns a method that does the same, and declares half the weight of a gradient."""
    kind: Any = type(method)

    def gradient_weight(self: Any, gradient: AppliedGradient) -> float:
        return float(kind.gradient_weight(self, gradient)) / 2

    made: Any = type("Half", (kind,), {"gradient_weight": gradient_weight, "__module__": __name__})
    return made(**{one.name: getattr(method, one.name) for one in fields(method)})  # type: ignore[no-any-return]


def test_a_cache_that_changes_no_result_is_no_shared_state() -> None:
    """What ranks share is reported only if a result depends on it."""
    case = Case(method=Caching(), nodes=(1, 1), steps=2)
    assert list(dependence_on_shared_state(case)) == []
    assert Caching.kept == {}


@dataclass(frozen=True, kw_only=True)
class Caching(Faultless):
    """Keeps the square of each step's number in a dictionary of the class."""

    name = "caching"
    kept: ClassVar[dict[int, int]] = {}

    @program
    def fault(self, me: RankContext, step: Step, gradient: GradientResult) -> Program[None]:
        yield from Now()
        self.kept.setdefault(step.number, step.number**2)


def test_calls_are_watched_under_a_profiler_which_goes_on() -> None:
    """cProfile is no function, so `sys.setprofile` does not take it back."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        assert list(impure_calls(Case(method=find("async-sgd")(), nodes=(1, 1), steps=2))) == []
        watching: Any = sys.getprofile()
        assert watching is profiler
    finally:
        profiler.disable()
