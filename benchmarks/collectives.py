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
is simulated twice: as in any run (`contention`, `pattern_time`), and message by message with SimPy (`EventDriver`).

Exits with 1 if the large case differs by more than 0.1 % from the closed form with the mean latency, or a small one by
more than 1 % from its simulation message by message.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from common.harness import Answer, alone, peak_bytes, run_command, table
from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.contention import Contention
from paceline.simulator.collectives.execution import EventDriver, begun
from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.patterns import Setting, build
from paceline.simulator.collectives.plans import CollectivePlan
from paceline.simulator.flows.fabric import GraphFabric
from paceline.simulator.flows.flow_engine import Flows
from paceline.simulator.flows.path_tables import Path
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.closed_forms import ring_all_reduce_s
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.links import LINKS
from paceline.topologies.graphs.network_graphs import fat_tree

NBYTES = 100e6
LINK = "ib-edr"
FEW = 64
FORM_ALLOWED, REPLAY_ALLOWED = 1e-3, 1e-2


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


def large(ranks: int, k: int) -> dict[str, Any]:
    """Runs the large case in this process."""
    began = time.perf_counter()
    cluster = cluster_of(ranks, k)
    built = time.perf_counter()
    fabric = GraphFabric(cluster)
    plan = ring_on(fabric, ranks)
    simulated_s = float(alone_s(plan, fabric).max())
    done = time.perf_counter()
    latencies = plan.message_paths.latency_s
    forms_s = {
        name: ring_all_reduce_s(ranks, NBYTES, float(alpha), 1 / LINKS[LINK].bytes_per_s)
        for name, alpha in (("mean", latencies.mean()), ("longest", latencies.max()))
    }
    off = {f"off_{name}_latency": simulated_s / form_s - 1 for name, form_s in forms_s.items()}
    times = {"simulated_s": simulated_s, "wall_s": done - built, "graph_s": built - began}
    return {"ranks": ranks, **times, "peak_bytes": peak_bytes(), **off}


# --- disturbed -------------------------------------------------------------------------------------------------------


def disturbed() -> list[dict[str, Any]]:
    """Runs the small cases, as in any run and message by message."""
    fabric, slow = GraphFabric(cluster_of(FEW, 8)), GraphFabric(cluster_of(FEW, 8))
    port = next(port for port in slow.capacity if port.startswith(f"host{FEW // 3}>"))
    slow.capacity[port] /= 2
    late_s = np.zeros(FEW)
    late_s[FEW // 3] = 1e-3
    plan = ring_on(fabric, FEW)
    quiet_s = float(alone_s(plan, fabric).max())
    times = {"a crossing flow": (crossed_s(fabric, plan, by_messages=False), crossed_s(fabric, plan, by_messages=True))}
    for case, on, entries_s in (("a link at half rate", slow, np.zeros(FEW)), ("a rank 1 ms late", fabric, late_s)):
        ring = ring_on(on, FEW)
        times[case] = float(alone_s(ring, on, entries_s).max()), by_messages_s(ring, on, entries_s)
    return [
        {"case": case, "ours_s": ours, "by_messages_s": other, "quiet_s": quiet_s, "off": ours / other - 1}
        for case, (ours, other) in times.items()
    ]


Carry = Callable[[Rank, Rank, float, Path], simpy.Event]


def carrier(fabric: GraphFabric) -> tuple[simpy.Environment, Carry]:
    """Returns an empty network, and what begins a message in it."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)

    def carry(_source: Rank, _target: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    return env, carry


def by_messages_s(plan: CollectivePlan, fabric: GraphFabric, entries_s: np.ndarray) -> float:
    """Returns when a collective is done whose messages are simulated one by one with SimPy."""
    env, carry = carrier(fabric)
    env.run(EventDriver(env, carry, plan, 0.0, begun(plan, entries_s)).done)
    return float(env.now)


def crossed_s(fabric: GraphFabric, plan: CollectivePlan, *, by_messages: bool) -> float:
    """Returns the time of the ring with a flow of 50 MB that crosses it after a third of its time."""
    env, carry = carrier(fabric)
    contention = Contention(env, fabric, carry)
    path = fabric.path(Rank(5), Rank(40), NBYTES / 2)

    def crossing() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(float(alone_s(plan, fabric).max()) / 3)
        message = carry(Rank(5), Rank(40), NBYTES / 2, path)
        contention.message(message, path.ports)
        yield message
        contention.passed(message)

    env.process(crossing())
    env.run(EventDriver(env, carry, plan).done if by_messages else contention.start(plan))
    return float(env.now)


# --- the command ------------------------------------------------------------------------------------------------------


def body(options: argparse.Namespace) -> Answer:
    row, rows = alone(large, options.ranks, options.topology_k), disturbed()
    titles = {
        "ranks": "ranks:,", "simulated, ms": "simulated_s*1e3:.3f", "off (mean latency)": "off_mean_latency:+.2e",
        "off (longest latency)": "off_longest_latency:+.2e", "wall, s": "wall_s:.2f", "graph, s": "graph_s:.2f",
        "peak MB": "peak_bytes*1e-6:.0f",
    }  # fmt: skip
    cells = {
        "disturbed by": "case", "ms": "ours_s*1e3:.4f", "by messages, ms": "by_messages_s*1e3:.4f", "off": "off:+.1e",
        "undisturbed, ms": "quiet_s*1e3:.4f",
    }  # fmt: skip
    shown = [table("Ring all-reduce of 100 MB on a fat tree", [row], titles), table(f"{FEW} ranks", rows, cells)]
    exact = abs(row["off_mean_latency"]) <= FORM_ALLOWED and all(abs(row["off"]) <= REPLAY_ALLOWED for row in rows)
    return Answer({"large": row, "disturbed": rows}, shown, exact)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4096, help="number of ranks of the large case")
    parser.add_argument("--topology-k", type=int, default=26, help="ports of the fat tree's switches")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
