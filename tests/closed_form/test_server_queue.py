"""Servers as queues: one thread and several, open and closed networks, convoys, locks, and receives in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    Access,
    Cancel,
    Cell,
    Charge,
    Gradient,
    Load,
    Lock,
    NextStep,
    Now,
    Receive,
    Send,
    Start,
    Unlock,
    Wait,
)
from paceline.algorithms.core.program import Program, Routine, program
from paceline.algorithms.core.values import Layer, Layout, Message, Rank
from paceline.algorithms.methods.parameter_server import SyncSgdPs
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.host_costs import NO_HANDLING, Handling, HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, NetworkModel, NoCost
from tests.clusters import answer, played, star
from tests.support import Bowl, FixedTiming, built, job_of, nodes_for

EXACT = 1e-9
"""relative: sums of the same times in another order"""
BYTES = 1000
PAYLOAD = np.zeros(BYTES // 8)
Server = Callable[[RankContext], Routine[Any]]


@dataclass(frozen=True, kw_only=True)
class Queue(Method):
    """Workers and a server whose programs a test gives."""

    name = "queue"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees = frozenset()
    has_server = True

    client: Callable[[RankContext, Replica], Routine[Any]]
    serve: Server

    def worker(self, me: RankContext, state: Replica) -> Routine[Any]:
        return self.client(me, state)

    def server(self, me: RankContext, state: Replica) -> Routine[Any]:
        return self.serve(me)


def queue(
    client: Callable[[RankContext, Replica], Routine[Any]],
    serve: Server,
    workers: int,
    *,
    timing: FixedTiming,
    network: NetworkModel | None = None,
    handling: Handling = NO_HANDLING,
    steps: int = 10**9,
) -> Trace:
    job = job_of(Queue(client=client, serve=serve), workers, steps=steps)
    return simulate_job(job, timing, network or NoCost(), Schedule(every=10**9), hosts=HostCosts(handling=handling))


def rank(of: RankContext) -> Rank:
    assert of.server is not None
    return of.server


# --- an open queue ---------------------------------------------------------------------------------------------------


def waits_of(arrivals_s: Sequence[float], service_s: float, threads: int, copy_s: float = 0.0) -> list[float]:
    """The times from the arrival of each message to its receive by a server."""
    count = len(arrivals_s)
    gaps_s = np.diff(arrivals_s, prepend=0.0)

    @program
    def client(me: RankContext, state: Replica) -> Program[Any]:
        for _ in range(count):
            step = yield from NextStep(state)
            assert step is not None
            yield from Gradient(state.weights, (yield from Load(step.samples)))
            yield from Send(rank(me), (yield from Now()))
            state = Replica(state.step + 1, state.weights)
        return None

    @program
    def serve(me: RankContext) -> Program[list[float]]:
        waits = []
        for _ in range(count):
            message = yield from Receive()
            now_s = yield from Now()
            waits.append(now_s - message.value)
            yield from Charge("update", BYTES, where="host")
        return waits

    @program
    def serve_at_once(me: RankContext) -> Program[list[Message]]:
        """With threads, the program would wait for its clock, so the receives in the record tell the times."""
        messages = []
        for _ in range(count):
            messages.append((yield from Receive()))
            yield from Charge("update", BYTES, where="host")
        return messages

    timing = FixedTiming(compute=lambda _, step: float(gaps_s[step]), work=service_s)
    handling = Handling(threads=threads, copy_s=lambda *_: copy_s)
    trace = queue(client, serve if threads == 1 else serve_at_once, 1, timing=timing, handling=handling)
    if threads == 1:
        return [wait_s - copy_s for wait_s in answer(trace, 1)]
    taken = [span for span in trace.spans if span.rank == 1 and span.activity == "receive"]
    return [span.end_s - (span.ready_s or 0.0) for span in taken]


def in_order_of_arrival(arrivals_s: Sequence[float], service_s: float, threads: int) -> list[float]:
    """The same by Kiefer and Wolfowitz's recursion: each message takes the thread that is free first."""
    free_s, waits = [0.0] * threads, []
    for arrival_s in arrivals_s:
        begin_s = max(arrival_s, heapq.heappop(free_s))
        waits.append(begin_s - arrival_s)
        heapq.heappush(free_s, begin_s + service_s)
    return waits


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_wait_of_poisson_arrivals(load: float) -> None:
    """M/D/1: E W = ρ s / (2 (1 − ρ)), within three standard errors of the means of 20 batches."""
    service_s, count = 0.5, 8000
    arrivals_s = np.cumsum(np.random.default_rng(7).exponential(service_s / load, count))
    waits = np.array(waits_of(list(arrivals_s), service_s, threads=1))
    batches = waits.reshape(20, -1).mean(axis=1)
    error = batches.std(ddof=1) / np.sqrt(len(batches))
    assert abs(waits.mean() - load * service_s / (2 * (1 - load))) < 3 * error


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_waits_for_one_of_several_threads(threads: int) -> None:
    """Every wait of a sample path, with three quarters of all threads busy."""
    arrivals_s = list(np.cumsum(np.random.default_rng(threads).exponential(1 / (0.75 * threads), 500)))
    assert waits_of(arrivals_s, 1.0, threads) == pytest.approx(
        in_order_of_arrival(arrivals_s, 1.0, threads), abs=1e-9, rel=EXACT
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_the_copy_of_a_message_is_part_of_its_service(threads: int) -> None:
    arrivals_s = list(np.cumsum(np.random.default_rng(threads).exponential(1 / (0.75 * threads), 200)))
    expected = in_order_of_arrival(arrivals_s, 1.0, threads)
    assert waits_of(arrivals_s, 0.75, threads, copy_s=0.25) == pytest.approx(expected, abs=1e-9, rel=EXACT)


# --- a closed network ------------------------------------------------------------------------------------------------


@dataclass
class Closed:
    """A run of workers that compute, send to a server and wait for its reply, a number of times each."""

    workers: int
    compute_s: float
    service_s: float
    threads: int = 1
    rounds: int = 40
    replies_s: list[list[float]] = field(default_factory=list)
    """of each worker, the times of its replies"""
    waits_s: list[float] = field(default_factory=list)
    """the times from each request to its reply"""

    def __post_init__(self) -> None:
        @program
        def client(me: RankContext, state: Replica) -> Program[tuple[list[float], list[float]]]:
            replies, waits = [], []
            for _ in range(self.rounds):
                step = yield from NextStep(state)
                assert step is not None
                yield from Gradient(state.weights, (yield from Load(step.samples)))
                sent_s = yield from Now()
                yield from Send(rank(me), me.rank)
                yield from Receive(rank(me))
                replies.append((yield from Now()))
                waits.append(replies[-1] - sent_s)
                state = Replica(state.step + 1, state.weights)
            return replies, waits

        @program
        def serve(me: RankContext) -> Program[None]:
            for _ in range(self.rounds * self.workers):
                message = yield from Receive()
                yield from Charge("update", BYTES, where="host")
                yield from Send(message.source, None)

        timing = FixedTiming(compute=self.compute_s, work=self.service_s)
        trace = queue(client, serve, self.workers, timing=timing, handling=Handling(threads=self.threads))
        for worker in range(self.workers):
            replies, waits = answer(trace, worker)
            self.replies_s.append(replies)
            self.waits_s += waits
        self.wall_s = trace.wall_s


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_operational_laws_of_a_closed_network(workers: int, threads: int) -> None:
    """X ≤ min(P / (Z + s), k / s); its steady throughput is that bound for constant times; Little: N = X R."""
    run = Closed(workers, compute_s=3.0, service_s=1.0, threads=threads)
    requests = workers * run.rounds
    throughput = requests / run.wall_s
    bound = min(workers / (3.0 + 1.0), threads / 1.0)
    assert throughput <= bound * (1 + EXACT)
    ends = sorted(time_s for replies in run.replies_s for time_s in replies)
    half = len(ends) // 2
    steady = (len(ends) - 1 - half) / (ends[-1] - ends[half]) if ends[-1] > ends[half] else 0.0
    if workers * run.rounds > 100:
        assert steady == pytest.approx(bound, rel=0.15)
    changes = [(end_s - wait_s, 1) for end_s, wait_s in zip(_flat(run.replies_s), run.waits_s, strict=True)]
    changes += [(end_s, -1) for end_s in _flat(run.replies_s)]
    inside, area, before_s = 0, 0.0, 0.0
    for time_s, change in sorted(changes):
        area += inside * (time_s - before_s)
        inside, before_s = inside + change, time_s
    mean_in_system, mean_response_s = area / run.wall_s, sum(run.waits_s) / requests
    assert mean_in_system == pytest.approx(throughput * mean_response_s, rel=EXACT)


def _flat(lists: list[list[float]]) -> list[float]:
    return [value for one in lists for value in one]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_a_convoy_of_requests(workers: int, threads: int) -> None:
    """P requests at one time: the i-th reply is at ⌈i / k⌉ s."""
    run = Closed(workers, compute_s=2.0, service_s=0.25, threads=threads, rounds=1)
    expected = [2.0 + -(-(place + 1) // threads) * 0.25 for place in range(workers)]
    assert sorted(_flat(run.replies_s)) == pytest.approx(expected, rel=EXACT)


def test_a_convoy_of_locks() -> None:
    """P accesses under one lock, of s each: the i-th is over at i s, because the lock is held meanwhile."""
    cell = Cell("x")

    @program
    def main(me: RankContext, state: Replica) -> Program[float]:
        if me.rank == 0:
            yield from Access(cell, "swap", PAYLOAD)
        yield from Lock(cell)
        yield from Access(cell, "add", PAYLOAD)
        yield from Charge("update", BYTES)
        yield from Unlock(cell)
        return (yield from Now())

    timing = FixedTiming(work=0.5, access=lambda _rank, _bytes: 1.0)
    trace = played(main, workers=4, nodes=[[0, 1, 2, 3]], timing=timing)
    ends = sorted(answer(trace, worker) for worker in range(4))
    assert np.diff(ends) == pytest.approx([1.5, 1.5, 1.5], rel=EXACT)


# --- threads and programs -------------------------------------------------------------------------------------------


def test_replies_contain_the_updates_of_all_messages_before() -> None:
    """Updates are in the order in which messages are taken, and a reply leaves after the update that it contains."""

    @program
    def client(me: RankContext, state: Replica) -> Program[list[tuple[float, int]]]:
        found = []
        for _ in range(3):
            yield from Send(rank(me), me.rank)
            message = yield from Receive(rank(me))
            found.append(((yield from Now()), message.value))
        return found

    @program
    def serve(me: RankContext) -> Program[None]:
        for number in range(9):
            message = yield from Receive()
            yield from Charge("update", BYTES, where="host")
            yield from Send(message.source, number + 1)

    trace = queue(client, serve, 3, timing=FixedTiming(work=1.0), handling=Handling(threads=2))
    replies = sorted(reply for worker in range(3) for reply in answer(trace, worker))
    assert [number for _, number in replies] == list(range(1, 10))
    assert [time_s for time_s, _ in replies] == pytest.approx([-(-n // 2) for n in range(1, 10)], rel=EXACT)
    assert trace.wall_s == pytest.approx(5.0, rel=EXACT)


def test_a_short_service_is_finished_after_a_long_one_before_it() -> None:
    """Two messages at 0, of 3 s and 1 s, and two threads: the second reply contains the first update, so it waits."""

    @program
    def client(me: RankContext, state: Replica) -> Program[float]:
        yield from Send(rank(me), me.rank)
        yield from Receive(rank(me))
        return (yield from Now())

    @program
    def serve(me: RankContext) -> Program[None]:
        for seconds in (3, 1):
            message = yield from Receive()
            yield from Charge("update", seconds, where="host")
            yield from Send(message.source, None)

    class ByBytes(FixedTiming):
        def work_s(self, rank: Rank, op: Charge) -> float:
            return float(op.bytes)

    trace = queue(client, serve, 2, timing=ByBytes(), handling=Handling(threads=2))
    assert [answer(trace, worker) for worker in range(2)] == [3.0, 3.0]


# --- receives in order ----------------------------------------------------------------------------------------------


def arrivals_of(
    workers: int, busy_s: float, *, waits: bool, latency_s: float = 0.0, copy_s: float = 0.0
) -> list[float]:
    """When a server that is busy at first has received the messages of all workers, sent at 0 over NICs of 1000 B/s."""

    @program
    def client(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(rank(me), PAYLOAD)

    @program
    def serve(me: RankContext) -> Program[list[float]]:
        yield from Charge("other work", BYTES, where="host")
        found = []
        for _ in range(workers):
            yield from Receive()
            found.append((yield from Now()))
        return found

    handling = Handling(waits=lambda _to, nbytes: waits and nbytes > 64, copy_s=lambda *_: copy_s)
    cluster = star(0, *[1] * workers, latency_s=latency_s)
    trace = queue(
        client, serve, workers, timing=FixedTiming(work=busy_s), network=ClusterNetwork(cluster), handling=handling
    )
    return list(answer(trace, workers))


def test_shared_messages_flow_when_they_are_sent() -> None:
    """Two flows of 1000 bytes share the server's NIC of 1000 bytes a second."""
    assert arrivals_of(2, 0.5, waits=False) == pytest.approx([2.0, 2.0], rel=EXACT)


def test_the_second_message_starts_when_the_first_has_been_received() -> None:
    """Nothing flows until the server receives at 0.5 s; then one message after the other has the NIC alone."""
    assert arrivals_of(2, 0.5, waits=True) == pytest.approx([1.5, 2.5], rel=EXACT)
    assert arrivals_of(3, 5.0, waits=True) == pytest.approx([6.0, 7.0, 8.0], rel=EXACT)


def test_receives_that_match_at_one_time_are_served_in_their_order() -> None:
    """A server that has started two receives: one message after the other has the NIC."""

    @program
    def client(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(rank(me), PAYLOAD)

    @program
    def serve(me: RankContext) -> Program[list[float]]:
        receives = []
        for source in me.workers:
            receives.append((yield from Start(Receive(source))))
        found = []
        for one in receives:
            yield from Wait(one)
            found.append((yield from Now()))
        return found

    handling = Handling(waits=lambda _to, nbytes: nbytes > 64)
    network = ClusterNetwork(star(0, 1, 1))
    trace = queue(client, serve, 2, timing=FixedTiming(), network=network, handling=handling)
    assert answer(trace, 2) == pytest.approx([1.0, 2.0], rel=EXACT)


def test_a_rendezvous_takes_three_latencies() -> None:
    """Announcement, answer, bytes: 3 α + n β; if the server is busy, the announcement is there already."""
    alpha_s = 0.125
    assert arrivals_of(1, 0.0, waits=True, latency_s=0.125) == pytest.approx([3 * alpha_s + 1.0], rel=EXACT)
    assert arrivals_of(1, 2.0, waits=True, latency_s=0.125) == pytest.approx([2.0 + 2 * alpha_s + 1.0], rel=EXACT)


def test_the_copy_of_a_message_that_waits_runs_while_it_arrives() -> None:
    """Shared: the copy follows the arrival. Rendezvous: the slower of the two determines the time."""
    assert arrivals_of(1, 0.0, waits=False, copy_s=0.25) == pytest.approx([1.25], rel=EXACT)
    assert arrivals_of(1, 0.5, waits=True, copy_s=0.25) == pytest.approx([1.5], rel=EXACT)
    assert arrivals_of(1, 0.5, waits=True, copy_s=4.0) == pytest.approx([4.5], rel=EXACT)


def test_a_cancelled_receive_leaves_the_message_to_the_next_one() -> None:
    """The transfer that a cancelled receive has started continues."""

    @program
    def client(me: RankContext, state: Replica) -> Program[None]:
        yield from Send(rank(me), PAYLOAD)

    @program
    def serve(me: RankContext) -> Program[float]:
        first = yield from Start(Receive())
        yield from Charge("other work", BYTES, where="host")
        assert (yield from Cancel(first))
        second = yield from Start(Receive())
        message = yield from Wait(second)
        assert (message.value == PAYLOAD).all()
        return (yield from Now())

    handling = Handling(waits=lambda _to, nbytes: nbytes > 64)
    network = ClusterNetwork(star(0, 1))
    trace = queue(client, serve, 1, timing=FixedTiming(work=0.25), network=network, handling=handling)
    assert answer(trace, 1) == pytest.approx(1.0, rel=EXACT)


# --- methods ---------------------------------------------------------------------------------------------------------

WITH_SERVER = [name for name in METHODS if find(name).has_server]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("name", WITH_SERVER)
def test_every_method_with_a_server(name: str, waits: bool, threads: int) -> None:
    """It ends, with as many updates as always; a deterministic method has the same weights, bit for bit."""
    method = built(name)
    job = job_of(method, nodes=nodes_for(method), steps=12)
    timing = FixedTiming(compute=lambda rank, step: 1.0 + 0.25 * rank + 0.125 * step, work=0.5)
    handling = Handling(copy_s=lambda *_: 0.25, waits=lambda *_: waits, threads=threads)

    def run(handling: Handling) -> Trace:
        network = ClusterNetwork(star(*map(len, nodes_for(method)), latency_s=0.015625))
        return simulate_job(job, timing, network, Schedule(1), hosts=HostCosts(handling=handling))

    one, other = run(NO_HANDLING), run(handling)
    assert len(one.updates) > 0
    if Guarantee.DETERMINISTIC in method.guarantees:
        assert len(one.updates) == len(other.updates)
        assert (one.weights == other.weights).all()
    times_s = [row.time_s for row in other.updates if row.rank == other.updates[-1].rank]
    assert times_s == sorted(times_s)
    assert max(row.time_s for row in other.updates) <= other.wall_s
    assert np.isfinite(other.weights).all()


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_server_on_each_node_moves_as_many_bytes_as_a_ring(nodes: int) -> None:
    """A step of `sync-sgd-ps` on P nodes whose links carry B bytes a second, without latencies, and free inside nodes.

    The node of a single server receives P − 1 gradients of n bytes and sends as many weights: 2 (P − 1) n / B. With a
    server on each node, n / P of them are on each: 2 (P − 1)/P n / B, as in a ring all-reduce.
    """
    size, compute_s = 120, 1.0

    def step_s(servers: int) -> float:
        job = job_of(SyncSgdPs(servers=servers), nodes, steps=3, learner=Layers(size))
        network = ClusterNetwork(replace(star(*[1] * nodes, local_bytes_per_s=1e15), servers=servers))
        trace = simulate_job(job, FixedTiming(compute=compute_s), network, Schedule(every=1))
        *_, before, last = trace.snapshots
        return last.time_s - before.time_s

    whole_s = 2 * (nodes - 1) * 8 * size / 1000.0
    assert step_s(1) == pytest.approx(compute_s + whole_s, rel=EXACT)
    assert step_s(nodes) == pytest.approx(compute_s + whole_s / nodes, rel=EXACT)


@dataclass(frozen=True)
class Layers(Bowl):
    """A bowl with twelve equal layers."""

    @property
    def layout(self) -> Layout:
        edges = np.linspace(0, self.size, 13).astype(int).tolist()
        return Layout(tuple(Layer(f"layer {start}", start, stop) for start, stop in pairwise(edges)))
