"""The same scenario and seed leave the same files, byte for byte, with gradients that are computed together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.records.store import save
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from tests.thorough import extra

RUN = "from tests.property.test_same_record import stored; from pathlib import Path; import sys; stored(*sys.argv[1:])"


def stored(algorithm: str, out: str) -> Path:
    """A run of 12 workers on the digits, as a folder."""
    scenario = load(
        {
            "name": "same",
            "algorithms": [algorithm],
            "workload": {"model": "digits-mlp", "batch_per_worker": 8},
            "cluster": {
                "nodes": [{"device": {"name": "d", "overhead": "4 ms", "per_sample": "0.5 ms"}, "count": 12}],
                "network": {"topology": "star", "link": "eth-10g"},
                "step_time": {"distribution": "lognorm", "sigma": 0.2},
            },
            "evaluate": {"every": "1 epoch"},
            "stop": {"samples": 12_000},
        }
    )
    (run,) = simulate(scenario)
    found = save(run, Path(out)).path
    assert found is not None
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}


@pytest.mark.parametrize("algorithm", [extra("sync-sgd"), "async-sgd"])
def test_same_bytes_here_and_in_another_process(algorithm: str, tmp_path: Path) -> None:
    """Also where Python orders sets and hashes otherwise; more blocks than it takes for one to be recorded."""
    here = contents(stored(algorithm, str(tmp_path / "here")))
    seeded = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", RUN, algorithm, str(tmp_path / "other")], env=seeded, check=True)
    (elsewhere,) = (tmp_path / "other").iterdir()
    assert len(here) > 3
    assert here == contents(elsewhere)
