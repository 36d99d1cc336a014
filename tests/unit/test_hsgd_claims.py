"""What the claims on HSGD are computed from, on two nodes."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.papers import hsgd
from paceline.papers.claim import Given, inputs_of
from paceline.scenarios import load

CLAIMS = {claim.name: claim for claim in hsgd.CLAIMS}
NATIVES = ("server", "ring", "one-process", "one-thread", "replicas-on-server")


def given(**changes: str) -> Given:
    """The most plausible inputs of the headline claim with some of them changed, on two nodes."""
    made = CLAIMS["hsgd-efficiency"].given(inputs_of("hsgd"))
    for name, value in {"nodes": "2", **changes}.items():
        made = made.with_value(name.replace("_", "-"), value)
    return made


def gradient_s(made: Given, *, processes: int, cores: float, images: int) -> float:
    """The simulated time of a gradient of one process."""
    device = hsgd._device(made, processes=processes, cores=cores, images=images)
    changes = [f"cluster.nodes=[{{device: {device}, workers_per_node: {processes}}}]"]
    (plan,) = load("hsgd-tianhe2", changes).plans()
    return plan.cluster.nodes[0].device.compute_s(images)


@pytest.mark.parametrize(("node", "cores"), [("cpus", 24), ("phis", 171)])
def test_without_a_serial_part_one_process_computes_as_fast_as_one_for_each_core(node: str, cores: int) -> None:
    made = given(node=node, serial="0")
    whole = gradient_s(made, processes=1, cores=cores, images=48 * cores)
    parts = gradient_s(made, processes=cores, cores=1, images=48)
    assert whole == pytest.approx(parts, rel=1e-6)


def test_a_serial_part_costs_one_process_at_most_the_number_of_its_cores() -> None:
    ratios = [
        gradient_s(made, processes=1, cores=24, images=960) / gradient_s(made, processes=24, cores=1, images=40)
        for made in (given(serial="0.1"), given(serial="1"))
    ]
    assert 2.0 < ratios[0] < ratios[1] == pytest.approx(24.0)


def test_one_thread_computes_with_one_core_of_the_node() -> None:
    made = given(serial="0")
    alone, all_cores = (gradient_s(made, processes=1, cores=cores, images=960) for cores in (1, 24))
    assert alone == pytest.approx(24 * all_cores)
    rates = {native: hsgd.native(given(native=native, serial="0", images="4096")) for native in NATIVES}
    assert rates["one-thread"] < rates["one-process"]
    assert rates["replicas-on-server"] < min(rates["server"], rates["ring"])
    assert len(set(rates.values())) == len(NATIVES)


def test_the_readings_of_native_are_those_that_are_computed() -> None:
    assert {text.split(":")[0] for text in inputs_of("hsgd")["native"].plausible} == set(NATIVES)


def test_processes_of_a_node_sum_in_its_memory_at_the_rate_of_their_cores() -> None:
    """A slower core makes only the exchange slower: computing, reading and the network stay."""
    slow, fast = (hsgd.hierarchical(given(shared_memory=rate, replicas="2")) for rate in ("2", "20"))
    assert slow < fast
    sockets = [hsgd.hierarchical(given(replicas="2"), link=hsgd._sockets(given(sockets=rate))) for rate in ("1", "4")]
    assert sockets[0] < sockets[1]


def test_the_last_feature_is_the_whole_system() -> None:
    rows = hsgd.features(given(replicas="2"))
    assert rows["LARS"] / rows["native"] == hsgd.efficiency(given(replicas="2"))
    assert rows["LARS"] > rows["reading ahead"] >= rows["contiguous reading"]


def test_both_ways_of_an_all_reduce_are_timed() -> None:
    for shared_memory in (False, True):
        times = np.array(hsgd._all_reduce_s(shared_memory=shared_memory))
        assert times.shape == (len(hsgd.NUMBERS),) and (times > 0).all()
