"""Long simulations: each row is printed when it is ready, and the expected duration is printed and refined."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from paceline.cli import actions
from paceline.cli.expected import Expected
from paceline.cli.output import Output
from paceline.records import Run
from paceline.reports.comparison.run_table import Rows, runs_table, seeds_table
from paceline.reports.comparison.words import duration
from tests.made_up import run


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[Any]]:
    """Runs artificial simulations; returns the output just before each of them, and after the last."""

    def install(seen: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []

        def simulate(scenario: Any, progress: Any, keep: Callable[[Run], Run], engine: str) -> list[Run]:
            runs = []
            for plan in scenario.plans():
                found.append(seen())
                runs.append(keep(run(plan.name, seed=plan.seed)))
            found.append(seen())
            return runs

        engine = ModuleType("paceline.simulator.runs.run")
        vars(engine)["simulate"] = simulate
        monkeypatch.setitem(sys.modules, engine.__name__, engine)
        return found

    return install


@pytest.mark.parametrize("terminal", [False, True])
def test_a_row_is_printed_before_the_next_method_is_simulated(look: Any, tmp_path: Path, terminal: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    found = look(out.getvalue)
    told = Output(
        out=Console(file=out, force_terminal=terminal, width=80),
        err=Console(file=err, force_terminal=terminal, width=80),
    )
    actions.simulate(actions.Ask("quickstart", algorithms="sync-sgd,agd,easgd", out=tmp_path), told)
    assert [[name in text for name in ("sync-sgd", "agd", "easgd")] for text in found] == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert out.getvalue().count("algorithm") == 1, "the header is printed once"
    assert "reach" in out.getvalue()


def test_means_over_seeds_are_printed_when_the_last_seed_has_ended(look: Any, tmp_path: Path) -> None:
    out = io.StringIO()
    found = look(out.getvalue)
    told = Output(quiet=True, out=Console(file=out, width=80))
    actions.simulate(actions.Ask("quickstart", algorithms="sync-sgd,agd", seeds=2, out=tmp_path), told)
    assert ["sync-sgd" in text for text in found] == [False, False, True, True, True]
    assert ["agd" in text for text in found] == [False, False, False, False, True]
    assert "Means over 2 seeds" in out.getvalue()


def test_json_is_one_document_at_the_end(look: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    look(lambda: printed.append(capsys.readouterr().out))
    actions.simulate(actions.Ask("quickstart", algorithms="sync-sgd,agd", out=tmp_path), Output(as_json=True))
    assert printed == ["", "", ""]
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2


@pytest.mark.parametrize("each", [True, False])
def test_rows_say_what_the_whole_table_says_and_stand_below_each_other(each: bool) -> None:
    names = ["sync-sgd", "k-avg", "post-local-sgd"]
    runs = [run(name, seed=seed) for name in names for seed in (1, 2)]
    rows, stream = Rows(names, 2, each=each), io.StringIO()
    console = Console(file=stream, width=80)
    for one in runs:
        if (row := rows.add(one)) is not None:
            console.print(row)
    whole = io.StringIO()
    Console(file=whole, width=80).print(runs_table(runs) if each else seeds_table(runs))
    assert stream.getvalue().replace("─", "").split() == whole.getvalue().replace("─", "").split()
    lines = [line for line in stream.getvalue().splitlines() if line.startswith(tuple(names))]
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert all(len(line) <= 80 for line in stream.getvalue().splitlines())


def test_the_rate_of_the_run_that_goes_on_is_taken_for_the_others() -> None:
    clock = Clock()
    expected = Expected(4, clock)
    clock.now_s = 2.0  # is set up
    assert expected.left_s(0.0) is None
    clock.now_s = 4.0
    assert expected.left_s(0.1 / 4) is None, "the first steps are no measure"
    clock.now_s = 12.0
    left_s = expected.left_s(0.25 / 4)  # 2 s, and 10 s for a quarter: 42 s
    assert left_s == pytest.approx(30 + 3 * 42)
    assert left_s is not None
    assert expected.total_s(left_s) == pytest.approx(4 * 42)


def test_runs_that_have_ended_refine_the_estimate() -> None:
    clock = Clock()
    expected = Expected(3, clock)
    clock.now_s = 10.0
    expected.ended()
    assert expected.left_s(1 / 3) == pytest.approx(20.0), "the second run as the first"
    clock.now_s = 30.0
    expected.ended()
    clock.now_s = 33.0
    assert expected.left_s(2 / 3) == pytest.approx(15.0 - 3.0)
    clock.now_s = 133.0
    assert expected.left_s(2.5 / 3) == pytest.approx(100.0)


def test_nothing_is_left_when_all_has_ended() -> None:
    clock = Clock()
    expected = Expected(1, clock)
    clock.now_s = 5.0
    expected.left_s(0.0)
    clock.now_s = 10.0
    assert expected.left_s(1.0) == pytest.approx(0.0)


def test_a_long_simulation_says_so_once() -> None:
    clock = Clock()
    stream, told = io.StringIO(), list[tuple[str, float]]()
    output = Output(err=Console(file=stream, width=200))
    estimating = actions._estimating(Expected(2, clock), lambda name, done: told.append((name, done)), output)
    assert estimating is not None
    for now_s in range(0, 50, 5):
        clock.now_s = float(now_s)
        estimating("sync-sgd", now_s / 200)
    assert stream.getvalue().count("expected duration: about 3 min, an estimate from the first steps of sync-sgd") == 1
    assert told[0] == ("sync-sgd", 0.0)
    assert told[-1] == ("sync-sgd, about 3 min left", 45 / 200)


def test_a_short_one_does_not() -> None:
    clock = Clock()
    stream = io.StringIO()
    output = Output(err=Console(file=stream, width=200))
    estimating = actions._estimating(Expected(1, clock), lambda *_: None, output)
    assert estimating is not None
    for now_s in range(10):
        clock.now_s = float(now_s)
        estimating("sync-sgd", now_s / 10)
    assert stream.getvalue() == ""
    assert duration(9.0) == "9 s"
