"""The shares of flows in a link, and the arrival times of messages."""

from collections.abc import Generator
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.max_min import fair_rates
from paceline.simulator.network.network import ClusterNetwork, InMemoryCosts, MeasuredNetwork, NoCost
from tests.clusters import joined, star


def arrivals(network: ClusterNetwork | MeasuredNetwork | NoCost, *messages: tuple[int, int, int]) -> list[float]:
    """When each (source, to, bytes) arrives, all being sent at time 0."""
    env = simpy.Environment(0.0)
    network.attach(env)
    times: dict[int, float] = {}

    def follow(index: int, message: tuple[int, int, int]) -> Generator[simpy.Event, Any, None]:
        yield network.message(Rank(message[0]), Rank(message[1]), message[2])
        times[index] = env.now

    for index, message in enumerate(messages):
        env.process(follow(index, message))
    env.run()
    return [times[index] for index in range(len(messages))]


def seconds(network: ClusterNetwork, nbytes: int) -> float:
    """What an all-reduce among ranks 0 and 1 takes."""
    env = simpy.Environment(0.0)
    network.attach(env)
    op = AllReduce(value=Null(nbytes // 4), group=Group((Rank(0), Rank(1))), key="")
    env.run(network.collective(op, nbytes, ""))
    return float(env.now)


def test_a_message_alone_takes_latency_and_its_bytes() -> None:
    assert arrivals(ClusterNetwork(star(1, 1, latency_s=0.25)), (0, 1, 500)) == [0.75]


def test_a_message_without_bytes_takes_the_latency() -> None:
    assert arrivals(ClusterNetwork(star(1, 1, latency_s=0.25)), (0, 1, 0)) == [0.25]


def test_two_senders_into_one_receiver_get_half_each() -> None:
    assert arrivals(ClusterNetwork(star(1, 1, 1)), (0, 2, 500), (1, 2, 500)) == [1.0, 1.0]


def test_who_is_left_gets_all() -> None:
    # both at 500 B/s until the small one is through at 0.4 s; the other has 800 - 200 = 600 bytes left
    assert arrivals(ClusterNetwork(star(1, 1, 1)), (0, 2, 200), (1, 2, 800)) == [0.4, pytest.approx(1.0)]


def test_directions_do_not_share() -> None:
    assert arrivals(ClusterNetwork(star(1, 1)), (0, 1, 1000), (1, 0, 1000)) == [1.0, 1.0]


def test_ranks_of_one_node_share_its_nic_and_use_their_own_link_among_themselves() -> None:
    network = ClusterNetwork(star(3, 1, 1))
    assert arrivals(network, (0, 3, 500), (1, 4, 500), (0, 2, 8000)) == [1.0, 1.0, 1.0]


def test_messages_of_one_pair_follow_each_other() -> None:
    assert arrivals(ClusterNetwork(star(1, 1, latency_s=0.5)), (0, 1, 1000), (0, 1, 1000)) == [1.5, 2.5]


def test_a_message_sees_half_of_each_ends_latency_and_the_lower_bandwidth() -> None:
    cluster = joined(star(1, bytes_per_s=4000.0), star(1, latency_s=0.5, bytes_per_s=500.0))
    assert arrivals(ClusterNetwork(cluster), (0, 1, 1000)) == [2.25]
    assert seconds(ClusterNetwork(cluster, "ring"), 1000) == 2 * 0.25 + 1000 / 500.0


def test_a_group_on_one_node_uses_the_local_link() -> None:
    assert seconds(ClusterNetwork(star(2, 1), "ring"), 1000) == 1000 / 8000


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(
        InputError, match="found the all-reduce algorithm 'rung', expected one of auto, ring, ring-channels"
    ):
        ClusterNetwork(star(1), "rung")


def test_measured_costs_are_those_given() -> None:
    assert arrivals(MeasuredNetwork(lambda *_: 9.0, lambda nbytes: nbytes / 100), (0, 1, 50), (2, 1, 25)) == [0.5, 0.25]


def test_collectives_of_one_group_and_stream_are_served_in_turn() -> None:
    env = simpy.Environment(0.0)
    network = MeasuredNetwork(lambda _, members, nbytes: members * nbytes / 100, lambda _: 0.0)
    network.attach(env)
    pair, three = Group((Rank(0), Rank(1))), Group((Rank(0), Rank(1), Rank(2)))
    asked = [(pair, ""), (pair, ""), (pair, "/1"), (three, "")]
    ended: list[float] = []
    for group, stream in asked:
        event = network.collective(AllReduce(value=Null(25), group=group, key=""), 100, stream)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: ended.append(env.now))
    env.run()
    assert ended == [2.0, 2.0, 3.0, 4.0]


def in_memory(pair: Group) -> InMemoryCosts:
    """The messages of this pair go through memory."""
    return InMemoryCosts(
        collective_s=lambda *asked: asked[2] / 100,
        holds=pair.__eq__,
        message_s=lambda nbytes: nbytes / 1000,
        joins=lambda source, to: source in pair and to in pair,
    )


def test_messages_in_a_hosts_memory_have_costs_of_their_own() -> None:
    network = MeasuredNetwork(lambda *_: 9.0, lambda nbytes: nbytes / 100, in_memory(Group((Rank(0), Rank(1)))))
    assert arrivals(network, (0, 1, 50), (1, 2, 50), (1, 0, 100)) == [0.05, 0.5, 0.1]


def test_collectives_in_a_nodes_memory_have_costs_of_their_own() -> None:
    pair, apart = Group((Rank(0), Rank(1))), Group((Rank(0), Rank(2)))
    network = MeasuredNetwork(lambda *_: 9.0, lambda _: 0.0, in_memory(pair))
    ended = {}
    for group in (pair, apart):
        env = simpy.Environment(0.0)
        network.attach(env)
        env.run(network.collective(AllReduce(value=Null(25), group=group, key=""), 100, ""))
        ended[group] = env.now
    assert ended == {pair: 1.0, apart: 9.0}


FLOWS = st.lists(
    st.sets(st.sampled_from("abcd"), min_size=1, max_size=3).map(lambda ports: tuple(sorted(ports))),
    min_size=1,
    max_size=8,
)
CAPACITY = st.fixed_dictionaries({port: st.floats(0.1, 10.0) for port in "abcd"})


@given(FLOWS, CAPACITY)
def test_rates_are_max_min_fair(flows: list[tuple[str, ...]], capacity: dict[str, float]) -> None:
    rates = fair_rates(flows, capacity)
    load = {port: sum(rate for flow, rate in zip(flows, rates, strict=True) if port in flow) for port in capacity}
    assert all(load[port] <= capacity[port] * (1 + 1e-9) for port in capacity)
    for flow, rate in zip(flows, rates, strict=True):  # no flow is faster than its own full port
        assert any(
            load[port] >= capacity[port] * (1 - 1e-9)
            and rate >= max(other for ports, other in zip(flows, rates, strict=True) if port in ports) * (1 - 1e-9)
            for port in flow
        )


@given(FLOWS, CAPACITY, st.lists(st.integers(1, 1000), min_size=8, max_size=8))
def test_every_byte_gets_through_and_no_port_is_busier_than_it_can_be(
    flows: list[tuple[str, ...]], capacity: dict[str, float], sizes: list[int]
) -> None:
    env = simpy.Environment(0.0)
    engine = Flows(env, capacity)
    done = [engine.begin(flow, size) for flow, size in zip(flows, sizes, strict=False)]
    env.run()
    assert all(event.processed for event in done)
    for port, bytes_per_s in capacity.items():
        through = sum(size for flow, size in zip(flows, sizes, strict=False) if port in flow)
        assert env.now >= through / bytes_per_s * (1 - 1e-9)
