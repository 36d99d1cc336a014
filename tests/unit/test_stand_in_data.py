"""A small problem that is learned where the folder of a data set is missing: `workload.stand_in`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.records.document import to_json
from paceline.reports.comparison.ranking import soonest
from paceline.reports.html.document import render
from paceline.reports.run_answer import answer_of_runs
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.fitted_ranges import outside
from paceline.scenarios.resolution.plan import refuse_simulated_only
from paceline.workloads.datasets.catalogue import HOME
from tests import datasets


@pytest.fixture(autouse=True)
def _no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME, raising=False)


def lenet(**workload: Any) -> Scenario:
    """LeNet on four devices, with digits in place of a missing MNIST."""
    stand_in = {"model": "digits-mlp", "batch_per_worker": 8}
    return paceline.load(
        {
            "name": "lenet",
            "algorithms": ["sync-easgd3"],
            "workload": {"model": "lenet", "batch_per_worker": 32, "stand_in": stand_in, **workload},
            "cluster": {"nodes": [{"device": "k80", "workers_per_node": 4}]},
            "evaluate": {"every": "512 samples"},
            "stop": {"samples": 2048},
        }
    )


def test_numbers_are_the_stand_ins_and_sizes_and_times_the_models() -> None:
    (run,) = paceline.simulate(lenet())
    (timed,) = paceline.simulate(lenet(learning="none"))
    assert run.summary["final_accuracy"] is not None
    assert run.summary["bytes_sent"] == timed.summary["bytes_sent"]
    assert run.summary["step_s"] == timed.summary["step_s"]
    assert lenet().workload.num_samples == 1437 * 4


def test_a_run_with_a_stand_in_says_so() -> None:
    (note,) = [line for line in outside(lenet().plans()[0]) if line.startswith("Learned on")]
    assert note == (
        "Learned on the digits of scikit-learn, which stand in for MNIST: losses and accuracies are those of "
        "digits-mlp, sizes and times those of lenet. To train lenet itself, give workload.data_dir."
    )
    assert not [line for line in outside(lenet(learning="none").plans()[0]) if line.startswith("Learned on")]


def test_every_form_of_an_answer_names_the_stand_in() -> None:
    """As text, HTML and JSON, for a scenario of a paper."""
    scenario = paceline.load("dbs-mnist", ["stop.epochs=0.2"], algorithms=["async-sgd"])
    answer = answer_of_runs(paceline.simulate(scenario))
    words = "Learned on the digits of scikit-learn, which stand in for MNIST"
    assert any(note.startswith(words) for note in answer.notes)
    assert words in to_json(answer.data()) and words in render(answer)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("paceline.workloads.datasets.catalogue.INSTALLED", tmp_path)
    (note,) = [line for line in outside(lenet(dataset="fashion-mnist").plans()[0]) if line.startswith("Learned on")]
    assert "stand in for Fashion-MNIST" in note
    assert note.endswith("give workload.data_dir, or apt-get install dataset-fashion-mnist.")


def test_the_model_itself_is_trained_if_its_data_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = datasets.mnist(tmp_path / "mnist", train=256, test=20)
    assert lenet(data_dir=str(folder)).workload.stood_in is None
    monkeypatch.setenv(HOME, str(tmp_path))
    scenario = lenet()
    assert scenario.workload.stood_in is None
    assert scenario.plans()[0].job.learner.num_samples == 256


def test_a_real_run_refuses_a_stand_in() -> None:
    with pytest.raises(
        InputError, match=r"lenet: workload.stand_in: found digits-mlp on digits in place of a data set"
    ):
        refuse_simulated_only(lenet())


def test_mistakes_in_a_stand_in_are_told() -> None:
    with pytest.raises(InputError, match=r"workload.stand_in.model: found 'digits-mpl', expected .*digits-mlp"):
        lenet(stand_in={"model": "digits-mpl", "batch_per_worker": 8})
    with pytest.raises(InputError, match=r"workload.stand_in.*: missing"):
        lenet(stand_in={"model": "lenet", "batch_per_worker": 8})


def test_the_figures_of_a_run_name_the_stand_in() -> None:
    (run,) = paceline.simulate(lenet().dump() | {"target": {"accuracy": 0.5}})
    assert "50 % accuracy of digits-mlp standing in for lenet" in soonest([run])
    assert run.summary.get("stand_in") == "digits-mlp standing in for lenet"
    assert "stand_in" not in paceline.simulate(lenet(learning="none"))[0].summary
