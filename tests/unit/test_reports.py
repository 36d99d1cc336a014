"""Comparisons of artificial runs: the JSON output, the tables, the text and the figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from paceline.records import Run
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.reports.comparison.conclusion import conclusion
from paceline.reports.comparison.run_table import comparison_tables, error_cell, runs_table, speed_tables
from paceline.reports.comparison.turns import MachineChange
from paceline.reports.comparison_answer import comparison_chart
from paceline.reports.palette import PALETTE
from paceline.reports.png import figure_of, save
from paceline.reports.text import as_text
from tests.made_up import run

FAST, SLOW, NEVER = (0.1, 0.95), (0.1, 0.5, 0.95), (0.1, 0.5)


def comparison(
    *,
    seeds: int = 1,
    predicted: dict[str, tuple[float, ...]] | None = None,
    measured: dict[str, tuple[float, ...]] | None = None,
    other_load: float = 0.02,
    target: float | None = 0.9,
) -> ComparisonResult:
    """Step times 1 % too short, 9 % without messages, 5 % without spread, 12 % too long by the α–β model."""
    predicted = predicted or {"sync-sgd": FAST, "async-sgd": SLOW}
    measured = measured or predicted

    def runs(step_s: float) -> list[object]:
        return [
            run(name, accuracies=curve, step_s=step_s, seed=seed, target=target)
            for name, curve in predicted.items()
            for seed in range(seeds)
        ]

    real = [
        run(name, "measured", accuracies=curve, seed=seed, target=target)
        for name, curve in measured.items()
        for seed in reversed(range(seeds))
    ]
    wrong = {"no_message_cost": runs(0.91), "no_spread": runs(0.95), "alpha_beta": runs(1.12)}
    return assemble("tiny", simulated=runs(0.99), measured=real, wrong=wrong, other_load=other_load)  # type: ignore[arg-type]


def printed(found: ComparisonResult, width: int = 80) -> str:
    return as_text(comparison_tables(found), width=width)


def test_the_answer_has_the_promised_shape() -> None:
    answer = json.loads(json.dumps(comparison().document(), allow_nan=False))
    assert answer.keys() == {"scenario", "predicts", "algorithms", "other_load", "transports", "calibration"}
    assert answer["predicts"] == "this machine"
    assert [line["name"] for line in answer["algorithms"]] == ["sync-sgd", "async-sgd"]
    line = answer["algorithms"][0]
    speed = {"machine_change", "corrected", "within"}
    assert line.keys() == {"name", "simulated", "measured", "error", "wrong_models", "explanation", *speed}
    assert [line[key] for key in speed] == [None] * 3, "the speed of the machine is not known"
    assert line["simulated"]["kind"] == "simulated"
    assert line["measured"]["kind"] == "measured"
    assert line["error"]["step_s"]["mean"] == pytest.approx(-0.01)
    assert line["wrong_models"]["no_message_cost"]["step_s"]["mean"] == pytest.approx(-0.09)
    assert line["wrong_models"]["no_spread"]["step_s"]["mean"] == pytest.approx(-0.05)


def test_the_part_of_an_error_that_is_the_machines_change_has_a_table_and_a_sentence() -> None:
    """The machine was 20 % slower in the runs: at that speed, predictions are 18.8 % too long and not 1 % too short."""
    found = comparison()
    corrected = {line.name: run(line.name, accuracies=FAST, step_s=1.188, target=0.9) for line in found.lines}
    changes = {
        (name, 0): MachineChange(predicted=0.5, measured=0.6, waiting=0.1, run=made) for name, made in corrected.items()
    }
    runs = [made for line in found.lines for made in line.predicted_runs]
    real = [made for line in found.lines for made in line.measured_runs]
    wrong: dict[str, list[Run]] = {"no_message_cost": runs, "no_spread": runs, "alpha_beta": runs}
    changed = assemble("tiny", simulated=runs, measured=real, wrong=wrong, other_load=0.0, changes=changes)
    line = changed.lines[0]
    assert line.machine_change == pytest.approx(0.2)
    assert line.corrected is not None and line.corrected["step_s"]["mean"] == pytest.approx(0.188)
    row = next(row for row in as_text(speed_tables(changed), width=80).splitlines() if "async-sgd" in row)
    assert row.split()[:4] == ["async-sgd", "+20.0", "-1.0", "+18.8"]
    assert "changed by 20 % on average" in conclusion(changed) and "18.8 % instead of 1.0 %" in conclusion(changed)
    assert not speed_tables(found) and "speed of this machine" not in conclusion(found)


def test_with_several_seeds_every_figure_is_an_interval() -> None:
    line = comparison(seeds=3).document()["algorithms"][0]
    assert line["simulated"]["step_s"]["mean"] == pytest.approx({"mean": 0.99, "low": 0.99, "high": 0.99})
    assert line["error"]["step_s"]["mean"].keys() == {"mean", "low", "high"}


def test_the_tables_say_everything_in_eighty_columns() -> None:
    text = printed(comparison())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text.replace("0 … 1", "")
    row = next(line for line in text.splitlines() if line.strip().startswith("async-sgd"))
    assert row.split() == ["async-sgd", "990", "1,000", "-1.0", "-9.0", "-5.0", "+12.0"]
    assert "measured, paced" in text
    assert "Time to 90 % accuracy" in text


def test_tables_with_intervals_fit_too() -> None:
    text = printed(comparison(seeds=3))
    assert "…" not in text.replace("0 … 1", "")
    assert re.search(r"async-sgd +990 .*\n +±0 ", text)


def test_without_a_target_there_is_no_time_to_it() -> None:
    assert "Time to" not in printed(comparison(target=None))


def test_runs_table() -> None:
    text = as_text([runs_table([run("sync-sgd", seed=7)])], width=80)
    assert "simulated" in text
    assert re.search(r"sync-sgd +7 +4 +4 +1,000 +0\.5 +2 +100 +0", text)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(
            comparison(),
            "sync-sgd reaches 90 % accuracy soonest, as predicted: 0.941 s simulated, 0.941 s measured.",
            id="right",
        ),
        pytest.param(
            comparison(measured={"sync-sgd": SLOW, "async-sgd": FAST}),
            "async-sgd reached 90 % accuracy soonest, in 0.941 s; predicted soonest was sync-sgd with 0.941 s "
            "(async-sgd: 1.89 s predicted; sync-sgd: 1.89 s measured).",
            id="wrong",
        ),
        pytest.param(
            comparison(predicted={"sync-sgd": NEVER}), "90 % accuracy was reached by no algorithm.", id="none"
        ),
        pytest.param(comparison(), "predicted within 1.0 % (worst: ", id="worst error"),
        pytest.param(
            comparison(),
            "without message cost it would have been 9.0 %, without spread 5.0 %, by the α–β model 12.0 %.",
            id="models",
        ),
        pytest.param(comparison(other_load=0.02), "Other programs took 2.0 % of this machine meanwhile.", id="quiet"),
        pytest.param(comparison(other_load=0.2), "20.0 % of this machine meanwhile, so take", id="busy"),
    ],
)
def test_the_conclusion(found: ComparisonResult, words: str) -> None:
    assert words in conclusion(found)


def test_the_figure_has_a_colour_a_method_and_simulated_dashed(tmp_path: Path) -> None:
    axes = figure_of([comparison_chart(comparison())]).axes[0]
    curves = {(to_hex(line.get_color()), line.is_dashed()) for line in axes.lines if np.size(line.get_xdata()) > 1}
    assert {(PALETTE[0].lower(), True), (PALETTE[1].lower(), True)} <= curves
    assert sum(not dashed for _, dashed in curves) >= 2
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert {f"{name}, {kind}" for name in ("sync-sgd", "async-sgd") for kind in ("measured", "simulated")} <= {*labels}
    save([comparison_chart(comparison())], tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("sign", [1, -1])
def test_an_error_is_coloured_by_its_size(sign: int) -> None:
    assert [error_cell(sign * size).tone for size in (0.05, 0.15, 0.16)] == ["good", "fair", "bad"]
