"""Extrapolation: its options and results, which are always marked as estimates."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Evaluation
from paceline.cli.app import app
from paceline.records import Run, store
from paceline.records.epoch_errors import relation_errors, run_spread
from paceline.records.figures import PERCENT
from paceline.records.trace import Snapshot
from paceline.reports.comparison.ranking import Aim
from paceline.reports.extrapolation_table import extrapolation_table, lines_of, words
from paceline.reports.planning.search_space import row_of
from paceline.scenarios import ScenarioError, load
from paceline.simulator.runs.extrapolation import batch_penalty, stability_slowdown
from paceline.simulator.runs.run import simulate
from paceline.simulator.runs.stand_in_training import reached

REFERENCE = {"reaches": "75 % top-1", "epochs": 90, "batch": 256, "provenance": "a paper"}
RELATION = {"noise_scale": 20000, "provenance": "another paper"}
STATED = ("single_run", "relation_errors")
STAND_IN = {"model": "digits-mlp", "batch_per_worker": 4, "accuracy": 0.8, "epochs": 3}
TRAINED = ("time_to_accuracy_s", "final_loss", "final_accuracy", "target_accuracy")


def small(algorithms: list[Any], **extrapolate: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "algorithms": algorithms,
        "workload": {"model": "resnet50", "learning": "none"},
        "cluster": {"system": "minsky", "nodes": 1},
        "stop": {"samples": 1280},
        "extrapolate": {"reference": REFERENCE, **extrapolate},
    }


def mistakes(scenario: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(scenario)
    return str(caught.value).splitlines()


def extrapolated(run: Run) -> dict[str, Any]:
    found = run.summary.get("extrapolated")
    assert found is not None
    return dict(found)


@pytest.fixture(scope="module")
def by_stand_in() -> list[Run]:
    return simulate(small(["sync-sgd", {"name": "async-sgd", "learning_rate": 0.05}], stand_in=STAND_IN) | {"seeds": 2})


@pytest.fixture(scope="module")
def by_relation() -> list[Run]:
    return simulate(small(["sync-sgd", "async-sgd", "k-avg"], relation=RELATION))


# --- what a scenario may ask for


@pytest.mark.parametrize(
    ("scenario", "mistake"),
    [
        (small(["sync-sgd"]), "extrapolate: found neither of stand_in and relation; expected one of them"),
        (
            small(["sync-sgd"], stand_in=STAND_IN, relation=RELATION),
            "extrapolate: found both of stand_in and relation; expected one of them",
        ),
        (
            small(["sync-sgd"], relation=RELATION) | {"workload": {"model": "digits-mlp"}},
            (
                "extrapolate: found a scenario that learns (workload.learning: train); expected learning: none, or no "
                "extrapolate section: what is trained here needs none"
            ),
        ),
        (
            small(["easgd"], relation=RELATION),
            (
                "extrapolate.relation: says nothing of easgd, whose staleness is centre updates between reading the "
                "centre and the landing of the elastic delta; expected a stand_in, or methods with steps between "
                "computing and applying a gradient, server updates between reading the weights and applying the "
                "gradient or local steps since the last average of everyone"
            ),
        ),
        (
            small([{"name": "sync-sgd", "lars": {}}], stand_in=STAND_IN),
            (
                "extrapolate.stand_in: cannot say anything of sync-sgd with lars, as the layers are the model's; "
                "expected it without"
            ),
        ),
        (
            small(["sync-sgd"], stand_in={**STAND_IN, "batch_per_worker": 400}),
            (
                "extrapolate.stand_in.batch_per_worker: found 400, expected at most 359, so that 4 workers "
                "together take no more than all 1437 samples"
            ),
        ),
        (
            small(["sync-sgd"], stand_in={**STAND_IN, "batch_per_worker": 5})
            | {"workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 48}},
            (
                "extrapolate.reference.batch: found 256, expected a batch that is a whole number of the "
                "stand-in's samples; this is 26.6667, as 48 stand for 5"
            ),
        ),
        (
            small(["sync-sgd"], stand_in={**STAND_IN, "model": "digits-mpl"}),
            "extrapolate.stand_in.model: found 'digits-mpl', expected one of",
        ),
        (
            small(["sync-sgd"], stand_in={**STAND_IN, "learning": "none"}),
            "extrapolate.stand_in.learning: found 'none', expected train: it is trained to an accuracy",
        ),
        (
            small(["sync-sgd"], stand_in={**STAND_IN, "alone": "sync-sgd"}),
            "extrapolate.stand_in.alone.name: found 'sync-sgd', expected a method of one worker, such as",
        ),
        (
            small(["sync-sgd"], relation={**RELATION, "staleness": "implicit-momentum"}),
            "extrapolate.relation.momentum: found none, expected the reference's with staleness: implicit-momentum",
        ),
        (
            small(["sync-sgd"], relation={**RELATION, "momentum": 0.9}),
            "extrapolate.relation.momentum: found one, expected none with staleness: stability-limit",
        ),
        (small(["sync-sgd"], relation={"noise_scale": 1}), "extrapolate.relation.provenance: missing"),
        (small(["sync-sgd"], relation={**RELATION, "noise_scale": 0}), "extrapolate.relation.noise_scale: found 0"),
    ],
)
def test_a_mistake_says_where_it_is_and_what_would_be_right(scenario: dict[str, Any], mistake: str) -> None:
    (line,) = mistakes(scenario)
    assert line.removeprefix("scenario: ").removeprefix("small: ").startswith(mistake)


def test_a_scenario_is_read_back_as_it_was_written() -> None:
    for scenario in (
        small(["sync-sgd"], stand_in={**STAND_IN, "learning_rates": [0.1, 1]}),
        small(["agd"], relation=RELATION),
    ):
        assert load(load(scenario).dump()) == load(scenario)


@pytest.mark.parametrize("run", [paceline.train, paceline.compare])
def test_a_real_run_is_refused(run: Any) -> None:
    with pytest.raises(InputError, match=r"small: extrapolate: found a section that only a simulation has"):
        run(small(["sync-sgd"], relation=RELATION))


# --- what is answered


@pytest.mark.parametrize("way", ["by_stand_in", "by_relation"])
def test_nothing_looks_trained(way: str, request: pytest.FixtureRequest) -> None:
    for run in request.getfixturevalue(way):
        assert all(run.summary[key] is None for key in TRAINED) and store.as_array(run.weights) is None
        assert run.tables.evaluations["accuracy"].isna().all() and run.kind == "simulated"
        block = extrapolated(run)
        assert block["label"] == "extrapolated" and len(block["assumptions"]) >= 5
        assert all(sentence.endswith(".") for sentence in block["assumptions"])
        assert block["assumptions"][0].startswith("resnet50 was not trained here")


@pytest.mark.parametrize("way", ["by_stand_in", "by_relation"])
def test_hardware_and_statistics_multiply_to_the_time(way: str, request: pytest.FixtureRequest) -> None:
    for run in request.getfixturevalue(way):
        block = extrapolated(run)
        assert block["samples_per_s"] == run.summary["samples_per_s"]
        assert block["samples_to_target"] == pytest.approx(90 * 1_281_167 * block["statistical_penalty"])
        assert block["time_to_target_s"] == pytest.approx(block["samples_to_target"] / block["samples_per_s"])


def test_the_run_is_the_one_without_extrapolation(by_stand_in: list[Run]) -> None:
    bare = simulate(small(["sync-sgd"], relation=RELATION) | {"extrapolate": None})[0]
    assert bare.tables.updates.equals(by_stand_in[0].tables.updates)
    assert "extrapolated" not in bare.summary
    assert {**by_stand_in[0].summary, "extrapolated": None} == {**bare.summary, "extrapolated": None}


def test_the_relation_takes_batch_and_staleness_from_the_run(by_relation: list[Run]) -> None:
    sync, server, averages = by_relation
    assert extrapolated(sync)["statistical_penalty"] == pytest.approx(batch_penalty(128, 256, 20000))
    staleness = server.summary["staleness"]["mean"]
    assert staleness is not None and 2 < staleness <= 3
    expected = batch_penalty(32, 256, 20000, stability_slowdown(staleness))
    assert extrapolated(server)["statistical_penalty"] == pytest.approx(expected)
    assert extrapolated(averages)["statistical_penalty"] == pytest.approx(batch_penalty(128, 256, 20000))
    assert any(sentence.startswith("Local steps") for sentence in extrapolated(averages)["assumptions"])


def test_the_penalty_is_that_of_the_stand_ins_samples(by_stand_in: list[Run]) -> None:
    for run in by_stand_in:
        block = extrapolated(run)
        evidence = block["evidence"]
        assert block["statistical_penalty"] == evidence["samples"] / evidence["reference_samples"]
        assert evidence["reference_batch"] == 32 and 0 < evidence["samples"] < 3 * 1437 + 4 * 4 * 2
    assert {extrapolated(run)["evidence"]["learning_rate"] for run in by_stand_in} == {0.1, 0.05}


def test_the_same_again(by_stand_in: list[Run]) -> None:
    again = simulate(
        small(["sync-sgd", {"name": "async-sgd", "learning_rate": 0.05}], stand_in=STAND_IN) | {"seeds": 2}
    )
    assert [run.summary for run in again] == [run.summary for run in by_stand_in]


def test_what_is_not_reached_has_no_figure() -> None:
    (run,) = simulate(small([{"name": "sync-sgd", "learning_rate": 1e-6}], stand_in={**STAND_IN, "epochs": 1}))
    block = extrapolated(run)
    assert block["time_to_target_s"] is block["samples_to_target"] is block["statistical_penalty"] is None
    said = "sync-sgd did not reach 80 % accuracy on digits-mlp within 1 epochs with every seed."
    assert said in block["assumptions"]
    lines = lines_of([run])
    assert [extrapolation_table(lines).text(0, column) for column in (2, 3, 4)] == ["not reached"] * 3
    assert "Nothing reached its target" in words(lines)


# --- the best of several rates


def test_the_best_rate_is_the_one_with_the_fewest_samples() -> None:
    every = {}
    for rates in ([0.02], [0.1], [5.0], [0.02, 0.1, 5.0], [5.0, 0.1, 0.02]):
        (run,) = simulate(small(["sync-sgd"], stand_in={**STAND_IN, "learning_rates": rates}))
        every[tuple(rates)] = extrapolated(run)["evidence"]
    assert every[0.1,]["samples"] < every[0.02,]["samples"] and every[5.0,]["samples"] is None
    for order in ((0.02, 0.1, 5.0), (5.0, 0.1, 0.02)):
        assert every[order]["learning_rate"] == 0.1 and every[order]["samples"] == every[0.1,]["samples"]


def test_a_best_rate_at_the_end_of_the_list_is_said() -> None:
    (run,) = simulate(small(["sync-sgd"], stand_in={**STAND_IN, "learning_rates": [0.02, 0.1]}))
    best = "The best learning rate of sync-sgd is 0.1"
    said = f"{best}, at the end of the rates tried: a rate beyond it may need fewer samples."
    assert said in extrapolated(run)["assumptions"]


def test_samples_are_those_of_the_middle_of_the_mean() -> None:
    """Accuracy grows by 0.1 every 100 samples: 0.5 is reached at 500, whatever the evaluations are averaged over."""
    shots = [Snapshot(0.0, number, 100 * number, None, Evaluation(1.0, number / 10)) for number in range(10)]
    found = reached(shots, 0.5)
    assert found is not None and found[0] == pytest.approx(500) and found[1] == 600
    assert reached(shots[:4], 0.5) is None


# --- errors and spread of published trainings


def test_an_estimate_by_the_relation_states_the_errors_of_the_relation(by_relation: list[Run]) -> None:
    fitted, measured = relation_errors()
    for run in by_relation:
        block = extrapolated(run)
        assert block["relation_errors"] == [dataclasses.asdict(fitted), dataclasses.asdict(measured)]
        (sentence,) = [text for text in block["assumptions"] if text.startswith("Epochs by batch: ")]
        for error in (fitted, measured):
            said = f"median error {PERCENT.with_symbol(error.median)}, 90th percentile {PERCENT.with_symbol(error.p90)}"
            assert f"{said} over {error.batches} batches of {error.trainings} published" in sentence
        assert sentence in words(lines_of([run])) and "docs/results/validation.md" in sentence


def test_a_plan_states_the_errors_of_the_relation(by_relation: list[Run]) -> None:
    row = row_of(by_relation[0], Aim("accuracy", 0.75))
    assert any(text.startswith("Epochs by batch: median error") for text in row["extrapolated"] or ())


def test_an_estimate_by_a_stand_in_does_not_claim_the_errors_of_the_relation(by_stand_in: list[Run]) -> None:
    block = extrapolated(by_stand_in[0])
    assert "relation_errors" not in block and not any("Epochs by batch" in text for text in block["assumptions"])
    assert any("was not tested on published trainings" in text for text in block["assumptions"])


def test_a_time_has_the_interval_of_a_single_run(by_relation: list[Run]) -> None:
    spread = run_spread("resnet50")
    assert 0.5 < spread.low < 1 < spread.high < 1.5
    lines = lines_of(by_relation)
    assert lines[0]["single_run"] == {"share": 0.8, "low": spread.low, "high": spread.high, "benchmark": "resnet"}
    table, hours = extrapolation_table(lines), lines[0]["time_to_target_s"] / 3600
    low, high = (f"{hours * factor:.3g}" for factor in (spread.low, spread.high))
    assert table.text(0, 4) == f"{hours:.3g}\n{low}–{high}" and table.words == "Below a time: 80 % of single runs."


def test_a_run_of_an_earlier_version_has_neither(by_relation: list[Run]) -> None:
    block: Any = {key: value for key, value in extrapolated(by_relation[0]).items() if key not in STATED}
    run = dataclasses.replace(by_relation[0], summary={**by_relation[0].summary, "extrapolated": block})
    (line,) = lines_of([run])
    assert "single_run" not in line and "–" not in extrapolation_table([line]).text(0, 4)


# --- where it is shown


def test_the_table_and_the_answer_say_extrapolated(by_stand_in: list[Run]) -> None:
    lines = lines_of(by_stand_in)
    assert [line["algorithm"] for line in lines] == ["sync-sgd", "async-sgd"]
    assert set(lines[0]["time_to_target_s"]) == {"mean", "low", "high"}
    assert str(extrapolation_table(lines).title) == "Extrapolated, not trained, from a stand-in: 75 % top-1"
    text = words(lines)
    first = text.splitlines()[0]
    assert re.fullmatch(
        r"Extrapolated: no run here trained this model. Soonest is async-sgd with [\d.]+ ±[\d.]+ h; the seeds do not "
        r"distinguish it from sync-sgd \([\d.]+ ±[\d.]+ h; 95 % intervals overlap\), by the samples that a stand-in "
        r"needs, if all of this holds:",
        first,
    ), first
    for line in lines:
        for sentence in line["assumptions"]:
            assert text.count(f"- {sentence}") == 1


def test_it_is_stored_and_read_back(by_relation: list[Run], tmp_path: Path) -> None:
    run = store.read_run(store.write_run(tmp_path / "run", by_relation[0]).path or tmp_path)
    assert extrapolated(run) == extrapolated(by_relation[0])


def test_the_command_answers_with_it(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(small(["sync-sgd"], relation=RELATION)), encoding="utf-8")
    answer = CliRunner().invoke(app, ["simulate", str(file), "--json", "--out", str(tmp_path)])
    (line,) = json.loads(answer.stdout)["extrapolated"]
    assert line["label"] == "extrapolated" and line["time_to_target_s"] > 0
    shown = CliRunner().invoke(app, ["simulate", str(file), "--out", str(tmp_path)]).stdout
    assert "Extrapolated, not trained, from a relation: 75 % top-1" in shown
    refused = CliRunner().invoke(app, ["train", str(file), "--out", str(tmp_path)])
    assert refused.exit_code == 2 and "--set extrapolate=null" in refused.stderr
