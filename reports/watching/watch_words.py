"""Progress of watched runs in words: one line during a run, and one sentence at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.records import Run
from paceline.records.figures import significant
from paceline.reports.comparison.time_to_target import Aim
from paceline.reports.watching.predicted_progress import PredictedProgress
from paceline.reports.watching.run_watch import Progress
from paceline.reports.watching.slow_ranks import SlowPeriod

NAMED = 3
"""how many slow ranks are named one by one; the rest is counted"""


def seconds(value: float) -> str:
    """Formats a measured or predicted time with three digits.

    >>> [seconds(value) for value in (0.00123, 0.0412, 2.345, 98.7, 7100.0)]
    ['1.23 ms', '41.2 ms', '2.35 s', '98.7 s', '1 h 58 min']
    """
    if value < 0.9995:
        return f"{significant(value * 1e3)} ms"
    if value < 600:
        return f"{significant(value)} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def about(value: float) -> str:
    """Formats an estimated time in whole seconds, minutes or hours.

    >>> [about(value) for value in (0.3, 42.4, 200.0, 7100.0)]
    ['1 s', '42 s', '3 min', '1 h 58 min']
    """
    if value < 95:
        return f"{max(1, round(value))} s"
    return seconds(value) if value >= 600 else f"{value / 60:.0f} min"


def step_words(now: Progress) -> str:
    """Returns the steps reached, those predicted for now, and those of the whole run.

    >>> step_words(Progress(elapsed_s=4.0, step=40.0, predicted_step=48.25, steps=100.0))
    'step 40 of 100 (predicted 48)'
    """
    return f"step {now.step:.0f} of {now.steps:.0f} (predicted {now.predicted_step:.0f})"


def step_time_words(now: Progress) -> str:
    """Returns measured and predicted step time; empty before the first step.

    >>> step_time_words(Progress(elapsed_s=4, step=40, predicted_step=48, steps=100, step_s=0.12, predicted_step_s=0.1))
    '120 ms per step (predicted 100 ms, +20 %)'
    """
    if now.step_s is None or not now.predicted_step_s:
        return ""
    difference = change(now.step_s, now.predicted_step_s)
    return f"{seconds(now.step_s)} per step (predicted {seconds(now.predicted_step_s)}, {difference})"


def step_cell(now: Progress) -> str:
    """Returns `step_words` without the words, for a table."""
    return f"{now.step:.0f} of {now.steps:.0f} ({now.predicted_step:.0f})"


def step_time_cell(now: Progress) -> str:
    """Returns `step_time_words` without the words, for a table."""
    if now.step_s is None or not now.predicted_step_s:
        return ""
    difference = change(now.step_s, now.predicted_step_s)
    return f"{seconds(now.step_s)} ({seconds(now.predicted_step_s)}, {difference})"


def learning_words(now: Progress) -> str:
    """Returns the loss, and the accuracy if the run is evaluated while it runs; empty without both."""
    if now.scored is not None:
        loss, accuracy = now.scored
        return f"loss {significant(loss)}" + (f", accuracy {100 * accuracy:.1f} %" if math.isfinite(accuracy) else "")
    return "" if now.loss is None else f"training loss {significant(now.loss)}"


def left_words(now: Progress) -> str:
    """Returns the time until the run ends."""
    if now.left_s is None or not math.isfinite(now.left_s):
        return "time left unknown"
    return "should have ended" if now.left_s == 0 else f"about {about(now.left_s)} left"


def aim_words(now: Progress, aim: Aim | None, aim_s: float | None) -> str:
    """Returns the time until the target; empty without one.

    Args:
        now: the progress.
        aim: the target.
        aim_s: when the predicted run reaches it; None if it does not.

    >>> now = Progress(elapsed_s=4.0, step=40.0, predicted_step=48.0, steps=100.0, aim_left_s=2.2)
    >>> aim_words(now, Aim("accuracy", 0.93), 6.0)
    'about 2 s to 93 % accuracy'
    """
    if aim is None:
        return ""
    if now.aim_reached:
        return f"{aim.words} reached"
    if aim_s is None:
        return f"{aim.words} not reached in the prediction"
    if now.aim_left_s is None:
        return f"time to {aim.words} unknown"
    if now.aim_left_s == 0:
        return f"{aim.words} " + ("reached by the prediction" if now.scored is None else "is later than predicted")
    return f"about {about(now.aim_left_s)} to {aim.words}"


def slow_words(slow: Sequence[SlowPeriod], ranks: int) -> str:
    """Returns the ranks that are slower than predicted; empty if none is.

    Args:
        slow: the slow periods that last, the slowest first.
        ranks: the number of watched ranks.

    >>> slow_words([SlowPeriod(3, 0.18, 40)], ranks=4)
    'slower than predicted: rank 3 by 18 % from step 40 on'
    >>> slow_words([SlowPeriod(1, 0.11, 0), SlowPeriod(0, 0.08, 0)], ranks=2)
    'slower than predicted: all 2 ranks, by 8 to 11 %'
    """
    if not slow:
        return ""
    if (alike := _alike(slow, ranks)) is not None:
        return f"slower than predicted: all {ranks} ranks, by {alike}"
    named = [f"rank {one.rank} by {100 * one.excess:.0f} % from step {one.from_step} on" for one in slow[:NAMED]]
    more = [f"{len(slow) - NAMED} more ranks"] if len(slow) > NAMED else []
    return "slower than predicted: " + ", ".join([*named, *more])


def _alike(slow: Sequence[SlowPeriod], ranks: int) -> str | None:
    """Returns the range of slowness if all ranks are about equally slow; else None, as the slowest are then named.

    Args:
        slow: the slow periods that last, the slowest first.
        ranks: the number of watched ranks.
    """
    if not len(slow) == ranks > 1 or slow[0].excess > 2 * slow[-1].excess:
        return None
    low, high = f"{100 * slow[-1].excess:.0f}", f"{100 * slow[0].excess:.0f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def line(name: str, now: Progress, predicted: PredictedProgress, ranks: int) -> str:
    """Returns one line about a run.

    Args:
        name: the algorithm, with the seed if there are several.
        now: the progress.
        predicted: the prediction.
        ranks: the number of watched ranks.
    """
    first = [
        f"{seconds(now.elapsed_s)}",
        step_words(now),
        step_time_words(now),
        learning_words(now),
        left_words(now),
        aim_words(now, predicted.aim, predicted.aim_s),
    ]
    slow = slow_words(now.slow, ranks)
    return f"{name}: " + "; ".join(filter(None, [", ".join(filter(None, first)), slow]))


def change(measured: float, predicted: float) -> str:
    """Returns the relative difference, with its sign.

    >>> change(12.3, 11.8), change(1.0, 1.001)
    ('+4 %', '-0 %')
    """
    return f"{100 * (measured / predicted - 1):+.0f} %" if predicted else "no prediction"


def sentence(name: str, run: Run, predicted: PredictedProgress, periods: Sequence[SlowPeriod], ranks: int) -> str:
    """Returns one sentence about a run that has ended.

    Args:
        name: the algorithm, with the seed if there are several.
        run: the measured run.
        predicted: its prediction.
        periods: in which ranks were slower than predicted, the slowest first.
        ranks: the number of watched ranks.
    """
    summary = run.summary
    said = [_length(name, summary["wall_s"], summary["steps"], summary["stop_reason"], predicted)]
    aim = predicted.aim
    if aim is not None:
        reached_s = summary["time_to_accuracy_s" if aim.kind == "accuracy" else "time_to_loss_s"]
        said.append(_target(aim, reached_s, predicted.aim_s))
    said += _slow_periods(periods, ranks) or ["no rank was slower than predicted"]
    return "; ".join(said)


def _length(name: str, wall_s: float, gradients: int, reason: str | None, predicted: PredictedProgress) -> str:
    """Returns how long the run took, or how far it came if its length was given in seconds."""
    if reason == predicted.stop_reason == "seconds":
        done, expected = gradients, predicted.gradients
        return f"{name} computed {done} gradients in {seconds(wall_s)}, predicted {expected} ({change(done, expected)})"
    took = f"{name} took {seconds(wall_s)}, predicted {seconds(predicted.wall_s)} ({change(wall_s, predicted.wall_s)})"
    if reason == predicted.stop_reason:
        return took
    return f"{took}; it ended by {reason}, predicted {predicted.stop_reason}"


def _target(aim: Aim, reached_s: float | None, predicted_s: float | None) -> str:
    if reached_s is None:
        return f"{aim.words} was not reached, " + (
            "as predicted" if predicted_s is None else f"predicted after {seconds(predicted_s)}"
        )
    if predicted_s is None:
        return f"{aim.words} was reached after {seconds(reached_s)}, predicted never"
    difference = change(reached_s, predicted_s)
    return f"{aim.words} after {seconds(reached_s)}, predicted {seconds(predicted_s)} ({difference})"


def _slow_periods(periods: Sequence[SlowPeriod], ranks: int) -> list[str]:
    """Returns a part of the sentence for each of the slowest ranks, or one for all."""
    if (alike := _alike([one for one in periods if one.to_step is None], ranks)) is not None:
        return [f"all {ranks} ranks were {alike} slower than predicted"]
    said = []
    for one in periods[:NAMED]:
        when = "on" if one.to_step is None else f"to step {one.to_step}"
        said.append(
            f"rank {one.rank} was {100 * one.excess:.0f} % slower than predicted from step {one.from_step} {when}"
        )
    return [*said, f"{len(periods) - NAMED} more slow periods"] if len(periods) > NAMED else said
