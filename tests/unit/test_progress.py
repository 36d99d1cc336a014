"""Progress: bars on a terminal, otherwise a line now and then, nothing with --quiet."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from paceline.backend.status.progress_counters import ProgressWindow, Totals
from paceline.cli.output import Output
from paceline.cli.progress import MOST_BARS, bars, lines


def said(*, quiet: bool = False, terminal: bool = False) -> str:
    """Returns the standard error of a stage with three reports, of which the last comes later."""
    stream = io.StringIO()
    told = Output(quiet=quiet, err=Console(file=stream, force_terminal=terminal, width=100))
    with told.progress() as stage:
        report = stage("training")
        if report is not None:
            report("sync-sgd, step 10", 0.25)
            report("sync-sgd, step 20", 0.5)
    return stream.getvalue()


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said() == ""
    times = iter([0.0, 9.9, 10.0, 10.0])
    monkeypatch.setattr("paceline.cli.progress.time.monotonic", lambda: next(times))
    assert said() == "training: sync-sgd, step 20, 50%\n"


def test_bars_on_a_terminal_and_nothing_if_quiet() -> None:
    assert "sync-sgd, step 20" in said(terminal=True)
    assert said(quiet=True) == said(quiet=True, terminal=True) == ""


def shown_runs(reports: list[tuple[str, float]], names: list[str]) -> str:
    """Returns what a terminal shows after these reports of runs."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, height=40)
    with bars(console, redirect_stdout=False) as begin:
        report = begin("training", names)
        assert report is not None
        for now, done in reports:
            report(now, done)
    # the last drawing before the bars are removed
    return stream.getvalue().rpartition("training")[2]


def test_each_run_has_a_bar() -> None:
    shown = shown_runs([("agd, step 3", 0.1), ("easgd, step 10", 0.5)], ["agd", "ssp", "easgd", "gossip"])
    rows = {row.split()[0]: row for row in shown.splitlines()[1:] if row.split()}
    assert "run 3 of 4" in shown.splitlines()[0]
    assert "done" in rows["agd"] and "done" in rows["ssp"]
    assert "easgd, step 10" in rows["easgd"] and "gossip" not in rows


def test_only_the_last_bars_are_shown() -> None:
    names = [f"run-{number}" for number in range(20)]
    shown = shown_runs([("now", 0.5)], names)
    assert [name for name in names if f"{name} " in shown] == names[11 - MOST_BARS : 11]


def test_lines_name_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 10.0, 10.0, 11.0, 25.0, 25.0])
    monkeypatch.setattr("paceline.cli.progress.time.monotonic", lambda: next(times))
    printed: list[str] = []
    report = lines(printed.append)("training", ["agd", "ssp"])
    assert report is not None
    for done in (0.25, 0.3, 0.75):
        report("step", done)
    assert printed == ["training: run 1 of 2, step, 25%", "training: run 2 of 2, step, 75%"]


def test_a_window_tells_of_the_last_while_alone() -> None:
    """Ten steps a second for 4 s, then nothing for 3 s."""
    window = ProgressWindow(workers=2, window_s=2.0)
    rates, steps_s = [], []
    for tenth in range(1, 71):
        step = min(tenth, 40)
        recent = window.add(Totals(0.1 * tenth, step, 2 * step, 1.0 * step, 2 * step, 2 * step, 64 * step))
        rates.append(recent.samples_per_s)
        steps_s.append(recent.step_s)
    assert rates[39] == pytest.approx(640.0) and steps_s[39] == pytest.approx(0.1)
    assert rates[49] == pytest.approx(320.0, rel=0.1)
    assert rates[69] == 0.0 and steps_s[69] is None
