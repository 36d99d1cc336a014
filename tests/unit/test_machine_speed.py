"""The speed reference: what ranks record, and what a changed speed does to measured times and to predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.backend.rank.rank_context import EVERY_S, SpeedReference
from paceline.records.machine_speed import BIN_S, NOMINAL_S, MachineSpeed, SpeedBin, SpeedSample, steady
from paceline.records.trace import Span, Trace
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import EmulationCosts, MeasuredCosts, Profile

SLOWNESS = st.lists(st.floats(0.2, 5.0), min_size=1, max_size=8)


def speed_of(slowness: list[float], ranks: int = 1) -> MachineSpeed:
    """A machine with this slowness, one after the other, each for `BIN_S`."""
    bins = tuple(SpeedBin((number + 0.5) * BIN_S, NOMINAL_S, NOMINAL_S, each) for number, each in enumerate(slowness))
    return MachineSpeed(dict.fromkeys(range(ranks), bins), dict.fromkeys(range(ranks), 0.0))


@given(SLOWNESS, st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_the_clock_keeps_the_order_of_times_and_their_rate_is_the_slowness(
    slowness: list[float], first_s: float, second_s: float
) -> None:
    at, (early_s, late_s) = speed_of(slowness, ranks=2).clock(), sorted((first_s, second_s))
    lasted_s = at(late_s) - at(early_s)
    assert (late_s - early_s) / max(slowness) - 1e-9 <= lasted_s <= (late_s - early_s) / min(slowness) + 1e-9


@given(st.floats(0.2, 5.0))
def test_a_record_at_a_constant_slowness_has_shorter_times_by_that_factor(slowness: float) -> None:
    span = Span(Rank(0), "main", "compute", None, 0, 0.2, 0.5, ready_s=0.3)
    trace = Trace(spans=[span], wall_s=1.0, now_s={Rank(0): [0.4]}, notes={"speed": speed_of([slowness] * 3).record()})
    even, found = steady(trace)
    assert found == pytest.approx(slowness)
    assert even.spans[0].end_s - even.spans[0].start_s == pytest.approx(0.3 / slowness)
    found_s = [even.spans[0].ready_s, even.now_s[Rank(0)][0], even.wall_s]
    assert found_s == pytest.approx([0.3 / slowness, 0.4 / slowness, 1.0 / slowness])


def test_a_record_without_a_reference_is_left_as_it_is() -> None:
    trace = Trace(wall_s=2.0)
    assert steady(trace) == (trace, 1.0)


def test_stolen_time_makes_a_machine_slower_and_an_interrupted_piece_does_not() -> None:
    """Half a second of a busy second was stolen; one of many samples was slow."""
    samples = [SpeedSample(0.01 * turn, NOMINAL_S, NOMINAL_S, 0.0, 0.0, 0.0) for turn in range(20)]
    samples[7] = samples[7]._replace(arithmetic_s=100 * NOMINAL_S)
    samples.append(SpeedSample(0.4, NOMINAL_S, NOMINAL_S, 0.1, 1.0, 0.5))
    speed = MachineSpeed.of({0: samples})
    assert speed is not None
    assert speed.slowness == pytest.approx(1.5)
    assert speed.waiting[0] == pytest.approx(0.25)
    assert MachineSpeed.read(speed.record()) == speed


def test_a_rank_times_its_reference_at_intervals_and_at_its_end() -> None:
    reference = SpeedReference()
    times_s = EVERY_S * np.array([0.0, 0.5, 1.01, 1.5, 2.1])
    made = [sample for time_s in times_s if (sample := reference.sample(float(time_s))) is not None]
    assert [sample.at_s for sample in made] == pytest.approx(times_s[::2].tolist())
    last = reference.sample(0.2, last=True)
    assert last is not None and last.busy_s >= made[0].busy_s > 0
    assert all(0 < sample.arithmetic_s < 1 and 0 < sample.memory_s < 1 for sample in made)


@given(st.floats(0.1, 10.0))
def test_costs_at_another_slowness_are_longer_by_the_quotient_and_lines_keep_their_times(factor: float) -> None:
    gradient = GradientTimes(batch=8, busy=((1, 0.1), (2, 0.2)), pauses=((0.01, 0.03),))
    host = Profile(update_s=0.5, messages=((8, 0.25),), inside={("AllReduce", 2): ((8, 0.125),)}, gradients=(gradient,))
    added = EmulationCosts(message_s=0.5, all_reduce_s=0.75, few_bytes=8, packet_bytes=1500)
    costs = MeasuredCosts(host, added, slowness=2.0).at(2.0 * factor)
    assert costs.host.update_s == pytest.approx(0.5 * factor)
    assert costs.host.message_s(8) == pytest.approx(0.25 * factor)
    assert costs.host.collective_s("AllReduce", 2, 8, inside=True) == pytest.approx(0.125 * factor)
    assert costs.host.gradients[0].busy[1][1] == pytest.approx(0.2 * factor)
    assert costs.host.gradients[0].paused_s(0.01) == pytest.approx(0.03 * factor)
    assert costs.emulation is not None
    assert costs.emulation.message_s == pytest.approx(0.5 * factor)
    assert costs.emulation.all_reduce_s == 0.75


def test_costs_of_an_unknown_slowness_stay() -> None:
    costs = MeasuredCosts(Profile(update_s=0.5, gradients=(GradientTimes(batch=8, busy=((1, 0.1),)),)))
    assert costs.at(3.0) == costs
