"""Invariants of simulated runs (docs/invariants.md, numbers 53 to 57), for every method on random clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.job import Job
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.checking.replay import Recording, replay
from paceline.records.summary import shares
from paceline.records.tables import assemble
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork, NoCost
from paceline.simulator.runs.cost_model import links_of
from tests.clusters import star
from tests.support import FixedTiming, job_of, nodes_for
from tests.thorough import FAMILIES, examples, sampled
from tests.traffic import CountedNetwork, carried

COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=3)
COMPUTE = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9)
LATENCY = st.sampled_from([0.0, 0.01, 1.0])
STEPS = 7
EVERY_METHOD = pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
DETERMINISTIC = [name for name, method in METHODS.items() if method().deterministic]
ASYNCHRONOUS = [name for name in METHODS if name not in DETERMINISTIC and not METHODS[name].shared]


def job_on(counts: Sequence[int], name: str) -> tuple[Job, list[int]]:
    """The job with so many workers on each node, or as few and as near as the method must have them."""
    ranks, method = iter(range(sum(counts))), find(name)()
    nodes = nodes_for(method, [[next(ranks) for _ in range(count)] for count in counts])
    return job_of(method, nodes=nodes, steps=STEPS), list(map(len, nodes))


def times(compute: Sequence[float]) -> Callable[[int, int], float]:
    """The step times of all ranks, taken from one list in no simple order."""
    return lambda rank, step: compute[(3 * rank + 7 * step) % len(compute)]


def simulated(job: Job, counts: Sequence[int], compute: Sequence[float], latency_s: float) -> Trace:
    timing = FixedTiming(compute=times(compute), work=0.125, load=0.25)
    return simulate_job(job, timing, ClusterNetwork(star(*counts, latency_s=latency_s)), Schedule(every=2))


@EVERY_METHOD
@given(counts=COUNTS, compute=COMPUTE, latency_s=LATENCY, seed=st.integers(0, 99))
@examples(8, 200)
def test_a_simulated_run_keeps_its_laws(
    name: str, counts: list[int], compute: list[float], latency_s: float, seed: int
) -> None:
    job, counts = job_on(counts, name)
    trace, again = (simulated(job, counts, compute, latency_s) for _ in range(2))
    assert trace.spans == again.spans and trace.updates == again.updates
    assert (trace.wall_s, trace.heard) == (again.wall_s, again.heard)
    check_the_clock(trace, job)
    check_the_shares(trace, job)
    if job.method.deterministic:
        check_any_order(trace, job, seed)


def check_the_clock(trace: Trace, job: Job) -> None:
    """Number 53: time never decreases; no rank computes two gradients at once or works past the end; bytes add up."""
    ends = [span.end_s for span in trace.spans]
    assert ends == sorted(ends) and all(0 <= span.start_s <= span.end_s <= trace.wall_s for span in trace.spans)
    assert [update.time_s for update in trace.updates] == sorted(update.time_s for update in trace.updates)
    for rank in job.team[0].workers:
        computing = sorted((s.start_s, s.end_s) for s in trace.spans if s.rank == rank and s.activity == "compute")
        assert all(before[1] <= after[0] for before, after in pairwise(computing))
    assert sent(trace, "send") == sent(trace, "receive")


def check_the_shares(trace: Trace, job: Job) -> None:
    """Number 56, and that the share of compute is the time computed; both to the rounding of some hundred sums."""
    found = shares(assemble(trace, num_samples=64).spans, wall_s=trace.wall_s, workers=job.workers)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    assert min(found.values()) >= 0
    computed_s = sum(s.end_s - s.start_s for s in trace.spans if s.activity == "compute" and s.rank < job.workers)
    assert found["compute"] == pytest.approx(computed_s / (trace.wall_s * job.workers), abs=1e-12)


def check_any_order(trace: Trace, job: Job, seed: int) -> None:
    """Number 57 for deterministic methods, bit for bit: both interpreters reduce in rank order."""
    in_any_order = AnyOrder(job).run(Shuffled(seed))
    for activity in ("collective", "send"):
        assert sent(trace, activity) == sent(in_any_order, activity)
    for me in job.team:
        in_time, expected = trace.states[me.rank], in_any_order.states[me.rank]
        if me.role == job.method.weights_owner:
            assert in_time.step == expected.step == STEPS
        np.testing.assert_array_equal(in_time.weights.vector, expected.weights.vector)


def sent(trace: Trace, activity: str) -> int:
    return sum(span.bytes for span in trace.spans if span.activity == activity)


@examples(10, 200)
@given(compute=st.lists(st.floats(0.1, 10.0), min_size=4 * STEPS, max_size=4 * STEPS))
def test_without_message_cost_a_synchronous_step_is_the_slowest(compute: list[float]) -> None:
    """Number 54, first half (the second is in closed_form): step by step, to the rounding of a sum of seven."""
    table = np.reshape(compute, (4, STEPS))
    timing = FixedTiming(compute=lambda rank, step: float(table[rank, step]))
    trace = simulate_job(job_of(find("sync-sgd")(), 4, steps=STEPS), timing, NoCost(), Schedule(every=1))
    slowest = table.max(axis=0)
    found = np.diff([snapshot.time_s for snapshot in trace.snapshots])
    np.testing.assert_allclose(found, slowest, rtol=0, atol=1e-12 * slowest.sum())


@pytest.mark.parametrize("name", sampled(ASYNCHRONOUS, FAMILIES))
@examples(10, 200)
@given(counts=COUNTS, compute=COMPUTE, latency_s=LATENCY)
def test_a_simulated_order_replayed_ends_in_the_same_weights(
    name: str, counts: list[int], compute: list[float], latency_s: float
) -> None:
    """Number 57 for asynchronous methods: replayed in the order in which ranks heard each other, bit for bit."""
    job, counts = job_on(counts, name)
    in_time = simulated(job, counts, compute, latency_s)
    again = replay(job, Recording.of_run(in_time))
    for rank, state in in_time.states.items():
        np.testing.assert_array_equal(again.states[rank].weights.vector, state.weights.vector)
    rows = [
        sorted((u.rank, u.step, u.version_applied, u.staleness) for u in trace.updates) for trace in (in_time, again)
    ]
    assert rows[0] == rows[1]


SERVED = [name for name, method in METHODS.items() if method.has_server and name not in ("sync-easgd1", "halos")]
"""methods with messages between workers and a server only; the record does not contain receivers"""


@pytest.mark.parametrize("name", sampled(SERVED, FAMILIES))
@examples(10, 200)
@given(counts=COUNTS, compute=COMPUTE, latency_s=LATENCY)
def test_every_link_carries_what_was_sent_over_it(
    name: str, counts: list[int], compute: list[float], latency_s: float
) -> None:
    """Number 53: a port's rate over time adds up to the messages through it, to the rounding of that sum."""
    job, counts = job_on(counts, name)
    cluster = star(*counts, latency_s=latency_s)
    network = CountedNetwork(cluster)
    trace = simulate_job(job, FixedTiming(compute=times(compute)), network, Schedule(every=2))
    due = dict.fromkeys(network.carried_bytes, 0.0)
    for span in trace.spans:
        if span.activity in {"send", "receive"} and span.rank < job.workers:
            here, there = (span.rank, cluster.node_of(span.rank)), (job.workers, 0)  # the server is on node 0
            for port in way(here, there) if span.activity == "send" else way(there, here):
                due[port] += span.bytes
    assert network.carried_bytes == pytest.approx(due, rel=1e-9, abs=1e-6)
    assert carried(network) == {port: nbytes for port, nbytes in due.items() if nbytes}  # counted, so exact


def way(one: tuple[int, int], other: tuple[int, int]) -> tuple[str, str]:
    """The ports from one rank and its node to another on a star."""
    if one[1] == other[1]:
        return f"out of rank {one[0]}", f"into rank {other[0]}"
    return f"host{one[1]}>switch", f"switch>host{other[1]}"


@pytest.mark.parametrize("name", ["sync-sgd", "layerwise-sgd", "agd", "k-avg"])
@given(counts=COUNTS, compute=COMPUTE, latency_s=LATENCY)
@examples(8, 100)
def test_what_ranks_reduce_leaves_them(name: str, counts: list[int], compute: list[float], latency_s: float) -> None:
    """Number 53 for rings, whose bytes are in the record: what leaves hosts enters others."""
    job, counts = job_on(counts, name)
    network = ClusterNetwork(star(*counts, latency_s=latency_s), "ring")
    trace = simulate_job(job, FixedTiming(compute=times(compute)), network, Schedule(every=2))
    links = links_of(network)
    assert links is not None
    out, into, inside = Counter[str](), Counter[str](), 0.0
    for source, target, nbytes in zip(links.source, links.target, links.nbytes.tolist(), strict=True):
        if target == "switch":
            out[source] += nbytes
        elif source == "switch":
            into[target] += nbytes
        elif source.startswith("rank"):
            inside += nbytes
    sent = sum(span.bytes for span in trace.spans if span.activity == "collective")
    messages = sum(span.activity == "collective" for span in trace.spans)
    assert sum(out.values()) + inside == pytest.approx(sent, abs=messages)  # the record rounds to whole bytes
    assert sum(out.values()) == pytest.approx(sum(into.values()))
    if set(counts) == {1}:
        of_rank = Counter[int]()
        for span in trace.spans:
            of_rank[span.rank] += span.bytes if span.activity == "collective" else 0
        assert {f"host{rank}": pytest.approx(nbytes, abs=messages) for rank, nbytes in of_rank.items()} == dict(out)
