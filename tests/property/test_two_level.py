"""Two-level synchronisation (numbers as in docs/invariants.md), in every order of moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import AllReduce, Broadcast, Load, Reduce
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.methods.two_level import Hsgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, drawn
from paceline.workloads import build
from tests.exact import UnlikeBowl, applied, ends
from tests.support import job_of, placed

NODES = st.lists(st.integers(1, 3), min_size=1, max_size=3)
TENTH: Any = Fraction(1, 10)
PLAIN: dict[str, Any] = {"momentum": 0.0, "weight_decay": 0.0, "lars": None}
"""without what is on by default: norms are no fractions"""
AS_IT_COMES = {field.name: getattr(Hsgd(), field.name) for field in dataclasses.fields(Hsgd)}


def check_the_flat_mean(method: Callable[..., Any]) -> None:
    """The property, exactly: every step of every worker is synchronous SGD's."""

    @settings(database=None, phases=[Phase.generate], max_examples=25)  # a mutation need only be found, not made small
    @given(data=st.data(), counts=NODES, steps=st.integers(0, 2))
    def flat(data: st.DataObject, counts: list[int], steps: int) -> None:
        runs = [
            AnyOrder(
                job_of(made(learning_rate=TENTH, **PLAIN), nodes=placed(counts), steps=steps, learner=UnlikeBowl())
            )
            for made in (method, SyncSgd)
        ]
        runs[0].run(drawn(data))
        runs[1].run()
        assert (ends(runs[0]) == ends(runs[1])).all(), "another mean"
        for me in runs[0].job.team:
            mine, flats = (applied(run, me.rank) for run in runs)
            assert [op.inputs for op in mine] == [op.inputs for op in flats]

    flat()


@dataclass(frozen=True, kw_only=True)
class MeanOfNodeMeans(Hsgd):
    @program
    def mean(self, me: RankContext, vector: Any, number: int) -> Program[Any]:
        leader, key = me.node.ranks[0], str(number)
        mean = yield from Reduce(value=vector, group=me.node, root=leader, key=key, op="mean")
        if mean is not None:
            mean = yield from AllReduce(value=mean, group=me.leaders, key=key)
        return (yield from Broadcast(value=vector if mean is None else mean, group=me.node, root=leader, key=key))


@dataclass(frozen=True, kw_only=True)
class DividedByNodes(Hsgd):
    """Divides the sum by the members of the last reduction, which are the leaders."""

    @program
    def mean(self, me: RankContext, vector: Any, number: int) -> Program[Any]:
        mean = yield from super().mean(me, vector, number)
        return mean * len(me.workers) / len(me.leaders)


def test_two_levels_are_one_mean() -> None:
    """Number 8, with workers alone on their nodes and unequal nodes."""
    check_the_flat_mean(Hsgd)


@pytest.mark.parametrize("mutant", [MeanOfNodeMeans, DividedByNodes])
def test_the_mutation_is_killed(mutant: Callable[..., Any]) -> None:
    """Number 8 fails, as it must, where nodes are unequal."""
    with pytest.raises(AssertionError, match="another mean"):
        check_the_flat_mean(mutant)


@pytest.mark.parametrize(
    "given_to_both", [PLAIN | {"learning_rate": 0.1}, PLAIN | {"learning_rate": 0.1, "momentum": 0.9}, AS_IT_COMES]
)
@given(seed=st.integers(0, 999), counts=NODES, steps=st.integers(1, 5))
def test_in_float64_it_is_sync_sgd_to_the_rounding(
    given_to_both: dict[str, Any], seed: int, counts: list[int], steps: int
) -> None:
    """With LARS, too, whose rates come from the global gradient. Sums are taken in another order: 1e-12 of the scale
    covers the roundings of a few steps."""
    learner = build("quadratic", dataset=None, learning="quadratic", seed=seed)
    found, expected = (
        AnyOrder(job_of(method, nodes=placed(counts), steps=steps, learner=learner)).run(Shuffled(seed)).weights
        for method in (Hsgd(**given_to_both), SyncSgd(**given_to_both))
    )
    assert not np.array_equal(expected, learner.initial())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@given(data=st.data(), counts=NODES, batch=st.integers(1, 4), seed=st.integers(0, 99), steps=st.integers(1, 4))
def test_it_is_one_worker_with_all_their_samples(
    data: st.DataObject, counts: list[int], batch: int, seed: int, steps: int
) -> None:
    """Number 2: every sample counts alike, on whatever node, since all workers' batches are equally large."""
    learner = build("quadratic", dataset=None, learning="quadratic", seed=seed, num_samples=64)
    workers = sum(counts)
    budget = Budget(samples=steps * workers * batch)
    places = [[Rank(rank) for rank in node] for node in placed(counts)]
    many = Job.of(Hsgd(**AS_IT_COMES), places, learner, batch=batch, budget=budget)
    one = Job.of(SequentialSgd(**AS_IT_COMES), [[Rank(0)]], learner, batch=workers * batch, budget=budget)
    run = AnyOrder(many)
    found, expected = run.run(drawn(data)).weights, AnyOrder(one).run().weights
    assert {entry.op.samples.count for entry in run.log if isinstance(entry.op, Load)} == {batch}
    assert not np.array_equal(expected, learner.initial())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
