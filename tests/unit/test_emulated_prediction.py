"""What a message and an all-reduce on an emulated network are predicted to take: closed forms."""

from __future__ import annotations

from functools import partial

import pytest

from paceline.algorithms.operations import AllReduce
from paceline.algorithms.values import Null, Rank
from paceline.simulator.clock import Clock
from paceline.simulator.emulated import EmulatedNetwork
from paceline.simulator.network import MeasuredNetwork
from paceline.topologies.profile import EmulatedProfile, Profile
from tests.unit.test_emulation import plan

RATE, LATENCY_S, ADDED_S = 10e6, 2e-3, 5e-4


def network(*, all_reduce_s: float = 0.0, packet: int = 1500) -> EmulatedNetwork:
    one = plan({"topology": "ring"})
    machine = Profile(collectives={("AllReduce", 4): ((19240, 1e-3),)})
    profile = EmulatedProfile(
        machine=machine, message_s=ADDED_S, all_reduce_s=all_reduce_s, local_all_reduce_s=0.0, few_bytes=0,
        packet_bytes=packet,
    )  # fmt: skip
    return EmulatedNetwork(one, profile, MeasuredNetwork(lambda *_: 9.0, lambda _: 0.25))


def arrivals(wires: EmulatedNetwork, *messages: tuple[int, int, int]) -> list[float]:
    clock, found = Clock(), dict[int, float]()
    wires.attach(clock)

    def note(number: int, _: object) -> None:
        found[number] = clock.now

    for number, (source, to, nbytes) in enumerate(messages):
        event = wires.message(Rank(source), Rank(to), nbytes)
        assert event.callbacks is not None
        event.callbacks.append(partial(note, number))
    clock.run()
    return [found[number] for number in range(len(messages))]


def test_a_message_goes_its_way_three_times() -> None:
    assert arrivals(network(), (0, 1, 10_000)) == pytest.approx([3 * LATENCY_S + ADDED_S + 10_000 / RATE])


def test_a_line_passes_on_whole_packets() -> None:
    (far,) = arrivals(network(), (0, 2, 10_000))
    assert far == pytest.approx(6 * LATENCY_S + ADDED_S + (10_000 + 1500) / RATE)


def test_a_rank_takes_one_message_at_a_time() -> None:
    one_s = 2 * LATENCY_S + ADDED_S + 10_000 / RATE
    first, second = arrivals(network(), (0, 1, 10_000), (2, 1, 10_000))
    assert (first, second) == pytest.approx((LATENCY_S + one_s, LATENCY_S + 2 * one_s))


def test_inside_a_host_it_takes_what_it_takes_there() -> None:
    assert arrivals(network(), (0, 0, 10_000)) == [0.25]


def test_an_all_reduce_is_a_ring_with_what_the_probe_found_beside_its_way() -> None:
    """2 (P − 1) steps of α + n / (P r) + s, where the probed s is the all-reduce of nothing less its latencies."""
    wires = network(all_reduce_s=6 * (LATENCY_S + 1e-3))
    clock = Clock()
    wires.attach(clock)
    group = plan({"topology": "ring"}, shared_memory=False).job.team[0].workers
    wires.collective(AllReduce(value=Null(10_000), group=group, key="all"), 40_000, "")
    clock.run()
    assert clock.now == pytest.approx(6 * (LATENCY_S + 1e-3 + 10_000 / RATE))
