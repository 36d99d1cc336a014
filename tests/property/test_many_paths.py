"""Many paths that are looked up at once are those of single look-ups, and rings have the same order and times."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Group, Rank
from paceline.scenarios import load
from paceline.simulator.collectives import pattern_time
from paceline.simulator.collectives.pattern_time import repeated
from paceline.simulator.collectives.plans import find_paths
from paceline.simulator.collectives.rings import RingLayout
from paceline.simulator.flows.path_tables import SLOWNESS
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.graphs.graph_registry import build
from paceline.topologies.graphs.routing import Routes, Rule

GRAPHS: list[tuple[str, dict[str, object], Rule]] = [
    ("fat-tree", {"k": 4, "node": "pcie-tree"}, "ecmp"),
    ("fat-tree", {"k": 4, "node": "nvswitch-node"}, "ecmp"),  # two NICs of each PCIe switch: forks inside machines
    ("fat-tree", {"k": 6}, "shortest"),
    ("leaf-spine", {"node": "dgx1"}, "ecmp"),
    ("leaf-spine", {"node": "nvswitch-node"}, "shortest"),
    ("star", {"hosts": 9, "node": "dgx1"}, "auto"),
    ("star", {"hosts": 2, "node": "dgx1"}, "ecmp"),  # a gate with two neighbours
    ("dragonfly", {"node": "minsky-node"}, "minimal"),
    ("dragonfly", {}, "valiant"),
    ("torus", {}, "ecmp"),
    ("dgx1", {}, "auto"),
    ("summit", {"nodes": 20}, "auto"),
]


@pytest.mark.parametrize(("name", "settings", "rule"), GRAPHS)
def test_many_routes_are_those_of_single_pairs(name: str, settings: dict[str, object], rule: Rule) -> None:
    graph = build(name, settings)
    ends = [vertex.name for vertex in graph.vertices if vertex.kind in ("device", "host", "nic")]
    drawn = np.random.default_rng(1).choice(ends, (300, 2))
    pairs = [(one, other) for one, other in drawn.tolist() if one != other]
    together, singly = Routes(graph, rule, seed=3), Routes(graph, rule, seed=3)
    numbers = [[together.numbers[end] for end in side] for side in zip(*pairs, strict=True)]
    first, hops = together.many(*numbers)
    names = together.hop_names(hops.tolist())
    found = [tuple(names[low:high]) for low, high in pairwise(first.tolist())]
    assert found == [singly.between(*pair).ports for pair in pairs]


def test_routes_in_fat_trees_need_no_search() -> None:
    for node in ("pcie-tree", "nvswitch-node"):
        routes = Routes(build("fat-tree", {"k": 4, "node": node}), "ecmp")
        ends = np.array([routes.numbers[name] for name in routes.graph.of_kind("device")])
        _, hops = routes._tables.find(ends[:-1], ends[1:])
        assert hops.all()


def cluster(node: str, library: str, link: str, workers_per_node: int | None = None) -> ClusterNetwork:
    part: dict[str, Any] = {"device": "p100-pcie", "count": 12, "workers_per_node": workers_per_node}
    if node != "host":
        part["node"] = node
    network = {"topology": "fat-tree", "link": link, "library": library}
    plan = load(
        {
            "name": "many",
            "algorithms": [{"name": "async-sgd", "servers": 3}],
            "workload": {"model": "lenet", "batch_per_worker": 1, "learning": "none"},
            "cluster": {"nodes": [part], "network": network},
            "stop": {"updates": 1},
        }
    ).plans()[0]
    return ClusterNetwork(plan.cluster, library=library)


NETWORKS = [
    ("pcie-tree", "plain", "ib-fdr", None),
    ("dgx1", "nccl", "gke-tcp", 6),  # latencies and limits by size
    ("dgx1", "nccl", "eth-10g", None),  # by way of host memory
    ("nvswitch-node", "gloo", "ib-hdr", None),  # copied to host memory
    ("host", "plain", "ib-edr", 8),
]


@pytest.mark.parametrize(("node", "library", "link", "workers"), NETWORKS)
def test_many_paths_are_those_of_single_messages(node: str, library: str, link: str, workers: int | None) -> None:
    fabric = cluster(node, library, link, workers).fabric
    workers_of_all, ranks = fabric._cluster.workers, len(fabric._cluster.ranks)
    assert ranks == workers_of_all + 3
    drawn = np.random.default_rng(2).integers(0, ranks, (400, 2))
    ends = drawn[(drawn[:, 0] != drawn[:, 1]) & (drawn.min(axis=1) < workers_of_all)]  # servers send to workers only
    assert (ends >= workers_of_all).any()
    nbytes = np.random.default_rng(3).choice([100.0, 5000.0, 1e7], len(ends))
    table = fabric.paths(ends[:, 0], ends[:, 1], nbytes)
    names = table.names(table.passes)
    for row, ((source, to), size) in enumerate(zip(ends.tolist(), nbytes.tolist(), strict=True)):
        path = fabric.path(Rank(source), Rank(to), size)
        assert tuple(names[table.first[row] : table.first[row + 1]]) == path.ports
        assert (table.latency_s[row], table.limit_bytes_per_s[row]) == (path.latency_s, path.limit_bytes_per_s)
        assert SLOWNESS[table.medium[row]] == path.medium
        assert (table.send_s[row], table.receive_s[row]) == (path.send_s, path.receive_s)


@pytest.mark.parametrize(("node", "library", "link", "workers"), NETWORKS)
@pytest.mark.parametrize("to_server", [True, False])
def test_paths_to_and_from_a_server(node: str, library: str, link: str, workers: int | None, to_server: bool) -> None:
    fabric = cluster(node, library, link, workers).fabric
    first = Rank(fabric._cluster.workers)
    for nbytes, server in product((0, 10_000_000), (first, Rank(first + 2))):
        table = fabric.server_paths(server, nbytes, to_server=to_server)
        assert table is not None and table is fabric.server_paths(server, nbytes, to_server=to_server)
        for worker in map(Rank, range(first)):
            path = fabric.path(*((worker, server) if to_server else (server, worker)), nbytes)
            assert tuple(table.names(table.passes[slice(*table.first[worker : worker + 2])])) == path.ports
            assert (table.latency_s[worker], table.limit_bytes_per_s[worker]) == (
                path.latency_s, path.limit_bytes_per_s
            )  # fmt: skip
    fabric.without([fabric._cluster.graph.connections[0].ends])
    assert fabric.server_paths(first, 0, to_server=to_server) is None


@pytest.mark.parametrize(("node", "library", "link", "workers"), NETWORKS)
def test_plans_have_the_same_paths_and_times(
    node: str, library: str, link: str, workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = cluster(node, library, link, workers)
    fabric, tuner = network.fabric, network.tuner
    group = Group(tuple(map(Rank, range(fabric._cluster.workers))))
    for candidate in tuner.offers("AllReduce", group, 1e6, 0):
        plan, found = candidate.plan, []
        for many in (1, 10**9):
            monkeypatch.setattr("paceline.simulator.flows.fabric.MANY", many)
            found.append(find_paths(plan.pattern, plan.ranks, plan.find))
        one, other = found
        assert one.ports == other.ports
        for name in ("source", "target", "latency_s", "limit_bytes_per_s", "first", "passes"):
            assert (getattr(one, name) == getattr(other, name)).all(), (candidate.label, name)


@pytest.mark.parametrize(("node", "library", "link", "workers"), NETWORKS)
def test_rings_have_the_same_order(
    node: str, library: str, link: str, workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = cluster(node, library, link, workers).fabric
    group = Group(tuple(map(Rank, range(fabric._cluster.workers))))
    nodes = tuple(tuple(map(int, ranks)) for ranks in fabric._cluster.placement)
    found = []
    for many in (1, 10**9):
        monkeypatch.setattr("paceline.simulator.flows.fabric.MANY", many)
        layout = RingLayout(fabric, group, nodes)
        found.append((layout.nodes, layout.order, layout.channels))
    assert found[0] == found[1]


def test_the_paths_to_a_server_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    network = cluster("pcie-tree", "plain", "ib-fdr")
    workers, whole = network.cluster.workers, network.cluster
    expected = [network.fabric.path(Rank(rank), Rank(workers), 1e6) for rank in range(workers)]
    monkeypatch.setattr("paceline.simulator.flows.fabric.MANY_WORKERS", 1)
    again = ClusterNetwork(replace(whole)).fabric
    assert [again.path(Rank(rank), Rank(workers), 1e6) for rank in range(workers)] == expected
    assert (
        len(again._server_hops(Rank(workers), True).away) == workers == len(again._whole.known)
    )  # GPUs are away from its socket


AMOUNTS = st.lists(st.sampled_from([0.0, 1e-6, 0.3, 1.0, 7.0]), min_size=1, max_size=4)


@given(st.integers(2, 12), st.integers(1, 3), AMOUNTS, AMOUNTS, st.integers(0, 2**32 - 1))
def test_repetitions_of_a_ring_in_closed_form(
    length: int, rings: int, stays: list[float], readies: list[float], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    order = draw.permutation(length * rings).reshape(rings, length)
    following = np.empty(length * rings, dtype=np.int64)
    following[order] = np.roll(order, -1, axis=1)
    stay, ready = draw.choice(stays, len(following)), draw.choice(readies, len(following))
    step = draw.random(len(following))
    expected = ready.copy()
    for _ in range(length - 1):
        later = expected + stay
        np.maximum.at(later, following, expected + step)
        expected = later
    found = repeated(following, ready, stay, step, length - 1)
    assert found is not None
    assert np.allclose(found, expected, rtol=1e-12, atol=0.0)
    assert repeated(following, ready, stay, step, length) is None


def test_a_plan_of_many_messages_has_the_same_number_to_simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    network = cluster("pcie-tree", "plain", "ib-fdr")
    group = Group(tuple(map(Rank, range(network.cluster.workers))))
    plans = [one.plan for one in network.tuner.offers("AllReduce", group, 1e6, 0)]
    expected = [pattern_time.messages_needed(plan) for plan in plans]
    for name, value in (("SEVERAL", 1), ("SOME", 50)):
        monkeypatch.setattr(pattern_time, name, value)
    assert [pattern_time.messages_needed(plan) for plan in plans] == expected
    assert 0 in expected and max(expected) > 0
