"""Accesses to cells as flows: how they share a node's memory, the route to it, and what they lose meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Access, Cancel, Cell, Charge, Lock, Now, Start, Unlock, Wait
from paceline.algorithms.core.program import Program, Routine, program
from paceline.records.trace import Schedule, Trace
from paceline.simulator.flows.path_tables import memory_port
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.network.node_memory import NodeMemory
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import HostMemory
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.links import LINKS, LinkModel
from paceline.topologies.graphs.machines import pcie_tree
from tests.clusters import Written, answer, star
from tests.support import FixedTiming, job_of
from tests.traffic import CountedNetwork

EXACT = 1e-9
NUMBERS = 4096
BYTES = NUMBERS * 8
CELL, OTHER = Cell("x"), Cell("y")
MEMORY = HostMemory(bytes_per_s=5.0 * BYTES, core_bytes_per_s=3.0 * BYTES, provenance="a test's own")
"""an add takes 1 s alone, which is 3 of its bytes at the core's 3 a second; the memory has 5 a second"""


def one_node(workers: int, memory: HostMemory = MEMORY) -> ClusterModel:
    cluster = star(workers)
    return replace(cluster, nodes=(replace(cluster.nodes[0], memory=memory),))


def on_gpus(gpus: int = 2, bytes_per_s: float = 2.0 * BYTES) -> ClusterModel:
    """GPUs on one PCIe switch of a host."""
    graph = pcie_tree(switches=1, gpus_per_switch=gpus, nics=0)
    wire = LinkModel(name="wire", latency_s=0.0, bytes_per_s=bytes_per_s, provenance="a test's own", medium="pcie")
    graph = replace(graph, connections=tuple(replace(one, link=wire) for one in graph.connections))
    device = DeviceModel(name="device", overhead_s=1.0, per_sample_s=0.0)
    node = Node(
        name="host", device=device, seats=graph.endpoints, host="cpu0", intra_node_link=LINKS["shared-memory"],
        memory=MEMORY,
    )  # fmt: skip
    return ClusterModel(nodes=(node,), graph=graph)


def run(
    cluster: ClusterModel,
    main: Callable[[RankContext, Replica], Routine[Any]],
    workers: int,
    timing: FixedTiming | None = None,
) -> Trace:
    network = ClusterNetwork(cluster)
    job = job_of(Written(first=main), workers, nodes=[list(range(workers))])
    memory = NodeMemory(network)
    return simulate_job(job, timing or FixedTiming(), network, Schedule(1), hosts=HostCosts(cells=memory))


def durations(cluster: ClusterModel, workers: int, action: Any = "add", offset_s: float = 0.0) -> list[float]:
    """The time after 1000 s at which each worker's access ends, beginning `offset_s` after the one before."""

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        yield from Access(CELL, "swap", np.zeros(NUMBERS))
        wait_s: Any = 1000 - (yield from Now()) + offset_s * me.rank
        yield from Charge("wait", wait_s)
        yield from Access(CELL, action, None if action == "read" else np.ones(NUMBERS))
        return (yield from Now()) - 1000

    class Waiting(FixedTiming):
        def work_s(self, rank: Any, op: Charge) -> float:
            return op.bytes

    trace = run(cluster, main, workers, Waiting())
    return [answer(trace, rank) for rank in range(workers)]


@pytest.mark.parametrize(("workers", "seconds"), [(1, 1.0), (2, 6 / 5), (3, 9 / 5), (8, 24 / 5)])
def test_simultaneous_adds_share_the_memory(workers: int, seconds: float) -> None:
    """max(3 n / core, P · 3 n / memory)."""
    assert durations(one_node(workers), workers) == pytest.approx([seconds] * workers, rel=EXACT)


@pytest.mark.parametrize(("action", "passes"), [("read", 2), ("add", 3), ("swap", 4)])
def test_an_access_alone_runs_at_the_rate_of_a_core(action: str, passes: int) -> None:
    assert durations(one_node(1), 1, action) == pytest.approx([passes / 3], rel=EXACT)


def test_staggered_adds_share_max_min() -> None:
    """The second begins at 0.5 s. Alone 3 a second, then 2.5 each: 1.5 + 1.5 at 2.5, and 1.5 + 1.5 at 3."""
    first, second = durations(one_node(2), 2, offset_s=0.5)
    assert first == pytest.approx(0.5 + 1.5 / 2.5, rel=EXACT)
    assert second == pytest.approx(first + 1.5 / 3, rel=EXACT)


def test_a_convoy_of_locks_has_the_memory_one_by_one() -> None:
    """P adds under one lock: the i-th is over at i s, because each has the memory alone."""

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        yield from Lock(CELL)
        yield from Access(CELL, "add", np.ones(NUMBERS))
        yield from Unlock(CELL)
        return (yield from Now())

    trace = run(one_node(4), main, 4)
    assert [answer(trace, rank) for rank in range(4)] == pytest.approx([1.0, 2.0, 3.0, 4.0], rel=EXACT)


def test_a_gpu_reads_over_pcie() -> None:
    """Two GPUs under one switch read a cell over one uplink: n / 1 each; alone, n / 2."""
    assert durations(on_gpus(1), 1, "read") == pytest.approx([0.5], rel=EXACT)
    assert durations(on_gpus(2), 2, "read") == pytest.approx([1.0, 1.0], rel=EXACT)


def test_a_gpu_adds_with_a_core_of_the_host() -> None:
    """n over PCIe at 2 a second, while a core of the host moves 3 n at 3 a second: the slower of the two."""
    assert durations(on_gpus(1), 1, "add") == pytest.approx([1.0], rel=EXACT)
    assert durations(on_gpus(1, bytes_per_s=0.5 * BYTES), 1, "add") == pytest.approx([2.0], rel=EXACT)


def test_messages_and_accesses_share_pcie() -> None:
    """A message from the host to a GPU and a read of that GPU: the link divides."""
    network, timing = ClusterNetwork(on_gpus(1)), FixedTiming()
    memory = NodeMemory(network)

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        yield from Access(CELL, "swap", np.zeros(NUMBERS))
        start_s = yield from Now()
        network.copy(("cpu0>pcie0", "pcie0>gpu0"), 10 * BYTES)
        yield from Access(CELL, "read")
        return (yield from Now()) - start_s

    trace = simulate_job(job_of(Written(first=main), 1), timing, network, Schedule(1), hosts=HostCosts(cells=memory))
    assert answer(trace) == pytest.approx(1.0, rel=EXACT)


def test_counters_are_free() -> None:
    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        for number in range(5):
            yield from Access(OTHER, "swap", np.array([number]))
        return (yield from Now())

    trace = run(one_node(2), main, 2)
    assert [answer(trace, rank) for rank in range(2)] == [0.0, 0.0]
    assert not [span for span in trace.spans if span.activity == "update"]


def test_nothing_is_lost_or_torn_without_overlap() -> None:
    @program
    def main(me: RankContext, state: Replica) -> Program[Any]:
        for _ in range(4):
            yield from Access(CELL, "add", np.ones(NUMBERS))
        return (yield from Access(CELL, "read"))

    trace = run(one_node(1), main, 1)
    assert (answer(trace) == 4).all()
    assert trace.lost_updates is not None and trace.lost_updates["lost_share"] == 0.0


def test_simultaneous_adds_lose_all_but_one() -> None:
    """Both load every block before the other stores it. The third reads while they write: it sees a prefix of them."""

    @program
    def main(me: RankContext, state: Replica) -> Program[Any]:
        yield from Access(CELL, "add", np.ones(NUMBERS))
        return (yield from Access(CELL, "read"))

    @program
    def after(me: RankContext, state: Replica) -> Program[Any]:
        if me.rank == 2:
            yield from Access(CELL, "swap", np.zeros(NUMBERS))
            return None
        yield from Charge("wait", 1)
        return (yield from main(me, state))

    trace = run(one_node(3), after, 3, FixedTiming(work=100.0))
    for rank in range(2):
        assert (answer(trace, rank) == 1).all()
    assert trace.lost_updates is not None and trace.lost_updates["lost_share"] == pytest.approx(0.5)


def test_the_share_that_is_lost_is_that_of_fixed_times() -> None:
    """Where the memory is no bottleneck, flows and fixed times of the same length lose the same blocks."""
    rng = np.random.default_rng(5)
    waits_s = rng.uniform(0.2, 1.0, (4, 30))

    @program
    def main(me: RankContext, state: Replica) -> Program[Any]:
        for number in range(30):
            yield from Charge("wait", number)
            yield from Access(CELL, "add", np.ones(NUMBERS))
        return None

    class Uneven(FixedTiming):
        def work_s(self, rank: Any, op: Charge) -> float:
            return 1.0 if op.kind == "access" else float(waits_s[rank, op.bytes])

    wide = replace(MEMORY, bytes_per_s=100.0 * BYTES)
    flows = run(one_node(4, wide), main, 4, Uneven()).lost_updates
    job = job_of(Written(first=main), 4, nodes=[[0, 1, 2, 3]])
    fixed = simulate_job(job, Uneven(), ClusterNetwork(one_node(4)), Schedule(1)).lost_updates
    assert flows is not None and fixed is not None and fixed["lost_share"] > 0.05
    assert flows["adds"] == fixed["adds"] == 120
    assert flows["lost_share"] == pytest.approx(fixed["lost_share"], abs=0.01)


@given(
    workers=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    adds=st.integers(1, 6),
    bytes_per_s=st.sampled_from([1.0, 4.0, 50.0]),
)
def test_each_block_contains_the_adds_that_are_not_lost(workers: int, seed: int, adds: int, bytes_per_s: float) -> None:
    """Adds of ones to zeros: the mean of the cell is the number of adds that are not lost, whatever the rates."""
    waits_s = np.random.default_rng(seed).uniform(0.0, 2.0, (workers, adds + 1))

    @program
    def main(me: RankContext, state: Replica) -> Program[Any]:
        for number in range(adds):
            yield from Charge("wait", number)
            yield from Access(CELL, "add", np.ones(NUMBERS))
        if me.rank == 0:
            wait_s: Any = 10_000
            yield from Charge("last", wait_s)
        return (yield from Access(CELL, "read"))

    class Uneven(FixedTiming):
        def work_s(self, rank: Any, op: Charge) -> float:
            return 10_000 if op.kind == "last" else float(waits_s[rank, op.bytes])

    memory = replace(MEMORY, bytes_per_s=bytes_per_s * BYTES)
    trace = run(one_node(workers, memory), main, workers, Uneven())
    lost = trace.lost_updates
    assert lost is not None and 0.0 <= lost["lost_share"] <= 1 - 1 / (workers * adds) + EXACT
    assert answer(trace).mean() == pytest.approx(workers * adds * (1 - lost["lost_share"]), rel=EXACT)


def test_a_cancelled_access_frees_the_memory() -> None:
    """Two adds share the memory until one is cancelled at 0.5 s; the other then has a core's whole rate."""

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        yield from Access(CELL, "swap", np.zeros(NUMBERS))
        start_s = yield from Now()
        one = yield from Start(Access(CELL, "add", np.ones(NUMBERS)))
        other = yield from Start(Access(OTHER, "add", np.ones(NUMBERS)))
        yield from Charge("wait", 1)
        assert (yield from Cancel(other))
        yield from Wait(one)
        return (yield from Now()) - start_s

    trace = run(one_node(1), main, 1, FixedTiming(work=0.5))
    assert answer(trace) == pytest.approx(0.5 + (3 - 0.5 * 2.5) / 3, rel=EXACT)


def test_the_memory_carries_all_that_accesses_move() -> None:
    cluster = one_node(3)
    network = CountedNetwork(cluster)

    @program
    def main(me: RankContext, state: Replica) -> Program[None]:
        yield from Access(CELL, "add", np.ones(NUMBERS))
        yield from Access(CELL, "read")

    job = job_of(Written(first=main), 3, nodes=[[0, 1, 2]])
    simulate_job(job, FixedTiming(), network, Schedule(1), hosts=HostCosts(cells=NodeMemory(network)))
    carried = network.carried_bytes[memory_port(cluster.nodes[0].name)]
    assert carried == pytest.approx(3 * (3 + 2) * BYTES, rel=EXACT)
