"""Libraries' protocols on uniform fabrics: closed forms with a protocol's base, steps, share and limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import PATTERNS
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.collectives.tuning import (
    Choice,
    MessagesBeside,
    Tuner,
    Way,
    governed,
    patterns_of,
    transport_of,
    ways,
)
from paceline.topologies.catalogue.libraries import LATENCY_US, LAUNCH_S, LIBRARIES, Members, Protocol
from paceline.topologies.graphs.links import LINKS
from paceline.topologies.graphs.network_graphs import star
from tests.closed_form.test_patterns import plan
from tests.replay import Uniform

NUMBERS = [2, 3, 4, 6, 8, 12, 16, 48, 64, 100]
ALPHA_S, BYTES_PER_S, GAMMA = 1.3e-6, 1e9, 0.11e-9


def uniform(p: int) -> Uniform:
    return Uniform(p, alpha_s=ALPHA_S, bytes_per_s=BYTES_PER_S, reduce_s_per_byte=GAMMA)


def group(p: int) -> Group:
    return Group(tuple(map(Rank, range(p))))


def close(expected: float) -> object:
    return pytest.approx(expected, rel=1e-9, abs=0.0)


def picked(p: int, nbytes: float, library: str, pattern: str = "auto", transport: str = "any") -> tuple[Choice, float]:
    """Returns the ways of a library for an all-reduce, with their times."""
    fabric = uniform(p)
    tuner = Tuner(fabric, pattern, library, transport)
    one = tuner.plan("AllReduce", group(p), nbytes)
    return tuner.choices["AllReduce", group(p), nbytes], float(alone_s(one, fabric).max())


@pytest.mark.parametrize("p", NUMBERS)
@pytest.mark.parametrize("pattern", ["ring", "recursive-doubling"])
def test_a_protocol_of_all_kinds_of_cost(p: int, pattern: str) -> None:
    """base + steps · step + bytes / (share · rate) + γ: a ring has 2 (p − 1) steps of n/p bytes, half of them added."""
    one = Protocol(name="one", base_s=7e-6, step_s={"network": 3e-6}, bandwidth_factor=0.5, provenance="a test's own")
    fabric, nbytes = uniform(p), 1e6
    found = alone_s(governed(plan("AllReduce", pattern, fabric, nbytes), Way((one,))), fabric).max()
    plain = Uniform(p, alpha_s=3e-6, bytes_per_s=0.5 * BYTES_PER_S, reduce_s_per_byte=GAMMA)
    assert found == close(7e-6 + alone_s(plan("AllReduce", pattern, plain, nbytes), plain).max())
    if pattern == "ring":
        steps, moved = 2 * (p - 1), 2 * (p - 1) / p * nbytes
        assert found == close(7e-6 + steps * 3e-6 + moved / (0.5 * BYTES_PER_S) + moved / 2 * GAMMA)


@pytest.mark.parametrize("p", NUMBERS)
def test_gloo_moves_no_more_than_a_core_can(p: int) -> None:
    (segments,) = LIBRARIES["gloo"].protocols
    fast, nbytes = uniform(p), 1e7
    fast.capacity = dict.fromkeys(fast.capacity, 100000000000.0)
    found = alone_s(governed(plan("AllReduce", "ring", fast, nbytes), Way((segments,))), fast).max()
    step_s, moved = ALPHA_S + segments.step_extra_s, 2 * (p - 1) / p * nbytes
    assert found == close(2 * (p - 1) * step_s + moved / segments.limit_bytes_per_s + moved / 2 * GAMMA)


def test_two_messages_on_one_port_carry_half_each_of_what_the_protocol_leaves() -> None:
    """A fixed fraction of the traffic is data, however many flows share the port."""
    one = Protocol(name="one", bandwidth_factor=0.5, step_s={"network": 0.0}, provenance="a test's own")
    fabric = Uniform(4, alpha_s=0.0, bytes_per_s=1000.0, workers_per_node=2)
    both = plan("AllReduce", "two-level", fabric, 4000.0)
    assert alone_s(governed(both, Way((one,))), fabric).max() > alone_s(both, fabric).max() * 1.8


@pytest.mark.parametrize("nbytes", [8, 1e4, 1e6, 1e8])
def test_nccl_takes_the_cheapest_of_its_rings_and_trees(nbytes: float) -> None:
    p = 8
    choice, seconds = picked(p, nbytes, "nccl")
    expected_s = {}
    for protocol, share in (("LL", 0.5), ("Simple", 1.0)):
        base_us = LATENCY_US["ring", protocol][0]
        step_us = LATENCY_US["tree", protocol][3]  # not hidden, as every node has one rank
        if protocol == "Simple" and nbytes >= 64 * 16 * p:
            base_us, step_us = 1.4 * base_us, 1.4 * step_us
        moved = 2 * (p - 1) / p * nbytes
        steps_s = 2 * (p - 1) * step_us * 1e-6
        expected_s[f"ring/{protocol}"] = (
            LAUNCH_S + base_us * 1e-6 + steps_s + moved / share / BYTES_PER_S + moved / 2 * GAMMA
        )
    known = {f"{choice.algorithm}/{choice.protocol}": choice.predicted_s, **choice.others_s}
    assert len(known) == 4 and {label.split("/")[0] for label in known} == {"ring", "double-tree"}
    for label, expected in expected_s.items():
        assert known[label] == close(expected)
    assert choice.predicted_s == min(known.values())
    if choice.algorithm == "ring":
        assert seconds == close(choice.predicted_s)


def test_nccl_changes_protocol_with_size() -> None:
    small, large = picked(8, 256, "nccl")[0], picked(8, 1e8, "nccl")[0]
    assert (small.protocol, large.algorithm, large.protocol) == ("LL", "ring", "Simple")


def of_nccl(algorithm: str, name: str, nbytes: float = 1e6, **members: Any) -> Protocol | None:
    """Returns a protocol of NCCL as some members use it; None if they cannot."""
    given: dict[str, Any] = {"ranks": 16, "nodes": 2} | members
    known = LIBRARIES["nccl"].protocols_of(Members(**given), nbytes)
    return next((one for one in known if (one.algorithm, one.name) == (algorithm, name)), None)


def test_long_messages_of_rings_between_nodes_are_later_by_a_factor() -> None:
    short, long = of_nccl("ring", "Simple", 1e4), of_nccl("ring", "Simple", 1e8)
    old = of_nccl("ring", "Simple", 1e8, architecture="pascal")
    assert short is not None and long is not None and old is not None
    assert short.step_s["network"] == close(14e-6)
    assert long.step_s["network"] == close(1.4 * 14e-6) and long.base_s == close(LAUNCH_S + 1.4 * 8.4e-6)
    assert old.step_s["network"] == close(1.9 * 14e-6)


def test_the_cpu_posts_steps_of_rings_between_nodes() -> None:
    several, single = of_nccl("ring", "LL"), of_nccl("ring", "LL", ranks=8, nodes=1)
    assert several is not None and single is not None
    assert (several.step_s["nvlink"], single.step_s["nvlink"]) == (1e-6, 0.6e-6)


@pytest.mark.parametrize(("architecture", "limits"), [("volta", (39.0, 39.0, 20.4)), ("hopper", (141.0, 45.0, 35.0))])
def test_ll_is_limited_by_generation_and_nodes(architecture: str, limits: tuple[float, ...]) -> None:
    for nodes, limit in zip((1, 2, 4), limits, strict=True):
        one = of_nccl("ring", "LL", ranks=8 * nodes, nodes=nodes, architecture=architecture)
        assert one is not None and one.limit_bytes_per_s == limit * 1e9


def test_protocols_that_need_hardware_are_left_out_without_it() -> None:
    assert of_nccl("ring", "LL128") is None and of_nccl("ring", "LL128", nvlink=True) is not None
    assert of_nccl("ring", "LL128", nvlink=True, architecture="pascal") is None
    node: dict[str, Any] = {"ranks": 8, "nodes": 1, "nvlink": True, "switched": True}
    assert of_nccl("nvls", "Simple", architecture="ampere", **node) is None
    shares = [of_nccl("nvls", "Simple", architecture=name, **node) for name in ("hopper", "blackwell")]
    assert [one and one.bandwidth_factor for one in shares] == [0.85, 0.74]
    assert of_nccl("nvls-tree", "Simple", architecture="hopper", **node) is None
    assert of_nccl("nvls-tree", "Simple", architecture="hopper", nvlink=True, switched=True) is not None


def test_versions_have_their_own_algorithms() -> None:
    def names(version: tuple[int, int]) -> set[str]:
        fabric = uniform(8)
        return {one.label for one in Tuner(fabric, "auto", "nccl", version=version).offers("AllReduce", group(8), 1e6)}

    assert names((1, 3)) == names((2, 0)) == {"ring/Simple"}
    assert names((2, 4)) == {"ring/LL", "ring/Simple", "double-tree/LL", "double-tree/Simple"}


def test_ranks_of_a_node_share_its_memory_and_its_card() -> None:
    members = Members(ranks=384, nodes=4, memory_bytes_per_s=400e9)
    small, large = (LIBRARIES["mpi"].protocols_of(members, nbytes)[0] for nbytes in (1e6, 1e7))
    assert small.memory_bytes_per_s == close(400e9 / 2 / 96) and large.memory_bytes_per_s == close(400e9 / 3 / 96)
    assert small.crossing_s == close(95 / 100e6)
    slow = LIBRARIES["mpi"].protocols_of(replace(members, architecture="knights-landing"), 1e6)[0]
    assert (slow.latency_factor, slow.exchange_s) == (3.0, 3 * 0.5e-6)


def test_messages_share_the_memory_of_a_node_with_those_of_their_round_only() -> None:
    """In a tree of eight ranks of one node, four messages share its memory in the first round, then two, then one."""
    fabric, nbytes = Uniform(8, workers_per_node=8, inside_s=0.0, inside_bytes_per_s=1e15), 8e6
    one = Protocol(name="one", memory_bytes_per_s=1e9, provenance="a test's own")  # of each rank, if all eight send
    tree = plan("Broadcast", "binomial-tree", fabric, nbytes)
    found = [
        float(alone_s(governed(tree, Way((one,)), nbytes, nodes), fabric).max()) for nodes in ((), ((*range(8),),))
    ]
    assert found == [close(3 * nbytes / 1e9), close((1 / 2 + 1 / 4 + 1 / 8) * nbytes / 1e9)]
    # of a ring all send in every round, but over two nodes one rank of each sends to the other node
    ring = plan("AllGather", "ring", fabric, nbytes)
    found_s = float(alone_s(governed(ring, Way((one,)), nbytes, ((*range(8),),)), fabric).max())
    assert found_s == close(7 / 8 * nbytes / 1e9)
    halves = MessagesBeside(ring.pattern.parts, ring.ranks, ((0, 1, 2, 3), (4, 5, 6, 7)))
    sizes = np.full(2, nbytes / 8)
    assert halves.ranks_for_each(np.array([0, 3]), np.array([1, 4]), sizes).tolist() == [4 / 3, 1.0]


def test_neighbours_beyond_a_power_of_two_fold_inside_a_node() -> None:
    """Of twelve ranks on two nodes, four pairs of neighbours fold; nothing else than the exchange leaves a node."""
    first = plan("AllReduce", "recursive-doubling", Uniform(12, workers_per_node=6), 1e3).pattern.parts[0][0]
    assert list(zip(first.sources.tolist(), first.targets.tolist(), strict=True)) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_open_mpi_5_has_two_levels() -> None:
    fabric = Uniform(16, workers_per_node=4)
    for version, names in (((5, 0), {"levels"}), ((4, 1), {"halving-doubling"})):
        found = Tuner(fabric, "auto", "mpi", version=version).offers("AllReduce", group(16), 2**20)
        assert {one.algorithm for one in found} == names


@pytest.mark.parametrize("inside_bytes_per_s", [5e8, 5e9, 40e9])
def test_the_level_that_takes_longer_for_all_segments_sets_the_pace(inside_bytes_per_s: float) -> None:
    """Four messages of a segment in turn at each level. With 5 GB/s, bytes take longer inside, latencies between."""
    nbytes, segment, alpha_s, inside_s = 2.0**26, 65536.0, 30e-6, 0.5e-6
    fabric = Uniform(16, workers_per_node=4, alpha_s=alpha_s, inside_s=inside_s, inside_bytes_per_s=inside_bytes_per_s)
    found = alone_s(Tuner(fabric, "auto", "mpi").plan("AllReduce", group(16), nbytes), fabric).max()
    levels = [
        4 * (nbytes / rate + nbytes / segment * 3 * latency_s)
        for rate, latency_s in ((fabric.bytes_per_s, alpha_s), (inside_bytes_per_s, inside_s))
    ]
    assert found == close(max(levels) + min(levels) * segment / nbytes)


def test_mpi_decides_by_its_table() -> None:
    for p, nbytes in ((144, 65536.0), (144, 2.0**20), (6, 1e5), (2, 1e3)):
        decided = LIBRARIES["mpi"].algorithm(p, nbytes)
        assert picked(p, nbytes, "mpi")[0].algorithm in (decided, "binomial-tree")


@pytest.mark.parametrize(
    ("nbytes", "transport", "protocol", "latencies"),
    [
        (1e3, "any", "eager", 1.0),
        (1e6, "any", "rendezvous", 3.0),
        (1e3, "tcp", "packet", 1.0),
        (1e5, "tcp", "packets", 2.0),
    ],
)
def test_mpi_goes_by_the_size_of_each_message(nbytes: float, transport: str, protocol: str, latencies: float) -> None:
    p = 8
    choice, seconds = picked(p, nbytes, "mpi", "ring", transport)
    moved = 2 * (p - 1) / p * nbytes
    assert choice.protocol == protocol
    step_s = latencies * ALPHA_S + 0.5e-6  # an exchange costs more than a message
    assert seconds == close(2 * (p - 1) * step_s + moved / BYTES_PER_S + moved / 2 * GAMMA)


def test_messages_of_several_sizes_each_go_by_their_own() -> None:
    choice, _ = picked(8, 40_000.0, "mpi", "halving-doubling")
    assert choice.protocol == "eager+rendezvous"


def test_plain_costs_nothing_of_its_own() -> None:
    choice, _ = picked(8, 1e6, "plain")
    assert choice.protocol is None
    assert "ring" in {choice.algorithm, *choice.others_s}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_can_do_every_kind(library: str) -> None:
    fabric = uniform(5)
    tuner = Tuner(fabric, "auto", library)
    for kind in PATTERNS:
        one = tuner.plan(kind, group(5), 1000.0)
        assert isinstance(one, CollectivePlan) and math.isfinite(alone_s(one, fabric).max())
    assert set(patterns_of(LIBRARIES[library])) & set(PATTERNS["AllReduce"])
    known = LIBRARIES[library]
    assert all(ways(known.protocols, name, "tcp", known.algorithms[0]) for name in PATTERNS["AllReduce"])


def test_the_transport_is_told_from_the_links() -> None:
    assert transport_of(star(hosts=2, link=LINKS["eth-10g"])) == "tcp"
    assert transport_of(star(hosts=2, link=LINKS["eth-100g-roce"])) == "any"


def test_what_would_be_too_long_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.simulator.collectives.tuning.MOST_MESSAGES", 40)
    tuner = Tuner(Uniform(16, workers_per_node=4))
    tuner.plan("AllReduce", group(16), 1e6)
    (choice,) = tuner.choices.values()
    assert choice.left_out["double-tree"] > 40 and "double-tree" not in choice.others_s
    assert choice.record()["left_out"] == choice.left_out


@pytest.mark.parametrize("nbytes", [1e4, 1e7, 1e9])
@pytest.mark.parametrize(("p", "gamma"), [(2, GAMMA), (8, GAMMA), (8, 2e-9)])
def test_gloo_adds_one_segment_while_the_next_one_arrives(p: int, gamma: float, nbytes: float) -> None:
    """Only what adding takes longer than a segment needs to arrive remains, and the last segment of the ring."""
    (segments,) = LIBRARIES["gloo"].protocols
    fabric = Uniform(p, alpha_s=ALPHA_S, bytes_per_s=100e9, reduce_s_per_byte=gamma)
    group = Group(tuple(map(Rank, range(p))))
    found = alone_s(Tuner(fabric, "auto", "gloo").plan("AllReduce", group, nbytes), fabric).max()
    step_s, moved, each = ALPHA_S + segments.step_extra_s, (p - 1) / p * nbytes, nbytes / p
    moving = 1 / segments.limit_bytes_per_s
    last_s = min(gamma, moving) * min(2**20, each / 2)
    assert found == close(2 * (p - 1) * step_s + 2 * moved * moving + moved * max(0.0, gamma - moving) + last_s)
