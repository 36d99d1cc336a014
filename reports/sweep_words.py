"""What a sweep says to a person: a table of means over seeds, and an answer in sentences. Both from its table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from rich.table import Table as Shown

from paceline.reports.sweep_table import HALF_WIDTH, Table, brief, highest, label, lowest, short_names
from paceline.reports.table import plain_table
from paceline.reports.words import MISSING, listed, milli, per_cent, plain, seconds

HALF = 0.5
"""efficiency under which every second worker is for nothing"""
SPELLED_OUT = 4
"""combinations of other values that are spoken of one by one"""
SHORT = 10
"""steps a worker; in fewer, the start of a run and its end weigh too much; provenance: ours"""
LONGEST = 24
"""letters of a varied value on a line of the table"""

Rows = pd.DataFrame
Row = Any
"""a row of the means"""


def rate(samples_per_s: float) -> str:
    """Samples per second.

    >>> rate(58291.4), rate(1.2345)
    ('58,291', '1.234')
    """
    return f"{samples_per_s:,.0f}" if samples_per_s >= 1000 else f"{samples_per_s:.4g}"


COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("workers", "work-\ners", lambda value: f"{value:.0f}"),
    ("samples_per_s", "samples\n/s", rate),
    ("speed_up", "speed\nup", plain),
    ("efficiency", "effic.\n%", per_cent),
    ("step_s_mean", "step\nms", milli),
    ("share_communication", "comm.\n%", per_cent),
    ("share_wait", "wait\n%", per_cent),
    ("staleness_mean", "stale-\nness", plain),
    ("time_to_accuracy_s", "target\ns", seconds),
    ("time_to_loss_s", "to loss\ns", seconds),
)
"""columns of the table, their headers and units"""


def sweep_table(table: Table) -> Shown:
    """One row per algorithm and point, along the lines of the figure; without columns in which nothing is known."""
    means, names = table.means(), short_names(table.paths)
    several = table.frame["seed"].nunique() > 1
    shown = plain_table(f"Sweep of {table.scenario}" + (": means over seeds" if several else ""))
    columns = [column for column in COLUMNS if means[column[0]].notna().any()]
    if any(means[path].tolist() == means["workers"].tolist() for path in table.sizes):
        columns = [column for column in columns if column[0] != "workers"]  # the path's own column says it
    if table.sizes:
        columns = [column for column in columns if column[0] != "step_s_mean"]  # for 80 columns; the table file has it
    for path in table.paths:
        shown.add_column(names[path], justify="right", overflow="fold", max_width=LONGEST)
    for _, header, _ in columns:
        shown.add_column(header, justify="right", no_wrap=True)  # a number must not be cut
    for _, line in means.groupby([*table.others, "algorithm"], sort=False, dropna=False):
        for row in line.to_dict("records"):
            figures = [_figure(row, name, unit) for name, _, unit in columns]
            shown.add_row(str(row["algorithm"]), *(brief(row[path]) for path in table.paths), *figures)
    return shown


def _figure(row: Row, name: str, unit: Callable[[float], str]) -> str:
    """A mean and, where there are several seeds, half of its interval below it."""
    if pd.isna(row[name]):
        return MISSING
    half = row.get(f"{name}{HALF_WIDTH}")
    return unit(float(row[name])) + ("" if pd.isna(half) else f"\n±{unit(float(half))}")


def sweep_words(table: Table) -> str:
    """The answer in sentences, a paragraph for each combination of other values."""
    means = table.means()
    paragraphs = list(_scaling(table, means)) if table.sizes else [" ".join(_effects(table, means))]
    paragraphs.append(" ".join([*_goal(table, means), *_diverged(table), *_short(table)]))
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def _scaling(table: Table, means: Rows) -> Iterator[str]:
    """Who scales how well, for each combination of other values, or from the best of many to the worst."""
    known = means[means["efficiency"].notna()]
    if table.combinations(known) > SPELLED_OUT:
        yield " ".join(_extremes(table, known))
        return
    groups = known.groupby(list(table.others), sort=False, dropna=False) if table.others else [((), known)]
    for _, rows in groups:
        if len(rows):
            said = " ".join([*_best(rows), *_halves(rows), *_peaks(rows), *_fastest(rows)])
            where = label(dict(rows.iloc[0]), table.others)
            yield f"With {where}: {said}" if where else said


def _best(rows: Rows) -> Iterator[str]:
    """Efficiency on the largest cluster."""
    largest = rows[rows["workers"] == rows["workers"].max()].sort_values("efficiency", ascending=False, kind="stable")
    best, worst = largest.iloc[0], largest.iloc[-1]
    if len(largest) == 1:
        yield f"On {best['workers']} workers {best['algorithm']} is {_gain(best)}."
    else:
        yield f"{best['algorithm']} scales best: on {best['workers']} workers it is {_gain(best)}."
        yield f"{worst['algorithm']} scales worst: {_gain(worst)}."


def _gain(row: Row) -> str:
    share = f"efficiency {100 * row['efficiency']:.0f} %"
    return f"{row['speed_up']:.1f} times as fast as on {row['base_workers']:.0f} ({share})"


def _halves(rows: Rows) -> Iterator[str]:
    """Where efficiency falls under a half."""
    fallen: dict[int, list[str]] = {}
    never = []
    for name, line in _by_algorithm(rows):
        below = line[line["efficiency"] < HALF]
        if len(below):
            fallen.setdefault(int(below["workers"].min()), []).append(name)
        else:
            never.append(name)
    if not fallen:
        yield "Efficiency stays above 50 %."
        return
    words = ", ".join(f"at {workers} workers for {listed(names)}" for workers, names in sorted(fallen.items()))
    yield f"Efficiency falls under 50 % {words}" + (f"; never for {listed(never)}." if never else ".")


def _peaks(rows: Rows) -> Iterator[str]:
    """Who gets slower with more workers."""
    for name, line in _by_algorithm(rows):
        peak = highest(line, "samples_per_s")
        if peak["workers"] < line["workers"].max():
            yield f"More than {peak['workers']} workers make {name} slower."


def _fastest(rows: Rows) -> Iterator[str]:
    if rows["algorithm"].nunique() > 1:
        first = highest(rows, "samples_per_s")
        yield f"Fastest is {first['algorithm']} on {first['workers']}: {rate(first['samples_per_s'])} samples/s."


def _by_algorithm(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for name, line in rows.groupby("algorithm", sort=False):
        yield str(name), line


def _extremes(table: Table, known: Rows) -> Iterator[str]:
    """The best and the worst efficiency on the largest cluster, where there are too many combinations to tell all."""
    largest = known[known["workers"] == known["workers"].max()]
    best, worst = highest(largest, "efficiency"), lowest(largest, "efficiency")
    yield f"On {best['workers']} workers {best['algorithm']} with {label(dict(best), table.others)} scales best:"
    yield f"{_gain(best)}; {worst['algorithm']} with {label(dict(worst), table.others)} worst: {_gain(worst)}."
    yield f"Efficiency is under 50 % in {int((known['efficiency'] < HALF).sum())} of {len(known)} cases."


def _effects(table: Table, means: Rows) -> Iterator[str]:
    """What the values do to throughput, where the size of the cluster does not vary."""
    for name, line in _by_algorithm(means[means["samples_per_s"].notna()]):
        best, worst = highest(line, "samples_per_s"), lowest(line, "samples_per_s")
        most, least = best["samples_per_s"], worst["samples_per_s"]
        if most > least:
            yield f"{name} is fastest with {label(dict(best), table.paths)}: {rate(most)} samples/s,"
            yield f"{most / least:.3g} times as many as with {label(dict(worst), table.paths)}."
        else:
            yield f"{name} is equally fast at all points: {rate(most)} samples/s."


def _goal(table: Table, means: Rows) -> Iterator[str]:
    """Who reaches the target soonest."""
    if table.target is None:
        return
    goal = f"{100 * table.target:g} % accuracy"
    reached = means[means["time_to_accuracy_s"].notna()]
    if reached.empty:
        yield f"{goal} is reached nowhere."
        return
    first = lowest(reached, "time_to_accuracy_s")
    where = f"{first['algorithm']} with {label(dict(first), table.paths)}"
    where += f" ({first['workers']} workers)" if table.sizes else ""
    yield f"Soonest at {goal} is {where}: {seconds(first['time_to_accuracy_s'])} s."
    if missed := len(means) - len(reached):
        yield f"It is not reached in {missed} of {len(means)} cases."


def _diverged(table: Table) -> Iterator[str]:
    for name, line in _by_algorithm(table.frame):
        if count := int(line["diverged"].sum()):
            yield f"{name} diverged in {count} of {len(line)} runs."


def _short(table: Table) -> Iterator[str]:
    """Says which figures are more start than run."""
    frame = table.frame
    short = frame[frame["steps"] < SHORT * frame["workers"]]
    if len(short):
        names = listed([name for name, _ in _by_algorithm(short)])
        yield f"Take care: {len(short)} of {len(frame)} runs ({names}) had fewer than {SHORT} steps a worker, so that"
        yield "their start weighs much; a later `stop` tells more."
