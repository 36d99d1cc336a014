"""Periodic and two-level methods against their closed forms of time and bytes (docs/invariants.md)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Null
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, MeasuredNetwork, NetworkModel
from tests.clusters import played, star
from tests.support import Bowl, FixedTiming, job_of, placed

BYTES = Bowl().initial().nbytes


# --- time ------------------------------------------------------------------------------------------------------------


def all_reduce_s(network: NetworkModel, nodes: list[list[int]], *, of_the_node: bool) -> float:
    """How long one all-reduce of the bowl's weights takes by itself."""

    @program
    def once(me: RankContext, state: Replica) -> Program[None]:
        group = me.node if of_the_node else me.workers
        yield from AllReduce(value=Null(BYTES // 4), group=group, key="")

    return played(once, network=network, nodes=nodes).wall_s


def measured() -> NetworkModel:
    return MeasuredNetwork(lambda _kind, members, nbytes: 0.25 * members + nbytes / 64, lambda _: 0.0)


def on_the_star() -> NetworkModel:
    return ClusterNetwork(star(2, 2, latency_s=0.125), "ring")


@pytest.mark.parametrize("network", [measured, on_the_star])
@pytest.mark.parametrize(("k1", "k2"), [(1, 1), (1, 4), (2, 6), (6, 6)])
def test_the_time_of_a_round(network: Any, k1: int, k2: int) -> None:
    """K2 t_step + (K2 / K1 − 1) t(group) + t(everyone)."""
    nodes = placed([2, 2])
    timing = FixedTiming(compute=1.0, work=0.25, load=0.125)
    trace = simulate_job(job_of(HbsSgd(k1=k1, k2=k2), nodes=nodes, steps=3 * k2), timing, network(), Schedule(1))
    near = all_reduce_s(network(), nodes, of_the_node=True)
    far = all_reduce_s(network(), nodes, of_the_node=False)
    assert 0 < near < far
    assert trace.wall_s == pytest.approx(3 * (k2 * 1.375 + (k2 // k1 - 1) * near + far))


def test_a_slow_group_delays_no_other_group_before_the_global_average() -> None:
    timing = FixedTiming(compute=lambda rank, _: 3.0 if rank >= 2 else 1.0)
    network = MeasuredNetwork(lambda *_: 0.5, lambda _: 0.0)
    trace = simulate_job(job_of(HbsSgd(k1=2, k2=4), nodes=placed([2, 2]), steps=4), timing, network, Schedule(1))
    ended = {(int(span.rank), span.key.split()[1]): span.end_s for span in trace.spans if span.key}
    assert [ended[rank, "group"] for rank in range(4)] == [2.5, 2.5, 6.5, 6.5]
    assert [ended[rank, "everyone"] for rank in range(4)] == [13.0] * 4


def test_the_time_of_two_levels() -> None:
    """A reduction and a broadcast in the largest node, an all-reduce of the leaders, behind the slowest gradient."""
    network = MeasuredNetwork(
        lambda kind, members, _: {"Reduce": 0.5, "Broadcast": 0.25, "AllReduce": 2.0}[kind] * (members > 1),
        lambda _: 0.0,
    )
    timing = FixedTiming(compute=1.0, work=0.125)
    wall_s = simulate_job(job_of(Hsgd(), nodes=placed([3, 1]), steps=4), timing, network, Schedule(1)).wall_s
    assert wall_s == pytest.approx(4 * (1.0 + 0.5 + 2.0 + 0.25 + 0.125))


# --- bytes -----------------------------------------------------------------------------------------------------------


def bytes_of_nodes(trace: Trace, nodes: list[list[int]], *, among: str) -> list[int]:
    """What the workers of each node sent in collectives whose key has this word."""
    sent: dict[int, int] = defaultdict(int)
    for span in trace.spans:
        if span.key and among in span.key:
            sent[span.rank] += span.bytes
    return [sum(sent[rank] for rank in node) for node in nodes]


@pytest.mark.parametrize("counts", [[2, 2], [4, 4, 4], [1, 2, 3, 2]])
def test_nodes_send_once_what_their_workers_would_send_each(counts: list[int]) -> None:
    """2 (N − 1) / N n from each node of m workers, against m times 2 (P − 1) / P n; each counted as rings."""
    nodes, steps, p = placed(counts), 5, sum(counts)
    two, flat = (
        simulate_job(job_of(method, nodes=nodes, steps=steps), FixedTiming(), measured(), Schedule(1))
        for method in (Hsgd(), SyncSgd())
    )
    n = len(nodes)
    assert bytes_of_nodes(two, nodes, among="across") == pytest.approx([steps * 2 * (n - 1) / n * BYTES] * n, abs=steps)
    assert bytes_of_nodes(flat, nodes, among="gradient") == pytest.approx(
        [steps * m * 2 * (p - 1) / p * BYTES for m in counts], abs=steps * max(counts)
    )
