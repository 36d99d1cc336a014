"""The sources of the error of a step time, printed: ``paceline compare --explain``.

A table shows the activities, ranks and phases; sentences say which of them is responsible, and what to calibrate.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.records.figures import MILLISECONDS, PERCENT, signed_percent
from paceline.reports.attribution.error_sources import (
    LEAST_SHARE,
    LONG,
    MAIN_PART,
    OVERLAP,
    Cause,
    ErrorSources,
    StepPart,
)
from paceline.reports.attribution.timeline import UNRECORDED, WAIT, named
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


def is_large(found: ErrorSources) -> bool:
    """Whether the error is above `EXPLAINED`, so that its sources are shown."""
    return found.relative is None or abs(found.relative) > EXPLAINED


def describe_error(name: str, found: ErrorSources) -> str:
    """Returns sentences about the error of an algorithm's step time and its causes.

    Args:
        name: the algorithm.
        found: the sources of the error.
    """
    whole = found.whole
    said = [f"{name}: predicted {_ms(whole.predicted_s)}, measured {_ms(whole.measured_s)} a step."]
    if not is_large(found):
        return f"{said[0]} {_small(found)}"
    said += [
        _cause(cause, first=number == 0, traced=found.alignment.traced) for number, cause in enumerate(found.causes)
    ]
    if not found.causes:
        said.append(f"No activity explains more than {100 * LEAST_SHARE:g} % of the difference.")
    said += [_compensated(found), _long(found), _unaligned(found), _chance(found)]
    return " ".join(sentence for sentence in said if sentence)


def _ms(seconds: float) -> str:
    return MILLISECONDS.with_symbol(seconds)


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.0f} %"


def _small(found: ErrorSources) -> str:
    name, part = next(iter(found.activities.items()))
    return f"No activity differs by more than {_ms(abs(part.difference_s))} ({named(name)}). {_chance(found)}".rstrip()


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


def _compensated(found: ErrorSources) -> str:
    """Names activities whose errors compensate a part of the others'."""
    opposed = {name: part for name, part in found.activities.items() if (part.share or 0.0) <= -LEAST_SHARE}
    if not opposed:
        return ""
    said = listed([f"{named(name)} ({_ms(abs(part.difference_s))})" for name, part in opposed.items()])
    return f"Errors of the opposite sign compensate a part of this: {said}."


def _long(found: ErrorSources) -> str:
    long, share = found.long_steps, found.long_steps.part.share or 0.0
    if share < MAIN_PART or long.predicted > long.measured / 2:
        return ""
    steps = len(found.alignment.steps)
    return (
        f"{long.measured} of {steps} measured steps took more than {LONG:g} times their rank's median "
        f"(predicted: {long.predicted}); the time above the median is {_percent(share)} of the difference."
    )


def _unaligned(found: ErrorSources) -> str:
    """Says if the steps that only one side has change the error by much."""
    aligned = found.alignment
    if abs(found.unaligned_s) < LEAST_SHARE * abs(found.whole.difference_s):
        return ""
    return (
        f"This is the mean of the {len(aligned.steps)} steps that both sides have. With all steps "
        f"({aligned.predicted_steps} predicted, {aligned.measured_steps} measured) it is "
        f"{_ms(aligned.predicted_s)} predicted, {_ms(aligned.measured_s)} measured."
    )


def _chance(found: ErrorSources) -> str:
    if found.interval_s is None or not found.interval_s["low"] <= 0 <= found.interval_s["high"]:
        return ""
    low, high = (_ms(found.interval_s[end]) for end in ("low", "high"))
    return f"The seeds do not distinguish the difference from chance (95 % interval {low} to {high})."


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
        for rank, of_rank in _largest(found, activity) if abs(part.share or 0.0) >= LEAST_SHARE else ():
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


def _largest(found: ErrorSources, activity: str) -> Iterator[tuple[int, StepPart]]:
    """Yields the ranks with the largest differences, if there are several."""
    mine = [(source.rank, part) for source, part in found.sources.items() if source.activity == activity]
    if len(mine) > 1:
        yield from [(rank, part) for rank, part in mine if abs(part.share or 0.0) >= SHOWN_SHARE][:MOST_RANKS]


def _cells(part: StepPart) -> tuple[float, float, float, float | None]:
    return part.predicted_s, part.measured_s, part.difference_s, part.share
