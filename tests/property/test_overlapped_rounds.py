"""CO2: the outer step, exactly, and the settings at which it is another method."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.delayed import Agd
from paceline.algorithms.methods.overlapped_rounds import Co2
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork
from tests.exact import UnlikeBowl, applied
from tests.support import FixedTiming, job_of

ETA = Fraction(1, 10)


def co2(**given: Any) -> Co2:
    return Co2(**{"learning_rate": ETA, "outer_learning_rate": 1, "outer_momentum": 0, "gap_penalty": 1, **given})


@given(
    data=st.data(),
    workers=st.integers(1, 3),
    period=st.integers(1, 3),
    rounds=st.integers(0, 4),
    momentum=st.sampled_from([0, Fraction(1, 2)]),
    penalty=st.sampled_from([1, 3]),
    clip=st.sampled_from([None, Fraction(1, 5)]),
)
def test_an_outer_step_applies_the_change_of_the_round_before(
    data: st.DataObject, workers: int, period: int, rounds: int, momentum: Any, penalty: int, clip: Any
) -> None:
    """Exactly: V ← clip(M V + D_{t−1} / G) and y ← y − R V, with D the mean change of a round; the first one is 0."""
    learner, rate = UnlikeBowl(), Fraction(3, 4)
    method = co2(period=period, outer_momentum=momentum, gap_penalty=penalty, clip=clip, outer_learning_rate=rate)
    run = AnyOrder(job_of(method, workers, steps=period * rounds, learner=learner))
    run.run(drawn(data))
    y, velocity, late, expected = learner.initial(), 0 * learner.initial(), None, []
    for number in range(rounds):
        change = 0 * y
        for worker in range(workers):
            x = y
            for index in range(number * period, (number + 1) * period):
                batch = Samples(worker=worker, workers=workers, index=index, count=8)
                x = x - ETA * learner.gradient(x, learner.load(batch))[0]
            change = change + (y - x) / workers
        if late is not None:
            velocity = momentum * velocity + late / penalty
            if clip is not None:
                velocity = np.array([max(-clip, min(clip, one)) for one in velocity], dtype=object)
            y = y - rate * velocity
        late = change
        expected.append(y)
    for rank in range(workers):
        history = [op.weights.vector for op in applied(run, Rank(rank)) if op.advance]
        assert len(history) == rounds
        assert all((mine == one).all() for mine, one in zip(history, expected, strict=True))


@given(data=st.data(), workers=st.integers(1, 3), steps=st.integers(0, 6))
def test_rounds_of_one_step_are_delayed_gradients(data: st.DataObject, workers: int, steps: int) -> None:
    """Exactly: with R = G = 1 and no outer momentum, AGD with a delay of 1. In floats x − (x − η g) rounds η g."""
    learner = UnlikeBowl()
    found = AnyOrder(job_of(co2(period=1), workers, steps=steps, learner=learner)).run(drawn(data))
    agd: Any = Agd
    expected = AnyOrder(job_of(agd(learning_rate=ETA, delay=1), workers, steps=steps, learner=learner)).run()
    assert (found.weights == expected.weights).all()


@given(data=st.data(), period=st.integers(1, 3), rounds=st.integers(1, 3))
def test_limits_that_nothing_reaches_change_nothing(data: st.DataObject, period: int, rounds: int) -> None:
    """Bit for bit."""
    free, limited = (
        AnyOrder(job_of(Co2(period=period, clip=clip), 3, steps=period * rounds)).run(drawn(data))
        for clip in (None, 1e9)
    )
    np.testing.assert_array_equal(free.weights, limited.weights)


def test_communication_hides_behind_a_round() -> None:
    """An all-reduce of 1.9 s is free behind a round of 2 s, and one of 2.5 s costs the difference."""

    def wall(seconds: float) -> float:
        network = MeasuredNetwork(lambda _kind, _members, _size: seconds, lambda _: 0.0)
        return simulate_job(job_of(Co2(period=2), 2, steps=8), FixedTiming(), network, Schedule(every=1)).wall_s

    assert wall(1.9) == pytest.approx(8 + 1.9)  # the last one is completed
    assert wall(2.5) == pytest.approx(8 + 3 * 0.5 + 2.5)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Co2(outer_momentum=1.0), "outer_momentum: found 1.0, expected a number from 0 to below 1"),
        (Co2(gap_penalty=0.0), "gap_penalty: found 0.0, expected a number above 0"),
        (Co2(clip=0.0), "clip: found 0.0, expected a number above 0"),
        (Co2(outer_learning_rate=0.0), "outer_learning_rate: found 0.0, expected a number above 0"),
    ],
)
def test_wrong_values_are_reported(method: Co2, said: str) -> None:
    assert method.problems([[Rank(0)]]) == [said]
