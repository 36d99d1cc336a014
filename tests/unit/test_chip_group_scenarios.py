"""A chip in groups of cores, as a scenario describes it: `cluster.nodes[].groups`."""

from __future__ import annotations

from typing import Any

import pytest

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.papers.sc17.knl import CHIP_GB_PER_S, CORE_GB_PER_S
from paceline.scenarios import Scenario
from paceline.topologies.catalogue.device_catalogue import SPECS
from paceline.topologies.compute.chip_groups import partitioned
from paceline.workloads import find_model


def chip(**node: Any) -> Scenario:
    """A Knights Landing chip that computes AlexNet's batch of 256."""
    return paceline.load(
        {
            "name": "chip",
            "algorithms": ["chip-partitioned-sgd"],
            "workload": {"model": "alexnet", "learning": "none", "batch_per_worker": 256},
            "cluster": {"nodes": [{"device": "knl-7250", **node}]},
            "stop": {"updates": 2},
        }
    )


@pytest.mark.parametrize("mode", ["flat", "cache"])
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_a_group_takes_the_time_of_the_closed_form(groups: int, mode: Any) -> None:
    """With 16 groups the copies of the data no longer fit into MCDRAM, and the groups get slower."""
    scenario = chip(groups={"count": groups, "data": "687 MB", "memory_mode": mode})
    (plan,) = scenario.plans()
    whole = partitioned(
        SPECS["knl-7250"],
        find_model("alexnet"),
        groups,
        samples=256,
        data_bytes=687e6,
        optimizer_copies=1,
        mode=mode,
    )
    device = plan.cluster.nodes[0].device
    assert plan.job.workers == groups
    assert device.compute_s(256 // groups) == pytest.approx(whole.compute_s, rel=1e-12)
    assert device.rates is not None
    assert device.rates.bytes_per_s(1e9) == pytest.approx(whole.bytes_per_s / groups)
    assert (whole.needed_bytes > 16e9) == (groups == 16)


def test_data_of_the_groups_count_towards_the_memory() -> None:
    fast, slow = (
        chip(groups={"count": 16, "data": data}).plans()[0].cluster.nodes[0].device.compute_s(16)
        for data in ("1 MB", "2 GB")
    )
    assert slow > 1.1 * fast


def test_groups_share_the_memory_of_their_chip() -> None:
    (plan,) = chip(groups={"count": 4}).plans()
    rates = plan.cluster.nodes[0].host_rates
    assert rates is not None
    assert rates.total_bytes_per_s == CHIP_GB_PER_S * 1e9
    assert rates.bytes_per_s(1e9) == CORE_GB_PER_S * 1e9


def test_a_scenario_with_groups_comes_back_from_its_record() -> None:
    scenario = chip(groups={"count": 4, "data": "687 MB", "memory_mode": "cache"})
    assert paceline.load(scenario.dump()) == scenario


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"groups": {"count": 35}}, r"groups.count: found 35, expected 1 to 34, the tiles of knl-7250"),
        ({"groups": {"count": 4}, "device": "p100"}, r"groups.count: p100-sxm2: found a gpu to divide into groups"),
        ({"groups": {"count": 4}, "workers_per_node": 2}, r"workers_per_node: found beside groups; expected one of"),
        ({"groups": {"count": 4, "memory_mode": "hot"}}, r"groups.memory_mode: found 'hot', expected .*flat"),
        ({"groups": {"count": 32, "data": "4 GB"}}, r"32 groups of alexnet need .* GB too much"),
        (
            {"groups": {"count": 2}, "device": {"name": "own", "overhead": "1 ms", "per_sample": "1 ms"}},
            r"device: found .*expected a many-core chip",
        ),
    ],
)
def test_mistakes_in_groups_are_told(node: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chip(**node).plans()
