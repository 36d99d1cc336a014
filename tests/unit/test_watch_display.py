"""The display of watched runs: lines at a bounded rate, a table on terminals, one sentence at the end."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from paceline.algorithms.core.job import Budget
from paceline.backend.status.progress_counters import RankTotals, Scored, Totals
from paceline.cli.app import app
from paceline.cli.output import Output
from paceline.cli.watch_display import LINE_S, WatchDisplay, watch_display
from paceline.reports.comparison.ranking import Aim
from paceline.reports.watching.predict_runs import PredictedProgress, costs_of
from paceline.reports.watching.run_watch import RunProgress, SlowPeriod, aim_words, left_words, sentence, slow_words
from paceline.scenarios import load
from tests.made_up import run

PLAN: Any = SimpleNamespace(name="sync-sgd", seed=1, job=SimpleNamespace(workers=2, budget=Budget(samples=1)))
STEP_S = 0.125
PREDICTED = PredictedProgress(
    ends_s=np.repeat(np.arange(1, 201, dtype=np.float64) * STEP_S, 2).astype(np.float64),
    gradient_s={rank: np.full(200, STEP_S) for rank in range(2)},
    wall_s=25.0,
    stop_reason="samples",
    aim=Aim("accuracy", 0.9),
    aim_s=20.0,
)


def reading(step: int) -> Totals:
    """Rank 1 takes half as long again as predicted, and the other one waits for it."""
    elapsed_s = 1.5 * STEP_S * step
    ranks = (RankTotals(step, step, STEP_S * step), RankTotals(step, step, elapsed_s))
    return Totals(elapsed_s, step, 2 * step, 0.5 * 2 * step, 0.0, 0.0, 64.0 * step, ranks, Scored(0.4, 0.8))


class Screen:
    """Standard error, with a clock that is set by hand."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.stream, self.now_s = io.StringIO(), 0.0
        err = Console(file=self.stream, force_terminal=terminal, width=200)
        self.output = Output(as_json=True, out=Console(file=io.StringIO()), err=err)

    def clock(self) -> float:
        return self.now_s

    @property
    def text(self) -> str:
        return self.stream.getvalue()


def test_lines_come_at_a_bounded_rate_and_say_what_is_left() -> None:
    screen = Screen()
    display = WatchDisplay(screen.output, {("sync-sgd", 1): PREDICTED}, clock=screen.clock)
    for step in range(1, 101):
        screen.now_s = reading(step).elapsed_s
        display.watch(PLAN, reading(step))
    lines = screen.text.splitlines()
    assert len(lines) == int(screen.now_s / LINE_S)
    assert lines[-1] == (
        "sync-sgd: 15.4 s, step 82 of 200 (predicted 123), 188 ms per step (predicted 125 ms, +50 %), loss 0.4, "
        "accuracy 80.0 %, about 22 s left, about 15 s to 90 % accuracy; "
        "slower than predicted: rank 1 by 50 % from step 0 on"
    )


def test_a_table_on_a_terminal_and_a_sentence_about_a_run_that_has_ended() -> None:
    screen = Screen(terminal=True)
    both = {("sync-sgd", 1): PREDICTED, ("easgd", 1): PREDICTED}
    with watch_display(screen.output, both, joined=False) as display:
        display._clock, display._shown_s = screen.clock, 0.0
        for step in range(1, 101):
            screen.now_s = reading(step).elapsed_s
            display.watch(PLAN, reading(step))
        assert "easgd" in screen.text and "will take 25 s" in screen.text
        assert " of 200 (" in screen.text and "188 ms (125 ms, +50 %)" in screen.text
        assert "slower than predicted: rank 1 by 50 %" in screen.text
        display.ended(run("sync-sgd", "measured", step_s=6.75))
    assert "sync-sgd took 27 s, predicted 25 s (+8 %)" in screen.text


def test_joined_processes_print_lines_also_on_a_terminal() -> None:
    screen = Screen(terminal=True)
    with watch_display(screen.output, {("sync-sgd", 1): PREDICTED}, joined=True):
        pass
    assert screen.text == ""


def test_runs_of_several_seeds_have_their_seed_in_the_name() -> None:
    screen = Screen()
    display = WatchDisplay(screen.output, {("sync-sgd", 1): PREDICTED, ("sync-sgd", 2): PREDICTED}, clock=screen.clock)
    display.watch(PLAN, reading(1))
    display.ended(run("sync-sgd", "measured"))
    assert screen.text.startswith("sync-sgd with seed 1 took 4 s")


def test_the_sentence_names_slow_ranks_targets_and_other_ends() -> None:
    measured = run("sync-sgd", "measured", accuracies=(0.1, 0.8, 1.0))
    slow = [SlowPeriod(3, 0.18, 40), SlowPeriod(2, 0.12, 10, 30)]
    assert sentence("sync-sgd", measured, PREDICTED, slow, ranks=4) == (
        "sync-sgd took 4 s, predicted 25 s (-84 %); it ended by None, predicted samples; "
        "90 % accuracy after 1.5 s, predicted 20 s (-92 %); "
        "rank 3 was 18 % slower than predicted from step 40 on; "
        "rank 2 was 12 % slower than predicted from step 10 to step 30"
    )
    assert "no rank was slower than predicted" in sentence("sync-sgd", measured, PREDICTED, [], ranks=4)
    alike = [SlowPeriod(0, 0.11, 0), SlowPeriod(1, 0.08, 0)]
    assert "all 2 ranks were 8 to 11 % slower" in sentence("sync-sgd", measured, PREDICTED, alike, ranks=2)


def test_many_slow_ranks_are_counted_and_uneven_ones_named() -> None:
    slow = [SlowPeriod(rank, 0.9 - rank / 10, 5) for rank in range(5)]
    assert slow_words(slow, ranks=8).endswith("rank 2 by 70 % from step 5 on, 2 more ranks")
    uneven = [SlowPeriod(1, 0.5, 0), SlowPeriod(0, 0.06, 0)]
    assert "rank 1 by 50 %" in slow_words(uneven, ranks=2)


def test_what_cannot_be_estimated_is_said() -> None:
    now = RunProgress(elapsed_s=1.0, step=0.0, predicted_step=8.0, steps=200.0)
    assert left_words(now) == "time left unknown"
    assert aim_words(now, PREDICTED.aim, None) == "90 % accuracy not reached in the prediction"
    assert aim_words(now, PREDICTED.aim, 20.0) == "time to 90 % accuracy unknown"


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quickstart", "--machine", "machine.yaml"], "--machine: found without --watch"),
        (["--replay", "run", "--watch"], "--watch: found beside --replay"),
        (["quickstart", "--watch", "--machine", "none.yaml"], "found 'none.yaml', which is no file"),
        (["quickstart", "--watch", "--set", "cluster.crashes=[{worker: 0, every: 1 s, recovery: 1 s}]"], "crashes"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["train", *arguments, "--out", str(tmp_path)])
    assert answer.exit_code == 2 and message in answer.stderr


def test_without_a_machine_the_costs_are_those_of_the_scenario() -> None:
    costs = costs_of(load("quickstart"), None, joined=False)
    assert costs.machine is None and "nothing was measured here" in costs.words
