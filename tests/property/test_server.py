"""Invariants of parameter servers (numbers as in docs/invariants.md), in every order of moves, and what they must kill.

Number 25 is in closed_form/test_simulator_waiting, those on time in closed_form/test_partial_waiting. The mutations are
methods with one mistake each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.damping import damped
from paceline.algorithms.guarantees import Guarantee
from paceline.algorithms.ledger import Update
from paceline.algorithms.method import Me
from paceline.algorithms.operations import Applied, Receive, Send
from paceline.algorithms.partial import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.algorithms.program import Program, program
from paceline.algorithms.server import AsyncSgd, Push, Softsync, Stop, SyncSgdPs
from paceline.algorithms.values import Rank, Weights
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, Recorded, Shuffled
from paceline.checking.reentry import run_in_parts
from paceline.checking.replay import Recording, replay
from paceline.checking.strategies import drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter import simulate_job
from paceline.simulator.network import NoCost
from tests.exact import applied
from tests.servers import CREWS, ORDERS, RATE, SERVERS, Make, exact_run, exactly
from tests.support import FixedTiming, job_of

WORKERS, STEPS = st.integers(1, 4), st.integers(0, 6)
EVERY_SERVER = pytest.mark.parametrize("name", SERVERS)
DAMPED = ["async-sgd", "async-msgd", "softsync", "k-async", "k-batch-async"]
FINDING = settings(database=None, phases=[Phase.generate])  # a mutation need only be found, not made small


def by_version(rows: Sequence[Update]) -> dict[int, list[Update]]:
    """The rows of each update."""
    found: dict[int, list[Update]] = defaultdict(list)
    for row in rows:
        found[row.version_applied].append(row)
    return found


# --- number 19: messages ---------------------------------------------------------------------------------------------


def check_messages(run: AnyOrder, steps: int) -> None:
    """Nothing is left in flight, and every push is applied once, or was dropped: as stale, or by the stopped server."""
    method, workers = run.job.method, run.job.workers
    sends = [entry.op for entry in run.log if isinstance(entry.op, Send)]
    assert len(sends) == sum(isinstance(e.op, Receive) for e in run.log), "a message is never heard"
    goodbyes = [op.to for op in sends if isinstance(op.value, Stop) and op.to != workers]
    assert sorted(goodbyes) == list(range(workers))
    rows, version, kept = Counter((row.rank, row.step) for row in run.trace.updates), 0, 0
    for entry in run.log:
        version += entry.move.rank == workers and isinstance(entry.op, Applied)
        if entry.move.rank == workers and isinstance(entry.op, Receive) and isinstance(entry.answer.value, Push):
            origin = entry.answer.value.origin
            late = version == steps or (origin.version < version and Guarantee.SYNCHRONOUS in method.guarantees)
            kept += rows[origin.rank, origin.step]
            assert rows[origin.rank, origin.step] == (not late), "a push is lost, or applied twice, or too late"
    assert kept == len(run.trace.updates)
    assert version == steps


def check_updates(run: AnyOrder, steps: int) -> None:
    """Versions rise by 1, no lag is negative, and the guarantees on updates hold that the method declares."""
    method, updates = run.job.method, by_version(run.trace.updates)
    size = method.samples_per_step(run.job.batch, run.job.workers) // run.job.batch
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
    @given(order=ORDERS, crew=CREWS, steps=STEPS)
    def conserved(order: Chooser, crew: tuple[int, int], steps: int) -> None:
        run = exact_run(make(*crew), order, crew[0], steps)
        check_messages(run, steps)
        check_updates(run, steps)

    conserved()


@EVERY_SERVER
def test_messages_are_conserved_and_versions_rise_by_1(name: str) -> None:
    """Number 19, for every method of the family."""
    check_conservation(SERVERS[name])


@given(data=st.data(), name=st.sampled_from(list(SERVERS)), crew=CREWS, steps=st.integers(0, 3))
def test_messages_are_conserved_in_orders_that_shrink(
    data: st.DataObject, name: str, crew: tuple[int, int], steps: int
) -> None:
    """Number 19 once more, move by move, so that a failure tells a short story."""
    run = exact_run(SERVERS[name](*crew), drawn(data), crew[0], steps)
    check_messages(run, steps)
    check_updates(run, steps)


@dataclass(frozen=True, kw_only=True)
class LeavesAtOnce(KSync):
    """Says goodbye and does not hear the others out."""

    @program
    def farewell(self, me: Me) -> Program[None]:
        for worker in me.workers:
            yield from Send(worker, Stop())


@dataclass(frozen=True, kw_only=True)
class OncePerWorker(Softsync):
    """Of a worker that is in an update twice, only the last gradient is kept."""

    @program
    def collect(self, me: Me, weights: Weights) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        taken, waiting = yield from super().collect(me, weights)
        return list({push.origin.rank: push for push in taken}.values()), waiting


@dataclass(frozen=True, kw_only=True)
class AnswersAtOnce(KAsync):
    """Who is in the update goes on at once."""

    prompt: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class TakesStaleOnes(BackupWorkers):
    """The first R gradients, of whatever version."""

    fresh: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class DropsFreshOnes(BackupWorkers):
    """R at the most, yet one of two gradients of a worker is thrown away."""

    @program
    def collect(self, me: Me, weights: Weights) -> Program[tuple[Sequence[Push], Iterable[Rank]]]:
        message = yield from Receive()
        yield from Send(message.source, weights)
        return (yield from super().collect(me, weights))


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


# --- numbers 20 and 23: arithmetic -----------------------------------------------------------------------------------

DIVISORS: dict[str, Callable[[int], int]] = {
    "none": lambda _: 1,
    "inverse": lambda lag: lag or 1,
    "inverse-plus-one": lambda lag: lag + 1,
    "exponential": lambda lag: 2**lag,
}
"""η / η(τ), written down once more"""


def check_weights(make: Make, damping: str) -> None:
    """Number 20: from the pushes in the log and the inputs of each update, by fractions, to the last digit.

    With momentum to 1e-12 of numbers about 10: a velocity begins as the float 0.
    """
    more: Any = {} if damping == "none" else {"damping": damping, "damping_base": Fraction(2)}

    @settings(FINDING, max_examples=20)
    @given(order=ORDERS, crew=CREWS, steps=STEPS)
    def recomputed(order: Chooser, crew: tuple[int, int], steps: int) -> None:
        method = make(*crew, **more)
        run = exact_run(method, order, crew[0], steps)
        pushes = [e.op.value for e in run.log if isinstance(e.op, Send) and isinstance(e.op.value, Push)]
        sent = {(push.origin.rank, push.origin.step): push.vector for push in pushes}
        x = run.job.learner.initial()
        velocity = 0 * x
        for update in applied(run, Rank(crew[0])):
            lags = [update.weights.version - source.version for source in update.inputs]
            terms = [sent[source.rank, source.step] for source in update.inputs]
            total = sum(term / DIVISORS[damping](lag) for term, lag in zip(terms, lags, strict=True))
            velocity = Fraction(method.momentum) * velocity - RATE * total / len(terms)
            x = x + velocity
            assert (abs(update.weights.vector - x) <= (1e-12 if method.momentum else 0)).all(), "the weights are others"

    recomputed()


@pytest.mark.parametrize("name", [name for name in SERVERS if name != "dc-asgd"])  # test_compensated has that one
def test_the_servers_weights_are_the_start_less_what_was_applied(name: str) -> None:
    check_weights(SERVERS[name], SERVERS[name](1, 1).damping if name in DAMPED else "none")


@pytest.mark.parametrize("name", ["async-sgd", "softsync", "k-async"])
@pytest.mark.parametrize("damping", ["inverse", "inverse-plus-one", "exponential"])
def test_the_weights_follow_from_the_staleness_where_it_damps(name: str, damping: str) -> None:
    check_weights(SERVERS[name], damping)


@dataclass(frozen=True, kw_only=True)
class Sums(KBatchAsync):
    """The sum of the gradients, not their mean."""

    def weighed(self, push: Push, version: int) -> Any:
        return self.needed(1) * super().weighed(push, version)


@dataclass(frozen=True, kw_only=True)
class CountsFromOne(AsyncSgd):
    """The other form of the inverse: α/(τ + 1) for α/τ."""

    def weighed(self, push: Push, version: int) -> Any:
        return damped(push.vector, version - push.origin.version, "inverse-plus-one")


@pytest.mark.parametrize(
    ("make", "damping"), [(exactly(Sums, k=lambda _, number: number + 1), "none"), (exactly(CountsFromOne), "inverse")]
)
def test_wrong_arithmetic_is_killed(make: Make, damping: str) -> None:
    """Number 20 fails on a sum in place of a mean, and number 23 on the one form in place of the other."""
    with pytest.raises(AssertionError, match="the weights are others"):
        check_weights(make, damping)


def test_the_two_forms_of_damping_differ_at_1() -> None:
    """Number 23: α/τ leaves τ = 0 and τ = 1 alike, α/(τ + 1) does not; both are α at 0 and below it from 2 on."""
    one, third = Fraction(1), Fraction(1, 3)
    base: Any = Fraction(3)
    assert [damped(one, lag, "inverse") for lag in range(4)] == [1, 1, one / 2, third]
    assert [damped(one, lag, "inverse-plus-one") for lag in range(4)] == [1, one / 2, third, one / 4]
    assert [damped(one, lag, "exponential", base) for lag in range(4)] == [1, third, third**2, third**3]


# --- numbers 21 and 22: one as a case of another ---------------------------------------------------------------------


def rows_of(run: AnyOrder) -> list[tuple[int, ...]]:
    return [(row.rank, row.step, row.version_read, row.version_applied) for row in run.trace.updates]


@given(seed=st.integers(0, 999), workers=WORKERS, steps=st.integers(0, 12), momentum=st.sampled_from([0.0, 0.9]))
def test_one_gradient_an_update_is_asynchronous_sgd(seed: int, workers: int, steps: int, momentum: float) -> None:
    """Number 21: n = λ without damping, and K = 1, are async-sgd bit for bit, in the same moves."""
    plain = AnyOrder(job_of(AsyncSgd(momentum=momentum), workers, steps=steps))
    plain.run(Shuffled(seed))
    for method in (
        Softsync(n=workers, damping="none", momentum=momentum),
        KBatchAsync(k=1, momentum=momentum),
        KAsync(k=1, momentum=momentum),
    ):
        same = AnyOrder(job_of(method, workers, steps=steps))
        same.run(Recorded(entry.move for entry in plain.log))
        np.testing.assert_array_equal(same.trace.weights, plain.trace.weights)
        assert rows_of(same) == rows_of(plain)


@given(order=ORDERS, workers=WORKERS, steps=STEPS)
def test_who_waits_for_everybody_is_synchronous(order: Chooser, workers: int, steps: int) -> None:
    """Number 21: with no pull before the own gradient is applied, λ gradients an update are hardsync, exactly."""
    hard = exact_run(SyncSgdPs(rate=RATE), Shuffled(1), workers, steps)  # type: ignore[arg-type]
    for method in (KAsync(rate=RATE, k=workers), KSync(rate=RATE, k=workers), BackupWorkers(rate=RATE, backups=0)):  # type: ignore[arg-type]
        run = exact_run(method, order, workers, steps)
        assert {row.staleness for row in run.trace.updates} <= {0}
        assert (run.trace.weights == hard.trace.weights).all()


def test_1_softsync_is_not_hardsync() -> None:
    """Number 21: as many gradients in an update, but who is early has pulled the old weights again."""
    soft = exact_run(Softsync(rate=RATE, n=1), Shuffled(0), 4, 20)  # type: ignore[arg-type]
    hard = exact_run(SyncSgdPs(rate=RATE), Shuffled(0), 4, 20)  # type: ignore[arg-type]
    assert {row.staleness for row in soft.trace.updates} > {0, 1}
    assert (soft.trace.weights != hard.trace.weights).all()


@EVERY_SERVER
def test_one_worker_has_no_lag(name: str) -> None:
    """Number 22: push, then pull. Where an update takes two gradients, both are of the weights that it changes."""
    run = exact_run(SERVERS[name](1, 1), Shuffled(0), 1, 6)
    assert {row.staleness for row in run.trace.updates} == {0}


# --- number 24: lags are a matter of counting ------------------------------------------------------------------------


def pulled_last(rows: Sequence[Update], *, waits: bool) -> dict[Rank, int]:
    """The version that each worker pulled after its last gradient that was applied."""
    completers = {id(rows[-1]) for rows in by_version(rows).values()}
    return {row.rank: row.version_applied + (waits or id(row) in completers) for row in rows}


@pytest.mark.parametrize("name", ["async-sgd", "softsync", "k-batch-async", "k-async"])
@given(order=ORDERS, crew=CREWS, steps=st.integers(0, 12))
def test_lags_and_unfinished_rounds_are_all_other_updates(
    name: str, order: Chooser, crew: tuple[int, int], steps: int
) -> None:
    """Number 24, the identity behind the law: each worker sees all updates, in its lags or after its last pull.

    Whoever re-pulls at once sees all but those that its own pushes completed: Σ lag + Σ_i (updates after i's last pull)
    = (λ − 1) · updates, in any order. Whoever waits sees all but those it was in: (λ − K) · updates.
    """
    workers, method = crew[0], SERVERS[name](*crew)
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
@settings(max_examples=20)
@given(seed=st.integers(0, 999), crew=CREWS, stops=st.sets(st.integers(0, 6), max_size=3))
def test_a_stopped_run_goes_on_where_it_stopped(name: str, seed: int, crew: tuple[int, int], stops: set[int]) -> None:
    """Versions go on rising by 1 and no gradient is applied twice, however often the server stops and starts."""
    job = job_of(SERVERS[name](*crew), crew[0], steps=6)
    rows = [u for part in run_in_parts(job, sorted(stops), lambda: Shuffled(seed)) for u in part.updates]
    assert list(by_version(rows)) == list(range(6))
    assert max(Counter((u.rank, u.step) for u in rows).values()) == 1
    assert all(u.staleness >= 0 for u in rows)


@EVERY_SERVER
@settings(max_examples=10)
@given(order=ORDERS, crew=CREWS)
def test_a_replay_ends_in_the_recorded_weights(name: str, order: Chooser, crew: tuple[int, int]) -> None:
    """Number 57: who was heard when, and in `k-sync` which of two came first, is all that a replay needs."""
    run = exact_run(SERVERS[name](*crew), order, crew[0], 4)
    again = replay(run.job, Recording.of_run(run.trace))
    assert (again.weights == run.trace.weights).all()
    assert [(u.rank, u.step, u.staleness) for u in again.updates] == [
        (u.rank, u.step, u.staleness) for u in run.trace.updates
    ]


def test_a_starved_worker_is_never_heard() -> None:
    """Guards the laws above: orders really differ, from fair to as unfair as can be."""
    starved = exact_run(SERVERS["async-sgd"](3, 1), Adversary(Rank(0)), 3, 30).trace.updates
    fair = exact_run(SERVERS["async-sgd"](3, 1), Shuffled(0), 3, 30).trace.updates
    assert Rank(0) not in {row.rank for row in starved}
    assert Rank(0) in {row.rank for row in fair}
