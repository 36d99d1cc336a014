"""Each check of `checking.check_guarantees` finds a broken guarantee, and nothing in a run that keeps it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import WITH_FIGURE, Guarantee
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.check_guarantees import CHECKS, broken, conserved
from paceline.checking.moves import Adversary, Shuffled
from paceline.records.trace import Trace
from paceline.scenarios import ScenarioError, load
from tests.exact import apart
from tests.support import Uneven, job_of

NODES = [[0, 1], [2, 3]]
SERVER = Rank(4)


@dataclass(frozen=True, kw_only=True)
class Bounded(Agd):
    """Guarantees a staleness of at most 2, whatever its delay."""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_STALENESS: 2}


@dataclass(frozen=True, kw_only=True)
class Clocked(AsyncSgd):
    """Makes a guarantee that needs a gate, without having one."""

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_CLOCK_GAP: 2}


@dataclass(frozen=True, kw_only=True)
class WithoutFigures(Agd):
    """Makes a guarantee that needs a figure, without one, or with a NaN."""

    guarantees = frozenset(WITH_FIGURE | {Guarantee.SYNCHRONOUS})
    name = "without-figures"

    def bounds(self, workers: int) -> Mapping[Guarantee, float]:
        return {Guarantee.BOUNDED_CLOCK_GAP: float("nan")}


def row(**changes: Any) -> Callable[[Trace], None]:
    """Changes the last update."""

    def change(trace: Trace) -> None:
        trace.updates[-1] = trace.updates[-1]._replace(**changes)

    return change


def only_rank_0(trace: Trace) -> None:
    trace.updates[:] = [update._replace(rank=Rank(0)) for update in trace.updates]


def lose_a_push(trace: Trace) -> None:
    trace.heard.remove((SERVER, Rank(0)))


def move_a_replica(trace: Trace) -> None:
    state = trace.states[Rank(1)]
    trace.states[Rank(1)] = replace(state, weights=Weights(state.weights.vector + 1e-9, state.weights.version))


def move_the_weights(trace: Trace) -> None:
    trace.weights = trace.weights + 1e-9


def cut_a_batch(trace: Trace) -> None:
    state = trace.states[SERVER]
    trace.states[SERVER] = replace(state, batches=(*state.batches[1:], 1))


SYNC, ASYNC, HBS = METHODS["sync-sgd"](), METHODS["async-sgd"](), HbsSgd(k1=2, k2=4)
CASES: dict[Guarantee, tuple[Method, int, Callable[[Trace], None], str]] = {
    Guarantee.DETERMINISTIC: (SYNC, 6, move_the_weights, "more than rounding explains"),
    Guarantee.SYNCHRONOUS: (SYNC, 6, row(staleness=2), "found staleness 2, promised 0"),
    Guarantee.EXACT_DELAY: (Agd(delay=2), 6, row(staleness=1), "found staleness 1, promised 2"),
    Guarantee.BOUNDED_STALENESS: (Bounded(delay=2), 6, row(staleness=3), "found staleness 3, promised 0 to 2"),
    Guarantee.BOUNDED_CLOCK_GAP: (Clocked(), 4, only_rank_0, "steps ahead of the slowest"),
    Guarantee.SAME_AS_SYNC_SGD: (SYNC, 6, move_the_weights, "from those of sync-sgd"),
    Guarantee.REPLICAS_EQUAL: (SYNC, 6, move_a_replica, "rank 1 holds other weights than rank 0"),
    Guarantee.REPLICAS_MEET: (HBS, 8, move_a_replica, "rank 1 holds other weights than rank 0"),
    Guarantee.ROUND_ROBIN: (METHODS["easgd"](), 8, row(rank=0), "exchange 7 was rank 0's, and the turn rank 3's"),
    Guarantee.DISTINCT_WORKERS: (SYNC, 3, row(rank=0), "update 2 has several gradients of rank 0"),
    Guarantee.FULL_UPDATES: (SYNC, 3, row(version_applied=9), "update 9 is made of 1 gradients, promised 4"),
    Guarantee.CONSTANT_TOTAL: (METHODS["dbs-sgd"](), 12, cut_a_batch, "make 25, promised 32"),
    Guarantee.CONSERVES_MESSAGES: (ASYNC, 12, lose_a_push, "of which"),
}


def made(method: Method, steps: int) -> tuple[Job, Trace]:
    job = job_of(method, nodes=NODES, steps=steps)
    return job, AnyOrder(job).run(Shuffled(2))


def test_every_check_is_tried() -> None:
    assert set(CASES) == set(CHECKS)


@pytest.mark.parametrize("guarantee", CASES, ids=lambda one: one.slug)
def test_a_check_finds_the_run_that_breaks_it_and_no_other(guarantee: Guarantee) -> None:
    method, steps, breaks, words = CASES[guarantee]
    job, trace = made(method, steps)
    assert broken(job, trace, [guarantee]) == []
    breaks(trace)
    assert any(words in found for found in broken(job, trace, [guarantee]))


def test_a_guarantee_without_its_figure_is_broken() -> None:
    job, trace = made(WithoutFigures(delay=2), 6)
    expected = "in bounds(), expected a number, such as {Guarantee."
    assert broken(job, trace) == [
        f"bounded-clock-gap: found nan {expected}BOUNDED_CLOCK_GAP: 4}}",
        f"bounded-staleness: found no figure {expected}BOUNDED_STALENESS: 4}}",
        f"exact-delay: found no figure {expected}EXACT_DELAY: 4}}",
        f"survives-workers: found no figure {expected}SURVIVES_WORKERS: 4}}",
        "synchronous: found staleness 2, promised 0",
    ]


def test_a_scenario_refuses_a_method_without_its_figures() -> None:
    method = f"{__file__}:WithoutFigures"
    with pytest.raises(ScenarioError, match=r"algorithms\[0\]\.bounds: exact-delay: found no figure in bounds\(\)"):
        load("quickstart", algorithms=[method])


def test_a_method_without_a_gate_runs_ahead() -> None:
    job = job_of(Clocked(), nodes=NODES, steps=12)
    trace = AnyOrder(job).run(Adversary(Rank(3)))
    assert broken(job, trace, [Guarantee.BOUNDED_CLOCK_GAP])


def test_asynchronous_runs_break_what_synchronous_ones_promise() -> None:
    job, trace = made(ASYNC, 12)
    wrong = [Guarantee.SYNCHRONOUS, Guarantee.DETERMINISTIC, Guarantee.ROUND_ROBIN]
    assert [line.partition(":")[0] for line in broken(job, trace, wrong)] == [
        "deterministic",
        "round-robin",
        "synchronous",
    ]


def test_local_steps_are_not_sync_sgd() -> None:
    job = job_of(HBS, nodes=NODES, steps=8, learner=Uneven())
    trace = AnyOrder(job).run()
    assert broken(job, trace, [Guarantee.SAME_AS_SYNC_SGD])


@pytest.mark.parametrize("steps", [7, 8])
def test_replicas_that_have_not_met_may_differ(steps: int) -> None:
    """After seven steps of eight they differ, which breaks no guarantee; as equal replicas they would be wrong."""
    job, trace = made(HBS, steps)
    assert broken(job, trace) == []
    assert bool(broken(job, trace, [Guarantee.REPLICAS_EQUAL])) == (steps == 7)


def test_a_lost_sum_is_found() -> None:
    job = job_of(apart(METHODS["easgd"])(learning_rate=0.0), nodes=NODES, steps=8)
    trace = AnyOrder(job).run()
    assert conserved(job, trace) == []
    move_a_replica(trace)
    (line,) = conserved(job, trace)
    assert line.startswith("conserves-sum: the sum of the weights is not conserved: element ")
    assert "elements changed, by at most " in line and len(line) < 250
