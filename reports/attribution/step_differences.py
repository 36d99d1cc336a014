"""Aligns the steps of predicted and measured runs, and attributes their difference to activities of ranks.

* A step of a worker lasts from the start of its gradient to the start of its next one, as in a summary's `step_s`.
* Steps of the same seed, rank and number are aligned. Steps that only one side has are left out: workers of an
  asynchronous method may take different numbers of steps. So is the last step of each worker, which ends with the run.
* Every seed has the same weight. Within a seed, every aligned step of every worker has.
* Of each worker's aligned steps, the first tenth and the last tenth are phases of their own, at least one step each.
* A rank's own activity explains at most the seconds by which it took longer or shorter itself, hidden or not. If it
  took as long as predicted and only fewer of its seconds were hidden behind a gradient, the difference is "overlap".
* In the steps of the other workers it explains at most as much for each of them, because a second more of one rank
  delays every other worker by at most a second. A wait is explained by the activity that it is charged to. What this
  activity does not explain, and "overlap", is explained by the activities that differ most, because a rank is late
  whatever it does while the others wait.
* The rest remains "wait" or "overlap". If all ranks take as long as predicted, the order or the spread of their steps
  differs, not their mean.
* Time that is charged to a server is not limited, because a server has no steps that could be compared.
* Seconds are moved on the side that has more of them, so that those of both sides still add up to their step times.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from paceline.records import Run
from paceline.records.summary import steps_of
from paceline.reports.attribution.timeline import WAIT, Source, Timelines, activities_of, from_spans, is_divided

Phase = Literal["first", "steady", "last"]
PHASES: tuple[Phase, ...] = ("first", "steady", "last")
END_SHARE = 0.1
"""share of a worker's steps in the first and in the last phase; INFERENCE: long enough for a warm-up, and short"""
LONG = 3.0
"""a step is long if it takes more than this multiple of its worker's median; INFERENCE: jitter rarely reaches it"""
OVERLAP = "overlap"
CONSEQUENCES = (WAIT, OVERLAP)
"""differences that follow from the differences of activities"""
ROUNDING = 1e-12
"""relative difference of sums that are the same except for rounding"""

Key = tuple[int, int]
"""rank and number of a step"""
Intervals = Mapping[Key, tuple[float, float]]
"""start and end of steps"""
Both = tuple[float, float]
"""seconds, predicted and measured"""


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


def weighted(steps: Iterable[AlignedStep], seconds: Callable[[StepTime], float]) -> Both:
    """Returns the weighted sum of a figure over steps; over all aligned steps, this is its mean.

    Args:
        steps: the steps.
        seconds: the figure of one side of a step.
    """
    steps = list(steps)
    predicted_s = math.fsum(step.weight * seconds(step.predicted) for step in steps)
    return predicted_s, math.fsum(step.weight * seconds(step.measured) for step in steps)


# --- alignment -------------------------------------------------------------------------------------------------------


def align(predicted: Sequence[Run], measured: Sequence[Run]) -> Alignment | None:
    """Aligns the runs of one algorithm; None if they have no step in common.

    Args:
        predicted: simulated runs, one per seed.
        measured: measured runs; those of other seeds are left out.
    """
    by_seed = {run.seed: run for run in measured}
    pairs = [(run, by_seed[run.seed]) for run in predicted if run.seed in by_seed]
    compared = [(pair, sides) for pair in pairs if _common(*(sides := (_intervals(pair[0]), _intervals(pair[1]))))]
    if not compared:
        return None
    traced = all(run.trace is not None or is_divided(run.tables) for pair in pairs for run in pair)
    steps = [step for pair, sides in compared for step in _aligned(*pair, *sides, len(compared), traced=traced)]
    predicted_intervals, measured_intervals = zip(*(sides for _, sides in compared), strict=True)
    return Alignment(
        steps=steps,
        predicted_steps=sum(map(len, predicted_intervals)),
        measured_steps=sum(map(len, measured_intervals)),
        predicted_s=statistics.fmean(map(_mean_s, predicted_intervals)),
        measured_s=statistics.fmean(map(_mean_s, measured_intervals)),
        traced=traced,
    )


def _mean_s(intervals: Intervals) -> float:
    return statistics.fmean(end_s - start_s for start_s, end_s in intervals.values())


def _intervals(run: Run) -> dict[Key, tuple[float, float]]:
    """Returns start and end of every step of every worker, in order."""
    spans = run.tables.spans
    if not len(spans):
        return {}
    steps = steps_of(spans, int(spans["rank"].max()) + 1, run.summary["wall_s"])
    rows = zip(*(steps[name].tolist() for name in ("rank", "step", "start_s", "end_s")), strict=True)
    return {(rank, step): (start_s, end_s) for rank, step, start_s, end_s in rows}


def _common(predicted: Intervals, measured: Intervals) -> list[Key]:
    """Returns the steps of both sides that are no worker's last one on either."""
    last = {key for side in (predicted, measured) for key in {rank: (rank, step) for rank, step in side}.values()}
    return [key for key in predicted if key in measured and key not in last]


def _aligned(
    predicted: Run, measured: Run, intervals: Intervals, measured_intervals: Intervals, seeds: int, *, traced: bool
) -> Iterator[AlignedStep]:
    """Yields the aligned steps of one seed."""
    common = _common(intervals, measured_intervals)
    predicted_times = _times(predicted, {key: intervals[key] for key in common}, traced=traced)
    measured_times = _times(measured, {key: measured_intervals[key] for key in common}, traced=traced)
    weight = 1 / (seeds * len(common))
    for key, phase in _phases(common).items():
        yield AlignedStep(predicted.seed, *key, phase, weight, predicted_times[key], measured_times[key])


def _phases(keys: Sequence[Key]) -> dict[Key, Phase]:
    """Returns the phase of each step.

    >>> list(_phases([(0, step) for step in range(4)]).values())
    ['first', 'steady', 'steady', 'last']
    """
    by_rank: dict[int, list[Key]] = defaultdict(list)
    for key in keys:
        by_rank[key[0]].append(key)
    found: dict[Key, Phase] = {}
    for steps in by_rank.values():
        size = max(1, round(END_SHARE * len(steps)))
        for at, key in enumerate(steps):
            found[key] = "first" if at < size else "last" if at >= len(steps) - size else "steady"
    return found


def _times(run: Run, intervals: Intervals, *, traced: bool) -> dict[Key, StepTime]:
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
    median_s = {rank: statistics.median(seconds) for rank, seconds in lengths.items()}
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


# --- the responsible activities --------------------------------------------------------------------------------------


@dataclass
class Sums:
    """Weighted sums of seconds by source on both sides."""

    predicted: defaultdict[Source, float] = field(default_factory=lambda: defaultdict(float))
    measured: defaultdict[Source, float] = field(default_factory=lambda: defaultdict(float))

    def known(self) -> list[Source]:
        """Returns the sources that have seconds on a side, sorted."""
        return sorted(self.predicted.keys() | self.measured.keys())

    def of(self, source: Source) -> Both:
        """Returns the seconds of a source."""
        return self.predicted.get(source, 0.0), self.measured.get(source, 0.0)

    def difference_s(self, source: Source) -> float:
        """Returns predicted − measured."""
        predicted_s, measured_s = self.of(source)
        return predicted_s - measured_s

    def move(self, source: Source, to: Source, seconds: float, into: Sums) -> None:
        """Moves a part of a difference to another source, from the side that has more.

        Args:
            source: the source.
            to: the other source.
            seconds: the part of predicted − measured.
            into: the sums that contain the other source.
        """
        side, other = (self.predicted, into.predicted) if seconds > 0 else (self.measured, into.measured)
        side[source] -= abs(seconds)
        other[to] += abs(seconds)

    def limit(self, source: Source, most_s: float, to: Source, consequences: Sums) -> float:
        """Moves the part of a source's difference that is beyond a limit; returns the part that is explained.

        Args:
            source: the source.
            most_s: the largest difference that it explains, with its sign.
            to: the consequence to which the rest is moved.
            consequences: the seconds of consequences.
        """
        difference_s = self.difference_s(source)
        explained_s = within(difference_s, most_s)
        if abs(difference_s - explained_s) > ROUNDING * max(self.of(source)):
            self.move(source, to, difference_s - explained_s, consequences)
        return explained_s


def sums_of(steps: Iterable[AlignedStep], seconds: Callable[[int, StepTime], Mapping[Source, float]]) -> Sums:
    """Returns weighted sums over steps.

    Args:
        steps: the steps.
        seconds: the seconds of one side of a step by source, from its rank and its time.
    """
    sums = Sums()
    for step in steps:
        for side, time in ((sums.predicted, step.predicted), (sums.measured, step.measured)):
            for source, value in seconds(step.rank, time).items():
                side[source] += step.weight * value
    return sums


def by_rank(rank: int, seconds: Mapping[str, float]) -> dict[Source, float]:
    """Returns the seconds of a rank's own activities by source."""
    return {Source(name, rank): value for name, value in seconds.items()}


def responsible(alignment: Alignment) -> dict[Source, Both]:
    """Returns the seconds of a mean step by responsible activity and rank; their sums are the mean step times.

    The rank of a "wait" is the one that is waited for, or if that is unknown, the one that waits.

    Args:
        alignment: the aligned steps.
    """
    steps, others = alignment.steps, len({step.rank for step in alignment.steps}) - 1
    direct = sums_of(steps, lambda rank, time: by_rank(rank, time.direct))
    waited, consequences = sums_of(steps, lambda _, time: time.waited), Sums()
    whole = sums_of(steps, lambda rank, time: by_rank(rank, {**time.own, **time.whole}))
    changed_s = {source: whole.difference_s(source) for source in whole.known() if source.activity not in CONSEQUENCES}
    for source in direct.known():
        if source in changed_s:
            direct.limit(source, changed_s[source], Source(OVERLAP, source.rank), consequences)
    left_s = {source: others * seconds for source, seconds in changed_s.items()}
    for source in waited.known():
        if source in changed_s:
            left_s[source] -= waited.limit(source, left_s[source], Source(WAIT, source.rank), consequences)
    _explain(consequences, left_s, waited)
    total: dict[Source, Both] = {}
    rounding_s = ROUNDING * weighted(steps, lambda time: time.seconds)[1]
    for sums in (direct, waited, consequences):
        for source in sums.known():
            before, seconds = total.get(source, (0.0, 0.0)), sums.of(source)
            if sums is not consequences or max(map(abs, seconds)) > rounding_s:
                total[source] = before[0] + seconds[0], before[1] + seconds[1]
    return total


def _explain(consequences: Sums, left_s: Mapping[Source, float], explained: Sums) -> None:
    """Moves consequences to activities that differ by more than they explain so far, largest first.

    Only the sum of all consequences is moved: if the slowest rank is another one than predicted, the others wait less
    for the one and more for the other.

    Args:
        consequences: the seconds of consequences.
        left_s: the difference that each activity can still explain.
        explained: receives the seconds.
    """
    rest_s = math.fsum(map(consequences.difference_s, consequences.known()))
    largest = sorted(consequences.known(), key=lambda source: (-abs(consequences.difference_s(source)), source))
    for source in sorted(left_s, key=lambda source: -abs(left_s[source])):
        part_s = within(rest_s, left_s[source])
        rest_s -= part_s
        for consequence in largest:
            moved_s = within(part_s, consequences.difference_s(consequence))
            if moved_s:
                consequences.move(consequence, source, moved_s, explained)
                part_s -= moved_s


def within(value: float, limit: float) -> float:
    """Returns the part of a value between 0 and a limit; 0 if they have different signs.

    >>> within(3.0, 2.0), within(-3.0, -5.0), within(3.0, -5.0)
    (2.0, -3.0, 0.0)
    """
    if value * limit <= 0:
        return 0.0
    return math.copysign(min(abs(value), abs(limit)), value)
