"""The figures of a run, computed from its tables, so that a stored run gives the same summary again.

* The keys are those listed in docs/guide.md; a missing figure is None.
* A rank's time belongs to exactly one activity. If several lanes are busy at once, the first of `ACTIVITIES` counts:
  communication that overlaps with a gradient costs nothing. Time without a record counts as waiting. Redoing lost work
  counts as computing; recovery and writing checkpoints count as waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paceline.algorithms.core.job import Reason
from paceline.algorithms.core.method import StalenessKind
from paceline.records.extrapolated import Extrapolated
from paceline.records.faults import FaultFigures, Slowed, fault_figures
from paceline.records.figures import ACTIVITIES, IN_SUMMARY, nested
from paceline.records.keeping import RecordFigures
from paceline.records.links import LinkFigures, link_figures
from paceline.records.metrics import finite
from paceline.records.pace import PaceFigures
from paceline.records.prediction_interval import PredictionInterval
from paceline.records.staleness import Staleness, notions_of_tables, records_of, staleness_of, workers_of
from paceline.records.step_errors import StepErrors
from paceline.records.tables import Tables
from paceline.records.targets import NO_TARGETS, Axes, Crossing, Targets, axes_of, has_diverged, reading
from paceline.records.trace import LostRank, LostUpdates, Reads, Trace

if TYPE_CHECKING:
    from paceline.records.run import Run

Kind = Literal["simulated", "measured"]
KINDS = {activity: kind for kind, activity in enumerate(ACTIVITIES)} | {"redo": ACTIVITIES.index("compute")}
"""the index in `ACTIVITIES` of each activity in the table of spans, if it counts"""
Seconds = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]


class StepTime(TypedDict):
    """Seconds of the steps of all workers, see `steps_of`. The mean times the steps is the time of all workers from
    their first gradient to their last activity, so in a synchronous run wall_s = mean × steps / workers, plus what
    precedes the first gradient."""

    mean: float | None
    p50: float | None
    p95: float | None


class ReadingFigures(TypedDict):
    """The requests of all ranks to storage."""

    requests: int
    seeks: int
    """requests that did not begin where their reader's last one ended"""
    bytes: int
    bytes_per_s: float | None
    stall_share: float | None
    """share of all workers' time in which they waited for batches"""


class Summary(TypedDict):
    """All figures of one run, by their keys, and what belongs to them.

    Times are in seconds of the run's own clock, shares have no unit. `figures.IN_SUMMARY` says how the figures are
    named, printed and computed.
    """

    kind: Kind
    paced: bool
    """whether it was measured with steps paced to the scenario's device times"""
    emulated_network: bool
    wall_s: float
    steps: int
    """number of gradients of all ranks"""
    longest_period: int
    """steps of a worker after which the method has done everything once; 1 if all its steps are alike"""
    periods: float
    """steps / (workers × longest_period); below 1, the run is shorter than the method's period"""
    updates: int
    """number of updates of the weights being learned"""
    samples: int
    samples_per_s: float | None
    step_s: StepTime
    time_fraction: dict[str, float]
    bytes_sent: int
    staleness: Staleness
    lost_updates: LostUpdates | None
    """null if nothing was added to shared memory"""
    evaluations: int
    """how many there are, those at the start and at the end included"""
    target_accuracy: float | None
    target_loss: float | None
    smoothing: int
    """number of evaluations in the trailing mean from which figures at targets are computed"""
    interpolation: str
    """a description of how they are computed"""
    time_to_accuracy_s: float | None
    time_to_accuracy_resolution_s: float | None
    """time between the two evaluations around it"""
    samples_to_accuracy: float | None
    updates_to_accuracy: float | None
    time_to_loss_s: float | None
    time_to_loss_resolution_s: float | None
    samples_to_loss: float | None
    updates_to_loss: float | None
    final_loss: float | None
    final_accuracy: float | None
    diverged: bool
    stop_reason: Reason | None
    """why the run ended"""
    faults: NotRequired[FaultFigures]
    """only if the scenario has slowdowns or crashes"""
    failed_ranks: NotRequired[list[LostRank]]
    """only if workers died: the run continued without them, unless it `ended`"""
    ended: NotRequired[str]
    """only if a death that the scenario has planned ended the run: who died, and who waited for it"""
    stand_in: NotRequired[str]
    """only if a stand-in was learned in place of the scenario's model: which, and for what; losses and accuracies are
    the stand-in's"""
    broken_promises: NotRequired[list[str]]
    """only if a small run of a user's method violated a guarantee: which, and what it means for the figures"""
    calibration: NotRequired[str]
    """only of simulated runs with measured costs: the verdict of the calibration, or of the probe of a comparison"""
    reads: NotRequired[ReadingFigures]
    """only if samples are read from a file"""
    links: NotRequired[LinkFigures]
    """only of simulated runs on a cluster's graph: what its links carried"""
    pace: NotRequired[PaceFigures]
    """only if steps were paced to device times"""
    prediction_interval: NotRequired[PredictionInterval]
    """only of simulated runs with devices of the catalogue"""
    published_errors: NotRequired[list[StepErrors]]
    """only of simulated runs with devices of the catalogue: of the most similar published steps, for each chip"""
    records: NotRequired[RecordFigures]
    """only if spans and updates were not all kept: what was, and the errors of the figures estimated from it"""
    extrapolated: NotRequired[Extrapolated]
    """only if the scenario asks for it; these are not figures of this run alone"""


@dataclass(frozen=True, kw_only=True)  # without slots: a cached property is stored
class Reduced:
    """What the record of a run is reduced to, from complete tables or from counters: figures are computed from it.

    Args:
        wall_s: the run's own clock at its end.
        workers: number of workers, ranks 0 … workers − 1.
        longest_period: steps of a worker after which the method has done everything once.
        steps: gradients of all ranks.
        updates: updates that count.
        samples: training samples of all updates.
        step_s: seconds of the steps.
        time_fraction: share of the workers' time of each activity.
        bytes_sent: bytes that all ranks sent.
        staleness: that of the inputs of updates.
        axes: time, samples and updates at each evaluation.
        losses: one for each evaluation.
        accuracies: the same; NaN if the problem has none.
        targets: what the run aims at.
        stop_reason: why the run ended.
        faults: sums of slowdowns and crashes; None if the scenario has none.
        records: what was kept; None if all spans and updates were.
    """

    wall_s: float
    workers: int
    longest_period: int
    steps: int
    updates: int
    samples: int
    step_s: StepTime
    time_fraction: dict[str, float]
    bytes_sent: int
    staleness: Staleness
    axes: Axes
    losses: Sequence[float]
    accuracies: Sequence[float]
    targets: Targets = NO_TARGETS
    stop_reason: Reason | None = None
    faults: FaultFigures | None = None
    records: RecordFigures | None = None

    @cached_property
    def _crossings(self) -> Mapping[str, Crossing | None]:
        return self.targets.crossings(losses=self.losses, accuracies=self.accuracies)

    def at_target(self, aim: str, axis: Sequence[float]) -> float | None:
        """Returns the position on an axis where a target is first reached; None if it is not.

        Args:
            aim: accuracy or loss.
            axis: one of `axes`.
        """
        crossing = self._crossings[aim]
        return None if crossing is None else crossing.at(axis)

    def resolution_s(self, aim: str) -> float | None:
        """Returns the time between the two evaluations around a target; None if it is not reached."""
        crossing = self._crossings[aim]
        return None if crossing is None else crossing.resolution(self.axes.times_s)

    def last(self, values: Sequence[float]) -> float | None:
        """Returns the last value of losses or accuracies; None if there is none, or if it is not finite."""
        return finite(values[-1]) if values else None

    @property
    def diverged(self) -> bool:
        """Whether the loss became infinite, or ten times the first one."""
        return has_diverged(self.losses)


def reduce_tables(
    tables: Tables,
    *,
    wall_s: float,
    workers: int,
    staleness_kind: StalenessKind,
    longest_period: int = 1,
    targets: Targets = NO_TARGETS,
    stop_reason: Reason | None = None,
    slowed: Slowed | None = None,
    each_counts: bool = False,
) -> Reduced:
    """Reduces complete tables; the arguments that are not below are those of `Reduced`.

    Args:
        tables: the tables of the run.
        wall_s: see `Reduced`.
        workers: see `Reduced`.
        staleness_kind: the kind in the staleness column.
        longest_period: see `Reduced`.
        targets: see `Reduced`.
        stop_reason: see `Reduced`.
        slowed: the seconds that slowdowns added to work, for a run with slowdowns or crashes.
        each_counts: whether each input is a separate update, even if two have replaced the same version.
    """
    spans, updates, evaluations = tables.spans, tables.updates, tables.evaluations
    steps = steps_of(spans, workers, wall_s)
    counted = updates if each_counts else counting(updates, staleness_kind)
    return Reduced(
        wall_s=wall_s,
        workers=workers,
        longest_period=longest_period,
        steps=len(steps),
        updates=len(counted),
        samples=int(updates["samples"].sum()),
        step_s=step_times(steps),
        time_fraction=shares(spans, wall_s=wall_s, workers=workers),
        bytes_sent=int(spans["bytes"].sum()),
        staleness=staleness_of(staleness_kind, notions_of_tables(tables, staleness_kind, workers)),
        axes=axes_of(evaluations, counted),
        losses=evaluations["loss"].tolist(),
        accuracies=evaluations["accuracy"].tolist(),
        targets=targets,
        stop_reason=stop_reason,
        faults=None if slowed is None else fault_figures(spans, slowed),
    )


def summarise(
    reduced: Reduced,
    trace: Trace | None = None,
    *,
    kind: Kind,
    paced: bool = False,
    emulated_network: bool = False,
    pace: PaceFigures | None = None,
    stand_in: str | None = None,
) -> Summary:
    """Returns the summary of a run: every figure of `IN_SUMMARY`, and what belongs to them.

    Args:
        reduced: what its record was reduced to.
        trace: its record, for what was lost, read and carried by links, and for ranks that died; None: nothing of that.
        kind: simulated or measured.
        paced: whether a measured run was paced to device times.
        emulated_network: whether a measured run used an emulated network.
        pace: how well a paced run held its pace.
        stand_in: which problem was learned in place of the scenario's model, and for what; None if the model itself.
    """
    trace = trace or Trace()
    values = nested({figure.key: figure.compute(reduced) for figure in IN_SUMMARY if figure.compute is not None})
    values["staleness"] = {**reduced.staleness, **values["staleness"]}
    wall_s = reduced.wall_s
    absent = [{**failure, "absent_s": max(0.0, wall_s - failure["time_s"])} for failure in trace.failed_ranks]
    read = reading_figures(trace.reads.values(), wall_s=wall_s, workers=reduced.workers) if trace.reads else None
    optional = {
        "records": reduced.records,
        "faults": reduced.faults,
        "failed_ranks": absent or None,
        "ended": trace.ended,
        "stand_in": stand_in,
        "reads": read,
        "links": None if trace.links is None else link_figures(trace.links, wall_s),
        "pace": pace,
    }
    summary = {
        "kind": kind,
        "paced": paced,
        "emulated_network": emulated_network,
        **values,
        "lost_updates": trace.lost_updates,
        "target_accuracy": reduced.targets.accuracy,
        "target_loss": reduced.targets.loss,
        "smoothing": reduced.targets.smoothing,
        "interpolation": reading(reduced.targets.smoothing),
        **{name: value for name, value in optional.items() if value is not None},
    }
    return cast(Summary, summary)


def reading_figures(reads: Iterable[Reads], *, wall_s: float, workers: int) -> ReadingFigures:
    """Returns the sums over all ranks.

    Args:
        reads: the requests of each rank.
        wall_s: the length of the run.
        workers: number of workers.
    """
    requests, seeks, nbytes, stall_s = (sum(column) for column in zip(*reads, strict=True))
    return ReadingFigures(
        requests=requests,
        seeks=seeks,
        bytes=nbytes,
        bytes_per_s=nbytes / wall_s if wall_s > 0 else None,
        stall_share=stall_s / (wall_s * workers) if wall_s > 0 else None,
    )


def steps_of(spans: pd.DataFrame, workers: int, wall_s: float = math.inf) -> pd.DataFrame:
    """Returns one row per step of a worker, (rank, step, start_s, end_s), by rank and start.

    A step lasts from the start of its gradient to the start of the worker's next gradient. The last one lasts to the
    end of the worker's last activity, so that an average at the end of a run belongs to a step. A layer-wise gradient
    is one step.

    Args:
        spans: the table.
        workers: number of workers, ranks 0 … workers − 1.
        wall_s: the end of the run; later times do not count.
    """
    own = spans[(spans["rank"] < workers) & (spans["activity"] != "copy")]  # a copy ahead may end after the program
    gradients = own[own["activity"] == "compute"]
    steps = gradients.groupby(["rank", "step"])["start_s"].min().reset_index().sort_values(["rank", "start_s"])
    last_s = steps["rank"].map(own.groupby("rank")["end_s"].max().clip(upper=wall_s))
    steps["end_s"] = steps.groupby("rank")["start_s"].shift(-1).fillna(last_s).clip(lower=steps["start_s"])
    return steps.reset_index(drop=True)


def step_times(steps: pd.DataFrame) -> StepTime:
    """Returns mean, median and 95th percentile of the steps of `steps_of`."""
    seconds = (steps["end_s"] - steps["start_s"]).to_numpy()
    if not len(seconds):
        return StepTime(mean=None, p50=None, p95=None)
    p50, p95 = np.percentile(seconds, [50, 95])
    return StepTime(mean=float(seconds.mean()), p50=float(p50), p95=float(p95))


def counting(updates: pd.DataFrame, staleness_kind: StalenessKind) -> pd.DataFrame:
    """Returns the first row of each update of the weights; replicas that update together count once.

    If versions count averages of all workers, each local step between averages is a separate update.

    Args:
        updates: the table.
        staleness_kind: the kind in the staleness column.
    """
    columns = ["version_applied", "step"] if staleness_kind is StalenessKind.LOCAL_AGE else ["version_applied"]
    return updates.drop_duplicates(columns)


def shares(spans: pd.DataFrame, *, wall_s: float, workers: int) -> dict[str, float]:
    """Returns the share of the workers' time for each activity; the sum is 1.

    Args:
        spans: the table.
        wall_s: length of every rank's timeline; later times do not count.
        workers: number of workers, ranks 0 … workers − 1; a worker without spans waited all the time.
    """
    total_s = dict.fromkeys(ACTIVITIES, 0.0)
    for by_activity in rank_seconds(spans, wall_s=wall_s, ranks=range(workers)):
        for activity, seconds in by_activity.items():
            total_s[activity] += seconds
    whole_s = math.fsum(total_s.values())
    if whole_s <= 0:
        return {activity: float(activity == "wait") for activity in ACTIVITIES}
    return {activity: seconds / whole_s for activity, seconds in total_s.items()}


def rank_seconds(spans: pd.DataFrame, *, wall_s: float, ranks: Sequence[int]) -> Iterator[dict[str, float]]:
    """Yields the seconds of each of several ranks by activity; a time belongs to one activity.

    Args:
        spans: the table.
        wall_s: length of every rank's timeline.
        ranks: the ranks.
    """
    of_spans, kinds = spans["rank"].to_numpy(), spans["activity"].map(KINDS).fillna(-1).to_numpy(dtype=np.int64)
    start, end = (spans[name].to_numpy().clip(0.0, wall_s) for name in ("start_s", "end_s"))
    by_rank = np.argsort(of_spans, kind="stable")
    first, last = (np.searchsorted(of_spans[by_rank], np.asarray(ranks), side=side) for side in ("left", "right"))
    for begin, stop in zip(first.tolist(), last.tolist(), strict=True):
        rows = by_rank[begin:stop]
        yield _sweep(kinds[rows], start[rows], end[rows], wall_s)


def _sweep(kinds: Numbers, start: Seconds, end: Seconds, wall_s: float) -> dict[str, float]:
    """Returns one rank's seconds per activity; a time belongs to the first activity that covers it."""
    edges = np.unique(np.concatenate([start, end, [0.0, wall_s]]))
    lengths = np.diff(edges)
    free = np.ones(len(lengths), dtype=bool)
    seconds = dict.fromkeys(ACTIVITIES, 0.0)
    from_edge, to_edge = np.searchsorted(edges, start), np.searchsorted(edges, end)
    for kind in np.unique(kinds[kinds >= 0]):
        chosen = kinds == kind
        begun, ended = (np.bincount(at[chosen], minlength=len(edges)) for at in (from_edge, to_edge))
        covered = ((begun - ended).cumsum()[:-1] > 0) & free
        seconds[ACTIVITIES[kind]] = float(lengths[covered].sum())
        free &= ~covered
    seconds["wait"] += float(lengths[free].sum())
    return seconds


def step_seconds(run: Run) -> dict[int, float]:
    """Returns the mean time of each worker's steps."""
    if records_of(run) is not None:
        means = zip(run.tables.ranks["rank"].tolist(), run.tables.ranks["step_s"].tolist(), strict=True)
        return {rank: seconds for rank, seconds in means if np.isfinite(seconds)}
    steps = steps_of(run.tables.spans, workers_of(run.tables.spans), run.summary["wall_s"])
    means_s = (steps["end_s"] - steps["start_s"]).groupby(steps["rank"]).mean()
    return {int(str(rank)): seconds for rank, seconds in means_s.items()}
