"""The sections of a plan: the answer, the Pareto front, and the trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from paceline.reports.comparison.time_to_target import Aim
from paceline.reports.comparison.words import listed
from paceline.reports.html.charts.style import FAINT, INK, MARKS, axis, colour_of, figure, log_axis
from paceline.reports.html.report_parts import Chart, Grid, Section
from paceline.reports.planning.objectives import UNITS
from paceline.reports.planning.plan_words import figure_text
from paceline.reports.planning.search_space import Choice

WORDS = {"time": "time to the target", "cost": "price of a run to the target", "energy": "energy to the target"}
WIDE = 4.0
"""ratio of the largest to the smallest value from which an axis is logarithmic"""
Plan = Mapping[str, Any]
"""an entry of ``plans`` in plan.json"""


def key_of(objective: str) -> str:
    """Returns the key of an objective in a plan.

    >>> key_of("cost")
    'cost_usd'
    """
    return f"{objective}_{UNITS[objective].lower()}"


def choice_words(plan: Plan) -> str:
    """Describes the choice of a plan."""
    return Choice(**plan["choice"]).words


def plan_summary_section(answer: Mapping[str, Any], name: str) -> Section:
    """Returns the answer in words and the table of plans.

    Args:
        answer: the JSON answer of ``paceline plan``.
        name: the scenario's name.
    """
    target, objectives = answer["target"], answer["objectives"]
    trials, seeds = answer["trials"], answer["seeds"]["reported"]
    goal = Aim(target["aim"], target["value"], target.get("of", "")).words
    words = [
        (
            f"This report answers which method, cluster and hyper-parameters reach {goal} with the least "
            f"{listed(list(objectives))}, for the scenario {name}. {trials['count']} trials were simulated; "
            f"the best plans were simulated again with {len(seeds)} seed{'s' * (len(seeds) > 1)} that no trial had "
            "used, and only these figures are shown."
        ),
        *answer.get("words", "").splitlines(),
    ]
    if "words" not in answer:
        words.append(f"Best: {choice_words(answer['best'])}: {_figures(answer['best'], objectives)}.")
        words += list(answer["extrapolated"])
    return Section(id="summary", title="Summary", words=[one for one in words if one], parts=[_grid(answer)])


def _figures(plan: Plan, objectives: Sequence[str]) -> str:
    return listed([figure_text(plan[key_of(one)], UNITS[one]) for one in objectives])


def _grid(answer: Mapping[str, Any]) -> Grid:
    objectives = answer["objectives"]
    rows = []
    for plan in sorted(answer["plans"], key=lambda plan: (plan["reason"] is not None, not plan["pareto"])):
        figures = [figure_text(plan[key_of(one)], UNITS[one]) for one in objectives]
        rate = "–" if plan["samples_per_s"] is None else f"{plan['samples_per_s']:,.0f}"
        place = "on the front" if plan["pareto"] else plan["reason"] or "dominated"
        rows.append([choice_words(plan), place, *figures, rate, f"{plan['seeds_reached']} of {len(plan['rows'])}"])
    columns = ["plan", "place", *(WORDS[one] for one in objectives), "samples/s", "seeds that reached it"]
    return Grid(
        title="Plans that were simulated on fresh seeds",
        columns=columns,
        rows=rows,
        words="In brackets: 95 % interval over seeds.",
        numeric=frozenset({len(columns) - 2}),
    )


def front_section(answer: Mapping[str, Any], trials: Sequence[Mapping[str, Any]] = ()) -> Section:
    """Returns the Pareto front, or for one objective the plans beside each other.

    Args:
        answer: the JSON answer of ``paceline plan``.
        trials: the rows of trials.csv, which are drawn behind the plans.
    """
    first, *others = answer["objectives"]
    plans = [plan for plan in answer["plans"] if plan["reason"] is None]
    charts = [_scatter(plans, first, other, trials) for other in others] or [
        _bars(plans, first),
        *_effort(plans, first, trials),
    ]
    return Section(id="front", title="Pareto front" if others else "Plans", parts=charts)


def _scatter(plans: Sequence[Plan], first: str, other: str, trials: Sequence[Mapping[str, Any]]) -> Chart:
    made = figure(_title(first), _title(other), height=460)
    _behind(made, trials, key_of(first), key_of(other))
    names = list(dict.fromkeys(plan["choice"]["method"] for plan in plans))
    front = [plan for plan in plans if plan["pareto"]]
    made.add_scatter(
        x=[_mean(plan[key_of(first)]) for plan in front],
        y=[_mean(plan[key_of(other)]) for plan in front],
        name="Pareto front",
        mode="lines",
        line={"color": INK, "width": 1.2, "shape": "hv"},
        hoverinfo="skip",
    )
    for name in names:
        mine = [plan for plan in plans if plan["choice"]["method"] == name]
        x, y = ([plan[key_of(one)] for plan in mine] for one in (first, other))
        made.add_scatter(
            x=[_mean(value) for value in x],
            y=[_mean(value) for value in y],
            error_x={"array": [_half(value) for value in x], "thickness": 1},
            error_y={"array": [_half(value) for value in y], "thickness": 1},
            name=name,
            mode="markers",
            marker={
                "color": colour_of(names, name),
                "size": [12 if plan["pareto"] else 7 for plan in mine],
                "opacity": 1.0,
                "symbol": MARKS[names.index(name) % len(MARKS)],
            },
            text=[choice_words(plan) for plan in mine],
            hovertemplate=f"%{{text}}<br>%{{x:.4g}} {UNITS[first]}, %{{y:.4g}} {UNITS[other]}<extra></extra>",
        )
    for side, one in (("xaxis", first), ("yaxis", other)):
        made.update_layout({side: axis(_title(one), **_scale([_mean(plan[key_of(one)]) for plan in plans]))})
    best = listed([f"{choice_words(plan)} ({_figures(plan, [first, other])})" for plan in front])
    return Chart(
        title=f"{_capital(WORDS[other])} against {WORDS[first]}",
        words="No plan is better in both figures than a plan on the front; which one to choose is a matter of what "
        "time is worth. Large marks are on the front, bars are 95 % intervals, and small grey dots are trials.",
        alt=f"Scatter chart of {len(plans)} plans. On the front: {best}.",
        variants={"": made},
        height=460,
    )


def _bars(plans: Sequence[Plan], first: str) -> Chart:
    rows = sorted(plans, key=lambda plan: _mean(plan[key_of(first)]), reverse=True)
    names = list(dict.fromkeys(plan["choice"]["method"] for plan in plans))
    made = figure(_title(first), "")
    for name in names:
        mine = [plan for plan in rows if plan["choice"]["method"] == name]
        made.add_bar(
            x=[_mean(plan[key_of(first)]) for plan in mine],
            y=[_row(plan) for plan in mine],
            orientation="h",
            name=name,
            marker={"color": colour_of(names, name)},
            error_x={"array": [_half(plan[key_of(first)]) for plan in mine], "thickness": 1, "color": INK},
            hovertemplate=f"%{{y}}<br>%{{x:.4g}} {UNITS[first]}<extra></extra>",
        )
    height = 140 + 44 * len(rows)
    made.update_layout(height=height)
    made.update_yaxes(type="category", categoryorder="array", categoryarray=[_row(plan) for plan in rows])
    best = rows[-1]
    return Chart(
        title=f"{_capital(WORDS[first])} of every plan",
        words="The best plan is at the top. Thin lines are 95 % intervals over seeds: plans whose intervals overlap "
        "widely are not distinguished by these seeds.",
        alt=f"Bar chart of {len(rows)} plans; the best is {choice_words(best)} ({_figures(best, [first])}).",
        variants={"": made},
        height=height,
    )


def _row(plan: Plan) -> str:
    return choice_words(plan).replace(", ", ",<br>", 1)


def _effort(plans: Sequence[Plan], first: str, trials: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Returns the chart of all trials in their order, if there are any."""
    known = [one for one in trials if _known(one, key_of(first))]
    if not known:
        return []
    names = list(dict.fromkeys([plan["choice"]["method"] for plan in plans] + [str(one["method"]) for one in known]))
    made = figure("trial", _title(first), height=360)
    for name in names:
        mine = [one for one in known if one["method"] == name]
        made.add_scatter(
            x=[one["trial"] for one in mine],
            y=[one[key_of(first)] for one in mine],
            name=name,
            mode="markers",
            marker={"color": colour_of(names, name), "symbol": MARKS[names.index(name) % len(MARKS)], "size": 8},
            text=[f"{one['workers']} workers, batch {one['batch_per_worker']}" for one in mine],
            hovertemplate=f"{name}, %{{text}}<br>%{{y:.4g}} {UNITS[first]}<extra></extra>",
        )
    made.update_layout(yaxis=axis(_title(first), **_scale([float(one[key_of(first)]) for one in known])))
    return [
        Chart(
            title="Every trial that reached the target",
            words="Trials are made one after the other, and later ones use what earlier ones have shown. If the lowest "
            "points are among the last, more trials may find a better plan.",
            alt=f"Scatter chart of {len(known)} trials.",
            variants={"": made},
            height=360,
        )
    ]


def _behind(made: go.Figure, trials: Sequence[Mapping[str, Any]], x: str, y: str) -> None:
    known = [one for one in trials if _known(one, x) and _known(one, y)]
    if known:
        made.add_scatter(
            x=[one[x] for one in known],
            y=[one[y] for one in known],
            name="trials",
            mode="markers",
            marker={"color": FAINT, "size": 4, "opacity": 0.6},
            text=[f"trial {one['trial']}: {one['method']}" for one in known],
            hovertemplate="%{text}<extra></extra>",
        )


def _known(row: Mapping[str, Any], key: str) -> bool:
    value = row.get(key)
    return isinstance(value, int | float) and value == value


def _title(objective: str) -> str:
    return f"{WORDS[objective]}, {UNITS[objective]}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _mean(figure: Any) -> float:
    return float(figure["mean"] if isinstance(figure, Mapping) else figure)


def _half(figure: Any) -> float:
    return (figure["high"] - figure["low"]) / 2 if isinstance(figure, Mapping) else 0.0


def _scale(values: Sequence[float]) -> dict[str, Any]:
    if values and min(values) > 0 and max(values) / min(values) > WIDE:
        return log_axis(values)
    return {"rangemode": "tozero"}
