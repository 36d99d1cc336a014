"""Links that fail or vary at any time: collectives end when their messages would, and bytes are conserved."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.faults.link_faults import LinkFaultModel, changes
from paceline.topologies.graphs.links import VariationModel
from paceline.topologies.graphs.network_graphs import fat_tree, ring, torus
from tests.changing_links import WIRE, on, played, varied
from tests.clusters import star
from tests.thorough import examples
from tests.traffic import CountedNetwork, assert_equal_bytes, carried

QUICK = replace(WIRE, latency_s=0.125)
CLUSTERS = [
    star(1, 1, 1, latency_s=0.25),
    star(2, 1, 2),
    on(ring(hosts=5, link=QUICK)),
    on(torus(sides=(3, 3), link=QUICK)),
    on(fat_tree(k=4, link=QUICK), ranks=10),
]
LAWS = st.builds(
    VariationModel,
    cv=st.sampled_from([0.1, 0.5, 1.5]),
    every_s=st.sampled_from([0.3, 1.0, 4.7]),
    correlation=st.sampled_from([0.0, 0.8]),
    floor=st.sampled_from([0.05, 0.5]),
)
TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.25, 3.3, 7.1])
SIZES = st.sampled_from([0, 100, 997, 3001])
Messages = list[tuple[float, int, int, int]]


@st.composite
def failing(draw: st.DrawFn) -> ClusterModel:
    """A cluster with links that are slow or broken for a while, and repaired in the end."""
    cluster = draw(st.sampled_from(CLUSTERS))
    wires = st.sampled_from(cluster.graph.connections).map(lambda wire: wire.ends)
    fault = st.builds(
        LinkFaultModel,
        between=wires,
        at_s=TIMES,
        lasts_s=st.sampled_from([0.3, 1.0, 4.7]),
        rate=st.sampled_from([0.0, 0.0, 0.25, 0.5]),
    )
    return replace(cluster, link_faults=tuple(draw(st.lists(fault, min_size=1, max_size=4))))


@st.composite
def varying(draw: st.DrawFn) -> ClusterModel:
    """A cluster of which some links vary, each in its own way."""
    cluster = draw(st.sampled_from(CLUSTERS[:3]))
    wires = st.sampled_from([wire.ends for wire in cluster.graph.connections])
    return varied(cluster, draw(st.dictionaries(wires, LAWS, min_size=1)))


def messages(data: st.DataObject, cluster: ClusterModel, least: int = 0) -> Messages:
    ranks = st.integers(0, cluster.workers - 1)
    pairs = st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])
    drawn = data.draw(st.lists(st.tuples(TIMES, pairs, SIZES), min_size=least, max_size=3))
    return [(begin_s, *pair, nbytes) for begin_s, pair, nbytes in drawn]


@pytest.mark.parametrize("clusters", [failing, varying])
@examples(20, 500)
@given(data=st.data())
def test_whether_collectives_are_carried_out_makes_no_difference(clusters: Any, data: st.DataObject) -> None:
    cluster: ClusterModel = data.draw(clusters())
    sent = messages(data, cluster)
    groups = st.lists(st.integers(0, cluster.workers - 1), min_size=2, max_size=4, unique=True).map(sorted)
    collectives: list[tuple[float, int, *tuple[int, ...]]] = [
        (begin_s, nbytes, *members)
        for begin_s, nbytes, members in data.draw(st.lists(st.tuples(TIMES, SIZES, groups | st.just([])), max_size=3))
    ]
    ended_s, network = played(cluster, sent, collectives)
    assert all(end_s < inf for end_s in ended_s)
    expected_s, other = played(cluster, sent, collectives, carried_out=True)
    assert ended_s == pytest.approx(expected_s, rel=1e-9)
    assert_equal_bytes(carried(network), carried(other), rel=1e-9)
    assert_equal_bytes(carried(other), other.carried_bytes, rel=1e-9)  # by what remains of flows


@given(cluster=failing())
def test_after_the_last_repair_everything_is_as_before(cluster: ClusterModel) -> None:
    fabric, before = ClusterNetwork(cluster).fabric, dict(ClusterNetwork(cluster).fabric.capacity)
    for change in changes(cluster.graph, cluster.link_faults):
        for wire, rate in change.rates.items():
            fabric.degrade(wire, rate)
    assert fabric.capacity == before


@examples(25, 400)
@given(cluster=varying(), data=st.data())
def test_every_port_carries_the_bytes_of_its_messages(cluster: ClusterModel, data: st.DataObject) -> None:
    """Bytes are conserved: rates times durations, over all bandwidths that a port had, are what was sent."""
    network, clock = CountedNetwork(cluster, seed=data.draw(st.integers(0, 5))), VirtualClock()
    network.attach(clock)
    expected: dict[str, float] = {}

    def send(source: int, to: int, nbytes: int) -> None:
        network.message(Rank(source), Rank(to), nbytes)

    for begin_s, source, to, nbytes in messages(data, cluster, least=1):
        for port in network.fabric.path(Rank(source), Rank(to), nbytes).ports:
            expected[port] = expected.get(port, 0.0) + nbytes
        timer = clock.timeout(begin_s, (source, to, nbytes))
        assert timer.callbacks is not None
        timer.callbacks.append(lambda one: send(*one.value))
    clock.run()
    found = {port: nbytes for port, nbytes in network.carried_bytes.items() if nbytes}
    assert found == pytest.approx({port: nbytes for port, nbytes in expected.items() if nbytes}, rel=1e-9)
