"""Conclusions of a sweep in sentences: what scales, is fastest and first at the target, and where the order changes.

Points that ended before their method's longest period had passed once are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, floor, inf, isnan
from typing import Any

import pandas as pd

from paceline.records.figures import (
    BYTES,
    DIVERGED,
    EFFICIENCY,
    EVALUATIONS,
    LINK_UTILISATION,
    LONGEST_PERIOD,
    PERIODS,
    SPEED_UP,
    STEPS,
    THROUGHPUT,
    Figure,
    significant,
)
from paceline.reports.comparison.ranking import SHOWN_ALIKE, leaders, rarely_evaluated, say_unfinished, undecided
from paceline.reports.sweeps.crossings import (
    DIFFERENCE,
    PLACE,
    LineCrossing,
    axis_values,
    compared_figures,
    crossings,
    enough,
    kind_of,
    sign_of,
)
from paceline.reports.sweeps.sweep_table import (
    BASE_WORKERS,
    LINK,
    LINK_BYTES,
    LINK_USE,
    SweepTable,
    label,
    short_names,
    value_of,
)
from paceline.reports.words import listed

HALF = 0.5
"""efficiency below which half of the workers are wasted"""
SPELLED_OUT = 4
"""largest number of combinations of other values, points or runs that are described one by one"""
SHORT = 10
"""steps per worker below which the start and the end of a run have too much weight; provenance: ours"""
ALL_PAIRS = 3
"""number of algorithms up to which every pair has a sentence; of more, those that are best on either side"""
MOST_CROSSINGS = 6
"""largest number of sentences about crossings; the report and sweep.json have all of them"""
SEEDS_NEEDED = next(count for count in range(2, 100) if enough(count))
FALLS = f"Efficiency falls under {EFFICIENCY.with_symbol(HALF)}"

Rows = pd.DataFrame
Row = Any
"""a row of the means"""


def sweep_words(table: SweepTable) -> list[str]:
    """Returns the conclusions, a paragraph each.

    Args:
        table: the table of the sweep.
    """
    means = table.means()
    means = means[~means["unfinished"]]
    paragraphs = list(_scaling(table, means)) if table.sizes else [" ".join(_effects(table, means))]
    paragraphs += [
        " ".join(part for part in (first_words(table), crossing_words(table)) if part),
        link_words(table, means),
        _unfinished(table),
        _failed(table),
        " ".join([*_goal(table, means), *_diverged(table), *_short(table)]),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


class Best:
    """The rows with the best figure, and those that the seeds do not distinguish from them.

    Args:
        table: the table of the sweep.
        rows: rows of the means that have the figure.
        figure: the figure.
        worst: whether to take the worst figure instead.
    """

    def __init__(self, table: SweepTable, rows: Rows, figure: Figure, *, worst: bool = False) -> None:
        self._figure, self._seeds = figure, int(table.frame["seed"].nunique())
        self._values = {place: value_of(row, figure) for place, row in rows.iterrows()}
        first, close = leaders(self._values, figure, worst=worst)
        self.first, self.close = rows.loc[first], rows.loc[close]
        self.row: Row = self.first.iloc[0]
        self.equally = SHOWN_ALIKE if len(first) > 1 else ""
        self.value = figure.with_symbol(self._values[first[0]])

    def undecided(self, name: Callable[[Row], str]) -> str:
        """Describes the rows that the seeds do not distinguish from the first, with their intervals; "" if none."""
        return undecided(
            [(name(row), self._values[place]) for place, row in self.close.iterrows()],
            self._figure,
            seeds=self._seeds,
            them="them" if self.equally else "it",
            most=SPELLED_OUT,
        )


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(map(str, rows["algorithm"])))


def _by_algorithm(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for name, line in rows.groupby("algorithm", sort=False):
        yield str(name), line


# --- how algorithms scale --------------------------------------------------------------------------------------------


def _scaling(table: SweepTable, means: Rows) -> Iterator[str]:
    """Yields how well algorithms scale, for each combination of other values or, of many, for the best and worst."""
    known = means[means[EFFICIENCY.column].notna() & means["comparable"]]
    if table.combinations(known) > SPELLED_OUT:
        yield " ".join(_extremes(table, known))
        return
    groups = known.groupby(list(table.others), sort=False, dropna=False) if table.others else [((), known)]
    for _, rows in groups:
        if len(rows):
            said = " ".join([*_largest(table, rows), *_halves(rows), *_peaks(table, rows), *_fastest(table, rows)])
            where = label(dict(rows.iloc[0]), table.others)
            yield f"With {where}: {said}" if where else said


def _extremes(table: SweepTable, known: Rows) -> Iterator[str]:
    largest = known[known["workers"] == known["workers"].max()]
    best, worst = (Best(table, largest, EFFICIENCY, worst=worst).row for worst in (False, True))
    first, last = (f"{row['algorithm']} with {label(dict(row), table.others)}" for row in (best, worst))
    yield f"On {best['workers']} workers {first} scales best: {_gain(best)}; {last} worst: {_gain(worst)}."
    below = int((known[EFFICIENCY.column] < HALF).sum())
    yield f"Efficiency is under {EFFICIENCY.with_symbol(HALF)} in {below} of {len(known)} cases."


def _largest(table: SweepTable, rows: Rows) -> Iterator[str]:
    """Yields the efficiency on the largest cluster."""
    largest = rows[rows["workers"] == rows["workers"].max()]
    best = Best(table, largest, EFFICIENCY)
    where = f"on {best.row['workers']} workers"
    if len(largest) == 1:
        yield f"On {best.row['workers']} workers {best.row['algorithm']} is {_gain(best.row)}."
        return
    alone = len(_names(best.first)) == 1
    verb = "scales best" if alone else f"scale best, {best.equally}"
    it_is = "it is" if alone else "they are"
    close = best.undecided(_algorithm)
    yield f"{listed(_names(best.first))} {verb}: {where} {it_is} {_gain(best.row)}{close}."
    rest = largest.drop([*best.first.index, *best.close.index])
    if len(rest):
        last = Best(table, rest, EFFICIENCY, worst=True)
        verb = "scales worst" if len(_names(last.first)) == 1 else f"scale worst, {last.equally}"
        yield f"{listed(_names(last.first))} {verb}: {_gain(last.row)}{last.undecided(_algorithm)}."


def _algorithm(row: Row) -> str:
    return str(row["algorithm"])


def _gain(row: Row) -> str:
    times, share = SPEED_UP.text(row[SPEED_UP.column]), EFFICIENCY.with_symbol(row[EFFICIENCY.column])
    return f"{times} times as fast as on {row[BASE_WORKERS]:.0f} (efficiency {share})"


def _halves(rows: Rows) -> Iterator[str]:
    """Yields where the efficiency falls below a half."""
    fallen: dict[int, list[str]] = {}
    never = []
    for name, line in _by_algorithm(rows):
        below = line[line[EFFICIENCY.column] < HALF]
        if len(below):
            fallen.setdefault(int(below["workers"].min()), []).append(name)
        else:
            never.append(name)
    if not fallen:
        yield f"Efficiency stays above {EFFICIENCY.with_symbol(HALF)}."
        return
    words = ", ".join(f"at {workers} workers for {listed(names)}" for workers, names in sorted(fallen.items()))
    yield f"{FALLS} {words}" + (f"; never for {listed(never)}." if never else ".")


def _peaks(table: SweepTable, rows: Rows) -> Iterator[str]:
    """Yields which algorithms become slower with more workers."""
    peaks: dict[int, list[str]] = {}
    for name, line in _by_algorithm(rows):
        best = Best(table, line, THROUGHPUT)
        peak = int(max([*best.first["workers"], *best.close["workers"]]))
        if peak < line["workers"].max():
            peaks.setdefault(peak, []).append(name)
    for peak, names in sorted(peaks.items()):
        yield f"More than {peak} workers make {listed(names)} slower."


def _fastest(table: SweepTable, rows: Rows) -> Iterator[str]:
    if rows["algorithm"].nunique() > 1:
        best = Best(table, rows, THROUGHPUT)
        where = listed([_with_workers(row) for row in best.first.to_dict("records")])
        many = f"{best.value}{best.undecided(_with_workers)}"
        yield f"Fastest are {where}, {best.equally}: {many}." if best.equally else f"Fastest is {where}: {many}."


def _with_workers(row: Row) -> str:
    return f"{row['algorithm']} on {row['workers']}"


# --- what other values change ----------------------------------------------------------------------------------------


def _effects(table: SweepTable, means: Rows) -> Iterator[str]:
    """Yields the effect of the values on throughput, if the size of the cluster does not vary."""

    def place(row: Row) -> str:
        return label(dict(row), table.paths)

    for name, line in _by_algorithm(means[means[THROUGHPUT.column].notna()]):
        best = Best(table, line, THROUGHPUT)
        worst = Best(table, line, THROUGHPUT, worst=True).row
        times = best.row[THROUGHPUT.column] / worst[THROUGHPUT.column]
        if times - 1 < DIFFERENCE:
            yield f"{name} is equally fast at all points: {best.value}."
            continue
        where = listed([place(row) for _, row in best.first.iterrows()])
        more = f"{significant(times)} times as many as with {place(worst)}{best.undecided(place)}"
        yield f"{name} is fastest with {where}: {best.value}, {more}."


def link_words(table: SweepTable, means: Rows) -> str:
    """Returns which algorithm uses its busiest link most, and which least; "" if all use them equally.

    Of each algorithm, the point counts at which its busiest link has the largest utilisation.

    Args:
        table: the table of the sweep.
        means: rows of its means.
    """
    rows = [
        line.sort_values(LINK_USE, kind="stable", ascending=False).iloc[0]
        for _, line in _by_algorithm(means[means[LINK].notna()])
    ]
    rows.sort(key=lambda row: row[LINK_USE], reverse=True)
    used = LINK_UTILISATION.with_symbol
    if len({used(row[LINK_USE]) for row in rows}) < 2:
        return ""
    most, least = (
        f"{row[LINK]}, {used(row[LINK_USE])} of its capacity ({BYTES.text(row[LINK_BYTES])}) with "
        f"{label(dict(row), table.paths)}"
        for row in (rows[0], rows[-1])
    )
    first, last = rows[0]["algorithm"], rows[-1]["algorithm"]
    return f"{first} uses its busiest link most: {most}; {last} least: {least}."


# --- where the order changes -----------------------------------------------------------------------------------------


def first_words(table: SweepTable) -> str:
    """Returns which algorithm is first in each range of an axis of quantities, such as bandwidths; "" on other axes.

    Args:
        table: the table of the sweep.
    """
    kind, numbers = kind_of(table.frame[table.x]), axis_values(table.frame[table.x])
    if kind is None or numbers is None or table.others or table.sizes or table.frame["algorithm"].nunique() < 2:
        return ""
    means = table.means()
    means = means[~means["unfinished"]]
    figure = next((column for column in compared_figures(table) if means[column.column].notna().any()), None)
    if figure is None:
        return ""
    ranges: list[tuple[list[str], list[float]]] = []
    for place, rows in means.assign(**{PLACE: axis_values(means[table.x])}).dropna(subset=figure.column).groupby(PLACE):
        values = rows[figure.column].astype(float)
        best = values.max() if sign_of(figure) > 0 else values.min()
        names = _names(rows[(values / best - 1).abs() < DIFFERENCE])
        if not ranges or ranges[-1][0] != names:
            ranges.append((names, []))
        ranges[-1][1].append(float(place))  # type: ignore[arg-type]
    said = []
    for names, places in ranges:
        first, last = kind.brief(places[0]), kind.brief(places[-1])
        where = f"At {first}" if len(places) == 1 else f"From {first} to {last}"
        most = "most samples per second" if figure is THROUGHPUT else "first"
        said.append(f"{where} {listed(names)} {_verb(table, figure, len(names))} {most}.")
    return " ".join(said)


def crossing_words(table: SweepTable) -> str:
    """Returns from where on which algorithm is better than another, with the interval of the place over seeds.

    Args:
        table: the table of the sweep.
    """
    crossed = crossings(table)
    if table.frame["algorithm"].nunique() > ALL_PAIRS:
        crossed = [crossing for crossing in crossed if crossing.leads]
    said = [_crossing(table, crossing) for crossing in crossed[:MOST_CROSSINGS]]
    if len(crossed) > MOST_CROSSINGS:
        said.append(f"{len(crossed) - MOST_CROSSINGS} more changes of the order are in sweep.json.")
    if any(isnan(crossing.low) for crossing in crossed):
        seeds = min(crossing.seeds for crossing in crossed)
        few = "One seed is" if seeds == 1 else f"{seeds} seeds are"
        said.append(f"{few} too few for 95 % intervals of these places; give --seeds {SEEDS_NEEDED} or more.")
    return " ".join(said)


def _crossing(table: SweepTable, crossing: LineCrossing) -> str:
    where = f"With {label(crossing.values, table.others)}, from" if crossing.values else "From"
    name = "" if crossing.axis == "workers" else f"{short_names(table.paths)[crossing.axis]} "
    unit = " workers" if crossing.axis == "workers" else ""
    place = f"{where} {name}{_on_axis(table, crossing.at, ceil)}{unit} on{_interval(table, crossing)}"
    than = "more samples per second than" if crossing.figure is THROUGHPUT else "before"
    again = ", after earlier changes of their order" if crossing.repeated else ""
    return f"{place}, {crossing.after} {_verb(table, crossing.figure, 1)} {than} {crossing.before}{again}."


def _verb(table: SweepTable, figure: Figure, count: int) -> str:
    if figure is THROUGHPUT:
        return "processes" if count == 1 else "process"
    assert table.target is not None, "without a target no time to it is compared"
    return f"{'reaches' if count == 1 else 'reach'} {table.target.words}"


def _interval(table: SweepTable, crossing: LineCrossing) -> str:
    """Returns the interval in parentheses; nothing if there are too few seeds."""
    if isnan(crossing.low):
        return ""
    numbers = axis_values(table.frame[crossing.axis])
    assert numbers is not None, "an axis without numbers has no crossings"
    first, last = (_on_axis(table, float(end), round) for end in (numbers.min(), numbers.max()))
    low = _on_axis(table, crossing.low, floor) if crossing.low > -inf else f"under {first}"
    high = _on_axis(table, crossing.high, ceil) if crossing.high < inf else f"over {last}"
    return f" (95 % interval {low} to {high})"


def _on_axis(table: SweepTable, value: float, whole: Callable[[float], int]) -> str:
    """Formats a value of the axis: workers as a whole number, a quantity with its unit."""
    if table.x == "workers":
        return str(whole(value))
    kind = kind_of(table.frame[table.x])
    return significant(value) if kind is None else kind.brief(value)


# --- the target, and cautions ----------------------------------------------------------------------------------------


def _goal(table: SweepTable, means: Rows) -> Iterator[str]:
    """Yields which algorithm reaches the target first, and which points the seeds do not distinguish from it."""
    if table.target is None:
        return
    goal, figure = table.target.words, table.target.figure
    reached = means[means[figure.column].notna()]
    if reached.empty:
        yield f"{goal[0].upper()}{goal[1:]} is reached nowhere."
        return

    def place(row: Row) -> str:
        workers = f" ({row['workers']} workers)" if table.sizes else ""
        return f"{row['algorithm']} with {label(dict(row), table.paths)}{workers}"

    best = Best(table, reached, figure)
    places = _some([place(row) for _, row in best.first.iterrows()])
    verb = f"are {listed(places)}, {best.equally}" if best.equally else f"is {places[0]}"
    yield f"Soonest at {goal} {verb}: {best.value}{best.undecided(place)}."
    if missed := len(means) - len(reached):
        yield f"It is not reached in {missed} of {len(means)} cases."
    evaluated = means[means[EVALUATIONS.column].notna()]
    if few := rarely_evaluated((str(row["algorithm"]), dict(row)) for _, row in evaluated.iterrows()):
        yield few


def _some(texts: Sequence[str]) -> list[str]:
    more = [f"{len(texts) - SPELLED_OUT} more"] if len(texts) > SPELLED_OUT else []
    return [*texts[:SPELLED_OUT], *more]


def _unfinished(table: SweepTable) -> str:
    """Describes which runs ended before their method's longest period had passed once."""
    early = table.frame[table.frame[PERIODS.column] < 1]
    longest = {name: int(line[LONGEST_PERIOD.column].max()) for name, line in _by_algorithm(early)}
    return say_unfinished(longest, f" in {len(early)} of {len(table.frame)} runs")


def _failed(table: SweepTable) -> str:
    failed = table.failed
    if failed.empty:
        return ""
    named = _some(
        [f"{row['algorithm']} with {label(row, table.paths)}, seed {row['seed']}" for row in failed.to_dict("records")]
    )
    return f"{len(failed)} of {len(table.whole)} runs failed and have no part in these figures: {'; '.join(named)}."


def _diverged(table: SweepTable) -> Iterator[str]:
    for name, line in _by_algorithm(table.frame):
        if count := int(line[DIVERGED.column].sum()):
            yield f"{name} diverged in {count} of {len(line)} runs."


def _short(table: SweepTable) -> Iterator[str]:
    """Yields a warning about runs that are too short."""
    short = table.frame[table.frame[STEPS.column] < SHORT * table.frame["workers"]]
    if len(short):
        yield (
            f"Take care: {len(short)} of {len(table.frame)} runs ({listed(_names(short))}) had fewer than {SHORT} "
            "steps a worker, so that their start has much weight; a later `stop` gives better figures."
        )
