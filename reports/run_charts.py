"""Charts of runs: what was learned, where the time goes, rates during the run, and what links carried.

A method has its own colour. Beside measured runs, simulated ones are dashed lines on broad measured ones. Accuracies
and losses are means over as many evaluations as the time to the target is determined on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.records import Run
from paceline.records.figures import (
    ACTIVITIES,
    BYTES,
    FINAL_ACCURACY,
    FINAL_LOSS,
    LINK_UTILISATION,
    PERCENT,
    RATE,
    SECONDS,
    STEP_TIME,
    THROUGHPUT,
    TIME_FRACTIONS,
    Figure,
    Unit,
    number,
)
from paceline.records.metrics import smoothed
from paceline.records.staleness import update_weight
from paceline.records.summary import rank_seconds
from paceline.reports.blocks import Axis, Chart, Plot, Scale, Series
from paceline.reports.link_words import figures_of, name_of
from paceline.reports.palette import WORDS
from paceline.reports.timeline_data import MOST_POINTS, MOST_RANKS, evenly, label_of
from paceline.reports.words import listed

X = Literal["time", "samples", "epochs", "updates"]
Measure = Literal["accuracy", "loss"]
TIME = Axis("time since the start", SECONDS)
AXES: Mapping[X, Axis] = {
    "time": TIME,
    "samples": Axis("training samples processed by all workers"),
    "epochs": Axis("epochs of the training samples"),
    "updates": Axis("updates of the weights"),
}
MEASURES: Mapping[Measure, Figure] = {"accuracy": FINAL_ACCURACY, "loss": FINAL_LOSS}
NINES_FROM = 0.8
"""largest accuracy from which distances to 100 % matter, so that they decide the scale; provenance: ours"""
MEGABYTE_RATE = Unit("MB/s", 1e-6)
WINDOWS = 40
"""windows of a run in curves of rates; provenance: ours"""
MOST_LINES = 4
"""lines that vary fast and can still be told apart in one chart; provenance: ours"""
MOST_BARS = 16
"""links of a chart; provenance: ours"""


def looks(runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the name, the colour and the style of the series of each algorithm and kind.

    Args:
        runs: all runs of a chart.
    """
    both = len({run.kind for run in runs}) > 1
    styles = {"simulated": "dashed", "measured": "broad"}
    return {
        (run.algorithm, run.kind): {
            "name": f"{run.algorithm}, {run.kind}" if both else run.algorithm,
            "colour": run.algorithm,
            "style": styles[run.kind] if both else "solid",
        }
        for run in runs
    }


def groups(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Returns the runs of each algorithm and kind; the kinds of one algorithm follow each other."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    names = list(dict.fromkeys(run.algorithm for run in runs))
    for run in sorted(runs, key=lambda run: names.index(run.algorithm)):
        grouped.setdefault((run.algorithm, run.kind), []).append(run)
    return grouped


def broad_first(series: Sequence[Series]) -> list[Series]:
    """Returns series in the order in which thin lines lie on broad ones."""
    return sorted(series, key=lambda line: line.style != "broad")


# --- what was learned ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """A measure against an axis: the mean over seeds, and the lowest and highest seed."""

    algorithm: str
    kind: str
    seeds: int
    x: NDArray[Any]
    mean: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]


def curves(runs: Sequence[Run], measure: Measure, axis: X) -> list[RunCurve]:
    """Returns a curve for each algorithm and kind; those without this measure are left out.

    The curves of several seeds are interpolated at common positions, up to the end of the shortest.

    Args:
        runs: the runs.
        measure: accuracy or loss.
        axis: the horizontal axis.
    """
    learning = [run for run in runs if run.tables.evaluations[measure].notna().any()]
    return [_curve(name, kind, of_both, measure, axis) for (name, kind), of_both in groups(learning).items()]


def _curve(name: str, kind: str, runs: Sequence[Run], measure: Measure, axis: X) -> RunCurve:
    points = [_points(run, measure, axis) for run in runs]
    if len(points) == 1:
        x, y = points[0]
        kept = evenly(len(x), MOST_POINTS)
        return RunCurve(algorithm=name, kind=kind, seeds=1, x=x[kept], mean=y[kept], low=y[kept], high=y[kept])
    first, last = max(x[0] for x, _ in points), min(x[-1] for x, _ in points)
    x = np.linspace(first, last, min(MOST_POINTS, 2 * max(len(x) for x, _ in points)))
    values = np.stack([np.interp(x, *of_seed) for of_seed in points])
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    return RunCurve(algorithm=name, kind=kind, seeds=len(runs), x=x, mean=mean, low=low, high=high)


def _points(run: Run, measure: Measure, axis: X) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns positions and smoothed values of the evaluations of a run that have the measure."""
    table = run.tables.evaluations
    table = table[np.isfinite(table[measure])]
    values = smoothed(table[measure].tolist(), run.summary["smoothing"])
    if axis == "updates":
        updates = np.sort(run.tables.updates["time_s"].to_numpy())
        reached = np.searchsorted(updates, table["time_s"].to_numpy(), side="right")
        return reached * update_weight(run), values
    column = {"time": "time_s", "samples": "samples", "epochs": "epoch"}[axis]
    return table[column].to_numpy(dtype=float), values


def learning_chart(runs: Sequence[Run], measure: Measure) -> Chart | None:
    """Returns the chart of accuracy or loss during training; None if no run has it.

    Args:
        runs: the runs, of one scenario.
        measure: accuracy or loss.
    """
    in_time = curves(runs, measure, "time")
    if not in_time:
        return None
    figure = MEASURES[measure]
    words = [
        (
            "Against time, curves show which method is sooner; against samples, which method learns more from the same "
            "data; against updates, how much each change of the weights brings."
        ),
    ]
    if (window := runs[0].summary["smoothing"]) > 1:
        words.append(f"Values are means of the last {window} evaluations, on which the time to a target is determined.")
    if max(curve.seeds for curve in in_time) > 1:
        words.append("A line is the mean over seeds, and the band around it reaches from the lowest to the highest.")
    if len({run.kind for run in runs}) > 1:
        words.append(
            "Thin dashed lines are simulated, broad pale ones measured: the closer, the better was the prediction."
        )
    ends = listed([f"{curve.algorithm} ({curve.kind}) {figure.with_symbol(curve.mean[-1])}" for curve in in_time])
    return Chart(
        title=f"{measure.capitalize()} on test samples during training",
        words=" ".join(words),
        alt=f"Line chart of the {measure} of {len(in_time)} curves; at the end: {ends}.",
        plots={axis: _learning_plot(runs, measure, axis) for axis in AXES},
        choice="Horizontal axis",
        height=420,
    )


def _learning_plot(runs: Sequence[Run], measure: Measure, axis: X) -> Plot:
    figure, drawn, look = MEASURES[measure], curves(runs, measure, axis), looks(runs)
    names = list(dict.fromkeys(run.algorithm for run in runs))
    several = [curve.seeds > 1 for curve in drawn]
    series = [
        Series(
            x=curve.x,  # type: ignore[arg-type]
            y=curve.mean,  # type: ignore[arg-type]
            low=curve.low if banded else None,  # type: ignore[arg-type]
            high=curve.high if banded else None,  # type: ignore[arg-type]
            **look[curve.algorithm, curve.kind],
        )
        for curve, banded in zip(drawn, several, strict=True)
    ]
    target = runs[0].summary["target_accuracy" if measure == "accuracy" else "target_loss"]
    if target is not None:
        end = max(float(curve.x[-1]) for curve in drawn)
        name = f"target {figure.with_symbol(target)}"
        series.append(Series(name, [0.0, end], [target, target], colour="faint", style="dotted"))
    best = max(float(curve.high.max()) for curve in drawn)
    scale: Scale = "linear"
    if measure == "accuracy" and best >= NINES_FROM:
        scale = "nines"
    elif measure == "loss" and all((curve.low > 0).all() for curve in drawn):
        scale = "log"
    return Plot(AXES[axis], Axis(f"{measure} on test samples", figure.unit, scale), broad_first(series), colours=names)


# --- time ------------------------------------------------------------------------------------------------------------


def shares_of_runs(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Returns the fractions of the workers' time by algorithm and kind: means over seeds, one algorithm together."""
    look = looks(runs)
    return {
        look[key]["name"]: {
            activity: fmean(TIME_FRACTIONS[activity].of(run.summary) for run in of_both) for activity in ACTIVITIES
        }
        for key, of_both in groups(runs).items()
    }


def shares_of_ranks(run: Run) -> dict[str, dict[str, float]]:
    """Returns the fractions of the time of each rank whose spans were kept; of many, evenly spaced ones."""
    spans, wall_s = run.tables.spans, run.summary["wall_s"]
    ranks = np.unique(spans["rank"].to_numpy())
    ranks = ranks[evenly(len(ranks), MOST_RANKS // 2)]
    if wall_s <= 0:
        return {}
    each = rank_seconds(spans, wall_s=wall_s, ranks=ranks.tolist())
    return {
        f"rank {rank}": {activity: seconds / wall_s for activity, seconds in of_rank.items()}
        for rank, of_rank in zip(ranks.tolist(), each, strict=True)
    }


def shares_plot(shares: Mapping[str, Mapping[str, float]]) -> Plot:
    """Returns a stacked bar for each row: the fractions of its time by activity.

    Args:
        shares: the fractions of each row, by activity.
    """
    series = [
        Series(WORDS[activity], [of_row.get(activity, 0.0) for of_row in shares.values()], list(shares), "bar")
        for activity in ACTIVITIES
        if any(of_row.get(activity) for of_row in shares.values())
    ]
    return Plot(Axis("share of the time", PERCENT), Axis(""), series, stacked=True, horizontal=True)


def shares_chart(runs: Sequence[Run]) -> Chart:
    """Returns the chart of shares of the workers' time, a bar for each algorithm and kind.

    Args:
        runs: the runs.
    """
    shares = shares_of_runs(runs)
    computing = listed([f"{name} {PERCENT.with_symbol(of_row['compute'])}" for name, of_row in shares.items()])
    return Chart(
        title="Where the workers' time goes",
        words="Only computing makes progress; communication and waiting are the price of working together. "
        "Communication that overlaps with computing counts as computing.",
        alt=f"Stacked bars of shares of time. Computing: {computing}.",
        plots={"": shares_plot(shares)},
    )


def rank_shares_chart(runs: Sequence[Run]) -> Chart | None:
    """Returns the chart of shares of the time of each rank, of which the reader selects a run; None without spans.

    Args:
        runs: the runs.
    """
    plots = {label_of(run): shares_plot(shares) for run in runs if (shares := shares_of_ranks(run))}
    if not plots:
        return None
    return Chart(
        title="Where the time of each rank goes",
        words="A rank that computes nearly all the time while others wait is the one that holds them up. A server "
        "does not compute gradients.",
        alt="Stacked bars of the shares of time of each rank; the timeline shows the same against time.",
        plots=plots,
        choice="Run",
    )


def throughput_chart(runs: Sequence[Run]) -> Chart:
    """Returns the chart of the mean throughput of each algorithm and kind, with the range of its seeds.

    Args:
        runs: the runs.
    """
    series = []
    for key, look in ((key, looks(runs)[key]) for key in groups(runs)):
        values = [run.summary["samples_per_s"] for run in groups(runs)[key]]
        known = [value for value in values if value is not None]
        whole = len(known) == len(values)
        ends = ([min(known)], [max(known)]) if whole and len(known) > 1 else (None, None)
        mean = fmean(known) if whole else None
        series.append(Series(x=[look["name"]], y=[mean], mark="bar", low=ends[0], high=ends[1], **look))
    said = listed([f"{bar.name} {THROUGHPUT.with_symbol(bar.y[0])}" for bar in series])
    return Chart(
        title="Throughput",
        words="Training samples per second of all workers together.",
        alt=f"Bars of the throughput: {said}.",
        plots={"": Plot(Axis(""), Axis.of(THROUGHPUT), series)},
    )


def step_times_chart(simulated: Mapping[str, Mapping[str, Any]], measured: Mapping[str, Mapping[str, Any]]) -> Chart:
    """Returns the chart of predicted and measured mean step times.

    Args:
        simulated: the predicted summary of each algorithm; with several seeds, of all together.
        measured: the measured summaries.
    """
    series = []
    for side, summaries in (("simulated", simulated), ("measured", measured)):
        values = [STEP_TIME.of(summary) for summary in summaries.values()]
        ends = [
            [value[end] if isinstance(value, Mapping) else number(value) for value in values] for end in ("low", "high")
        ]
        series.append(Series(side, list(summaries), list(map(number, values)), "bar", low=ends[0], high=ends[1]))
    if not any(isinstance(STEP_TIME.of(summary), Mapping) for summary in measured.values()):
        series = [Series(bar.name, bar.x, bar.y, "bar") for bar in series]
    return Chart(
        title="Predicted and measured step times",
        words="With several seeds, lines at the bars are 95 % intervals of the means.",
        alt="Bars of the simulated and measured step times.",
        plots={"": Plot(Axis(""), Axis.of(STEP_TIME), series)},
    )


# --- rates during the run --------------------------------------------------------------------------------------------


def rate_charts(runs: Sequence[Run]) -> Iterator[Chart]:
    """Yields the charts of samples and of bytes per second against time, as far as runs recorded them.

    Args:
        runs: one run for each algorithm and kind.
    """
    means = listed([f"{run.algorithm} ({run.kind}) {THROUGHPUT.text(run.summary['samples_per_s'])}" for run in runs])
    if updating := [run for run in runs if len(run.tables.updates)]:
        yield Chart(
            title="Throughput during the run",
            words="Training samples whose gradients were applied, per second. A steady line means that the rate of the "
            "whole run can be trusted; a falling line means that something slows the workers down.",
            alt=f"Line chart of samples per second. Means of whole runs: {means}.",
            plots=_by_method(updating, "samples", Axis("samples applied", RATE)),
            choice="Method",
        )
    if sending := [run for run in runs if run.tables.spans["bytes"].sum() > 0]:
        yield Chart(
            title="Data sent by all ranks during the run",
            words="Messages and collectives count where they are sent, when they end. Of simulated runs, "
            "the section Links shows the load of single links.",
            alt="Line chart of megabytes per second that all recorded ranks send together.",
            plots=_by_method(sending, "bytes", Axis("data sent", MEGABYTE_RATE)),
            choice="Method",
        )


def _by_method(runs: Sequence[Run], column: str, axis: Axis) -> dict[str, Plot]:
    """Draws a few runs together; of more, each method alone, and then all of them."""
    look, names = looks(runs), list(dict.fromkeys(run.algorithm for run in runs))
    drawn = []
    for run in (run for of_both in groups(runs).values() for run in of_both):
        x, y = rates(run, column)
        drawn.append(Series(x=x, y=y, **look[run.algorithm, run.kind]))  # type: ignore[arg-type]
    drawn = broad_first(drawn)
    whole = Plot(TIME, axis, drawn, colours=names)
    if len(runs) <= MOST_LINES:
        return {"": whole}
    alone = {name: Plot(TIME, axis, [line for line in drawn if line.colour == name], colours=names) for name in names}
    return alone | {"all": whole}


def rates(run: Run, column: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the middles of windows in s, and the quantity per second in each.

    A window has at least four steps of a worker, and each amount is spread over the time since the event before it.
    Otherwise the number of events in a window, such as 1 or 2, would look like a change of the rate.

    Args:
        run: the run.
        column: samples, of updates; or bytes, of sends and collectives.
    """
    table = run.tables.updates if column == "samples" else run.tables.spans
    times = table["time_s" if column == "samples" else "end_s"].to_numpy()
    wall_s, weight = run.summary["wall_s"], update_weight(run) if column == "samples" else 1.0
    end_s = wall_s or 1.0
    steps = int(run.summary["periods"] * run.summary["longest_period"])  # of a worker
    edges = np.linspace(0.0, end_s, int(np.clip(steps // 4, 1, WINDOWS)) + 1)
    order = np.argsort(times, kind="stable")
    moments = np.concatenate([[0.0], np.clip(times[order], 0.0, end_s), [end_s]])
    amounts = np.concatenate([[0.0], table[column].to_numpy()[order], [0.0]])
    made = np.diff(np.interp(edges, moments, np.cumsum(amounts)))
    return (edges[:-1] + edges[1:]) / 2, made * weight / (edges[1] - edges[0])


# --- links -----------------------------------------------------------------------------------------------------------


def busiest_links_chart(runs: Sequence[Run]) -> Chart:
    """Returns the chart of the utilisation of the busiest links, of which the reader selects a run.

    Args:
        runs: runs whose links were counted, one of each algorithm.
    """
    said = listed(
        [f"{run.algorithm} {PERCENT.with_symbol(float(run.tables.links['utilisation'].iloc[0]))}" for run in runs]
    )
    return Chart(
        title="The busiest links",
        words="Bars are mean utilisations; the bytes that a link carried are beside its bar. A link close to 100 % "
        "limits the run: a faster link, or a method that sends less over it, would shorten it.",
        alt=f"Bars of the utilisation of links. The largest: {said}.",
        plots={label_of(run): _busiest_plot(run) for run in runs},
        choice="Run",
    )


def _busiest_plot(run: Run) -> Plot:
    rows = run.tables.links.head(MOST_BARS).to_dict("records")
    bars = Series(
        "used", [row["utilisation"] for row in rows], list(map(name_of, rows)), "bar",
        labels=[BYTES.text(row["bytes"]) for row in rows], texts=[row["kind"] for row in rows], legend=False,
    )  # fmt: skip
    return Plot(Axis.of(LINK_UTILISATION), Axis(""), [bars], horizontal=True)


def link_kinds_chart(runs: Sequence[Run]) -> Chart:
    """Returns the chart of the bytes on all links of each kind: a bar for each run.

    Args:
        runs: runs whose links were counted, one of each algorithm.
    """
    totals = listed([f"{run.algorithm} {BYTES.text(figures_of(run)['total_bytes'])}" for run in runs])
    series = []
    for run in runs:
        kinds = figures_of(run)["kinds"]
        texts = [f"{PERCENT.with_symbol(kind['utilisation'])} of the capacity" for kind in kinds]
        names, sizes = [kind["kind"] for kind in kinds], [kind["bytes"] for kind in kinds]
        series.append(Series(run.algorithm, names, sizes, "bar", texts=texts))
    return Chart(
        title="Bytes by kind of link",
        words="A message counts on every link that it passes. Methods that average inside a node first carry less "
        "between nodes.",
        alt=f"Bars of the bytes on all links of each kind. In all: {totals}.",
        plots={"": Plot(Axis(""), Axis("bytes on all links of the kind", Unit("GB", 1e-9)), series)},
    )
