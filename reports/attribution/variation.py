"""Which part of the variation of steps makes workers wait, and what would remove it: `explain` and `compare --explain`.

* Waiting is the time from a worker's entry into a collective to the entry of its last member, and from the start of a
  receive until the message is sent, as far as the worker does nothing else: "wait" of `timeline`.
* The same run is simulated without one part of the variation at a time, in whose place factors have their mean
  (`StepTimes.without`), and without any variation. All else has the same random numbers.
* The share of a part is the waiting that is saved without it, divided by the waiting with all of the variation:

    share = (wait − wait without the part) / wait

* Shares do not add up to 1: workers wait for the slowest, and which one this is depends on all parts together. A
  negative share is that of a part that makes up for others in this run, such as a slow phase of a fast worker.
* Replayed traces, and gradients that were measured on a machine, have no parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from paceline.algorithms.core.values import Rank
from paceline.records.figures import MILLISECONDS, PERCENT
from paceline.reports.blocks import Block, Claim, Column, Row, Table
from paceline.topologies.faults.step_times import Part, StepTimes

if TYPE_CHECKING:
    from paceline.scenarios.resolution.plan import Plan

LEAST = 0.005
"""changes of a smaller part of the step time are called small"""


class MeanStep(NamedTuple):
    """The mean step of all workers: its seconds, and those in which a worker waits for other ranks."""

    step_s: float
    wait_s: float


class PartWords(NamedTuple):
    """How a part of the variation is called."""

    cause: str
    change: str
    """the change that leaves it out"""
    remedy: str
    """what a user can do about it"""


PHASES_REMEDY = "use an asynchronous method, or share the nodes with fewer jobs"
PARTS: Mapping[Part, PartWords] = {
    "persistent": PartWords(
        "lasting differences between workers",
        "workers equally fast on average",
        "give slow workers smaller batches, or leave them out",
    ),
    "node": PartWords("slowness that workers of a node share", "nodes equally fast", "replace the slow nodes"),
    "correlated": PartWords("slow phases of workers", "no slow phases of workers", PHASES_REMEDY),
    "noise": PartWords(
        "noise of single steps", "no difference from step to step", "wait less often, or for the fastest workers only"
    ),
}
NO_VARIATION = "no jitter"
"""the change that leaves out all parts"""


@dataclass(frozen=True, slots=True)
class VariationWaiting:
    """Mean steps of one algorithm with all of the variation, without a part of it, and without any.

    Args:
        whole: with all of it.
        without: without each part that the scenario has; empty if the variation has no parts.
        none: without any.
        nodes_change: whether the speeds of nodes change during a run.
    """

    whole: MeanStep
    without: Mapping[Part, MeanStep]
    none: MeanStep
    nodes_change: bool = False

    @staticmethod
    def pooled(seeds: Sequence[VariationWaiting]) -> VariationWaiting:
        """Returns the means over several seeds."""
        parts: list[Part] = [part for part in PARTS if any(part in waiting.without for waiting in seeds)]
        return VariationWaiting(
            _mean([waiting.whole for waiting in seeds]),
            {part: _mean([waiting.without.get(part, waiting.whole) for waiting in seeds]) for part in parts},
            _mean([waiting.none for waiting in seeds]),
            any(waiting.nodes_change for waiting in seeds),
        )

    def saved_s(self, part: Part) -> float:
        """Returns the seconds of waiting in a mean step that are saved without a part."""
        return self.whole.wait_s - self.without[part].wait_s

    def share(self, part: Part, waiting_s: float | None = None) -> float | None:
        """Returns the share of a part in the waiting; None if nothing is waited for.

        Args:
            part: the part.
            waiting_s: the waiting in a mean step; None: that of the prediction.
        """
        return _share(self.saved_s(part), self.whole.wait_s if waiting_s is None else waiting_s)

    def remedy(self, part: Part) -> str:
        """Returns what a user can do about a part."""
        return PHASES_REMEDY if part == "node" and self.nodes_change else PARTS[part].remedy

    @property
    def responsible(self) -> list[Part]:
        """The parts that make workers wait for more than a small part of the step, largest first.

        Empty if every step is drawn on its own, since then nothing can be distinguished.
        """
        if self.without.keys() <= {"noise"}:
            return []
        large: list[Part] = [part for part in self.without if self.saved_s(part) >= LEAST * self.whole.step_s]
        return sorted(large, key=lambda part: -self.saved_s(part))

    def record(self, name: str, measured_s: float | None = None) -> dict[str, Any]:
        """Returns the waiting by part for a JSON answer.

        Args:
            name: the algorithm.
            measured_s: the measured waiting in a mean step, if it is known.
        """
        return {
            "step_s": self.whole.step_s,
            "wait_s": self.whole.wait_s,
            "measured_wait_s": measured_s,
            "wait_without_variation_s": self.none.wait_s,
            "parts": [
                {
                    "part": part,
                    "wait_without_s": mean.wait_s,
                    "share": self.share(part),
                    "share_of_measured": None if measured_s is None else self.share(part, measured_s),
                    "remedy": self.remedy(part),
                }
                for part, mean in self.without.items()
            ],
            "words": describe_waiting(name, self, measured_s),
        }


def _share(part_s: float, whole_s: float) -> float | None:
    return part_s / whole_s if whole_s > 0 else None


def _mean(steps: Sequence[MeanStep]) -> MeanStep:
    return MeanStep(*map(fmean, zip(*steps, strict=True)))


def variation_waiting(
    plan: Plan, simulated: Callable[[Plan], MeanStep], whole: MeanStep | None = None
) -> VariationWaiting | None:
    """Returns the waiting of a run by part of the variation of its steps; None if they do not vary.

    Args:
        plan: the run.
        simulated: returns the mean step of a simulation of a plan.
        whole: that of the run, if it is known.
    """
    times = {plan.cluster.step_times_of(Rank(rank), plan.seed) for rank in range(plan.job.workers)}
    if not any(variation.varies for variation in times):
        return None
    parts: list[Part] = [part for part in PARTS if any(_has(variation, part) for variation in times)]
    none = simulated(replace(plan, cluster=plan.cluster.without_jitter()))
    alone = len(parts) == 1 and all(variation.trace is None for variation in times)

    def without(part: Part) -> MeanStep:
        if alone:
            return none

        def changed(variation: StepTimes) -> StepTimes:
            return variation.without(part) if _has(variation, part) else variation

        return simulated(replace(plan, cluster=plan.cluster.varied(changed)))

    return VariationWaiting(
        whole or simulated(plan),
        {part: without(part) for part in parts},
        none,
        any(variation.node > 0 and not isinf(variation.node_correlation_time_s) for variation in times),
    )


def _has(times: StepTimes, part: Part) -> bool:
    if times.trace is not None or not times.varies:
        return False
    return times.parts[part] > 0 or (part == "persistent" and bool(times.workers))


# --- in words --------------------------------------------------------------------------------------------------------


def describe_waiting(name: str, waiting: VariationWaiting | None, measured_s: float | None = None) -> str:
    """Returns a sentence on the parts that make workers wait, and what would remove each; "" if none matters.

    Args:
        name: the algorithm.
        waiting: its waiting by part; None: its steps do not vary.
        measured_s: the measured waiting in a mean step, if it is known.
    """
    if waiting is None or not (parts := waiting.responsible):
        return ""
    measured = "" if measured_s is None else f" (measured {MILLISECONDS.with_symbol(measured_s)})"
    whole, none = (MILLISECONDS.with_symbol(mean.wait_s) for mean in (waiting.whole, waiting.none))
    shares = "; ".join(_described(waiting, part, measured_s) for part in parts)
    said = (
        f"{name} is predicted to wait {whole} of a step{measured}, and {none} without any variation of steps. Of the "
        f"predicted waiting, {shares}."
    )
    if len(waiting.without) == 1:
        return said
    return f"{said} A share is what is saved without this part alone, so shares need not add up to 100 %."


def _described(waiting: VariationWaiting, part: Part, measured_s: float | None) -> str:
    of_measured = None if measured_s is None else waiting.share(part, measured_s)
    beside = "" if of_measured is None else f" ({_percent(of_measured)} of the measured)"
    return f"{_percent(waiting.share(part))}{beside} comes from {PARTS[part].cause}: {waiting.remedy(part)}"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


def waiting_blocks(name: str, waiting: VariationWaiting | None, measured_s: float | None = None) -> list[Block]:
    """Returns the table of the waiting without each part, if there are several, and the sentence about them.

    Args:
        name: the algorithm.
        waiting: its waiting by part; None: its steps do not vary.
        measured_s: the measured waiting in a mean step, if it is known.
    """
    words = describe_waiting(name, waiting, measured_s)
    if waiting is None or not words:
        return []
    table = [waiting_table(name, waiting, measured_s)] if len(waiting.without) > 1 else []
    return [*table, Claim(words + "\n")]


def waiting_table(name: str, waiting: VariationWaiting, measured_s: float | None = None) -> Table:
    """Returns the predicted waiting without each part of the variation, and without any.

    Args:
        name: the algorithm.
        waiting: its waiting by part.
        measured_s: the measured waiting in a mean step, if it is known.
    """
    whole_s, beside = waiting.whole.wait_s, () if measured_s is None else (Column("of measured", PERCENT),)
    columns = [Column("without"), Column("waiting", MILLISECONDS), Column("saved", PERCENT), *beside]

    def row(words: str, wait_s: float) -> Row:
        of_measured = () if measured_s is None else (_share(whole_s - wait_s, measured_s),)
        return (words, wait_s, _share(whole_s - wait_s, whole_s), *of_measured)

    rows = [row(PARTS[part].cause, mean.wait_s) for part, mean in waiting.without.items()]
    title = f"{name}: predicted waiting, {MILLISECONDS.with_symbol(whole_s)} of a step, by part of the variation"
    return Table(title, columns, [*rows, row("any variation", waiting.none.wait_s)])
