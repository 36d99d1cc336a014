"""Links that vary at any time: bytes are conserved, and collectives end when their messages would."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.simulator.kernel.clock import VirtualClock
from paceline.topologies.cluster import ClusterModel
from paceline.topologies.graphs.network_graphs import ring
from paceline.topologies.graphs.variation import VariationModel
from tests.clusters import star
from tests.outages import WIRE, ends, on
from tests.thorough import examples
from tests.traffic import CountedNetwork
from tests.varying import varied

LAWS = st.builds(
    VariationModel,
    cv=st.sampled_from([0.1, 0.5, 1.5]),
    every_s=st.sampled_from([0.3, 1.0, 4.7]),
    correlation=st.sampled_from([0.0, 0.8]),
    floor=st.sampled_from([0.05, 0.5]),
)
TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.25, 3.3, 7.1])
SIZES = st.sampled_from([0, 100, 997, 3001])


@st.composite
def varying(draw: st.DrawFn) -> ClusterModel:
    """A cluster of which some links vary, each in its own way."""
    cluster = draw(st.sampled_from([star(1, 1, 1, latency_s=0.25), star(2, 1, 2), on(ring(hosts=5, link=WIRE))]))
    wires = st.sampled_from([wire.ends for wire in cluster.graph.connections])
    return varied(cluster, draw(st.dictionaries(wires, LAWS, min_size=1)))


@examples(25, 400)
@given(cluster=varying(), data=st.data())
def test_whether_collectives_are_carried_out_makes_no_difference(cluster: ClusterModel, data: st.DataObject) -> None:
    ranks = st.integers(0, cluster.workers - 1)
    pairs = st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])
    messages = [
        (begin_s, *pair, nbytes)
        for begin_s, pair, nbytes in data.draw(st.lists(st.tuples(TIMES, pairs, SIZES), max_size=3))
    ]
    groups = st.lists(ranks, min_size=2, max_size=4, unique=True).map(sorted)
    collectives: list[tuple[float, int, *tuple[int, ...]]] = [
        (begin_s, nbytes, *members)
        for begin_s, nbytes, members in data.draw(st.lists(st.tuples(TIMES, SIZES, groups | st.just([])), max_size=3))
    ]
    ended_s = ends(cluster, messages, collectives)
    assert all(end_s < inf for end_s in ended_s)
    assert ended_s == pytest.approx(ends(cluster, messages, collectives, carried_out=True), rel=1e-9)


@examples(25, 400)
@given(cluster=varying(), data=st.data())
def test_every_port_carries_the_bytes_of_its_messages(cluster: ClusterModel, data: st.DataObject) -> None:
    """Bytes are conserved: rates times durations, over all bandwidths that a port had, are what was sent."""
    ranks = st.integers(0, cluster.workers - 1)
    pairs = st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])
    messages = data.draw(st.lists(st.tuples(TIMES, pairs, SIZES), min_size=1, max_size=6))
    network, clock = CountedNetwork(cluster, seed=data.draw(st.integers(0, 5))), VirtualClock()
    network.attach(clock)
    expected: dict[str, float] = {}

    def send(source: int, to: int, nbytes: int) -> None:
        network.message(Rank(source), Rank(to), nbytes)

    for begin_s, (source, to), nbytes in messages:
        for port in network.fabric.path(Rank(source), Rank(to), nbytes).ports:
            expected[port] = expected.get(port, 0.0) + nbytes
        timer = clock.timeout(begin_s, (source, to, nbytes))
        assert timer.callbacks is not None
        timer.callbacks.append(lambda one: send(*one.value))
    clock.run()
    carried = {port: nbytes for port, nbytes in network.carried_bytes.items() if nbytes}
    assert carried == pytest.approx({port: nbytes for port, nbytes in expected.items() if nbytes}, rel=1e-9)
