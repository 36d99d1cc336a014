"""Accuracy and loss against time, samples and updates."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.records import Run
from paceline.records.figures import significant
from paceline.reports.comparison.words import listed
from paceline.reports.html.charts.learning import AXES, Measure, curves, learning_chart
from paceline.reports.html.report_parts import Chart, Section


def learning_section(runs: Sequence[Run]) -> Section | None:
    """Returns the section; None if nothing was learned.

    Args:
        runs: all runs of the report, of one scenario.
    """
    charts = [chart for measure in ("accuracy", "loss") if (chart := _chart(runs, measure)) is not None]
    if not charts:
        return None
    return Section(id="learning", title="Learning", parts=charts)


def _chart(runs: Sequence[Run], measure: Measure) -> Chart | None:
    found = curves(runs, measure, "time")
    if not found:
        return None
    target = runs[0].summary["target_accuracy" if measure == "accuracy" else "target_loss"]
    several = max(curve.seeds for curve in found) > 1
    words = [
        (
            "Against time, curves show which method is sooner; against samples, which method learns more from the same "
            "data; against updates, how much each change of the weights brings."
        ),
    ]
    if several:
        words.append("A line is the mean over seeds, and the band around it reaches from the lowest to the highest.")
    if len({run.kind for run in runs}) > 1:
        words.append(
            "Thin dashed lines are simulated, broad pale ones measured: the closer, the better was the prediction."
        )
    unit = " %" if measure == "accuracy" else ""
    ends = listed([f"{curve.algorithm} ({curve.kind}) {significant(curve.mean[-1], 4)}{unit}" for curve in found])
    title = "Accuracy on test samples" if measure == "accuracy" else "Loss on test samples"
    return Chart(
        title=f"{title} during training",
        words=" ".join(words),
        alt=f"Line chart of the {measure} of {len(found)} curves; at the end: {ends}.",
        variants={axis: learning_chart(runs, measure, axis, target) for axis in AXES},
        choice="Horizontal axis",
        height=420,
    )
