"""Invariants of periodic averaging (numbers as in docs/invariants.md), in every order of moves.

Exact, in fractions, except where a rule remembers floating point numbers. The learner's curvature differs from batch to
batch: with the same curvature everywhere, averages of local steps are synchronous steps (Q12), and proved too little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.local import DiLoCo, PostLocalSgd
from paceline.algorithms.method import Descent, Me, Method, Replica
from paceline.algorithms.operations import AllReduce, Applied, Broadcast, Reduce
from paceline.algorithms.periodic import HbsSgd, KAvg, Sasgd
from paceline.algorithms.program import Program, program
from paceline.algorithms.rules import At, Chain, Forgetful, Scale
from paceline.algorithms.values import Rank, Samples, Weights
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, first
from paceline.checking.strategies import drawn
from tests.exact import Apart, ExactBowl, UnlikeBowl, applied, ends, fractions
from tests.support import job_of, placed

NODES = st.lists(st.integers(1, 2), min_size=1, max_size=3)
SEEDS = st.integers(0, 999)
TENTH: Any = Fraction(1, 10)
RULES: list[dict[str, Any]] = [
    {},
    {"momentum": 0.5},
    {"momentum": 0.5, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
]
KNOWN = [options for options in RULES if options.keys() <= {field.name for field in fields(Descent)}]


def ended(seed: int | None, method: Method, counts: list[int], steps: int, learner: Any = None) -> Any:
    """Every worker's weights at the end."""
    run = AnyOrder(job_of(method, nodes=placed(counts), steps=steps, learner=learner or UnlikeBowl()))
    run.run(first if seed is None else Shuffled(seed))
    return ends(run)


def averages(run: AnyOrder) -> dict[Any, list[tuple[Any, Any]]]:
    """What every member gave to each all-reduce, and got from it."""
    met: dict[Any, list[tuple[Any, Any]]] = {}
    for entry in run.log:
        if isinstance(entry.op, AllReduce):
            met.setdefault((entry.op.group, entry.op.key), []).append((entry.op.value, entry.answer))
    return met


# --- against synchronous SGD and each other --------------------------------------------------------------------------


@pytest.mark.parametrize("options", KNOWN, ids=str)
@pytest.mark.parametrize("method", [HbsSgd(k1=1, k2=1), KAvg(k=1), KAvg(k=1, average_momentum=True)], ids=repr)
@given(seed=SEEDS, counts=NODES, steps=st.integers(1, 5))
def test_an_average_after_every_step_is_synchronous(
    method: Descent, options: dict[str, Any], seed: int, counts: list[int], steps: int
) -> None:
    """Number 3, whatever of the rule is linear in the gradient; to 1e-12 of the scale, momentum is in float64."""
    found = ended(seed, replace(method, rate=0.1, **options), counts, steps).astype(float)
    expected = ended(None, SyncSgd(rate=0.1, **options), counts, steps).astype(float)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@dataclass(frozen=True, slots=True)
class ByNorm(Forgetful):
    """g / |g|: as in LARS, how far a step goes does not grow with the gradient."""

    def update(self, change: Any, memory: None, at: At) -> tuple[Any, None]:
        return change / float((change * change).sum()) ** 0.5, None


def test_rules_that_are_not_linear_must_see_the_mean_gradient() -> None:
    """Number 3 does not hold for LARS and its like: a mean of shortened steps is not the shortened mean."""

    class Averaged(KAvg):
        def rule(self, layers: Any) -> Chain:
            return Chain((ByNorm(), Scale(self.rate)), layers)

    class Synchronous(SyncSgd):
        def rule(self, layers: Any) -> Chain:
            return Chain((ByNorm(), Scale(self.rate)), layers)

    found, expected = ended(None, Averaged(k=1), [2], 1), ended(None, Synchronous(), [2], 1)
    assert np.abs(found - expected).astype(float).max() > 0.01


@given(seed=SEEDS, workers=st.integers(1, 4), k1=st.integers(1, 3), times=st.integers(1, 3), steps=st.integers(1, 7))
def test_special_cases_of_groups(seed: int, workers: int, k1: int, times: int, steps: int) -> None:
    """Number 4: groups of one, of everybody, and as rare as averages of everyone."""
    k2, counts = k1 * times, [1] * workers

    def averaged(k: int) -> Any:
        return ended(None, KAvg(k=k, rate=TENTH), counts, steps)

    assert (ended(seed, HbsSgd(k1=k1, k2=k2, group=1, rate=TENTH), counts, steps) == averaged(k2)).all()
    assert (ended(seed, HbsSgd(k1=k1, k2=k2, group=workers, rate=TENTH), counts, steps) == averaged(k1)).all()
    assert (ended(seed, HbsSgd(k1=k2, k2=k2, rate=TENTH), [workers], steps) == averaged(k2)).all()


@pytest.mark.parametrize("method", [KAvg(k=2), HbsSgd(k1=2, k2=2), Sasgd(period=2)], ids=repr)
def test_rarer_averages_are_not_synchronous(method: Descent) -> None:
    """Guards numbers 3 and 4 against being empty."""
    found = ended(None, replace(method, rate=TENTH), [1, 1], 2)
    expected = ended(None, SyncSgd(rate=TENTH), [1, 1], 2)
    assert (found[0] == found[1]).all()
    assert (found != expected).any()


@given(seed=SEEDS, workers=st.integers(1, 4), period=st.integers(1, 4), steps=st.integers(1, 8))
def test_summed_gradients_are_averaged_weights(seed: int, workers: int, period: int, steps: int) -> None:
    """Number 7; with one worker both are sequential SGD."""
    counts = [1] * workers
    found = ended(seed, Sasgd(period=period, rate=TENTH), counts, steps)
    assert (found == ended(None, KAvg(k=period, rate=TENTH), counts, steps)).all()
    if workers == 1:
        assert (found == ended(None, SequentialSgd(rate=TENTH), counts, steps)).all()


def test_another_global_rate_is_another_method() -> None:
    """Number 7 fails with γ_p = γ, the mistake of dividing by nobody."""
    found = ended(None, Sasgd(period=2, rate=TENTH, global_rate=TENTH), [1, 1], 2)
    assert (found != ended(None, KAvg(k=2, rate=TENTH), [1, 1], 2)).any()


@dataclass(frozen=True)
class Shared(UnlikeBowl):
    """All workers have the same samples."""

    def load(self, samples: Samples) -> Any:
        return super().load(Samples(worker=0, workers=1, index=samples.index, count=samples.count))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@given(seed=SEEDS, counts=NODES, k=st.integers(1, 4), steps=st.integers(1, 7))
def test_with_the_same_samples_all_are_one_worker(
    momentum: float, seed: int, counts: list[int], k: int, steps: int
) -> None:
    """Number 9, to 1e-12 of the scale, for momentum's float64."""
    found = ended(seed, KAvg(k=k, rate=TENTH, momentum=momentum), counts, steps, Shared()).astype(float)
    expected = ended(None, SequentialSgd(rate=TENTH, momentum=momentum), [1], steps, Shared()).astype(float)
    np.testing.assert_allclose(found, np.repeat(expected, len(found), axis=0), rtol=0, atol=1e-12)


@given(seed=SEEDS, workers=st.integers(1, 4), k=st.integers(1, 4), rounds=st.integers(1, 2))
def test_with_the_same_curvature_the_average_is_synchronous(seed: int, workers: int, k: int, rounds: int) -> None:
    """Q12, sample by sample: on a quadratic the mean of local steps is the step of the mean."""
    found = ended(seed, KAvg(k=k, rate=TENTH), [1] * workers, k * rounds, ExactBowl())
    assert (found == ended(None, SyncSgd(rate=TENTH), [1] * workers, k * rounds, ExactBowl())).all()


# --- what averages do ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MeanOfNodeMeans(HbsSgd):
    """The mistake that two levels invite: nodes count alike, whatever number of workers is on them."""

    @program
    def average_all(self, me: Me, state: Replica) -> Program[Replica]:
        leader, key = me.node.ranks[0], f"everyone {state.step}"
        mean: Any = yield from Reduce(value=state.weights.vector, group=me.node, root=leader, key=key, op="mean")
        if mean is not None:
            mean = yield from AllReduce(value=mean, group=me.leaders, key=key)
        mine = state.weights.vector if mean is None else mean
        vector = yield from Broadcast(value=mine, group=me.node, root=leader, key=key)
        version = yield from Applied(Weights(vector, state.weights.version))
        return replace(state, weights=Weights(vector, version))


def check_the_mean(method: Callable[..., Any]) -> None:
    """The property, exactly: workers that start apart and learn nothing keep their mean."""

    class FromApart(Apart, method):  # type: ignore[misc, valid-type]
        pass

    @settings(database=None, phases=[Phase.generate])  # a mutation need only be found, not made small
    @given(data=st.data(), counts=NODES, steps=st.integers(0, 5))
    def conserved(data: st.DataObject, counts: list[int], steps: int) -> None:
        job = job_of(FromApart(rate=Fraction(0)), nodes=placed(counts), steps=steps, learner=ExactBowl())
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
    """Numbers 5 and 6: no average moves the mean of its members, who are then equal; and as many as there should be."""
    run = AnyOrder(
        job_of(HbsSgd(k1=k1, k2=k1 * times, rate=TENTH), nodes=placed(counts), steps=steps, learner=ExactBowl())
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
        # a worker alone on its node has nobody to average with
        assert times_met["group"] == (steps // k1 - steps // (k1 * times)) * (len(me.node) > 1)


def test_the_spread_before_an_average_is_not_0() -> None:
    """Guards number 5 against being empty."""
    run = AnyOrder(job_of(HbsSgd(k1=2, k2=4), nodes=placed([2, 2]), steps=2, learner=ExactBowl()))
    run.run()
    (one, _), (other, _) = next(iter(averages(run).values()))
    assert (one != other).any()


@given(seed=SEEDS, workers=st.integers(2, 4), k=st.integers(1, 3))
def test_momentum_is_averaged_if_asked(seed: int, workers: int, k: int) -> None:
    """All workers then remember the same after an average; by default each keeps its own velocity."""
    for average in (True, False):
        job = job_of(KAvg(k=k, momentum=0.5, average_momentum=average), workers, steps=k, learner=UnlikeBowl())
        states = AnyOrder(job).run(Shuffled(seed)).states
        velocities = np.array([states[Rank(rank)].memory.links[-1] for rank in range(workers)]).astype(float)
        assert (np.ptp(velocities, axis=0) == 0).all() == average


# --- when ------------------------------------------------------------------------------------------------------------


PERIODIC: list[Any] = [
    HbsSgd(k1=1, k2=3),
    KAvg(k=3),
    KAvg(k=3, phase=1),
    Sasgd(period=3),
    PostLocalSgd(switch=2, period=3),
    DiLoCo(period=3, inner="sgd", rate=0.1),
]


@pytest.mark.parametrize("method", PERIODIC, ids=repr)
@given(seed=SEEDS, counts=NODES)
def test_replicas_meet_and_local_steps_are_numbered(method: Any, seed: int, counts: list[int]) -> None:
    """The age of a local step is the number of those since the last average, at most what `bounds` says."""
    run = AnyOrder(job_of(method, nodes=placed(counts), steps=8))
    trace = run.run(Shuffled(seed))
    bound = method.bounds(len(counts))[Guarantee.BOUNDED_STALENESS]
    assert max(row.staleness for row in trace.updates) == bound == 2
    histories = [[op.weights for op in applied(run, me.rank) if op.advance] for me in run.job.team]
    assert len(histories[0]) >= 2
    for history in histories:
        assert [weights.version for weights in history] == list(range(len(history)))
        for mine, other in zip(history, histories[0], strict=True):
            np.testing.assert_array_equal(mine.vector, other.vector)


@pytest.mark.parametrize("period", [2, 5])
def test_phase_1_averages_when_torch_does(period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's averager tests its counter before it counts, so that it averages after the very first step."""
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
        (KAvg(k=0), "k: 0"),
        (KAvg(k=2, phase=2), "phase: found 2, expected 0 to 1"),
        (Sasgd(period=0), "period: found 0"),
        (Sasgd(global_rate=0.0), "global_rate: found 0.0"),
        (PostLocalSgd(switch=-1), "switch: -1"),
        (DiLoCo(outer_momentum=1.0), "outer_momentum: found 1.0"),
        (DiLoCo(outer_rate=0.0), "outer_rate: found 0.0"),
        (DiLoCo(weight_decay=-1.0), "weight_decay: found -1.0"),
        (DiLoCo(momentum=0.5), "momentum: found 0.5"),
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_refused(method: Method, complaint: str) -> None:
    found = method.problems([[Rank(0)], [Rank(1)]])
    assert any(text.startswith(complaint) for text in found)


def test_fractions_stay_fractions() -> None:
    """Guards the file: equality is exact only as long as no float has come in."""
    assert isinstance(fractions([1])[0], Fraction)
    assert all(isinstance(number, Fraction) for number in ended(None, Sasgd(period=2, rate=TENTH), [2], 3).ravel())
