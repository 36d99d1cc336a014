"""Aligns the steps of predicted and measured runs, and divides the error of the step time among activities and ranks.

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
* The difference is predicted − measured, of the mean step time over all aligned steps. The differences of the
  activities add up to it, because every instant of every step is charged to one activity of one rank.
* The share of an activity is its difference divided by the whole difference. Shares add up to 1. A negative share is
  that of an activity whose error compensates a part of the others'.
* The causes are the activities with the largest differences of the sign of the whole: as many as explain `ENOUGH` of
  it, at most `MOST`, each at least `LEAST_SHARE`.
* The ranks of a cause are the fewest that explain `ENOUGH` of its difference. Its steps are those of the first or last
  phase, or the long ones, if these have `MAIN_PART` of its difference; else they are all steps.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from paceline.records import Run
from paceline.records.metrics import interval
from paceline.records.summary import steps_of
from paceline.reports.attribution.timeline import (
    WAIT,
    Timelines,
    TimeSource,
    from_spans,
    from_tables,
    from_trace,
    is_divided,
)

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
ENOUGH, MOST, LEAST_SHARE = 0.8, 3, 0.1
"""how much of the difference the causes explain, how many they are, and the least share of one; our choice"""
ALL_RANKS = 0.75
"""if this share of the workers is needed to explain `ENOUGH` of an activity's difference, it is in all; our choice"""
MAIN_PART = 0.5
"""a phase, or the long steps, must have this share of a cause's difference to be named; our choice"""
MOST_LONG = 0.25
"""long steps are named if they are at most this share of all; our choice"""

K = TypeVar("K")


class StepPart(NamedTuple):
    """Seconds of a mean step on both sides, and the share of their difference in the whole difference."""

    predicted_s: float = 0.0
    measured_s: float = 0.0
    share: float | None = None
    """None if the whole difference is 0, or not of interest"""

    @property
    def difference_s(self) -> float:
        return self.predicted_s - self.measured_s

    def of(self, whole: StepPart) -> StepPart:
        """Returns the seconds with their share of the whole difference."""
        return self._replace(share=self.difference_s / whole.difference_s if whole.difference_s else None)

    def record(self) -> dict[str, Any]:
        """Returns the part for a JSON answer."""
        return {
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "difference_s": self.difference_s,
            "share": self.share,
        }


class ExplainedStep(NamedTuple):
    """The time of one step on one side."""

    seconds: float
    own: Mapping[str, float]
    """by the worker's own activity"""
    whole: Mapping[str, float]
    """by the worker's own activity, also while it overlaps with others; of waits, as in `own`"""
    direct: Mapping[str, float]
    """by the worker's own activity, without the waits that can be followed to other ranks"""
    waited: Mapping[TimeSource, float]
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
    predicted: ExplainedStep
    measured: ExplainedStep


@dataclass(frozen=True, slots=True)
class StepAlignment:
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


Steps = Sequence[AlignedStep]
Seconds = Callable[[ExplainedStep], float]
"""a figure of one side of a step"""


@dataclass(frozen=True, slots=True)
class Cause:
    """An activity that is responsible for a large part of the difference."""

    activity: str
    ranks: tuple[int, ...]
    """the ranks that are responsible; empty: all"""
    when: str
    """in which steps, in words"""
    charged: StepPart
    """seconds of the mean step of all workers that are attributed to the activity"""
    own: StepPart
    """seconds of the activity itself in a step of these ranks, hidden or not; for a server, the time waited for it"""

    def record(self) -> dict[str, Any]:
        """Returns the cause for a JSON answer."""
        return {
            "activity": self.activity,
            "ranks": list(self.ranks) or None,
            "when": self.when,
            "share": self.charged.share,
            "predicted_s": self.own.predicted_s,
            "measured_s": self.own.measured_s,
        }


@dataclass(frozen=True, slots=True)
class LongSteps:
    """The steps that take more than `LONG` times their worker's median, and their part in the difference."""

    predicted: int
    measured: int
    part: StepPart
    """seconds above the median, per step of all"""

    def record(self) -> dict[str, Any]:
        """Returns the long steps for a JSON answer."""
        return {
            "factor": LONG,
            "predicted_steps": self.predicted,
            "measured_steps": self.measured,
            **self.part.record(),
        }


@dataclass(frozen=True, slots=True)
class ErrorSources:
    """The sources of the error of one algorithm's mean step time."""

    alignment: StepAlignment
    whole: StepPart
    interval_s: Mapping[str, float] | None
    """the difference with its 95 % interval over seeds; None for one seed"""
    sources: Mapping[TimeSource, StepPart]
    activities: Mapping[str, StepPart]
    """`sources`, summed over ranks; largest difference first"""
    own: Mapping[TimeSource, StepPart]
    """by rank and its own activity, per step of this rank; waits are not followed"""
    phases: Mapping[str, StepPart]
    """mean time of the steps of each phase; the share is that of the phase in the whole difference"""
    long_steps: LongSteps
    causes: tuple[Cause, ...]
    waiting: StepPart
    """seconds of a mean step in which its worker waits for other ranks"""

    @property
    def relative(self) -> float | None:
        """The difference divided by the measured step time."""
        return self.whole.difference_s / self.whole.measured_s if self.whole.measured_s > 0 else None

    @property
    def unaligned_s(self) -> float:
        """The part of the whole error that steps on only one side make: the rest of the difference of all steps."""
        whole_s = self.alignment.predicted_s - self.alignment.measured_s
        return whole_s - self.whole.difference_s

    def record(self) -> dict[str, Any]:
        """Returns the sources for a JSON answer."""
        aligned = self.alignment
        return {
            "steps": {
                "predicted": aligned.predicted_steps,
                "measured": aligned.measured_steps,
                "aligned": len(aligned.steps),
            },
            "step_s": {**self.whole.record(), "relative": self.relative, "unaligned_s": self.unaligned_s},
            "traced": aligned.traced,
            "interval_s": None if self.interval_s is None else dict(self.interval_s),
            "activities": [{"activity": name, **part.record()} for name, part in self.activities.items()],
            "sources": [{**source._asdict(), **part.record()} for source, part in self.sources.items()],
            "ranks": [{**source._asdict(), **part.record()} for source, part in self.own.items()],
            "phases": [{"phase": name, **part.record()} for name, part in self.phases.items()],
            "long_steps": self.long_steps.record(),
            "causes": [cause.record() for cause in self.causes],
            "waiting": self.waiting.record(),
        }


def weighted(steps: Steps, seconds: Seconds = lambda time: time.seconds) -> StepPart:
    """Returns the weighted sum of a figure over steps; over all aligned steps, this is its mean.

    Args:
        steps: the steps.
        seconds: the figure of one side of a step.
    """
    predicted_s = math.fsum(step.weight * seconds(step.predicted) for step in steps)
    return StepPart(predicted_s, math.fsum(step.weight * seconds(step.measured) for step in steps))


# --- alignment -------------------------------------------------------------------------------------------------------


def align(predicted: Sequence[Run], measured: Sequence[Run]) -> StepAlignment | None:
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
    return StepAlignment(
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
    phases: dict[Key, Phase] = {}
    for steps in by_rank.values():
        size = max(1, round(END_SHARE * len(steps)))
        for at, key in enumerate(steps):
            phases[key] = "first" if at < size else "last" if at >= len(steps) - size else "steady"
    return phases


def _times(run: Run, intervals: Intervals, *, traced: bool) -> dict[Key, ExplainedStep]:
    """Returns the divided time of each of these steps."""
    if not traced:
        timelines = Timelines(from_spans(run.tables))
    else:
        timelines = Timelines(from_tables(run.tables) if run.trace is None else from_trace(run.trace))
    lengths: dict[int, list[float]] = defaultdict(list)
    for (rank, _), (start_s, end_s) in intervals.items():
        lengths[rank].append(end_s - start_s)
    median_s = {rank: statistics.median(seconds) for rank, seconds in lengths.items()}
    times = {}
    for (rank, step), (start_s, end_s) in intervals.items():
        own, whole = timelines.own(rank, start_s, end_s), timelines.whole(rank, start_s, end_s)
        direct, waited = timelines.charged(rank, start_s, end_s)
        seconds, most_s = end_s - start_s, LONG * median_s[rank]
        excess_s = seconds - median_s[rank] if seconds > most_s else 0.0
        times[rank, step] = ExplainedStep(seconds, own, {**own, **whole}, direct, waited, excess_s)
    return times


# --- the responsible activities --------------------------------------------------------------------------------------


class Sums(dict[TimeSource, StepPart]):
    """Weighted sums of seconds by source."""

    def of(self, source: TimeSource) -> StepPart:
        """Returns the seconds of a source."""
        return self.get(source, StepPart())

    def add(self, source: TimeSource, predicted_s: float, measured_s: float) -> None:
        """Adds seconds to those of a source."""
        before = self.of(source)
        self[source] = StepPart(before.predicted_s + predicted_s, before.measured_s + measured_s)

    def move(self, source: TimeSource, to: TimeSource, seconds: float, into: Sums) -> None:
        """Moves a part of a difference to another source, from the side that has more.

        Args:
            source: the source.
            to: the other source.
            seconds: the part of predicted − measured.
            into: the sums that contain the other source.
        """
        predicted_s, measured_s = max(seconds, 0.0), max(-seconds, 0.0)
        self.add(source, -predicted_s, -measured_s)
        into.add(to, predicted_s, measured_s)

    def limit(self, source: TimeSource, most_s: float, to: TimeSource, consequences: Sums) -> float:
        """Moves the part of a source's difference that is beyond a limit; returns the part that is explained.

        Args:
            source: the source.
            most_s: the largest difference that it explains, with its sign.
            to: the consequence to which the rest is moved.
            consequences: the seconds of consequences.
        """
        part = self.of(source)
        explained_s = within(part.difference_s, most_s)
        if abs(part.difference_s - explained_s) > ROUNDING * max(part.predicted_s, part.measured_s):
            self.move(source, to, part.difference_s - explained_s, consequences)
        return explained_s


def sums_of(steps: Steps, seconds: Callable[[int, ExplainedStep], Mapping[TimeSource, float]]) -> Sums:
    """Returns weighted sums over steps.

    Args:
        steps: the steps.
        seconds: the seconds of one side of a step by source, from its rank and its time.
    """
    sums = Sums()
    for step in steps:
        for source, value in seconds(step.rank, step.predicted).items():
            sums.add(source, step.weight * value, 0.0)
        for source, value in seconds(step.rank, step.measured).items():
            sums.add(source, 0.0, step.weight * value)
    return sums


def by_rank(rank: int, seconds: Mapping[str, float]) -> dict[TimeSource, float]:
    """Returns the seconds of a rank's own activities by source."""
    return {TimeSource(name, rank): value for name, value in seconds.items()}


def responsible(alignment: StepAlignment) -> dict[TimeSource, StepPart]:
    """Returns the seconds of a mean step by responsible activity and rank; their sums are the mean step times.

    The rank of a "wait" is the one that is waited for, or if that is unknown, the one that waits.

    Args:
        alignment: the aligned steps.
    """
    steps, others = alignment.steps, len({step.rank for step in alignment.steps}) - 1
    direct = sums_of(steps, lambda rank, time: by_rank(rank, time.direct))
    waited, consequences = sums_of(steps, lambda _, time: time.waited), Sums()
    whole = sums_of(steps, lambda rank, time: by_rank(rank, time.whole))
    changed_s = {source: part.difference_s for source, part in whole.items() if source.activity not in CONSEQUENCES}
    for source in sorted(direct.keys() & changed_s):
        direct.limit(source, changed_s[source], TimeSource(OVERLAP, source.rank), consequences)
    left_s = {source: others * changed_s[source] for source in sorted(changed_s)}
    for source in sorted(waited.keys() & changed_s):
        left_s[source] -= waited.limit(source, left_s[source], TimeSource(WAIT, source.rank), consequences)
    _explain(consequences, left_s, waited)
    total, rounding_s = Sums(), ROUNDING * weighted(steps).measured_s
    for sums in (direct, waited, consequences):
        for source in sorted(sums):
            predicted_s, measured_s, _ = sums[source]
            if sums is not consequences or max(abs(predicted_s), abs(measured_s)) > rounding_s:
                total.add(source, predicted_s, measured_s)
    return total


def _explain(consequences: Sums, left_s: Mapping[TimeSource, float], explained: Sums) -> None:
    """Moves consequences to activities that differ by more than they explain so far, largest first.

    Only the sum of all consequences is moved: if the slowest rank is another one than predicted, the others wait less
    for the one and more for the other.
    """
    rest_s = math.fsum(part.difference_s for part in consequences.values())
    largest = sorted(consequences, key=lambda source: (-abs(consequences[source].difference_s), source))
    for source in sorted(left_s, key=lambda source: -abs(left_s[source])):
        part_s = within(rest_s, left_s[source])
        rest_s -= part_s
        for consequence in largest:
            moved_s = within(part_s, consequences[consequence].difference_s)
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


# --- the sources of the error -----------------------------------------------------------------------------------------


def error_sources(predicted: Sequence[Run], measured: Sequence[Run]) -> ErrorSources | None:
    """Returns the sources of the error of one algorithm; None if the runs have no step in common.

    Args:
        predicted: simulated runs, one per seed.
        measured: measured runs of the same seeds.
    """
    if (alignment := align(predicted, measured)) is None:
        return None
    steps = alignment.steps
    whole = weighted(steps)
    sources = _largest_first({source: part.of(whole) for source, part in responsible(alignment).items()})
    activities = _by_activity(sources, whole)
    return ErrorSources(
        alignment=alignment,
        whole=whole.of(whole),
        interval_s=_interval(steps),
        sources=sources,
        activities=activities,
        own=_own(steps),
        phases={phase: _phase([step for step in steps if step.phase == phase], whole) for phase in PHASES},
        long_steps=LongSteps(
            predicted=sum(step.predicted.excess_s > 0 for step in steps),
            measured=sum(step.measured.excess_s > 0 for step in steps),
            part=weighted(steps, lambda time: time.excess_s).of(whole),
        ),
        causes=tuple(_causes(steps, activities, sources)),
        waiting=weighted(steps, lambda time: time.own.get(WAIT, 0.0)),
    )


def _mean(steps: Steps, seconds: Seconds = lambda time: time.seconds) -> StepPart:
    """Returns the mean over some steps; 0 without steps."""
    weight, sums = math.fsum(step.weight for step in steps), weighted(steps, seconds)
    return StepPart(sums.predicted_s / weight, sums.measured_s / weight) if steps else StepPart()


def _phase(steps: Steps, whole: StepPart) -> StepPart:
    """Returns the mean time of the steps of a phase, and its share of the whole difference."""
    return _mean(steps)._replace(share=weighted(steps).of(whole).share)


def _by_activity(sources: Mapping[TimeSource, StepPart], whole: StepPart) -> dict[str, StepPart]:
    """Returns the sums over all ranks."""
    parts: dict[str, list[StepPart]] = defaultdict(list)
    for source, part in sources.items():
        parts[source.activity].append(part)
    sums = {
        name: StepPart(math.fsum(part.predicted_s for part in alike), math.fsum(part.measured_s for part in alike))
        for name, alike in parts.items()
    }
    return _largest_first({name: part.of(whole) for name, part in sums.items()})


def _largest_first(parts: Mapping[K, StepPart]) -> dict[K, StepPart]:
    return dict(sorted(parts.items(), key=lambda entry: -abs(entry[1].difference_s)))


def _own(steps: Steps) -> dict[TimeSource, StepPart]:
    """Returns each rank's own activities per step of this rank, in the order of the ranks."""
    sums, weights = sums_of(steps, lambda rank, time: by_rank(rank, time.own)), defaultdict[int, float](float)
    for step in steps:
        weights[step.rank] += step.weight
    ordered = sorted(sums.items(), key=lambda entry: (entry[0].rank, entry[0].activity))
    return {
        source: StepPart(part.predicted_s / weights[source.rank], part.measured_s / weights[source.rank])
        for source, part in ordered
    }


def _interval(steps: Steps) -> Mapping[str, float] | None:
    """Returns the difference with its 95 % interval over seeds."""
    by_seed: dict[int, list[AlignedStep]] = defaultdict(list)
    for step in steps:
        by_seed[step.seed].append(step)
    if len(by_seed) < 2:
        return None
    return interval([_mean(alike).difference_s for alike in by_seed.values()])


# --- causes ----------------------------------------------------------------------------------------------------------


def _causes(
    steps: Steps, activities: Mapping[str, StepPart], sources: Mapping[TimeSource, StepPart]
) -> Iterator[Cause]:
    """Yields the activities that explain most of the difference, largest first."""
    explained = 0.0
    large = [(name, part) for name, part in activities.items() if (part.share or 0.0) >= LEAST_SHARE]
    for name, part in large[:MOST]:  # the others explain little, or compensate these
        if explained >= ENOUGH:
            break
        explained += part.share or 0.0
        yield _cause(steps, name, part, sources)


def _cause(steps: Steps, name: str, part: StepPart, sources: Mapping[TimeSource, StepPart]) -> Cause:
    if name in CONSEQUENCES:
        return Cause(name, (), "in all steps", part, part)
    parts = {source.rank: part for source, part in sources.items() if source.activity == name}
    workers = {step.rank for step in steps}
    ranks = _responsible(parts, part)
    widespread = len(parts) > 1 and len(ranks) >= ALL_RANKS * len(workers | set(parts))

    def waited_s(time: ExplainedStep) -> float:
        return math.fsum(time.waited.get(TimeSource(name, rank), 0.0) for rank in ranks)

    def own_s(time: ExplainedStep) -> float:
        return time.whole.get(name, 0.0)

    only_others = workers.isdisjoint(ranks)
    seconds = waited_s if only_others else own_s
    chosen, when = _when(steps if only_others else [step for step in steps if step.rank in ranks], seconds)
    return Cause(name, () if widespread else tuple(sorted(ranks)), when, part, _mean(chosen, seconds))


def _responsible(parts: Mapping[int, StepPart], whole: StepPart) -> list[int]:
    """Returns the fewest ranks that explain `ENOUGH` of an activity's difference."""
    sign = math.copysign(1.0, whole.difference_s)
    same = {rank: sign * part.difference_s for rank, part in parts.items() if sign * part.difference_s > 0}
    needed, ranks = ENOUGH * sum(same.values()), list[int]()
    for rank in sorted(same, key=lambda rank: -same[rank]):
        if sum(same[chosen] for chosen in ranks) >= needed:
            break
        ranks.append(rank)
    return ranks


def _when(steps: Steps, seconds: Seconds) -> tuple[Steps, str]:
    """Returns the steps that have most of the difference of an activity, and words for them."""
    whole = weighted(steps, seconds)

    def share(chosen: Steps) -> float:
        return weighted(chosen, seconds).of(whole).share or 0.0

    if whole.difference_s == 0:
        return steps, "in all steps"
    for phase in ("first", "last"):
        chosen = [step for step in steps if step.phase == phase]
        if share(chosen) >= max(MAIN_PART, 2 * len(chosen) / len(steps)):
            most = max(Counter((step.seed, step.rank) for step in chosen).values())
            return chosen, f"in the {phase} {most} steps" if most > 1 else f"in the {phase} step"
    long = [step for step in steps if step.predicted.excess_s > 0 or step.measured.excess_s > 0]
    if len(long) <= MOST_LONG * len(steps) and share(long) >= MAIN_PART:
        return long, f"in {len(long)} long steps of {len(steps)}"
    return steps, "in all steps"
