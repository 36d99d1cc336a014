"""A data set on disk: every interpreter draws the same samples in the same order and ends with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.workloads import build
from paceline.workloads.convert_dataset import convert, find_source
from paceline.workloads.models.threads import torch_threads
from paceline.workloads.reading import ReadingSettings, Strategy
from tests import datasets
from tests.backend.jobs import job_with, plain
from tests.backend.test_differential import INTERPRETERS, TOLERANCE, Noting
from tests.support import built
from tests.thorough import sampled

pytestmark = pytest.mark.backend

STEPS, BATCH, WORKERS = 7, 4, 4


@pytest.mark.parametrize("method", sampled(["sync-sgd", "hbs-sgd"], ["hbs-sgd"]))
def test_simulated_and_real_runs_draw_the_same_samples(method: str, tmp_path: Path) -> None:
    folder = datasets.mnist(tmp_path / "mnist", train=60, test=10, packed=True)
    learner = build("lenet", dataset="mnist", data_dir=str(folder), seed=3, dtype="float64")
    weights, batches = {}, {}
    for name, interpret in INTERPRETERS.items():
        (tmp_path / name).mkdir()
        job = job_with(built(method), Noting(learner, tmp_path / name), steps=STEPS, batch=BATCH)
        weights[name] = plain(interpret(job).weights)
        batches[name] = {file.name: file.read_text().splitlines() for file in (tmp_path / name).iterdir()}
    expected = weights["any-order"]
    scale = np.abs(expected).max()
    assert np.abs(expected - plain(learner.initial())).max() > 1e-3 * scale, "nothing was learned"
    for name in INTERPRETERS:
        assert batches[name] == batches["any-order"]
        np.testing.assert_allclose(weights[name], expected, rtol=0, atol=TOLERANCE["float64"] * scale)
    assert len(batches["real"]) == WORKERS
    contents = [line.split()[-1] for lines in batches["real"].values() for line in lines]
    assert len(set(contents)) == len(contents) == STEPS * WORKERS, "every batch is another"


@pytest.mark.parametrize("strategy", sampled(["scattered", "strided", "contiguous"], ["strided"]))
def test_record_files_are_learned_from_as_the_same_samples_in_memory(strategy: Strategy, tmp_path: Path) -> None:
    """Bit for bit, in every interpreter; each real rank opens the file itself."""
    folder = datasets.mnist(tmp_path / "mnist", train=60, test=10)
    (tmp_path / "records").mkdir()
    convert(find_source("mnist", str(folder), None), tmp_path / "records", seed=None)
    reading = ReadingSettings(strategy=strategy, buffer=4)
    weights = []
    for data, place in (("mnist", folder), ("records", tmp_path / "records")):
        learner = build("lenet", dataset=data, data_dir=str(place), seed=3, reading=reading)
        job = job_with(built("sync-sgd"), learner, steps=STEPS, batch=BATCH)
        with torch_threads(1):
            weights.append({name: plain(interpret(job).weights) for name, interpret in INTERPRETERS.items()})
    for name in INTERPRETERS:
        np.testing.assert_array_equal(weights[0][name], weights[1][name])
        assert (weights[0][name] != plain(learner.initial())).any(), "nothing was learned"
