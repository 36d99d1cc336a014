"""Links that get slower, break and are repaired: exact times, detours, and what happens without one."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from paceline.algorithms.core.errors import DeadlockError, InputError
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Barrier, Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Null, Rank
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.network.network import ClusterNetwork
from paceline.topologies.faults.link_faults import LinkFaultModel, changes
from paceline.topologies.graphs.machines import nvswitch_node
from paceline.topologies.graphs.network_graphs import fat_tree, ring, torus
from tests.changing_links import WIRE, ends, fault, on, receiver, sender
from tests.clusters import answer, played, star

SLOW_WIRE = replace(WIRE, latency_s=0.25)


# --- messages --------------------------------------------------------------------------------------------------------


def test_half_the_rate_in_the_middle() -> None:
    # 2000 bytes until 2 s, 500 a second until 5 s, the other 1500 until 6.5 s
    cluster = replace(star(1, 1), link_faults=(fault("host1", "switch", 2.0, 3.0, 0.5),))
    assert ends(cluster, [(0.0, 0, 1, 5000), (0.0, 1, 0, 1000)]) == [6.5, 1.0]


def test_the_worst_of_several_faults_counts() -> None:
    # full until 1 s, half until 2 s, a quarter until 4 s, half until 5 s
    faults = fault("host1", "switch", 1.0, 4.0, 0.5), fault("switch", "host1", 2.0, 2.0, 0.25)
    assert ends(replace(star(1, 1), link_faults=faults), [(0.0, 0, 1, 3000)]) == [1.0 + 1.0 + 2.0 + 1.0 + 0.5]


@pytest.mark.parametrize("lasts_s", [inf, 100.0])
def test_a_broken_link_is_gone_round(lasts_s: float) -> None:
    # 2000 bytes in one hop; the other 2000 the other way round
    cluster = on(ring(hosts=4, link=WIRE), fault("host0", "host1", 2.0, lasts_s))
    assert ends(cluster, [(0.0, 0, 1, 4000)]) == [4.0]


def test_on_the_way_round_it_shares_links() -> None:
    # from 2 s on both go 0 - 3 - 2; the second is through at 2 + 2 * 1, the first has 1000 left then
    cluster = on(ring(hosts=4, link=WIRE), fault("host0", "host1", 2.0))
    assert ends(cluster, [(0.0, 0, 1, 4000), (2.0, 0, 3, 1000)]) == [5.0, 4.0]


def test_messages_sent_after_the_break_take_the_latency_of_the_way_round() -> None:
    cluster = on(ring(hosts=4, link=SLOW_WIRE), fault("host0", "host1", 1.0))
    assert ends(cluster, [(0.0, 0, 1, 2000), (5.0, 0, 1, 1000)]) == [2.25, 5.0 + 1.0 + 3 * 0.25]


def test_after_the_repair_messages_go_the_short_way_again() -> None:
    # the second message shares 0 - 3 with the first only while that goes round: 500 bytes each until 3 s
    cluster = on(torus(sides=(4, 4), link=WIRE), fault("host0.0", "host0.1", 2.0, 1.0))
    around = ClusterNetwork(cluster).fabric
    around.without([("host0.0", "host0.1")])
    second_hop = around.path(Rank(0), Rank(1), 1).ports[0].partition(">")[2]
    to = cluster.graph.of_kind("host").index(second_hop)
    assert ends(cluster, [(0.0, 0, 1, 4000), (2.0, 0, to, 1000)]) == [4.5, 3.5]


def test_without_a_way_left_it_stands_still_until_the_repair() -> None:
    cluster = replace(star(1, 1, latency_s=0.5), link_faults=(fault("host1", "switch", 1.0, 9.0),))
    assert ends(cluster, [(0.0, 0, 1, 3000), (4.0, 0, 1, 1000)]) == [12.5, 13.5]


def test_what_has_no_bytes_waits_for_the_repair_too() -> None:
    cluster = replace(star(1, 1, latency_s=0.5), link_faults=(fault("host1", "switch", 1.0, 9.0),))
    assert ends(cluster, [(0.0, 0, 1, 0), (4.0, 0, 1, 0)]) == [0.5, 10.5]


def test_a_link_is_reported_as_broken_since_it_broke() -> None:
    """A second fault of the same link at 2 s does not restart the outage that began at 1 s."""
    cluster = replace(star(1, 1), link_faults=(fault("host1", "switch", 1.0), fault("host1", "switch", 2.0)))

    @program
    def listen(me: RankContext, state: Replica) -> Program[None]:
        yield from Receive(Rank(1))

    @program
    def speak(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(Rank(0), np.zeros(1000))

    with pytest.raises(DeadlockError, match=r"switch – host1 has been broken since 1 s"):
        played(listen, speak, workers=2, network=ClusterNetwork(cluster))


def test_one_switch_of_a_plane_takes_its_share() -> None:
    node = nvswitch_node(gpus=2, links_per_gpu=12, switches=6)
    plane = next(vertex.plane for vertex in node.vertices if vertex.plane is not None)
    switches = [vertex.name for vertex in node.vertices if vertex.plane == plane]
    gpu = node.of_kind("device")[0]
    (one,) = changes(node, [fault(gpu, switches[0], 1.0)])
    assert one.at_s == 1.0 and list(one.rates.values()) == pytest.approx([5 / 6], rel=1e-15)
    (whole,) = changes(node, [fault(gpu, plane, 1.0)])
    assert list(whole.rates.values()) == [0.0] and set(whole.rates) == set(one.rates)


def test_ends_that_nothing_joins_are_told_all_at_once() -> None:
    with pytest.raises(InputError) as caught:
        changes(star(1, 1).graph, [fault("hots0", "switch", 1.0), fault("host0", "host1", 1.0)])
    assert str(caught.value).splitlines() == [
        "star has no vertex 'hots0' (did you mean host0?)",
        "nothing joins host0 and host1; host0 is joined to switch",
    ]


# --- collectives -----------------------------------------------------------------------------------------------------


def test_a_ring_with_a_link_at_half_rate_from_the_beginning() -> None:
    # 2 (p - 1) rounds of n/p bytes, each as long as on the slow link: buffered messages follow each other there
    cluster = replace(star(1, 1, 1, 1), link_faults=(fault("host1", "switch", 0.0, rate=0.5),))
    assert ends(cluster, (), [(0.0, 4000)]) == [6 * 2.0]


@pytest.mark.parametrize(
    "what",
    [
        (fault("edge0.0", "aggregation0.0", 0.05, 0.2, 0.5),),
        (fault("edge1.1", "host7", 0.05, 0.1, 0.25), fault("aggregation2.0", "edge2.1", 0.02, 0.5)),
        (fault("aggregation0.0", "core0", 0.01, 0.05), fault("aggregation0.0", "core0", 0.08)),
        (fault("host3", "edge0.1", 0.03, 1.0),),
    ],
)
@pytest.mark.parametrize("start_s", [0.0, 0.04])
def test_collectives_that_are_disturbed_end_as_their_messages_do(
    what: tuple[LinkFaultModel, ...], start_s: float
) -> None:
    cluster = on(fat_tree(k=4, link=replace(WIRE, latency_s=0.001, bytes_per_s=1e6)), *what)
    asked = [(0.02, 0, 9, 30_000), (0.06, 4, 1, 50_000)], [(start_s, 40_000), (0.3, 8000)]
    assert ends(cluster, *asked) == pytest.approx(ends(cluster, *asked, carried_out=True), rel=1e-9)
    alone = (), [(start_s, 40_000)]
    assert ends(cluster, *alone) == pytest.approx(ends(cluster, *alone, carried_out=True), rel=1e-9)


def test_64_ranks_on_a_fat_tree_with_a_link_at_half_rate() -> None:
    healthy = on(fat_tree(k=8, link=replace(WIRE, latency_s=1e-5, bytes_per_s=1e9)), ranks=64)
    cluster = replace(healthy, link_faults=(fault("host5", "edge0.1", 0.01, rate=0.5),))
    (seconds,) = ends(cluster, (), [(0.0, 10**8)])
    assert [seconds] == pytest.approx(ends(cluster, (), [(0.0, 10**8)], carried_out=True), rel=1e-9)
    (whole,) = ends(healthy, (), [(0.0, 10**8)])
    assert 1.8 < seconds / whole < 2.0


def test_a_collective_that_begins_where_another_goes_round_shares_with_it() -> None:
    # around a ring of six, 0 and 1 exchange 500 bytes at a time over the link that breaks, then over the other links;
    # the others begin then, on links that were not used before
    cluster = on(ring(hosts=6, link=WIRE), fault("host0", "host1", 1.0))
    asked = [(0.0, 8000, 0, 1), (2.0, 4000, 3, 4)]
    shared = ends(cluster, (), asked)
    assert shared == pytest.approx(ends(cluster, (), asked, carried_out=True), rel=1e-9)
    assert shared[1] > 2.0 + 4.0


def test_a_collective_that_begins_where_a_message_goes_round_shares_with_it() -> None:
    cluster = on(ring(hosts=6, link=WIRE), fault("host0", "host1", 1.0))
    asked = [(0.0, 0, 1, 20_000)], [(2.0, 4000, 3, 4)]
    shared = ends(cluster, *asked)
    assert shared == pytest.approx(ends(cluster, *asked, carried_out=True), rel=1e-9)
    assert shared[1] > 2.0 + 4.0


def test_after_the_repair_a_collective_goes_the_short_way_again() -> None:
    # two rounds of 500 bytes: the first takes five hops of latency, the second, from 2 s on, one
    cluster = on(ring(hosts=6, link=SLOW_WIRE), fault("host0", "host1", 0.0, 1.0))
    asked = (), [(0.25, 1000, 0, 1)]
    assert ends(cluster, *asked) == ends(cluster, *asked, carried_out=True) == [0.25 + 0.5 + 5 * 0.25 + 0.5 + 0.25]


def test_the_tuner_sees_links_as_they_are() -> None:
    cluster = replace(star(1, 1), link_faults=(fault("host1", "switch", 1.0, rate=0.5),))
    network, clock = ClusterNetwork(cluster, "ring"), VirtualClock()
    network.attach(clock)
    op, group = AllReduce(value=Null(500), group=Group((Rank(0), Rank(1))), key=""), Group((Rank(0), Rank(1)))

    def predicted_s() -> float:
        network.plan(op, 2000)
        return network.tuner.choices["AllReduce", group, 2000].predicted_s

    before = predicted_s()
    clock.run(clock.timeout(2.0))
    assert predicted_s() == 2 * before


def test_a_barrier_waits_for_the_repair() -> None:
    @program
    def meeting(me: RankContext, state: Replica) -> Program[float]:
        yield from Barrier(group=me.workers, key="")
        return 1.0

    network = ClusterNetwork(replace(star(1, 1), link_faults=(fault("host1", "switch", 0.0, 3.0),)))
    assert max(span.end_s for span in played(meeting, workers=2, network=network).spans) == 3.0


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_that_nothing_can_repair_says_which_link_is_broken() -> None:
    network = ClusterNetwork(
        replace(star(1, 1), link_faults=(fault("host1", "switch", 1.0), fault("host0", "switch", 9.0, 1.0)))
    )
    with pytest.raises(DeadlockError) as caught:
        played(sender, receiver, workers=2, network=network)
    first, waiting, link = str(caught.value).splitlines()
    assert first == "deadlock at 10 s, nothing more can happen:"
    assert waiting.startswith("  rank 1 (worker)") and waiting.endswith(": waits to receive from rank 0")
    assert link == "  switch – host1 has been broken since 1 s and blocks 1 message, such as from rank 0 to rank 1"


def test_faults_after_the_end_change_nothing() -> None:
    late = fault("host1", "switch", 1e6, 5.0), fault("host0", "switch", 50.0, rate=0.5)
    runs = [
        played(sender, receiver, workers=2, network=ClusterNetwork(replace(star(1, 1), link_faults=faults)))
        for faults in ((), late)
    ]
    assert answer(runs[0], 1) == 2000
    assert (runs[0].wall_s, runs[0].notes, runs[0].spans) == (runs[1].wall_s, runs[1].notes, runs[1].spans)


def test_a_run_is_the_same_each_time() -> None:
    what = fault("edge0.0", "aggregation0.0", 0.03, 0.05), fault("host5", "edge1.0", 0.02, 0.5, 0.3)
    cluster = on(fat_tree(k=4, link=replace(WIRE, bytes_per_s=1e6)), *what)
    asked = [(0.02, n, (n * 7) % 16, 30_000) for n in range(1, 16)], [(0.0, 40_000)]
    assert ends(cluster, *asked) == ends(cluster, *asked)
