"""HALoS against a second program of its algorithm: a loop over events, as in its authors' simulator."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo, PseudoGradient
from paceline.algorithms.methods.regional_servers import HALoS
from paceline.algorithms.methods.ssp import Farewell
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.support import TWO_BY_TWO, Bowl, FixedTiming, Uneven, job_of

MESSAGE_S = 0.1
TIMES = (1.0, 1.37, 0.71, 2.23)
"""seconds of a worker's step: no two events are at the same time"""


def ran(method: HALoS, steps: int, learner: Any, nodes: Sequence[Sequence[int]] = TWO_BY_TWO) -> Trace:
    job = job_of(method, nodes=nodes, steps=steps, learner=learner)
    timing = FixedTiming(compute=lambda rank, _: TIMES[rank])
    return simulate_job(job, timing, fixed_costs(message_s=MESSAGE_S), Schedule(1))


@dataclass
class DelayedNesterov:
    """The optimizer of the authors' code, which adds to a buffer and divides when it is used."""

    rate: float
    momentum: float
    size: int
    x: Any
    m: Any = 0.0
    total: Any = 0.0
    number: int = 0

    def step(self, change: Any) -> None:
        self.total = self.total + change
        if (self.number + 1) % self.size == 0:
            self.m = self.momentum * self.m + self.total / self.size
            self.x = self.x - self.rate * (self.momentum * self.m + change / self.size)
            self.total = 0.0
        else:
            self.x = self.x - self.rate * (change / self.size)
        self.number += 1


@dataclass
class Events:
    """Callbacks in the order of their times."""

    heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    number: Any = field(default_factory=count)
    now_s: float = 0.0

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now_s + seconds, next(self.number), then))

    def run(self, done: Callable[[], bool]) -> None:
        while not done():
            self.now_s, _, then = heapq.heappop(self.heap)
            then()


def reference(method: HALoS, steps: int, learner: Any, nodes: Sequence[Sequence[int]]) -> list[Any]:
    """The global weights after each update."""
    events, found, workers = Events(), list[Any](), sum(map(len, nodes))
    whole = DelayedNesterov(
        method.outer_learning_rate, method.outer_momentum, method.arrivals(workers), learner.initial()
    )

    class Region:
        def __init__(self, ranks: Sequence[int]) -> None:
            size = method.region_buffer_size or len(ranks)
            self.server = DelayedNesterov(method.region_learning_rate, method.region_momentum, size, learner.initial())
            self.merged, self.rounds = self.server.x, 0
            self.taken = dict.fromkeys(ranks, 0)

        def begin(self, rank: int, start: Any) -> None:
            x = start
            for _ in range(method.period):
                samples = Samples(worker=rank, workers=workers, index=self.taken[rank], count=8)
                x = x - method.learning_rate * learner.gradient(x, learner.load(samples))[0]
                self.taken[rank] += 1
            events.after(method.period * TIMES[rank] + MESSAGE_S, lambda: self.arrived(rank, start - x))

        def arrived(self, rank: int, change: Any) -> None:
            self.server.step(change)
            self.rounds += 1
            answer = self.server.x
            events.after(MESSAGE_S, lambda: self.begin(rank, answer))
            if self.rounds == method.region_rounds:
                own = self.merged - self.server.x
                events.after(MESSAGE_S, lambda: self.at_global_server(own))

        def at_global_server(self, change: Any) -> None:
            whole.step(change)
            found.append(whole.x)
            reply = whole.x
            events.after(MESSAGE_S, lambda: self.merge(reply))

        def merge(self, weights: Any) -> None:
            self.server.x = (1 - method.merge) * self.server.x + method.merge * weights
            self.merged, self.rounds = self.server.x, 0

    for ranks in nodes:
        region = Region(ranks)
        for rank in ranks:
            region.begin(rank, learner.initial())
    events.run(lambda: len(found) == steps)
    return found


@given(
    period=st.integers(1, 3), rounds=st.integers(1, 4), size=st.integers(1, 3), own=st.sampled_from([None, 1, 3]),
    merge=st.sampled_from([0.25, 1.0]), nodes=st.sampled_from([TWO_BY_TWO, [[0, 1, 2, 3]], [[0], [1, 2, 3]]]),
)  # fmt: skip
def test_the_global_weights_are_those_of_a_second_program(
    period: int, rounds: int, size: int, own: int | None, merge: float, nodes: list[list[int]]
) -> None:
    method = HALoS(
        inner="sgd", learning_rate=0.05, period=period, dylu=False, region_rounds=rounds, buffer_size=size,
        region_buffer_size=own, merge=merge,
    )  # fmt: skip
    trace = ran(method, 6, Uneven(), nodes)
    expected = reference(method, 6, Uneven(), nodes)
    shots = [shot.vector for shot in trace.snapshots[1:]]
    assert len(shots) == len(expected) == 6
    for shot, weights in zip(shots, expected, strict=True):
        np.testing.assert_allclose(shot, weights, rtol=1e-12, atol=1e-12)


def test_an_update_has_the_rounds_before_its_change_was_sent() -> None:
    """Each update has K rounds of H gradients; those that arrive between a change and its reply are in none."""
    method = HALoS(inner="sgd", period=2, dylu=False, region_rounds=3)
    trace = ran(method, 8, Bowl())
    versions = [row.version_applied for row in trace.updates]
    assert {versions.count(version) for version in set(versions)} == {6}
    assert len({(row.rank, row.step) for row in trace.updates}) == len(trace.updates)


@pytest.mark.parametrize("outer", ["sgd", "nesterov", "delayed-nesterov"])
def test_one_region_with_immediate_merges_is_async_diloco(outer: Any) -> None:
    """K = 1, α = 1 and a global server that takes over each change: the region's optimizer is the only one."""
    own: dict[str, Any] = {"inner": "sgd", "learning_rate": 0.05, "period": 2, "dylu": False}
    halos = HALoS(
        **own, region_outer=outer, region_learning_rate=0.7, region_momentum=0.9, region_rounds=1, merge=1.0,
        outer="sgd", outer_learning_rate=1.0,
    )  # fmt: skip
    plain = AsyncDiLoCo(**own, outer=outer, outer_learning_rate=0.7, outer_momentum=0.9)
    timing = FixedTiming(compute=lambda rank, _: TIMES[rank])

    def weights(method: AsyncDiLoCo) -> list[Any]:
        job = job_of(method, nodes=[[0, 1, 2]], steps=9, learner=Uneven())
        return [shot.vector for shot in simulate_job(job, timing, fixed_costs(), Schedule(1)).snapshots]

    np.testing.assert_allclose(weights(halos), weights(plain), rtol=1e-12)


@given(seed=st.integers(0, 99), rounds=st.integers(1, 3))
def test_every_region_says_farewell_and_nothing_is_left(seed: int, rounds: int) -> None:
    run = AnyOrder(job_of(HALoS(period=2, region_rounds=rounds), nodes=TWO_BY_TWO, steps=3))
    run.run(Shuffled(seed))
    sent = [(entry.move.rank, entry.op) for entry in run.log if isinstance(entry.op, Send)]
    assert [rank for rank, op in sent if isinstance(op.value, Farewell)].count(Rank(0)) == 1
    last = {rank: op.value for rank, op in sent if op.to == 4}
    assert set(last) == {0, 2} and all(isinstance(value, Farewell) for value in last.values())
    rounds_sent = [op for rank, op in sent if op.to != 4 and isinstance(op.value, PseudoGradient)]
    assert all(op.to in (0, 2) for op in rounds_sent)


def test_a_region_measures_the_speeds_of_its_own_workers() -> None:
    """Workers 0 and 1 take 1 and 1.37 s a step, 2 and 3 take 0.71 and 2.23 s."""
    trace = ran(HALoS(period=8, region_rounds=2), 30, Bowl())
    gradients = Counter((row.version_applied, row.rank) for row in trace.updates)
    sizes = {
        rank: [number for (version, other), number in gradients.items() if other == rank and version > 15]
        for rank in range(4)
    }
    assert all(sizes.values())
    assert all(number % 8 == 0 for number in sizes[0] + sizes[2])
    assert all(number % 5 == 0 for number in sizes[1]) and all(number % 2 == 0 for number in sizes[3])
