"""Invariants of parameter servers (numbers as in docs/invariants.md), in every order of moves, and what they must kill.

Numbers 20, 21 and 23 are in test_server_weights, 25, 27 and 28 in closed_form/test_simulator_waiting, 26 in
closed_form/test_softsync_published, those on time in closed_form/test_partial_waiting. The mutations are methods with
one mistake each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext
from paceline.algorithms.core.operations import Receive, RecordUpdate, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push, ServerStopped, Softsync
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KSync
from paceline.algorithms.methods.survivors import LivingWorkers
from paceline.algorithms.runtime.update_log import Update
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Adversary, Chooser, Shuffled, drawn
from paceline.checking.replay import Recording, replay
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.servers import CREWS, FINDING, ORDERS, SERVERS, Make, exact_run, exactly
from tests.support import FixedTiming, job_of
from tests.thorough import examples

WORKERS, STEPS = st.integers(1, 4), st.integers(0, 6)
EVERY_SERVER = pytest.mark.parametrize("name", SERVERS)


def by_version(rows: Sequence[Update]) -> dict[int, list[Update]]:
    """The rows of each update."""
    found: dict[int, list[Update]] = defaultdict(list)
    for row in rows:
        found[row.version_applied].append(row)
    return found


# --- number 19: messages ---------------------------------------------------------------------------------------------


def check_messages(run: AnyOrder, steps: int) -> None:
    """Nothing is left in flight, and every push is applied once, or was dropped as stale or by the stopped server."""
    method, workers = run.job.method, run.job.workers
    sends = [entry.op for entry in run.log if isinstance(entry.op, Send)]
    assert len(sends) == sum(isinstance(e.op, Receive) for e in run.log), "a message is never heard"
    goodbyes = [op.to for op in sends if isinstance(op.value, ServerStopped) and op.to != workers]
    assert sorted(goodbyes) == list(range(workers))
    rows, version, kept = Counter((row.rank, row.step) for row in run.trace.updates), 0, 0
    for entry in run.log:
        version += entry.move.rank == workers and isinstance(entry.op, RecordUpdate)
        if entry.move.rank == workers and isinstance(entry.op, Receive) and isinstance(entry.answer.value, Push):
            origin = entry.answer.value.origin
            late = version == steps or (origin.version < version and Guarantee.SYNCHRONOUS in method.guarantees)
            kept += rows[origin.rank, origin.step]
            assert rows[origin.rank, origin.step] == (not late), "a push is lost, or applied twice, or too late"
    assert kept == len(run.trace.updates)
    assert version == steps


def check_updates(run: AnyOrder, steps: int) -> None:
    """Versions rise by 1, no lag is negative, and the declared guarantees on updates hold."""
    method, updates = run.job.method, by_version(run.trace.updates)
    size = method.samples_per_step(1, run.job.workers)
    assert list(updates) == list(range(steps))
    assert all(row.staleness == row.version_applied - row.version_read >= 0 for row in run.trace.updates)
    assert Guarantee.FULL_UPDATES in method.guarantees
    assert {len(rows) for rows in updates.values()} <= {size}, "an update is not full"
    if Guarantee.DISTINCT_WORKERS in method.guarantees:
        assert {len({row.rank for row in rows}) for rows in updates.values()} <= {size}, "a worker is in it twice"
    if Guarantee.SYNCHRONOUS in method.guarantees:
        assert {row.staleness for row in run.trace.updates} <= {0}, "a gradient is stale"


def check_conservation(make: Make) -> None:
    """Number 19 and the declared guarantees, in random orders and with one worker starved."""

    @settings(FINDING, max_examples=30)
    @given(order=ORDERS, team=CREWS, steps=STEPS)
    def conserved(order: Chooser, team: tuple[int, int], steps: int) -> None:
        run = exact_run(make(*team), order, team[0], steps)
        check_messages(run, steps)
        check_updates(run, steps)

    conserved()


@EVERY_SERVER
def test_messages_are_conserved_and_versions_rise_by_1(name: str) -> None:
    """Number 19, for every method of the family."""
    check_conservation(SERVERS[name])


@given(data=st.data(), name=st.sampled_from(list(SERVERS)), team=CREWS, steps=st.integers(0, 3))
def test_messages_are_conserved_in_orders_that_shrink(
    data: st.DataObject, name: str, team: tuple[int, int], steps: int
) -> None:
    """Number 19 once more, move by move, so that a failure has a short trace."""
    run = exact_run(SERVERS[name](*team), drawn(data), team[0], steps)
    check_messages(run, steps)
    check_updates(run, steps)


@dataclass(frozen=True, kw_only=True)
class LeavesAtOnce(KSync):
    """Says goodbye without receiving the others' messages."""

    @program
    def farewell(self, team: LivingWorkers) -> Program[None]:
        for worker in sorted(team.living):
            yield from Send(worker, ServerStopped())


@dataclass(frozen=True, kw_only=True)
class OncePerWorker(Softsync):
    """Of a worker that is in an update twice, only the last gradient is kept."""

    @program
    def collect(
        self, me: RankContext, team: LivingWorkers, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        taken, waiting = yield from super().collect(me, team, weights)
        return list({push.origin.rank: push for push in taken}.values()), waiting


@dataclass(frozen=True, kw_only=True)
class AnswersAtOnce(KAsync):
    """A worker whose gradient is in the update continues at once."""

    prompt: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class TakesStaleOnes(BackupWorkers):
    """The first R gradients, of whatever version."""

    fresh: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class DropsFreshOnes(BackupWorkers):
    """R at the most, but one of two gradients of a worker is dropped."""

    @program
    def collect(
        self, me: RankContext, team: LivingWorkers, weights: Weights
    ) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        message = yield from Receive()
        yield from Send(message.source, weights)
        return (yield from super().collect(me, team, weights))


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (exactly(LeavesAtOnce, k=lambda _, number: number), "never heard"),
        (exactly(OncePerWorker), "lost"),
        (exactly(AnswersAtOnce, k=lambda _, number: number), "twice"),
        (exactly(TakesStaleOnes, backups=lambda _, number: number - 1), "too late"),
        (exactly(DropsFreshOnes, backups=lambda _, number: number - 1), "lost"),
    ],
    ids=["leaves at once", "once per worker", "answers at once", "takes stale ones", "drops fresh ones"],
)
def test_the_mutations_are_killed(make: Make, mistake: str) -> None:
    """Number 19 and the guarantees fail on each of the mutations that docs/invariants.md names."""
    with pytest.raises(AssertionError, match=mistake):
        check_conservation(make)


# --- numbers 22 and 24: lags are a matter of counting ----------------------------------------------------------------


@EVERY_SERVER
def test_one_worker_has_no_lag(name: str) -> None:
    """Number 22: push, then pull. Where an update takes two gradients, both are of the weights that it changes."""
    run = exact_run(SERVERS[name](1, 1), Shuffled(0), 1, 6)
    assert {row.staleness for row in run.trace.updates} == {0}


def pulled_last(rows: Sequence[Update], *, waits: bool) -> dict[Rank, int]:
    """The version that each worker pulled after its last gradient that was applied."""
    completers = {id(rows[-1]) for rows in by_version(rows).values()}
    return {row.rank: row.version_applied + (waits or id(row) in completers) for row in rows}


@pytest.mark.parametrize("name", ["async-sgd", "softsync", "k-batch-async", "k-async"])
@given(order=ORDERS, team=CREWS, steps=st.integers(0, 12))
def test_lags_and_unfinished_rounds_are_all_other_updates(
    name: str, order: Chooser, team: tuple[int, int], steps: int
) -> None:
    """Number 24: each worker sees all updates, in its lags or after its last pull.

    A worker that pulls again at once sees all but those that its own pushes completed: Σ lag + Σ_i (updates after i's
    last pull) = (λ − 1) · updates, in any order. A worker that waits sees all but those that used its gradient: (λ − K)
    · updates.
    """
    workers, method = team[0], SERVERS[name](*team)
    rows = exact_run(method, order, workers, steps).trace.updates
    last = pulled_last(rows, waits=not method.prompt)
    after = sum(steps - last.get(Rank(rank), 0) for rank in range(workers))
    own = 1 if method.prompt else method.needed(workers)
    assert sum(row.staleness for row in rows) + after == (workers - own) * steps


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("law", ["equal", "uniform", "unlike"])
def test_the_mean_lag_is_one_less_than_the_workers(workers: int, law: str) -> None:
    """Number 24 in virtual time, for any speeds; O(λ²/updates) remains, from the rounds cut off at the end.

    A worker's last round is cut off by at most (λ − 1) · (its step / the shortest step) updates of others, which is
    4 (λ − 1) here, and λ workers have one: the mean falls short by at most 4 λ (λ − 1) / updates.
    """
    updates = 2000
    drawn_s = np.random.default_rng(3).uniform(0.5, 2.0, size=(workers, updates + 2))
    times: dict[str, Any] = {
        "equal": 1.0,
        "uniform": lambda rank, step: float(drawn_s[rank, step]),
        "unlike": lambda rank, _step: 0.5 + 1.5 * rank / (workers - 1),
    }
    job = job_of(AsyncSgd(), workers, steps=updates)
    trace = simulate_job(job, FixedTiming(compute=times[law]), NoCost(), Schedule(every=updates))
    lags = [row.staleness for row in trace.updates]
    assert len(lags) == updates
    assert 0 <= (workers - 1) - np.mean(lags) <= 4 * workers * (workers - 1) / updates


# --- stopping, and orders --------------------------------------------------------------------------------------------


@EVERY_SERVER
@examples(20, 200)
@given(seed=st.integers(0, 999), team=CREWS, stops=st.sets(st.integers(0, 6), max_size=3))
def test_a_stopped_run_goes_on_where_it_stopped(name: str, seed: int, team: tuple[int, int], stops: set[int]) -> None:
    """Versions continue to rise by 1 and no gradient is applied twice, however often the server stops and starts."""
    job = job_of(SERVERS[name](*team), team[0], steps=6)
    rows = [u for part in run_in_parts(job, sorted(stops), lambda: Shuffled(seed)) for u in part.updates]
    assert list(by_version(rows)) == list(range(6))
    assert max(Counter((u.rank, u.step) for u in rows).values()) == 1
    assert all(u.staleness >= 0 for u in rows)


@EVERY_SERVER
@examples(10, 80)
@given(order=ORDERS, team=CREWS)
def test_a_replay_ends_in_the_recorded_weights(name: str, order: Chooser, team: tuple[int, int]) -> None:
    """Number 57: a replay needs only the order of the received messages and, in `k-sync`, which of two came first."""
    run = exact_run(SERVERS[name](*team), order, team[0], 4)
    again = replay(run.job, Recording.of_run(run.trace))
    assert (again.weights == run.trace.weights).all()
    assert [(u.rank, u.step, u.staleness) for u in again.updates] == [
        (u.rank, u.step, u.staleness) for u in run.trace.updates
    ]


def test_a_starved_worker_is_never_heard() -> None:
    """Guards the laws above: orders really differ, from fair to as unfair as possible."""
    starved = exact_run(SERVERS["async-sgd"](3, 1), Adversary(Rank(0)), 3, 30).trace.updates
    fair = exact_run(SERVERS["async-sgd"](3, 1), Shuffled(0), 3, 30).trace.updates
    assert Rank(0) not in {row.rank for row in starved}
    assert Rank(0) in {row.rank for row in fair}
