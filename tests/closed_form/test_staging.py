"""Copies between hosts and devices: batches, and what a library moves through host memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline import load, simulate
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Cancel, Charge, Gradient, Load, Now, Receive, Send, Start
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Samples
from paceline.records.trace import COPY_TO_DEVICE, Schedule, Span, Trace
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.network import node_memory
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.network.node_memory import NodeMemory
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.host_memory import HostMemory, StagingModel
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.topologies.cluster import ClusterModel, Node
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LINKS, LinkModel
from paceline.topologies.graphs.machines import pcie_tree
from paceline.topologies.graphs.network_graphs import star
from paceline.workloads.reading import Order
from tests.clusters import Written, answer
from tests.reading import supply
from tests.support import FixedTiming, job_of
from tests.traffic import CountedNetwork, carried

EXACT = 1e-9
BATCH = 8
"""samples of a gradient of `job_of`"""
BYTES = 80_000.0
"""of a batch, and of a vector"""
VECTOR = np.zeros(10_000)
MEMORY = HostMemory(bytes_per_s=100 * BYTES, core_bytes_per_s=5 * BYTES, provenance="a test's own")
PINNED = StagingModel(sample_bytes=BYTES / BATCH)
GPU = DeviceModel(name="gpu", kind="gpu", overhead_s=1.0, per_sample_s=0.0)


def wire(bytes_per_s: float, latency_s: float = 0.0) -> LinkModel:
    return LinkModel(
        name="wire", latency_s=latency_s, bytes_per_s=bytes_per_s, provenance="a test's own", medium="pcie"
    )


def tree(gpus: int, bytes_per_s: float = 2 * BYTES, latency_s: float = 0.0, nics: int = 0) -> Graph:
    """GPUs on one PCIe switch of a host, whose links move two vectors a second."""
    graph = pcie_tree(switches=1, gpus_per_switch=gpus, nics=nics)
    link = wire(bytes_per_s, latency_s)
    return replace(graph, connections=tuple(replace(one, link=link) for one in graph.connections))


def node(name: str, seats: tuple[str, ...], host: str) -> Node:
    return Node(name=name, device=GPU, seats=seats, host=host, intra_node_link=LINKS["shared-memory"], memory=MEMORY)


def gpus(count: int, staging: StagingModel | None = PINNED, **links: Any) -> ClusterModel:
    graph = tree(count, **links)
    return ClusterModel(nodes=(node("host", graph.endpoints, "cpu0"),), graph=graph, staging=staging)


def two_nodes(staging: StagingModel | None, uplink: float = 1.0) -> ClusterModel:
    """A GPU and a NIC on the switch of each of two nodes; the link to the host is slower by `uplink`."""
    inside = tree(1, nics=1)
    slow = wire(2 * BYTES * uplink)
    links = tuple(replace(one, link=slow) if "cpu0" in one.ends else one for one in inside.connections)
    network = replace(LINKS["ib-edr"], latency_s=0.0, bytes_per_s=2 * BYTES)
    graph = compose("two", star(hosts=2, link=network), replace(inside, connections=links), "a test's own")
    nodes = tuple(node(f"n{n}", (f"host{n}.gpu0",), f"host{n}.cpu0") for n in range(2))
    return ClusterModel(nodes=nodes, graph=graph, staging=staging)


def run(
    cluster: ClusterModel,
    main: Any,
    *,
    library: str = "plain",
    compute_s: float = 1.0,
    reads: Supply | None = None,
    others: Any = None,
    timing: FixedTiming | None = None,
) -> tuple[Trace, CountedNetwork]:
    network, workers = CountedNetwork(cluster, library=library), cluster.workers
    job = job_of(Written(first=main, others=others), workers, nodes=cluster.placement)
    memory, timing = NodeMemory(network), timing or FixedTiming(compute=compute_s)
    return simulate_job(job, timing, network, Schedule(1), hosts=HostCosts(supply=reads, staging=memory)), network


def training(steps: int = 6) -> Any:
    """A program that loads batches and computes their gradients; it returns the time of each start of a gradient."""

    @program
    def main(me: RankContext, state: Replica) -> Program[list[float]]:
        started = []
        for index in range(steps):
            batch = yield from Load(Samples(me.rank, len(me.workers), index, BATCH))
            started.append((yield from Now()))
            yield from Gradient(state.weights, batch)
        return started

    return main


def step_s(cluster: ClusterModel, compute_s: float, rank: int = 0, reads: Supply | None = None) -> float:
    """The time between the last two gradients."""
    trace, _ = run(cluster, training(), compute_s=compute_s, reads=reads)
    before, last = answer(trace, rank)[-2:]
    return float(last - before)


def copies(trace: Trace) -> list[Span]:
    return [span for span in trace.spans if span.activity == "copy"]


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute_s", [0.25, 0.5, 2.0])
def test_a_prefetched_copy_is_hidden_by_the_gradient(compute_s: float) -> None:
    """max(compute, copy), and compute + copy without prefetching; a copy takes n / B = 0.5 s."""
    assert step_s(gpus(1), compute_s) == pytest.approx(max(compute_s, 0.5), rel=EXACT)
    waiting = replace(PINNED, prefetch=0)
    assert step_s(gpus(1, waiting), compute_s) == pytest.approx(compute_s + 0.5, rel=EXACT)


def test_the_first_copy_is_not_hidden() -> None:
    trace, _ = run(gpus(1), training(2))
    assert answer(trace) == pytest.approx([0.5, 1.5], rel=EXACT)
    loads = [span.end_s - span.start_s for span in trace.spans if span.activity == "load"]
    assert loads == pytest.approx([0.5, 0.0])
    batches = copies(trace)
    assert [(span.lane, span.key, span.step, span.bytes) for span in batches] == [
        (COPY_TO_DEVICE, "batch", step, BYTES) for step in range(3)
    ]
    times = [time_s for span in batches for time_s in (span.start_s, span.end_s)]
    assert times == pytest.approx([0, 0.5, 0.5, 1, 1.5, 2])


def test_a_copy_has_the_latency_of_its_links() -> None:
    assert step_s(gpus(1, latency_s=0.125), 0.25) == pytest.approx(0.5 + 2 * 0.125, rel=EXACT)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_gpus_under_one_switch_share_its_uplink(count: int) -> None:
    """Each of P equal copies takes P n / B."""
    waiting = replace(PINNED, prefetch=0)
    assert step_s(gpus(count, waiting), 1.0, count - 1) == pytest.approx(1.0 + 0.5 * count, rel=EXACT)
    assert step_s(gpus(count), 1.0, count - 1) == pytest.approx(max(1.0, 0.5 * count), rel=EXACT)


def test_a_core_copies_pageable_memory_first() -> None:
    """compute + 2 n / core + n / B: it reads and writes every byte, and nothing is prefetched."""
    pageable = replace(PINNED, batches="pageable", prefetch=4)
    assert step_s(gpus(1, pageable), 1.0) == pytest.approx(1.0 + 2 / 5 + 0.5, rel=EXACT)


def test_deeper_prefetching_evens_out_unequal_gradients() -> None:
    """Gradients of 0.1 and 0.9 s, copies of 0.5 s: with one batch ahead every second copy is waited for."""

    def time_s(prefetch: int) -> float:
        network = ClusterNetwork(cluster := gpus(1, replace(PINNED, prefetch=prefetch)))
        timing = FixedTiming(compute=lambda _, step: 0.9 if step % 2 else 0.1)
        job = job_of(Written(first=training(20)), 1)
        trace = simulate_job(job, timing, network, Schedule(1), hosts=HostCosts(staging=NodeMemory(network)))
        assert cluster.staging is not None and cluster.staging.ahead == prefetch
        started = answer(trace)
        return float(started[-1] - started[-3])

    assert time_s(1) == pytest.approx(0.5 + 0.9, rel=EXACT)
    assert time_s(2) == pytest.approx(1.0, rel=EXACT)


def test_nothing_is_copied_without_batches_or_without_a_host_of_its_own() -> None:
    for staging in (None, replace(PINNED, batches="none"), replace(PINNED, sample_bytes=0.0)):
        trace, _ = run(gpus(1, staging), training())
        assert not copies(trace)
        assert answer(trace) == [0, 1, 2, 3, 4, 5]
    for name, changes in (("cori-knl", ["cluster.nodes=2"]), ("quickstart", [])):
        (plan,) = load(name, changes, algorithms=["sync-sgd"]).plans()
        assert plan.cluster.staging is None
    own = replace(gpus(1), nodes=(replace(gpus(1).nodes[0], device=replace(GPU, kind="cpu")),))
    assert own.socket_of(Rank(0)) is None


@pytest.mark.parametrize(("bandwidth", "longest_s"), [(4 * BYTES, 1.0), (0.5 * BYTES, 2.0)])
def test_a_batch_is_copied_after_it_has_been_read(bandwidth: float, longest_s: float) -> None:
    """Reading, copying (0.5 s) and computing (1 s) overlap: the longest of them counts."""
    record = round(BYTES / BATCH)
    disk = StorageModel(name="disk", latency_s=0.0, bytes_per_s=bandwidth, provenance={})
    order = Order(strategy="scattered", num_samples=64, seed=1, buffer=16)
    reads = supply(disk, workers=1, prefetch=1, order=order, record_bytes=record)
    assert step_s(gpus(1), 1.0, reads=reads) == pytest.approx(longest_s, rel=1e-6)
    trace, _ = run(gpus(1), training(), reads=reads)
    begun = {span.step: span.start_s for span in copies(trace)}
    read = {span.step: span.end_s for span in trace.spans if span.activity == "read"}
    assert len(begun) > 5 and all(begun[step] >= read[step] for step in begun)
    assert trace.reads[Rank(0)].stall_s > 0


def test_a_copy_that_nothing_waits_for_ends_with_the_program() -> None:
    slow = replace(PINNED, sample_bytes=10 * PINNED.sample_bytes)
    trace, network = run(gpus(1, slow), training(1))
    first, ahead = copies(trace)
    assert trace.wall_s == pytest.approx(6.0) == ahead.end_s
    assert network.carried_bytes["pcie0>gpu0"] == pytest.approx((first.end_s + 1.0) * 2 * BYTES)
    assert carried(network)["pcie0>gpu0"] == pytest.approx(network.carried_bytes["pcie0>gpu0"])


@pytest.mark.parametrize("batches", ["pinned", "pageable"])
def test_a_cancelled_load_ends_its_copy(batches: Any) -> None:
    """Of the 0.5 s of a copy, 0.125 s have passed; from pageable memory, the core is still copying."""

    @program
    def main(me: RankContext, state: Replica) -> Program[None]:
        handle = yield from Start(Load(Samples(0, 1, 0, BATCH)))
        yield from Charge("wait", 0)
        yield from Cancel(handle)

    class Waiting(FixedTiming):
        def work_s(self, rank: Rank, op: Charge) -> float:
            return 0.125

    trace, network = run(gpus(1, replace(PINNED, batches=batches, prefetch=0)), main, timing=Waiting())
    assert network.carried_bytes["pcie0>gpu0"] == pytest.approx(0.25 * BYTES if batches == "pinned" else 0.0)
    assert carried(network).get("pcie0>gpu0", 0.0) == pytest.approx(network.carried_bytes["pcie0>gpu0"])
    assert copies(trace)[0].end_s == pytest.approx(0.125)


@given(
    bandwidths=st.tuples(st.floats(0.5, 8), st.floats(1.0, 4)),
    count=st.integers(1, 4),
    prefetch=st.integers(0, 3),
    compute_s=st.floats(0.05, 2),
    batches=st.sampled_from(["pinned", "pageable"]),
)
def test_more_bandwidth_is_never_slower_and_all_bytes_pass(
    bandwidths: tuple[float, float], count: int, prefetch: int, compute_s: float, batches: Any
) -> None:
    steps, slow = 4, bandwidths[0] * BYTES
    staging = replace(PINNED, prefetch=prefetch, batches=batches)
    ends = []
    for bytes_per_s in (slow, slow * bandwidths[1]):
        cluster = gpus(count, staging, bytes_per_s=bytes_per_s)
        trace, network = run(cluster, training(steps), compute_s=compute_s)
        ends.append(trace.wall_s)
        carried = [network.carried_bytes[f"pcie0>gpu{rank}"] for rank in range(count)]
        assert network.carried_bytes["cpu0>pcie0"] == pytest.approx(sum(carried), rel=1e-6)
        most = (steps + staging.ahead) * BYTES * (1 + 1e-6)
        assert all(steps * BYTES * (1 - 1e-6) <= one <= most for one in carried)
    assert ends[1] <= ends[0] * (1 + 1e-9)


# --- gradients and weights --------------------------------------------------------------------------------------------


@program
def reducing(me: RankContext, state: Replica) -> Program[float]:
    yield from AllReduce(value=VECTOR, group=me.workers, key="mean")
    return (yield from Now())


def all_reduce_s(cluster: ClusterModel, library: str) -> float:
    trace, _ = run(cluster, reducing, library=library)
    return float(answer(trace))


def on_hosts(count: int) -> ClusterModel:
    """The same ranks in the memory of the host."""
    graph = tree(count)
    return ClusterModel(nodes=(node("host", ("cpu0",) * count, "cpu0"),), graph=graph)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("library", "gpudirect"), [("gloo", "auto"), ("gloo", "on"), ("mpi", "off")])
def test_an_all_reduce_on_hosts_adds_two_copies(count: int, library: str, gpudirect: Any) -> None:
    """To the host and back, each P n / B over the uplink that P devices share."""
    inside_s = all_reduce_s(on_hosts(count), library)
    staged = gpus(count, replace(PINNED, gpudirect=gpudirect))
    assert all_reduce_s(staged, library) == pytest.approx(inside_s + 2 * 0.5 * count, rel=EXACT)


@pytest.mark.parametrize(("library", "gpudirect"), [("plain", "off"), ("nccl", "off"), ("nccl", "on"), ("mpi", "auto")])
def test_devices_of_a_node_reach_each_other_directly(library: str, gpudirect: Any) -> None:
    staged = gpus(2, replace(PINNED, gpudirect=gpudirect))
    assert all_reduce_s(staged, library) == pytest.approx(all_reduce_s(gpus(2, None), library), rel=EXACT)


def test_a_copy_begins_when_its_rank_enters() -> None:
    """Rank 1 enters a second later: the copy of rank 0 has ended, and its own has the uplink alone."""

    @program
    def late(me: RankContext, state: Replica) -> Program[float]:
        yield from Gradient(state.weights, (yield from Load(Samples(1, 2, 0, BATCH))))
        return (yield from reducing(me, state))

    inside_s = all_reduce_s(on_hosts(2), "gloo")
    trace, _ = run(gpus(2, replace(PINNED, batches="none")), reducing, library="gloo", others=late)
    assert [answer(trace, rank) for rank in range(2)] == pytest.approx([1.0 + 0.5 + inside_s + 1.0] * 2, rel=EXACT)


def message_s(cluster: ClusterModel, library: str) -> tuple[float, CountedNetwork]:
    """The time of one vector from the first worker to the second."""

    @program
    def sending(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(to=Rank(1), value=VECTOR, tag="x")

    @program
    def receiving(me: RankContext, state: Replica) -> Program[float]:
        yield from Receive(source=Rank(0), tag="x")
        return (yield from Now())

    trace, network = run(cluster, sending, library=library, others=receiving)
    return float(answer(trace, 1)), network


def test_a_message_is_copied_down_and_up_once() -> None:
    """n / B to the host, the message from host to host, n / B from the host."""
    direct_s, direct = message_s(two_nodes(replace(PINNED, gpudirect="on")), "mpi")
    copied_s, copied = message_s(two_nodes(replace(PINNED, gpudirect="off")), "mpi")
    assert direct.carried_bytes["host0.pcie0>host0.cpu0"] == 0
    for port in ("host0.gpu0>host0.pcie0", "host0.cpu0>host0.pcie0", "host0.pcie0>host0.nic0"):
        assert copied.carried_bytes[port] == pytest.approx(BYTES)
    assert copied_s == pytest.approx(direct_s + 2 * 0.5, rel=EXACT)


def test_pieces_through_the_host_run_at_the_slowest_link_of_the_detour() -> None:
    """Without GPUDirect, NCCL's messages leave a node through host memory; nothing else changes."""
    direct_s, direct = message_s(two_nodes(replace(PINNED, gpudirect="auto"), uplink=0.25), "nccl")
    through_s, through = message_s(two_nodes(replace(PINNED, gpudirect="off"), uplink=0.25), "nccl")
    plain_s, _ = message_s(two_nodes(replace(PINNED, gpudirect="off"), uplink=0.25), "plain")
    assert (direct_s, through_s) == pytest.approx((0.5, 2.0), rel=EXACT)
    assert plain_s == direct_s
    ports = [network.fabric.path(Rank(0), Rank(1), 1.0).ports for network in (direct, through)]
    assert "host0.pcie0>host0.cpu0" not in ports[0]
    assert ports[1][:4] == (
        "host0.gpu0>host0.pcie0", "host0.pcie0>host0.cpu0", "host0.cpu0>host0.pcie0", "host0.pcie0>host0.nic0",
    )  # fmt: skip


def test_gpudirect_follows_from_the_network_and_the_device() -> None:
    def staged(*changes: str) -> bool:
        (plan,) = load("dgx1-p100", ["cluster.network.library=nccl", *changes], algorithms=["sync-sgd"]).plans()
        return bool(ClusterNetwork(plan.cluster, library="nccl").fabric.buffers.passed)

    assert not staged("cluster.nodes=2") and not staged("cluster.nodes=2", "cluster.staging.gpudirect=on")
    assert staged("cluster.nodes=2", "cluster.staging.gpudirect=off")
    tcp = "cluster={nodes: [{node: dgx1, count: 2}], network: {link: eth-25g, library: nccl}}"
    assert staged(tcp)


# --- scenarios --------------------------------------------------------------------------------------------------------


def test_a_prediction_of_a_measured_machine_copies_nothing() -> None:
    machine = Profile(inside={("AllReduce", 8): ((0, 1e-4), (10**9, 1e-3))}, messages=((0, 1e-4), (10**9, 1e-3)))
    runs = []
    for batches in ("none", "pageable"):
        changes = [f"cluster.staging.batches={batches}", "cluster.network.library=gloo", "stop={samples: 4096}"]
        (one,) = simulate(load("dgx1-p100", changes, algorithms=["sync-sgd"]), machine=MeasuredCosts(machine))
        runs.append(one.summary["step_s"]["mean"])
    assert runs[0] == runs[1]


def test_a_batch_has_the_bytes_of_the_models_input() -> None:
    (plan,) = load("dgx1-p100", algorithms=["sync-sgd"]).plans()
    assert plan.cluster.staging == StagingModel(sample_bytes=4 * 3 * 224 * 224)
    (words,) = load("dgx1-p100", ["workload.model=transformer"], algorithms=["sync-sgd"]).plans()
    assert words.cluster.staging is not None and words.cluster.staging.sample_bytes == 8 * 128


def test_mistakes_are_told_together() -> None:
    with pytest.raises(Exception, match=r"cluster\.staging") as caught:
        load("dgx1-p100", ["cluster.staging={batches: fast, prefetch: -1, gpudirect: maybe, pin: 1}"])
    lines = str(caught.value)
    assert "cluster.staging.batches: found 'fast', expected pinned, pageable or none" in lines
    assert "cluster.staging.prefetch: found -1" in lines
    assert "cluster.staging.gpudirect: found 'maybe', expected auto, on or off" in lines
    assert "cluster.staging.pin: unknown key" in lines
    assert load("dgx1-p100", ["cluster.staging.gpudirect=off"]).cluster.staging.gpudirect == "off"


@pytest.mark.parametrize("most", [512, 1])
def test_copies_of_very_many_workers_take_as_long(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy alone on links of two vectors a second takes 0.5 s, and a cancelled one takes nothing from it."""
    monkeypatch.setattr(node_memory, "MOST_SLOWED", most)
    network, env = ClusterNetwork(gpus(2)), VirtualClock()
    network.attach(env)
    memory = NodeMemory(network)
    copy, cancelled = (memory.copy(Rank(0), "to device", BYTES) for _ in range(2))
    assert copy is not None and cancelled is not None
    memory.cancel(cancelled.flow)
    env.run(until=copy.flow)
    assert env.now == pytest.approx(0.5, rel=EXACT)
