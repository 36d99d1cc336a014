"""Shows predicted and measured progress of real runs: a live table on a terminal, otherwise lines at a bounded rate.

* Everything is written to standard error.
* The launcher forks the ranks, so it runs no thread: the table is drawn again when the run reports its progress.
* Processes that a launcher has started print lines also on terminals, because one of them is the rank that would have
  to draw the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table

from paceline.reports.watching import run_watch as words
from paceline.reports.watching.run_watch import RunProgress, RunWatch

if TYPE_CHECKING:
    from paceline.backend.status.progress_counters import Totals
    from paceline.cli.output import Output
    from paceline.records import Run
    from paceline.reports.watching.predict_runs import Key, PredictedProgress
    from paceline.scenarios.resolution.plan import Plan

DRAW_S = 1.0
"""seconds between two drawings of the table: one takes about 10 ms of a core that ranks use"""
LINE_S = 5.0
"""seconds between two lines, if there is no table"""
COLUMNS = "run", "time", "step (predicted)", "step time (predicted)", "loss", "left", "target"


class WatchDisplay:
    """The display of all runs of a command.

    Args:
        output: where everything is printed.
        predicted: the predictions.
        live: draws the table; None: lines are printed.
        clock: returns seconds of real time.
    """

    def __init__(
        self,
        output: Output,
        predicted: Mapping[Key, PredictedProgress],
        live: Live | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output, self._predicted, self._live, self._clock = output, predicted, live, clock
        self._several_seeds = len({seed for _, seed in predicted}) > 1
        self._watches: dict[Key, RunWatch] = {}
        self._progress: dict[Key, RunProgress] = {}
        self._ended: dict[Key, float] = {}
        """seconds that each run took"""
        self._shown_s = clock()
        self._draw()

    def watch(self, plan: Plan, now: Totals) -> None:
        """Shows the progress of a run.

        Args:
            plan: the run.
            now: the counters of all ranks.
        """
        key = plan.name, plan.seed
        if now.elapsed_s <= 0 or key not in self._predicted:
            return
        if key not in self._watches:
            self._watches[key] = RunWatch(self._predicted[key], plan.job.budget, plan.job.workers)
            self._shown_s = self._clock()
        self._progress[key] = self._watches[key].add(now)
        if self._clock() - self._shown_s < (LINE_S if self._live is None else DRAW_S):
            return
        self._shown_s = self._clock()
        if self._live is None:
            self._output.note(
                words.line(
                    self._name(key), self._progress[key], self._predicted[key], self._watches[key].slow_ranks.ranks
                )
            )
        self._draw()

    def ended(self, run: Run) -> None:
        """Prints the sentence about a run that has ended."""
        key = run.algorithm, run.seed
        if (watch := self._watches.get(key)) is None:
            return
        self._ended[key] = run.summary["wall_s"]
        periods, ranks = watch.slow_ranks.periods, watch.slow_ranks.ranks
        self._output.note(words.sentence(self._name(key), run, self._predicted[key], periods, ranks))
        self._draw()

    def _name(self, key: Key) -> str:
        name, seed = key
        return f"{name} with seed {seed}" if self._several_seeds else name

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        """Returns the table of the runs that have not ended; a sentence has been printed about the others."""
        table = Table(*COLUMNS, box=None, pad_edge=False)
        for key, predicted in self._predicted.items():
            now = self._progress.get(key)
            if key in self._ended:
                continue
            if now is None:
                table.add_row(self._name(key), "", "", "", "", f"will take {words.about(predicted.wall_s)}", "")
                continue
            table.add_row(
                self._name(key),
                words.seconds(now.elapsed_s),
                words.step_cell(now),
                words.step_time_cell(now),
                words.learning_words(now),
                words.left_words(now),
                words.aim_words(now, predicted.aim, predicted.aim_s),
            )
            if slow := words.slow_words(now.slow, self._watches[key].slow_ranks.ranks):
                table.add_row("", "", slow, style="yellow")
        return table


@contextmanager
def watch_display(
    output: Output, predicted: Mapping[Key, PredictedProgress], *, joined: bool
) -> Iterator[WatchDisplay]:
    """Shows the progress of runs during the block.

    Args:
        output: where everything is printed.
        predicted: the predictions.
        joined: whether a launcher has started this process.
    """
    if not output.err.is_terminal or joined:
        yield WatchDisplay(output, predicted)
        return
    # notes and rows of tables still appear above the table
    with Live(console=output.err, auto_refresh=False, transient=True, redirect_stdout=output.out.is_terminal) as live:
        yield WatchDisplay(output, predicted, live)
