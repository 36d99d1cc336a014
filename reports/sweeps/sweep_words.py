"""Printed results of a sweep, from its table: a table of means over seeds, and conclusions in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.table import Table as Shown

from paceline.records.figures import significant
from paceline.reports.comparison.periods import MARK, say_unfinished
from paceline.reports.comparison.ties import SHOWN_ALIKE, leaders, undecided
from paceline.reports.comparison.time_to_target import rarely_evaluated
from paceline.reports.comparison.words import MISSING, between, listed, milli, per_cent, plain, seconds, shown
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


@dataclass(frozen=True, slots=True)
class Tied:
    """The rows that share a first place, and those that the seeds do not distinguish from it."""

    first: Rows
    close: Rows
    column: str
    unit: Callable[[float], str]

    @property
    def equally(self) -> str:
        """Why several rows are first; "" if there is one."""
        return SHOWN_ALIKE if len(self.first) > 1 else ""

    @property
    def best(self) -> Row:
        return self.first.iloc[0]

    @property
    def figure(self) -> str:
        """The best figure, with half of its interval."""
        return shown(figures_of(self.first, self.column)[self.first.index[0]], self.unit)

    def undecided(self, name: Callable[[Row], str], seeds: int, symbol: str = "") -> str:
        """Describes the rows that the seeds do not distinguish from the first, with their intervals; "" if none."""
        figures = figures_of(self.close, self.column)
        close = [(name(row), figures[place]) for place, row in self.close.iterrows()]
        them = "them" if len(self.first) > 1 else "it"
        return undecided(close, self.unit, symbol=symbol, seeds=seeds, them=them, most=SPELLED_OUT)


def _tied(rows: Rows, column: str, unit: Callable[[float], str], *, least: bool = False) -> Tied:
    """Returns the rows with the largest (or smallest) figure, and those that the seeds do not distinguish from it."""
    first, close = leaders(figures_of(rows, column), unit, least=least)
    return Tied(rows.loc[first], rows.loc[close], column, unit)


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(map(str, rows["algorithm"])))


def _scaling(table: Table, means: Rows) -> Iterator[str]:
    """Yields how well algorithms scale, for each combination of other values or, of many, for the best and worst."""
    known = means[means["efficiency"].notna() & means["comparable"]]
    if table.combinations(known) > SPELLED_OUT:
        yield " ".join(_extremes(table, known))
        return
    seeds = _seeds(table)
    groups = known.groupby(list(table.others), sort=False, dropna=False) if table.others else [((), known)]
    for _, rows in groups:
        if len(rows):
            said = " ".join([*_best(rows, seeds), *_halves(rows), *_peaks(rows), *_fastest(rows, seeds)])
            where = label(dict(rows.iloc[0]), table.others)
            yield f"With {where}: {said}" if where else said


def _seeds(table: Table) -> int:
    return int(table.frame["seed"].nunique())


def _algorithm(row: Row) -> str:
    return str(row["algorithm"])


def _best(rows: Rows, seeds: int) -> Iterator[str]:
    """Yields the efficiency on the largest cluster."""
    largest = rows[rows["workers"] == rows["workers"].max()]
    tied = _tied(largest, "efficiency", _share)
    best, names, close = tied.best, _names(tied.first), tied.undecided(_algorithm, seeds)
    where, gain = f"on {best['workers']} workers", _gain(best)
    if len(largest) == 1:
        yield f"On {best['workers']} workers {best['algorithm']} is {gain}."
        return
    if len(names) == 1:
        yield f"{names[0]} scales best: {where} it is {gain}{close}."
    elif len(tied.first) == len(largest):
        yield f"{listed(names)} scale {tied.equally}: {where} they are {gain}."
        return
    else:
        yield f"{listed(names)} scale best, {tied.equally}: {where} they are {gain}{close}."
    rest = largest.drop([*tied.first.index, *tied.close.index])
    if len(rest):
        last = _tied(rest, "efficiency", _share, least=True)
        names, close = _names(last.first), last.undecided(_algorithm, seeds)
        worst = f"{names[0]} scales worst" if len(names) == 1 else f"{listed(names)} scale worst, {last.equally}"
        yield f"{worst}: {_gain(last.best)}{close}."


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
        tied = _tied(line, "samples_per_s", rate)
        peak = int(max([*tied.first["workers"], *tied.close["workers"]]))
        if peak < line["workers"].max():
            peaks.setdefault(peak, []).append(name)
    for peak, names in sorted(peaks.items()):
        yield f"More than {peak} workers make {listed(names)} slower."


def _fastest(rows: Rows, seeds: int) -> Iterator[str]:
    if rows["algorithm"].nunique() > 1:
        tied = _tied(rows, "samples_per_s", rate)
        where = listed([_with_workers(row) for row in tied.first.to_dict("records")])
        many = f"{tied.figure} samples/s{tied.undecided(_with_workers, seeds)}"
        yield f"Fastest are {where}, {tied.equally}: {many}." if tied.equally else f"Fastest is {where}: {many}."


def _with_workers(row: Row) -> str:
    return f"{row['algorithm']} on {row['workers']}"


def _by_algorithm(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for name, line in rows.groupby("algorithm", sort=False):
        yield str(name), line


def _extremes(table: Table, known: Rows) -> Iterator[str]:
    """Yields the best and worst efficiency on the largest cluster, if there are too many combinations for a list."""
    largest = known[known["workers"] == known["workers"].max()]
    best, worst = (_tied(largest, "efficiency", _share, least=least) for least in (False, True))
    first, last = best.best, worst.best
    named = f"{first['algorithm']} with {label(dict(first), table.others)}"
    if len(best.first) == len(largest):
        yield f"On {first['workers']} workers all {len(largest)} cases scale {best.equally}: {_gain(first)}."
    else:
        more = f"{named} and {len(best.first) - 1} more scale best, {best.equally}"
        yield f"On {first['workers']} workers {more if best.equally else f'{named} scales best'}:"
        close = best.undecided(lambda row: f"{row['algorithm']} with {label(dict(row), table.others)}", _seeds(table))
        yield f"{_gain(first)}{close}; {last['algorithm']} with {label(dict(last), table.others)} worst: {_gain(last)}."
    yield f"Efficiency is under 50 % in {int((known['efficiency'] < HALF).sum())} of {len(known)} cases."


def _effects(table: Table, means: Rows) -> Iterator[str]:
    """Yields the effect of the values on throughput, if the size of the cluster does not vary."""
    seeds = _seeds(table)
    for name, line in _by_algorithm(means[means["samples_per_s"].notna()]):
        most = _tied(line, "samples_per_s", rate)
        if len(most.first) == len(line):
            yield f"{name} is equally fast at all points: {most.figure} samples/s."
            continue
        worst = _tied(line, "samples_per_s", rate, least=True).best
        where = listed([label(dict(row), table.paths) for _, row in most.first.iterrows()])
        close = most.undecided(lambda row: label(dict(row), table.paths), seeds)
        yield f"{name} is fastest with {where}: {most.figure} samples/s,"
        times = significant(most.best["samples_per_s"] / worst["samples_per_s"])
        yield f"{times} times as many as with {label(dict(worst), table.paths)}{close}."


def _goal(table: Table, means: Rows) -> Iterator[str]:
    """Yields which algorithm reaches the target first, and which points the seeds do not distinguish from it."""
    if table.target is None:
        return
    goal, path = table.target.words, table.target.path
    reached = means[means[path].notna()]
    if reached.empty:
        yield f"{goal[0].upper()}{goal[1:]} is reached nowhere."
        return

    def place(row: Row) -> str:
        workers = f" ({row['workers']} workers)" if table.sizes else ""
        return f"{row['algorithm']} with {label(dict(row), table.paths)}{workers}"

    tied = _tied(reached, path, seconds, least=True)
    places = [place(row) for _, row in tied.first.iterrows()]
    if len(places) > SPELLED_OUT:
        places = [*places[:SPELLED_OUT], f"{len(places) - SPELLED_OUT} more"]
    verb = f"are {listed(places)}, {tied.equally}" if tied.equally else f"is {places[0]}"
    yield f"Soonest at {goal} {verb}: {tied.figure} s{tied.undecided(place, _seeds(table), 's')}."
    if missed := len(means) - len(reached):
        yield f"It is not reached in {missed} of {len(means)} cases."
    evaluated = means[means["evaluations"].notna()]
    if few := rarely_evaluated((str(row["algorithm"]), dict(row)) for _, row in evaluated.iterrows()):
        yield few


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
