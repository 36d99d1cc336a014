"""The printed tables of the sources of errors: ``paceline compare --explain``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from paceline.reports.attribution.error_sources import LEAST_SHARE, ErrorSources, Part
from paceline.reports.comparison.error_words import describe_error, is_large
from paceline.reports.comparison.words import MISSING
from paceline.reports.plain_table import plain_table

SHOWN_SHARE = 0.01
"""a row of a rank is shown if its share of the difference is at least this; our choice"""
MOST_RANKS = 4
"""rows of ranks for each activity; our choice"""


def error_tables(name: str, found: ErrorSources) -> list[Table | str]:
    """Returns the table of an algorithm with a large error and the sentences about it, else only the sentences.

    Args:
        name: the algorithm.
        found: the sources of its error.
    """
    words = [describe_error(name, found), ""]
    return [sources_table(name, found), phases_table(name, found), *words] if is_large(found) else [*words]


def sources_table(name: str, found: ErrorSources) -> Table:
    """Returns the seconds of a mean step by activity, and by responsible rank, with their differences."""
    relative = "" if found.relative is None else f" ({100 * found.relative:+.1f} %)"
    table = _headed(f"{name}: error of the step time{relative} by activity", "activity")
    table.add_row("step", *_cells(found.whole), style="bold")
    table.add_section()
    for activity, part in found.activities.items():
        table.add_row(activity, *_cells(part))
        for rank, one in _ranks(found, activity) if abs(part.share or 0.0) >= LEAST_SHARE else ():
            table.add_row(f"  rank {rank}", *_cells(one), style="dim")
    return table


def phases_table(name: str, found: ErrorSources) -> Table:
    """Returns the mean step times of the phases."""
    table = _headed(f"{name}: error of the step time by phase", "steps")
    for phase, part in found.phases.items():
        count = sum(step.phase == phase for step in found.alignment.steps)
        table.add_row(f"{phase} ({count})", *_cells(part))
    return table


def _ranks(found: ErrorSources, activity: str) -> Iterator[tuple[int, Part]]:
    """Yields the ranks with the largest differences, if there are several."""
    mine = [(source.rank, part) for source, part in found.sources.items() if source.activity == activity]
    if len(mine) > 1:
        yield from [(rank, part) for rank, part in mine if abs(part.share or 0.0) >= SHOWN_SHARE][:MOST_RANKS]


def _headed(title: str, first: str) -> Table:
    table = plain_table(title, first=first)
    for header in ("simulated\nms", "measured\nms", "difference\nms", "share\n%"):
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _cells(part: Part) -> tuple[str, str, str, str]:
    share = MISSING if part.share is None else f"{round(100 * part.share)}"
    rounded = round(1e3 * part.difference_s, 3)
    difference = f"{rounded:+.3f}" if rounded else "0.000"
    return f"{1e3 * part.predicted_s:.3f}", f"{1e3 * part.measured_s:.3f}", difference, share
