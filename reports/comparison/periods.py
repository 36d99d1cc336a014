"""Runs that ended before the longest period of their method had passed once.

Such a run does not contain the method's rarest operation, such as the average of all workers in hbs-sgd, so it is
faster than the method. Its figures are shown with a mark, but no sentence compares them with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paceline.records import Run
from paceline.records.figures import number

MARK = "*"
"""follows the algorithm in tables"""


def is_unfinished(summary: Mapping[str, Any]) -> bool:
    """Whether a run, or the seeds of an algorithm together, ended before the longest period had passed once."""
    return (number(summary["periods"]) or 0.0) < 1


def marked(name: str, summary: Mapping[str, Any]) -> str:
    """Returns an algorithm's name in a table, with a mark if it is unfinished."""
    return name + MARK if is_unfinished(summary) else name


def finished(runs: Iterable[Run]) -> list[Run]:
    """Returns the runs of the algorithms without unfinished runs."""
    runs = list(runs)
    short = {run.algorithm for run in runs if is_unfinished(run.summary)}
    return [run for run in runs if run.algorithm not in short]


def say_unfinished(periods: Mapping[str, int], where: str = "") -> str:
    """Describes which algorithms ended too early.

    Args:
        periods: the longest period of each such algorithm, in steps of a worker.
        where: words after the names that say which runs.

    >>> say_unfinished({"hbs-sgd": 8})
    'Not compared: hbs-sgd (8 steps) ended before the longest period of the method, in steps of a worker, had passed \
once. Its figures, marked *, leave out what it does least often; a later `stop` includes it.'
    """
    if not periods:
        return ""
    names = ", ".join(f"{name} ({steps} steps)" for name, steps in periods.items())
    its, it = ("Its", "it does") if len(periods) == 1 else ("Their", "they do")
    return (
        f"Not compared: {names} ended{where} before the longest period of the method, in steps of a worker, had passed "
        f"once. {its} figures, marked {MARK}, leave out what {it} least often; a later `stop` includes it."
    )


def say_unfinished_runs(runs: Iterable[Run]) -> str:
    """Describes which algorithms of these runs ended too early; empty if all runs had a whole period."""
    return say_unfinished({run.algorithm: run.summary["longest_period"] for run in runs if is_unfinished(run.summary)})
