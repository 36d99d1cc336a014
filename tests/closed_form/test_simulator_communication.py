"""Simulated runs against the closed forms of messages and collectives (docs/invariants.md, O1 and number 54)."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import pytest

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Op,
    Receive,
    Reduce,
    Send,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Null, Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.records.trace import Schedule
from paceline.simulator.collectives.patterns import PATTERNS
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from tests.clusters import joined, played, star
from tests.support import FixedTiming, job_of

ALPHA_S, BYTES = 0.5, 4000
BETA_S = 1 / 1000
N_S = BYTES * BETA_S


def time_of(ask: Any, members: int, collective: str = "ring") -> float:
    """Returns the duration of one collective among `members` nodes after the last entry."""

    @program
    def run(me: RankContext, state: Replica) -> Program[None]:
        yield from ask(me)

    return played(
        run, workers=members, network=ClusterNetwork(star(*[1] * members, latency_s=ALPHA_S), collective)
    ).wall_s


def all_reduce(me: RankContext) -> Op[Any]:
    return AllReduce(value=Null(BYTES // 4), group=me.workers, key="")


@pytest.mark.parametrize("p", [2, 4, 6, 12, 16])
def test_ring_all_reduce_c1(p: int) -> None:
    assert time_of(all_reduce, p, "ring") == pytest.approx(2 * (p - 1) * ALPHA_S + 2 * (p - 1) / p * N_S)


@pytest.mark.parametrize("p", [2, 4, 16])
def test_recursive_doubling_c2(p: int) -> None:
    assert time_of(all_reduce, p, "recursive-doubling") == pytest.approx(log2(p) * (ALPHA_S + N_S))


@pytest.mark.parametrize("p", [2, 4, 16])
def test_halving_doubling_c4(p: int) -> None:
    assert time_of(all_reduce, p, "halving-doubling") == pytest.approx(2 * log2(p) * ALPHA_S + 2 * (p - 1) / p * N_S)


@pytest.mark.parametrize("p", [2, 4, 16])
def test_reduction_and_broadcast_by_binomial_tree_c6(p: int) -> None:
    assert time_of(all_reduce, p, "binomial-tree") == pytest.approx(log2(p) * (2 * ALPHA_S + 2 * N_S))


@pytest.mark.parametrize("p", [2, 3, 8])
def test_the_other_collectives_c7_c9(p: int) -> None:
    value, root = Null(BYTES // 4), Rank(1)
    tree = ceil(log2(p)) * (ALPHA_S + N_S)
    assert time_of(lambda me: Broadcast(value=value, group=me.workers, root=root, key=""), p) == pytest.approx(tree)
    assert time_of(lambda me: Reduce(value=value, group=me.workers, root=root, key=""), p) == pytest.approx(tree)
    gathered = (p - 1) * ALPHA_S + (p - 1) * N_S  # the gathered vector is p times as large as one's own part
    assert time_of(lambda me: AllGather(value=value, group=me.workers, key=""), p) == pytest.approx(gathered)
    assert time_of(lambda me: Barrier(group=me.workers, key=""), p) == pytest.approx(ceil(log2(p)) * ALPHA_S)


@pytest.mark.parametrize(("nbytes", "quickest"), [(4, "recursive-doubling"), (400_000, "halving-doubling")])
def test_auto_is_the_cheapest(nbytes: int, quickest: str) -> None:
    def ask(me: RankContext) -> Op[Any]:
        return AllReduce(value=Null(nbytes // 4), group=me.workers, key="")

    costs = {name: time_of(ask, 8, name) for name in PATTERNS["AllReduce"]}
    assert time_of(ask, 8, "auto") == min(costs.values()) == costs[quickest]


@pytest.mark.parametrize(("workers", "server_bytes_per_s"), [(8, 1000.0), (2, 4000.0), (4, 4000.0)])
def test_synchronous_push_to_one_server_c17(workers: int, server_bytes_per_s: float) -> None:
    """α + n max(1/B_w, N/B_s)."""
    worker_bytes_per_s, nbytes = 1000.0, 4000
    cluster = joined(star(1, bytes_per_s=server_bytes_per_s), star(*[1] * workers, bytes_per_s=worker_bytes_per_s))

    @program
    def server(me: RankContext, state: Replica) -> Program[None]:
        for _ in range(workers):
            yield from Receive()

    @program
    def worker(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(Rank(0), Null(nbytes // 4))

    trace = played(server, worker, workers=workers + 1, network=ClusterNetwork(cluster))
    assert trace.wall_s == pytest.approx(nbytes * max(1 / worker_bytes_per_s, workers / server_bytes_per_s))


def test_without_compute_a_step_is_its_collective() -> None:
    job = job_of(SyncSgd(), 4, steps=5)
    trace = simulate_job(
        job, FixedTiming(compute=0.0), ClusterNetwork(star(1, 1, 1, 1, latency_s=ALPHA_S), "ring"), Schedule(1)
    )
    nbytes = 4 * 8
    assert trace.wall_s == pytest.approx(5 * (6 * ALPHA_S + 1.5 * nbytes * BETA_S))


def test_a_collective_of_one_rank_is_free() -> None:
    @program
    def alone(me: RankContext, state: Replica) -> Program[None]:
        yield from all_reduce(me)
        yield from Barrier(group=me.workers, key="")

    assert played(alone, network=ClusterNetwork(star(1, latency_s=ALPHA_S))).wall_s == 0.0
