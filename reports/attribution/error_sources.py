"""Divides the error of a predicted step time among activities, ranks and phases of the run, and names its causes.

* The difference is predicted − measured, of the mean step time over all aligned steps. The differences of the
  activities add up to it, because every instant of every step is charged to one activity of one rank
  (`timeline`, `step_differences`).
* The share of an activity is its difference divided by the whole difference. Shares add up to 1. A negative share is
  that of an activity whose error compensates a part of the others'.
* The causes are the activities with the largest differences of the sign of the whole: as many as explain `ENOUGH` of
  it, at most `MOST`, each at least `LEAST_SHARE`.
* The ranks of a cause are the fewest that explain `ENOUGH` of its difference. Its steps are those of the first or last
  phase, or the long ones, if these have `MAIN_PART` of its difference; else they are all steps.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.records import Run
from paceline.records.metrics import interval
from paceline.reports.attribution.step_differences import (
    CONSEQUENCES,
    LONG,
    PHASES,
    AlignedStep,
    Alignment,
    Both,
    StepTime,
    align,
    by_rank,
    responsible,
    sums_of,
    weighted,
)
from paceline.reports.attribution.timeline import Source

ENOUGH, MOST, LEAST_SHARE = 0.8, 3, 0.1
"""how much of the difference the causes explain, how many they are, and the least share of one; our choice"""
ALL_RANKS = 0.75
"""if this share of the workers is needed to explain `ENOUGH` of an activity's difference, it is in all; our choice"""
MAIN_PART = 0.5
"""a phase, or the long steps, must have this share of a cause's difference to be named; our choice"""
MOST_LONG = 0.25
"""long steps are named if they are at most this share of all; our choice"""

K = TypeVar("K")
Steps = Sequence[AlignedStep]
Seconds = Callable[[StepTime], float]


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of a mean step on both sides, and the share of their difference in the whole difference."""

    predicted_s: float
    measured_s: float
    share: float | None
    """None if the whole difference is 0"""

    @property
    def difference_s(self) -> float:
        return self.predicted_s - self.measured_s

    def record(self) -> dict[str, Any]:
        """Returns the part for a JSON answer."""
        return {
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "difference_s": self.difference_s,
            "share": self.share,
        }


@dataclass(frozen=True, slots=True)
class Cause:
    """An activity that is responsible for a large part of the difference."""

    activity: str
    ranks: tuple[int, ...]
    """the ranks that are responsible; empty: all"""
    when: str
    """in which steps, in words"""
    charged: Part
    """seconds of the mean step of all workers that are attributed to the activity"""
    predicted_s: float
    """seconds of the activity itself in a step of these ranks, hidden or not; for a server, the time waited for it"""
    measured_s: float

    def record(self) -> dict[str, Any]:
        """Returns the cause for a JSON answer."""
        return {
            "activity": self.activity,
            "ranks": list(self.ranks) or None,
            "when": self.when,
            "share": self.charged.share,
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
        }


@dataclass(frozen=True, slots=True)
class LongSteps:
    """The steps that take more than `LONG` times their worker's median, and their part in the difference."""

    predicted: int
    measured: int
    part: Part
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

    alignment: Alignment
    whole: Part
    interval_s: Mapping[str, float] | None
    """the difference with its 95 % interval over seeds; None for one seed"""
    sources: Mapping[Source, Part]
    activities: Mapping[str, Part]
    """`sources`, summed over ranks; largest difference first"""
    own: Mapping[Source, Part]
    """by rank and its own activity, per step of this rank; waits are not followed"""
    phases: Mapping[str, Part]
    """mean time of the steps of each phase; the share is that of the phase in the whole difference"""
    long_steps: LongSteps
    causes: tuple[Cause, ...]

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
        }


def error_sources(predicted: Sequence[Run], measured: Sequence[Run]) -> ErrorSources | None:
    """Returns the sources of the error of one algorithm; None if the runs have no step in common.

    Args:
        predicted: simulated runs, one per seed.
        measured: measured runs of the same seeds.
    """
    if (alignment := align(predicted, measured)) is None:
        return None
    steps = alignment.steps
    whole = _part(weighted(steps, _seconds))
    sources = _largest_first({source: _part(both, whole) for source, both in responsible(alignment).items()})
    activities = _by_activity(sources, whole)
    return ErrorSources(
        alignment=alignment,
        whole=_part(weighted(steps, _seconds), whole),
        interval_s=_interval(steps),
        sources=sources,
        activities=activities,
        own=_own(steps),
        phases={phase: _phase([step for step in steps if step.phase == phase], whole) for phase in PHASES},
        long_steps=LongSteps(
            predicted=sum(step.predicted.excess_s > 0 for step in steps),
            measured=sum(step.measured.excess_s > 0 for step in steps),
            part=_part(weighted(steps, lambda time: time.excess_s), whole),
        ),
        causes=tuple(_causes(steps, activities, sources)),
    )


def _seconds(time: StepTime) -> float:
    return time.seconds


def _part(seconds: Both, whole: Part | None = None) -> Part:
    difference_s = seconds[0] - seconds[1]
    return Part(*seconds, difference_s / whole.difference_s if whole is not None and whole.difference_s else None)


def _mean(steps: Steps, seconds: Seconds) -> Both:
    """Returns the mean over some steps, predicted and measured; 0 without steps."""
    weight, (predicted_s, measured_s) = math.fsum(step.weight for step in steps), weighted(steps, seconds)
    return (predicted_s / weight, measured_s / weight) if steps else (0.0, 0.0)


def _phase(steps: Steps, whole: Part) -> Part:
    """Returns the mean time of the steps of a phase, and its share of the whole difference."""
    return Part(*_mean(steps, _seconds), _part(weighted(steps, _seconds), whole).share)


def _by_activity(sources: Mapping[Source, Part], whole: Part) -> dict[str, Part]:
    """Returns the sums over all ranks."""
    parts: dict[str, list[Part]] = defaultdict(list)
    for source, part in sources.items():
        parts[source.activity].append(part)
    sums = {
        name: (math.fsum(part.predicted_s for part in alike), math.fsum(part.measured_s for part in alike))
        for name, alike in parts.items()
    }
    return _largest_first({name: _part(seconds, whole) for name, seconds in sums.items()})


def _largest_first(parts: Mapping[K, Part]) -> dict[K, Part]:
    return dict(sorted(parts.items(), key=lambda entry: -abs(entry[1].difference_s)))


def _own(steps: Steps) -> dict[Source, Part]:
    """Returns each rank's own activities per step of this rank, in the order of the ranks."""
    sums, weights = sums_of(steps, lambda rank, time: by_rank(rank, time.own)), defaultdict[int, float](float)
    for step in steps:
        weights[step.rank] += step.weight
    known = sorted(sums.known(), key=lambda source: (source.rank, source.activity))
    means = {source: [seconds / weights[source.rank] for seconds in sums.of(source)] for source in known}
    return {source: Part(predicted_s, measured_s, None) for source, (predicted_s, measured_s) in means.items()}


def _interval(steps: Steps) -> Mapping[str, float] | None:
    """Returns the difference with its 95 % interval over seeds."""
    by_seed: dict[int, list[AlignedStep]] = defaultdict(list)
    for step in steps:
        by_seed[step.seed].append(step)
    if len(by_seed) < 2:
        return None
    means = [_mean(alike, _seconds) for alike in by_seed.values()]
    return interval([predicted_s - measured_s for predicted_s, measured_s in means])


# --- causes ----------------------------------------------------------------------------------------------------------


def _causes(steps: Steps, activities: Mapping[str, Part], sources: Mapping[Source, Part]) -> Iterator[Cause]:
    """Yields the activities that explain most of the difference, largest first."""
    explained = 0.0
    large = [(name, part) for name, part in activities.items() if (part.share or 0.0) >= LEAST_SHARE]
    for name, part in large[:MOST]:  # the others explain little, or compensate these
        if explained >= ENOUGH:
            break
        explained += part.share or 0.0
        yield _cause(steps, name, part, sources)


def _cause(steps: Steps, name: str, part: Part, sources: Mapping[Source, Part]) -> Cause:
    if name in CONSEQUENCES:
        return Cause(name, (), "in all steps", part, part.predicted_s, part.measured_s)
    parts = {source.rank: one for source, one in sources.items() if source.activity == name}
    workers = {step.rank for step in steps}
    ranks = _responsible(parts, part)
    widespread = len(parts) > 1 and len(ranks) >= ALL_RANKS * len(workers | set(parts))

    def waited_s(time: StepTime) -> float:
        return math.fsum(time.waited.get(Source(name, rank), 0.0) for rank in ranks)

    def own_s(time: StepTime) -> float:
        return time.whole.get(name, time.own.get(name, 0.0))

    only_others = workers.isdisjoint(ranks)
    seconds = waited_s if only_others else own_s
    chosen, when = _when(steps if only_others else [step for step in steps if step.rank in ranks], seconds)
    return Cause(name, () if widespread else tuple(sorted(ranks)), when, part, *_mean(chosen, seconds))


def _responsible(parts: Mapping[int, Part], whole: Part) -> list[int]:
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
    """Returns the steps that have most of the difference of an activity, and words for them.

    Args:
        steps: the steps that have the activity.
        seconds: its seconds on one side of a step.
    """
    whole = _part(weighted(steps, seconds))

    def share(chosen: Steps) -> float:
        return _part(weighted(chosen, seconds), whole).share or 0.0

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
