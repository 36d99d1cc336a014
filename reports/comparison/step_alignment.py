"""Aligns the steps of predicted and measured runs, and divides the time of each step among activities.

* A step of a worker lasts from the start of its gradient to the start of its next one, as in a summary's `step_s`.
* Steps of the same seed, rank and number are aligned. Steps that only one side has are left out: workers of an
  asynchronous method may take different numbers of steps. So is the last step of each worker, which ends with the run.
* Every seed has the same weight. Within a seed, every aligned step of every worker has.
* Of each worker's aligned steps, the first tenth and the last tenth are phases of their own, at least one step each.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from paceline.records import Run
from paceline.records.summary import steps_of
from paceline.reports.comparison.rank_activities import activities_of, from_spans, is_divided
from paceline.reports.comparison.rank_timelines import Source, Timelines

Phase = Literal["first", "steady", "last"]
PHASES: tuple[Phase, ...] = ("first", "steady", "last")
END_SHARE = 0.1
"""share of a worker's steps in the first and in the last phase; INFERENCE: long enough for a warm-up, and short"""
LONG = 3.0
"""a step is long if it takes more than this multiple of its worker's median; INFERENCE: jitter rarely reaches it"""

Key = tuple[int, int]
"""rank and number of a step"""


class StepTime(NamedTuple):
    """The time of one step on one side."""

    seconds: float
    own: Mapping[str, float]
    """by the worker's own activity"""
    whole: Mapping[str, float]
    """by the worker's own activity, also while it overlaps with others"""
    direct: Mapping[str, float]
    """by the worker's own activity, without the waits that can be followed to other ranks"""
    waited: Mapping[Source, float]
    """these waits, by what the other ranks did meanwhile; `direct` and `waited` add up to the step"""
    excess_s: float
    """seconds above the worker's median if the step is long, else 0"""


@dataclass(frozen=True, slots=True)
class AlignedStep:
    """One step of one worker on both sides."""

    seed: int
    rank: int
    step: int
    phase: Phase
    weight: float
    """its share in the mean over all aligned steps and seeds; the weights add up to 1"""
    predicted: StepTime
    measured: StepTime


@dataclass(frozen=True, slots=True)
class Alignment:
    """The aligned steps of the runs of one algorithm."""

    steps: Sequence[AlignedStep]
    predicted_steps: int
    """all steps of the predicted runs, aligned or not"""
    measured_steps: int
    predicted_s: float
    """mean time of all steps of the predicted runs, aligned or not; of several seeds, the mean of their means"""
    measured_s: float
    traced: bool
    """whether waits can be followed to other ranks: all runs have a trace, or were stored with their transfers"""

    def mean(self, of: Callable[[AlignedStep], float]) -> float:
        """Returns the weighted mean of a figure over all aligned steps."""
        return math.fsum(step.weight * of(step) for step in self.steps)


def align(predicted: Sequence[Run], measured: Sequence[Run]) -> Alignment | None:
    """Aligns the runs of one algorithm; None if they have no step in common.

    Args:
        predicted: simulated runs, one per seed.
        measured: measured runs; those of other seeds are left out.
    """
    real = {run.seed: run for run in measured}
    pairs = [(run, real[run.seed]) for run in predicted if run.seed in real]
    sides = [(_intervals(one), _intervals(other)) for one, other in pairs]
    seeds = [side for side in sides if _common(*side)]
    if not seeds:
        return None
    traced = all(run.trace is not None or is_divided(run.tables) for pair in pairs for run in pair)
    steps = [
        step
        for (one, other), (ours, theirs) in zip(pairs, sides, strict=True)
        for step in _aligned(one, other, ours, theirs, seeds=len(seeds), traced=traced)
    ]
    return Alignment(
        steps=steps,
        predicted_steps=sum(len(ours) for ours, _ in seeds),
        measured_steps=sum(len(theirs) for _, theirs in seeds),
        predicted_s=statistics.fmean(_mean(ours) for ours, _ in seeds),
        measured_s=statistics.fmean(_mean(theirs) for _, theirs in seeds),
        traced=traced,
    )


def _mean(intervals: Mapping[Key, tuple[float, float]]) -> float:
    return statistics.fmean(end_s - start_s for start_s, end_s in intervals.values())


def _intervals(run: Run) -> dict[Key, tuple[float, float]]:
    """Returns start and end of every step of every worker, in order."""
    spans = run.tables.spans
    if not len(spans):
        return {}
    steps = steps_of(spans, int(spans["rank"].max()) + 1, run.summary["wall_s"])
    rows = zip(*(steps[name].tolist() for name in ("rank", "step", "start_s", "end_s")), strict=True)
    return {(rank, step): (start_s, end_s) for rank, step, start_s, end_s in rows}


def _common(ours: Mapping[Key, tuple[float, float]], theirs: Mapping[Key, tuple[float, float]]) -> list[Key]:
    """Returns the steps of both sides that are no worker's last one on either."""
    last = {key for side in (ours, theirs) for key in {rank: (rank, step) for rank, step in side}.values()}
    return [key for key in ours if key in theirs and key not in last]


def _aligned(
    predicted: Run,
    measured: Run,
    ours: Mapping[Key, tuple[float, float]],
    theirs: Mapping[Key, tuple[float, float]],
    *,
    seeds: int,
    traced: bool,
) -> Iterator[AlignedStep]:
    """Yields the aligned steps of one seed."""
    common = _common(ours, theirs)
    one = _times(predicted, {key: ours[key] for key in common}, traced=traced)
    other = _times(measured, {key: theirs[key] for key in common}, traced=traced)
    for key, phase in _phases(common).items():
        yield AlignedStep(predicted.seed, *key, phase, 1 / (seeds * len(common)), one[key], other[key])


def _phases(keys: Sequence[Key]) -> dict[Key, Phase]:
    """Returns the phase of each step.

    >>> list(_phases([(0, step) for step in range(4)]).values())
    ['first', 'steady', 'steady', 'last']
    """
    by_rank: dict[int, list[Key]] = defaultdict(list)
    for key in keys:
        by_rank[key[0]].append(key)
    found: dict[Key, Phase] = {}
    for mine in by_rank.values():
        size = max(1, round(END_SHARE * len(mine)))
        for at, key in enumerate(mine):
            found[key] = "first" if at < size else "last" if at >= len(mine) - size else "steady"
    return found


def _times(run: Run, intervals: Mapping[Key, tuple[float, float]], *, traced: bool) -> dict[Key, StepTime]:
    """Returns the divided time of each of these steps.

    Args:
        run: the run.
        intervals: start and end of the steps.
        traced: whether the waits of all runs can be followed; if not, those of none are, so that all are divided alike.
    """
    timelines = Timelines(activities_of(run.trace, run.tables) if traced else from_spans(run.tables))
    lengths: dict[int, list[float]] = defaultdict(list)
    for (rank, _), (start_s, end_s) in intervals.items():
        lengths[rank].append(end_s - start_s)
    median_s = {rank: statistics.median(mine) for rank, mine in lengths.items()}
    return {
        (rank, step): StepTime(
            end_s - start_s,
            timelines.own(rank, start_s, end_s),
            timelines.whole(rank, start_s, end_s),
            *timelines.charged(rank, start_s, end_s),
            excess_of(end_s - start_s, median_s[rank]),
        )
        for (rank, step), (start_s, end_s) in intervals.items()
    }


def excess_of(seconds: float, median_s: float) -> float:
    """Returns the seconds above the median for a long step, else 0.

    Args:
        seconds: the time of the step.
        median_s: the median of the worker's steps.

    >>> excess_of(2.0, 1.0), excess_of(5.0, 1.0)
    (0.0, 4.0)
    """
    return seconds - median_s if seconds > LONG * median_s else 0.0
