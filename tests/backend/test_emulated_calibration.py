"""A calibration on an emulated network, with few steps: what it measures, and a prediction from its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.backend.calibration import calibrate, emulation_costs, gradient_costs, message_costs
from paceline.scenarios import load
from paceline.scenarios.machine_file import load_machine, save_machine
from paceline.scenarios.resolution.machine_costs import this_host
from paceline.simulator.runs.dry_run import dry_run
from paceline.simulator.runs.run import simulate
from tests.backend.test_hosts import LACKING, left_alone  # noqa: F401  # a fixture

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(
        LACKING is not None or not Path("/dev/net/tun").exists(), reason=f"no network namespaces: {LACKING}"
    ),
]
LATENCY_S = 0.003
"""of a route"""


def test_a_calibration_on_an_emulated_network_predicts_its_runs(
    left_alone: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(calibrate, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(gradient_costs, "MOST", 3)
    monkeypatch.setattr(message_costs, "MESSAGE_STEPS", 6)
    for name in ("COLLECTIVE_STEPS", "MOST_STEPS"):
        monkeypatch.setattr(message_costs, name, 8)
    monkeypatch.setattr(emulation_costs, "STEPS", 6)
    scenario = load(
        {
            "name": "unpaced",
            "algorithms": ["sync-sgd"],
            "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8, "learning": "none"},
            "cluster": {
                "nodes": [{"device": {"name": "any", "overhead": "50 ms", "per_sample": "0 s"}, "count": 2}],
                "network": {"topology": "star", "link": {"latency": "3 ms", "bandwidth": "100 Mbit/s"}},
            },
            "train": {"pace": "none", "network": "emulated"},
            "stop": {"samples": 320},
        }
    )
    made = calibrate.calibrate(scenario, dry_run(scenario.plans()), batches=[8], seconds=0.1)
    save_machine(made, tmp_path / "machine.yaml")
    costs = this_host(load_machine(tmp_path / "machine.yaml"), scenario)
    assert costs.emulation is not None
    (times,) = costs.host.gradients
    assert [ranks for ranks, _ in times.busy] == [1, 2] and times.overlap == 1.0 and 0 < times.beside <= 1
    # an all-reduce of two takes two rounds of an announcement and data, of which the first is announced early
    assert costs.emulation.all_reduce_s > 2 * LATENCY_S and costs.emulation.message_s >= 0.0
    (run,) = simulate(scenario, machine=costs)
    step_s = run.summary["step_s"]["mean"]
    assert step_s is not None
    assert 2 * LATENCY_S + times.alone_s * min(times.factors) < step_s, "device times of the scenario are not used"
