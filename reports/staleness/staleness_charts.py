"""Charts of staleness: its distribution, its mean by rank, and its course."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.records.figures import PERCENT, PLAIN, SECONDS, STALENESS
from paceline.records.staleness import Notion, records_of
from paceline.reports.blocks import Axis, Chart, Plot, Series
from paceline.reports.comparison.words import listed
from paceline.reports.timeline_data import MOST_RANKS, evenly

if TYPE_CHECKING:
    from paceline.reports.staleness.staleness_tables import Staleness

MOST_RUNS = 12
"""runs in one picture"""
MOST_VALUES = 200
"""values of a distribution; larger ones are left out of the chart"""
OWN = "each method's own"
"""the choice of all methods together, each with the kind by which it counts"""

Look = Mapping[str, Any]
"""name, colour and style of the series of a run"""
Drawn = tuple[Look, Notion, float]
"""one kind of staleness of a run: the look of its series, its figures, and the length of the run in s"""
Kinds = Mapping[str, Sequence[Drawn]]
"""by kind of staleness"""


def staleness_charts(kinds: Kinds) -> list[Chart]:
    """Returns the charts of which the reader selects the kind of staleness; without a course if none is known.

    Args:
        kinds: the runs by kind of staleness.
    """
    alt = listed([f"{kind}: {_means(drawn)}" for kind, drawn in kinds.items() if kind != OWN])
    charts = [
        Chart(
            title="How often each staleness occurs",
            words="0 means fresh gradients; a long tail to the right means that some are applied very late.",
            alt=f"Bar chart of the distribution of staleness. Means: {alt}.",
            plots=_plots(kinds, Axis("staleness"), Axis("share of updates", PERCENT), _distribution),
            choice="Kind of staleness",
        ),
        Chart(
            title="Mean staleness of each rank",
            words="Ranks above the others read their weights earlier, compared with the progress of the rest: usually "
            "they are the slower ones. For clock gaps it is the opposite.",
            alt=f"Dot chart of the mean staleness by rank. Means over ranks: {alt}.",
            plots=_plots(kinds, Axis("rank", zero=False), Axis("mean staleness", PLAIN), _ranks),
            choice="Kind of staleness",
            height=340,
        ),
    ]
    course = course_chart({kind: drawn for kind, drawn in kinds.items() if kind != OWN}, alt, _colours(kinds))
    return [*charts, course] if course is not None else charts


def charts_of_runs(found: Sequence[Staleness]) -> list[Chart]:
    """Returns two charts for each run: the distribution of its method's own kind of staleness, and the course.

    Args:
        found: the staleness of each run.

    Raises:
        InputError: there are too many runs for a picture, or a run has no updates because it is a summary.
    """
    if len(found) > MOST_RUNS:
        raise InputError(f"--out: found {len(found)} runs, expected at most {MOST_RUNS} in one figure")
    charts = []
    for one in found:
        run = one.run
        if (records := records_of(run)) is not None and records["kind"] == "summary":
            name = run.path or run.algorithm
            raise InputError(f"--out: {name} has only a summary, without updates; expected records: sampled or full")
        look: Look = {"name": run.algorithm, "colour": run.algorithm, "style": "solid"}
        kinds = {one.own: [(look, one.notions[one.own], run.summary["wall_s"])]}
        axis = Axis(one.own)
        distribution = Plot(axis, Axis("share of updates", PERCENT), _distribution(kinds[one.own][0]))
        charts.append(Chart(f"{run.algorithm}, seed {run.seed}", "", "", {"": distribution}))
        if (course := course_chart(kinds)) is not None:
            charts.append(replace(course, title="Mean, and dotted the 95th percentile"))
    return charts


def course_chart(kinds: Kinds, alt: str = "", colours: Sequence[str] = ()) -> Chart | None:
    """Returns the chart of staleness against time; None if no course is known.

    Args:
        kinds: the runs by kind of staleness.
        alt: the means, in words.
        colours: the colour keys of all charts beside it, in their order.
    """
    known = {
        kind: series for kind, drawn in kinds.items() if (series := [one for one in drawn if one[1].series is not None])
    }
    if not known:
        return None
    return Chart(
        title="Staleness during the run",
        words="Thick lines are means in twenty windows of the run, thin dotted lines the 95th percentile. A rising "
        "line means that ranks drift apart.",
        alt=f"Line chart of staleness against time. Means over the run: {alt}.",
        plots=_plots(known, Axis("time since the start", SECONDS), Axis("staleness", PLAIN), _course, colours),
        choice="Kind of staleness",
        height=360,
    )


def _colours(kinds: Kinds) -> list[str]:
    return list(dict.fromkeys(look["colour"] for drawn in kinds.values() for look, _, _ in drawn))


def _plots(
    kinds: Kinds, x: Axis, y: Axis, draw: Callable[[Drawn], list[Series]], colours: Sequence[str] = ()
) -> dict[str, Plot]:
    colours = colours or _colours(kinds)
    return {
        kind: Plot(x, y, [series for one in drawn for series in draw(one)], colours=colours)
        for kind, drawn in kinds.items()
    }


def _means(drawn: Sequence[Drawn]) -> str:
    return listed([f"{look['name']} {STALENESS.text(notion.figures['mean'] or 0.0)}" for look, notion, _ in drawn])


def _distribution(drawn: Drawn) -> list[Series]:
    look, notion, _ = drawn
    rows, total = notion.histogram[:MOST_VALUES], sum(count for _, count in notion.histogram)
    return [Series(x=[value for value, _ in rows], y=[count / total for _, count in rows], mark="bar", **look)]


def _ranks(drawn: Drawn) -> list[Series]:
    look, notion, _ = drawn
    rows = [notion.by_rank[at] for at in evenly(len(notion.by_rank), MOST_RANKS)]
    ranks, means = [row["rank"] for row in rows], [row["mean"] for row in rows]
    return [Series(x=ranks, y=means, mark="points", texts=[f"largest {row['max']}" for row in rows], **look)]


def _course(drawn: Drawn) -> list[Series]:
    look, notion, wall_s = drawn
    windows = [window for window in notion.over_time(wall_s) or () if window["mean"] is not None]
    x = [(window["from_s"] + window["to_s"]) / 2 for window in windows]
    late = {**look, "style": "dotted", "name": f"{look['name']}: 95th percentile"}
    return [
        Series(x=x, y=[window["mean"] for window in windows], **look),
        Series(x=x, y=[window["p95"] for window in windows], legend=False, **late),
    ]
