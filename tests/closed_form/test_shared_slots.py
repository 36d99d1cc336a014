"""Collectives in the memory of a node: their closed forms, what they share it with, and whose nodes use it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Access, AllReduce, Cell, Now
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.records.trace import Schedule
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import Kind
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.flows.path_tables import memory_port
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.node_memory import NodeMemory
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import MUCH_BYTES, PIECE_BYTES, HostMemory, shares_sum
from paceline.topologies.closed_forms import ring_all_reduce_s, shared_memory_s
from paceline.topologies.cluster import ClusterModel, on_a_star
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LINKS, LinkModel
from paceline.topologies.graphs.machines import knl_node, xeon_node
from tests.clusters import Written, answer
from tests.replay import simulate_by_events
from tests.support import FixedTiming, job_of
from tests.traffic import CountedNetwork

CORE, ALPHA_S, NETWORK_S = 1e9, 2e-6, 1e-5
MEMORY = HostMemory(bytes_per_s=1e12, core_bytes_per_s=CORE, provenance="a test's own")
LOCAL = LinkModel(name="local", latency_s=ALPHA_S, bytes_per_s=1e8, provenance="a test's own", medium="memory")
NIC = LinkModel(name="nic", latency_s=NETWORK_S, bytes_per_s=2e9, provenance="a test's own")
DEVICE = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
KINDS: tuple[Kind, ...] = ("AllReduce", "Reduce", "Broadcast", "AllGather", "Barrier")


def cluster(*workers: int, memory: HostMemory = MEMORY, local: LinkModel = LOCAL, kind: Any = None) -> ClusterModel:
    device = replace(DEVICE, kind=kind)
    star = on_a_star([(device, count) for count in workers], link=NIC, local=local)
    return replace(star, nodes=tuple(replace(node, memory=memory) for node in star.nodes))


def of_all(cluster: ClusterModel) -> Group:
    return Group(tuple(map(Rank, range(cluster.workers))))


def seconds(
    cluster: ClusterModel, kind: Kind, nbytes: float, requested: str = "auto", root: int = 0
) -> tuple[str, float]:
    """Returns the pattern of a collective of all workers, and its time, which the event driver confirms."""
    fabric, group = GraphFabric(cluster), of_all(cluster)
    tuner = Tuner(fabric, requested)
    plan = tuner.plan(kind, group, nbytes, root)
    found = float(alone_s(plan, fabric).max())
    by_events = simulate_by_events(plan, fabric, np.zeros(len(group)))
    assert found == pytest.approx(float(by_events.max()), rel=1e-12)
    return tuner.choices[kind, group, nbytes].algorithm, found


@pytest.mark.parametrize("nbytes", [4.0, 1e5, MUCH_BYTES / 4, 2.5 * PIECE_BYTES])
@pytest.mark.parametrize("p", [2, 3, 4, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_cores_that_do_not_fill_the_memory_take_the_closed_form(kind: Kind, p: int, nbytes: float) -> None:
    nbytes = 0.0 if kind == "Barrier" else nbytes
    pieces = max(1.0, nbytes / (p if kind == "AllGather" else 1) / PIECE_BYTES)
    form = shared_memory_s(kind, p, nbytes, ALPHA_S, 1 / CORE, pieces, shares=shares_sum(p, nbytes))
    for root in (0, p - 1) if kind in ("Reduce", "Broadcast") else (0,):
        name, found = seconds(cluster(p), kind, nbytes, root=root)
        assert name == "shared-memory"
        assert found == pytest.approx(form, rel=1e-12)


def test_cores_share_the_memory_of_their_node() -> None:
    """Four cores write 2 n bytes each, and read and write 7 n, at 5/2 of the rate of one core."""
    slow = replace(MEMORY, bytes_per_s=2.5 * CORE)
    _, found = seconds(cluster(4, memory=slow), "AllReduce", 1e6)
    assert found == pytest.approx(ALPHA_S + 4 * 9e6 / slow.bytes_per_s)
    _, found = seconds(cluster(4, memory=slow), "Reduce", 1e6)
    assert found == pytest.approx(4 * 2e6 / slow.bytes_per_s + ALPHA_S + 7e6 / CORE)  # only the root reads
    _, found = seconds(cluster(4, memory=slow), "Reduce", 8e6)  # a shared sum: all add and publish, the root reads
    turns = -(-8e6 // PIECE_BYTES) * 2
    assert found == pytest.approx(4 * (16e6 + 14e6 + 4e6) / slow.bytes_per_s + turns * ALPHA_S + 16e6 / CORE)


def test_what_fits_into_the_cache_is_as_fast_as_the_cache() -> None:
    cached = replace(MEMORY, bytes_per_s=CORE, cache_bytes=12e6, cache_bytes_per_s=4 * CORE)
    _, found = seconds(cluster(4, memory=cached), "AllReduce", 1e6)  # value, slot and sum of each: 12 MB
    assert found == pytest.approx(ALPHA_S + 9e6 / (4 * CORE))
    _, found = seconds(cluster(4, memory=cached), "AllReduce", 2e6)
    assert found == pytest.approx(ALPHA_S + 4 * 18e6 / CORE)


def test_with_several_nodes_leaders_form_a_ring() -> None:
    name, found = seconds(cluster(3, 1, 2), "AllReduce", 6e5, "shared-memory")
    ring_s = ring_all_reduce_s(3, 6e5, NETWORK_S, 1 / NIC.bytes_per_s)
    inside_s = sum(shared_memory_s(kind, 3, 6e5, ALPHA_S, 1 / CORE) for kind in ("Reduce", "Broadcast"))
    assert name == "shared-memory"
    assert inside_s + ring_s - 1.01 * NETWORK_S < found <= inside_s + ring_s  # the node of one rank begins the ring
    assert seconds(cluster(2, 2), "AllReduce", 6e5, "shared-memory")[1] == pytest.approx(
        sum(shared_memory_s(kind, 2, 6e5, ALPHA_S, 1 / CORE) for kind in ("Reduce", "Broadcast"))
        + ring_all_reduce_s(2, 6e5, NETWORK_S, 1 / NIC.bytes_per_s)
    )


def test_parts_of_a_chip_and_sockets_read_over_the_links_between_them() -> None:
    chips: list[tuple[Graph, Any]] = [(knl_node(parts=4, nics=0), "manycore"), (xeon_node(), "cpu")]
    for graph, device in chips:
        seats = graph.of_kind("device") or graph.of_kind("host")
        node = replace(cluster(1).nodes[0], device=replace(DEVICE, kind=device), seats=seats, host=seats[0])
        whole = ClusterModel(nodes=(node,), graph=graph)
        fabric, p = GraphFabric(whole), whole.workers
        hop = fabric.path(Rank(0), Rank(1), 0.0)
        form = shared_memory_s("AllReduce", p, 1e6, hop.latency_s, 1 / CORE)
        name, found = seconds(whole, "AllReduce", 1e6)
        assert name == "shared-memory"
        assert found == pytest.approx(form)
        ports = Tuner(fabric).plan("AllReduce", of_all(whole), 1e6).message_paths.ports
        assert {memory_port(node.name), *hop.ports} <= set(ports)
        fast = replace(MEMORY, core_bytes_per_s=1e15, bytes_per_s=1e16)
        _, bound = seconds(ClusterModel(nodes=(replace(node, memory=fast),), graph=graph), "AllReduce", 1e6)
        rate = min(fabric.capacity[port] for port in hop.ports)
        assert bound == pytest.approx(hop.latency_s + (p - 1) * 1e6 / rate, rel=1e-3)  # every core reads the others


@pytest.mark.parametrize(
    ("one", "requested", "expected"),
    [
        (cluster(4, kind="gpu"), "auto", "messages"),
        (cluster(4, local=replace(LOCAL, medium="network")), "auto", "messages"),
        (cluster(4, kind="cpu"), "ring", "ring"),
        (cluster(4, kind="cpu"), "shared-memory", "shared-memory"),
        (cluster(4, kind="manycore"), "auto", "shared-memory"),
    ],
)
def test_processors_that_share_memory_use_it_unless_another_pattern_is_requested(
    one: ClusterModel, requested: str, expected: str
) -> None:
    name, _ = seconds(one, "AllReduce", 1e6, requested)
    assert name == expected or (expected == "messages" and name != "shared-memory")
    reduced, _ = seconds(one, "Reduce", 1e6, requested)  # a requested pattern is that of all-reduces only
    assert reduced == ("binomial-tree" if expected == "messages" else "shared-memory")


def test_libraries_send_messages() -> None:
    for library in ("mpi", "gloo"):
        fabric, group = GraphFabric(cluster(4, kind="cpu")), of_all(cluster(4))
        tuner = Tuner(fabric, "auto", library)
        tuner.plan("AllReduce", group, 1e6)
        assert tuner.choices["AllReduce", group, 1e6].algorithm != "shared-memory"


def test_a_collective_shares_the_memory_with_accesses_to_cells_and_with_other_groups() -> None:
    """Two pairs, each core with 5 n bytes of traffic, and accesses with 6 n: five cores share two of a core's rate."""
    nodes = cluster(5, memory=replace(MEMORY, bytes_per_s=2 * CORE))
    nbytes, cell = 1_000_000, Cell("x")

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        if me.rank == 4:
            yield from Access(cell, "swap", np.zeros(nbytes // 8))
            yield from Access(cell, "read")
        else:
            pair = Group((Rank(0), Rank(1)) if me.rank < 2 else (Rank(2), Rank(3)))
            yield from AllReduce(value=Null(nbytes // 4, 4), group=pair, key="pair")
        return (yield from Now())

    network = CountedNetwork(nodes)
    job = job_of(Written(first=main), 5, nodes=[list(range(5))])
    trace = simulate_job(job, FixedTiming(), network, Schedule(1), hosts=HostCosts(cells=NodeMemory(network)))
    times = [answer(trace, rank) for rank in range(5)]
    assert times[0] == times[3]
    together_s = 5 * nbytes / (2 / 5 * CORE)
    assert times[0] == pytest.approx(together_s, rel=1e-3)
    assert times[4] == pytest.approx(together_s + nbytes / CORE, rel=1e-3)
    assert network.carried_bytes[memory_port(nodes.nodes[0].name)] == pytest.approx((4 * 5 + 4 + 2) * nbytes)


def test_the_shared_memory_link_of_the_catalogue_is_memory() -> None:
    assert LINKS["shared-memory"].medium == "memory"
