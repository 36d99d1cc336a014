"""The errors of a comparison's predictions, their sources, and the errors of simpler models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from paceline.records.figures import number, significant
from paceline.reports.attribution.timeline import named
from paceline.reports.comparison.prediction_errors import figure_at
from paceline.reports.comparison.words import listed, milli, per_cent, plain, seconds, shown, signed
from paceline.reports.html.charts.style import figure
from paceline.reports.html.report_parts import Chart, Grid, Part, Section

FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("step_s.mean", "step time, ms", milli),
    ("samples_per_s", "samples/s", lambda value: f"{value:,.0f}"),
    ("staleness.mean_of_ranks", "staleness", plain),
    ("time_to_accuracy_s", "time to the target accuracy, s", seconds),
    ("time_to_loss_s", "time to the target loss, s", seconds),
    ("final_accuracy", "final accuracy, %", per_cent),
    ("final_loss", "final loss", lambda value: significant(value, 4)),
)
"""paths in a summary, their names with units, and how they are formatted"""
SIMPLER = {"no_message_cost": "without message cost", "no_spread": "without spread", "alpha_beta": "α–β model"}


def errors_section(answer: Mapping[str, Any]) -> Section:
    """Returns the section.

    Args:
        answer: the JSON answer of ``paceline compare``.
    """
    lines = answer["algorithms"]
    explained = [line for line in lines if line.get("explanation")]
    parts: list[Part] = [errors_grid(lines), *(_sources(line) for line in explained)]
    return Section(
        id="errors",
        title="Errors",
        words=[
            (
                "Each method was predicted before it was measured. The error is (simulated − measured) / measured; an "
                "error of accuracy is the difference in points. Simpler models of the same cluster show what a "
                "prediction without these details would have been worth."
            ),
            *(line["explanation"]["words"] for line in explained),
        ],
        parts=parts,
    )


def _models(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line["wrong_models"]))


def _model_words(name: str) -> str:
    return SIMPLER.get(name, name.replace("_", " "))


def errors_chart(lines: Sequence[Mapping[str, Any]]) -> Chart:
    """Returns the chart of the errors of step times, ours beside those of simpler models.

    Args:
        lines: the algorithms of the JSON answer.
    """
    made = figure("error of the mean step time, %", "", barmode="group", bargap=0.25)
    names = [line["name"] for line in lines][::-1]
    known = {line["name"]: line for line in lines}
    own = {name: _percent(known[name]["error"]) for name in names}
    others = {
        model: {name: _percent(known[name]["wrong_models"].get(model)) for name in names} for model in _models(lines)
    }
    rows = [("Paceline", "#0072B2", own)]
    greys = ("#8C6D31", "#E69F00", "#CC79A7", "#56B4E9")
    rows += [(_model_words(model), greys[at % len(greys)], values) for at, (model, values) in enumerate(others.items())]
    for label, colour, values in rows[::-1]:
        made.add_bar(
            x=[values[name] for name in names],
            y=names,
            orientation="h",
            name=label,
            marker={"color": colour},
            hovertemplate=f"%{{y}}, {label}: %{{x:.1f}} %<extra></extra>",
        )
    height = 150 + (18 * len(rows) + 20) * len(names)
    made.update_layout(height=height, legend={"traceorder": "reversed"})
    made.update_yaxes(type="category")
    said = listed([f"{name} {own[name]:+.1f} %" for name in names[::-1] if own[name] is not None])
    return Chart(
        title="Errors of predicted step times",
        words="Bars to the right of 0 are predictions that are too long. Paceline's bar should be much shorter than "
        "those of the simpler models; otherwise the details of the simulation have brought nothing for this method.",
        alt=f"Bar chart of errors of step times. Paceline: {said or 'unknown'}.",
        variants={"": made},
        height=height,
    )


def _percent(tree: Mapping[str, Any] | None) -> float | None:
    value = None if tree is None else number(figure_at(tree, "step_s.mean"))
    return None if value is None else 100 * value


MAIN = ("step_s.mean", "time_to_accuracy_s", "time_to_loss_s")
"""paths of the figures in the summary"""


def errors_grid(lines: Sequence[Mapping[str, Any]], paths: Sequence[str] | None = None) -> Grid:
    """Returns the table of simulated and measured figures with the errors of all models.

    Args:
        lines: the algorithms of the JSON answer.
        paths: the figures; None: all.
    """
    models = _models(lines)
    rows = []
    for line in lines:
        for path, name, unit in (one for one in FIGURES if paths is None or one[0] in paths):
            ours, theirs = figure_at(line["simulated"], path), figure_at(line["measured"], path)
            if number(ours) is None or number(theirs) is None:
                continue
            errors = [line["error"], *(line["wrong_models"].get(model) for model in models)]
            rows.append(
                [line["name"], name, shown(ours, unit), shown(theirs, unit), *(_error(one, path) for one in errors)]
            )
    columns = ["method", "figure", "simulated", "measured", "error, %", *(f"{_model_words(one)}, %" for one in models)]
    words = "With several seeds, ± is half of the 95 % interval of the mean."
    return Grid(
        title="Simulated and measured figures",
        columns=columns,
        rows=rows,
        words=words,
        numeric=frozenset(range(2, len(columns))),
    )


def _error(tree: Mapping[str, Any] | None, path: str) -> str:
    try:
        value = None if tree is None else number(figure_at(tree, path))
    except KeyError:
        value = None
    return "–" if value is None else signed(value)


def _sources(line: Mapping[str, Any]) -> Chart:
    """Returns the chart of the sources of one method's error: milliseconds of a mean step by activity."""
    found = line["explanation"]
    rows = [one for one in found["activities"] if abs(one["predicted_s"]) + abs(one["measured_s"]) > 0][::-1]
    made = _bars(rows)
    height = 150 + 44 * len(rows)
    made.update_layout(height=height)
    step = found["step_s"]
    relative = "" if step["relative"] is None else f" ({100 * step['relative']:+.1f} %)"
    largest = max(rows, key=lambda one: abs(one["difference_s"]), default=None)
    most = "" if largest is None else f"; the largest difference is that of {named(largest['activity'])}"
    return Chart(
        title=f"{line['name']}: where the error of the step time comes from",
        words="Every instant of a mean step is charged to one activity of one rank. Where the two bars differ, the "
        "model of this activity is wrong, and calibrating it helps.",
        alt=f"Bar chart of a mean step by activity: predicted {significant(1e3 * step['predicted_s'], 4)} ms, measured "
        f"{significant(1e3 * step['measured_s'], 4)} ms{relative}{most}.",
        variants={"": made},
        height=height,
    )


def _bars(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    made = figure("ms of a mean step", "", barmode="group")
    for label, key, colour in (("measured", "measured_s", "#D55E00"), ("simulated", "predicted_s", "#0072B2")):
        made.add_bar(
            x=[1e3 * one[key] for one in rows],
            y=[named(one["activity"]) for one in rows],
            orientation="h",
            name=label,
            marker={"color": colour},
            customdata=[1e3 * one["difference_s"] for one in rows],
            hovertemplate=(
                f"%{{y}}, {label}: %{{x:.4g}} ms<br>simulated − measured: %{{customdata:+.4g}} ms<extra></extra>"
            ),
        )
    made.update_layout(legend={"traceorder": "reversed"})
    made.update_yaxes(type="category")
    return made
