"""The sections of a report of runs: learning, timeline, staleness, time, links, scenario and versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.records import Run
from paceline.records.figures import (
    BYTES,
    COUNT,
    LINK_UTILISATION,
    STALENESS,
    STALENESS_MAX,
    STEP_TIME,
    THROUGHPUT,
    TIME_FRACTIONS,
    WALL_TIME,
)
from paceline.records.staleness import COUNTS
from paceline.reports.blocks import Block, Chart, Claim, Column, ReportSection, Table, Timeline
from paceline.reports.comparison.ranking import by_algorithm
from paceline.reports.link_words import figures_of, link_sentences
from paceline.reports.provenance import scenario_section, versions_section
from paceline.reports.run_answer import workers_of
from paceline.reports.run_charts import (
    busiest_links_chart,
    groups,
    learning_chart,
    link_kinds_chart,
    rank_shares_chart,
    rate_charts,
    shares_chart,
)
from paceline.reports.staleness import OWN, kinds_of, staleness_charts
from paceline.reports.timeline_data import label_of, timeline_of


def sections_of_runs(runs: Sequence[Run], *errors: ReportSection) -> list[ReportSection]:
    """Returns the sections of runs after the summary.

    Args:
        runs: the runs, of one scenario.
        errors: a section about errors of predictions, which is second.
    """
    assumptions = list(dict.fromkeys(text for run in runs for text in run.machine.get("assumptions", ())))
    made = [
        _learning(runs),
        *errors,
        _timeline(runs),
        staleness_section(runs),
        _time(runs),
        links_section(runs),
        scenario_section(scenario_of(runs), assumptions, max(map(workers_of, runs))),
        versions_section(runs),
    ]
    return [section for section in made if section is not None]


def scenario_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the scenario of runs, with the methods and the seeds of all of them."""
    first = dict(runs[0].scenario)
    methods = [method for named in by_algorithm(runs).values() for method in named[0].scenario.get("algorithms", ())]
    seeds = sorted({run.seed for run in runs})
    distinct = [method for at, method in enumerate(methods) if method not in methods[:at]]
    return {**first, "algorithms": distinct, "seed": seeds[0], "seeds": len(seeds)}


def first_seeds(runs: Sequence[Run]) -> list[Run]:
    """Returns the run with the lowest seed of each algorithm and kind, in the order of the runs."""
    first = {(run.algorithm, run.kind): run for run in sorted(runs, key=lambda run: -run.seed)}
    return [run for run in runs if first[run.algorithm, run.kind] is run]


def _learning(runs: Sequence[Run]) -> ReportSection | None:
    charts = [learning_chart(runs, "accuracy"), learning_chart(runs, "loss")]
    known: list[Block] = [chart for chart in charts if chart is not None]
    return ReportSection("learning", "Learning", known) if known else None


def _timeline(runs: Sequence[Run]) -> ReportSection | None:
    """Returns the section of the timeline of every rank; None if no run recorded spans."""
    shown = first_seeds(runs)
    data = [timeline for run in shown if (timeline := timeline_of(run, len(shown))) is not None]
    if not data:
        return None
    seed = f"Of each method seed {shown[0].seed} is shown. " if len(shown) < len(runs) else ""
    block = Timeline(
        title="What every rank does during the run",
        words=f"{seed}Each row is a rank; ranks after the workers are servers, and a rank that does several "
        "things at once has a row for each lane. A long stretch of waiting means that the rank depends on a "
        "slower one or on the network. Drag over the chart, or use the buttons, to look at a shorter time: "
        "then each bar is one operation, and pointing at it shows its step, length and size.",
        alt=f"Timelines of {len(data)} runs: coloured bars show what each rank does against time. The shares "
        "of time in the section Time have the same content as figures.",
        runs=data,
    )
    return ReportSection("timeline", "Timeline", [block])


# --- staleness -------------------------------------------------------------------------------------------------------


def staleness_section(runs: Sequence[Run]) -> ReportSection | None:
    """Returns the section of staleness by kind, rank and time; None if no run has an update.

    Args:
        runs: all runs of the report.
    """
    shown = [run for of_both in groups(first_seeds(runs)).values() for run in of_both]
    if not (kinds := kinds_of(shown)):
        return None
    every = {kind: drawn for kind, drawn in kinds.items() if kind != OWN}
    seed = f" Figures are those of seed {shown[0].seed}." if len(shown) < len(runs) else ""
    words = (
        "A gradient is stale if the weights have changed since the worker read them. Stale gradients may slow learning "
        f"down, but waiting for fresh ones costs time. Methods count it in different ways.{seed}"
    )
    columns = [
        Column("run"), Column("kind"), Column("mean", STALENESS.unit), Column("largest", STALENESS_MAX.unit),
    ]  # fmt: skip
    rows = [
        (look["name"], kind, notion.figures["mean"] or 0.0, notion.figures["max"])
        for kind, drawn in every.items()
        for look, notion, _ in drawn
    ]
    blocks: list[Block] = [
        Claim(words),
        *staleness_charts(kinds),
        Table("Staleness by kind", columns, rows, keys=2),
        Table("What each kind counts", [Column("kind"), Column("counts")], [(kind, COUNTS[kind]) for kind in every]),
    ]
    return ReportSection("staleness", "Staleness", blocks)


# --- time and links --------------------------------------------------------------------------------------------------


def _time(runs: Sequence[Run]) -> ReportSection:
    """Returns the section of where the time goes: shares by activity, rates, and the figures of every run."""
    shown = first_seeds(runs)
    charts: list[Chart | None] = [shares_chart(runs), rank_shares_chart(shown), *rate_charts(shown)]
    figures = [WALL_TIME, THROUGHPUT, STEP_TIME, *TIME_FRACTIONS.values()]
    rows = [(label_of(run), *(figure.of(run.summary) for figure in figures)) for run in runs]
    table = Table(
        "Time and throughput of every run", [Column("run"), *map(Column.of, figures)], rows, folded=True
    )  # fmt: skip
    return ReportSection("time", "Time", [*(chart for chart in charts if chart is not None), table])


def links_section(runs: Sequence[Run]) -> ReportSection | None:
    """Returns the section of links; None if no run counted what its links carried, as measured runs do not.

    Args:
        runs: all runs of the report.
    """
    shown = [run for run in first_seeds(runs) if len(run.tables.links)]
    if not shown:
        return None
    seed = f"Of each method seed {shown[0].seed} is shown. " if len({run.seed for run in runs}) > 1 else ""
    words = [
        (
            f"{seed}A link is one direction of a connection of the cluster. Its utilisation is the bytes that it "
            "carried, divided by its bandwidth times the length of the run. It is a mean over the run: a link may be "
            "full for some time although its mean is small."
        ),
        *(f"{run.algorithm}: {' '.join(link_sentences(run.summary))}" for run in shown),
    ]
    columns = [
        Column("method"), Column("kind"), Column("links", COUNT), Column("bytes", BYTES),
        Column("used, mean", LINK_UTILISATION.unit), Column("used, busiest", LINK_UTILISATION.unit),
    ]  # fmt: skip
    rows = [
        (run.algorithm, kind["kind"], kind["links"], kind["bytes"], kind["utilisation"], kind["max_utilisation"])
        for run in shown
        for kind in figures_of(run)["kinds"]
    ]
    both = "Both directions of a connection count as links."
    blocks: list[Block] = [
        *map(Claim, words),
        busiest_links_chart(shown),
        link_kinds_chart(shown),
        Table("Links by kind", columns, rows, keys=2, words=both),
    ]
    return ReportSection("links", "Links", blocks)
