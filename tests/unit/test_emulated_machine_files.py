"""Machine files with an emulated network: written, read, and refused for runs on another network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms.core.errors import InputError
from paceline.scenarios import load
from paceline.scenarios.machine_file import MachinePart, load_machine, save_machine
from paceline.scenarios.resolution.machine_costs import emulated_part, this_host
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.machine_profile import EmulationCosts, MeasuredCosts
from tests.unit.test_machine_files import PROFILE, SCENARIO, machine_of

COSTS = EmulationCosts(
    message_s=1e-3,
    all_reduce_s=0.03,
    few_bytes=64,
    packet_bytes=1500,
    leads_s=(0.0, 2e-5),
    start_s=1e-4,
)


def scenario(*changes: str) -> Scenario:
    nodes = [{**SCENARIO["cluster"]["nodes"][0], "workers_per_node": 1, "count": 2}]
    network: dict[str, Any] = {"topology": "star", "link": {"latency": "2 ms", "bandwidth": "20 Mbit/s"}}
    cluster = {"nodes": nodes, "network": network}
    train = {"pace": "none", "network": "emulated"}
    return load({**SCENARIO, "cluster": cluster, "train": train}, list(changes))


@pytest.fixture
def machine(tmp_path: Path) -> MachinePart:
    part = machine_of().model_copy(update={"emulated": emulated_part(scenario().plans()[0], COSTS)})
    save_machine(part, tmp_path / "machine.yaml")
    return load_machine(tmp_path / "machine.yaml")


def test_a_file_keeps_the_costs_of_an_emulated_network(machine: MachinePart) -> None:
    assert machine.alone() == MeasuredCosts(PROFILE, COSTS) == this_host(machine, scenario())
    assert machine.emulated is not None and machine.emulated.hosts == (0, 1)
    assert machine_of().alone() == MeasuredCosts(PROFILE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["train.network=local"], r"train.network: found 'local', expected 'emulated'"),
        (["train.pace=device"], r"train.pace: found 'device' with --machine, expected none"),
        (["cluster.nodes[0].workers_per_node=2"], r"workers on the emulated hosts 0, 1, expected .* 0, 0, 1, 1"),
        (["cluster.network.link.latency=3 ms"], r"found 20 Mbit/s and 1 ms on host0>switch, .* 20 Mbit/s and 1.5 ms"),
        (["cluster.network.topology=ring"], r"found the lines .*switch.*, expected those of cluster.network, .*"),
    ],
)  # fmt: skip
def test_another_network_is_refused(machine: MachinePart, changes: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        this_host(machine, scenario(*changes))


def test_a_file_without_an_emulated_network_is_refused_for_one() -> None:
    with pytest.raises(InputError, match=r"expected 'local' as in the calibration .* `--set train.network=emulated`"):
        this_host(machine_of(), scenario())
