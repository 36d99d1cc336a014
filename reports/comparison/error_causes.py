"""The activities, ranks and phases that are responsible for most of the error of a predicted step time.

* The causes are the activities with the largest differences of the sign of the whole: as many as explain `ENOUGH` of
  it, at most `MOST`, each at least `LEAST_SHARE`.
* The ranks of a cause are the fewest that explain `ENOUGH` of its difference. Its steps are those of the first or last
  phase, or the long ones, if these have `MAIN_PART` of its difference; else they are all steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.reports.comparison.rank_timelines import Source
from paceline.reports.comparison.step_alignment import AlignedStep, Alignment, StepTime
from paceline.reports.comparison.time_attribution import UNLIMITED

ENOUGH, MOST, LEAST_SHARE = 0.8, 3, 0.1
"""how much of the difference the causes explain, how many they are, and the least share of one; our choice"""
ALL_RANKS = 0.75
"""if this share of the workers is needed to explain `ENOUGH` of an activity's difference, it is in all; our choice"""
MAIN_PART = 0.5
"""a phase, or the long steps, must have this share of a cause's difference to be named; our choice"""
MOST_LONG = 0.25
"""long steps are named if they are at most this share of all; our choice"""


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


def causes_of(alignment: Alignment, activities: Mapping[str, Part], sources: Mapping[Source, Part]) -> list[Cause]:
    """Returns the activities that explain most of the difference, largest first.

    Args:
        alignment: the aligned steps.
        activities: seconds of a mean step by activity, largest difference first.
        sources: the same by activity and rank.
    """
    found: list[Cause] = []
    explained = 0.0
    for name, part in activities.items():
        if part.share is None or part.share < LEAST_SHARE:  # it explains little, or compensates others
            continue
        if explained >= ENOUGH or len(found) == MOST:
            break
        explained += part.share
        found.append(_cause(alignment, name, part, sources))
    return found


def _cause(alignment: Alignment, name: str, part: Part, sources: Mapping[Source, Part]) -> Cause:
    if name in UNLIMITED:
        return Cause(name, (), "in all steps", part, part.predicted_s, part.measured_s)
    mine = {source.rank: one for source, one in sources.items() if source.activity == name}
    workers = {step.rank for step in alignment.steps}
    ranks = _responsible(mine, part)
    widespread = len(mine) > 1 and len(ranks) >= ALL_RANKS * len(workers | set(mine))
    if workers.isdisjoint(ranks):
        chosen, seconds = alignment.steps, partial(_waited, charged=[Source(name, rank) for rank in ranks])
    else:
        chosen, seconds = [step for step in alignment.steps if step.rank in ranks], partial(_itself, name=name)
    steps, when = _when(chosen, seconds)
    return Cause(name, () if widespread else tuple(sorted(ranks)), when, part, *_mean(steps, seconds))


def _itself(time: StepTime, name: str) -> float:
    """Returns the seconds of a worker's own activity, hidden or not."""
    return time.whole.get(name, time.own.get(name, 0.0))


def _waited(time: StepTime, charged: Sequence[Source]) -> float:
    return math.fsum(time.waited.get(source, 0.0) for source in charged)


def _mean(steps: Sequence[AlignedStep], seconds: Callable[[StepTime], float]) -> tuple[float, float]:
    """Returns the weighted mean over some steps, predicted and measured."""
    weight = math.fsum(step.weight for step in steps)
    ours = math.fsum(step.weight * seconds(step.predicted) for step in steps)
    theirs = math.fsum(step.weight * seconds(step.measured) for step in steps)
    return ours / weight, theirs / weight


def _responsible(mine: Mapping[int, Part], part: Part) -> list[int]:
    """Returns the fewest ranks that explain `ENOUGH` of an activity's difference."""
    sign = math.copysign(1.0, part.difference_s)
    same = {rank: sign * one.difference_s for rank, one in mine.items() if sign * one.difference_s > 0}
    needed, ranks = ENOUGH * sum(same.values()), list[int]()
    for rank in sorted(same, key=lambda rank: -same[rank]):
        if sum(same[one] for one in ranks) >= needed:
            break
        ranks.append(rank)
    return ranks


def _when(steps: Sequence[AlignedStep], seconds: Callable[[StepTime], float]) -> tuple[Sequence[AlignedStep], str]:
    """Returns the steps that have most of the difference of an activity, and words for them.

    Args:
        steps: the steps that have the activity.
        seconds: its seconds on one side of a step.
    """

    def share(chosen: Sequence[AlignedStep]) -> float:
        ours, theirs = _mean(chosen, seconds) if chosen else (0.0, 0.0)
        return (ours - theirs) * math.fsum(step.weight for step in chosen) / whole_s

    ours, theirs = _mean(steps, seconds)
    whole_s = (ours - theirs) * math.fsum(step.weight for step in steps)
    if whole_s == 0:
        return steps, "in all steps"
    for phase in ("first", "last"):
        mine = [step for step in steps if step.phase == phase]
        if share(mine) >= max(MAIN_PART, 2 * len(mine) / len(steps)):
            most = max(Counter((step.seed, step.rank) for step in mine).values())
            return mine, f"in the {phase} {most} steps" if most > 1 else f"in the {phase} step"
    long = [step for step in steps if step.predicted.excess_s > 0 or step.measured.excess_s > 0]
    if len(long) <= MOST_LONG * len(steps) and share(long) >= MAIN_PART:
        return long, f"in {len(long)} long steps of {len(steps)}"
    return steps, "in all steps"
