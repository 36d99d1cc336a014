"""Several seeds: intervals, algorithms that reached the target, and differences that seeds can prove."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.records import Run
from paceline.records.figures import WALL_TIME, WITH_ERRORS
from paceline.records.metrics import interval
from paceline.reports.blocks import Column, text_of
from paceline.reports.comparison.comparison import assemble, line
from paceline.reports.comparison.conclusion import conclusion
from paceline.reports.comparison.predict import WRONG_MODELS
from paceline.reports.comparison.ranking import Aim, aim_of, figures, leaders, soonest, told_apart
from paceline.reports.comparison.run_table import error_cell, runs_table, seeds_table
from paceline.reports.run_answer import introduction
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_table import tabulate
from paceline.reports.sweeps.sweep_words import sweep_words
from paceline.reports.text import as_text
from tests.made_up import run

SEVERAL = st.lists(st.integers(-(10**6), 10**6).map(lambda value: value / 1000), min_size=2, max_size=12)


@given(values=SEVERAL)
def test_an_interval_is_scipys(values: list[float]) -> None:
    found = interval(values)
    if len(set(values)) > 1:  # else scipy has none
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
    assert found["low"] <= found["mean"] <= found["high"]


@given(pairs=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=8))
def test_seeds_tell_apart_what_a_paired_t_test_does(pairs: list[tuple[float, float]]) -> None:
    one, other = map(list, zip(*pairs, strict=True))
    differences = np.subtract(other, one)
    if np.ptp(differences) < 1e-6:
        return  # the test statistic is not defined
    p = stats.ttest_rel(one, other).pvalue
    if abs(p - 0.05) > 1e-9:
        assert told_apart(one, other) is bool(p < 0.05)


def at(name: str, *steps_s: float | None) -> list[Run]:
    """Returns a run per seed whose smoothed accuracy passes 0.9 so many seconds after 2 s; None never reaches it."""
    return [
        run(name, seed=seed, accuracies=(0.1, 0.2, 0.3, 0.5) if after is None else (0.1, 0.2, 0.5, 0.5 + 0.4 / after))
        for seed, after in enumerate(steps_s, start=1)
    ]


def test_the_interval_of_an_error_is_paired() -> None:
    """Steps of 1 to 3 s are predicted 0.1 to 0.12 s too long: the spread of seeds is on both sides and cancels."""
    measured = dict(enumerate((1.0, 2.0, 3.0), 1))
    predicted = {seed: step_s + 0.09 + 0.01 * seed for seed, step_s in measured.items()}
    ours = [run("a", step_s=step_s, seed=seed) for seed, step_s in predicted.items()]
    theirs = [run("a", "measured", step_s=measured[seed], seed=seed) for seed in (3, 1, 2)]
    wrong: dict[str, Sequence[Run]] = dict.fromkeys(WRONG_MODELS, ours)
    found = line("a", simulated=ours, measured=theirs, wrong=wrong).error["step_s"]["mean"]
    low, high = stats.t.interval(0.95, 2, 0.11, stats.sem([0.10, 0.11, 0.12]))
    assert (found["low"], found["mean"], found["high"]) == pytest.approx((low / 2, 0.11 / 2, high / 2))
    assert text_of(error_cell(found), Column("error", signed=True)) == f"+5.5\n±{50 * (high - low) / 2:.1f}"
    with pytest.raises(ValueError, match=r"predicted seeds \[1, 2, 3\], measured seeds \[1, 2\]"):
        line("a", simulated=ours, measured=theirs[1:], wrong=wrong)


def test_figures_of_several_seeds() -> None:
    runs = at("agd", 0.5, None, 0.8)
    found = figures([dict(one.summary) for one in runs])
    assert (found["seeds"], found["reached"]) == (3, {"accuracy": 2, "loss": None})
    assert found["summary"]["time_to_accuracy_s"] is None
    for figure in WITH_ERRORS:
        values = [figure.of(one.summary) for one in runs]
        mine = figure.of(found["summary"])
        assert (mine is None) if None in values else mine == interval(values)


def test_a_constant_figure_has_an_interval_without_width() -> None:
    found = figures([dict(one.summary) for one in at("agd", 0.5, 0.5)])["summary"]
    assert found["wall_s"] == {"mean": 4.0, "low": 4.0, "high": 4.0}


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        pytest.param(at("agd", 0.5), "agd reaches 90 % accuracy, in 2.5 s. Times are interpolated", id="one run"),
        pytest.param(
            [*at("agd", 0.5), *at("ssp", 0.8)],
            "agd reaches 90 % accuracy soonest, in 2.5 s; one seed does not say how much of that is chance.",
            id="one seed",
        ),
        pytest.param(
            [*at("agd", 0.5, 0.6, 0.7), *at("ssp", 0.7, 0.8, 0.91)],
            "agd reaches 90 % accuracy soonest, in 2.6 ±0.25 s; 3 seeds distinguish it from the others",
            id="told apart by pairs, though the intervals overlap",
        ),
        pytest.param(
            [*at("agd", 0.5, 0.6, 0.7), *at("ssp", 0.7, 0.7, 0.55), *at("easgd", 0.65, 0.5, 0.9)],
            "soonest, in 2.6 ±0.25 s; it is not distinguished from ssp (2.65 ±0.22 s) and "
            "easgd (2.68 ±0.5 s) by 3 seeds",
            id="not told apart",
        ),
        pytest.param(
            [*at("agd", 0.5, 0.6), *at("ssp", 0.4, None), *at("easgd", None, None)],
            "±0.64 s. ssp reached it with 1 of 2 seeds. easgd did not reach it. Times are",
            id="some seeds missed",
        ),
        pytest.param(
            [*at("ssp", 0.4, None), *at("easgd", None, None)],
            "90 % accuracy was reached with every seed by no algorithm. ssp reached it with 1 of 2 seeds.",
            id="no algorithm with every seed",
        ),
        pytest.param(at("easgd", None), "90 % accuracy was reached by no algorithm.", id="no algorithm"),
        pytest.param(
            [*at("agd", 0.5), run("ssp", accuracies=(0.1,) * 9), *at("easgd", 0.6)],
            "agd and easgd were evaluated only 4 times, so whether and when they reach the target is uncertain; "
            "evaluate more often.",
            id="too few evaluations",
        ),
        pytest.param([run("agd", target=None)], "", id="no target"),
    ],
)
def test_who_is_soonest(runs: list[Run], words: str) -> None:
    said = soonest(runs)
    assert words in said and bool(words) == bool(said)


def test_how_finely_a_time_is_told() -> None:
    said = "on the mean of the last 1; around the target, evaluations lie up to 1 s apart."
    assert said in soonest(at("agd", 0.5))


def test_the_table_has_a_line_for_each_algorithm_and_fits() -> None:
    runs = [*at("agd", 0.5, 0.6, 0.7), *at("layerwise-sgd-next-forward", 0.7, None, 0.9)]
    text = as_text([seeds_table(runs)], width=80)
    lines = [line.split() for line in text.splitlines()]
    assert ["agd", "4", "4", "1,000", "0.5", "2.6"] in [line[:6] for line in lines]
    assert any("±0.25" in line for line in lines)
    assert any(line[:1] == ["layerwise-sgd-next-forward"] and "2 of 3" in " ".join(line) for line in lines)
    assert "…" not in text and all(len(line) <= 80 for line in text.splitlines())


def test_the_command_answers_with_figures(tmp_path: Path) -> None:
    words = ["simulate", "quickstart", "--algorithms", "sync-sgd,async-sgd", "--set", "stop.epochs=3", "--seeds", "2"]
    shown = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert "Means over 2 seeds" in shown.stdout and "Runs:" not in shown.stdout and "±" in shown.stdout
    assert "Runs:" in CliRunner().invoke(app, [*words, "--out", str(tmp_path), "--verbose"]).stdout
    answer: Any = json.loads(CliRunner().invoke(app, [*words, "--out", str(tmp_path), "--json"]).stdout)
    assert [(one["algorithm"], one["seeds"]) for one in answer["figures"]] == [("sync-sgd", 2), ("async-sgd", 2)]
    for one in answer["figures"]:
        walls = [mine["summary"]["wall_s"] for mine in answer["runs"] if mine["algorithm"] == one["algorithm"]]
        assert one["summary"]["wall_s"] == pytest.approx(interval(walls))
        assert one["stop_reason"] == {"epochs": 2} and math.isclose(one["summary"]["wall_s"]["mean"], sum(walls) / 2)


@pytest.mark.parametrize(
    ("accuracy", "loss", "final_accuracy", "kind"),
    [(0.9, None, 0.5, "accuracy"), (0.9, 0.1, 0.5, "accuracy"), (0.9, 0.1, None, "loss"), (None, 0.1, 0.5, "loss"),
     (0.9, None, None, "accuracy"), (None, None, 0.5, None)],
)  # fmt: skip
def test_what_runs_are_judged_by(
    accuracy: float | None, loss: float | None, final_accuracy: float | None, kind: str | None
) -> None:
    aim = aim_of({"target_accuracy": accuracy, "target_loss": loss, "final_accuracy": final_accuracy})
    assert (None if aim is None else aim.kind) == kind


def test_equal_is_not_the_same_as_not_distinguished() -> None:
    figures_s = {name: interval([mean - half, mean, mean + half]) for name, mean, half in
                 (("a", 1.0, 0.1), ("b", 2.0, 0.1), ("c", 1.7, 0.6), ("d", 1.0, 0.1), ("e", 1.0, 0.7))}  # fmt: skip
    found = leaders(figures_s, WALL_TIME)
    assert found == (["a", "d"], ["c", "e"])
    assert leaders(figures_s, WALL_TIME, worst=True).first == ["b"]
    assert leaders({name: one["mean"] for name, one in figures_s.items()}, WALL_TIME).first == [
        "a",
        "d",
        "e",
    ]


def test_means_that_look_alike_are_not_equal_if_their_intervals_do_not() -> None:
    said = soonest([*at("agd", 0.50, 0.51, 0.52), *at("ssp", 0.1, 0.51, 0.92)])
    assert said.startswith(
        "agd reaches 90 % accuracy soonest, in 2.51 ±0.025 s; it is not distinguished from ssp (2.51 ±"
    )
    assert "equally" not in said


def test_figures_of_a_stand_in_say_so_in_the_same_sentence() -> None:
    def said(accuracy: float | None, loss: float | None) -> str:
        aim = aim_of(
            {"target_accuracy": accuracy, "target_loss": loss, "final_accuracy": 0.5,
             "stand_in": "digits-mlp standing in for resnet50"}
        )  # fmt: skip
        assert aim is not None
        return aim.words

    assert said(0.93, None) == "93 % accuracy of digits-mlp standing in for resnet50"
    assert said(None, 0.5) == "a loss of 0.5 (digits-mlp standing in for resnet50)"
    learned: Any = {"stand_in": "digits-mlp standing in for resnet50"}
    runs = [replace(one, summary=one.summary | learned) for one in [*at("agd", 0.5), *at("ssp", 0.9)]]
    assert "reaches 90 % accuracy of digits-mlp standing in for resnet50 soonest" in soonest(runs)
    assert "learning of digits-mlp standing in for resnet50" in str(runs_table(runs).title)
    workload = {"model": "resnet50", "dataset": "imagenet", "learning": "train"}
    told = introduction([replace(one, scenario={**one.scenario, "workload": workload}) for one in runs])
    assert "training digits-mlp standing in for resnet50" in told and "imagenet" not in told


def swept(times_s: dict[str, list[float]], of: str = "") -> str:
    """The sentences of a sweep over a link, with these times to the target with each link, one for each seed."""
    base = dict(run("sync-sgd").summary)
    entries = [
        SweepEntry(vary={"link": link}, algorithm="sync-sgd", seed=seed, workers=4,
              summary={**base, "steps": 10_000, "time_to_accuracy_s": time_s})
        for link, times in times_s.items() for seed, time_s in enumerate(times, 1)
    ]  # fmt: skip
    sweep = SweepResult(scenario="s", paths=("link",), target=Aim("accuracy", 0.9, of), entries=tuple(entries))
    return "\n".join(sweep_words(tabulate(sweep)))


def test_a_sweep_names_points_that_seeds_do_not_distinguish_with_their_intervals() -> None:
    said = swept({"a": [0.60, 0.61, 0.62], "b": [0.4, 1.35, 2.3], "c": [5.0, 5.1, 5.2]})
    assert (
        "Soonest at 90 % accuracy is sync-sgd with link=a: 0.61 ±0.025 s; 3 seeds do not distinguish it from sync-sgd "
        "with link=b (1.35 ±2.4 s; 95 % intervals overlap)." in said
    )
    assert "equally" not in said.partition("Soonest")[2] and "link=c" not in said.partition("Soonest")[2]
    assert (
        "are sync-sgd with link=a and sync-sgd with link=b, equally (to the precision shown): 0.61 ±0.025 s."
        in swept({"a": [0.60, 0.61, 0.62], "b": [0.60, 0.61, 0.62]})
    )
    alone = swept({"a": [0.61], "b": [1.35]}, of="digits-mlp standing in for resnet50")
    assert "Soonest at 90 % accuracy of digits-mlp standing in for resnet50 is sync-sgd with link=a: 0.61 s." in alone


def test_a_comparison_names_what_seeds_do_not_distinguish() -> None:
    def said(*times: list[Run]) -> str:
        runs = [one for mine in times for one in mine]
        measured = [replace(one, summary={**one.summary, "kind": "measured"}) for one in runs]
        wrong: dict[str, list[Run]] = {model: list(runs) for model in WRONG_MODELS}
        return conclusion(assemble("made-up", simulated=runs, measured=measured, wrong=wrong, other_load=0.0))

    found = said(at("agd", 0.5, 0.5, 0.51), at("ssp", 0.4, 0.9, 0.9))
    assert found.startswith(
        "agd reaches 90 % accuracy soonest, as predicted: 2.5 ±0.014 s simulated, 2.5 ±0.014 s measured"
    )
    assert "; the seeds do not distinguish agd as measured from ssp (2.73 ±0.72 s; 95 % intervals overlap)" in found
    assert "equally" not in found
