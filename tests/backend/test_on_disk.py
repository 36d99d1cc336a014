"""A data set on disk: every interpreter draws the same samples in the same order, and ends in the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.workloads import build
from tests import datasets
from tests.backend.jobs import job_with, plain
from tests.backend.test_differential import INTERPRETERS, TOLERANCE, Noting
from tests.support import built

pytestmark = pytest.mark.backend

STEPS, BATCH, WORKERS = 7, 4, 4


@pytest.mark.parametrize("method", ["sync-sgd", "hbs-sgd"])
def test_simulated_and_real_runs_draw_the_same_samples(method: str, tmp_path: Path) -> None:
    folder = datasets.mnist(tmp_path / "mnist", train=60, test=10, packed=True)
    learner = build("lenet", data="mnist", directory=str(folder), seed=3, precision="float64")
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
