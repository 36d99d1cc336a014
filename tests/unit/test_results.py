"""Typed results of the Python API: tables, frames, figures, HTML, reports, and the errors of their arguments."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.reports.check_result import CheckResult
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.reports.comparison.predict import WRONG_MODELS
from paceline.reports.comparison.ranking import Aim
from paceline.reports.planning.plan_answer import PlanResult
from paceline.reports.planning.planner import names_of_arguments
from paceline.reports.result import Result
from paceline.reports.run_results import MeasuredRuns, SimulatedRuns
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.scenarios.resolution.axes import axes_of
from tests.buggy_methods import SkipsTheMean
from tests.made_up import run
from tests.plan_scenarios import QUADRATIC


@pytest.fixture(scope="module")
def runs() -> SimulatedRuns:
    return SimulatedRuns(run(name, step_s=seconds) for name, seconds in (("sync-sgd", 1.0), ("agd", 0.5)))


def comparison(*seeds: int) -> ComparisonResult:
    simulated = [run("agd", step_s=1.0, seed=seed) for seed in seeds]
    measured = [run("agd", "measured", step_s=1.25, seed=seed) for seed in seeds]
    wrong = dict.fromkeys(WRONG_MODELS, simulated)
    return assemble("made-up", simulated=simulated, measured=measured, wrong=wrong, other_load=0.0)


@pytest.fixture(scope="module")
def swept(runs: SimulatedRuns) -> SweepResult:
    entries = tuple(
        SweepEntry(vary={"stop.epochs": at}, algorithm=one.algorithm, seed=1, workers=2, number=at, summary=one.summary)
        for at, one in enumerate(runs)
    )
    failed = SweepEntry(vary={"stop.epochs": 2}, algorithm="agd", seed=1, workers=2, number=2, error="no memory")
    return SweepResult(
        scenario="tiny", paths=("stop.epochs",), target=Aim("accuracy", 0.9), entries=entries, failed=(failed,)
    )


@pytest.fixture(scope="module")
def checked() -> CheckResult:
    return paceline.check([SkipsTheMean, "sync-sgd"], schedules=5)


# --- runs ------------------------------------------------------------------------------------------------------------


def test_runs_are_a_list(runs: SimulatedRuns) -> None:
    first, second = runs
    assert isinstance(runs, list) and runs == [first, second]
    assert runs[1] is second and runs[-1] is second
    assert type(runs[:1]) is SimulatedRuns and runs[:1] == [first]
    assert runs["agd"] == [second]
    assert pickle.loads(pickle.dumps(runs)).algorithms == copy.copy(runs).algorithms == ["sync-sgd", "agd"]


def test_an_unknown_algorithm_or_table_is_named(runs: SimulatedRuns) -> None:
    with pytest.raises(InputError, match="algorithm: found 'sgd', expected sync-sgd or agd"):
        runs["sgd"]
    with pytest.raises(InputError, match="table: found 'update', expected summary, spans, updates"):
        runs.frame("update")
    with pytest.raises(InputError, match="x: found 'steps', expected time, samples, epochs or updates"):
        runs.plot(x="steps")  # type: ignore[arg-type]


def test_the_frame_of_runs_has_their_figures(runs: SimulatedRuns) -> None:
    frame = runs.frame()
    assert frame["algorithm"].tolist() == ["sync-sgd", "agd"]
    assert frame["wall_s"].tolist() == [4.0, 2.0] and frame["step_s_mean"].tolist() == [1.0, 0.5]
    assert frame["time_to_accuracy_s"].tolist() == [one.summary["time_to_accuracy_s"] for one in runs]


def test_the_frame_of_a_table_has_the_rows_of_all_runs(runs: SimulatedRuns) -> None:
    frame = runs.frame("updates")
    assert list(frame.columns[:2]) == ["algorithm", "seed"]
    assert frame["staleness"].tolist() == [lag for one in runs for lag in one.tables.updates["staleness"]]


def test_curves_of_runs_are_drawn_against_each_axis(runs: SimulatedRuns) -> None:
    for x, column in (("time", "time_s"), ("samples", "samples"), ("epochs", "epoch")):
        curves = runs.plot(x=x).axes[0].get_lines()[: len(runs)]  # type: ignore[arg-type]
        assert [np.asarray(curve.get_xdata()).tolist() for curve in curves] == [
            one.tables.evaluations[column].tolist() for one in runs
        ]


def test_runs_that_learn_nothing_have_two_panels(runs: SimulatedRuns) -> None:
    silent = SimulatedRuns([run("agd", accuracies=())])
    assert [axes.get_ylabel() for axes in silent.plot().axes] == ["throughput, samples/s", ""]


def test_no_runs() -> None:
    none = MeasuredRuns()
    assert repr(none) == "MeasuredRuns: no runs"
    assert none.frame().empty and none.frame("spans").empty
    with pytest.raises(InputError, match="found none"):
        none.plot()


# --- comparison, sweep, check, plan ----------------------------------------------------------------------------------


def test_a_comparison_has_a_row_for_each_figure() -> None:
    found = comparison(1)
    frame = found.frame()
    (row,) = frame[frame["figure"] == "step_s_mean"].to_dict("records")
    assert (row["simulated"], row["measured"]) == (1.0, 1.25)
    assert row["error"] == pytest.approx(-0.2)
    assert "90 % accuracy soonest, as predicted" in found.words
    assert (found.simulated[0].kind, found.measured[0].kind) == ("simulated", "measured")


def test_a_comparison_of_several_seeds_has_intervals() -> None:
    frame = comparison(1, 2).frame().set_index("figure")
    assert {"simulated_low", "simulated_high", "measured_low"} <= set(frame.columns)
    assert frame.loc["step_s_mean", "simulated_low"] == 1.0


def test_a_comparison_without_accuracies_draws_step_times() -> None:
    sides = [[run("agd", kind, step_s=2.0, accuracies=(), target=None)] for kind in ("simulated", "measured")]
    wrong = dict.fromkeys(WRONG_MODELS, sides[0])
    found = assemble("x", simulated=sides[0], measured=sides[1], wrong=wrong, other_load=0.0)
    heights = [bar.get_height() for bar in found.plot().axes[0].patches]  # type: ignore[attr-defined]
    assert heights == [2000.0, 2000.0]


def test_a_sweep_keeps_failed_runs(swept: SweepResult) -> None:
    frame = swept.frame()
    assert frame["stop.epochs"].tolist() == [0, 1, 2] and frame["error"].tolist()[2] == "no memory"
    assert "agd: failed" in repr(swept)


def test_a_sweep_that_failed_says_why() -> None:
    failed = SweepEntry(vary={"stop.epochs": 2}, algorithm="agd", seed=1, workers=2, error="no memory")
    sweep = SweepResult(scenario="tiny", paths=("stop.epochs",), target=None, entries=(), failed=(failed,))
    assert repr(sweep) == "tiny: all 1 runs failed; no memory"
    with pytest.raises(InputError, match="all 1 runs failed; no memory"):
        sweep.frame()


def test_axes_are_written_as_for_the_command() -> None:
    assert axes_of("x=1,2") == axes_of(["x=1,2"]) == axes_of({"x": [1, 2]}) == ["x=1,2"]
    assert axes_of({"stop.epochs": 2, "x": None}) == ["stop.epochs=2", "x=null"]


def test_a_check_has_violations(checked: CheckResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not checked.holds and len(checked) == 2
    assert {method for method, _ in checked.violated} == {SkipsTheMean.name}
    frame = checked.frame()
    assert set(frame[frame["verdict"] == "violated"]["method"]) == {SkipsTheMean.name}
    assert checked[1:].holds and checked[1].method == SyncSgd()
    assert "The messages of the run" in repr(checked) and "`save` of the result" in repr(checked)
    files = checked.save()
    assert all(f"paceline check --replay {file}" in repr(checked) for file in files)
    assert len(files) == len(checked.violated)
    assert all(file.is_file() and file.with_suffix(".svg").is_file() for file in files)


def test_mistakes_of_a_check_are_reported_together() -> None:
    with pytest.raises(InputError) as error:
        paceline.check(["sync-sdg", 3, "agd"])  # type: ignore[list-item]
    first, second = str(error.value).splitlines()
    assert "did you mean sync-sgd?" in first and second.startswith("methods: found 3, expected a name")
    with pytest.raises(InputError, match="deaths: found it without exhaustive"):
        paceline.check("agd", deaths=True)


def test_an_exhaustive_check() -> None:
    assert paceline.check("agd", exhaustive=True, workers=2, steps=1).holds


def test_mistakes_of_a_plan_name_arguments() -> None:
    mistakes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"target": "acc=3"}, "target: found 'acc=3'"),
        ({"target": "loss=0.1", "within": "3"}, "within: found '3', expected"),
        ({"target": paceline.Target()}, r"target: found Target\(\), expected an accuracy or a loss"),
    )
    for given, words in mistakes:
        with pytest.raises(InputError, match=f"^{words}"):
            paceline.plan("quickstart", **given)
    with pytest.raises(InputError, match=r"^tuning_seeds: wrong"), names_of_arguments():
        raise InputError("--tuning-seeds: wrong")


def test_a_plan_has_the_scenario_of_its_best_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is that of test_planning; here it has two trials, evaluated in this process."""
    from paceline.reports.planning import search
    from paceline.reports.sweeps.parallel_tasks import Done

    def each(work: Any, pieces: Any, **_: Any) -> Any:
        return ((at, Done(work(piece))) for at, piece in enumerate(pieces))

    monkeypatch.setattr(search, "each", each)
    found = paceline.plan(
        QUADRATIC, target=paceline.Target(loss=0.05), algorithms=["sync-sgd"], minimise=["time", "cost"],
        workers=[2], batches=[8], trials=2, tuning_seeds=1, seeds=2, within=3600, jobs=1,
    )  # fmt: skip
    assert isinstance(found, PlanResult) and found.scenario().algorithms[0].name == "sync-sgd"
    assert found.scenario(found.best).cluster.workers == found.best.choice.workers
    frame = found.frame()
    assert {"time_s", "time_s_low", "cost_usd", "learning_rate"} <= set(frame.columns)
    assert frame["time_s"][0] == pytest.approx(found.best.time_s)
    everything(found)
    monkeypatch.chdir(tmp_path)
    assert found.report() == Path("small-plan.html")
    assert "small: plan" in Path("small-plan.html").read_text(encoding="utf-8")


# --- what every result has -------------------------------------------------------------------------------------------


def everything(result: Result) -> None:
    """A repr for a terminal, HTML for a notebook, a figure and a frame."""
    text, html = repr(result), result._repr_html_()
    assert len(text.splitlines()) > 3 and max(map(len, text.splitlines())) <= 120
    assert html.count("<table>") == html.count("</table>") >= 1
    assert isinstance(result.plot(), Figure)
    assert len(result.frame()) > 0


def test_every_result_is_shown(runs: SimulatedRuns, swept: SweepResult, checked: CheckResult) -> None:
    for result in (runs, comparison(1, 2), swept, checked):
        everything(result)


def test_html_is_escaped() -> None:
    assert "<script>" not in SimulatedRuns([run("<script>")])._repr_html_()


def test_every_result_writes_a_report(
    runs: SimulatedRuns, swept: SweepResult, checked: CheckResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [result.report() for result in (runs, swept, checked)] == [
        Path("tiny-simulated.html"), Path("tiny-sweep.html"), Path("check.html"),
    ]  # fmt: skip
    assert comparison(1).report("mine.html") == Path("mine.html")
    assert len(list(tmp_path.glob("*.html"))) == 4


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert paceline.__version__ == version("paceline")
    with pytest.raises(AttributeError, match="no attribute 'release'"):
        paceline.release  # noqa: B018
