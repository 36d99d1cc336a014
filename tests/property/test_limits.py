"""Settings at which one method is another: every worker ends with the same weights, in every order of moves.

Numbers are those of docs/invariants.md. Weights are equal exactly, in fractions or bit for bit, except where `within`
says by how much of their scale sums in another order may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.job import OneByOne
from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.schedules import Polynomial
from paceline.algorithms.core.values import Samples
from paceline.algorithms.methods.accumulating import Acco
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo
from paceline.algorithms.methods.async_elastic import AsyncEasgd, AsyncMeasgd, Eamsgd
from paceline.algorithms.methods.baseline import ChipPartitionedSgd, SequentialSgd, SyncSgd
from paceline.algorithms.methods.decoupled_momentum import DeMo, SparseLoCo
from paceline.algorithms.methods.elastic import Easgd, SyncEasgd1, SyncEasgd2, SyncEasgd3
from paceline.algorithms.methods.hogwild import HogwildEasgd, HogwildSgd
from paceline.algorithms.methods.layerwise import (
    Agd,
    LayerwiseAgd,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
)
from paceline.algorithms.methods.local_sgd import DiLoCo, Hsgd, PostLocalSgd, SlowMo
from paceline.algorithms.methods.noloco import NoLoCo
from paceline.algorithms.methods.outer import Co2, EagerDiLoCo
from paceline.algorithms.methods.parameter_server import AsyncSgd, DcAsgd, Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_collectives import EagerSgd
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.algorithms.methods.periodic import DesLoc, HbsSgd, KAvg, Sasgd
from paceline.algorithms.methods.ssp import Downpour, Ssp
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Recorded, Shuffled
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, NetworkModel
from paceline.workloads import build
from tests.clusters import fixed_costs, star
from tests.exact import ExactBowl, UnlikeBowl, ends
from tests.support import Bowl, FixedTiming, Noise, Uneven, job_of, placed
from tests.thorough import examples

TENTH: Any = Fraction(1, 10)
HALF: Any = Fraction(1, 2)
ONE: Any = Fraction(1)
ZERO: Any = Fraction(0)
PLAIN: dict[str, Any] = {"learning_rate": TENTH}
INNER: dict[str, Any] = {"inner": "sgd", **PLAIN}
RULES: list[dict[str, Any]] = [
    {},
    {"momentum": 0.5},
    {"momentum": 0.5, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
]
AS_IT_COMES = {field.name: getattr(Hsgd(), field.name) for field in fields(Hsgd)}
"""with momentum, decay and LARS"""


@dataclass(frozen=True)
class Linear(ExactBowl):
    """Gradients that do not depend on the weights."""

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return data, 0.0


@dataclass(frozen=True)
class Shared(UnlikeBowl):
    """All workers have the same samples."""

    def load(self, samples: Samples) -> Any:
        return super().load(Samples(worker=0, workers=1, index=samples.index, count=samples.count))


@dataclass(frozen=True)
class Uphill(Uneven):
    """Weights that begin away from 0, where a layer-wise rate means something."""

    def initial(self) -> Any:
        return np.ones(self.size)


@dataclass(frozen=True)
class Drawn:
    """Numbers from which a limit takes those that it holds for."""

    counts: list[int]
    """workers of each node"""
    period: int
    times: int
    steps: int
    rate: Any
    momentum: Any
    rule: dict[str, Any]
    inner: Any
    flag: bool
    bucket: int | None
    seed: int

    @property
    def workers(self) -> int:
        return sum(self.counts)


DRAWN = st.builds(
    Drawn,
    counts=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    period=st.integers(1, 3),
    times=st.integers(1, 3),
    steps=st.integers(1, 8),
    rate=st.fractions(Fraction(1, 9), Fraction(8, 9), max_denominator=9),
    momentum=st.sampled_from([ZERO, HALF]),
    rule=st.sampled_from(RULES),
    inner=st.sampled_from(["sgd", "adamw"]),
    flag=st.booleans(),
    bucket=st.sampled_from([None, 1, 3, 100]),
    seed=st.integers(0, 999),
)


@dataclass(frozen=True)
class Limit:
    """Two methods that end with the same weights."""

    one: Callable[[Drawn], Any]
    other: Callable[[Drawn], Any]
    learner: Any = UnlikeBowl()  # noqa: RUF009 it is a frozen value
    counts: Callable[[Drawn], Sequence[int]] = lambda d: d.counts
    other_counts: Callable[[Drawn], Sequence[int]] | None = None
    steps: Callable[[Drawn], int] = lambda d: d.steps
    other_steps: Callable[[Drawn], int] | None = None
    within: float = 0.0
    """of the scale of the weights"""
    owner: bool = False
    """whether only the weights of their owner, the server if there is one, are compared"""
    same_moves: bool = False
    """whether both take their moves in the same order, and have the same rows of updates"""

    def runs(self, d: Drawn) -> tuple[AnyOrder, AnyOrder]:
        """Runs the other method and the one."""
        counts, steps = (self.other_counts or self.counts)(d), (self.other_steps or self.steps)(d)
        other = AnyOrder(job_of(self.other(d), nodes=placed(counts), steps=steps, learner=self.learner))
        other.run(Shuffled(d.seed + 1))
        one = AnyOrder(job_of(self.one(d), nodes=placed(self.counts(d)), steps=self.steps(d), learner=self.learner))
        one.run(Recorded(entry.move for entry in other.log) if self.same_moves else Shuffled(d.seed))
        return one, other


def alone(_: Drawn) -> Sequence[int]:
    return [1]


def pair(_: Drawn) -> Sequence[int]:
    return [1, 1]


def one_node(d: Drawn) -> Sequence[int]:
    return [d.workers]


def apart(d: Drawn) -> Sequence[int]:
    return [1] * d.workers


def k_avg(k: Callable[[Drawn], int]) -> Callable[[Drawn], Any]:
    return lambda d: KAvg(k=k(d), **PLAIN)


def elastic(kind: Any, **more: Any) -> Callable[[Drawn], Any]:
    return lambda d: kind(learning_rate=TENTH, elastic=d.rate, **more)


def streamed(method: DiLoCo, **more: Any) -> StreamingDiLoCo:
    given = {field.name: getattr(method, field.name) for field in fields(method)}
    return StreamingDiLoCo(**given, fragments=1, overlap=0, alpha=0.0, **more)


def layered(kind: Any) -> Limit:
    return Limit(
        lambda d: kind(momentum=0.5 * d.flag, bucket=d.bucket),
        lambda d: SyncSgd(momentum=0.5 * d.flag),
        learner=Uneven(),
    )


def waits_for_all(kind: Any, **number: Callable[[Drawn], int]) -> Limit:
    return Limit(
        lambda d: kind(**PLAIN, **{name: of(d) for name, of in number.items()}),
        lambda _: SyncSgdPs(**PLAIN),
        owner=True,
    )


def like_async_sgd(one: Callable[[Drawn], Any]) -> Limit:
    return Limit(one, lambda d: AsyncSgd(momentum=0.9 * d.flag), learner=Bowl(), same_moves=True)


QUADRATIC = build("quadratic", dataset=None, learning="quadratic", seed=5)
SYNCHRONOUS: list[Any] = [SyncEasgd1, SyncEasgd2, SyncEasgd3]
ROUND: dict[str, Any] = {"learning_rate": 0.05}
LIMITS: dict[str, Limit] = {
    # number 3
    "an average after every step": Limit(
        lambda d: KAvg(k=1, average_momentum=d.flag, learning_rate=0.1, **d.rule),
        lambda d: SyncSgd(learning_rate=0.1, **d.rule),
        within=1e-12,
    ),
    "hbs-sgd after every step": Limit(
        lambda d: HbsSgd(k1=1, k2=1, learning_rate=0.1, **d.rule),
        lambda d: SyncSgd(learning_rate=0.1, **d.rule),
        within=1e-12,
    ),
    # number 4
    "groups of one": Limit(
        lambda d: HbsSgd(k1=d.period, k2=d.period * d.times, group=1, **PLAIN),
        k_avg(lambda d: d.period * d.times),
        counts=apart,
    ),
    "groups of all": Limit(
        lambda d: HbsSgd(k1=d.period, k2=d.period * d.times, group=d.workers, **PLAIN),
        k_avg(lambda d: d.period),
        counts=apart,
    ),
    "groups as rare as all": Limit(
        lambda d: HbsSgd(k1=d.period, k2=d.period, **PLAIN), k_avg(lambda d: d.period), counts=one_node
    ),
    # number 7
    "summed gradients": Limit(lambda d: Sasgd(period=d.period, **PLAIN), k_avg(lambda d: d.period)),
    "summed gradients of one": Limit(
        lambda d: Sasgd(period=d.period, **PLAIN), lambda _: SequentialSgd(**PLAIN), counts=alone
    ),
    # number 8
    "two levels": Limit(lambda _: Hsgd(**PLAIN, momentum=0.0, weight_decay=0.0, lars=None), lambda _: SyncSgd(**PLAIN)),
    "two levels, as they come": Limit(
        lambda _: Hsgd(**AS_IT_COMES), lambda _: SyncSgd(**AS_IT_COMES), learner=Uphill(), within=1e-12
    ),
    # number 9 and Q12
    "the same samples": Limit(
        lambda d: KAvg(k=d.period, momentum=d.momentum, **PLAIN),
        lambda d: SequentialSgd(momentum=d.momentum, **PLAIN),
        learner=Shared(),
        other_counts=alone,
        within=1e-12,
    ),
    "the same curvature": Limit(
        k_avg(lambda d: d.period),
        lambda _: SyncSgd(**PLAIN),
        learner=ExactBowl(),
        steps=lambda d: d.period * d.times,
    ),
    # rounds of local steps
    "switched at once": Limit(lambda d: PostLocalSgd(switch=0, period=d.period, **PLAIN), k_avg(lambda d: d.period)),
    "never switched": Limit(
        lambda d: PostLocalSgd(switch=d.steps, period=d.period, **PLAIN), lambda _: SyncSgd(**PLAIN)
    ),
    "diloco without an outer optimizer": Limit(
        lambda d: DiLoCo(**INNER, outer_learning_rate=ONE, outer_momentum=ZERO, period=d.period),
        k_avg(lambda d: d.period),
    ),
    "all moments averaged with the weights": Limit(
        lambda d: DesLoc(period=d.period, first_moment_period=d.period, second_moment_period=d.period),
        lambda d: KAvg(k=d.period, optimizer="adam", learning_rate=0.01, average_momentum=True),
        learner=Uneven(),
    ),
    "no moment averaged": Limit(
        lambda d: DesLoc(period=d.period, first_moment_period=9, second_moment_period=9, optimizer="adamw"),
        lambda d: KAvg(k=d.period, optimizer="adamw", learning_rate=0.01),
        learner=Uneven(),
    ),
    "des-loc of one worker": Limit(
        lambda d: DesLoc(period=d.period, learning_rate=0.02),
        lambda _: SequentialSgd(optimizer="adam", learning_rate=0.02),
        learner=Uneven(),
        counts=alone,
    ),
    "des-loc with the same samples": Limit(
        lambda d: DesLoc(period=d.period, optimizer="sgd", momentum=d.momentum, **PLAIN),
        lambda d: SequentialSgd(momentum=d.momentum, **PLAIN),
        learner=Shared(),
        other_counts=alone,
        within=1e-12,
    ),
    "des-loc after every step with momentum": Limit(
        lambda d: DesLoc(period=1, first_moment_period=1, optimizer="sgd", momentum=d.momentum, **PLAIN),
        lambda d: SyncSgd(momentum=d.momentum, **PLAIN),
        within=1e-12,
    ),
    "slow momentum of 0": Limit(
        lambda d: SlowMo(period=d.period, slow_learning_rate=ONE, slow_momentum=ZERO, **PLAIN),
        k_avg(lambda d: d.period),
    ),
    "slow momentum of 0 in floats": Limit(
        lambda d: SlowMo(learning_rate=0.1, period=d.period, slow_momentum=0.0),
        lambda d: KAvg(learning_rate=0.1, k=d.period),
        learner=Uneven(),
        within=1e-12,
    ),
    "slow momentum of 0 with a rate": Limit(
        lambda d: SlowMo(period=d.period, slow_learning_rate=d.rate, slow_momentum=ZERO, **PLAIN),
        lambda d: DiLoCo(**INNER, period=d.period, outer_learning_rate=d.rate, outer_momentum=ZERO),
    ),
    "whole weights without overlap": Limit(
        lambda d: streamed(
            DiLoCo(inner=d.inner, period=d.period, **ROUND), pattern="strided" if d.flag else "sequential"
        ),
        lambda d: DiLoCo(inner=d.inner, period=d.period, **ROUND),
        learner=Uneven(),
    ),
    "one eager worker": Limit(
        lambda d: EagerDiLoCo(inner=d.inner, period=d.period, **ROUND),
        lambda d: DiLoCo(inner=d.inner, period=d.period, **ROUND),
        learner=Uneven(),
        counts=alone,
    ),
    "two workers of noloco": Limit(
        lambda d: NoLoCo(pull=float(d.rate), period=d.period, outer_learning_rate=0.3, outer_momentum=0.0),
        lambda d: DiLoCo(weight_decay=0.0, period=d.period, outer_learning_rate=0.3, outer_momentum=0.0),
        learner=Bowl(),
        counts=pair,
    ),
    "two workers of noloco without an outer optimizer": Limit(
        lambda d: NoLoCo(**INNER, period=d.period, outer_learning_rate=ONE, outer_momentum=ZERO, pull=ZERO),
        k_avg(lambda d: d.period),
        counts=pair,
    ),
    "one asynchronous worker": Limit(
        lambda d: AsyncDiLoCo(period=d.period, inner=d.inner, dylu=d.flag),
        lambda d: DiLoCo(period=d.period, inner=d.inner),
        learner=Bowl(),
        counts=alone,
        other_steps=lambda d: d.steps * d.period,
        owner=True,
    ),
    "the default pull": Limit(
        lambda d: NoLoCo(period=d.period, outer_learning_rate=0.3),
        lambda d: NoLoCo(period=d.period, outer_learning_rate=0.3, pull=0.3),
        learner=Bowl(),
        counts=lambda d: [2, *d.counts],
    ),
    "co2 after every step": Limit(
        lambda _: Co2(**PLAIN, period=1, outer_learning_rate=1, outer_momentum=0, gap_penalty=1),
        lambda _: Agd(delay=1, **PLAIN),
    ),
    "a limit that nothing reaches": Limit(
        lambda d: Co2(period=d.period, clip=1e9), lambda d: Co2(period=d.period), learner=Bowl()
    ),
    "acco on a linear loss": Limit(
        lambda d: Acco(**PLAIN, accumulate=d.period),
        lambda d: SyncSgd(learning_rate=TENTH / (2 * d.period)),
        learner=Linear(),
        steps=lambda d: (2 * d.times + 1) * d.period,
        other_steps=lambda d: 2 * d.times * d.period,
    ),
    # numbers 36 and 40
    "layer by layer": layered(LayerwiseSgd),
    "layer by layer, lazy": layered(LayerwiseSgdLazy),
    "layer by layer, next forward": layered(LayerwiseSgdNextForward),
    "no delay": Limit(
        lambda d: Agd(delay=0, momentum=0.5 * d.flag), lambda d: SyncSgd(momentum=0.5 * d.flag), learner=Uneven()
    ),
    "a delay layer by layer": Limit(
        lambda d: LayerwiseAgd(delay=d.period - 1, momentum=0.5 * d.flag, bucket=d.bucket),
        lambda d: Agd(delay=d.period - 1, momentum=0.5 * d.flag),
        learner=Uneven(),
    ),
    "layer by layer with LARS and a schedule": Limit(
        lambda d: LayerwiseSgd(lars=Lars(), schedule=Polynomial(total_steps=9, warmup_steps=2), **d.rule),
        lambda d: SyncSgd(lars=Lars(), schedule=Polynomial(total_steps=9, warmup_steps=2), **d.rule),
        learner=Uphill(),
    ),
    # numbers 12 to 15
    **{
        f"{kind.__name__} of one worker": Limit(
            elastic(kind, **more), elastic(Easgd), counts=alone, learner=UnlikeBowl()
        )
        for kind, more in [(AsyncEasgd, {}), (AsyncEasgd, {"sends": "delta"}), *((kind, {}) for kind in SYNCHRONOUS)]
    },
    "hogwild-easgd of one worker": Limit(
        lambda d: HogwildEasgd(**PLAIN, elastic=d.rate, momentum=d.momentum),
        lambda d: Easgd(**PLAIN, elastic=d.rate, momentum=d.momentum),
        counts=alone,
    ),
    "eamsgd with a period of 1": Limit(
        elastic(Eamsgd, momentum=ZERO, period=1), elastic(Easgd), counts=alone, other_steps=lambda d: d.steps + 1
    ),
    "measgd without momentum": Limit(
        lambda d: AsyncMeasgd(sends="delta" if d.flag else "weights", momentum=0.0),
        lambda d: AsyncEasgd(sends="delta" if d.flag else "weights"),
        learner=Bowl(),
        same_moves=True,
    ),
    "easgd in layers or with overlap": Limit(
        lambda d: Easgd(**PLAIN, elastic=d.rate, packed=d.flag, overlap=d.period > 1 or d.flag), elastic(Easgd)
    ),
    "α = ηρ": Limit(
        lambda d: Easgd(learning_rate=HALF, rho=d.rate), lambda d: Easgd(learning_rate=HALF, elastic=d.rate / 2)
    ),
    "α = β / P": Limit(
        lambda d: SyncEasgd3(**PLAIN, moving_rate=d.rate),
        lambda d: SyncEasgd3(**PLAIN, elastic=d.rate / d.workers),
    ),
    # numbers 21 and 43
    "n-softsync of n workers": like_async_sgd(lambda d: Softsync(n=d.workers, damping="none", momentum=0.9 * d.flag)),
    "batches of one gradient": like_async_sgd(lambda d: KBatchAsync(k=1, momentum=0.9 * d.flag)),
    "one gradient of k workers": like_async_sgd(lambda d: KAsync(k=1, momentum=0.9 * d.flag)),
    "no compensation": like_async_sgd(lambda d: DcAsgd(compensation=0.0, adaptive=d.period > 1, momentum=0.9 * d.flag)),
    "k-async that waits for all": waits_for_all(KAsync, k=lambda d: d.workers),
    "k-sync that waits for all": waits_for_all(KSync, k=lambda d: d.workers),
    "no backup workers": waits_for_all(BackupWorkers, backups=lambda _: 0),
    "no slack at clock edges": Limit(
        lambda d: Ssp(slack=0, visibility="clock-edge", momentum=d.momentum, **PLAIN),
        lambda d: SyncSgd(momentum=d.momentum, **PLAIN),
        owner=True,
    ),
    "a cache of one worker": Limit(
        lambda d: Ssp(slack=d.period, pull="when-stale", **PLAIN),
        lambda _: AsyncSgd(**PLAIN),
        counts=alone,
        owner=True,
    ),
    "hogwild of one worker": Limit(
        lambda d: HogwildSgd(lock=d.flag, momentum=d.momentum, **PLAIN),
        lambda d: SequentialSgd(momentum=d.momentum, **PLAIN),
        counts=alone,
    ),
    # number 2
    "a chip in parts": Limit(
        lambda d: ChipPartitionedSgd(momentum=0.5 * d.flag),
        lambda d: SequentialSgd(momentum=0.5 * d.flag),
        learner=QUADRATIC,
        counts=one_node,
        other_counts=alone,
        within=1e-12,
    ),
    # partial and compressed collectives
    "rounds that are all synchronous": Limit(
        lambda d: EagerSgd(collective="solo" if d.flag else "majority", sync_every=1, momentum=0.9),
        lambda _: SyncSgd(momentum=0.9),
        learner=Uneven(),
    ),
    "tiles of one number": Limit(
        lambda d: DeMo(
            chunk=1, k=1, update="plain", average_over="senders" if d.flag else "workers", learning_rate=0.1
        ),
        lambda _: SyncSgd(learning_rate=0.1),
        learner=Uneven(),
    ),
    "all numbers of sparse-loco": Limit(
        lambda d: SparseLoCo(
            **INNER,
            period=d.period,
            chunk=d.times,
            k=d.times,
            bits=None,
            error_decay=int(d.flag),
            outer_learning_rate=d.rate,
            outer_momentum=d.momentum,
        ),
        lambda d: DiLoCo(**INNER, period=d.period, outer_learning_rate=d.rate, outer_momentum=d.momentum),
    ),
    "all numbers of sparse-loco in floats": Limit(
        lambda d: SparseLoCo(inner=d.inner, period=d.period, chunk=4, k=4, bits=None, error_decay=0.0, **ROUND),
        lambda d: DiLoCo(inner=d.inner, period=d.period, outer_learning_rate=1.0, outer_momentum=0.0, **ROUND),
        learner=Uneven(),
    ),
    "plain steps of demo": Limit(
        lambda d: DeMo(learning_rate=0.1, chunk=2, k=d.period, momentum=float(d.momentum), update="plain"),
        lambda d: SyncSgd(
            learning_rate=0.1,
            compression=DctTopK(chunk=2, k=d.period, decay=float(d.momentum), average_over="senders"),
        ),
        learner=Noise(),
    ),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=list(LIMITS))
@examples(6, 200)
@given(d=DRAWN)
def test_every_worker_ends_with_the_same_weights(limit: Limit, d: Drawn) -> None:
    one, other = limit.runs(d)
    pairs = [] if limit.owner else [(ends(one), ends(other))]
    if limit.owner or (one.job.method.has_server and other.job.method.has_server):
        pairs.append((one.trace.weights, other.trace.weights))
    for found, expected in pairs:
        if limit.within:
            atol = limit.within * max(1, np.abs(expected).max())
            found, expected = np.broadcast_arrays(found.astype(float), expected.astype(float))
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        else:
            assert (found == expected).all()
    if limit.same_moves:
        assert rows(one) == rows(other)


def rows(run: AnyOrder) -> list[tuple[int, ...]]:
    return [(row.rank, row.step, row.version_read, row.version_applied) for row in run.trace.updates]


def test_layers_whose_means_arrive_in_another_order_are_applied_in_their_own() -> None:
    """Number 36 for the lazy method, in orders that do occur: the later layer alone and before the earlier."""
    expected = AnyOrder(job_of(SyncSgd(), 2, steps=4, learner=Uneven())).run().weights
    outcomes = set()
    for seed in range(8):
        trace = AnyOrder(job_of(LayerwiseSgdLazy(bucket=None), 2, steps=4, learner=Uneven())).run(Shuffled(seed))
        assert (trace.weights == expected).all()
        outcomes |= {outcome for of_lane in trace.outcomes.values() for outcome in of_lane}
    assert outcomes == {(0,), (1,), (0, 1)}


def test_other_settings_end_elsewhere() -> None:
    """Guards the limits: no two of these end with the same weights, so those of a limit are not equal by chance.

    Nor is an average of steps that LARS has shortened a step along the average (number 3), or γ_p = γ an average (7).
    """
    outer: dict[str, Any] = {"outer_learning_rate": HALF, "outer_momentum": HALF}
    late: dict[str, Any] = {**INNER, **outer, "period": 2}
    methods = [
        SyncSgd(**PLAIN),
        SyncSgd(lars=Lars(), **PLAIN),
        KAvg(k=1, lars=Lars(), **PLAIN),
        KAvg(k=2, **PLAIN),
        HbsSgd(k1=1, k2=2, **PLAIN),
        SyncSgd(optimizer="adam", learning_rate=0.01),
        *(
            DesLoc(period=1, first_moment_period=first, second_moment_period=second)
            for first, second in [(1, 1), (1, 2), (2, 1), (20, 20)]
        ),
        Sasgd(period=2, global_learning_rate=TENTH, **PLAIN),
        PostLocalSgd(switch=1, period=2, **PLAIN),
        Agd(delay=1, **PLAIN),
        Agd(delay=2, **PLAIN),
        DiLoCo(**INNER, **outer, period=1),
        SlowMo(period=1, slow_learning_rate=HALF, slow_momentum=HALF, **PLAIN),
        EagerDiLoCo(**INNER, **outer, period=1),
        EagerDiLoCo(**INNER, **outer, period=1, updates="delayed"),
        StreamingDiLoCo(**late, fragments=1, overlap=1, alpha=ZERO),
        StreamingDiLoCo(**late, fragments=1, overlap=1, alpha=HALF),
        StreamingDiLoCo(**late, fragments=2, overlap=0, alpha=ZERO),
        NoLoCo(**late, pull=ZERO),
        NoLoCo(**late, pull=HALF),
        AsyncSgd(**PLAIN),
        DcAsgd(compensation=HALF, **PLAIN),
        Softsync(n=1, **PLAIN),
        Ssp(slack=0, **PLAIN),
        Easgd(**PLAIN),
        AsyncEasgd(**PLAIN),
        AsyncMeasgd(**PLAIN),
    ]
    found = {}
    for method in methods:
        run = AnyOrder(job_of(method, nodes=placed([2, 2]), steps=16, learner=UnlikeBowl()))
        run.run(Shuffled(0))
        found[repr(method)] = str(run.trace.weights.tolist())
    assert len(set(found.values())) == len(methods), found


# --- in virtual time -------------------------------------------------------------------------------------------------


class Timed(OneByOne, UnlikeBowl):
    """The exact learner, for virtual time."""


def measured() -> NetworkModel:
    return MeasuredNetwork(lambda _, members, size: 0.1 + 1e-3 * (size + members), lambda _: 0.25)


ASYNC_ROUNDS = AsyncDiLoCo(period=1, inner="sgd", dylu=False, outer="sgd", learning_rate=TENTH, outer_learning_rate=ONE)
DILOCO = DiLoCo(inner="adamw", learning_rate=0.05, period=3)
IN_TIME: dict[str, tuple[Any, Any, NetworkModel, Any]] = {
    "no bound": (Ssp(slack=10**9), AsyncSgd(), fixed_costs(message_s=0.05), Bowl()),
    "a push in every step": (Downpour(n_push=1, n_fetch=1), AsyncSgd(), fixed_costs(message_s=0.05), Bowl()),
    "rounds of one step": (ASYNC_ROUNDS, AsyncSgd(**PLAIN), fixed_costs(message_s=0.05), None),
    "streamed, measured": (streamed(DILOCO), DILOCO, measured(), Uneven()),
    "streamed, modelled": (streamed(DILOCO), DILOCO, ClusterNetwork(star(2, 2, latency_s=0.015625)), Uneven()),
}


@pytest.mark.parametrize("case", IN_TIME)
def test_they_are_the_same_run_in_virtual_time(case: str) -> None:
    """Numbers 43 and others: all rows and snapshots, times included, with workers of unlike speed."""
    one, other, network, learner = IN_TIME[case]
    times = np.random.default_rng(5).uniform(0.5, 2.0, (4, 40))
    work = 0.125 * (other is DILOCO)  # the outer steps of others are charged otherwise
    timing = FixedTiming(compute=lambda rank, step: float(times[rank, step % 40]), work=work)
    runs = [
        simulate_job(
            job_of(method, nodes=placed([2, 2]), steps=24, learner=learner or Timed()), timing, network, Schedule(1)
        )
        for method in (one, other)
    ]
    assert runs[0].updates == runs[1].updates
    shots = [[(shot.time_s, shot.version, shot.vector.tolist()) for shot in run.snapshots] for run in runs]
    assert shots[0] == shots[1]
    if learner == Bowl():
        assert runs[0].spans == runs[1].spans
