"""Eager SGD: its rounds, its late gradients and its limits, in every order of moves and in virtual time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method, build_team
from paceline.algorithms.core.operations import AllReduce, Send
from paceline.algorithms.core.values import GradientResult, Layout, Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.partial_collectives import EagerSgd, neighbours
from paceline.checking.anyorder import AnyOrder
from paceline.checking.check_guarantees import broken
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Shuffled
from paceline.checking.replay import Recording, replay
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import ClusterNetwork
from tests.clusters import star
from tests.exact import UnlikeBowl, ends
from tests.support import FixedTiming, job_of, staleness_table
from tests.thorough import examples

Kind = Literal["solo", "majority"]
TENTH: Any = Fraction(1, 10)
SEEDS, WORKERS, STEPS = st.integers(0, 999), st.integers(1, 5), st.integers(1, 8)
KINDS: st.SearchStrategy[Kind] = st.sampled_from(["solo", "majority"])
EVERY = st.sampled_from([1, 2, 3, 33])


def team_of(workers: int) -> Any:
    return build_team(EagerSgd(), [[Rank(rank)] for rank in range(workers)], Layout(()))


def simulated(method: Method, compute: Any, *, workers: int = 4, steps: int = 12, latency_s: float = 0.01) -> Trace:
    job = job_of(method, workers, steps=steps)
    network = ClusterNetwork(star(*[1] * workers, latency_s=latency_s))
    return simulate_job(job, FixedTiming(compute=compute, work=0.01), network, Schedule(every=1))


def uneven(seed: int, most: float = 4.0) -> Any:
    factors = np.random.default_rng(seed).uniform(1.0, most, (8, 64))
    return lambda rank, step: float(factors[rank, step])


# --- rounds ----------------------------------------------------------------------------------------------------------


@given(workers=st.integers(1, 33))
def test_neighbours_are_mutual_and_reach_everyone_in_log2_steps(workers: int) -> None:
    near = {me.rank: set(neighbours(me)) for me in team_of(workers)}
    assert all(rank in near[other] for rank, others in near.items() for other in others)
    for rank in near:
        reached = {rank}
        for _ in range((workers - 1).bit_length()):
            reached |= {other for one in reached for other in near[one]}
        assert reached == set(near)


@given(seed=SEEDS, workers=WORKERS, steps=STEPS, kind=KINDS, every=EVERY)
def test_everyone_is_in_every_round_once_and_tells_each_neighbour_once(
    seed: int, workers: int, steps: int, kind: Kind, every: int
) -> None:
    method = EagerSgd(collective=kind, sync_every=every)
    run = AnyOrder(job_of(method, workers, steps=steps))
    run.run(Shuffled(seed))
    partial = [number for number in range(steps) if (number + 1) % every]
    for me in run.job.team:
        own = [entry.op for entry in run.log if entry.move.rank == me.rank]
        assert [op.key for op in own if isinstance(op, AllReduce)] == [f"gradient {n}" for n in range(steps)]
        sent = Counter((op.to, op.value.number) for op in own if isinstance(op, Send))
        assert sent == Counter((other, number) for other in neighbours(me) for number in partial)


@given(seed=SEEDS, workers=st.integers(2, 5), steps=STEPS, kind=KINDS, every=EVERY)
def test_the_weights_are_what_the_contributions_make(
    seed: int, workers: int, steps: int, kind: Kind, every: int
) -> None:
    """Exactly: each gradient counts once, in the round in which it is recorded, and those kept count nowhere."""
    method = EagerSgd(collective=kind, sync_every=every, learning_rate=TENTH)
    run = AnyOrder(job_of(method, workers, steps=steps, learner=UnlikeBowl()))
    trace = run.run(Shuffled(seed))
    answers = [entry.answer for entry in run.log if isinstance(entry.answer, GradientResult)]
    gradients = {(one.rank, one.step): one.vector for one in answers}
    applied = {(row.rank, row.step) for row in trace.updates}
    kept = {(c.rank, c.step) for state in trace.states.values() if state.unsent for c in state.unsent.origins}
    assert applied | kept == {(rank, step) for rank in range(workers) for step in range(steps)}
    assert not applied & kept
    total = sum((gradients[one] for one in applied), 0 * run.job.learner.initial())
    for weights in ends(run):
        assert (weights == run.job.learner.initial() - TENTH * total / workers).all()
    assert broken(run.job, trace) == []


@given(seed=SEEDS, kind=KINDS, every=st.sampled_from([1, 2, 3, 5]))
@examples(20, 200)
def test_staleness_reaches_its_bound_and_no_more(seed: int, kind: Kind, every: int) -> None:
    """With a worker that is slower than many rounds of the others; solo, so that no other worker waits for it."""
    slow = 1 + seed % 3
    trace = simulated(EagerSgd(collective=kind, sync_every=every), lambda rank, _: 50.0 if rank == slow else 1.0)
    most = max(row.staleness for row in trace.updates)
    assert most <= every - 1
    if kind == "solo":
        assert most == every - 1


def test_a_slow_worker_does_not_delay_the_others_until_all_are_needed() -> None:
    """One worker needs 3 s in its first step and all others 1 s: solo rounds take 1 s each and some latencies."""
    compute = lambda rank, step: 3.0 if (rank, step) == (2, 0) else 1.0  # noqa: E731
    eager, sync = (simulated(method, compute, steps=6) for method in (EagerSgd(collective="solo"), SyncSgd()))

    def done(trace: Trace, rank: int, version: int) -> float:
        return min(u.time_s for u in trace.updates if u.rank == rank and u.version_applied == version)

    assert done(sync, 0, 0) > 3.0
    assert done(eager, 0, 0) == pytest.approx(1.0, abs=0.2)
    assert done(eager, 0, 2) == pytest.approx(3.0, abs=0.5)
    (late,) = [u for u in eager.updates if (u.rank, u.step) == (2, 0)]
    assert late.staleness in (2, 3)


@given(seed=SEEDS, kind=KINDS)
@examples(10, 100)
def test_with_uneven_times_it_keeps_its_promises_and_is_replayed(seed: int, kind: Kind) -> None:
    method = EagerSgd(collective=kind, sync_every=7)
    job = job_of(method, 4, steps=12)
    trace = simulated(method, uneven(seed))
    assert broken(job, trace) == []
    again = replay(job, Recording.of_run(trace))
    assert again.weights.tobytes() == trace.weights.tobytes()
    assert staleness_table(again) == staleness_table(trace)
    assert max(row.staleness for row in trace.updates) > 0


@pytest.mark.parametrize("kind", ["solo", "majority"])
def test_the_drawn_worker_is_in_the_middle_on_average(kind: Kind) -> None:
    """With many workers of random speed: half of the gradients are fresh in majority, few in solo."""
    fresh = list[float]()
    for seed in range(6):
        factors = np.random.default_rng(seed).uniform(1.0, 2.0, (8, 64))
        method = EagerSgd(collective=kind, sync_every=100)
        trace = simulated(
            method, lambda rank, step, f=factors: float(f[rank, step]), workers=8, steps=24, latency_s=1e-6
        )
        fresh.append(sum(row.staleness == 0 for row in trace.updates) / (8 * 24))
    assert (np.mean(fresh) > 0.4) == (kind == "majority")
    assert np.mean(fresh) > 1 / 8


# --- limits ----------------------------------------------------------------------------------------------------------


@given(workers=st.integers(1, 8), kind=KINDS, step_s=st.floats(0.1, 10.0), latency_s=st.sampled_from([1e-3, 0.1, 20.0]))
@examples(10, 100)
def test_with_equally_fast_workers_it_is_sync_sgd(workers: int, kind: Kind, step_s: float, latency_s: float) -> None:
    options: dict[str, Any] = {"workers": workers, "steps": 6, "latency_s": latency_s}
    eager = simulated(EagerSgd(collective=kind), lambda *_: step_s, **options)
    synchronous = simulated(SyncSgd(), lambda *_: step_s, **options)
    assert {row.staleness for row in eager.updates} == {0}
    assert eager.weights.tobytes() == synchronous.weights.tobytes()


# --- continuing ------------------------------------------------------------------------------------------------------


@given(seed=SEEDS, kind=KINDS, stops=st.sets(st.integers(0, 8), max_size=3), workers=st.integers(1, 4))
@examples(15, 150)
def test_a_run_in_parts_loses_no_gradient(seed: int, kind: Kind, stops: set[int], workers: int) -> None:
    job = job_of(EagerSgd(collective=kind, sync_every=4), workers, steps=9)
    parts = run_in_parts(job, sorted(stops), lambda: Shuffled(seed))
    rows = Counter((u.rank, u.step) for part in parts for u in part.updates)
    kept = [(c.rank, c.step) for state in parts[-1].states.values() if state.unsent for c in state.unsent.origins]
    assert rows + Counter(kept) == Counter((rank, step) for rank in range(workers) for step in range(9))
    assert all(0 <= u.staleness <= 3 for part in parts for u in part.updates)
    weights = [state.weights.vector.tobytes() for state in parts[-1].states.values()]
    assert len(set(weights)) == 1


def test_a_final_state_has_nothing_in_flight() -> None:
    for seed in range(20):
        trace = AnyOrder(job_of(EagerSgd(collective="solo"), 4, steps=5)).run(Shuffled(seed))
        for state in trace.states.values():
            assert (state.hearing, state.ahead, state.entered, state.step) == (None, (), 5, 5)


# --- its guarantees can fail -----------------------------------------------------------------------------------------


def guarantee(slug: str) -> Any:
    return next(one for one in METHODS["eager-sgd"].guarantees if one.slug == slug)


def test_a_round_without_a_promised_gradient_is_reported() -> None:
    method = EagerSgd(collective="majority")
    job, trace = job_of(method, 4, steps=12), simulated(method, uneven(3))
    assert list(guarantee("fresh-quorum")(job, trace)) == []
    drawn = method.promised(5, job.team[0].workers.ranks)
    trace.updates = [u for u in trace.updates if not (u.version_applied == 5 and u.rank in drawn)]
    (words,) = guarantee("fresh-quorum")(job, trace)
    assert words.startswith("the fresh gradients of round 5 are")
    assert words.endswith(f"promised that of rank {min(drawn)} at least")
    solo = replace(job, method=EagerSgd(collective="solo"))
    trace.updates = [u for u in trace.updates if u.version_applied != 6]
    assert list(guarantee("fresh-quorum")(solo, trace))[-1] == (
        "the fresh gradients of round 6 are none, promised one at least"
    )


def test_a_lost_gradient_is_reported() -> None:
    method = EagerSgd()
    job, trace = job_of(method, 4, steps=12), simulated(method, uneven(3))
    gone, *rest = trace.updates
    trace.updates = rest
    (words,) = guarantee("gradients-kept")(job, trace)
    assert words == f"the gradient of rank {gone.rank}'s step {gone.step} was neither applied nor kept"
