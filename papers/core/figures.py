"""Draws the curves of claims, with the published figure as a dashed line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from paceline.algorithms.core.files import replacing
from paceline.reports.palette import FAINT, INK, PALETTE


def save_figures(results: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, str]:
    """Writes a PNG file for each result with a curve.

    Args:
        results: Results as `Result.answer` returns them.
        folder: An existing folder.

    Returns:
        The file names by the name of the claim.
    """
    names = {}
    for one in results:
        if one["curve"] is not None:
            names[one["name"]] = f"papers-{one['name']}.png"
            # without the version of matplotlib, so that equal figures are equal files
            with replacing(folder / names[one["name"]]) as hidden:
                curve_figure(one["curve"]).savefig(hidden, metadata={"Software": None})
    return names


def curve_figure(curve: Mapping[str, Any]) -> Figure:
    """Draws one curve.

    Args:
        curve: The answer of a `Curve`.
    """
    figure = Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(curve["lines"].items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, marker="o", markersize=4, color=PALETTE[number % len(PALETTE)], label=name)
    if curve["published"] is not None:
        axes.axhline(curve["published"], color=FAINT, linestyle="--", label="published")
    low, *_, high = sorted(x for points in curve["lines"].values() for x, _ in points)
    if curve["log_x"] and high >= 4 * low:  # a shorter axis would have fewer than two powers of 2 to read it by
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if curve["log_y"]:
        axes.set_yscale("log")
    axes.set_xlabel(curve["x"], color=INK)
    axes.set_ylabel(curve["y"], color=INK)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
