"""Links: which links of the cluster carry most, by method."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.records import Run
from paceline.reports.comparison.words import listed, size
from paceline.reports.html.charts.links import busiest_chart, height_of, kinds_chart
from paceline.reports.html.report_parts import Chart, Grid, Section
from paceline.reports.html.sections.timeline import first_seeds
from paceline.reports.link_words import figures_of, link_sentences, used_words
from paceline.reports.timeline_data import label_of


def links_section(runs: Sequence[Run]) -> Section | None:
    """Returns the section; None if no run counted what its links carried, as measured runs do not.

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
    return Section(id="links", title="Links", words=words, parts=[_busiest(shown), _kinds(shown), _grid(shown)])


def _busiest(shown: Sequence[Run]) -> Chart:
    said = listed([f"{run.algorithm} {used_words(float(run.tables.links['utilisation'].iloc[0]))}" for run in shown])
    return Chart(
        title="The busiest links",
        words="Bars are mean utilisations; the bytes that a link carried are beside its bar. A link close to 100 % "
        "limits the run: a faster link, or a method that sends less over it, would shorten it.",
        alt=f"Bars of the utilisation of links. The largest: {said}.",
        variants={label_of(run): busiest_chart(run) for run in shown},
        choice="Run",
        height=max(map(height_of, shown)),
    )


def _kinds(shown: Sequence[Run]) -> Chart:
    totals = listed([f"{run.algorithm} {size(figures_of(run)['total_bytes'])}" for run in shown])
    return Chart(
        title="Bytes by kind of link",
        words="A message counts on every link that it passes. Methods that average inside a node first carry less "
        "between nodes.",
        alt=f"Bars of the bytes on all links of each kind. In all: {totals}.",
        variants={"": kinds_chart(shown)},
        height=360,
    )


def _grid(shown: Sequence[Run]) -> Grid:
    rows = [
        [
            run.algorithm,
            kind["kind"],
            f"{kind['links']:,}",
            size(kind["bytes"]),
            used_words(kind["utilisation"]),
            used_words(kind["max_utilisation"]),
        ]
        for run in shown
        for kind in figures_of(run)["kinds"]
    ]
    return Grid(
        title="Links by kind",
        columns=["method", "kind", "links", "bytes", "used, mean", "used, busiest"],
        rows=rows,
        words="Both directions of a connection count as links.",
        numeric=frozenset({2, 3, 4, 5}),
    )
