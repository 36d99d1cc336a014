"""The printed tables of the sources of errors: ``paceline compare --explain``."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.records.figures import MILLISECONDS, PERCENT, signed_percent
from paceline.reports.attribution.error_sources import LEAST_SHARE, ErrorSources, Part
from paceline.reports.blocks import Block, Claim, Column, Table, Tone
from paceline.reports.comparison.error_words import describe_error, is_large

SHOWN_SHARE = 0.01
"""a row of a rank is shown if its share of the difference is at least this; our choice"""
MOST_RANKS = 4
"""rows of ranks for each activity; our choice"""


def error_tables(name: str, found: ErrorSources) -> list[Block]:
    """Returns the table of an algorithm with a large error and the sentences about it, else only the sentences.

    Args:
        name: the algorithm.
        found: the sources of its error.
    """
    words = Claim(describe_error(name, found) + "\n")
    return [sources_table(name, found), phases_table(name, found), words] if is_large(found) else [words]


def sources_table(name: str, found: ErrorSources) -> Table:
    """Returns the seconds of a mean step by activity, and by responsible rank, with their differences."""
    relative = "" if found.relative is None else f" ({signed_percent(found.relative)} %)"
    rows, tones = [("step", *_cells(found.whole))], dict[int, Tone]({0: "strong"})
    for activity, part in found.activities.items():
        rows.append((activity, *_cells(part)))
        for rank, of_rank in _ranks(found, activity) if abs(part.share or 0.0) >= LEAST_SHARE else ():
            tones[len(rows)] = "faint"
            rows.append((f"  rank {rank}", *_cells(of_rank)))
    title = f"{name}: error of the step time{relative} by activity"
    return Table(title, [Column("activity"), *COLUMNS], rows, tones=tones)


def phases_table(name: str, found: ErrorSources) -> Table:
    """Returns the mean step times of the phases."""
    rows = [
        (f"{phase} ({sum(step.phase == phase for step in found.alignment.steps)})", *_cells(part))
        for phase, part in found.phases.items()
    ]
    return Table(f"{name}: error of the step time by phase", [Column("steps"), *COLUMNS], rows)


COLUMNS = (
    Column("simulated", MILLISECONDS), Column("measured", MILLISECONDS), Column("difference", MILLISECONDS),
    Column("share", PERCENT),
)  # fmt: skip


def _ranks(found: ErrorSources, activity: str) -> Iterator[tuple[int, Part]]:
    """Yields the ranks with the largest differences, if there are several."""
    mine = [(source.rank, part) for source, part in found.sources.items() if source.activity == activity]
    if len(mine) > 1:
        yield from [(rank, part) for rank, part in mine if abs(part.share or 0.0) >= SHOWN_SHARE][:MOST_RANKS]


def _cells(part: Part) -> tuple[float, float, float, float | None]:
    return part.predicted_s, part.measured_s, part.difference_s, part.share
