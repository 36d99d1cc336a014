"""All-reduces of nodes with several network cards: formulas by hand, and two ways to write one cluster."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.contention import bytes_of_plan
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric
from paceline.topologies import LINKS, DeviceModel
from paceline.topologies.cluster import ClusterModel, Node, sites
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import build
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.machines import nvswitch_node, pcie_tree
from paceline.topologies.graphs.network_graphs import containers, star
from tests.thorough import extra, sampled

DEVICE = DeviceModel(name="d", overhead_s=0.0, per_sample_s=0.001)
LARGE = 5.26e9


def on(graph: Graph) -> GraphFabric:
    nodes = tuple(
        Node(name=site.name, device=DEVICE, seats=site.seats, host=site.host, intra_node_link=LINKS["shared-memory"])
        for site in sites(graph)
    )
    return GraphFabric(ClusterModel(nodes=nodes, graph=graph))


def boxes(nodes: int, cables: int, link: str | LinkModel = "ib-hdr", **node: Any) -> GraphFabric:
    return on(compose("boxes", star(hosts=nodes, link=link, cables=cables), nvswitch_node(**node), "a test's own"))


def all_reduce(fabric: GraphFabric, ranks: int, nbytes: float, pattern: str) -> tuple[float, Mapping[str, float]]:
    """Returns the seconds of an all-reduce with NCCL, and the bytes of each port."""
    tuner = Tuner(fabric, pattern, "nccl")
    plan = tuner.plan("AllReduce", Group(tuple(map(Rank, range(ranks)))), nbytes)
    return float(alone_s(plan, fabric).max()), bytes_of_plan(plan)


@pytest.mark.parametrize(("system", "rate"), [("dgx-a100", 8 * 24e9), ("dgx-h100", 8 * 48e9)])
@pytest.mark.parametrize("nodes", [2, extra(4)])
def test_a_ring_fills_all_eight_cards(system: str, rate: float, nodes: int) -> None:
    fabric, p = on(build(system, {"nodes": nodes})), 8 * nodes
    nbytes = 4 * LARGE  # beside which the latencies of all steps, which the CPU posts between nodes, are below 1 %
    seconds, moved = all_reduce(fabric, p, nbytes, "ring")
    assert seconds == pytest.approx(2 * (p - 1) / p * nbytes / rate, rel=0.01)
    assert [moved[f"host0.nic{card}>switch"] for card in range(8)] == pytest.approx([2 * (p - 1) / p * nbytes / 8] * 8)


@pytest.mark.parametrize("cables", [1, 2, 4, 8])
def test_a_ring_takes_as_long_as_its_cables(cables: int) -> None:
    seconds, moved = all_reduce(boxes(2, cables), 16, LARGE, "ring")
    assert seconds == pytest.approx(2 * 15 / 16 * LARGE / (cables * 24e9), rel=0.01)
    assert sum(port.startswith("host0.nic") and port.endswith(">switch") for port in moved) == cables


@pytest.mark.parametrize(("cables", "nodes", "times"), [(1, 2, 1), (4, 2, 1), (1, 4, 2), (4, 4, 2)])
def test_a_tree_crosses_each_card_once_between_two_nodes_and_twice_between_more(
    cables: int, nodes: int, times: int
) -> None:
    seconds, _ = all_reduce(boxes(nodes, cables), 8 * nodes, LARGE, "double-tree")
    assert seconds == pytest.approx(times * LARGE / (cables * 24e9 * 0.92), rel=0.02)


def hopper(nodes: int) -> tuple[GraphFabric, Tuner]:
    """Returns the nodes of a DGX H100 with eight cards each, and NCCL's tuner."""
    graph = build("dgx-h100", {"nodes": nodes})
    device = replace(DEVICE, architecture="hopper")
    made = tuple(
        Node(name=site.name, device=device, seats=site.seats, host=site.host, intra_node_link=LINKS["shared-memory"])
        for site in sites(graph)
    )
    fabric = GraphFabric(ClusterModel(nodes=made, graph=graph))
    return fabric, Tuner(fabric, "auto", "nccl")


def test_switches_of_a_node_add() -> None:
    """Each GPU sends its bytes and an eighth of the sum, at 85 % of its 18 NVLinks, after one step of 25 us."""
    fabric, tuner = hopper(1)
    group = Group(tuple(map(Rank, range(8))))
    seconds = float(alone_s(tuner.plan("AllReduce", group, LARGE), fabric).max())
    assert tuner.choices["AllReduce", group, LARGE].algorithm == "nvls"
    assert seconds == pytest.approx(10e-6 + 25e-6 + LARGE * 9 / 8 / (0.85 * 18 * 20.6e9), rel=1e-6)


@pytest.mark.parametrize(("nodes", "passes"), [(2, 1), (4, 2)])
def test_trees_join_the_switches_of_nodes(nodes: int, passes: int) -> None:
    """Bytes leave a node once or twice, after steps of 20.9 us and the link up and down a tree."""
    fabric, tuner = hopper(nodes)
    group = Group(tuple(map(Rank, range(8 * nodes))))
    found = {one.algorithm: one.plan for one in tuner.offers("AllReduce", group, LARGE)}
    moved = bytes_of_plan(found["nvls-tree"])
    assert sum(nbytes for port, nbytes in moved.items() if port.startswith("host0.nic") and port.endswith(">switch"))
    few = {one.algorithm: one.plan for one in tuner.offers("AllReduce", group, 8.0)}
    assert float(alone_s(few["nvls-tree"], fabric).max()) == pytest.approx(
        10e-6 + 25e-6 + 2 * math.log2(nodes) * (20.9e-6 + 1e-6), rel=0.1
    )
    inside_s, between_s = LARGE * 9 / 8 / (0.85 * 18 * 20.6e9), passes * LARGE / (0.85 * 8 * 48e9)
    seconds = float(alone_s(found["nvls-tree"], fabric).max())
    assert seconds == pytest.approx(max(inside_s, between_s), rel=0.03)


def test_gpus_reach_five_sixths_of_pcie_through_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one switch all, through a root complex five sixths; copies to the host are not limited."""
    fabric = on(pcie_tree(roots=1, switches=2, gpus_per_switch=2, nics=0))
    assert fabric.path(Rank(0), Rank(1), 1e6).limit_bytes_per_s == math.inf
    assert fabric.path(Rank(0), Rank(2), 1e6).limit_bytes_per_s == pytest.approx(10e9)
    assert fabric.path(Rank(0), Rank(4), 1e6).limit_bytes_per_s == math.inf  # the server
    monkeypatch.setattr("paceline.simulator.flows.fabric.MANY", 1)
    table = fabric.paths(np.zeros(3, dtype=np.int64), np.array([1, 2, 4]), np.full(3, 1e6))
    assert table.limit_bytes_per_s.tolist() == pytest.approx([math.inf, 10e9, math.inf])


def test_without_peer_access_messages_have_the_rate_of_shared_memory_and_switches_share_it() -> None:
    alone = on(pcie_tree(roots=1, switches=4, gpus_per_switch=1, nics=0, peers="memory"))
    assert alone.path(Rank(0), Rank(1), 1e6).limit_bytes_per_s == pytest.approx(3.9e9)
    assert alone.path(Rank(0), Rank(4), 1e6).limit_bytes_per_s == math.inf  # the server
    boards = on(pcie_tree(roots=1, switches=2, gpus_per_switch=2, nics=0, peers="memory"))
    for other in (1, 2):
        assert boards.path(Rank(0), Rank(other), 1e6).limit_bytes_per_s == pytest.approx(1.95e9)
    seconds, _ = all_reduce(alone, 2, 1e8, "ring")
    assert seconds == pytest.approx(1e8 / 3.9e9, rel=0.1)


def test_a_tree_of_two_dgx_a100_takes_what_was_published() -> None:
    """The NVLinks of every GPU carry 2 n · 7/8; 34.2 ms were published for 4.29 GB between such nodes."""
    seconds, _ = all_reduce(on(build("dgx-a100", {"nodes": 2})), 16, 2.0**32, "auto")
    assert seconds == pytest.approx(2 * 7 / 8 * 2**32 / (240e9 * 0.92), rel=0.01)
    assert seconds == pytest.approx(34.176e-3, rel=0.05)


@pytest.mark.parametrize("pattern", ["ring", "double-tree", "auto"])
@pytest.mark.parametrize("nbytes", [8.0, 1e5, 1e8])
def test_no_protocol_leaves_out_the_latency_between_nodes(pattern: str, nbytes: float) -> None:
    far = LinkModel(name="far", latency_s=30e-3, bytes_per_s=1.25e9, provenance="a test's own")
    two = star(hosts=2, link=far)
    seconds, _ = all_reduce(on(two), 2, nbytes, pattern)
    by_hand = 2 * 30e-3 + nbytes / 1.25e9
    assert by_hand <= seconds < 2.3 * nbytes / 1.25e9 + 2 * 30e-3 + 1e-3
    boxed, _ = all_reduce(boxes(2, 8, far), 16, nbytes, pattern)
    assert boxed >= 60e-3
    tripled = replace(far, latency_s=90e-3)
    assert all_reduce(on(star(hosts=2, link=tripled)), 2, nbytes, pattern)[0] >= seconds + 2 * 59e-3


@pytest.mark.parametrize("kind", ["AllGather", "ReduceScatter"])
def test_gathers_and_scatters_use_all_cards(kind: Any) -> None:
    fabric = boxes(2, 8)
    plan = Tuner(fabric, "auto", "nccl").plan(kind, Group(tuple(map(Rank, range(16)))), LARGE)
    assert alone_s(plan, fabric).max() == pytest.approx(15 / 16 * LARGE / (8 * 24e9), rel=0.02)


def test_a_message_takes_the_card_of_its_gpu() -> None:
    fabric = boxes(2, 8)
    cards = [fabric.path(Rank(gpu), Rank(8 + gpu), 1e6).ports[1:4] for gpu in range(8)]
    assert [ports[1] for ports in cards] == [f"host0.nic{gpu}>switch" for gpu in range(8)]
    assert [ports[2] for ports in cards] == [f"switch>host1.nic{gpu}" for gpu in range(8)]


def test_workers_take_the_cards_of_their_server_in_turn() -> None:
    fabric = boxes(2, 8)
    taken = {fabric.path(Rank(rank), Rank(16), 1e6).ports[3] for rank in range(8, 16)}
    assert taken == {f"switch>host0.nic{card}" for card in range(4)}  # those of its socket


def test_more_cards_than_gpus_share_the_messages_of_each() -> None:
    node = pcie_tree(switches=1, gpus_per_switch=2, nics=4)
    fabric = on(compose("two", star(hosts=2, link="ib-fdr", cables=4), node, "a test's own"))
    path = fabric.path(Rank(0), Rank(2), 1e6)
    assert path.ports[2] == "host0.nic0+nic2>switch"
    assert fabric.capacity[path.ports[2]] == 2 * LINKS["ib-fdr"].bytes_per_s


@pytest.mark.parametrize("cables", sampled([1, 2, 8, 12], [2, 12]))
def test_many_paths_are_the_same_as_single_ones(cables: int) -> None:
    graph = star(hosts=3, link="ib-hdr", cables=cables)
    plain = tuple(
        Node(name=host, device=DEVICE, seats=(host,) * 8, host=host, intra_node_link=LINKS["shared-memory"])
        for host in graph.of_kind("host")
    )
    for fabric in (boxes(3, cables), GraphFabric(ClusterModel(nodes=plain, graph=graph))):
        pairs = [(one, other) for one in range(25) for other in range(25) if one != other]
        ones, others = np.array(pairs).T
        table = fabric.paths(ones, others, np.full(len(pairs), 1e6))
        names = table.names(table.passes)
        for row, (one, other) in enumerate(pairs):
            path = fabric.path(Rank(one), Rank(other), 1e6)
            assert tuple(names[table.first[row] : table.first[row + 1]]) == path.ports
            assert table.limit_bytes_per_s[row] == path.limit_bytes_per_s
            assert table.beyond_usual_s[row] == pytest.approx(path.beyond_usual_s, abs=1e-18)


@pytest.mark.parametrize("pattern", ["ring", "double-tree", "auto"])
@pytest.mark.parametrize("cables", sampled([1, 2, 3, 4, 8], [3, 8]))
def test_a_node_and_a_device_with_cables_are_one_cluster(cables: int, pattern: str) -> None:
    """Fewer cables than GPUs, and as many; more are bound by PCIe, which only the node has."""
    graph = star(hosts=2, link="ib-hdr", cables=cables)
    inside = LinkModel(name="inside", latency_s=4e-6, bytes_per_s=240e9, provenance="12 NVLinks", medium="nvlink")
    plain = tuple(
        Node(name=host, device=DEVICE, seats=(host,) * 8, host=host, intra_node_link=inside)
        for host in graph.of_kind("host")
    )
    one, other = boxes(2, cables), GraphFabric(ClusterModel(nodes=plain, graph=graph))
    seconds = [all_reduce(fabric, 16, LARGE, pattern)[0] for fabric in (one, other)]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.02 if cables != 3 else 0.1)
    rates = []
    for fabric in (one, other):
        path = fabric.path(Rank(1), Rank(9), 1e6)
        rates.append(min(path.limit_bytes_per_s, *(fabric.capacity[port] for port in path.ports)))
    assert rates[0] == rates[1] == 24e9  # a single message takes one cable


TABLE = """\
      GPU0 GPU1 NIC0 NIC1 CPU Affinity
GPU0  X    NV12 PIX  PIX  0-9
GPU1  NV12 X    PIX  PIX  0-9
NIC0  PIX  PIX  X    PIX
NIC1  PIX  PIX  PIX  X
"""


def test_a_node_of_a_file_has_a_cable_for_each_card(tmp_path: Any) -> None:
    from paceline.scenarios.sections.clusters import Cluster

    (tmp_path / "topo.txt").write_text(TABLE)
    for given, expected in (({}, 2), ({"cables": 1}, 1)):
        part = Cluster.model_validate(
            {
                "nodes": [{"node": {"file": str(tmp_path / "topo.txt")}, "device": "a100-sxm4-40", "count": 2}],
                "network": {"link": "ib-ndr"} | given,
            }
        )
        cables = [one for one in part.layout.graph.connections if "switch" in one.ends]
        assert sum(one.count for one in cables) == 2 * expected, json.dumps(given)
        assert part.cards_of_files == (() if given else (2, 2))  # what a note says


@pytest.mark.parametrize("sizes", [(4,), (1, 1, 2, 4), (3, 3), (1, 1, 1)])
def test_rings_of_containers_pass_the_card_of_their_machine_once_for_each(sizes: tuple[int, ...]) -> None:
    """RDMA between containers of a machine leaves by its card and comes back; so k of them share it."""
    graph = containers(per_machine="x".join(map(str, sizes)), link="ib-edr", inside="pcie3-device", loopback=1)
    p, card = sum(sizes), LINKS["ib-edr"].bytes_per_s
    seconds, moved = all_reduce(on(graph), p, LARGE, "ring")
    each = 2 * (p - 1) / p * LARGE
    assert seconds == pytest.approx(max(sizes) * each / card, rel=0.01)
    sent = [moved[f"machine{number}>switch"] for number in range(len(sizes))]
    assert sent == pytest.approx([size * each for size in sizes])


@pytest.mark.parametrize("sizes", [(4,), (1, 1, 2, 4)])
def test_rings_of_containers_over_tcp_leave_a_machine_once(sizes: tuple[int, ...]) -> None:
    graph = containers(per_machine="x".join(map(str, sizes)), link="aws-ipip-50g")
    p, tunnel = sum(sizes), 5e9 / 8 * 1388 / 1460  # 5 Gbit/s between two machines, although the card has 50
    seconds, moved = all_reduce(on(graph), p, LARGE, "ring")
    each = 2 * (p - 1) / p * LARGE
    slowest = LINKS["veth"].bytes_per_s if len(sizes) == 1 else tunnel
    assert seconds == pytest.approx(each / slowest, rel=0.01)
    sent = [moved.get(f"machine{number}>switch", 0.0) for number in range(len(sizes))]
    assert sent == pytest.approx([each if len(sizes) > 1 else 0.0] * len(sizes))


@pytest.mark.parametrize("text", ["", "2x", "2x0", "a", "2 x 2", "16385"])
def test_machines_of_containers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"per_machine: found .*, expected the containers of each machine"):
        containers(per_machine=text)
