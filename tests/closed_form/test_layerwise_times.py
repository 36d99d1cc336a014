"""End times of layer-wise and delayed steps, against recurrences over layers (numbers 37, 38 and 41; O4 P1 and P2).

One channel serves the exchanges one at a time. Figures are by layer, first layer first; backward runs in reverse.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Layer, Layout
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.layerwise import (
    Agd,
    LayerwiseAgd,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
)
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork, NetworkModel, NoCost
from tests.support import Bowl, FixedTiming, job_of

STEPS = 4
BYTES_PER_S = 100.0


@dataclass(frozen=True)
class Layered(Bowl):
    """The bowl in layers of given sizes."""

    sizes: tuple[int, ...] = field(default=(1,))

    @property
    def layout(self) -> Layout:
        ends = np.cumsum(self.sizes)
        slices = enumerate(zip(ends, self.sizes, strict=True))
        return Layout(tuple(Layer(f"l{i}", int(end) - n, int(end)) for i, (end, n) in slices))


@dataclass(frozen=True)
class Times:
    """Seconds of every layer's forward and backward pass and of its exchange; of an update, and of loading."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    sizes: tuple[int, ...]
    update: float = 0.0
    load: float = 0.0

    @property
    def exchange(self) -> list[float]:
        return [size * 8 / BYTES_PER_S for size in self.sizes]

    @property
    def layers(self) -> range:
        return range(len(self.sizes))

    def timing(self) -> FixedTiming:
        total = sum(self.forward) + sum(self.backward)
        shares = [[seconds / total for seconds in part] for part in (self.forward, self.backward)]
        return FixedTiming(compute=total, work=self.update, load=self.load, forward=shares[0], backward=shares[1])

    def ready(self, begin: float) -> list[float]:
        """Returns when the gradient of each layer is ready if backward begins then."""
        return [begin + seconds for seconds in accumulate(self.backward[::-1])][::-1]

    def through(self, posted: Sequence[float], free: float = 0.0) -> list[float]:
        """When each exchange ends: start[l] = max(posted[l], end[l + 1])."""
        ends = []
        for when, seconds in zip(posted[::-1], self.exchange[::-1], strict=True):
            free = max(when, free) + seconds
            ends.append(free)
        return ends[::-1]

    # --- the times at which steps are applied -------------------------------------------------------------------------

    def waiting_after_backward(self) -> list[float]:
        now, ends = 0.0, []
        for _ in range(STEPS):
            ready = self.ready(now + self.load + sum(self.forward))
            now = ready[0]
            for come in self.through(ready)[::-1]:
                now = max(now, come) + self.update
            ends.append(now)
        return ends

    def waiting_before_forward(self) -> list[float]:
        landed, idle, ends = [0.0 for _ in self.layers], 0.0, []
        for _ in range(STEPS):
            now = idle + self.load
            for come, seconds in zip(landed, self.forward, strict=True):
                now = max(now, come) + seconds
            ready = self.ready(now)
            idle = ready[0]
            landed = [max(idle, come) + self.update for come in self.through(ready)]
            ends.append(max(landed))
        return ends

    def waiting_before_exchange(self, delay: int) -> list[float]:
        now, free, flights, ends = 0.0, 0.0, list[list[float]](), []
        for step in range(STEPS):
            ready = self.ready(now + self.load + sum(self.forward))
            now, posted = now + self.load, []
            for layer in reversed(self.layers):
                if step >= delay:
                    now = max(now, flights[step - delay][layer]) + self.update
                now = max(now, ready[layer])
                posted.append(now)
            flights.append(self.through(posted[::-1], free))
            free = flights[-1][0]
            ends.append(now)
        return ends


LAYERS = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.integers(1, 20)), min_size=1, max_size=6)
EXCHANGES = LAYERS.map(lambda rows: Times(*map(tuple, zip(*rows, strict=True))))  # type: ignore[arg-type]
TIMES = st.builds(replace, EXCHANGES, update=st.floats(0.0, 0.3), load=st.floats(0.0, 0.5))


def steps_end(method: Method, times: Times, network: NetworkModel) -> list[float]:
    """Returns when each step is applied."""
    learner = Layered(size=sum(times.sizes), sizes=times.sizes)
    job = job_of(method, 2, steps=STEPS, learner=learner)
    trace = simulate_job(job, times.timing(), network, Schedule(1))
    return [shot.time_s for shot in trace.snapshots[1:]]


def in_order() -> MeasuredNetwork:
    return MeasuredNetwork(lambda _kind, _members, nbytes: nbytes / BYTES_PER_S, lambda _: 0.0)


@pytest.mark.parametrize("method", [LayerwiseSgd, LayerwiseSgdLazy])
@given(times=TIMES)
def test_waiting_after_the_backward_pass(method: Callable[..., Method], times: Times) -> None:
    """Means of a channel that serves in order arrive in order, so the lazy method takes the same time."""
    assert steps_end(method(bucket=None), times, in_order()) == pytest.approx(times.waiting_after_backward())


@given(times=TIMES)
def test_waiting_before_the_next_forward_pass(times: Times) -> None:
    assert steps_end(LayerwiseSgdNextForward(bucket=None), times, in_order()) == pytest.approx(
        times.waiting_before_forward()
    )


@given(times=TIMES, delay=st.integers(1, 3))
def test_waiting_before_a_later_exchange(times: Times, delay: int) -> None:
    found = steps_end(LayerwiseAgd(delay=delay, bucket=None), times, in_order())
    assert found == pytest.approx(times.waiting_before_exchange(delay))


@pytest.mark.parametrize("method", [LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward])
@given(times=EXCHANGES)
def test_a_step_lies_between_its_bounds(method: Callable[..., Method], times: Times) -> None:
    """Number 37; the first step also is F + max_k(Σ_{i≤k} b_i + Σ_{i≥k} c_i), layers in backward order (O4 P1)."""
    end = steps_end(method(bucket=None), times, in_order())[0]
    forward, b, c = sum(times.forward), times.backward[::-1], times.exchange[::-1]
    assert end == pytest.approx(forward + max(sum(b[: k + 1]) + sum(c[k:]) for k in times.layers))
    assert max(forward + sum(b) + c[-1], forward + b[0] + sum(c)) - 1e-9 <= end <= forward + sum(b) + sum(c) + 1e-9


# --- priority ---------------------------------------------------------------------------------------------------------


class NearestFirst(NoCost):
    """One channel, which of the waiting exchanges serves the one with the layer nearest the input."""

    def attach(self, env: simpy.Environment) -> None:
        super().attach(env)
        self._waiting: list[tuple[int, int, float, simpy.Event]] = []
        self._numbers, self._serving = count(), False

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        done, layer = self._env.event(), int(op.key.rpartition(" l")[2])
        heapq.heappush(self._waiting, (layer, next(self._numbers), nbytes / BYTES_PER_S, done))
        self._serve()
        return done

    def _serve(self) -> None:
        if self._waiting and not self._serving:
            *_, seconds, done = heapq.heappop(self._waiting)
            self._serving = True
            through = self._env.timeout(seconds)
            assert through.callbacks is not None
            through.callbacks.append(lambda _: self._served(done))

    def _served(self, done: simpy.Event) -> None:
        done.succeed()
        self._serving = False
        self._serve()


@pytest.mark.parametrize("method", [LayerwiseSgd, LayerwiseSgdLazy])
@given(times=EXCHANGES)
def test_priority_changes_nothing_where_all_is_waited_for(method: Callable[..., Method], times: Times) -> None:
    """Number 37: the channel works off the same queue, and its end is waited for; updates cost nothing."""
    found, expected = (steps_end(method(bucket=None), times, network) for network in (NearestFirst(), in_order()))
    assert found == pytest.approx(expected)


def first_forward(times: Times, network: NetworkModel) -> list[float]:
    """Returns when all gradients of each step have arrived."""
    learner = Layered(size=sum(times.sizes), sizes=times.sizes)
    trace = simulate_job(
        job_of(LayerwiseSgdNextForward(bucket=None), 2, steps=STEPS, learner=learner),
        times.timing(),
        network,
        Schedule(1),
    )
    ends: dict[int, float] = {}
    for span in trace.spans:
        if span.activity == "compute":
            ends[span.step] = max(span.end_s, ends.get(span.step, 0.0))
    return list(ends.values())


@given(times=EXCHANGES)
def test_priority_never_harms_the_next_forward_pass(times: Times) -> None:
    """Nearest first is Jackson's rule: layers nearer the input arrive later and are followed by more passes."""
    hasty, steady = first_forward(times, NearestFirst()), first_forward(times, in_order())
    assert all(one <= other + 1e-9 for one, other in zip(hasty, steady, strict=True))


def test_priority_helps_the_next_forward_pass() -> None:
    """Three layers of an exchange of 1 s each: the input's overtakes the middle one's, whose forward pass waits."""
    times = Times((0.5,) * 3, (0.1,) * 3, (12, 13, 13))
    hasty, steady = first_forward(times, NearestFirst()), first_forward(times, in_order())
    assert hasty[-1] < steady[-1] - 1.0


# --- packing ----------------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), alpha=st.integers(0, 64), beta=st.integers(1, 64))
def test_layers_pay_for_each_message_of_their_own(sizes: list[int], alpha: int, beta: int) -> None:
    """Number 38, exactly, in binary fractions: α + n β packed, L α + n β layer by layer."""
    nbytes, layers = 8 * sum(sizes), len(sizes)
    learner = Layered(size=sum(sizes), sizes=tuple(sizes))
    shares = [1 / layers] * layers
    timing = FixedTiming(compute=0.0, forward=shares, backward=shares)

    def wall_s(method: Method) -> float:
        network = MeasuredNetwork(lambda _kind, _members, n: alpha / 64 + n * beta / 64, lambda _: 0.0)
        return simulate_job(job_of(method, 2, steps=1, learner=learner), timing, network, Schedule(1)).wall_s

    assert wall_s(SyncSgd()) == alpha / 64 + nbytes * beta / 64
    assert wall_s(LayerwiseSgd(bucket=None)) - wall_s(SyncSgd()) == (layers - 1) * alpha / 64


# --- throughput -------------------------------------------------------------------------------------------------------

METHODS: list[Callable[[int], Method]] = [lambda d: Agd(delay=d), lambda d: LayerwiseAgd(delay=d, bucket=None)]


@pytest.mark.parametrize("method", METHODS, ids=["agd", "layerwise-agd"])
@given(
    computes=st.lists(st.floats(0.1, 2.0), min_size=STEPS * 2, max_size=STEPS * 2),
    delay=st.integers(0, 3),
    alphas=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)).map(sorted),
    bandwidths=st.tuples(st.floats(10.0, 500.0), st.floats(10.0, 500.0)).map(sorted),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20)).map(sorted),
    update=st.floats(0.0, 0.3),
)
def test_throughput_is_monotone(
    method: Callable[[int], Method],
    computes: list[float],
    delay: int,
    alphas: list[float],
    bandwidths: list[float],
    sizes: list[int],
    update: float,
) -> None:
    """Number 41: on one link, served in order, with fixed times, no step ends later for a longer delay or a quicker
    link, or earlier for a larger latency or message. (Times may be equal: 1e-9 is rounding.)
    """

    def ends(delay: int, alpha: float, bandwidth: float, size: int) -> list[float]:
        timing = FixedTiming(compute=lambda rank, step: computes[2 * step + rank], work=update)
        network = MeasuredNetwork(lambda _kind, _members, n: alpha + n / bandwidth, lambda _: 0.0)
        job = job_of(method(delay), 2, steps=STEPS, learner=Bowl(size=2 * size))
        return [shot.time_s for shot in simulate_job(job, timing, network, Schedule(1)).snapshots[1:]]

    (alpha, more_alpha), (bandwidth, more_bandwidth), (size, more_size) = alphas, bandwidths, sizes
    base = np.array(ends(delay, alpha, bandwidth, size))
    assert (np.array(ends(delay + 1, alpha, bandwidth, size)) <= base + 1e-9).all()
    assert (np.array(ends(delay, alpha, more_bandwidth, size)) <= base + 1e-9).all()
    assert (np.array(ends(delay, more_alpha, bandwidth, size)) >= base - 1e-9).all()
    assert (np.array(ends(delay, alpha, bandwidth, more_size)) >= base - 1e-9).all()
