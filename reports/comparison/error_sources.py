"""Divides the error of a predicted step time among activities, ranks and phases of the run.

* The difference is predicted − measured, of the mean step time over all aligned steps. The differences of the
  activities add up to it, because every instant of every step is charged to one activity of one rank
  (`rank_timelines`, `time_attribution`).
* The share of an activity is its difference divided by the whole difference. Shares add up to 1. A negative share is
  that of an activity whose error compensates a part of the others'.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.records import Run
from paceline.records.metrics import interval
from paceline.reports.comparison.error_causes import Cause, Part, causes_of
from paceline.reports.comparison.rank_timelines import Source
from paceline.reports.comparison.step_alignment import LONG, PHASES, Alignment, Phase, StepTime, align
from paceline.reports.comparison.time_attribution import attribute, sums_of

K = TypeVar("K")


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
    alignment = align(predicted, measured)
    return None if alignment is None else divide(alignment)


def divide(alignment: Alignment) -> ErrorSources:
    """Divides the difference of aligned steps among its sources.

    Args:
        alignment: the aligned steps.
    """
    ours, theirs = _mean(alignment, lambda time: time.seconds)
    whole_s = ours - theirs
    sources = _largest_first({source: _part(*both, whole_s) for source, both in attribute(alignment).items()})
    activities = _by_activity(sources, whole_s)
    return ErrorSources(
        alignment=alignment,
        whole=_part(ours, theirs, whole_s),
        interval_s=_interval(alignment),
        sources=sources,
        activities=activities,
        own=_own(alignment),
        phases={phase: _phase(alignment, phase, whole_s) for phase in PHASES},
        long_steps=LongSteps(
            predicted=sum(step.predicted.excess_s > 0 for step in alignment.steps),
            measured=sum(step.measured.excess_s > 0 for step in alignment.steps),
            part=_part(*_mean(alignment, lambda time: time.excess_s), whole_s),
        ),
        causes=tuple(causes_of(alignment, activities, sources)),
    )


def _part(predicted_s: float, measured_s: float, whole_s: float) -> Part:
    return Part(predicted_s, measured_s, (predicted_s - measured_s) / whole_s if whole_s else None)


def _mean(alignment: Alignment, seconds: Callable[[StepTime], float]) -> tuple[float, float]:
    return alignment.mean(lambda step: seconds(step.predicted)), alignment.mean(lambda step: seconds(step.measured))


def _phase(alignment: Alignment, phase: Phase, whole_s: float) -> Part:
    """Returns the mean time of the steps of a phase, and its share of the whole difference."""
    mine = [step for step in alignment.steps if step.phase == phase]
    weight = math.fsum(step.weight for step in mine)
    ours = math.fsum(step.weight * step.predicted.seconds for step in mine)
    theirs = math.fsum(step.weight * step.measured.seconds for step in mine)
    share = _part(ours, theirs, whole_s).share
    return Part(ours / weight, theirs / weight, share) if mine else Part(0.0, 0.0, share)


def _by_activity(sources: Mapping[Source, Part], whole_s: float) -> dict[str, Part]:
    """Returns the sums over all ranks."""
    found: dict[str, Part] = {}
    for name in dict.fromkeys(source.activity for source in sources):
        mine = [one for source, one in sources.items() if source.activity == name]
        ours, theirs = math.fsum(one.predicted_s for one in mine), math.fsum(one.measured_s for one in mine)
        found[name] = _part(ours, theirs, whole_s)
    return _largest_first(found)


def _largest_first(parts: Mapping[K, Part]) -> dict[K, Part]:
    return dict(sorted(parts.items(), key=lambda entry: -abs(entry[1].difference_s)))


def _own(alignment: Alignment) -> dict[Source, Part]:
    """Returns each rank's own activities per step of this rank, in the order of the ranks."""
    sums = sums_of(alignment, lambda rank, time: {Source(name, rank): one for name, one in time.own.items()})
    weights: defaultdict[int, float] = defaultdict(float)
    for step in alignment.steps:
        weights[step.rank] += step.weight
    known = sorted({**sums.predicted, **sums.measured}, key=lambda source: (source.rank, source.activity))
    return {
        source: Part(sums.predicted[source] / weights[source.rank], sums.measured[source] / weights[source.rank], None)
        for source in known
    }


def _interval(alignment: Alignment) -> Mapping[str, float] | None:
    """Returns the difference with its 95 % interval over seeds."""
    by_seed, weights = defaultdict[int, float](float), defaultdict[int, float](float)
    for step in alignment.steps:
        by_seed[step.seed] += step.weight * (step.predicted.seconds - step.measured.seconds)
        weights[step.seed] += step.weight
    if len(by_seed) < 2:
        return None
    return interval([difference_s / weights[seed] for seed, difference_s in by_seed.items()])
