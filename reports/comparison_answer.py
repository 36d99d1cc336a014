"""The answer of `compare`: predicted and measured figures side by side, what they say about the prediction, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.records import Run
from paceline.records.figures import (
    FINAL_ACCURACY,
    FINAL_LOSS,
    MILLISECONDS,
    PERCENT,
    PLAIN,
    STALENESS_OF_RANKS,
    STEP_TIME,
    THROUGHPUT,
    TIME_TO_ACCURACY,
    TIME_TO_LOSS,
    number,
    signed_percent,
)
from paceline.reports.attribution.timeline import named
from paceline.reports.blocks import (
    Answer,
    Axis,
    Block,
    Chart,
    Claim,
    Column,
    Plot,
    ReportSection,
    Series,
    Table,
    TableCell,
)
from paceline.reports.comparison.comparison import STORED, ComparedLine, ComparisonResult
from paceline.reports.comparison.conclusion import conclusion
from paceline.reports.comparison.error_table import error_tables
from paceline.reports.comparison.run_table import SIMPLER, comparison_tables, error_cells
from paceline.reports.provenance import terms
from paceline.reports.run_answer import broken_promises, introduction, notes_of
from paceline.reports.run_charts import learning_chart, step_times_chart
from paceline.reports.run_report import sections_of_runs
from paceline.reports.words import listed

FIGURES = (
    STEP_TIME, THROUGHPUT, STALENESS_OF_RANKS, TIME_TO_ACCURACY, TIME_TO_LOSS, FINAL_ACCURACY, FINAL_LOSS,
)  # fmt: skip
"""the figures of the section of errors"""


def answer_of_comparison(
    comparison: ComparisonResult,
    runs: Sequence[Run] = (),
    *,
    explain: bool = False,
    missing: int = 0,
) -> Answer:
    """Returns the answer of a comparison.

    Args:
        comparison: the comparison.
        runs: the runs whose notes are shown; by default all of the comparison.
        explain: whether to show the sources of the errors of step times, which are always in the JSON document, and
            what makes workers wait, if the comparison knows it.
        missing: the number of runs of a stored comparison that were not found; the others are then `runs`.
    """
    blocks: list[Block] = [*comparison_tables(comparison)]
    for line in comparison.lines if explain else ():
        if line.error_sources is not None:
            blocks += error_tables(line.name, line.error_sources, line.variation)
    blocks.append(Claim(conclusion(comparison)))
    every = [run for line in comparison.lines for run in (*line.predicted_runs, *line.measured_runs)] or list(runs)
    notes = list(notes_of(runs or every))
    if missing:
        notes.append(
            f"{missing} of {missing + len(every)} runs of this comparison were not found, so charts lack them."
        )

    def summary() -> list[Block]:
        return [*broken_promises(every), errors_chart(comparison.lines), terms()]

    def sections() -> list[ReportSection]:
        errors = errors_section(comparison.lines)
        return sections_of_runs(every, errors) if every else [errors]

    return Answer(
        title=f"{comparison.scenario}: predicted and measured",
        blocks=blocks,
        data=comparison.document,
        subtitle=introduction(every) if every else listed([line.name for line in comparison.lines]),
        sections=sections,
        summary=summary,
        notes=notes,
    )


def stored_comparison(document: Mapping[str, Any]) -> ComparisonResult:
    """Returns a comparison without its runs, from its JSON document.

    Args:
        document: the document that ``paceline compare`` has stored.
    """
    lines = tuple(ComparedLine(**{key: line.get(key) for key in STORED}) for line in document["algorithms"])
    return ComparisonResult(
        scenario=document["scenario"],
        predicts=document["predicts"],
        lines=lines,
        other_load=document["other_load"],
        transports=document.get("transports", {}),
    )


def comparison_chart(comparison: ComparisonResult) -> Chart:
    """Returns the chart of accuracy against time, or that of the step times if nothing with an accuracy was learned.

    Args:
        comparison: the comparison, with its runs.
    """
    runs = [run for line in comparison.lines for run in (*line.measured_runs, *line.predicted_runs)]
    chart = learning_chart(runs, "accuracy") if comparison.has_accuracy else None
    if chart is not None:
        return chart
    simulated, measured = (
        {line.name: getattr(line, side) for line in comparison.lines} for side in ("simulated", "measured")
    )
    return step_times_chart(simulated, measured)


def errors_section(lines: Sequence[ComparedLine]) -> ReportSection:
    """Returns the section of errors of predictions, their sources, and the errors of simpler models.

    Args:
        lines: the algorithms of a comparison.
    """
    explained = [(line.name, line.explanation) for line in lines if line.explanation]
    words = (
        "Each method was predicted before it was measured. The error is (simulated − measured) / measured; an error of "
        "accuracy is the difference in points. Simpler models of the same cluster show what a prediction without these "
        "details would have been worth."
    )
    claims = [words]
    for _, explanation in explained:
        variation = explanation.get("variation") or {}
        claims += filter(None, [explanation["words"], variation.get("words")])
    charts = (_sources_chart(name, explanation) for name, explanation in explained)
    return ReportSection("errors", "Errors", [*map(Claim, claims), errors_table(lines), *charts])


def _models(lines: Sequence[ComparedLine]) -> dict[str, str]:
    """Returns the names of simpler models by their keys."""
    keys = dict.fromkeys(str(key) for line in lines for key in line.wrong_models)
    return {key: SIMPLER.get(key, key.replace("_", " ")) for key in keys}


def errors_table(lines: Sequence[ComparedLine]) -> Table:
    """Returns the table of simulated and measured figures with the errors of all models.

    Args:
        lines: the algorithms of a comparison.
    """
    models = _models(lines)
    rows = []
    for line in lines:
        for figure in FIGURES:
            sides = [figure.of(side) for side in (line.simulated, line.measured)]
            if None not in map(number, sides):
                values = (TableCell(value, unit=figure.unit, digits=figure.digits) for value in sides)
                rows.append([line.name, figure.title, *values, *error_cells(line, figure, models)])
    columns = [
        Column("method"), Column("figure"), Column("simulated", PLAIN), Column("measured", PLAIN),
        Column("error", signed=True), *(Column(name, signed=True) for name in models.values()),
    ]  # fmt: skip
    words = "With several seeds, ± is half of the 95 % interval of the mean."
    return Table("Simulated and measured figures", columns, rows, keys=2, words=words)


def errors_chart(lines: Sequence[ComparedLine]) -> Chart:
    """Returns the chart of the errors of step times, ours beside those of simpler models.

    Args:
        lines: the algorithms of a comparison.
    """
    names = [line.name for line in lines]
    own = [number(STEP_TIME.of(line.error)) for line in lines]
    series = [Series("Paceline", own, names, "bar")]
    for model, name in _models(lines).items():
        values = [number(STEP_TIME.of(line.wrong_models.get(model) or {})) for line in lines]
        series.append(Series(name, values, names, "bar"))
    said = listed(
        [f"{name} {signed_percent(value)} %" for name, value in zip(names, own, strict=True) if value is not None]
    )
    return Chart(
        title="Errors of predicted step times",
        words="Bars to the right of 0 are predictions that are too long. Paceline's bar should be much shorter than "
        "those of the simpler models; otherwise the details of the simulation have brought nothing for this method.",
        alt=f"Bar chart of errors of step times. Paceline: {said or 'unknown'}.",
        plots={"": Plot(Axis("error of the mean step time", PERCENT), Axis(""), series, horizontal=True)},
    )


def _sources_chart(name: str, explanation: Mapping[str, Any]) -> Chart:
    """Returns the chart of the sources of one method's error: milliseconds of a mean step by activity."""
    rows = [row for row in explanation["activities"] if abs(row["predicted_s"]) + abs(row["measured_s"]) > 0]
    names = [named(row["activity"]) for row in rows]
    texts = [f"simulated − measured: {MILLISECONDS.with_symbol(row['difference_s'])}" for row in rows]
    series = [
        Series(side, [row[key] for row in rows], names, "bar", texts=texts)
        for side, key in (("simulated", "predicted_s"), ("measured", "measured_s"))
    ]
    step = explanation["step_s"]
    relative = "" if step["relative"] is None else f" ({signed_percent(step['relative'])} %)"
    largest = max(rows, key=lambda row: abs(row["difference_s"]), default=None)
    most = "" if largest is None else f"; the largest difference is that of {named(largest['activity'])}"
    return Chart(
        title=f"{name}: where the error of the step time comes from",
        words="Every instant of a mean step is charged to one activity of one rank. Where the two bars differ, the "
        "model of this activity is wrong, and calibrating it helps.",
        alt=f"Bar chart of a mean step by activity: predicted {MILLISECONDS.with_symbol(step['predicted_s'])}, "
        f"measured {MILLISECONDS.with_symbol(step['measured_s'])}{relative}{most}.",
        plots={"": Plot(Axis("time of a mean step", MILLISECONDS), Axis(""), series, horizontal=True)},
    )
