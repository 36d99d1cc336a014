"""Simulates collectives of thousands of ranks: wall time, and accuracy against closed forms and messages.

    python benchmarks/collectives.py             # prints two tables
    python benchmarks/collectives.py --json
    python benchmarks/collectives.py --ranks 512 --topology-k 14

The large case is a ring all-reduce of 100 MB among 4,096 hosts of a fat tree of switches with 26 ports, in a separate
process. The timing includes everything after the graph is built: finding the routes, building the pattern, and
computing when each rank is done. The graph, which every other use of the cluster also needs, is built before and timed
separately. The result is compared with the closed form 2 (p − 1) (α + n/p β), once with the mean latency of the ring's
hops and once with the longest one.

The small cases disturb a ring of 64: a link at half rate, a rank that is a millisecond late, a flow that crosses. Each
is simulated twice: as in any run (`contention`, `pattern_time`), and message by message with SimPy (`event_driver`).

Exits with 1 if the large case differs by more than 0.1 % from the closed form with the mean latency, or a small one by
more than 1 % from its simulation message by message.
"""

from __future__ import annotations

import argparse
import json
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

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.event_driver import EventDriver, simulate_by_events
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import Setting, build
from paceline.simulator.collectives.plan import CollectivePlan
from paceline.simulator.flows.fabric import GraphFabric, Path
from paceline.simulator.flows.flow_engine import Flows
from paceline.topologies.catalogue.device import Device
from paceline.topologies.closed_forms import ring_all_reduce_s
from paceline.topologies.cluster import Cluster, Node
from paceline.topologies.graphs.links import LINKS
from paceline.topologies.graphs.trees import fat_tree

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


def cluster_of(ranks: int, k: int) -> Cluster:
    """Returns a fat tree with one rank per host."""
    device = Device(name="device", overhead_s=0.0, per_sample_s=1.0)
    link = LINKS[LINK]
    hosts = [f"host{number}" for number in range(ranks)]
    nodes = tuple(Node(name=host, device=device, seats=(host,), host=host, intra_node_link=link) for host in hosts)
    return Cluster(nodes=nodes, graph=fat_tree(k=k, link=link))


def ring_on(fabric: GraphFabric, ranks: int) -> CollectivePlan:
    """Returns a ring all-reduce in the order of the ranks."""
    pattern = build("AllReduce", "ring", Setting(ranks, NBYTES, 0, tuple((rank,) for rank in range(ranks))))
    return CollectivePlan(pattern, tuple(map(Rank, range(ranks))), fabric.path, fabric.reduce_s_per_byte)


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
        ours, other = alone_s(one, on, entries).max(), float(simulate_by_events(one, on, entries).max())
        found.append(Disturbed(case=case, ours_s=float(ours), by_messages_s=other, quiet_s=quiet_s))
    ours_s, by_messages_s = crossed_s(fabric, plan, by_messages=False), crossed_s(fabric, plan, by_messages=True)
    found.append(Disturbed(case="a crossing flow", ours_s=ours_s, by_messages_s=by_messages_s, quiet_s=quiet_s))
    return found


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


# --- showing ---------------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    """Runs all cases and returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ranks", type=int, default=4096, help="number of ranks of the large case")
    parser.add_argument("--topology-k", type=int, default=26, help="ports of the fat tree's switches")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args(argv)
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
