"""Calibration and comparison in processes of a launcher on two hosts, which are both this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.scenarios.machine_file import load_machine
from tests.backend.test_joined import MAIN, SMALL, ended, srun, together
from tests.warm import Program

pytestmark = [pytest.mark.backend, pytest.mark.timeout(300)]

SHORT = f"""
from paceline.backend.calibration import calibrate, gradient_costs, message_costs
calibrate.FEWEST_ROUNDS, gradient_costs.SECONDS, gradient_costs.LAUNCHES = 1, 0.05, 1
message_costs.COLLECTIVE_STEPS, message_costs.MESSAGE_STEPS, message_costs.LAUNCHES = 10, 10, 1
{MAIN}
"""
"""few steps: nothing is asserted about times"""


def written(folder: Path) -> Path:
    nodes = [{**SMALL["cluster"]["nodes"][0], "workers_per_node": 1, "count": 2}]
    scenario = {**SMALL, "algorithms": ["sync-sgd"], "cluster": {**SMALL["cluster"], "nodes": nodes}}
    path = folder / "small.yaml"
    path.write_text(json.dumps(scenario))
    return path


def call(of: int, *arguments: str) -> list[Any]:
    """Runs a command in this many processes, on two hosts according to Slurm's variables."""
    processes = [Program(SHORT, list(arguments), env=one) for one in together(srun, of)]
    try:
        return ended(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_hosts_are_calibrated_and_runs_on_them_predicted(tmp_path: Path) -> None:
    path, machine = str(written(tmp_path)), tmp_path / "machine.yaml"
    found = call(4, "calibrate", path, "--batches", "16", "--seconds", "1", "--out", str(machine))
    assert [one.status for one in found] == [0] * 4, found
    assert [bool(one.out) for one in found] == [True, False, False, False], "only the first process prints"
    loaded = load_machine(machine)
    assert [host.ranks for host in loaded.hosts] == [1, 1] and loaded.ranks == 1
    assert all(host.cores >= 1 and 0 <= host.other_load <= 1 for host in loaded.hosts)
    linked = loaded.joined()
    between = linked.between((1, 1))
    assert between is not None and between.collectives.keys() == {("AllReduce", 2)}
    assert between.messages and linked.host.inside_messages
    assert [busy.ranks for busy in loaded.gradients[0].busy] == [1]

    out = ("--out", str(tmp_path / "runs"), "--json")
    found = call(2, "compare", path, "--machine", str(machine), *out)
    assert [one.status for one in found] == [0] * 2, found
    answer = json.loads(found[0].out)
    assert answer["predicts"] == "hosts of this run" and not found[1].out
    (line,) = answer["algorithms"]
    assert line["simulated"]["steps"] == line["measured"]["steps"]
    assert line["machine_change"] is not None and line["corrected"] is not None, "both slownesses are known"


def test_too_few_processes_are_refused_by_the_first_one(tmp_path: Path) -> None:
    found = call(2, "calibrate", str(written(tmp_path)), "--out", str(tmp_path / "machine.yaml"))
    assert [one.status for one in found] == [2, 2]
    assert "found 2 processes, and the probe of messages has 3 ranks, its server included" in found[0].err
    assert not found[1].err and "Traceback" not in found[0].err
