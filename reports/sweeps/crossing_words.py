"""Crossings of a sweep in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, inf, isnan

from paceline.reports.comparison.words import listed
from paceline.reports.sweeps.bootstrap import enough
from paceline.reports.sweeps.crossings import Crossing, crossings
from paceline.reports.sweeps.sweep_table import Table, label, short_names

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
    places = sorted(float(place) for place in set(table.frame[crossing.axis]))
    where = f"With {label(crossing.values, table.others)}, from" if crossing.values else "From"
    again = ", after earlier changes of their order" if crossing.repeated else ""
    place = f"{where} {_place(crossing, crossing.at, table)} on{_interval(crossing, places)}"
    return place, crossing.figure, f"{crossing.before}{again}"


def _verb(figure: str, count: int, table: Table) -> str:
    if figure == "samples_per_s":
        return f"{'processes' if count == 1 else 'process'} more samples per second than"
    assert table.target is not None, "without a target no time to it is compared"
    return f"{'reaches' if count == 1 else 'reach'} {100 * table.target:g} % before"


def _place(crossing: Crossing, value: float, table: Table) -> str:
    if crossing.axis == "workers":
        return f"{ceil(value)} workers"
    return f"{short_names(table.paths)[crossing.axis]} {value:.3g}"


def _interval(crossing: Crossing, places: Sequence[float]) -> str:
    """Returns the interval in parentheses; nothing if there are too few seeds."""
    if isnan(crossing.low):
        return ""
    whole = crossing.axis == "workers"
    low = f"{floor(crossing.low)}" if whole and crossing.low > -inf else f"{crossing.low:.3g}"
    high = f"{ceil(crossing.high)}" if whole and crossing.high < inf else f"{crossing.high:.3g}"
    low = low if crossing.low > -inf else f"under {places[0]:g}"
    high = high if crossing.high < inf else f"over {places[-1]:g}"
    return f" (95 % interval {low} to {high})"
