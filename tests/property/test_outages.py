"""Links that fail at any time: collectives that are not simulated in detail end when their messages would."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.faults.link_faults import LinkFaultModel, changes
from paceline.topologies.graphs.network_graphs import ring, torus
from paceline.topologies.graphs.trees import fat_tree
from tests.clusters import star
from tests.outages import WIRE, on, played
from tests.thorough import examples
from tests.traffic import assert_equal_bytes, carried

QUICK = replace(WIRE, latency_s=0.125)
CLUSTERS = [
    star(1, 1, 1, latency_s=0.25),
    star(2, 1, 2),
    on(ring(hosts=5, link=QUICK)),
    on(torus(sides=(3, 3), link=QUICK)),
    on(fat_tree(k=4, link=QUICK), ranks=10),
]
TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.25, 3.3, 7.1])


@st.composite
def failing(draw: st.DrawFn) -> ClusterModel:
    """A cluster with links that are slow or broken for a while, and repaired in the end."""
    cluster = draw(st.sampled_from(CLUSTERS))
    wires = st.sampled_from(cluster.graph.connections).map(lambda wire: wire.ends)
    rates = st.sampled_from([0.0, 0.0, 0.25, 0.5])
    lasting = st.sampled_from([0.3, 1.0, 4.7])
    one = st.builds(LinkFaultModel, between=wires, at_s=TIMES, lasts_s=lasting, rate=rates)
    return replace(cluster, link_faults=tuple(draw(st.lists(one, min_size=1, max_size=4))))


@examples(25, 600)
@given(cluster=failing(), data=st.data())
def test_whether_collectives_are_carried_out_makes_no_difference(cluster: ClusterModel, data: st.DataObject) -> None:
    ranks = st.integers(0, cluster.workers - 1)
    pairs = st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])
    sizes = st.sampled_from([0, 100, 997, 3001])
    messages = [
        (begin_s, *pair, nbytes)
        for begin_s, pair, nbytes in data.draw(st.lists(st.tuples(TIMES, pairs, sizes), max_size=3))
    ]
    groups = st.lists(ranks, min_size=2, max_size=4, unique=True).map(sorted)
    collectives: list[tuple[float, int, *tuple[int, ...]]] = [
        (begin_s, nbytes, *members)
        for begin_s, nbytes, members in data.draw(st.lists(st.tuples(TIMES, sizes, groups | st.just([])), max_size=3))
    ]
    ended_s, network = played(cluster, messages, collectives)
    assert all(end_s < inf for end_s in ended_s)
    expected_s, other = played(cluster, messages, collectives, carried_out=True)
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
