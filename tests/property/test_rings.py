"""Rings that are reordered for a machine: still rings of all ranks, and no slower than in the order of ranks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import RingChannel, Setting, build, ring_all_reduce
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.collectives.rings import RingLayout, disjoint_cycles, widest_cycle
from paceline.simulator.flows.fabric import GraphFabric
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.cluster import ClusterModel, Node, sites
from paceline.topologies.graphs.graph_registry import build as graph_of
from paceline.topologies.graphs.links import LINKS
from paceline.topologies.graphs.machines import HYBRID_CUBE_MESH
from tests.clusters import star
from tests.replay import Uniform, replayed_s, simulate_by_events
from tests.thorough import examples

DEVICE = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)


def system(name: str, nodes: int) -> tuple[GraphFabric, Group, tuple[tuple[int, ...], ...]]:
    graph = graph_of(name, {"nodes": nodes})
    found = [
        Node(name=site.name, device=DEVICE, seats=site.seats, host=site.host, intra_node_link=LINKS["shared-memory"])
        for site in sites(graph)[:nodes]
    ]
    cluster = ClusterModel(nodes=tuple(found), graph=graph)
    places = tuple(tuple(map(int, node)) for node in cluster.placement)
    return GraphFabric(cluster), Group(tuple(map(Rank, range(cluster.workers)))), places


def all_reduce_s(
    fabric: GraphFabric, group: Group, nbytes: float, name: str = "ring", order: tuple[int, ...] = (),
    channels: tuple[RingChannel, ...] = (), nodes: tuple[tuple[int, ...], ...] = (),
) -> float:  # fmt: skip
    pattern = build("AllReduce", name, Setting(len(group), nbytes, 0, nodes, order, channels))
    return float(alone_s(CollectivePlan(pattern, tuple(group), fabric.paths), fabric).max())


SYSTEMS = [("dgx1-p100", 1), ("dgx1-v100", 2), ("dgx1-p100", 3), ("dgx-a100", 2), ("minsky", 3), ("dgx-h100", 1)]


@pytest.mark.parametrize(("name", "nodes"), SYSTEMS)
def test_rings_go_around_everybody_and_are_no_slower(name: str, nodes: int) -> None:
    fabric, group, places = system(name, nodes)
    layout, nbytes, p = RingLayout(fabric, group, places), 1e8, len(group)
    assert sorted(layout.order) == list(range(p))
    assert [sorted(node) for node in layout.nodes] == [list(node) for node in places]
    for one in layout.channels:
        assert sorted(one.order) == list(range(p))
    assert sum(one.share for one in layout.channels) == pytest.approx(1.0)
    in_rank_order_s = all_reduce_s(fabric, group, nbytes)
    ordered_s = all_reduce_s(fabric, group, nbytes, order=layout.order)
    side_by_side_s = all_reduce_s(fabric, group, nbytes, "ring-channels", channels=layout.channels)
    assert side_by_side_s <= ordered_s * (1 + 1e-9) <= in_rank_order_s * (1 + 1e-8)


@pytest.mark.parametrize(("name", "links"), [("dgx1-p100", 4), ("dgx1-v100", 6)])
def test_channels_of_a_dgx1_use_all_its_links(name: str, links: int) -> None:
    """Bus bandwidth 2 (p − 1)/p n / t: as many links as a GPU has, at the rate of one, to 1 % and latencies."""
    fabric, group, places = system(name, 1)
    layout = RingLayout(fabric, group, places)
    assert len(layout.channels) == links
    rate = min(bytes_per_s for port, bytes_per_s in fabric.capacity.items() if port.count("gpu") == 2)
    seconds = all_reduce_s(fabric, group, 1e10, "ring-channels", channels=layout.channels)
    assert 2 * 7 / 8 * 1e10 / seconds == pytest.approx(links * rate, rel=0.01)


def test_channels_between_nodes_leave_by_all_nics() -> None:
    fabric, group, places = system("dgx1-p100", 2)
    layout = RingLayout(fabric, group, places)
    seconds = all_reduce_s(fabric, group, 1e10, "ring-channels", channels=layout.channels)
    assert 2 * 15 / 16 * 1e10 / seconds == pytest.approx(4 * LINKS["ib-edr"].bytes_per_s, rel=0.02)


def test_a_ring_over_a_slower_nic_carries_fewer_bytes() -> None:
    """One NIC of four that sends at half its rate: shares 2/7, 2/7, 2/7, 1/7, and 3.5 times a healthy NIC's rate."""
    fabric, group, places = system("dgx1-p100", 2)
    up = next(port for port in fabric.path(group.ranks[0], group.ranks[8], 1).ports if "nic" in port.split(">")[0])
    for rates in (fabric.capacity, fabric.mean_capacity):  # now and on average: rings are chosen by the latter
        rates[up] /= 2
    channels = RingLayout(fabric, group, places).channels
    assert sorted(round(7 * one.share) for one in channels) == [1, 2, 2, 2]
    seconds = all_reduce_s(fabric, group, 1e10, "ring-channels", channels=channels)
    assert 2 * 15 / 16 * 1e10 / seconds == pytest.approx(3.5 * LINKS["ib-edr"].bytes_per_s, rel=0.02)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (4,), (2, 2, 2), (3, 1, 2)])
def test_where_all_hops_are_alike_rings_are_in_order(sizes: tuple[int, ...]) -> None:
    cluster = star(*sizes)
    places = tuple(tuple(map(int, node)) for node in cluster.placement)
    layout = RingLayout(GraphFabric(cluster), Group(tuple(map(Rank, range(cluster.workers)))), places)
    assert layout.order == tuple(range(cluster.workers))
    assert layout.nodes == places and len(layout.channels) == 1


@given(st.integers(4, 9), st.data())
def test_the_widest_cycle_is(g: int, data: st.DataObject) -> None:
    """The slowest hop against all cycles of up to 7 places; for more, only that it visits all."""
    rates = np.zeros((g, g))
    for one in range(g):
        for other in range(one):
            rates[one, other] = rates[other, one] = data.draw(st.sampled_from([1.0, 2.0, 3.0]))
    cycle = widest_cycle(tuple(map(tuple, rates.tolist())))
    assert sorted(cycle) == list(range(g)) and cycle[0] == 0
    if g <= 6:
        best = max(_slowest(rates, (0, *rest)) for rest in _orders(list(range(1, g))))
        assert _slowest(rates, cycle) == best


def _slowest(rates: np.ndarray, cycle: tuple[int, ...]) -> float:
    return min(float(rates[one, other]) for one, other in pairwise((*cycle, cycle[0])))


def _orders(rest: list[int]) -> list[tuple[int, ...]]:
    if not rest:
        return [()]
    return [(one, *more) for one in rest for more in _orders([other for other in rest if other != one])]


@given(st.integers(3, 7), st.data())
def test_disjoint_cycles_share_no_lane(g: int, data: st.DataObject) -> None:
    lanes = np.zeros((g, g), dtype=int)
    for one in range(g):
        for other in range(one):
            lanes[one, other] = lanes[other, one] = data.draw(st.integers(0, 2))
    left = lanes.copy()
    for cycle in disjoint_cycles(tuple(map(tuple, lanes.tolist()))):
        assert sorted(cycle) == list(range(g))
        for one, other in pairwise((*cycle, cycle[0])):
            left[one, other] -= 1
            left[other, one] -= 1
    assert (left >= 0).all()


@pytest.mark.parametrize(("gpu", "number"), [("p100", 2), ("v100", 3)])
def test_a_hybrid_cube_mesh_falls_into_cycles(gpu: str, number: int) -> None:
    assert len(disjoint_cycles(tuple(tuple(map(int, row)) for row in HYBRID_CUBE_MESH[gpu]))) == number


@examples(25, 200)
@given(st.integers(2, 8), st.data())
def test_any_rings_side_by_side_are_as_the_replay_says(p: int, data: st.DataObject) -> None:
    """And each is the ring whose data come out right, under other names."""
    orders = data.draw(st.lists(st.permutations(range(p)), min_size=1, max_size=3))
    channels = tuple(RingChannel(tuple(order), 1 / len(orders)) for order in orders)
    pattern = build("AllReduce", "ring-channels", Setting(p, 1e6, 0, (), (), channels))
    for part, one in zip(pattern.parts, channels, strict=True):
        place = np.argsort(one.order)
        for round_, usual in zip(part, ring_all_reduce(p, 1e6 / len(orders)), strict=True):
            assert place[round_.sources].tolist() == usual.sources.tolist()
            assert place[round_.targets].tolist() == usual.targets.tolist()
            assert round_.nbytes.tolist() == usual.nbytes.tolist() and round_.times == usual.times
    fabric = Uniform(p, reduce_s_per_byte=1e-10)
    entries_s = data.draw(st.lists(st.sampled_from([0.0, 1e-6, 1e-3]), min_size=p, max_size=p))
    one_plan = CollectivePlan(pattern, tuple(map(Rank, range(p))), fabric.paths, fabric.reduce_s_per_byte)
    found = alone_s(one_plan, fabric, np.array(entries_s))
    assert found == pytest.approx(np.array(replayed_s(pattern, fabric, entries_s)), rel=1e-9)
    assert found == pytest.approx(simulate_by_events(one_plan, fabric, np.array(entries_s)), rel=1e-9)
