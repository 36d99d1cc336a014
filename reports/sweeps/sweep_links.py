"""Which method of a sweep uses its busiest link most, and which least, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from paceline.reports.comparison.words import size
from paceline.reports.link_words import used_words
from paceline.reports.sweeps.sweep_table import LINK, Table, label


def link_words(means: pd.DataFrame, table: Table) -> str:
    """Returns the sentence; nothing if only one method has links, or if all use them equally.

    Of each method, the point counts at which its busiest link has the largest utilisation.

    Args:
        means: the rows of `Table.means`.
        table: the table of the sweep.
    """
    known = means[means[LINK].notna()]
    rows = [
        line.sort_values(f"{LINK}_utilisation", kind="stable", ascending=False).iloc[0]
        for _, line in known.groupby("algorithm", sort=False)
    ]
    rows.sort(key=lambda row: row[f"{LINK}_utilisation"], reverse=True)
    if len({_used(row) for row in rows}) < 2:
        return ""
    most, least = rows[0], rows[-1]
    return (
        f"{most['algorithm']} uses its busiest link most: {_described(most, table.paths)}; {least['algorithm']} least: "
        f"{_described(least, table.paths)}."
    )


def _used(row: Any) -> str:
    return used_words(float(row[f"{LINK}_utilisation"]))


def _described(row: Any, paths: Sequence[str]) -> str:
    where = f" with {label(dict(row), paths)}" if paths else ""
    return f"{row[LINK]}, {_used(row)} of its capacity ({size(row[f'{LINK}_bytes'])}){where}"
