"""Averages of weights and their times (numbers as in docs/invariants.md), in every order of moves.

Exact, in fractions, except for rules that store floating point numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method, RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Broadcast, RecordUpdate, Reduce
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.local_sgd import DiLoCo, PostLocalSgd
from paceline.algorithms.methods.periodic import HbsSgd, KAvg, Sasgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, drawn
from tests.exact import ExactBowl, UnlikeBowl, apart, applied, averages, ends
from tests.support import job_of, placed

NODES = st.lists(st.integers(1, 2), min_size=1, max_size=3)
SEEDS = st.integers(0, 999)
TENTH: Any = Fraction(1, 10)


# --- what averages do ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MeanOfNodeMeans(HbsSgd):
    """The mistake that two levels invite: nodes have equal weight, whatever their number of workers."""

    @program
    def average_all(self, me: RankContext, state: Replica) -> Program[Replica]:
        leader, key = me.node.ranks[0], f"everyone {state.step}"
        mean: Any = yield from Reduce(value=state.weights.vector, group=me.node, root=leader, key=key, op="mean")
        if mean is not None:
            mean = yield from AllReduce(value=mean, group=me.leaders, key=key)
        mine = state.weights.vector if mean is None else mean
        vector = yield from Broadcast(value=mine, group=me.node, root=leader, key=key)
        version = yield from RecordUpdate(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version))


def check_the_mean(method: type[Any]) -> None:
    """The property, exactly: the mean of workers that start apart and do not learn is constant."""

    from_apart = apart(method)

    @settings(database=None, phases=[Phase.generate])  # a mutation need only be found, not made small
    @given(data=st.data(), counts=NODES, steps=st.integers(0, 5))
    def conserved(data: st.DataObject, counts: list[int], steps: int) -> None:
        job = job_of(from_apart(learning_rate=Fraction(0)), nodes=placed(counts), steps=steps, learner=ExactBowl())
        before = sum(job.method.begin(me, job.learner.initial()).weights.vector for me in job.team)
        run = AnyOrder(job)
        run.run(drawn(data))
        assert (ends(run).sum(axis=0) == before).all(), "the mean has moved"

    conserved()


@dataclass(frozen=True, kw_only=True)
class HbsSoon(HbsSgd):
    k1: int = 1
    k2: int = 2


@dataclass(frozen=True, kw_only=True)
class KAvgSoon(KAvg):
    k: int = 2
    average_momentum: bool = True


@dataclass(frozen=True, kw_only=True)
class PostLocalSoon(PostLocalSgd):
    switch: int = 1
    period: int = 2


@dataclass(frozen=True, kw_only=True)
class WrongSoon(MeanOfNodeMeans):
    k1: int = 1
    k2: int = 2


@pytest.mark.parametrize("method", [HbsSoon, KAvgSoon, PostLocalSoon])
def test_averages_conserve_the_mean(method: type[Method]) -> None:
    """Number 5, over whole runs."""
    assert Guarantee.CONSERVES_MEAN in method.guarantees
    check_the_mean(method)


def test_the_mean_of_node_means_is_killed() -> None:
    """Number 5 fails, as it must, where nodes are unequal."""
    with pytest.raises(AssertionError, match="the mean has moved"):
        check_the_mean(WrongSoon)


@given(seed=SEEDS, counts=NODES, k1=st.integers(1, 3), times=st.integers(1, 3), steps=st.integers(1, 9))
def test_averages_keep_the_mean_and_close_the_spread(
    seed: int, counts: list[int], k1: int, times: int, steps: int
) -> None:
    """Numbers 5 and 6: an average keeps the mean of its members and makes them equal; and the number of averages is
    right.
    """
    run = AnyOrder(
        job_of(
            HbsSgd(k1=k1, k2=k1 * times, learning_rate=TENTH), nodes=placed(counts), steps=steps, learner=ExactBowl()
        )
    )
    run.run(Shuffled(seed))
    for (group, _), met in averages(run).items():
        assert len(met) == len(group)
        before, after = np.array([value for value, _ in met]), np.array([answer for _, answer in met])
        assert (before.sum(axis=0) == after.sum(axis=0)).all()
        assert (after == after[0]).all()
    for me in run.job.team:
        times_met = Counter(key.split()[0] for group, key in averages(run) if me.rank in group)
        assert times_met["everyone"] == steps // (k1 * times)
        # a worker alone on its node has no peer to average with
        assert times_met["group"] == (steps // k1 - steps // (k1 * times)) * (len(me.node) > 1)


def test_the_spread_before_an_average_is_not_0() -> None:
    """Guards number 5 against being empty."""
    run = AnyOrder(job_of(HbsSgd(k1=2, k2=4), nodes=placed([2, 2]), steps=2, learner=ExactBowl()))
    run.run()
    (one, _), (other, _) = next(iter(averages(run).values()))
    assert (one != other).any()


@given(seed=SEEDS, workers=st.integers(2, 4), k=st.integers(1, 3))
def test_momentum_is_averaged_if_asked(seed: int, workers: int, k: int) -> None:
    """After an average all workers have the same velocity; by default each keeps its own."""
    for average in (True, False):
        job = job_of(KAvg(k=k, momentum=0.5, average_momentum=average), workers, steps=k, learner=UnlikeBowl())
        states = AnyOrder(job).run(Shuffled(seed)).states
        velocities = np.array([states[Rank(rank)].optimizer_state.links[-1] for rank in range(workers)]).astype(float)
        assert (np.ptp(velocities, axis=0) == 0).all() == average


# --- when ------------------------------------------------------------------------------------------------------------


PERIODIC: list[Any] = [
    HbsSgd(k1=1, k2=3),
    KAvg(k=3),
    KAvg(k=3, phase=1),
    Sasgd(period=3),
    PostLocalSgd(switch=2, period=3),
    DiLoCo(period=3, inner="sgd", learning_rate=0.1),
]


@pytest.mark.parametrize("method", PERIODIC, ids=repr)
@given(seed=SEEDS, counts=NODES)
def test_replicas_meet_and_local_steps_are_numbered(method: Any, seed: int, counts: list[int]) -> None:
    """The age of a local step is the number of those since the last average, at most what `bounds` says.

    A single worker's weights are always the average of everyone: their age is 0.
    """
    run = AnyOrder(job_of(method, nodes=placed(counts), steps=8))
    trace = run.run(Shuffled(seed))
    bound = method.bounds(len(counts))[Guarantee.BOUNDED_STALENESS]
    assert bound == 2
    assert max(row.staleness for row in trace.updates) == (bound if sum(counts) > 1 else 0)
    histories = [[op.weights for op in applied(run, me.rank) if op.advance] for me in run.job.team]
    assert len(histories[0]) >= 2
    for history in histories:
        assert [weights.version for weights in history] == list(range(len(history)))
        for mine, other in zip(history, histories[0], strict=True):
            np.testing.assert_array_equal(mine.vector, other.vector)


@pytest.mark.parametrize("period", [2, 5])
def test_phase_1_averages_when_torch_does(period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's averager tests its counter before it counts, so it averages after the very first step."""
    averagers = pytest.importorskip("torch.distributed.algorithms.model_averaging.averagers")
    torchs: list[int] = []
    monkeypatch.setattr(
        averagers.utils, "average_parameters_or_parameter_groups", lambda *_: torchs.append(averager.step + 1)
    )
    averager: Any = averagers.PeriodicModelAverager(period=period, process_group=object())
    for _ in range(12):
        averager.average_parameters([])
    run = AnyOrder(job_of(KAvg(k=period, phase=1), steps=12))
    run.run()
    assert [int(key.split()[1]) for _, key in averages(run)] == torchs
    assert torchs[0] == 1


@pytest.mark.parametrize(
    ("method", "complaint"),
    [
        (KAvg(k=0), "k: found 0"),
        (KAvg(k=2, phase=2), "phase: found 2, expected 0 to 1"),
        (Sasgd(period=0), "period: found 0"),
        (Sasgd(global_learning_rate=0.0), "global_learning_rate: found 0.0"),
        (PostLocalSgd(switch=-1), "switch: found -1"),
        (DiLoCo(outer_momentum=1.0), "outer_momentum: found 1.0"),
        (DiLoCo(outer_learning_rate=0.0), "outer_learning_rate: found 0.0"),
        (DiLoCo(weight_decay=-1.0), "weight_decay: found -1.0"),
        (DiLoCo(momentum=0.5), "momentum: found 0.5"),
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused(method: Method, complaint: str) -> None:
    found = method.problems([[Rank(0)], [Rank(1)]])
    assert any(text.startswith(complaint) for text in found)
