"""The time of updates, averages and reductions on a modelled cluster, against formulas."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from paceline import load, simulate
from paceline.algorithms.core.traffic import COMBINE, ELASTIC_PULL
from paceline.algorithms.core.values import Rank
from paceline.records import Run
from paceline.scenarios.sections.devices import Charges
from paceline.simulator.flows.fabric import GraphFabric
from paceline.topologies.catalogue.charge_rates import device_rates, host_rates
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.catalogue.libraries import LIBRARIES
from paceline.topologies.cluster import ClusterModel
from paceline.workloads import find_model

BYTES = 4 * find_model("mlp").parameters
LINK = {"latency": "5 us", "bandwidth": "2 GB/s"}
P100 = named("p100")


def scenario(*algorithms: Any, nodes: list[Any], learning: str = "none", **more: Any) -> dict[str, Any]:
    return {
        "name": "charges",
        "algorithms": list(algorithms),
        "workload": {"model": "mlp", "learning": learning, "batch_per_worker": 64},
        "cluster": {
            "nodes": nodes,
            "network": {"topology": "star", "link": LINK, "allreduce_algorithm": "ring"},
            **more,
        },
        "stop": {"samples": 64 * 4 * 6},
        "seed": 1,
    }


def run_of(algorithm: Any, **given: Any) -> Run:
    (run,) = simulate(load(scenario(algorithm, **given)))
    return run


def updates_of(run: Run) -> list[float]:
    """Seconds of each update."""
    own = run.tables.spans[run.tables.spans["activity"] == "update"]
    seconds: list[float] = (own["end_s"] - own["start_s"]).tolist()
    return seconds


@pytest.mark.parametrize(
    ("settings", "passes", "kernels"),
    [
        ({}, 3, 1),  # x − η g
        ({"momentum": 0.9}, 10, 4),  # η g; μ v, + ; x − v
        ({"momentum": 0.9, "weight_decay": 1e-4}, 15, 6),
        ({"max_grad_norm": 1.0}, 10, 4),
    ],
)
def test_a_step_is_gradient_all_reduce_and_passes_over_the_bandwidth(
    settings: dict[str, float], passes: int, kernels: int
) -> None:
    """Step = t(b) + 2 (p − 1)(α + n/p β) + (p − 1) n/p γ + passes · n / BW + kernels · launch."""
    run = run_of({"name": "sync-sgd", **settings}, nodes=[{"device": "p100", "count": 4}])
    plan = load(scenario("sync-sgd", nodes=[{"device": "p100", "count": 4}])).plans()[0]
    bandwidth, part = P100.sustained_bytes_per_s, BYTES / 4
    moving_s = 2 * 3 * (5e-6 + part / 2e9)
    adding_s = 3 * part * 3 / bandwidth
    update_s = passes * BYTES / bandwidth + kernels * P100.launch_s
    step_s = plan.compute_s(Rank(0), 0, 64) + moving_s + adding_s + update_s
    assert run.summary["step_s"]["mean"] == pytest.approx(step_s, rel=1e-3)
    assert updates_of(run) == pytest.approx([update_s] * 24)


INLINE = {"name": "quick", "overhead": "1 us", "per_sample": "0 s"}


@pytest.mark.parametrize(("algorithm", "traffic"), [("async-sgd", COMBINE), ("async-easgd", ELASTIC_PULL)])
def test_a_busy_server_makes_an_update_in_each_service_time(algorithm: str, traffic: Any) -> None:
    """With one core at 0.1 GB/s and a launch of 1 ms, updates are the bottleneck: X = 1 / s."""
    charges = {"core_bandwidth": "0.1 GB/s", "core_cache_bandwidth": "0.1 GB/s", "host_launch": "1 ms"}
    run = run_of(algorithm, nodes=[{"device": INLINE, "count": 4}], charges=charges)
    service_s = traffic.passes * BYTES / 0.1e9 + traffic.kernels * 1e-3
    gaps = run.tables.updates["time_s"].diff()[2:]
    assert gaps.tolist() == pytest.approx([service_s] * len(gaps))


def test_one_worker_waits_for_the_way_there_the_update_and_the_way_back() -> None:
    charges = {"core_bandwidth": "1 GB/s", "core_cache_bandwidth": "1 GB/s", "host_launch": "10 us"}
    run = run_of(
        "async-sgd", nodes=[{"device": INLINE}, {"device": INLINE}], charges=charges, server={"node": 1},
        stragglers=[{"worker": 1, "factor": 1e9}],
    )  # fmt: skip
    message_s = 5e-6 + BYTES / 2e9
    service_s = 3 * BYTES / 1e9 + 10e-6
    first = run.tables.updates["time_s"].tolist()[:3]
    assert [b - a for a, b in itertools.pairwise(first)] == pytest.approx([1e-6 + 2 * message_s + service_s] * 2)


@pytest.mark.parametrize(
    "algorithm", ["sync-sgd", "async-msgd", "easgd", "ssp", "layerwise-sgd", "gossip", "diloco", "noloco", "eager-sgd"]
)
def test_learning_costs_the_same_as_none(algorithm: str) -> None:
    found = []
    for learning in ("none", "train"):
        given = scenario(algorithm, nodes=[{"device": "p100", "count": 4}], learning=learning)
        given["workload"]["model"] = "digits-mlp"
        (run,) = simulate(load(given))
        spans = run.tables.spans
        own = spans[spans.activity == "update"]
        assert (own.end_s > own.start_s).any()
        found.append((run.summary["wall_s"], own.start_s.tolist(), own.end_s.tolist()))
    assert found[0] == found[1]


def test_devices_without_a_bandwidth_are_free_and_the_run_says_so() -> None:
    free = run_of("sync-sgd", nodes=[{"device": INLINE, "count": 4}])
    (words,) = free.machine["assumptions"]
    assert words.startswith("Updates, averages and copies take no time on quick: ")
    paid = run_of("sync-sgd", nodes=[{"device": INLINE | {"memory_bandwidth": "1 GB/s"}, "count": 4}])
    assert paid.machine["assumptions"] == []
    assert updates_of(paid) == pytest.approx([3 * BYTES / 1e9] * 24)


# --- rates ------------------------------------------------------------------------------------------------------------


def cluster(*nodes: Any, **more: Any) -> ClusterModel:
    return load(scenario("sync-sgd", nodes=list(nodes), **more)).plans()[0].cluster


def test_the_host_is_that_of_the_system_the_device_itself_or_the_scenarios() -> None:
    (dgx,) = load({**scenario("sync-sgd", nodes=[]), "cluster": "dgx1-p100"}).plans()[0].cluster.nodes
    assert dgx.host_rates == host_rates(named("xeon-e5-2698v4"), 2)
    knl, gpu = cluster({"device": "knl"}, {"device": "p100"}).nodes
    assert knl.host_rates == host_rates(named("knl"))
    assert gpu.host_rates == host_rates(named("xeon-e5-2680v4"), 2)
    (phi,) = cluster({"device": "phi-31s1p"}).nodes  # a card, unlike Knights Landing
    assert phi.host_rates == gpu.host_rates
    (own,) = cluster({"device": "p100"}, charges={"host": "power9", "core_bandwidth": "15 GB/s"}).nodes
    assert own.host_rates is not None
    assert own.host_rates.bytes_per_s(1e12) == 15e9
    assert own.host_rates.provenance.startswith("one core of POWER9")


def test_a_scenario_overrides_the_device() -> None:
    (node,) = cluster({"device": "p100"}, charges={"device_bandwidth": "300 GB/s", "device_launch": "2 us"}).nodes
    assert node.device.rates is not None
    assert node.device.rates.seconds(1e9, COMBINE) == pytest.approx(3 / 300 + 2e-6)


@pytest.mark.parametrize("wrong", ["p100", "pentium", 3])
def test_a_host_is_a_processor(wrong: Any) -> None:
    with pytest.raises(Exception, match=r"cluster\.charges\.host"):
        load(scenario("sync-sgd", nodes=[{"device": "p100"}], charges={"host": wrong}))


def test_a_core_is_slower_outside_its_cache() -> None:
    core = host_rates(named("xeon-e5-2670"), 2)
    sizes = [1e5, 5e6, 8e6, 12e6, 1e8]
    rates = [3 * size / core.seconds(size, COMBINE) for size in sizes]
    assert rates[1] == pytest.approx(30e9, rel=0.02) and rates[-1] == pytest.approx(11e9, rel=0.01)
    assert rates[1] > rates[2] > rates[3] > rates[4]
    assert rates[0] < rates[1]  # the launch


# --- reductions -------------------------------------------------------------------------------------------------------


def gamma(cluster: ClusterModel, library: str, nbytes: float = 1e9) -> float:
    ranks = [Rank(rank) for rank in range(cluster.workers)]
    return GraphFabric(cluster).reduce_cost(ranks, nbytes, LIBRARIES[library])


def test_reductions_are_done_by_the_processors_of_the_library() -> None:
    gpus, chips = cluster({"device": "p100", "count": 2}), cluster({"device": "knl", "count": 2})
    device, core = 3 / P100.sustained_bytes_per_s, 3 / 12e9
    assert gamma(gpus, "plain") == pytest.approx(device)
    assert gamma(gpus, "nccl") == gamma(chips, "nccl") == 0.0  # its kernels add what they pass on
    assert gamma(gpus, "mpi") == gamma(gpus, "gloo") == pytest.approx(core)
    assert gamma(gpus, "mpi", 1e6) == pytest.approx(3 / 30e9)  # inside the cache
    assert gamma(chips, "plain") == gamma(chips, "mpi") == pytest.approx(3 / 8e9)


def test_ranks_of_a_node_share_its_memory() -> None:
    crowd = cluster({"device": "xeon-e5-2670", "count": 1, "workers_per_node": 16})
    assert gamma(crowd, "mpi") == pytest.approx(3 * 16 / named("xeon-e5-2670").sustained_bytes_per_s)


def test_the_slowest_member_counts() -> None:
    mixed = cluster({"device": "p100"}, {"device": "knl"})
    assert gamma(mixed, "plain") == pytest.approx(3 / 8e9)
    assert gamma(cluster({"device": INLINE, "count": 2}), "mpi") == 0.0


def test_a_charge_of_arithmetic_is_bound_by_it() -> None:
    rates = device_rates(P100)
    assert rates.seconds(1e6, COMBINE, flops=5.3e9) == pytest.approx(1e-3 + P100.launch_s)
    assert Charges().model_dump(exclude_none=True) == {}
