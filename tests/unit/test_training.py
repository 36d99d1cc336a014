"""Models of the zoo on the data sets: compatible pairs, the shape of a batch, and that training reduces the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.scenarios import ScenarioError, load
from paceline.workloads import build, find_model, num_samples, problems
from paceline.workloads.datasets import DATA, RECORDS
from paceline.workloads.models.zoo import ZOO
from tests import datasets
from tests.thorough import extra

LIGHT = {name: known for name, known in ZOO.items() if known.data not in (None, "images") and name != "cifar-alexnet"}
PAIRS = [
    (name, data)
    for name, known in LIGHT.items()
    for data, one in DATA.items()
    if one.fits(known.shape, known.classes, tokens=known.tokens)
    and data != RECORDS  # they fit by what is in their folder
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every data set that has files, each in a folder of its name."""
    whole = tmp_path_factory.mktemp("data")
    for name, write in datasets.WRITERS.items():
        write(whole / name)
    return whole


@pytest.fixture(autouse=True)
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATA", str(folder))


def step(index: int, count: int = 4, **more: int) -> Samples:
    return Samples(**{"worker": 0, "workers": 1, "index": index, "count": count, **more})


def test_all_light_models_have_data_sets() -> None:
    assert {name for name, _ in PAIRS} == set(LIGHT)
    assert {data for _, data in PAIRS} == set(DATA) - {RECORDS}


@pytest.mark.parametrize(("model", "data"), [*PAIRS, extra(("cifar-alexnet", "cifar10"))])
def test_every_model_has_finite_gradients_on_the_data_that_fits(model: str, data: str) -> None:
    learner = build(model, dataset=data, seed=1)
    start = learner.initial()
    gradient, loss = learner.gradient(start, learner.load(step(0)))
    assert learner.layout == find_model(model).layout()
    assert gradient.shape == start.shape == (find_model(model).parameters,)
    assert torch.isfinite(gradient).all()
    assert loss == pytest.approx(np.log(ZOO[model].classes or 0), rel=0.1), "about what guessing costs"
    parts: list[torch.Tensor] = []
    learner.layer_gradients(start, learner.load(step(0)), lambda _, part: parts.append(part))
    assert torch.equal(torch.cat(parts[::-1]), gradient)


@pytest.mark.parametrize("model", ["lenet", "small-cnn", "digits-cnn", "mlp"])
def test_gradients_together_are_those_one_by_one(model: str) -> None:
    learner: Any = build(model, seed=1, dtype="float64")
    learner.together = 3
    samples = [step(0, worker=worker, workers=3) for worker in range(3)]
    vectors = [learner.initial() * (1 + worker / 10) for worker in range(3)]
    for (one, loss), vector, sample in zip(learner.gradients(vectors, samples), vectors, samples, strict=True):
        alone, same = learner.gradient(vector, learner.load(sample))
        np.testing.assert_allclose(one, alone, rtol=1e-9, atol=1e-12)
        assert loss == pytest.approx(same, rel=1e-12)


@pytest.mark.parametrize(("model", "rate"), [("lenet", 0.02), ("small-cnn", 0.05), ("mlp", 0.05)])
def test_something_is_learned(model: str, rate: float) -> None:
    learner = build(model, seed=1)
    weights = learner.initial()
    before = learner.evaluate(weights)
    for index in range(20):
        weights = weights - rate * learner.gradient(weights, learner.load(step(index, count=20)))[0]
    after = learner.evaluate(weights)
    assert after.loss < 0.9 * before.loss
    assert after.accuracy is not None and before.accuracy is not None
    assert after.accuracy > before.accuracy


@pytest.mark.parametrize(("data", "model"), [("mnist", "lenet"), ("cifar10", "small-cnn"), ("mnist", "mlp")])
def test_pictures_are_standardised_by_channel_and_stay_bytes_in_memory(data: str, model: str) -> None:
    learner: Any = build(model, dataset=data, seed=1, dtype="float64")
    kept = learner.examples.train.inputs
    assert kept.dtype == torch.uint8
    inputs = learner.load(step(0, count=learner.num_samples)).inputs
    assert inputs.shape == (learner.num_samples, *ZOO[model].shape)
    channels = inputs.reshape(learner.num_samples, DATA[data].shape[0], -1)  # type: ignore[index]
    np.testing.assert_allclose(channels.mean(dim=(0, 2)), 0.0, atol=1e-12)
    np.testing.assert_allclose(channels.std(dim=(0, 2), correction=0), 1.0, rtol=1e-12)
    again: Any = build(model, dataset=data, seed=2)
    assert again.examples.train.inputs.data_ptr() == kept.data_ptr(), "learners share what was read"


def test_a_channel_that_never_changes_becomes_0() -> None:
    from paceline.workloads.batches.examples import Standardised

    pictures = torch.randint(0, 256, (5, 2, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    pictures[:, 1] = 37
    numbers = Standardised.by(pictures, (2, 4, 4))(pictures, torch.float64)
    assert (numbers[:, 1] == 0).all()
    assert numbers[:, 0].std() > 0.9


def test_digits_are_the_same_flat_and_as_pictures() -> None:
    flat, pictures = build("digits-mlp", seed=1), build("digits-cnn", seed=1)
    assert torch.equal(pictures.load(step(3)).inputs, flat.load(step(3)).inputs.reshape(4, 1, 8, 8))


def test_batch_normalisation_of_a_known_model_keeps_nothing() -> None:
    from paceline.workloads.learners.torch_building import prepared

    module = prepared(ZOO["resnet50"].make())
    assert not list(module.buffers())


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (
            "lenet",
            {"dataset": "cifar10"},
            "dataset: found 'cifar10' (3 × 32 × 32, 10 classes) for lenet, which takes 1 × 28",
        ),
        (
            "lenet",
            {"dataset": "minst"},
            "dataset: found 'minst', expected mnist, fashion-mnist, images, records (did you mean mnist?)",
        ),
        ("small-cnn", {"dataset": "cifar100"}, "tells 10 classes apart; expected cifar10, images, records"),
        ("digits-mlp", {"data_dir": "/data"}, "data_dir: found '/data', expected none: digits is bundled"),
        ("lenet", {"data_dir": "/nowhere"}, "data_dir: found no folder /nowhere; expected in it train-images-idx3"),
        (
            "quadratic",
            {"data_dir": "/x", "learning": "quadratic"},
            "data_dir: found '/x' for quadratic, expected none",
        ),
        ("transformer", {}, "learning: found 'train', but no data set has what transformer takes"),
        (
            "transformer",
            {"dataset": "mnist", "learning": "none"},
            "expected none: no data set has what the model takes",
        ),
    ],
)
def test_what_does_not_fit_is_told(model: str, given: dict[str, Any], words: str) -> None:
    (line,) = problems(model, **{"dataset": None, "learning": "train", **given})
    assert words in line


def test_more_folders_than_a_model_knows_classes_are_told(tmp_path: Path) -> None:
    datasets.images(tmp_path, classes=11, each=2)
    (line,) = problems("small-cnn", dataset="images", data_dir=str(tmp_path), learning="train")
    assert line.startswith("data_dir: found 11 classes in it, expected at most the 10 that the model tells apart")
    assert problems("small-cnn-100", dataset="images", data_dir=str(tmp_path), learning="train") == []


def test_what_is_not_trained_needs_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_DATA")
    for data, count in [(None, 50_000), ("cifar10", 50_000), ("images", 50_000)]:
        learner = build("small-cnn", dataset=data, learning="none", seed=1)
        assert learner.num_samples == count
    assert build("lenet", dataset="fashion-mnist", learning="none", seed=1).num_samples == 60_000
    with pytest.raises(InputError, match="or learning: none, where only time matters"):
        build("small-cnn", seed=1)


def test_an_epoch_is_what_is_in_the_folder(folder: Path) -> None:
    assert num_samples("lenet", dataset=None, data_dir=None, learning="train") == 60
    assert num_samples("small-cnn", dataset="images", data_dir=str(folder / "images"), learning="train") == 12


SCENARIO = """
name: tiny
algorithms: [sync-sgd]
workload: {model: lenet, data_dir: inside/mnist, batch_per_worker: 5}
cluster: {nodes: [{device: {name: a, overhead: 4 ms, per_sample: 1 ms}, workers_per_node: 4}]}
stop: {epochs: 1}
"""


def test_a_directory_is_seen_from_the_scenarios_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_DATA")
    datasets.mnist(tmp_path / "inside/mnist")
    (tmp_path / "tiny.yaml").write_text(SCENARIO, encoding="utf-8")
    scenario = load(tmp_path / "tiny.yaml")
    assert scenario.workload.data_dir == f"{tmp_path}/inside/mnist"
    assert load(scenario.dump()) == scenario
    assert scenario.workload.num_samples == 60
    with pytest.raises(ScenarioError, match="at most 15, so that 4"):
        load(scenario, ["workload.batch_per_worker=16"])


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SCENARIO, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "tiny.yaml", ["stop.epochs=-1"])
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"tiny.yaml: workload.data_dir: found no folder {tmp_path}/inside/mnist; expected in it")
    assert second.startswith("tiny.yaml: stop.epochs: found -1")
