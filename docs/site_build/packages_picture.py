"""The picture of the packages, generated from the contracts of import-linter in pyproject.toml."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
FACE, EDGE, INK = "#DCE9F5", "#3B6EA5", "#1A1A1A"
LINE, MARGIN, GAP = 0.9, 0.5, 0.35
"""heights of a line of text, of the margins of a box, and between boxes"""


def layers(container: str) -> list[list[str]]:
    """Returns the packages of each layer of a package, top first; a layer may import those below it.

    Args:
        container: the package, such as `paceline`.

    >>> layers("paceline.algorithms")[-1]
    ['core']
    """
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (found,) = (each["layers"] for each in contracts if each.get("containers") == [container])
    return [[name.strip() for name in layer.split("|")] for layer in found]


def contained() -> list[str]:
    """Returns the packages that have layers of their own, `paceline` excluded."""
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    names = [name.removeprefix("paceline.") for each in contracts for name in each.get("containers", ())]
    return [name for name in names if name != "paceline"]


def svg() -> bytes:
    """Returns the picture: the folders on the left, the packages of each large one on the right."""
    inside = contained()
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    columns = figure.subplots(1, 1 + len(inside))
    _column(columns[0], "paceline", layers("paceline"))
    for axes, name in zip(columns[1:], inside, strict=True):
        _column(axes, name, layers(f"paceline.{name}"))
    words = "A box may import what stands below it; the packages in one box do not import each other."
    figure.supxlabel(words, fontsize=10, color=INK)
    stored = io.BytesIO()
    with rc_context({"svg.hashsalt": "packages", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(stored, format="svg", metadata={"Date": None})
    return stored.getvalue()


def _height(rows: list[list[str]]) -> float:
    return sum(LINE * len(names) + MARGIN + GAP for names in rows)


def _column(axes: Any, title: str, rows: list[list[str]]) -> None:
    """Draws a package: a box for each layer, as high as it has lines."""
    axes.set_title(title, fontsize=11, color=INK, fontweight="bold")
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(-_height(layers("paceline")), 0)
    top = 0.0
    for names in rows:
        height = LINE * len(names) + MARGIN
        axes.add_patch(FancyBboxPatch((0.01, -top - height), 0.98, height, boxstyle="square,pad=0", fc=FACE, ec=EDGE))
        for place, name in enumerate(names):
            axes.text(
                0.5, -top - MARGIN / 2 - LINE * (place + 0.5), name, ha="center", va="center", fontsize=9, color=INK
            )
        top += height + GAP


if __name__ == "__main__":
    import sys

    sys.stdout.buffer.write(svg())
