"""The printed tables of an explanation."""

from __future__ import annotations

from rich.table import Table

from paceline.records.figures import significant
from paceline.reports.explanation.breakdown import GROUPS
from paceline.reports.explanation.explain import Explanation
from paceline.reports.explanation.row import Row
from paceline.reports.explanation.what_if import LEAST
from paceline.reports.plain_table import plain_table


def tables(found: Explanation) -> list[Table | str]:
    """Returns the tables of one algorithm, and its conclusion."""
    return [breakdown_table(found), formula_list(found), what_if_table(found), found.conclusion, ""]


def breakdown_table(found: Explanation) -> Table:
    """Returns the parts of the mean step time, with a sum for each group."""
    step = f"{significant(1e3 * found.step_s, 4)} ms"
    title = f"{found.name}: a step takes {step}, the mean of {found.steps} steps of all workers"
    shown = plain_table(title, first="part")
    for header in ("ms", "%", "hidden\nms"):
        shown.add_column(header, justify="right")
    shown.columns[0].no_wrap = False
    for group in GROUPS:
        if rows := [row for row in found.rows if row.group == group]:
            sums = sum(row.seconds for row in rows), sum(row.percent for row in rows), sum(row.hidden_s for row in rows)
            shown.add_row(group, *_figures(*sums), style="bold")
            for number, row in enumerate(rows):
                shown.add_row(f"  {mark(found, row)} {row.name}", *_figures(row.seconds, row.percent, row.hidden_s))
                if number == len(rows) - 1:
                    shown.add_section()
    return shown


def _figures(seconds: float, percent: float, hidden_s: float) -> tuple[str, str, str]:
    hidden = f"{1e3 * hidden_s:.3f}" if hidden_s else ""
    return f"{1e3 * seconds:.3f}", f"{percent:.1f}", hidden


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
    shown = plain_table(f"{found.name}: one change at a time", first="change")
    for header in ("step\nms", "change\n%"):
        shown.add_column(header, justify="right")
    for effect in found.effects:
        small = abs(effect.saved) < LEAST
        change = f"under {100 * LEAST:g}" if small else f"{-100 * effect.saved:+.1f}"
        shown.add_row(effect.words, significant(1e3 * effect.step_s, 4), change)
    return shown
