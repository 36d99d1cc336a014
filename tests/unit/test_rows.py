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

from paceline.cli.options import ScenarioOptions
from paceline.cli.output import Output
from paceline.cli.progress import ExpectedTime, Left
from paceline.cli.simulate_command import _estimating, simulate
from paceline.records import Run
from paceline.reports.comparison.run_table import RunRows, runs_table, seeds_table
from paceline.reports.text import as_text
from paceline.reports.words import duration
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

        def simulate(scenario: Any, *, keep: Callable[[Run], Run], **_: Any) -> list[Run]:
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
        report=False,
        folder=tmp_path,
        out=Console(file=out, force_terminal=terminal, width=80),
        err=Console(file=err, force_terminal=terminal, width=80),
    )
    simulate("quickstart", ScenarioOptions(algorithms="sync-sgd,agd,easgd"), output=told)
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
    told = Output(report=False, folder=tmp_path, quiet=True, out=Console(file=out, width=80))
    simulate("quickstart", ScenarioOptions(algorithms="sync-sgd,agd", seeds=2), output=told)
    assert ["sync-sgd" in text for text in found] == [False, False, True, True, True]
    assert ["agd" in text for text in found] == [False, False, False, False, True]
    assert "Means over 2 seeds" in out.getvalue()


def test_json_is_one_document_at_the_end(look: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []
    look(lambda: printed.append(capsys.readouterr().out))
    told = Output(report=False, folder=tmp_path, as_json=True)
    simulate("quickstart", ScenarioOptions(algorithms="sync-sgd,agd"), output=told)
    assert printed == ["", "", ""]
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2


@pytest.mark.parametrize("each", [True, False])
def test_rows_say_what_the_whole_table_says_and_stand_below_each_other(each: bool) -> None:
    names = ["sync-sgd", "k-avg", "post-local-sgd"]
    runs = [run(name, seed=seed) for name in names for seed in (1, 2)]
    rows, stream = RunRows(names, 2, each=each), io.StringIO()
    console = Console(file=stream, width=80)
    for one in runs:
        if (row := rows.add(one)) is not None:
            console.print(row)
    whole = as_text([runs_table(runs) if each else seeds_table(runs)], width=80)
    assert stream.getvalue().replace("─", "").split() == whole.replace("─", "").split()
    lines = [line for line in stream.getvalue().splitlines() if line.startswith(tuple(names))]
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert all(len(line) <= 80 for line in stream.getvalue().splitlines())


def lefts(kinds: list[str], reports: list[tuple[float, float]], *, ends: tuple[float, ...] = ()) -> list[Left | None]:
    """Returns the estimates at these times and completed parts of the current run; a run ends at each of `ends`."""
    clock, found, ended = Clock(), [], 0
    expected = ExpectedTime(kinds, clock)
    for now_s, part in reports:
        while ended < len(ends) and ends[ended] <= now_s:
            clock.now_s, ended = ends[ended], ended + 1
            expected.ended()
        clock.now_s = now_s
        found.append(expected.left((ended + part) / len(kinds)))
    return found


def worst(reports: list[tuple[float, float]]) -> float:
    """Returns the largest factor by which an estimate for one run that these reports describe is wrong.

    The last tenth of the time is left out, where a single step decides.
    """
    end_s = reports[-1][0]
    pairs = zip(lefts(["agd"], reports), reports, strict=True)
    ratios = [left.seconds / (end_s - now_s) for left, (now_s, _) in pairs if left is not None and now_s < 0.9 * end_s]
    assert ratios, "something is said before the end"
    return max(max(ratio, 1 / ratio) for ratio in ratios)


def steady(rate: float, start: tuple[float, float], every_s: float = 1.0) -> list[tuple[float, float]]:
    """Returns reports from a time and a completed part to the end."""
    (began_s, part), count = start, round((1 - start[1]) / rate / every_s)
    return [(began_s + n * every_s, part + n * every_s * rate) for n in range(count)] + [
        (began_s + (1 - part) / rate, 1.0)
    ]


def test_nothing_is_said_before_a_few_per_cent() -> None:
    early = [(0.0, 0.0), (60.0, 0.001), (600.0, 0.02), (601.0, 0.029)]
    assert lefts(["agd"], early) == [None] * 4
    assert lefts(["agd"], [(0.0, 0.0), (1.0, 0.5)]) == [None, None], "nor before some seconds"


def test_a_steady_run_is_estimated_exactly() -> None:
    assert worst(steady(0.005, (0.0, 0.0))) == pytest.approx(1.0)


def test_a_slow_start_is_forgotten() -> None:
    """A first step of a minute, for code that is compiled, before 100 s of one per cent a second."""
    reports = [(0.0, 0.0), (60.0, 0.002), *steady(0.01, (61.0, 0.012))]
    assert worst(reports) == pytest.approx(1.0)
    halved = [(0.0, 0.0), *steady(0.001, (1.0, 0.001))[:60], *steady(0.01, (61.0, 0.06))]
    assert worst(halved) < 11, "at first ten times too slow"
    late = [left for left, (_, part) in zip(lefts(["agd"], halved), halved, strict=True) if part >= 0.13]
    assert [left.seconds for left in late if left is not None] == pytest.approx(
        [halved[-1][0] - now_s for now_s, part in halved if part >= 0.13]
    )


def test_alternating_progress_is_averaged() -> None:
    """Ten quick steps, then an evaluation of 4 s, again and again."""
    reports, now_s = [(0.0, 0.0)], 0.0
    for step in range(1, 201):
        now_s += 0.2 if step % 10 else 4.0
        reports.append((now_s, step / 200))
    assert worst(reports) < 2


def test_a_run_tells_nothing_of_another_method() -> None:
    """The first method's ten seconds are no estimate for the next two, which are slower or not known."""
    kinds = ["sync-sgd", "agd", "agd", "easgd"]
    found = lefts(kinds, [(11.0, 0.0), (15.0, 0.01), (61.0, 0.25), (261.0, 0.5)], ends=(10.0, 211.0))
    assert found[:2] == [None, None]
    first, second = found[2:]
    assert first is not None and second is not None
    own_s = 46 / 0.24 * 0.75
    assert (first.untimed, second.untimed) == (1, 1)
    assert first.seconds == pytest.approx(own_s + 51 + own_s)
    assert second.seconds == pytest.approx(201.0 - 50.0), "the second seed as the first"
    assert lefts(["agd"] * 2, [(11.0, 0.0)], ends=(10.0,)) == [Left(9.0, 0)]


def test_nothing_is_left_when_all_has_ended() -> None:
    assert lefts(["agd"], [(0.0, 0.0), (10.0, 1.0)])[-1] == Left(0.0, 0)
    assert lefts(["agd"], [(10.0, 0.0)], ends=(10.0,)) == [Left(0.0, 0)]


def test_a_long_simulation_says_so_once() -> None:
    clock = Clock()
    stream, told = io.StringIO(), list[tuple[str, float]]()
    output = Output(err=Console(file=stream, width=200))
    estimating = _estimating(
        ExpectedTime(["sync-sgd", "agd"], clock), lambda name, done: told.append((name, done)), output
    )
    assert estimating is not None
    for now_s in range(0, 50, 5):
        clock.now_s = float(now_s)
        estimating("sync-sgd", now_s / 200)
    assert stream.getvalue() == "expected duration: about 2 min, and 1 run of another method is not timed yet\n"
    assert told[0] == ("sync-sgd", 0.0)
    assert told[-1] == ("sync-sgd, about 60 s and 1 more run left", 45 / 200)


def test_a_short_one_does_not() -> None:
    clock = Clock()
    stream = io.StringIO()
    output = Output(err=Console(file=stream, width=200))
    estimating = _estimating(ExpectedTime(["sync-sgd"], clock), lambda *_: None, output)
    assert estimating is not None
    for now_s in range(10):
        clock.now_s = float(now_s)
        estimating("sync-sgd", now_s / 10)
    assert stream.getvalue() == ""
    assert duration(9.0) == "9 s"
