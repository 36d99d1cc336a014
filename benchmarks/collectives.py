"""Simulates collectives of thousands of ranks: wall time, and accuracy against closed forms and messages.

    python benchmarks/collectives.py             # prints two tables
    python benchmarks/collectives.py --json
    python benchmarks/collectives.py --ranks 512 --topology-k 14
    python benchmarks/collectives.py --by-hand   # all-reduces of machines with several network cards beside formulas

The large case is a ring all-reduce of 100 MB among 4,096 hosts of a fat tree of switches with 26 ports, in a separate
process. The timing includes everything after the graph is built: finding the routes, building the pattern, and
computing when each rank is done. The graph, which every other use of the cluster also needs, is built before and timed
separately. The result is compared with the closed form 2 (p − 1) (α + n/p β), once with the mean latency of the ring's
hops and once with the longest one.

The small cases disturb a ring of 64: a link at half rate, a rank that is a millisecond late, a flow that crosses. Each
is simulated twice: as in any run (`contention`, `pattern_time`), and message by message with SimPy (`EventDriver`).

`--by-hand` compares NCCL's rings and trees on nodes of eight GPUs with formulas and published figures. A ring moves
2 (p − 1)/p S bytes over all cards of a node, or over the NVLinks of a GPU if that takes longer, and pays the latency of
2 (p − 1) hops, of which one in eight crosses the network. A tree moves S bytes over the cards of a node between two
nodes and 2 S between more, or 2 S over the NVLinks of a GPU (7/8 of it if every GPU is the head of a chain), at the
share of the rate that NCCL's tuner gives a tree, and pays the latency of 2 (7 hops inside + lg m between nodes). Where
switches add (NVLS), the NVLinks of a GPU carry 9/8 S, and the cards as much as with a tree. B is
S/t · 2 (p − 1)/p. Where the ratio is not 1: a ring's latency is that of the slowest way around it, and a tree is slower
at eight nodes by up to 9 %, because flows that share links fairly leave some of them idle at the end.

Exits with 1 if the large case differs by more than 0.1 % from the closed form with the mean latency, or a small one by
more than 1 % from its simulation message by message.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import simpy
from rich.console import Console
from rich.table import Table

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.execution import EventDriver, begun
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import Setting, build
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.collectives.tuning import Tuner
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.path_tables import Path
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.libraries import LIBRARIES, Members
from paceline.topologies.closed_forms import ring_all_reduce_s
from paceline.topologies.cluster import ClusterModel, Node, sites
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import build as build_graph
from paceline.topologies.graphs.links import LINKS, LinkModel, link_named
from paceline.topologies.graphs.network_graphs import fat_tree, star

NBYTES = 100e6
LINK = "ib-edr"
FEW = 64
FORM_ALLOWED, REPLAY_ALLOWED = 1e-3, 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """The case with thousands of ranks."""

    ranks: int
    simulated_s: float
    wall_s: float
    graph_s: float
    peak_bytes: int
    off_mean_latency: float
    """relative difference from the closed form with the mean latency of the ring's hops"""
    off_longest_latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    """A small case, compared with the simulation message by message."""

    case: str
    ours_s: float
    by_messages_s: float
    quiet_s: float

    @property
    def off(self) -> float:
        return self.ours_s / self.by_messages_s - 1


def cluster_of(ranks: int, k: int) -> ClusterModel:
    """Returns a fat tree with one rank per host."""
    device = DeviceModel(name="device", overhead_s=0.0, per_sample_s=1.0)
    link = LINKS[LINK]
    hosts = [f"host{number}" for number in range(ranks)]
    nodes = tuple(Node(name=host, device=device, seats=(host,), host=host, intra_node_link=link) for host in hosts)
    return ClusterModel(nodes=nodes, graph=fat_tree(k=k, link=link))


def ring_on(fabric: GraphFabric, ranks: int) -> CollectivePlan:
    """Returns a ring all-reduce in the order of the ranks."""
    pattern = build("AllReduce", "ring", Setting(ranks, NBYTES, 0, tuple((rank,) for rank in range(ranks))))
    return CollectivePlan(pattern, tuple(map(Rank, range(ranks))), fabric.paths)


# --- thousands of ranks ----------------------------------------------------------------------------------------------


def large(ranks: int, k: int) -> Large:
    """Runs the large case in this process."""
    begun = time.perf_counter()
    cluster = cluster_of(ranks, k)
    built = time.perf_counter()
    fabric = GraphFabric(cluster)
    plan = ring_on(fabric, ranks)
    simulated_s = float(alone_s(plan, fabric).max())
    done = time.perf_counter()
    latencies = plan.message_paths.latency_s
    beta = 1 / LINKS[LINK].bytes_per_s
    forms = [
        ring_all_reduce_s(ranks, NBYTES, alpha, beta) for alpha in (float(latencies.mean()), float(latencies.max()))
    ]
    return Large(
        ranks=ranks,
        simulated_s=simulated_s,
        wall_s=done - built,
        graph_s=built - begun,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        off_mean_latency=simulated_s / forms[0] - 1,
        off_longest_latency=simulated_s / forms[1] - 1,
    )


def in_a_new_process(ranks: int, k: int) -> Large:
    """Runs the large case in a new process, whose memory holds only this case."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(large, (ranks, k))


# --- disturbed -------------------------------------------------------------------------------------------------------


def disturbed() -> list[Disturbed]:
    """Runs the small cases."""
    fabric = GraphFabric(cluster_of(FEW, 8))
    plan, entries_s = ring_on(fabric, FEW), np.zeros(FEW)
    quiet_s = float(alone_s(plan, fabric).max())
    late_s = entries_s.copy()
    late_s[FEW // 3] = 1e-3
    slow = GraphFabric(cluster_of(FEW, 8))
    port = next(port for port in slow.capacity if port.startswith(f"host{FEW // 3}>"))
    slow.capacity[port] /= 2
    found = []
    for case, on, entries in (("a link at half rate", slow, entries_s), ("a rank 1 ms late", fabric, late_s)):
        one = ring_on(on, FEW)
        ours, other = alone_s(one, on, entries).max(), done_s(one, on, entries)
        found.append(Disturbed(case=case, ours_s=float(ours), by_messages_s=other, quiet_s=quiet_s))
    ours_s, by_messages_s = crossed_s(fabric, plan, by_messages=False), crossed_s(fabric, plan, by_messages=True)
    found.append(Disturbed(case="a crossing flow", ours_s=ours_s, by_messages_s=by_messages_s, quiet_s=quiet_s))
    return found


def done_s(plan: CollectivePlan, fabric: GraphFabric, entries_s: np.ndarray) -> float:
    """Returns when a collective is done whose messages are simulated one by one with SimPy."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    env.run(EventDriver(env, carry, plan, 0.0, begun(plan, entries_s)).done)
    return float(env.now)


def crossed_s(fabric: GraphFabric, plan: CollectivePlan, *, by_messages: bool) -> float:
    """Returns the ring and a flow of 50 MB that crosses it after a third of its time."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    contention = Contention(env, fabric, carry)
    path = fabric.path(Rank(5), Rank(40), NBYTES / 2)

    def crossing() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(float(alone_s(plan, fabric).max()) / 3)
        message = carry(Rank(5), Rank(40), NBYTES / 2, path)
        contention.message(message, path.ports)
        yield message
        contention.passed(message)

    env.process(crossing())
    done = EventDriver(env, carry, plan).done if by_messages else contention.start(plan)
    env.run(done)
    return float(env.now)


# --- by hand ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Nodes of eight GPUs on NVSwitches, with network cards."""

    name: str
    node: str
    gpus: dict[str, Any]
    cards: int
    link: str | LinkModel
    published: str = ""
    architecture: str = "ampere"


FAR = LinkModel(name="30 ms", latency_s=30e-3, bytes_per_s=1.25e9, provenance="an example")
H100 = {"links_per_gpu": 18, "switches": 4, "link": "nvlink4", "generation": 5, "gpu": "h100-sxm5", "between": "upi"}
BOXES = (
    Box(name="dgx-a100", node="nvswitch-node", gpus={}, cards=8, link="ib-hdr",
        published="2 nodes, 8 x 200 Gbit/s RoCE: 163 at 134 MB, 236 at 4.3 GB; 1 node 231"),
    Box(name="dgx-h100", node="nvswitch-node", gpus=H100, cards=8, link="ib-ndr", published="2 nodes: 370 to 470",
        architecture="hopper"),
    Box(name="p4d", node="nvswitch-node", gpus={}, cards=4, link="efa-100g"),
    Box(name="one card, InfiniBand", node="nvswitch-node", gpus={}, cards=1, link="ib-hdr"),
    Box(name="one card, Ethernet", node="nvswitch-node", gpus={}, cards=1, link="eth-100g"),
    Box(name="one card, 30 ms", node="nvswitch-node", gpus={}, cards=1, link=FAR),
)  # fmt: skip
GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """An all-reduce, simulated and by the formula."""

    box: str
    nodes: int
    nbytes: float
    asked: str
    used: str
    simulated_s: float
    formula_s: float

    @property
    def bus_bytes_per_s(self) -> float:
        p = GPUS * self.nodes
        return 2 * (p - 1) / p * self.nbytes / self.simulated_s


def by_hand(box: Box, nodes: int) -> list[ByHand]:
    """Returns the all-reduces of a number of nodes."""
    inside = build_graph(box.node, box.gpus)
    graph = inside if nodes == 1 else compose("boxes", star(hosts=nodes, link=box.link, cables=box.cards), inside, "")
    device = DeviceModel(name="device", overhead_s=0.0, per_sample_s=1.0, architecture=box.architecture)
    local = LINKS["shared-memory"]
    cluster = ClusterModel(
        nodes=tuple(
            Node(name=site.name, device=device, seats=site.seats, host=site.host, intra_node_link=local)
            for site in sites(graph)
        ),
        graph=graph,
    )
    fabric = GraphFabric(cluster)
    group = Group(tuple(map(Rank, range(GPUS * nodes))))
    found = []
    for nbytes in (102e6, 5.26e9):
        for asked in ("ring", "double-tree", "auto"):
            tuner = Tuner(fabric, asked, "nccl")
            plan = tuner.plan("AllReduce", group, nbytes)
            (choice,) = tuner.choices.values()
            of = {"ring-channels": "ring", "double-tree": "tree"}.get(choice.algorithm, choice.algorithm)
            found.append(
                ByHand(
                    box=box.name,
                    nodes=nodes,
                    nbytes=nbytes,
                    asked=asked,
                    used=f"{of} {choice.protocol}",
                    simulated_s=float(alone_s(plan, fabric).max()),
                    formula_s=formula_s(box, inside, nodes, nbytes, of, str(choice.protocol)),
                )
            )
    return found


def formula_s(box: Box, inside: Graph, nodes: int, nbytes: float, algorithm: str, protocol: str) -> float:
    """Returns the seconds of an all-reduce by the formulas of this module's description."""
    members = Members(ranks=GPUS * nodes, nodes=nodes, architecture=box.architecture, nvlink=True, switched=True)
    adapted = LIBRARIES["nccl"].protocols_of(members, nbytes)
    (known,) = [one for one in adapted if (one.algorithm, one.name) == (algorithm, protocol)]
    link, share = link_named(box.link), known.data_share(nbytes)
    nvlink = sum(one.bytes_per_s for one in inside.connections if "gpu0" in one.ends and one.link.medium == "nvlink")
    nvlink = min(nvlink, known.limit_bytes_per_s / known.bandwidth_factor)
    cards = box.cards * link.bytes_per_s
    near_s = known.step_s["nvlink"]
    far_s = known.step_s["network"] + known.latency_factor * link.latency_s
    p = GPUS * nodes
    passes = {1: 0, 2: 1}.get(nodes, 2)
    if algorithm.startswith("nvls"):
        latency_s = near_s + 2 * math.log2(nodes) * far_s
        bytes_s = max((1 + 1 / GPUS) * nbytes / nvlink, passes * nbytes / cards)
    elif algorithm == "ring":
        moved = 2 * (p - 1) / p * nbytes
        crossing = 0 if nodes == 1 else 1 / GPUS
        latency_s = 2 * (p - 1) * ((1 - crossing) * near_s + crossing * far_s)
        bytes_s = moved / nvlink if nodes == 1 else max(moved / nvlink, moved / cards)
    else:
        latency_s = 2 * ((GPUS - 1) * near_s + math.log2(nodes) * far_s)
        heads = min(box.cards, GPUS) if nodes > 1 else 1
        busiest = 2.0 if heads < GPUS else 2 * (GPUS - 1) / GPUS
        bytes_s = max(busiest * nbytes / nvlink, passes * nbytes / cards)
    return known.base_s + latency_s + bytes_s / share


def show_by_hand(console: Console) -> None:
    """Prints the all-reduces of all boxes."""
    for box in BOXES:
        name = box.link if isinstance(box.link, str) else box.link.name
        title = f"{box.name}: {box.cards} x {name}" + (f"; published GB/s: {box.published}" if box.published else "")
        table = Table("nodes", "MB", "asked", "used", "ms", "B, GB/s", "formula, ms", "ratio", title=title)
        for nodes in (1, 2, 4, 8):
            for one in by_hand(box, nodes):
                table.add_row(
                    str(nodes),
                    f"{one.nbytes / 1e6:g}",
                    one.asked,
                    one.used,
                    f"{one.simulated_s * 1e3:.2f}",
                    f"{one.bus_bytes_per_s / 1e9:.1f}",
                    f"{one.formula_s * 1e3:.2f}",
                    f"{one.simulated_s / one.formula_s:.2f}",
                )
        console.print(table)


# --- showing ---------------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Runs all cases and returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", type=int, default=4096, help="number of ranks of the large case")
    parser.add_argument("--topology-k", type=int, default=26, help="ports of the fat tree's switches")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--by-hand", action="store_true", help="machines with several cards beside formulas")
    given = parser.parse_args(argv)
    if given.by_hand:
        show_by_hand(Console())
        return 0
    one, others = in_a_new_process(given.ranks, given.topology_k), disturbed()
    if given.json:
        small = [asdict(case) | {"off": case.off} for case in others]
        print(json.dumps({"large": asdict(one), "disturbed": small}, indent=2))
    else:
        show(one, others)
    wrong = abs(one.off_mean_latency) > FORM_ALLOWED or any(abs(case.off) > REPLAY_ALLOWED for case in others)
    return int(wrong)


def show(one: Large, others: list[Disturbed]) -> None:
    """Prints the tables."""
    console = Console()
    table = Table(title=f"ring all-reduce of 100 MB, {one.ranks} ranks of a fat tree", show_header=False)
    table.add_row("simulated", f"{one.simulated_s * 1e3:.3f} ms")
    table.add_row("off the closed form with the mean latency", f"{one.off_mean_latency:+.2e}")
    table.add_row("off that with the longest latency", f"{one.off_longest_latency:+.2e}")
    table.add_row("wall time, routes and all", f"{one.wall_s:.2f} s")
    table.add_row("wall time of the graph", f"{one.graph_s:.2f} s")
    table.add_row("peak memory", f"{one.peak_bytes / 1e6:.0f} MB")
    console.print(table)
    table = Table("disturbed", "ms", "by messages, ms", "off", "undisturbed, ms", title=f"{FEW} ranks")
    for case in others:
        times = [f"{seconds * 1e3:.4f}" for seconds in (case.ours_s, case.by_messages_s)]
        table.add_row(case.case, *times, f"{case.off:+.1e}", f"{case.quiet_s * 1e3:.4f}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
