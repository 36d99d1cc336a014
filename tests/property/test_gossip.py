"""Numbers 45 to 47: the invariants and the mixing of gossip, and the mutations that the properties must kill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, build_team
from paceline.algorithms.core.operations import Gradient, Send
from paceline.algorithms.core.values import Layout, Rank
from paceline.algorithms.methods.gossip import AdPsgd, Gossip, rounds
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.scenarios import ScenarioError, load
from tests.exact import Apart, ExactBowl
from tests.support import job_of

Partners = Literal["hypercube", "dissemination"]
PARTNERS = st.sampled_from(["hypercube", "dissemination"])
ORDERS = st.integers(0, 2**16).map(Shuffled)


@dataclass(frozen=True, kw_only=True)
class GossipApart(Apart, Gossip):
    """GossipGraD from different places."""


@dataclass(frozen=True, kw_only=True)
class AdPsgdApart(Apart, AdPsgd):
    """AD-PSGD from different places."""


def vectors(states: dict[Any, Any]) -> list[Any]:
    return [state.weights.vector for _, state in sorted(states.items())]


def start(job: Job) -> dict[Any, Any]:
    return {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}


def steps_of(run: AnyOrder, number: int) -> Any:
    """The sum of the gradients that the workers computed in their steps of this number."""
    return sum(e.answer.vector for e in run.log if isinstance(e.op, Gradient) and e.answer.step == number)


# --- 45: mixing ------------------------------------------------------------------------------------------------------


@given(
    order=ORDERS,
    cycles=st.integers(1, 2),
    power=st.integers(1, 2),
    partners=PARTNERS,
    rotate=st.booleans(),
    seed=st.integers(0, 9),
)
def test_without_gradients_a_cycle_of_averages_gives_the_mean(
    order: Shuffled, cycles: int, power: int, partners: Partners, rotate: bool, seed: int
) -> None:
    """Number 45, exactly: after log2 P averages, the last of them at the start of the step that follows."""
    method = GossipApart(learning_rate=Fraction(0), partners=partners, rotate=rotate, seed=seed)  # type: ignore[arg-type]
    job = job_of(method, 2**power, steps=cycles * power + 1, learner=ExactBowl())
    mean = sum(vectors(start(job))) / 2**power
    for vector in vectors(AnyOrder(job).run(order).states):
        assert (vector == mean).all()


@pytest.mark.parametrize("partners", ["hypercube", "dissemination"])
def test_eight_workers_meet_after_three_averages_and_no_sooner(partners: Partners) -> None:
    for steps, met in ((3, False), (4, True)):
        job = job_of(GossipApart(learning_rate=Fraction(0), partners=partners), 8, steps=steps, learner=ExactBowl())  # type: ignore[arg-type]
        first, *others = vectors(AnyOrder(job).run().states)
        assert all((other == first).all() for other in others) == met


# --- 46: partners ----------------------------------------------------------------------------------------------------


@given(
    workers=st.integers(2, 16),
    step=st.integers(0, 200),
    partners=PARTNERS,
    rotate=st.booleans(),
    seed=st.integers(0, 99),
)
def test_partners_are_a_permutation(workers: int, step: int, partners: Partners, rotate: bool, seed: int) -> None:
    """Number 46: each rank sends to one and receives from one, the same; over a hypercube that one also sends back."""
    workers = 1 << (workers.bit_length() - 1) if partners == "hypercube" else workers
    method = Gossip(partners=partners, rotate=rotate, seed=seed)
    team = build_team(method, [[Rank(rank)] for rank in range(workers)], Layout(()))
    to, source = zip(*(method.peers(me, step) for me in team), strict=True)
    assert sorted(to) == list(range(workers))
    assert all(source[there] == rank and there != rank for rank, there in enumerate(to))
    if partners == "hypercube":
        assert all(to[there] == rank for rank, there in enumerate(to))


def test_orders_change_after_each_cycle_and_come_again_after_all() -> None:
    method = Gossip()
    team = build_team(method, [[Rank(rank)] for rank in range(8)], Layout(()))
    cycles = [[method.peers(me, step) for me in team for step in range(3 * c, 3 * c + 3)] for c in range(9)]
    assert all(one != following for one, following in pairwise(cycles))
    assert cycles[8] == cycles[0]
    still = replace(method, rotate=False)
    assert [still.peers(me, 0) for me in team] == [still.peers(me, 3) for me in team]


@given(order=ORDERS, power=st.integers(1, 2), steps=st.integers(1, 6), partners=PARTNERS)
def test_gossip_is_its_equations(order: Shuffled, power: int, steps: int, partners: Partners) -> None:
    """All workers in lockstep, the momentum's history too; float64, some ten roundings: 1e-12."""
    method = GossipApart(learning_rate=0.25, momentum=0.5, partners=partners)
    job = job_of(method, 2**power, steps=steps)
    x = np.array(vectors(start(job)))
    v, before = 0 * x, None
    for step in range(steps):
        if before is not None:
            of = [method.peers(me, step - 1)[1] for me in job.team]
            x, v = (x + before[0][of]) / 2, (v + before[1][of]) / 2
        before = x, v
        gradients = np.array(
            [job.learner.gradient(x[me.rank], job.learner.load(job.samples(me, step)))[0] for me in job.team]
        )
        v = 0.5 * v + 0.25 * gradients
        x = x - v
    trace = AnyOrder(job).run(order)
    np.testing.assert_allclose(vectors(trace.states), x, rtol=0, atol=1e-12 * np.abs(x).max())
    assert {(row.step, row.staleness) for row in trace.updates} == {(step, int(step > 0)) for step in range(steps)}


# --- 47: powers of two -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "right"), [(1, False), (2, True), (3, False), (4, True), (6, False), (8, True)])
def test_a_hypercube_has_a_power_of_two_of_corners(workers: int, right: bool) -> None:
    """Number 47."""
    assert (not Gossip().problems([[Rank(rank) for rank in range(workers)]])) == right


def test_the_scenario_says_so() -> None:
    with pytest.raises(ScenarioError) as error:
        load("quickstart", ["cluster.nodes[0].workers_per_node=1"], algorithms=["gossip"])
    assert "algorithms[0].partners: found 'hypercube' with 3 workers, expected a power of two" in str(error.value)


def test_dissemination_among_three_keeps_the_sum_and_does_not_meet() -> None:
    """Number 47: allowed, and the averages after log2 P rounds, rounded up, are unequal, as the page says."""
    method = GossipApart(learning_rate=Fraction(0), partners="dissemination", rotate=False)  # type: ignore[arg-type]
    assert not replace(method, learning_rate=0.1).problems([[Rank(0), Rank(1), Rank(2)]])
    job = job_of(method, 3, steps=rounds(3) + 1, learner=ExactBowl())
    ends = vectors(AnyOrder(job).run().states)
    assert (np.sum(ends, axis=0) == np.sum(vectors(start(job)), axis=0)).all()
    assert (ends[0] != ends[1]).any()


# --- AD-PSGD ---------------------------------------------------------------------------------------------------------


@given(order=ORDERS, workers=st.integers(2, 4), steps=st.integers(0, 9), seed=st.integers(0, 9))
def test_every_gradient_counts_once_for_all_pairs(order: Shuffled, workers: int, steps: int, seed: int) -> None:
    """Number 46. Σx, exactly: the initial one minus η times every gradient, for all orders of exchanges."""
    rate = Fraction(1, 4)
    job = job_of(AdPsgdApart(learning_rate=rate, seed=seed), workers, steps=steps, learner=ExactBowl())  # type: ignore[arg-type]
    run = AnyOrder(job)
    end: Any = sum(vectors(run.run(order).states))
    moved: Any = sum((rate * e.answer.vector for e in run.log if isinstance(e.op, Gradient)), 0)
    assert (end == sum(vectors(start(job))) - moved).all()


@given(order=ORDERS, workers=st.integers(2, 5), steps=st.integers(0, 12))
def test_all_steps_together_are_the_budget_and_everybody_goes_home(order: Shuffled, workers: int, steps: int) -> None:
    job = job_of(AdPsgd(), workers, steps=steps)
    trace = AnyOrder(job).run(order)
    assert len(trace.updates) == steps == sum(state.step for state in trace.states.values())
    assert all(row.staleness >= 0 for row in trace.updates)


def test_a_passive_worker_averages_while_it_computes() -> None:
    """Some order shows it: gradients are applied to other weights than those at which they were computed."""
    seen = set()
    for seed in range(20):
        run = AnyOrder(job_of(AdPsgd(), 2, steps=8))
        run.run(Shuffled(seed))
        moves = [type(e.op) for e in run.log if e.move.rank == 1]
        seen.add(Gradient in moves and Send in moves[: moves.index(Gradient)])
    assert seen == {True, False}


@pytest.mark.parametrize("method", [Gossip(), AdPsgd()], ids=lambda method: method.name)
def test_one_worker_has_no_peer_to_average_with(method: Method) -> None:
    assert "found 1 worker, expected 2 or more" in method.problems([[Rank(0)]])[0]
