"""Emulated networks without a network: paths between hosts, permissions, and times at which packets leave a line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.emulation import emulated_network, forwarding
from paceline.backend.emulation.emulated_hosts import Spoke, shaped
from paceline.backend.emulation.emulated_network import (
    refuse_emulation,
    said,
    spokes_by_tc,
)
from paceline.backend.emulation.forwarder import LARGEST, SMALLEST, packet_bytes, quantile
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.flows.fabric import GraphFabric
from paceline.topologies.packet_lines import Lines, PacketLine, lines_of

LINK = {"latency": "2 ms", "bandwidth": "80 Mbit/s"}


def plan(
    network: Mapping[str, Any], *, nodes: int = 4, workers_per_node: int = 1, method: str = "sync-sgd", **train: Any
) -> Plan:
    device = {"name": "d", "overhead": "20 ms", "per_sample": "0 s"}
    scenario = load(
        {
            "name": "tiny",
            "algorithms": [method],
            "workload": {"model": "digits-mlp", "batch_per_worker": 8, "learning": "none"},
            "cluster": {
                "nodes": [{"device": device, "count": nodes, "workers_per_node": workers_per_node}],
                "network": {"link": LINK, **network},
                "server": {"node": nodes - 1},
            },
            "train": {"network": "emulated", **train},
            "stop": {"updates": 4},
        }
    )
    return scenario.plans(paced=True)[0]


# --- what joins hosts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "nodes", "hops"),
    [
        ({"topology": "star"}, 4, {2: 12}),
        ({"topology": "ring"}, 4, {1: 8, 2: 4}),
        ({"topology": "fat-tree"}, 16, {2: 16, 4: 32, 6: 192}),
        ({"topology": "torus", "sides": [4, 4]}, 16, {1: 64, 2: 96, 3: 64, 4: 16}),
    ],
    ids=["star", "ring", "fat tree", "torus"],
)
def test_lines_are_the_simulators_routes(network: dict[str, Any], nodes: int, hops: dict[int, int]) -> None:
    one = plan(network, nodes=nodes)
    found, fabric = one.lines, GraphFabric(one.cluster, "auto")
    assert len(found.hosts) == nodes and found.places == {Rank(rank): rank for rank in range(nodes)}
    lengths = [len(route) for route in found.routes.values()]
    assert {length: lengths.count(length) for length in set(lengths)} == hops
    for (source, to), route in found.routes.items():
        path = fabric.path(Rank(source), Rank(to), 1000)
        assert tuple(found.lines[line].name for line in route) == path.ports
        assert found.latency_s(source, to) == pytest.approx(path.latency_s)
        assert {found.lines[line].bytes_per_s for line in route} == {fabric.capacity[port] for port in path.ports}


def test_ranks_of_a_node_share_a_host_and_the_server_is_on_its_own_node() -> None:
    found = plan({"topology": "star"}, nodes=2, workers_per_node=2, method="async-sgd").lines
    assert found.places == {Rank(0): 0, Rank(1): 0, Rank(2): 1, Rank(3): 1, Rank(4): 1}
    assert len(found.hosts) == 2


def test_time_is_stretched_as_in_a_paced_run() -> None:
    plain, slow = (plan({"topology": "ring"}, time_dilation=time_dilation).lines for time_dilation in (1.0, 4.0))
    for one, other in zip(plain.lines, slow.lines, strict=True):
        assert other.bytes_per_s == pytest.approx(one.bytes_per_s / 4)
        assert other.latency_s == pytest.approx(one.latency_s * 4)
    free = plan({"topology": "ring"}, time_dilation=4.0, pace="none").lines
    assert free.lines == plain.lines


def test_one_host_has_no_lines() -> None:
    found = plan({"topology": "star"}, nodes=1, workers_per_node=2).lines
    assert found.lines == () and found.fastest is None and found.longest_s == 0.0 and found.spokes() is None


def test_parallel_cables_are_one_line() -> None:
    one = plan({"topology": "star", "cables": 2})
    assert {line.bytes_per_s for line in lines_of(one.cluster, [Rank(0), Rank(1)]).lines} == {2 * 10e6}


# --- which way --------------------------------------------------------------------------------------------------------

NEAR = {"latency": "20 us", "bandwidth": "80 Mbit/s"}


def test_a_star_within_this_machines_latency_is_for_token_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_network, "has_netem", lambda: pytest.fail("netem is not needed for it"))
    lines = plan({"topology": "star", "link": NEAR}, nodes=2).lines
    with_headers = pytest.approx(10e6 * 1514 / 1448)
    assert spokes_by_tc(lines) == [Spoke(with_headers, with_headers)] * 2  # type: ignore[arg-type]  # approx


@pytest.mark.parametrize("netem", [True, False])
def test_latency_is_for_netem_or_else_for_the_forwarder(netem: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_network, "has_netem", lambda: netem)
    found = spokes_by_tc(plan({"topology": "star"}, nodes=2).lines)
    if not netem:
        assert found is None
        return
    assert found is not None and [(one.out_delay_s, one.into_delay_s) for one in found] == [(1e-3, 1e-3)] * 2
    delay, rate = shaped("here", "eth0", found[0].out_bytes_per_s, found[0].out_delay_s)
    assert "netem delay 1000us" in " ".join(delay) and "tbf rate 83646409bit" in " ".join(rate)


def test_other_topologies_are_for_the_forwarder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_network, "has_netem", lambda: True)
    for topology in ("ring", "fat-tree"):
        assert spokes_by_tc(plan({"topology": topology, "link": NEAR}).lines) is None


# --- permissions ------------------------------------------------------------------------------------------------------


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="needs root: run this as root, or with sudo"):
        refuse_emulation(plan({"topology": "ring"}))


def test_more_than_user_space_holds_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_network, "refuse", lambda: None)
    fast = {"topology": "ring", "link": {"latency": "20 us", "bandwidth": "16 Gbit/s"}}
    with pytest.raises(InputError) as refused:
        refuse_emulation(plan(fast))
    factor = round(2e9 / emulated_network.CEILING_BYTES_PER_S)
    assert "found 1.6e+04 Mbit/s on host0>host1" in str(refused.value)
    assert f"`train.time_dilation: {factor}`" in str(refused.value)
    refuse_emulation(plan(fast, time_dilation=factor))  # as stated


def test_links_that_fail_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_network, "refuse", lambda: None)
    fault = {"between": ["host0", "host1"], "at": "1 s", "for": "1 s", "rate": 0.5}
    with pytest.raises(InputError, match=r"cluster.network.faults: found links that fail"):
        refuse_emulation(plan({"topology": "ring", "faults": [fault]}))


def test_packets_fit_the_slowest_line() -> None:
    sizes = []
    for rate in (1e5, 12.5e6, 125e6, 1e12):
        line = PacketLine("a>b", rate, 0.0)
        sizes.append(packet_bytes(Lines(("a", "b"), {}, (line,), {(0, 1): (0,)})))
    assert sizes == [SMALLEST, 2500, 25_000, LARGEST]


def test_lateness_is_said_and_only_where_there_was_some() -> None:
    record = {"way": "forwarder", "lines": [["a>b", 2e8, 0.0]], "dropped": 0, "late_p99_s": 1e-4, "late_max_s": 0.5}
    assert said(None) == said(record) == said({"way": "tc", "lines": [["a>b", 1e8, 0.0]], "dropped": 0}) == []
    (late,) = said(record | {"late_p99_s": 0.004, "late_max_s": 0.02})
    assert late.startswith("the emulated network was late by 4.0 ms or more for 1 % of its packets, by 20.0 ms at most")
    (fast,) = said({"way": "tc", "lines": record["lines"], "dropped": 0})
    assert "has links of 1600 Mbit/s; token buckets were measured up to 1000 Mbit/s" in fast


def test_the_quantile_is_a_buckets_upper_end() -> None:
    counters = np.zeros(forwarding.HOSTS)
    for late_us in (0.2, 3, 3, 900):
        forwarding.note_late.py_func(counters, late_us * 1e-6)
    histogram = counters[forwarding.HISTOGRAM :]
    assert [quantile(histogram, share) for share in (0.25, 0.75, 1.0)] == [1e-6, 4e-6, 1024e-6]
    assert counters[forwarding.LATEST_S] == pytest.approx(900e-6)


# --- when packets leave -----------------------------------------------------------------------------------------------

HEADERS, PACKET = 52, 1052


def tables(
    lines: list[PacketLine], routes: dict[tuple[int, int], tuple[int, ...]], **more: Any
) -> forwarding.ForwardingTables:
    hosts = 1 + max(max(ends) for ends in routes)
    given: dict[str, Any] = {"packet": PACKET, "headers": 0, "queue": 1e9, "slots": 64, **more}
    return forwarding.tables(lines, routes, hosts, **given)


def send(
    t: forwarding.ForwardingTables, source: int, to: int, size: int, now: float, seen_s: float | None = None
) -> int:
    """Returns a packet of a host, with nothing but a version and its destination."""
    t.counts[0] -= 1
    packet = int(t.spare[t.counts[0]])
    t.room[packet, 0], t.room[packet, 18], t.room[packet, 19] = 4 << 4, 0, to + 1
    hosts = round(len(t.first) ** 0.5)
    return int(forwarding.enter.py_func(t, packet, size, hosts, source, now if seen_s is None else seen_s, now))


def arrivals(t: forwarding.ForwardingTables) -> list[tuple[float, int]]:
    """Delivers all packets in flight and returns when, and at which host, each arrives."""
    found = []
    while t.counts[1] > 0:
        due_s = float(t.key[0])
        packet = forwarding.take.py_func(t)
        if t.at[packet] < t.end[packet]:
            forwarding.go_on.py_func(t, packet, due_s)
        else:
            found.append((due_s, int(t.target[packet])))
            forwarding.let_go.py_func(t, packet)
    assert t.counts[0] == len(t.spare)
    return found


class Plain:
    """Returns a function as Python, where others call it too."""

    def __init__(self, compiled: Any) -> None:
        self.py_func = compiled.py_func

    def __call__(self, *given: Any) -> Any:
        return self.py_func(*given)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is compiled."""
    for name in ("cross", "put", "take", "let_go", "go_on", "enter", "note_late"):
        monkeypatch.setattr(forwarding, name, Plain(getattr(forwarding, name)))


def test_a_burst_leaves_a_line_at_its_rate() -> None:
    """The k-th of packets that come together is there at α + k n / r."""
    t = tables([PacketLine("a>b", 1e6, 0.25)], {(0, 1): (0,)})
    assert [send(t, 0, 1, 1000, 5.0) for _ in range(9)] == [1] * 9
    assert [due for due, _ in arrivals(t)] == pytest.approx([5.25 + k * 1e-3 for k in range(1, 10)])


def test_packets_pipeline_over_lines() -> None:
    """k packets over h lines of one rate: Σ α + (h + k − 1) n / r; a slower line determines the pace after it."""
    rates = [1e6, 5e5, 1e6]
    t = tables([PacketLine(str(at), rate, 0.01 * (at + 1)) for at, rate in enumerate(rates)], {(0, 1): (0, 1, 2)})
    for _ in range(5):
        send(t, 0, 1, 1000, 0.0)
    found = [due for due, _ in arrivals(t)]
    assert found[0] == pytest.approx(0.06 + 1e-3 + 2e-3 + 1e-3)
    assert np.diff(found) == pytest.approx([2e-3] * 4)


def test_hosts_share_a_line_in_the_order_of_arrival() -> None:
    lines = [PacketLine("a>s", 1e6, 0.0), PacketLine("b>s", 1e6, 0.0), PacketLine("s>c", 1e6, 0.0)]
    t = tables(lines, {(0, 2): (0, 2), (1, 2): (1, 2)})
    for at in range(4):
        for source in (0, 1):
            send(t, source, 2, 1000, 0.0 if at == 0 else 1e-9)
    assert [due for due, _ in arrivals(t)] == pytest.approx([1e-3 * (2 + k) for k in range(8)])


def test_what_exceeds_the_queue_is_dropped() -> None:
    t = tables([PacketLine("a>b", 1e6, 0.0)], {(0, 1): (0,)}, queue=2500)
    assert [send(t, 0, 1, 1000, 0.0) for _ in range(4)] == [1, 1, 0, 0]
    assert send(t, 0, 1, 1000, 0.6e-3) == 1  # 1400 bytes are left, and there is room for 2500
    assert len(arrivals(t)) == 3


def test_headers_come_on_top_of_the_rate() -> None:
    t = tables([PacketLine("a>b", 1e6, 0.0)], {(0, 1): (0,)}, headers=HEADERS)
    for _ in range(10):
        send(t, 0, 1, PACKET, 0.0)
    assert arrivals(t)[-1][0] == pytest.approx(10 * (PACKET - HEADERS) / 1e6)


def test_packets_without_a_destination_are_dropped() -> None:
    t = tables([PacketLine("a>b", 1e6, 0.0)], {(0, 1): (0,)})
    assert send(t, 0, 5, 100, 0.0) == send(t, 1, 0, 100, 0.0) == send(t, 0, 1, 19, 0.0) == -1
    assert arrivals(t) == []


def test_waiting_to_be_read_counts_only_where_the_line_was_free() -> None:
    t = tables([PacketLine("a>b", 1e6, 0.0)], {(0, 1): (0,)})
    send(t, 0, 1, 1000, 2.0, seen_s=1.5)
    send(t, 0, 1, 1000, 2.0, seen_s=1.5)
    late = sorted(float(t.late_s[packet]) for packet in t.item[: t.counts[1]])
    assert late == [0.0, 0.5]


def test_the_heap_gives_back_in_order() -> None:
    t = tables([PacketLine("a>b", 1e6, 0.0)], {(0, 1): (0,)})
    times = np.random.default_rng(1).integers(0, 20, 60)
    for packet, due in enumerate(times):
        forwarding.put.py_func(t, float(due), packet)
    found = [forwarding.take.py_func(t) for _ in times]
    assert found == sorted(range(60), key=lambda packet: (times[packet], packet))
    assert t.counts[1] == 0
