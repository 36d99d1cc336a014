"""Watched runs with constant speeds: the time left, the target and slow ranks follow from the speeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from paceline.algorithms.core.job import Budget
from paceline.backend.status.progress_counters import RankTotals, Scored, Totals
from paceline.reports.comparison.ranking import Aim
from paceline.reports.watching.predict_runs import PredictedProgress
from paceline.reports.watching.run_watch import (
    BLOCKS,
    MARGIN,
    SIGMAS,
    Expected,
    RunProgress,
    RunWatch,
    SlowPeriod,
    SlowRanks,
)

WORKERS, STEPS, STEP_S = 2, 200, 0.125
AIM_S = 15.0


def predicted(**changes: object) -> PredictedProgress:
    """Two workers that take 200 steps of 0.125 s, and reach the target after 15 s."""
    ends_s = np.repeat(np.arange(1, STEPS + 1) * STEP_S, WORKERS)
    times_s = {rank: np.full(STEPS, STEP_S) for rank in range(WORKERS)}
    values = {
        "ends_s": ends_s,
        "gradient_s": times_s,
        "wall_s": STEPS * STEP_S,
        "stop_reason": "samples",
        "aim": Aim("accuracy", 0.9),
        "aim_s": AIM_S,
        **changes,
    }
    return PredictedProgress(**values)  # type: ignore[arg-type]


def reading(step: int, elapsed_s: float, gradient_s: float, before: int = 0, scored: Scored | None = None) -> Totals:
    """The counters after a step of both workers, of a run that was resumed after `before` steps."""
    done = step - before
    by_rank = (RankTotals(step, done, gradient_s), RankTotals(step, done, gradient_s))
    return Totals(elapsed_s, step, WORKERS * done, 0.0, 0.0, 0.0, 64.0 * step, by_rank, scored)


def watched(step_s: float, steps: int, watch: RunWatch | None = None, *, before: int = 0) -> RunProgress:
    """Watches a run with constant steps; returns its progress after `steps` of them."""
    watch = watch or RunWatch(predicted(), Budget(samples=1), WORKERS)
    *_, last = (
        watch.add(reading(step, step * step_s, (step - before) * step_s, before)) for step in range(1, steps + 1)
    )
    return last


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5])
def test_the_rest_takes_as_long_as_at_the_measured_speed(factor: float) -> None:
    now = watched(factor * STEP_S, 80)
    assert now.step == 80 and now.steps == STEPS
    assert now.predicted_step == min(STEPS, 80 * factor)
    assert now.step_s == pytest.approx(factor * STEP_S) and now.predicted_step_s == pytest.approx(STEP_S)
    assert now.left_s == pytest.approx(120 * factor * STEP_S)
    assert now.aim_left_s == pytest.approx(factor * (AIM_S - 80 * STEP_S))


def test_the_estimate_follows_a_change_of_speed() -> None:
    """The first 50 steps as predicted, then steps twice as long: from 12.5 s on, only these are in the last half."""
    watch = RunWatch(predicted(), Budget(samples=1), WORKERS)
    watched(STEP_S, 50, watch)
    for step in range(51, 81):
        elapsed_s = (50 + 2 * (step - 50)) * STEP_S
        now = watch.add(reading(step, elapsed_s, elapsed_s))
    assert now.left_s == pytest.approx(120 * 2 * STEP_S, rel=0.05)
    assert now.left_s is not None and now.left_s > 120 * STEP_S * (110 / 80), (
        "more than at the mean speed since the start"
    )


def test_a_resumed_run_goes_on_in_the_prediction() -> None:
    watch = RunWatch(predicted(), Budget(samples=1), WORKERS)
    for step in range(100, 141):
        now = watch.add(reading(step, step * 0.25, (step - 100) * 0.25, before=100))
    assert (now.step, now.step_s) == (140, 0.25)
    assert now.left_s == pytest.approx(60 * 0.25)
    assert [(one.rank, one.from_step, one.excess) for one in now.slow] == [(0, 100, 1.0), (1, 100, 1.0)]


def test_a_limit_in_seconds_is_not_scaled() -> None:
    late = RunWatch(predicted(stop_reason="seconds"), Budget(seconds=25.0), WORKERS)
    assert watched(2 * STEP_S, 40, late).left_s == 25.0 - 40 * 2 * STEP_S
    both = RunWatch(predicted(), Budget(samples=1, seconds=26.0), WORKERS)
    assert watched(2 * STEP_S, 100, both).left_s == 1.0


@pytest.mark.parametrize(
    ("accuracy", "reached", "left_s"), [(0.89, False, AIM_S - 80 * STEP_S), (0.91, True, 0.0)], ids=["below", "above"]
)
def test_an_evaluation_during_the_run_decides_on_the_target(accuracy: float, reached: bool, left_s: float) -> None:
    watch = RunWatch(predicted(), Budget(accuracy=0.9), WORKERS)
    watched(STEP_S, 79, watch)
    now = watch.add(reading(80, 80 * STEP_S, 80 * STEP_S, scored=Scored(0.3, accuracy)))
    assert now.aim_reached is reached and now.aim_left_s == left_s


def test_a_target_that_the_prediction_does_not_reach_has_no_time() -> None:
    watch = RunWatch(predicted(aim_s=None), Budget(samples=1), WORKERS)
    assert watched(STEP_S, 40, watch).aim_left_s is None


# --- slow ranks ------------------------------------------------------------------------------------------------------


def periods(step_s: Callable[[int], float], steps: int = STEPS, times_s: np.ndarray | None = None) -> list[SlowPeriod]:
    """The slow periods of a rank whose step k takes `step_s(k)`, next to one that is as predicted."""
    watch = SlowRanks({0: np.full(STEPS, STEP_S), 1: np.full(STEPS, STEP_S) if times_s is None else times_s})
    for now in zip(counters(lambda _: STEP_S, steps), counters(step_s, steps), strict=True):
        watch.add(now)
    return watch.periods


def counters(step_s: Callable[[int], float], steps: int) -> Iterator[RankTotals]:
    total_s = 0.0
    for step in range(steps):
        total_s += step_s(step)
        yield RankTotals(step + 1, step + 1, total_s)


def test_a_straggler_is_named_with_its_slowness_and_its_first_step() -> None:
    (found,) = periods(lambda step: STEP_S * (1.5 if step >= 40 else 1.0))
    assert (found.rank, found.from_step, found.to_step) == (1, 40, None)
    assert found.excess == pytest.approx(0.5)


def test_a_straggler_that_recovers_has_an_end() -> None:
    (found,) = periods(lambda step: STEP_S * (1.5 if 40 <= step < 100 else 1.0))
    assert (found.rank, found.from_step, found.to_step) == (1, 40, 100)
    assert found.excess == pytest.approx(0.5)


def test_one_long_pause_and_a_little_slowness_are_not_reported() -> None:
    assert periods(lambda step: STEP_S * (100.0 if step == 50 else 1.0)) == []
    assert periods(lambda _: STEP_S * (1 + 0.9 * MARGIN)) == []
    assert periods(lambda _: STEP_S / 2) == []


def test_the_bound_covers_the_predicted_spread() -> None:
    """Draws of one law, predicted and measured: not slower. Draws that are half as long again: slower."""
    draws = np.random.default_rng(7)
    times_s = STEP_S * draws.lognormal(sigma=0.3, size=STEPS)
    again_s = STEP_S * draws.lognormal(sigma=0.3, size=STEPS)
    assert periods(lambda step: again_s[step], times_s=times_s) == []
    (found,) = periods(lambda step: 1.5 * again_s[step], times_s=times_s)
    assert found.excess == pytest.approx(0.5, abs=0.1)
    bound = Expected.of(times_s)
    assert bound.block == BLOCKS[1]
    assert bound.bound_s >= times_s.mean() + SIGMAS * times_s.std() / np.sqrt(bound.block) * (1 - 1e-12)


def test_a_rank_that_is_predicted_to_be_slow_is_not_slower_than_predicted() -> None:
    assert periods(lambda _: 2 * STEP_S, times_s=np.full(STEPS, 2 * STEP_S)) == []


def test_ranks_without_predicted_gradients_are_not_watched() -> None:
    watch = SlowRanks({0: np.full(10, STEP_S), 1: np.array([])})
    watch.add([RankTotals(1, 1, 1.0), RankTotals(0, 0, 0.0)])
    assert watch.ranks == 1 and watch.slow == []
