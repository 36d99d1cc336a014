"""The sources of the error of a step time, printed: ``paceline compare --explain``.

A table shows the activities, ranks and phases; sentences say which of them is responsible, and what to calibrate.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.records.figures import MILLISECONDS, PERCENT, signed_percent
from paceline.reports.attribution.error_sources import (
    LEAST_SHARE,
    OVERLAP,
    Cause,
    ErrorSources,
    StepPart,
)
from paceline.reports.attribution.timeline import UNRECORDED, WAIT, named
from paceline.reports.attribution.variation import VariationWaiting, waiting_blocks
from paceline.reports.blocks import Block, Claim, Column, Table, Tone
from paceline.reports.words import listed

EXPLAINED = 0.03
"""relative error of a step time above which its sources are shown; our choice"""

CALIBRATE = {
    "compute": ("gradient times, with as many ranks and threads busy as in the run", "gradients"),
    "load": ("the time to load a batch", "own.load"),
    "update": ("updates", "own.update"),
    "collective": ("collectives of this size and number of ranks", "costs"),
    "send": ("the processor time of sending messages", "costs"),
    "receive": ("messages of this size", "costs"),
    "communication": ("collectives and messages of this size", "costs"),
    "server": ("the server's work for a message, with all workers active", "own.serve"),
    UNRECORDED: ("the program's time between operations; other programs on the cores add to it, too", "own.rest"),
    "copy": ("copies between hosts and devices", None),
    "checkpoint": ("the storage that checkpoints are written to", None),
    "recovery": ("the storage that checkpoints are read from", None),
}
"""what to calibrate for each activity, and its key in a file of ``paceline calibrate``"""

CONSEQUENCES = {
    WAIT: "waiting for ranks whose own activities take as long as predicted: calibrate the spread of step times "
    "(`factors` of `paceline calibrate`, or `step_time` of the cluster), which decides how long ranks wait for others",
    OVERLAP: "communication that takes as long as predicted, but of which gradients hide another part: it follows from "
    "the other causes",
}
UNTRACED_WAIT = "waiting; a stored run does not contain for which rank, so its cause is unknown"


def is_large(sources: ErrorSources) -> bool:
    """Whether the error is above `EXPLAINED`, so that its sources are shown."""
    return sources.relative is None or abs(sources.relative) > EXPLAINED


def describe_error(name: str, sources: ErrorSources) -> str:
    """Returns sentences about the error of an algorithm's step time and its causes.

    Args:
        name: the algorithm.
        sources: the sources of the error.
    """
    whole = sources.whole
    said = [f"{name}: predicted {_ms(whole.predicted_s)}, measured {_ms(whole.measured_s)} a step."]
    if not is_large(sources):
        return f"{said[0]} {_small(sources)}"
    said += [
        _cause(cause, first=number == 0, traced=sources.alignment.traced) for number, cause in enumerate(sources.causes)
    ]
    if not sources.causes:
        said.append(f"No activity explains more than {100 * LEAST_SHARE:g} % of the difference.")
    said += [_compensated(sources), _unaligned(sources), _chance(sources)]
    return " ".join(sentence for sentence in said if sentence)


def _ms(seconds: float) -> str:
    return MILLISECONDS.with_symbol(seconds)


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


def _small(sources: ErrorSources) -> str:
    name, part = next(iter(sources.activities.items()))
    return (
        f"No activity differs by more than {_ms(abs(part.difference_s))} ({named(name)}). {_chance(sources)}".rstrip()
    )


def _cause(cause: Cause, *, first: bool, traced: bool) -> str:
    of = " of the difference is" if first else " is"
    if cause.activity in CONSEQUENCES:
        said = UNTRACED_WAIT if cause.activity == WAIT and not traced else CONSEQUENCES[cause.activity]
        return f"{_percent(cause.charged.share)}{of} {said}."
    where = f" on {_ranks(cause.ranks)}" if cause.activity != "server" else ""
    figures = f"predicted {_ms(cause.own.predicted_s)}, measured {_ms(cause.own.measured_s)}"
    return (
        f"{_percent(cause.charged.share)}{of} {named(cause.activity)}{where} {cause.when} ({figures}): "
        f"calibrate {_calibrated(cause.activity)}."
    )


def _calibrated(activity: str) -> str:
    """Returns what to calibrate, and where `paceline calibrate` writes it."""
    what, key = CALIBRATE.get(activity, (named(activity), None))
    return what if key is None else f"{what} (`paceline calibrate` measures this as {key})"


def _ranks(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "all ranks"
    return f"rank{'s' * (len(ranks) > 1)} {listed([str(rank) for rank in ranks])}"


def _compensated(sources: ErrorSources) -> str:
    """Names activities whose errors compensate a part of the others'."""
    opposed = {name: part for name, part in sources.activities.items() if (part.share or 0.0) <= -LEAST_SHARE}
    if not opposed:
        return ""
    said = listed([f"{named(name)} ({_ms(abs(part.difference_s))})" for name, part in opposed.items()])
    return f"Errors of the opposite sign compensate a part of this: {said}."


def _unaligned(sources: ErrorSources) -> str:
    """Says if the steps that only one side has change the error by much."""
    aligned = sources.alignment
    if abs(sources.unaligned_s) < LEAST_SHARE * abs(sources.whole.difference_s):
        return ""
    return (
        f"This is the mean of the {len(aligned.steps)} steps that both sides have. With all steps "
        f"({aligned.predicted_steps} predicted, {aligned.measured_steps} measured) it is "
        f"{_ms(aligned.predicted_s)} predicted, {_ms(aligned.measured_s)} measured."
    )


def _chance(sources: ErrorSources) -> str:
    if sources.interval_s is None or not sources.interval_s["low"] <= 0 <= sources.interval_s["high"]:
        return ""
    low, high = (_ms(sources.interval_s[end]) for end in ("low", "high"))
    return f"The seeds do not distinguish the difference from chance (95 % interval {low} to {high})."


SHOWN_SHARE = 0.01
"""a row of a rank is shown if its share of the difference is at least this; our choice"""
MOST_RANKS = 4
"""rows of ranks for each activity; our choice"""


def error_tables(name: str, sources: ErrorSources, variation: VariationWaiting | None = None) -> list[Block]:
    """Returns the tables of an algorithm with a large error, the sentences about it, and what makes workers wait.

    Args:
        name: the algorithm.
        sources: the sources of its error.
        variation: its predicted waiting by part of the variation of steps, if it is known.
    """
    tables = [sources_table(name, sources), phases_table(name, sources)] if is_large(sources) else []
    words = Claim(describe_error(name, sources) + "\n")
    return [*tables, words, *waiting_blocks(name, variation, sources.waiting.measured_s)]


def sources_table(name: str, sources: ErrorSources) -> Table:
    """Returns the seconds of a mean step by activity, and by responsible rank, with their differences."""
    relative = "" if sources.relative is None else f" ({signed_percent(sources.relative)} %)"
    rows, tones = [("step", *_cells(sources.whole))], dict[int, Tone]({0: "strong"})
    for activity, part in sources.activities.items():
        rows.append((activity, *_cells(part)))
        for rank, of_rank in _largest(sources, activity) if abs(part.share or 0.0) >= LEAST_SHARE else ():
            tones[len(rows)] = "faint"
            rows.append((f"  rank {rank}", *_cells(of_rank)))
    title = f"{name}: error of the step time{relative} by activity"
    return Table(title, [Column("activity"), *COLUMNS], rows, tones=tones)


def phases_table(name: str, sources: ErrorSources) -> Table:
    """Returns the mean step times of the phases."""
    rows = [
        (f"{phase} ({sum(step.phase == phase for step in sources.alignment.steps)})", *_cells(part))
        for phase, part in sources.phases.items()
    ]
    return Table(f"{name}: error of the step time by phase", [Column("steps"), *COLUMNS], rows)


COLUMNS = (
    Column("simulated", MILLISECONDS), Column("measured", MILLISECONDS), Column("difference", MILLISECONDS),
    Column("share", PERCENT),
)  # fmt: skip


def _largest(sources: ErrorSources, activity: str) -> Iterator[tuple[int, StepPart]]:
    """Yields the ranks with the largest differences, if there are several."""
    parts = [(source.rank, part) for source, part in sources.sources.items() if source.activity == activity]
    if len(parts) > 1:
        yield from [(rank, part) for rank, part in parts if abs(part.share or 0.0) >= SHOWN_SHARE][:MOST_RANKS]


def _cells(part: StepPart) -> tuple[float, float, float, float | None]:
    return part.predicted_s, part.measured_s, part.difference_s, part.share
