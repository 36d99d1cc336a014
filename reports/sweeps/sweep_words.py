"""Printed results of a sweep, from its table: a table of means over seeds, and conclusions in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from rich.table import Table as Shown

from paceline.records.figures import significant
from paceline.reports.comparison.periods import MARK, say_unfinished
from paceline.reports.comparison.ties import EQUALLY, leaders, tie
from paceline.reports.comparison.words import MISSING, between, listed, milli, per_cent, plain, seconds
from paceline.reports.plain_table import plain_table
from paceline.reports.sweeps.crossing_words import crossing_words, first_words
from paceline.reports.sweeps.sweep_links import link_words
from paceline.reports.sweeps.sweep_table import HALF_WIDTH, PER_STEP, Table, brief, figures_of, label, short_names

HALF = 0.5
"""efficiency below which half of the workers are wasted"""
SPELLED_OUT = 4
"""largest number of combinations of other values that are described one by one"""
SHORT = 10
"""steps per worker below which the start and the end of a run have too much weight; provenance: ours"""
LONGEST = 24
"""characters of a varied value per line of the table"""

Rows = pd.DataFrame
Row = Any
"""a row of the means"""


def rate(samples_per_s: float) -> str:
    """Formats samples per second.

    >>> rate(58291.4), rate(1.2345)
    ('58,291', '1.234')
    """
    return significant(samples_per_s, 4)


COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("workers", "work-\ners", lambda value: f"{value:.0f}"),
    ("samples_per_s", "samples\n/s", rate),
    ("speed_up", "speed\nup", plain),
    ("efficiency", "effic.\n%", per_cent),
    ("step_s_mean", "step\nms", milli),
    ("time_fraction_communication", "comm.\n%", per_cent),
    ("time_fraction_wait", "wait\n%", per_cent),
    (PER_STEP, "MB/\nstep", plain),
    ("staleness_mean", "stale-\nness", plain),
    ("time_to_accuracy_s", "target\ns", seconds),
    ("time_to_loss_s", "to loss\ns", seconds),
)
"""columns of the table, their headers and units"""


def sweep_table(table: Table) -> Shown:
    """Returns a table with a row per algorithm and point, in the order of the figure's lines, without empty columns."""
    means, names = table.means(), short_names(table.paths)
    several = table.frame["seed"].nunique() > 1
    shown = plain_table(f"Sweep of {table.scenario}" + (": means over seeds" if several else ""))
    columns = [column for column in COLUMNS if means[column[0]].notna().any()]
    if table.sizes or not megabytes_vary(means):
        columns = [column for column in columns if column[0] != PER_STEP]  # for 80 columns; the table file has it
    if any(means[path].tolist() == means["workers"].tolist() for path in table.sizes):
        columns = [column for column in columns if column[0] != "workers"]  # the path has its own column
    if table.sizes:
        columns = [column for column in columns if column[0] != "step_s_mean"]  # for 80 columns; the table file has it
    timed = any(name == "step_s_mean" for name, _, _ in columns)
    # of step time and throughput only one has a range, so that the table fits in 80 columns
    ranged = {"step_s_mean" if timed else "samples_per_s", "time_to_accuracy_s", "time_to_loss_s"}
    for path in table.paths:
        shown.add_column(names[path], justify="right", overflow="fold", max_width=LONGEST)
    for _, header, _ in columns:
        shown.add_column(header, justify="right", no_wrap=True)  # a number must not be cut
    for _, line in means.groupby([*table.others, "algorithm"], sort=False, dropna=False):
        for row in line.to_dict("records"):
            figures = [_figure(row, name, unit, ranged=name in ranged) for name, _, unit in columns]
            name = str(row["algorithm"]) + (MARK if row["unfinished"] else "")
            shown.add_row(name, *(brief(row[path]) for path in table.paths), *figures)
    for row in _failed_points(table):
        shown.add_row(
            f"{row['algorithm']}: failed", *(brief(row[path]) for path in table.paths), *[MISSING] * len(columns)
        )
    return shown


def megabytes_vary(means: Rows) -> bool:
    """Returns whether algorithms send different amounts per gradient; equal amounts need no column."""
    return bool(means.groupby("algorithm")[PER_STEP].mean().round(6).nunique() > 1)


def _failed_points(table: Table) -> list[Row]:
    """Returns the points and algorithms of which all seeds failed."""
    keys = [*table.paths, "algorithm"]
    failed = table.whole.groupby(keys, sort=False, dropna=False)["error"].agg(lambda errors: bool(errors.notna().all()))
    return [row for row in failed.reset_index().to_dict("records") if row["error"]]


def _figure(row: Row, name: str, unit: Callable[[float], str], *, ranged: bool) -> str:
    """Formats a mean; below it half of its interval, if there are several seeds, and the interval of predictions."""
    if pd.isna(row[name]):
        return MISSING
    half = row.get(f"{name}{HALF_WIDTH}")
    chance = "" if pd.isna(half) else f"\n±{unit(float(half))}"
    return unit(float(row[name])) + chance + (_range(row, name) if ranged else "")


def _range(row: Row, name: str) -> str:
    """Returns a further line of a cell: the interval of similar predictions, if the figure has one."""
    figure = "step_s" if name == "step_s_mean" else name
    low, high = (row.get(f"{figure}_{end}") for end in ("low", "high"))
    if pd.isna(low) or pd.isna(high):
        return ""
    return "\n" + between({"low": float(low), "high": float(high)}, 1e3 if figure == "step_s" else 1.0)


def sweep_words(table: Table) -> str:
    """Returns the conclusions in sentences, a paragraph for each combination of other values.

    Points that ended before their method's longest period had passed once are in the table but not compared.
    """
    every = table.means()
    means = every[~every["unfinished"]]
    paragraphs = list(_scaling(table, means)) if table.sizes else [" ".join(_effects(table, means))]
    paragraphs.append(" ".join(part for part in (first_words(table), crossing_words(table)) if part))
    paragraphs.append(_intervals(table))
    paragraphs.append(link_words(means, table))
    paragraphs.append(_unfinished(table))
    paragraphs.append(_failed(table))
    paragraphs.append(" ".join([*_goal(table, means), *_diverged(table), *_short(table)]))
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def _intervals(table: Table) -> str:
    """Returns what the ranges of the table and the bars of the figure are; nothing if no run has them."""
    return "" if table.share is None else f"A range below a figure: {100 * table.share:.0f} % of similar predictions."


def _tied(rows: Rows, column: str, unit: Callable[[float], str], *, least: bool = False) -> tuple[Rows, str]:
    """Returns the rows with the largest (or smallest) figure and, if there are several, how they share the place."""
    figures = figures_of(rows, column)
    first = leaders(figures, unit, least=least)
    return rows.loc[first], tie([figures[place] for place in first], unit) if len(first) > 1 else ""


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(map(str, rows["algorithm"])))


def _scaling(table: Table, means: Rows) -> Iterator[str]:
    """Yields how well algorithms scale, for each combination of other values or, of many, for the best and worst."""
    known = means[means["efficiency"].notna() & means["comparable"]]
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
    """Yields the efficiency on the largest cluster."""
    largest = rows[rows["workers"] == rows["workers"].max()]
    first, equally = _tied(largest, "efficiency", _share)
    best, names = first.iloc[0], _names(first)
    where, gain = f"on {best['workers']} workers", _gain(best)
    if len(largest) == 1:
        yield f"On {best['workers']} workers {best['algorithm']} is {gain}."
        return
    if len(names) == 1:
        yield f"{names[0]} scales best: {where} it is {gain}."
    elif len(first) == len(largest):
        yield f"{listed(names)} {_alike(equally)}: {where} they are {gain}."
        return
    else:
        yield f"{listed(names)} scale best, {equally}: {where} they are {gain}."
    rest = largest.drop(first.index)
    if len(rest):
        last, equally = _tied(rest, "efficiency", _share, least=True)
        names = _names(last)
        worst = f"{names[0]} scales worst" if len(names) == 1 else f"{listed(names)} scale worst, {equally}"
        yield f"{worst}: {_gain(last.iloc[0])}."


def _alike(how: str) -> str:
    """Returns the verb for cases that all scale alike."""
    return f"scale {how}" if how == EQUALLY else f"are {how} in how they scale"


def _share(efficiency: float) -> str:
    """Formats an efficiency for a sentence."""
    return f"{100 * efficiency:.0f} %"


def _gain(row: Row) -> str:
    share = f"efficiency {_share(row['efficiency'])}"
    return f"{row['speed_up']:.1f} times as fast as on {row['base_workers']:.0f} ({share})"


def _halves(rows: Rows) -> Iterator[str]:
    """Yields where the efficiency falls below a half."""
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
    """Yields which algorithms become slower with more workers."""
    peaks: dict[int, list[str]] = {}
    for name, line in _by_algorithm(rows):
        peak = int(_tied(line, "samples_per_s", rate)[0]["workers"].max())
        if peak < line["workers"].max():
            peaks.setdefault(peak, []).append(name)
    for peak, names in sorted(peaks.items()):
        yield f"More than {peak} workers make {listed(names)} slower."


def _fastest(rows: Rows) -> Iterator[str]:
    if rows["algorithm"].nunique() > 1:
        first, equally = _tied(rows, "samples_per_s", rate)
        where = listed([f"{row['algorithm']} on {row['workers']}" for row in first.to_dict("records")])
        many = f"{rate(first.iloc[0]['samples_per_s'])} samples/s"
        yield f"Fastest are {where}, {equally}: {many}." if equally else f"Fastest is {where}: {many}."


def _by_algorithm(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for name, line in rows.groupby("algorithm", sort=False):
        yield str(name), line


def _extremes(table: Table, known: Rows) -> Iterator[str]:
    """Yields the best and worst efficiency on the largest cluster, if there are too many combinations for a list."""
    largest = known[known["workers"] == known["workers"].max()]
    (best, equally), (worst, _) = (_tied(largest, "efficiency", _share, least=least) for least in (False, True))
    first, last = best.iloc[0], worst.iloc[0]
    named = f"{first['algorithm']} with {label(dict(first), table.others)}"
    if len(best) == len(largest):
        yield f"On {first['workers']} workers all {len(largest)} cases {_alike(equally)}: {_gain(first)}."
    else:
        more = f"{named} and {len(best) - 1} more scale best, {equally}" if equally else f"{named} scales best"
        yield f"On {first['workers']} workers {more}:"
        yield f"{_gain(first)}; {last['algorithm']} with {label(dict(last), table.others)} worst: {_gain(last)}."
    yield f"Efficiency is under 50 % in {int((known['efficiency'] < HALF).sum())} of {len(known)} cases."


def _effects(table: Table, means: Rows) -> Iterator[str]:
    """Yields the effect of the values on throughput, if the size of the cluster does not vary."""
    for name, line in _by_algorithm(means[means["samples_per_s"].notna()]):
        first, how = _tied(line, "samples_per_s", rate)
        most = first.iloc[0]["samples_per_s"]
        if len(first) == len(line):
            alike = "is equally fast at all points" if how in ("", EQUALLY) else f"has no fastest point, {how}"
            yield f"{name} {alike}: {rate(most)} samples/s."
            continue
        worst = _tied(line, "samples_per_s", rate, least=True)[0].iloc[0]
        where = listed([label(dict(row), table.paths) for _, row in first.iterrows()])
        yield f"{name} is fastest with {where}: {rate(most)} samples/s,"
        yield f"{significant(most / worst['samples_per_s'])} times as many as with {label(dict(worst), table.paths)}."


def _goal(table: Table, means: Rows) -> Iterator[str]:
    """Yields which algorithm reaches the target first."""
    if table.target is None:
        return
    goal, path = table.target.words, table.target.path
    reached = means[means[path].notna()]
    if reached.empty:
        yield f"{goal[0].upper()}{goal[1:]} is reached nowhere."
        return
    first, equally = _tied(reached, path, seconds, least=True)
    places = [
        f"{row['algorithm']} with {label(dict(row), table.paths)}"
        + (f" ({row['workers']} workers)" if table.sizes else "")
        for _, row in first.iterrows()
    ]
    if len(places) > SPELLED_OUT:
        places = [*places[:SPELLED_OUT], f"{len(places) - SPELLED_OUT} more"]
    verb = f"are {listed(places)}, {equally}" if equally else f"is {places[0]}"
    yield f"Soonest at {goal} {verb}: {seconds(first.iloc[0][path])} s."
    if missed := len(means) - len(reached):
        yield f"It is not reached in {missed} of {len(means)} cases."


def _unfinished(table: Table) -> str:
    """Describes which runs ended before their method's longest period had passed once."""
    frame = table.frame
    early = frame[frame["periods"] < 1]
    longest = {name: int(line["longest_period"].max()) for name, line in _by_algorithm(early)}
    return say_unfinished(longest, f" in {len(early)} of {len(frame)} runs")


def _failed(table: Table) -> str:
    """Describes which runs failed."""
    failed, count = table.failed, len(table.whole)
    if failed.empty:
        return ""
    named = []
    for row in failed.head(SPELLED_OUT).to_dict("records"):
        named.append(f"{row['algorithm']} with {label(row, table.paths)}, seed {row['seed']}")
    more = f" and {len(failed) - SPELLED_OUT} more" if len(failed) > SPELLED_OUT else ""
    return f"{len(failed)} of {count} runs failed and have no part in these figures: {'; '.join(named)}{more}."


def _diverged(table: Table) -> Iterator[str]:
    for name, line in _by_algorithm(table.frame):
        if count := int(line["diverged"].sum()):
            yield f"{name} diverged in {count} of {len(line)} runs."


def _short(table: Table) -> Iterator[str]:
    """Yields a warning about runs that are too short."""
    frame = table.frame
    short = frame[frame["steps"] < SHORT * frame["workers"]]
    if len(short):
        names = listed([name for name, _ in _by_algorithm(short)])
        yield f"Take care: {len(short)} of {len(frame)} runs ({names}) had fewer than {SHORT} steps a worker, so that"
        yield "their start has much weight; a later `stop` gives better figures."
