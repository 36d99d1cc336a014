"""Staleness by kind, rank and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.records import Run
from paceline.records.figures import significant
from paceline.records.staleness import CLOCK_GAP, COUNTS
from paceline.reports.comparison.words import listed
from paceline.reports.html.charts.staleness import course_chart, distribution_chart, rank_chart
from paceline.reports.html.report_parts import Chart, Grid, Section
from paceline.reports.html.sections.timeline import first_seeds
from paceline.reports.staleness.notions import Notion, notions_of

Kinds = Mapping[str, Mapping[str, tuple[Notion, float]]]
"""by kind of staleness and label of the run: the figures, and the length of the run in s"""


def staleness_section(runs: Sequence[Run]) -> Section | None:
    """Returns the section; None if no run has an update.

    Args:
        runs: all runs of the report.
    """
    shown = first_seeds(runs)
    both = len({run.kind for run in shown}) > 1
    names = list(dict.fromkeys(run.algorithm for run in shown))
    shown = sorted(shown, key=lambda run: names.index(run.algorithm))  # a method's simulation beside its measurement
    kinds: dict[str, dict[str, tuple[Notion, float]]] = {}
    for run in shown:
        label = f"{run.algorithm}, {run.kind}" if both else run.algorithm
        for kind, notion in notions_of(run).items():
            if notion.by_rank:
                kinds.setdefault(kind, {})[label] = (notion, run.summary["wall_s"])
    if not kinds:
        return None
    kinds = dict(sorted(kinds.items(), key=lambda entry: (entry[0] == CLOCK_GAP, -_largest_mean(entry[1]))))
    charts = _with_all(kinds)
    seed = f" Figures are those of seed {shown[0].seed}." if len(shown) < len(runs) else ""
    return Section(
        id="staleness",
        title="Staleness",
        words=[
            (
                "A gradient is stale if the weights have changed since the worker read them. Stale gradients may slow "
                f"learning down, but waiting for fresh ones costs time. Methods count it in different ways.{seed}"
            ),
        ],
        parts=[*_charts(charts), _grid(kinds), _meanings(kinds)],
    )


OWN = "each method's own"
"""the choice of all methods together, each with the kind by which it counts"""


def _with_all(kinds: Kinds) -> Kinds:
    """Adds in front a choice of all methods, if their own kinds are several: one chart then shows every method."""
    own = [rows for kind, rows in kinds.items() if kind != CLOCK_GAP]
    if len(own) < 2:
        return kinds
    labels = list(kinds.get(CLOCK_GAP, {})) or list(dict.fromkeys(label for rows in own for label in rows))
    together = {label: rows[label] for label in labels for rows in own if label in rows}
    return {OWN: together, **kinds}


def _largest_mean(rows: Mapping[str, tuple[Notion, float]]) -> float:
    return max(notion.figures["mean"] or 0.0 for notion, _ in rows.values())


def _charts(kinds: Kinds) -> list[Chart]:
    alt = listed([f"{kind}: {_means(rows)}" for kind, rows in kinds.items() if kind != OWN])
    return [
        Chart(
            title="How often each staleness occurs",
            words="Bars at 0 are fresh gradients; a long tail to the right means that some are applied very late.",
            alt=f"Bar chart of the distribution of staleness. Means: {alt}.",
            variants=_variants(kinds, lambda rows: distribution_chart({name: one for name, (one, _) in rows.items()})),
            choice="Kind of staleness",
        ),
        Chart(
            title="Mean staleness of each rank",
            words="Ranks above the others read their weights earlier, compared with the progress of the rest: usually "
            "they are the slower ones. For clock gaps it is the opposite.",
            alt=f"Dot chart of the mean staleness by rank. Means over ranks: {alt}.",
            variants=_variants(kinds, lambda rows: rank_chart({name: one for name, (one, _) in rows.items()})),
            choice="Kind of staleness",
            height=340,
        ),
        *_courses({kind: rows for kind, rows in kinds.items() if kind != OWN}, alt),
    ]


def _courses(kinds: Kinds, alt: str) -> list[Chart]:
    known = {
        kind: mine
        for kind, rows in kinds.items()
        if (mine := {name: one for name, one in rows.items() if one[0].series is not None})
    }
    if not known:
        return []
    return [
        Chart(
            title="Staleness during the run",
            words="Thick lines are means in twenty windows of the run, thin dotted lines the 95th percentile. A rising "
            "line means that ranks drift apart.",
            alt=f"Line chart of staleness against time. Means over the run: {alt}.",
            variants=_variants(known, course_chart),
            choice="Kind of staleness",
            height=360,
        )
    ]


def _variants(kinds: Kinds, draw: Callable[[Mapping[str, tuple[Notion, float]]], Any]) -> dict[str, Any]:
    return {kind: draw(rows) for kind, rows in kinds.items()}


def _means(rows: Mapping[str, tuple[Notion, float]]) -> str:
    return listed([f"{label} {significant(notion.figures['mean'] or 0.0)}" for label, (notion, _) in rows.items()])


def _grid(kinds: Kinds) -> Grid:
    rows = [
        [label, kind, f"{notion.figures['mean'] or 0.0:.2f}", str(notion.figures["max"])]
        for kind, mine in kinds.items()
        for label, (notion, _) in mine.items()
    ]
    columns = ["run", "kind", "mean", "largest"]
    return Grid(title="Staleness by kind", columns=columns, rows=rows, numeric=frozenset({2, 3}))


def _meanings(kinds: Kinds) -> Grid:
    return Grid(
        title="What each kind counts", columns=["kind", "counts"], rows=[[kind, COUNTS[kind]] for kind in kinds]
    )
