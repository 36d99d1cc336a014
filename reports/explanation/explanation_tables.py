"""The printed tables of an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.records.figures import MILLISECONDS, STEP_TIME, Unit
from paceline.reports.blocks import Block, Cell, Claim, Column, Table
from paceline.reports.explanation.explain import Explanation
from paceline.reports.explanation.rows import GROUPS, Row
from paceline.reports.explanation.what_if import LEAST


def blocks(found: Explanation) -> list[Block]:
    """Returns the tables of one algorithm, and its conclusion."""
    return [breakdown_table(found), Claim(formula_list(found)), what_if_table(found), Claim(found.conclusion + "\n")]


def breakdown_table(found: Explanation) -> Table:
    """Returns the parts of the mean step time, with a sum for each group."""
    step = STEP_TIME.with_symbol(found.step_s)
    columns = [
        Column("part"), Column("time", MILLISECONDS, code="seconds"), Column("", Unit("%"), code="percent"),
        Column("hidden", MILLISECONDS, code="hidden_s"),
    ]  # fmt: skip
    rows: list[tuple[str, float, float, Any]] = []
    sums = []
    for group in GROUPS:
        if parts := [row for row in found.rows if row.group == group]:
            sums.append(len(rows))
            rows.append(_cells(group, parts))
            rows += [_cells(f"  {mark(found, row)} {row.name}", [row]) for row in parts]
    title = f"{found.name}: a step takes {step}, the mean of {found.steps} steps of all workers"
    return Table(title, columns, rows, tones=dict.fromkeys(sums, "strong"))


def _cells(name: str, rows: Sequence[Row]) -> tuple[str, float, float, Any]:
    """Returns the cells of the sum of some rows; what is not hidden has no figure."""
    hidden_s = sum(row.hidden_s for row in rows)
    return name, sum(row.seconds for row in rows), sum(row.percent for row in rows), hidden_s or Cell("")


def mark(found: Explanation, row: Row) -> str:
    """Returns the number of a row, by which the list of formulas refers to it.

    Args:
        found: the explanation.
        row: one of its rows.
    """
    return f"[{found.rows.index(row) + 1}]"


def formula_list(found: Explanation) -> str:
    """Returns the formula of each row, and the provenance of the values, each once."""
    lines, sources = [], dict[str, list[int]]()
    for number, row in enumerate(found.rows, 1):
        lines.append(f"{mark(found, row)} {row.formula}")
        if row.provenance:
            sources.setdefault(row.provenance, []).append(number)
    lines += ["", "Values:"]
    lines += [f"[{', '.join(map(str, numbers))}] {provenance}" for provenance, numbers in sources.items()]
    return "\n".join([*lines, ""])


def what_if_table(found: Explanation) -> Table:
    """Returns the effects of changes, largest first."""
    columns = [Column("change"), Column.of(STEP_TIME), Column("difference", signed=True)]
    rows = [
        (
            effect.words,
            effect.step_s,
            Cell(-effect.saved, words=f"under {100 * LEAST:g}" if abs(effect.saved) < LEAST else ""),
        )
        for effect in found.effects
    ]
    return Table(f"{found.name}: one change at a time", columns, rows)
