"""Crossings of a sweep in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, inf, isnan

import pandas as pd

from paceline.records.figures import significant
from paceline.reports.comparison.words import listed
from paceline.reports.sweeps.bootstrap import enough
from paceline.reports.sweeps.crossings import DIFFERENCE, FIGURES, PLACE, Crossing, axis_values, crossings, kind_of
from paceline.reports.sweeps.sweep_table import Table, label, short_names
from paceline.scenarios.values.units import Kind

ALL_PAIRS = 3
"""number of algorithms up to which every pair has a sentence; of more, those that are best on either side"""
MOST_SAID = 6
"""largest number of sentences; sweep.json has all crossings"""
SEEDS_NEEDED = next(count for count in range(2, 100) if enough(count))


def crossing_words(table: Table) -> str:
    """Returns from where on which algorithm is better than another, in sentences."""
    found = crossings(table)
    if table.frame["algorithm"].nunique() > ALL_PAIRS:
        found = [crossing for crossing in found if crossing.leads]
    return " ".join(_sentences(table, found))


def first_words(table: Table) -> str:
    """Returns which algorithm is first in each range of the axis: ``Up to 1 Gbit/s diloco reaches … first``.

    The figure is the time to the target if there is one that is reached, else samples per second.
    """
    numbers = axis_values(table.frame[table.x])
    if table.others or table.sizes or numbers is None or kind_of_axis(table) is None:
        return ""
    if table.frame["algorithm"].nunique() < 2:
        return ""
    means = table.means()
    means = means[~means["unfinished"]]
    names = [name for name in FIGURES if name == "samples_per_s" or (table.target and name == table.target.path)]
    figure = next((name for name in names if means[name].notna().any()), None)
    if figure is None:
        return ""
    parts = [
        f"{range_of(places, table)} {listed(best)} {_first(figure, len(best), table)}"
        for best, places in _runs(means, table, figure)
    ]
    return " ".join(f"{part}." for part in parts)


def kind_of_axis(table: Table) -> Kind | None:
    """Returns the kind of quantity of the axis; None if it is not of quantities."""
    column = table.frame[table.x]
    return None if pd.api.types.is_numeric_dtype(column) else kind_of(column)


def range_of(places: Sequence[float], table: Table) -> str:
    """Returns the first and the last of some values of the axis as words."""
    kind = kind_of_axis(table)
    assert kind is not None
    first, last = kind.brief(places[0]), kind.brief(places[-1])
    return f"At {first}" if len(places) == 1 else f"From {first} to {last}"


def _runs(means: pd.DataFrame, table: Table, figure: str) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Yields the best algorithms with the successive values of the axis at which they are best.

    They are several where their figures differ by less than `DIFFERENCE`.
    """
    numbers = axis_values(means[table.x])
    assert numbers is not None
    found: list[tuple[tuple[str, ...], list[float]]] = []
    for place, rows in means.assign(**{PLACE: numbers}).dropna(subset=[figure]).groupby(PLACE):
        figures = rows[figure].astype(float)
        best = figures.max() if FIGURES[figure] > 0 else figures.min()
        equal = (figures / best - 1).abs() < DIFFERENCE
        names = tuple(map(str, rows.loc[equal, "algorithm"]))
        if found and found[-1][0] == names:
            found[-1][1].append(float(place))  # type: ignore[arg-type]
        else:
            found.append((names, [float(place)]))  # type: ignore[arg-type]
    yield from found


def _first(figure: str, count: int, table: Table) -> str:
    if figure == "samples_per_s":
        return f"{'processes' if count == 1 else 'process'} most samples per second"
    assert table.target is not None, "without a target no time to it is compared"
    return f"{'reaches' if count == 1 else 'reach'} {table.target.words} first"


def _sentences(table: Table, found: Sequence[Crossing]) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[Crossing]] = {}
    for crossing in found:
        alike.setdefault(_parts(crossing, table), []).append(crossing)
    for (where, figure, rest), same in list(alike.items())[:MOST_SAID]:
        names = list(dict.fromkeys(crossing.after for crossing in same))
        yield f"{where}, {listed(names)} {_verb(figure, len(names), table)} {rest}."
    if len(alike) > MOST_SAID:
        yield f"{len(alike) - MOST_SAID} more changes of the order are in sweep.json."
    if found and any(isnan(crossing.low) for crossing in found):
        seeds = min(crossing.seeds for crossing in found)
        few = "One seed is" if seeds == 1 else f"{seeds} seeds are"
        yield f"{few} too few for 95 % intervals of these places; give --seeds {SEEDS_NEEDED} or more."


def _parts(crossing: Crossing, table: Table) -> tuple[str, str, str]:
    """Returns the place, the figure and the slower algorithm; crossings in which these agree share a sentence."""
    numbers = axis_values(table.frame[crossing.axis])
    assert numbers is not None, "an axis without numbers has no crossings"
    places = sorted({float(place) for place in numbers})
    where = f"With {label(crossing.values, table.others)}, from" if crossing.values else "From"
    again = ", after earlier changes of their order" if crossing.repeated else ""
    place = f"{where} {_place(crossing, crossing.at, table)} on{_interval(crossing, places, table)}"
    return place, crossing.figure, f"{crossing.before}{again}"


def _verb(figure: str, count: int, table: Table) -> str:
    if figure == "samples_per_s":
        return f"{'processes' if count == 1 else 'process'} more samples per second than"
    assert table.target is not None, "without a target no time to it is compared"
    return f"{'reaches' if count == 1 else 'reach'} {table.target.words} before"


def _place(crossing: Crossing, value: float, table: Table) -> str:
    if crossing.axis == "workers":
        return f"{ceil(value)} workers"
    return f"{short_names(table.paths)[crossing.axis]} {_brief(crossing, value, table)}"


def _brief(crossing: Crossing, value: float, table: Table) -> str:
    """Formats a value of the axis: a quantity with its unit."""
    column = table.frame[crossing.axis]
    kind = None if pd.api.types.is_numeric_dtype(column) else kind_of(column)
    return significant(value) if kind is None else kind.brief(value)


def _interval(crossing: Crossing, places: Sequence[float], table: Table) -> str:
    """Returns the interval in parentheses; nothing if there are too few seeds."""
    if isnan(crossing.low):
        return ""
    whole = crossing.axis == "workers"
    low = f"{floor(crossing.low)}" if whole and crossing.low > -inf else _brief(crossing, crossing.low, table)
    high = f"{ceil(crossing.high)}" if whole and crossing.high < inf else _brief(crossing, crossing.high, table)
    first, last = (f"{end:g}" if whole else _brief(crossing, end, table) for end in (places[0], places[-1]))
    low = low if crossing.low > -inf else f"under {first}"
    high = high if crossing.high < inf else f"over {last}"
    return f" (95 % interval {low} to {high})"
