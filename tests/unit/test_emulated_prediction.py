"""Predicted times of messages and collectives on an emulated network: closed forms, and bytes on each line."""

from __future__ import annotations

from functools import partial

import pytest

from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.backend.calibration.emulation_costs import start_s
from paceline.records.trace import Span, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.simpy_events import after
from paceline.simulator.network.emulated import Carrier, EmulatedNetwork, all_reduce_s, leg_s
from paceline.simulator.network.gloo import WORD_BYTES, ProcessGroups
from paceline.simulator.network.network import MeasuredNetwork
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.topologies.catalogue.libraries import GLOO_SEGMENT_BYTES
from paceline.topologies.catalogue.machine_profile import EmulationCosts
from paceline.topologies.packet_lines import HEADERS, Lines, PacketLine
from tests.thorough import cases
from tests.unit.test_emulation import plan

RATE, LATENCY_S, ADDED_S, PACKET = 10e6, 2e-3, 5e-4, 1500
SHARE = PACKET / (PACKET - HEADERS)
"""factor by which a line sends whole packets faster than their payload"""
WORD_S = (WORD_BYTES + HEADERS) / (RATE * SHARE)
"""of an announcement on a line"""


def sent_s(nbytes: int) -> float:
    """Returns the time of a message and its announcement on a line."""
    whole = nbytes + WORD_BYTES
    return (whole + -(-whole // (PACKET - HEADERS)) * HEADERS) / (RATE * SHARE)


def network(*, all_reduce_s: float = 0.0) -> EmulatedNetwork:
    one = plan({"topology": "ring"})
    emulation = EmulationCosts(
        message_s=ADDED_S, all_reduce_s=all_reduce_s, few_bytes=64,
        packet_bytes=PACKET,
    )  # fmt: skip
    return EmulatedNetwork(one, emulation, MeasuredNetwork(lambda *_: 9.0, lambda _: 0.25))


def arrivals(wires: EmulatedNetwork, *messages: tuple[int, int, int]) -> list[float]:
    clock, found = VirtualClock(), dict[int, float]()
    wires.attach(clock)

    def note(number: int, _: object) -> None:
        found[number] = clock.now

    for number, (source, to, nbytes) in enumerate(messages):
        event = wires.message(Rank(source), Rank(to), nbytes)
        assert event.callbacks is not None
        event.callbacks.append(partial(note, number))
    clock.run()
    return [found[number] for number in range(len(messages))]


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_message_goes_its_way_three_times() -> None:
    expected = 3 * LATENCY_S + ADDED_S + 2 * WORD_S + sent_s(10_000)
    assert arrivals(network(), (0, 1, 10_000)) == pytest.approx([expected])


def test_a_line_passes_on_whole_packets() -> None:
    (far,) = arrivals(network(), (0, 2, 10_000))
    last = 10_000 + WORD_BYTES - 6 * (PACKET - HEADERS) + HEADERS
    assert last < PACKET  # so it waits at the second line until the packet before it has left
    expected = 6 * LATENCY_S + ADDED_S + 4 * WORD_S + sent_s(10_000) + PACKET / (RATE * SHARE)
    assert far == pytest.approx(expected)


def test_a_rank_takes_one_message_at_a_time() -> None:
    asked_s, one_s = LATENCY_S + WORD_S, 2 * LATENCY_S + ADDED_S + WORD_S + sent_s(10_000)
    first, second = arrivals(network(), (0, 1, 10_000), (2, 1, 10_000))
    assert (first, second) == pytest.approx((asked_s + one_s, asked_s + 2 * one_s))


def test_inside_a_host_it_takes_what_it_takes_there() -> None:
    assert arrivals(network(), (0, 0, 10_000)) == [0.25]


def test_what_the_probed_all_reduce_took_beside_its_lines_is_shared_out_among_its_legs() -> None:
    one = plan({"topology": "ring"})
    bare = network()
    profile = bare._emulation
    lines_s = all_reduce_s(one, profile, bare._lines, [0.0] * 4)
    assert lines_s > 12 * LATENCY_S
    slower = network(all_reduce_s=lines_s + 12e-3)._emulation
    assert leg_s(one, slower, bare._lines) == pytest.approx(1e-3)


# --- collectives -----------------------------------------------------------------------------------------------------


def star(hosts: int, per_host: int = 1) -> Lines:
    """Hosts around a switch that takes no time, so a host's own line is the only one in each direction."""
    out = [PacketLine(f"h{host}>s", RATE, LATENCY_S / 2) for host in range(hosts)]
    into = [PacketLine(f"s>h{host}", 1e6 * RATE, LATENCY_S / 2) for host in range(hosts)]
    routes = {(a, b): (a, hosts + b) for a in range(hosts) for b in range(hosts) if a != b}
    places = {Rank(rank): rank // per_host for rank in range(hosts * per_host)}
    return Lines(tuple(f"h{host}" for host in range(hosts)), places, (*out, *into), routes)


def performed(
    lines: Lines, *ops: Collective, leads_s: tuple[float, ...] = (), leg_s: float = 0.0
) -> tuple[list[dict[int, float]], list[int]]:
    """Returns when each member leaves each of these collectives, and the bytes that each host has sent to others."""
    clock, left = VirtualClock(), [dict[int, float]() for _ in ops]
    carrier = Carrier(clock, lines, PACKET, leg_s)
    groups = ProcessGroups(clock, carrier.carry)

    def enter(rank: Rank) -> None:
        for op, found in zip(ops, left, strict=True):
            done = groups.enter(rank, op, "")
            assert done.callbacks is not None
            done.callbacks.append(lambda _, found=found: found.__setitem__(int(rank), clock.now))  # type: ignore[misc]

    members = ops[0].group.ranks
    for rank, lead_s in zip(members, leads_s or (0.0,) * len(members), strict=True):
        after(clock, max(leads_s, default=0.0) - lead_s, lambda _, rank=rank: enter(rank))  # type: ignore[misc]
    clock.run()
    return left, carrier.wires.carried_bytes[: len(lines.hosts)]


def group(p: int) -> Group:
    return Group(tuple(map(Rank, range(p))))


def near(expected: float) -> object:
    """Within the announcements that precede it on a line, and the packets that round it up."""
    return pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("p", [2, 3, 4, 7])
def test_an_all_reduce_sends_a_segment_while_it_announces_the_next(p: int) -> None:
    """2 (P − 1) steps of 2 α + n / (2 P) β, where that is more than the line needs for both segments of a step.

    Each half ends a segment later, as its second segments come behind its first.
    """
    nbytes = 2 * p * 1400  # a packet for each segment
    (left,), _ = performed(star(p), AllReduce(value=Null(nbytes // 4), group=group(p), key="k"))
    step_s = 2 * LATENCY_S + WORD_S + sent_s(1400)
    assert max(left.values()) == near(2 * (p - 1) * step_s + 2 * sent_s(1400))


def test_an_all_reduce_of_much_needs_what_its_line_needs() -> None:
    nbytes = cases(8, 40) * GLOO_SEGMENT_BYTES
    (left,), sent = performed(star(4), AllReduce(value=Null(nbytes // 4), group=group(4), key="k"))
    beside_s = max(left.values()) - 2 * 3 / 4 * nbytes / RATE
    assert 0 < beside_s < GLOO_SEGMENT_BYTES / RATE  # it pauses once, because the gathered vectors are reduced first
    assert all(count == pytest.approx(2 * 3 / 4 * nbytes * SHARE, rel=0.001) for count in sent)


@pytest.mark.parametrize(("p", "root"), [(2, 0), (3, 0), (3, 1), (4, 2)])
def test_a_reduce_is_a_reduce_scatter_and_everybodys_share_to_the_root(p: int, root: int) -> None:
    nbytes = 2 * p * 1400
    reduce = Reduce(value=Null(nbytes // 4), group=group(p), root=Rank(root), key="k")
    (left,), sent = performed(star(p), reduce)
    step_s = 2 * LATENCY_S + WORD_S + sent_s(1400)
    gather_s = 2 * LATENCY_S + WORD_S + sent_s(2800)
    assert left[root] == max(left.values()) == near((p - 1) * step_s + sent_s(1400) + gather_s)
    words = sum(sent) - SHARE * p * ((p - 1) * 2800) - SHARE * (p - 1) * 2800
    assert 0 < words < 0.25 * sum(sent)


@pytest.mark.parametrize(("p", "root", "children"), [(2, 0, 1), (3, 0, 2), (4, 1, 2), (5, 0, 3), (8, 3, 3)])
def test_a_broadcast_goes_to_all_children_at_once(p: int, root: int, children: int) -> None:
    """The root sends to ranks root + 1, + 2, + 4 …: α + (α + c n β), as its c children share its line."""
    nbytes = 100_000
    broadcast = Broadcast(value=Null(nbytes // 4), group=group(p), root=Rank(root), key="k")
    (left,), sent = performed(star(p), broadcast)
    assert sent[root] == pytest.approx(children * nbytes * SHARE, rel=0.01)
    last_child = (root + 2 ** (children - 1)) % p
    assert left[last_child] == near(2 * LATENCY_S + children * sent_s(nbytes))
    assert sum(count > nbytes for count in sent) == len({at for at in range(p) if _children(at, p)})


def _children(at: int, p: int) -> list[int]:
    """Returns the time of a rank at this distance from the root."""
    return [at + 2**k for k in range(at.bit_length(), p.bit_length()) if at + 2**k < p]


def test_a_broadcast_to_two_hosts_of_two_crosses_twice() -> None:
    """Neighbours first: rank 1 has it at once, and sends it to rank 3 while rank 0 sends it to rank 2."""
    broadcast = Broadcast(value=Null(25_000), group=group(4), root=Rank(0), key="k")
    (left,), sent = performed(star(2, per_host=2), broadcast)
    assert sent[0] == pytest.approx(200_000 * SHARE, rel=0.01)
    assert left[3] == near(2 * LATENCY_S + 2 * sent_s(100_000))


@pytest.mark.parametrize("p", [2, 4])
def test_an_all_gather_goes_to_the_rank_after(p: int) -> None:
    (left,), sent = performed(star(p), AllGather(value=Null(700), group=group(p), key="k"))
    step_s = 2 * LATENCY_S + WORD_S + sent_s(1400)
    assert max(left.values()) == near((p - 1) * step_s + sent_s(1400))
    assert all(count > (p - 1) * 2800 for count in sent)


@pytest.mark.parametrize(("p", "rounds"), [(2, 1), (4, 2), (5, 3)])
def test_a_barrier_is_a_word_and_its_announcement_in_each_round(p: int, rounds: int) -> None:
    (left,), _ = performed(star(p), Barrier(group=group(p), key="k"))
    assert max(left.values()) == near(rounds * 2 * (LATENCY_S + WORD_S))


def test_what_arrives_takes_what_gloo_adds() -> None:
    barrier = Barrier(group=group(2), key="k")
    (plain,), _ = performed(star(2), barrier)
    (slower,), _ = performed(star(2), barrier, leg_s=1e-3)
    assert slower[0] - plain[0] == pytest.approx(2e-3)


def test_who_comes_early_has_announced_it() -> None:
    broadcast = Broadcast(value=Null(2500), group=group(2), root=Rank(0), key="k")
    (left,), _ = performed(star(2), broadcast, leads_s=(0.0, 0.1))
    assert left[1] - 0.1 == near(LATENCY_S + sent_s(10_000))


def test_two_collectives_of_a_group_are_under_way_at_a_time() -> None:
    barrier = Barrier(group=group(2), key="k")
    one_s = 2 * (LATENCY_S + WORD_S)
    lefts, _ = performed(star(2), barrier, barrier, barrier)
    assert [max(left.values()) for left in lefts] == [near(one_s), near(one_s), near(2 * one_s)]


def test_collectives_that_a_rank_starts_follow_each_other() -> None:
    clock, barrier, left = VirtualClock(), Barrier(group=group(2), key="k"), list[float]()
    groups = ProcessGroups(clock, Carrier(clock, star(2), PACKET, 0.0).carry, start_s=3e-3)
    for rank in (Rank(0), Rank(1)):
        for _ in range(2):
            done = groups.enter(rank, barrier, "")
            assert done.callbacks is not None
            done.callbacks.append(lambda _: left.append(clock.now))
    clock.run()
    one_s = 2 * (LATENCY_S + WORD_S)
    assert left == [near(one_s)] * 2 + [near(3e-3 + one_s)] * 2


def test_large_segments_are_a_mebibyte() -> None:
    """A ring of two of 8 MB: shares of four segments, each announced for itself."""
    nbytes = 8 * GLOO_SEGMENT_BYTES
    _, sent = performed(star(2), AllReduce(value=Null(nbytes // 4), group=group(2), key="k"))
    words = 2 * 8 * 2 + 8  # announcements for each segment: that it is sent, and that the other's is awaited
    assert sent[0] > nbytes * SHARE
    assert sent[0] - nbytes * SHARE < 2 * words * (WORD_BYTES + HEADERS)


# --- members, and probes ---------------------------------------------------------------------------------------------


def test_members_of_a_collective_leave_when_they_are_done() -> None:
    """In a run: the root of a broadcast has sent long before the last member has received."""
    one = plan({"topology": "ring"}, method="sync-easgd2", shared_memory=False)
    trace = simulate_job(one.job, PlanTiming(one), network(), one.schedule())
    ends: dict[int, list[float]] = {}
    for span in trace.spans:
        if span.key is not None and span.key.startswith("Broadcast"):
            ends.setdefault(span.rank, []).append(span.end_s - span.start_s)
    assert all(root_s < other_s for rank in (1, 2, 3) for root_s, other_s in zip(ends[0], ends[rank], strict=True))
    assert min(ends[0]) == 0.0  # all others have announced it


def test_the_time_between_two_starts_of_a_step_is_found() -> None:
    trace = Trace()
    for rank, between in ((0, 1e-3), (1, 2e-3), (2, 4e-3)):
        for begun_s in (0.1 * rank, 0.1 * rank + between):
            trace.spans.append(Span(Rank(rank), "main", "collective", None, 0, begun_s, 1.0, key=f"{begun_s}"))
    assert start_s(trace) == pytest.approx(2e-3)
