"""Progress of a long command: bars on a terminal, otherwise lines now and then; and the time that is left.

* Everything is drawn when progress is reported, besides rich's own refreshing of bars on a terminal.
* Runs are made one after the other and have equal weights in the fraction of a stage, so the fraction says which run
  is in progress.
* At most `MOST_BARS` runs have bars at once: the current one, and those that ended last.
* A run's own progress tells its rate. Costs of methods differ by orders of magnitude, so a run tells nothing of one of
  another kind: before every kind has been timed, the rest of the command is not estimated.
* Nothing is said before a few per cent of a run are done: the first steps compile code, fill caches and choose
  collectives. After that, the latest half of what is done counts, so that a slow start is forgotten.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from paceline.reports.comparison.predict import Report

LINE_S = 10.0
"""seconds between two progress lines of a stage, if standard error is no terminal"""
MOST_BARS = 6
"""bars of runs at once; INFERENCE: a terminal has 24 lines, and rows of results appear above the bars"""
SURE_S = 3.0
"""seconds of progress from which its rate is used"""
SURE_SHARE = 0.03
"""the part of a run from which its rate is used"""
LONG_S = 30.0
"""seconds of expected duration from which it is printed"""
MOST = 256
"""reports that are kept; with more, every other one is dropped"""


class BeginStage(Protocol):
    """Begins a stage, and returns the callback for its progress; None if nothing is shown."""

    def __call__(self, stage: str, runs: Sequence[str] = ()) -> Report | None:
        """Begins a stage.

        Args:
            stage: its name.
            runs: a name for each of its runs, in their order, if it consists of runs.
        """
        ...


def current_run(done: float, runs: int) -> tuple[int, float]:
    """Returns the number of the run in progress, from 0, and its completed fraction.

    Args:
        done: the completed fraction of all runs together.
        runs: their number.

    >>> current_run(0.5, 2), current_run(0.125, 2), current_run(1.0, 2)
    ((1, 0.0), (0, 0.25), (1, 1.0))
    """
    number = min(runs - 1, int(done * runs + 1e-9))  # the quotient was rounded
    return number, min(1.0, max(0.0, done * runs - number))


def silent(stage: str, runs: Sequence[str] = ()) -> None:
    """Begins a stage of which nothing is shown."""


def lines(note: Callable[[str], None]) -> BeginStage:
    """Returns a function that begins stages whose progress is printed every `LINE_S` seconds.

    Args:
        note: prints a line.
    """

    def begin(stage: str, runs: Sequence[str] = ()) -> Report:
        said_s = time.monotonic()

        def report(now: str, done: float) -> None:
            nonlocal said_s
            if time.monotonic() - said_s >= LINE_S:
                said_s = time.monotonic()
                number, _ = current_run(done, max(1, len(runs)))
                which = f"run {number + 1} of {len(runs)}, " if len(runs) > 1 else ""
                note(f"{stage}: {which}{now}, {done:.0%}")

        return report

    return begin


@contextmanager
def bars(console: Console, *, redirect_stdout: bool) -> Iterator[BeginStage]:
    """Shows bars during the block, and removes them at its end.

    Args:
        console: the terminal.
        redirect_stdout: whether standard output is on the same terminal; its rows appear above the bars.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[now]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=redirect_stdout) as shown:

        def begin(stage: str, runs: Sequence[str] = ()) -> Report:
            for earlier in shown.tasks:
                if earlier.fields.get("run"):
                    shown.remove_task(earlier.id)
                else:
                    shown.update(earlier.id, completed=1.0, now="")
                    shown.stop_task(earlier.id)
            whole = shown.add_task(stage, total=1.0, now="")
            if len(runs) < 2:
                return lambda now, done: shown.update(whole, completed=done, now=now)
            each = RunBars(shown, runs)

            def report(now: str, done: float) -> None:
                number, _ = current_run(done, len(runs))
                shown.update(whole, completed=done, now=f"run {number + 1} of {len(runs)}")
                each.show(now, done)

            return report

        yield begin


class RunBars:
    """A bar for each run of a stage that has begun.

    Args:
        shown: where the bars are.
        runs: the names of the runs.
    """

    def __init__(self, shown: Progress, runs: Sequence[str]) -> None:
        self._shown, self._runs = shown, runs
        self._tasks: list[TaskID] = []

    def show(self, now: str, done: float) -> None:
        """Shows the progress of the current run.

        Args:
            now: a text about it.
            done: the completed fraction of all runs.
        """
        number, part = current_run(done, len(self._runs))
        while len(self._tasks) <= number:
            if self._tasks:
                self._shown.update(self._tasks[-1], completed=1.0, now="done")
                self._shown.stop_task(self._tasks[-1])
            name = self._runs[len(self._tasks)]
            self._tasks.append(self._shown.add_task(f"  {name}", total=1.0, now="", run=True))
            for earlier in self._tasks[:-MOST_BARS]:
                self._shown.update(earlier, visible=False)
        self._shown.update(self._tasks[number], completed=part, now=now)


class RemainingTime:
    """The remaining time of one run, from its progress.

    Args:
        clock: returns seconds of real time.

    >>> times = iter([0.0, 10.0, 20.0, 30.0])  # the first 10 s bring 2 %, the others 10 % each
    >>> pace = RemainingTime(lambda: next(times))
    >>> [found and round(found) for found in map(pace.left_s, (0.0, 0.02, 0.12, 0.22))]
    [None, None, 88, 78]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reports: list[tuple[float, float]] = []
        """time and completed part, of the first report and of some later ones"""

    def left_s(self, done: float) -> float | None:
        """Records a report; returns the remaining seconds, None if there is no estimate yet.

        left = (1 − done) · (now − t) / (done − done at t), where t is when half of it was done

        Args:
            done: the completed part of the run, 0 … 1.
        """
        now_s, reports = self._clock(), self._reports
        if not reports:
            reports.append((now_s, done))
            return None
        first_s, first = reports[0]
        half = bisect_right(reports, (first + done) / 2, key=itemgetter(1))
        began_s, before = reports[max(0, half - 1)]
        reports.append((now_s, done))
        if len(reports) > MOST:
            del reports[1::2]
        if now_s - first_s < SURE_S or done - first < SURE_SHARE or done <= before:
            return None
        return max(0.0, 1 - done) * (now_s - began_s) / (done - before)


class Left(NamedTuple):
    """What is left of several runs."""

    seconds: float
    """of the current run, and of later ones of kinds that have been timed"""
    untimed: int
    """number of later runs of other kinds"""


class ExpectedTime:
    """Estimates the remaining time of consecutive runs.

    Args:
        kinds: the kind of each run, such as its algorithm; runs of one kind take about as long.
        clock: returns seconds of real time.
    """

    def __init__(self, kinds: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds, self._clock = kinds, clock
        self._started_s = self._began_s = clock()
        self._ended: dict[str, list[float]] = {}
        """seconds of the completed runs of each kind"""
        self._count = 0
        """number of completed runs"""
        self._pace = RemainingTime(clock)

    def ended(self) -> None:
        """Records the end of a run."""
        now_s = self._clock()
        self._ended.setdefault(self._kinds[self._count], []).append(now_s - self._began_s)
        self._count, self._began_s, self._pace = self._count + 1, now_s, RemainingTime(self._clock)

    def left(self, done: float) -> Left | None:
        """Returns what is left; None if there is no estimate of the current run yet.

        Args:
            done: the completed part of all runs, in which all runs have the same weight.
        """
        if self._count == len(self._kinds):
            return Left(0.0, 0)
        own_s = self._pace.left_s(min(1.0, done * len(self._kinds) - self._count))
        known = {kind: sum(durations) / len(durations) for kind, durations in self._ended.items()}
        kind, taken_s = self._kinds[self._count], self._clock() - self._began_s
        if own_s is None and kind in known:
            own_s = max(0.0, known[kind] - taken_s)
        if own_s is None:
            return None
        known.setdefault(kind, taken_s + own_s)
        later = self._kinds[self._count + 1 :]
        timed = [known[kind] for kind in later if kind in known]
        return Left(own_s + sum(timed), len(later) - len(timed))

    def total_s(self, left: Left) -> float:
        """Returns the seconds from the start to the end of all that has been timed, if so much is left."""
        return self._clock() - self._started_s + left.seconds
