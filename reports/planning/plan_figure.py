"""The figure of a plan: objectives against each other with the Pareto front, or the time of each method's best plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from paceline.algorithms.core.files import replacing
from paceline.reports.comparison.accuracy_figure import FAINT, INK
from paceline.reports.palette import PALETTE
from paceline.reports.planning.objectives import UNITS, Objective
from paceline.reports.planning.plan_answer import Candidate, PlanAnswer

WORDS = {"time": "time to the target", "cost": "price of a run to the target", "energy": "energy to the target"}
WIDE = 4.0
"""ratio of the largest to the smallest figure from which an axis is logarithmic"""


def save_figure(answer: PlanAnswer, path: Path) -> None:
    """Writes the figure.

    Args:
        answer: the answer.
        path: the file; its ending selects the format.
    """
    with replacing(path) as hidden:
        plan_figure(answer).savefig(hidden)


def plan_figure(answer: PlanAnswer) -> Figure:
    """Draws the plans: a panel for each further objective against the first, or bars if there is one objective."""
    first, *others = answer.request.objectives
    figure = Figure(figsize=(8.6 if len(others) < 2 else 14.0, 5.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, max(1, len(others)), squeeze=False)[0]
    colours = {name: PALETTE[at % len(PALETTE)] for at, name in enumerate(answer.best_of_methods)}
    if others:
        for axes, other in zip(panels, others, strict=True):
            _scatter(axes, answer, first, other, colours)
    else:
        _bars(panels[0], answer, first, colours)
    target, seeds = answer.request.target.words, answer.request.reported_seeds
    figure.suptitle(
        f"{answer.request.scenario['name']}: plans for {target}",
        x=0.012,
        ha="left",
        fontsize=13,
        fontweight="bold",
        color=INK,
    )
    figure.supxlabel(
        f"means of {seeds} seeds that no trial used, with 95 % intervals"
        if seeds > 1
        else "one seed that no trial used",
        fontsize=8.5,
        color=FAINT,
    )
    return figure


def _scatter(axes: Axes, answer: PlanAnswer, first: Objective, other: Objective, colours: Mapping[str, str]) -> None:
    """Draws all confirmed plans, and the front as a line with a number at each of its plans."""
    for one in answer.plans:
        x, y = one.figure(first), one.figure(other)
        on_front = any(one is member for member in answer.front)
        axes.errorbar(
            _mean(x),
            _mean(y),
            xerr=_half(x),
            yerr=_half(y),
            fmt="o" if on_front else "x",
            markersize=8 if on_front else 6,
            color=colours[one.choice.method],
            elinewidth=0.8,
            alpha=1.0 if on_front else 0.6,
            zorder=3,
        )
    front = [(_mean(one.figure(first)), _mean(one.figure(other))) for one in answer.front]
    if len(answer.request.objectives) == 2:
        axes.step([x for x, _ in front], [y for _, y in front], where="post", color=INK, linewidth=1.0, zorder=2)
    for number, (x, y) in enumerate(front, start=1):
        axes.annotate(
            str(number), (x, y), xytext=(6, 6), textcoords="offset points", fontsize=9, fontweight="bold", color=INK
        )
    handles = [
        axes.plot([], [], "o", color=colours[one.choice.method], label=f"{number}  {one.choice.words}")[0]
        for number, one in enumerate(answer.front, start=1)
    ]
    named = {one.choice.method for one in answer.front}
    handles += [
        axes.plot([], [], "x", color=colour, label=name)[0] for name, colour in colours.items() if name not in named
    ]
    axes.legend(handles=handles, loc="best", fontsize=8, frameon=True, framealpha=0.9, edgecolor="none", labelcolor=INK)
    _dress(axes)
    plans = answer.plans
    _axis(axes, "x", first, [_mean(one.figure(first)) for one in plans])
    _axis(axes, "y", other, [_mean(one.figure(other)) for one in plans])


def _bars(axes: Axes, answer: PlanAnswer, first: Objective, colours: Mapping[str, str]) -> None:
    """Draws the best plan of each method as a bar, the best at the top."""
    plans: Sequence[Candidate] = list(answer.best_of_methods.values())[::-1]
    for place, one in enumerate(plans):
        figure = one.figure(first)
        axes.barh(place, _mean(figure), color=colours[one.choice.method], height=0.6, zorder=2)
        if (half := _half(figure)) is not None:
            axes.errorbar(_mean(figure), place, xerr=half, color=INK, elinewidth=1.0, capsize=3, zorder=3)
    axes.set_yticks(range(len(plans)), [one.choice.words.replace(", batch", ",\nbatch") for one in plans], fontsize=8.5)
    _dress(axes)
    axes.grid(axis="y", visible=False)
    axes.set_xlim(left=0.0)
    axes.set_xlabel(f"{WORDS[first]}, {UNITS[first]}", color=INK)


def _mean(figure: Any) -> float:
    return float(figure["mean"] if isinstance(figure, Mapping) else figure)


def _half(figure: Any) -> float | None:
    return (figure["high"] - figure["low"]) / 2 if isinstance(figure, Mapping) else None


def _axis(axes: Axes, side: str, objective: Objective, values: Sequence[float]) -> None:
    label = f"{WORDS[objective]}, {UNITS[objective]}"
    if side == "x":
        axes.set_xlabel(label, color=INK)
    else:
        axes.set_ylabel(label, color=INK)
    if min(values) > 0 and max(values) / min(values) > WIDE:
        (axes.set_xscale if side == "x" else axes.set_yscale)("log")
        own = axes.xaxis if side == "x" else axes.yaxis
        own.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        own.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        own.set_minor_locator(NullLocator())


def _dress(axes: Axes) -> None:
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)
