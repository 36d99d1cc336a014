"""Elastic averaging without elasticity, at rest, and with one worker (numbers 12 and 13), in fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.async_elastic import AsyncEasgd, AsyncMeasgd, Eamsgd
from paceline.algorithms.methods.elastic import Easgd
from paceline.algorithms.methods.sync_elastic import SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import drawn
from tests.elastic import ALPHAS, exact_job
from tests.exact import ExactBowl, apart, applied, fractions
from tests.thorough import examples

RATES = st.fractions(0, 1, max_denominator=10)
WORKERS, STEPS = st.integers(1, 3), st.integers(0, 4)
SYNCHRONOUS: list[Any] = [SyncEasgd1, SyncEasgd2, SyncEasgd3]
EVERY: list[tuple[Any, dict[str, Any]]] = [
    (Easgd, {}),
    (AsyncEasgd, {}),
    (AsyncEasgd, {"sends": "delta"}),
    (AsyncMeasgd, {"momentum": Fraction(1, 2)}),
    (Eamsgd, {"momentum": Fraction(1, 2), "period": 2}),
    *((method, {}) for method in SYNCHRONOUS),
]


def centre_of(run: AnyOrder) -> list[Any]:
    """Returns the centre after each of its updates."""
    return [op.weights.vector.tolist() for op in applied(run, run.job.weights_owner)]


@pytest.mark.parametrize(("method", "parameters"), EVERY)
@examples(10, 200)
@given(data=st.data(), workers=WORKERS, steps=STEPS, rate=RATES)
def test_without_elasticity_workers_are_alone(
    method: Any, parameters: dict[str, Any], data: st.DataObject, workers: int, steps: int, rate: Fraction
) -> None:
    """Number 12: with α = 0 the centre is frozen, and each worker is one that has the cluster's batches to itself."""
    job = exact_job(method, workers, steps, learning_rate=rate, elastic=Fraction(0), **parameters)
    run = AnyOrder(job)
    states = run.run(drawn(data)).states
    learner, momentum = job.learner, parameters.get("momentum", Fraction(0))
    assert all(centre == learner.initial().tolist() for centre in centre_of(run))
    for rank in range(workers):
        x, v = learner.initial(), 0 * learner.initial()
        for index in range(states[Rank(rank)].step):
            ahead = x + momentum * v if method is Eamsgd else x
            batch = learner.load(Samples(worker=rank, workers=workers, index=index, count=job.batches[0]))
            v = momentum * v - rate * learner.gradient(ahead, batch)[0]
            x = x + v
        assert (states[Rank(rank)].weights.vector == x).all()


@dataclass(frozen=True)
class AtRest(ExactBowl):
    """All workers begin in the common minimum."""

    spread: Fraction = Fraction(0)

    def initial(self) -> Any:
        return fractions([0] * self.size)


@pytest.mark.parametrize(("method", "parameters"), EVERY)
@examples(10, 200)
@given(data=st.data(), alpha=ALPHAS, steps=st.integers(1, 3))
def test_agreement_in_a_minimum_lasts(
    method: Any, parameters: dict[str, Any], data: st.DataObject, alpha: Fraction, steps: int
) -> None:
    """Number 12: all x_i = c and no gradient is a fixed point; and workers at other points do move."""
    job = exact_job(method, 3, steps, learner=AtRest(), learning_rate=Fraction(1, 3), elastic=alpha, **parameters)
    assert all((state.weights.vector == 0).all() for state in AnyOrder(job).run(drawn(data)).states.values())
    elsewhere = exact_job(
        apart(method), 3, steps, learner=AtRest(), learning_rate=Fraction(1, 3), elastic=alpha, **parameters
    )
    start = elsewhere.method.begin(elsewhere.team[1], AtRest().initial())
    moved = AnyOrder(elsewhere).run().states[Rank(1)]
    assert (moved.weights.vector != start.weights.vector).all() or moved.step == 0


@pytest.mark.parametrize(("method", "parameters"), EVERY[1:])
@examples(10, 200)
@given(data=st.data(), alpha=ALPHAS, rate=RATES, steps=st.integers(1, 5))
def test_with_one_worker_all_agree(
    method: Any, parameters: dict[str, Any], data: st.DataObject, alpha: Fraction, rate: Fraction, steps: int
) -> None:
    """Number 13, step by step: the centre after each of its updates, and the worker in the end.

    `eamsgd`, here with period 1 and without momentum, leaves out the first exchange, which moves nothing.
    """
    late = method is Eamsgd
    same = parameters | {"momentum": Fraction(0)} | ({"period": 1} if late else {})
    one = AnyOrder(exact_job(Easgd, 1, steps + late, learning_rate=rate, elastic=alpha))
    two = AnyOrder(exact_job(method, 1, steps, learning_rate=rate, elastic=alpha, **same))
    first_states, second_states = one.run(drawn(data)).states, two.run(drawn(data)).states
    assert centre_of(two) == centre_of(one)[late:] and len(centre_of(two)) == steps
    assert (first_states[Rank(0)].weights.vector == second_states[Rank(0)].weights.vector).all()
