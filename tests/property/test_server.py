"""Invariants of parameter servers (numbers as in docs/invariants.md), in every order of moves.

Number 21 is in test_limits, 25, 27 and 28 are in closed_form/test_waiting, 26 in
closed_form/test_softsync_published, those on time in closed_form/test_waiting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import pi, sin
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.compression import Cast
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext, Replica, build_team
from paceline.algorithms.core.operations import Gradient, Receive, RecordUpdate, Send
from paceline.algorithms.core.values import Contribution, Rank, Samples, Weights
from paceline.algorithms.methods.parameter_server import (
    AsyncMsgd,
    AsyncSgd,
    DcAsgd,
    Push,
    ServerStopped,
    Softsync,
    SyncSgdPs,
    damped,
)
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.algorithms.methods.ssp import Downpour, Packet
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Adversary, Chooser, Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.exact import ExactBowl, applied, exact_run
from tests.support import Bowl, FixedTiming, Noise, Vector, job_of, staleness_table
from tests.thorough import examples

Make = Callable[..., Any]
"""makes a method from its number of workers, a number from 1 to it, and more hyper-parameters"""
RATE = Fraction(1, 10)


def exactly(kind: Make, **numbers: Callable[[int, int], Any]) -> Make:
    """A method of fractions; `numbers` say how a hyper-parameter follows from workers and the number drawn."""

    def make(workers: int, number: int, **more: Any) -> Any:
        return kind(learning_rate=RATE, **{name: follows(workers, number) for name, follows in numbers.items()}, **more)

    return make


SERVERS: dict[str, Make] = {
    "sync-sgd-ps": exactly(SyncSgdPs),
    "async-sgd": exactly(AsyncSgd),
    "async-msgd": exactly(AsyncMsgd, momentum=lambda *_: Fraction(1, 2)),
    "softsync": exactly(Softsync, n=lambda _, number: number),
    "k-batch-async": exactly(KBatchAsync, k=lambda _, number: number + 1),
    "k-async": exactly(KAsync, k=lambda _, number: number),
    "k-sync": exactly(KSync, k=lambda _, number: number),
    "backup-workers": exactly(BackupWorkers, backups=lambda _, number: number - 1),
    "dc-asgd": exactly(DcAsgd, compensation=lambda *_: Fraction(1, 25), square_decay=lambda *_: Fraction(1, 2)),
}
CREWS = st.integers(1, 4).flatmap(lambda workers: st.tuples(st.just(workers), st.integers(1, workers)))
"""workers, and a number from 1 to it"""
ORDERS: st.SearchStrategy[Chooser] = st.one_of(
    st.builds(Shuffled, st.integers(0, 2**16)), st.builds(Adversary, st.integers(0, 3).map(Rank))
)
"""any order, or an order that starves one worker"""


WORKERS, STEPS = st.integers(1, 4), st.integers(0, 6)
EVERY_SERVER = pytest.mark.parametrize("name", SERVERS)


def by_version(rows: Sequence[Any]) -> dict[int, list[Any]]:
    """The rows of each update."""
    found: dict[int, list[Any]] = defaultdict(list)
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


@EVERY_SERVER
@examples(20, 240)
@given(order=ORDERS, team=CREWS, steps=STEPS)
def test_messages_are_conserved_and_versions_rise_by_1(
    name: str, order: Chooser, team: tuple[int, int], steps: int
) -> None:
    """Number 19 and the declared guarantees, in random orders and with one worker starved."""
    run = exact_run(SERVERS[name](*team), team[0], steps, order, ExactBowl())
    check_messages(run, steps)
    check_updates(run, steps)


# --- numbers 22 and 24: lags are a matter of counting ----------------------------------------------------------------


@EVERY_SERVER
def test_one_worker_has_no_lag(name: str) -> None:
    """Number 22: push, then pull. Where an update takes two gradients, both are of the weights that it changes."""
    run = exact_run(SERVERS[name](1, 1), 1, 6, Shuffled(0), ExactBowl())
    assert {row.staleness for row in run.trace.updates} == {0}


def pulled_last(rows: Sequence[Any], *, waits: bool) -> dict[Rank, int]:
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
    rows = exact_run(method, workers, steps, order, ExactBowl()).trace.updates
    last = pulled_last(rows, waits=not method.prompt)
    after = sum(steps - last.get(Rank(rank), 0) for rank in range(workers))
    own = 1 if method.prompt else method.needed(workers)
    assert sum(row.staleness for row in rows) + after == (workers - own) * steps


# --- numbers 20 and 23: arithmetic -----------------------------------------------------------------------------------

DIVISORS: dict[str, Callable[[int], int]] = {
    "none": lambda _: 1,
    "inverse": lambda lag: lag or 1,
    "inverse-plus-one": lambda lag: lag + 1,
    "exponential": lambda lag: 2**lag,
}
"""η / η(τ), implemented again"""


DAMPED = ["async-sgd", "async-msgd", "softsync", "k-async", "k-batch-async"]
ARITHMETIC = [
    *((name, SERVERS[name](1, 1).damping if name in DAMPED else "none") for name in SERVERS if name != "dc-asgd"),
    *((name, way) for name in ("async-sgd", "softsync", "k-async") for way in list(DIVISORS)[1:]),
]


@pytest.mark.parametrize(("name", "damping"), dict.fromkeys(ARITHMETIC))
@examples(15, 160)
@given(order=ORDERS, crew=CREWS, steps=STEPS)
def test_the_servers_weights_are_the_start_less_what_was_applied(
    name: str, damping: str, order: Chooser, crew: tuple[int, int], steps: int
) -> None:
    """Number 20: from the pushes in the log and the inputs of each update, by fractions, to the last digit.

    With momentum to 1e-12 of numbers about 10: a velocity begins as the float 0.
    """
    more: Any = {} if damping == "none" else {"damping": damping, "damping_base": Fraction(2)}
    method = SERVERS[name](*crew, **more)
    run = exact_run(method, crew[0], steps, order, ExactBowl())
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
        assert (abs(update.weights.vector - x) <= (1e-12 if method.momentum else 0)).all()


def test_the_two_forms_of_damping_differ_at_1() -> None:
    """Number 23: α/τ treats τ = 0 and τ = 1 alike, α/(τ + 1) does not; both are α at 0 and below it from 2 on."""
    one, third = Fraction(1), Fraction(1, 3)
    base: Any = Fraction(3)
    assert [damped(one, lag, "inverse") for lag in range(4)] == [1, 1, one / 2, third]
    assert [damped(one, lag, "inverse-plus-one") for lag in range(4)] == [1, one / 2, third, one / 4]
    assert [damped(one, lag, "exponential", base) for lag in range(4)] == [1, third, third**2, third**3]


# --- Downpour SGD: pushes, fetches and local steps --------------------------------------------------------------------


PERIOD, CREW, PUSHES = st.integers(1, 4), st.integers(1, 3), st.integers(0, 6)
ANSWERS: list[Literal["after", "before"]] = ["after", "before"]
RATE_OF_PUSHES = Fraction(1, 10)


def poured(choose: Chooser, workers: int, steps: int, **options: Any) -> AnyOrder:
    method: Any = Downpour(learning_rate=RATE_OF_PUSHES, **options)  # type: ignore[arg-type]
    return exact_run(method, workers, steps, choose, ExactBowl())


@given(order=ORDERS, workers=CREW, steps=PUSHES, n_push=PERIOD, n_fetch=PERIOD, answer=st.sampled_from(ANSWERS))
def test_the_server_subtracts_the_sums_of_the_gradients(
    order: Chooser, workers: int, steps: int, n_push: int, n_fetch: int, answer: Literal["after", "before"]
) -> None:
    """Exactly: every update is that of n_push successive gradients of one worker, each counted once."""
    run = poured(order, workers, steps, n_push=n_push, n_fetch=n_fetch, answer=answer)
    gradients = {
        (entry.move.rank, entry.answer.step): entry.answer for entry in run.log if isinstance(entry.op, Gradient)
    }
    expected: Any = ExactBowl().initial()
    for update in applied(run, Rank(workers)):
        origins = [(one.rank, one.step) for one in update.inputs]
        rank, first = origins[0]
        assert first % n_push == 0
        assert origins == [(rank, first + number) for number in range(n_push)]
        assert [one.version for one in update.inputs] == [gradients[key].version for key in origins]
        expected = expected - RATE_OF_PUSHES * sum(gradients[key].vector for key in origins)
        assert (update.weights.vector == expected).all()
    assert len({(row.rank, row.step) for row in run.trace.updates}) == steps * n_push


@given(order=ORDERS, steps=PUSHES, n_push=PERIOD, n_fetch=PERIOD, local=st.sampled_from([None, 0, Fraction(1, 3)]))
def test_local_steps_and_fetched_weights(order: Chooser, steps: int, n_push: int, n_fetch: int, local: Any) -> None:
    """Each gradient is computed at the last fetched weights, minus the local steps since, exactly."""
    run = poured(order, 2, steps, n_push=n_push, n_fetch=n_fetch, local_learning_rate=local)
    eta = RATE_OF_PUSHES if local is None else local
    for rank in (Rank(0), Rank(1)):
        held: Any = ExactBowl().initial()
        for entry in run.log:
            if entry.move.rank != rank or entry.op is None:
                continue
            if isinstance(entry.op, Receive) and isinstance(entry.answer.value, Weights):
                held = entry.answer.value.vector
            elif isinstance(entry.op, Gradient):
                assert (entry.op.weights.vector == held).all()
                held = held - eta * entry.answer.vector


@pytest.mark.parametrize(("answer", "lag"), [("after", 0), ("before", 1)])
def test_the_answer_holds_ones_own_push_or_not(answer: Literal["after", "before"], lag: int) -> None:
    """With one worker, an answer from before its push is one update old when the next push lands."""
    run = poured(Shuffled(0), 1, 5, n_push=2, n_fetch=2, answer=answer)
    assert [row.staleness for row in run.trace.updates] == [0, 0] + [lag] * 8


@given(order=ORDERS, workers=CREW, steps=PUSHES, n_push=PERIOD, n_fetch=PERIOD)
def test_messages_are_conserved(order: Chooser, workers: int, steps: int, n_push: int, n_fetch: int) -> None:
    """Number 19: applied and stored pushes together are those sent, and every worker gets one final reply."""
    run = poured(order, workers, steps, n_push=n_push, n_fetch=n_fetch)
    sent = Counter(
        entry.move.rank
        for entry in run.log
        if isinstance(entry.op, Send) and isinstance(entry.op.value, Packet) and entry.op.value.origins
    )
    taken = Counter(update.inputs[0].rank for update in applied(run, Rank(workers)))
    kept = Counter(rank for rank, packet in run.trace.states[Rank(workers)].pending if packet.origins)
    assert sent == taken + kept
    goodbyes = [
        entry.op.to for entry in run.log if isinstance(entry.op, Send) and isinstance(entry.op.value, ServerStopped)
    ]
    assert sorted(goodbyes) == list(range(workers))


# --- number 20 for dc-asgd, and what compensation does to staleness ---------------------------------------------------


@given(order=ORDERS, workers=CREW, steps=st.integers(0, 5))
def test_the_servers_weights_follow_from_what_was_applied(order: Chooser, workers: int, steps: int) -> None:
    """Number 20, exactly: b_i is looked up among the server's versions, by the version that the gradient names."""
    run = exact_run(SERVERS["dc-asgd"](workers, 1), workers, steps, order, ExactBowl())
    pushes = [e.op.value for e in run.log if isinstance(e.op, Send) and isinstance(e.op.value, Push)]
    sent = {(push.origin.rank, push.origin.step): push.vector for push in pushes}
    versions = [run.job.learner.initial()]
    for update in applied(run, Rank(workers)):
        (source,) = update.inputs
        g, moved = sent[source.rank, source.step], versions[-1] - versions[source.version]
        versions.append(versions[-1] - RATE * (g + Fraction(1, 25) * g * g * moved))
        assert (update.weights.vector == versions[-1]).all()


@given(seed=st.integers(0, 99), stops=st.sets(st.integers(0, 8), max_size=3))
def test_what_it_remembers_survives_a_stop(seed: int, stops: set[int]) -> None:
    """One worker is a deterministic run, backups or not: stopped and entered again it ends in the same weights."""
    job = job_of(DcAsgd(adaptive=True, compensation=2.0, momentum=0.5), 1, steps=9)
    whole, *_, last = (run_in_parts(job, [], lambda: Shuffled(0))[0], *run_in_parts(job, sorted(stops)))
    np.testing.assert_array_equal(last.weights, whole.weights)
    np.testing.assert_array_equal(
        last.states[Rank(1)].optimizer_state.square, whole.states[Rank(1)].optimizer_state.square
    )


def one_step(method: Any, here: float, there: float, gradient: float) -> float:
    """Returns the decrease of the server's x for a gradient computed at `there`, applied at `here`, at a rate of 1."""
    me: RankContext = build_team(method, [[Rank(0)]], ExactBowl().layout)[1]
    before: Replica = method.begin(me, np.array([there]))
    state = Replica(1, Weights(np.array([here]), 1), before.optimizer_state)
    push = Push(np.array([gradient]), Contribution(Rank(0), 0, 0, 1))
    return here - float(method.applied(method.rule(me.layout.layers), state, [push])[0][0])


def test_where_the_square_is_the_hessian_the_error_is_of_second_order() -> None:
    """f = −log x has f' = −1/x and f'' = 1/x² = f'²: with λ = 1 the Taylor term is exact, and the remainder is O(d²).

    A quadratic cannot be used here: its Hessian is constant and the square of its gradient is not.
    """
    stale, corrected = [], []
    for d in (0.1, 0.05, 0.025):
        truth = -1 / (1 + d)
        stale.append(abs(one_step(DcAsgd(learning_rate=1.0, compensation=0.0), 1 + d, 1.0, -1.0) - truth))
        corrected.append(abs(one_step(DcAsgd(learning_rate=1.0, compensation=1.0), 1 + d, 1.0, -1.0) - truth))
    assert np.log2(np.divide(stale[:-1], stale[1:])) == pytest.approx([1, 1], abs=0.1)
    assert np.log2(np.divide(corrected[:-1], corrected[1:])) == pytest.approx([2, 2], abs=0.1)


@dataclass(frozen=True)
class Coin(Bowl):
    """Loss |w − a|² / 2 with a = 1 and −1 by turns: near the optimum, at 0, the square of the gradient is about 1."""

    def initial(self) -> Vector:
        return np.full(self.size, 0.1)

    def load(self, samples: Samples) -> Vector:
        return np.full(self.size, (-1.0) ** (samples.index * samples.workers + samples.worker))


def coins(method: Any, steps: int = 400) -> Trace:
    """Eight equal workers in turn: every gradient is seven versions old."""
    return simulate_job(job_of(method, 8, steps=steps, learner=Coin()), FixedTiming(), NoCost(), Schedule(1))


@pytest.mark.parametrize("more", [{"compensation": 1.0}, {"compensation": 1.0, "adaptive": True}])
def test_it_lessens_what_staleness_does_on_a_quadratic(more: dict[str, Any]) -> None:
    """With λ = 1 / g² = 1 the term replaces the Hessian, 1, and removes the effect of the delay where g² ≈ 1.

    At a learning rate of 0.3, between the limits 2 sin(π / (2 (2τ + 1))) of a delay of 7 and of none, asynchronous SGD
    diverges; compensated, x stays within the range η / (2 − η) that the coin alone causes in sequential SGD.
    """
    rate = 0.3
    assert 2 * sin(pi / (2 * 15)) < rate < 2
    plain, compensated = coins(AsyncSgd(learning_rate=rate)), coins(DcAsgd(learning_rate=rate, **more))
    assert {row.staleness for row in compensated.updates[8:]} == {7}
    assert np.abs(plain.weights).max() > 1000
    swing = [np.abs(shot.vector).max() for shot in compensated.snapshots[-50:]]
    assert max(swing) <= rate / (2 - rate)


# --- numbers 70 and 71: several servers -------------------------------------------------------------------------------

SEVERAL = st.integers(2, 4)
RULES: list[dict[str, Any]] = [
    {},
    {"momentum": 0.5, "nesterov": True, "weight_decay": 0.01},
    {"optimizer": "adamw", "learning_rate": 0.01},
    {"accumulate": 2, "compression": Cast()},
]


@examples(15, 120)
@given(order=ORDERS, workers=WORKERS, steps=STEPS, servers=SEVERAL, rule=st.sampled_from(RULES))
def test_synchronous_servers_have_the_weights_of_a_single_server(
    order: Chooser, workers: int, steps: int, servers: int, rule: dict[str, Any]
) -> None:
    """Number 70: every version of the weights has the same bits, in any order and with a clock."""

    def job(count: int) -> Job:
        return job_of(SyncSgdPs(servers=count, **rule), workers, steps=steps, learner=Noise())

    def versions(trace: Trace) -> list[tuple[int, int, bytes]]:
        return [(shot.version, shot.samples, shot.vector.tobytes()) for shot in trace.snapshots]

    single, several = AnyOrder(job(1)).run(order), job(servers)
    unlike = FixedTiming(compute=lambda rank, step: 1.0 + (2 * rank + step) % 3 / 7, work=0.1)
    assert versions(AnyOrder(several).run(order)) == versions(single)
    assert versions(simulate_job(several, unlike, NoCost(), Schedule(every=1))) == versions(single)
    assert staleness_table(AnyOrder(several).run(order)) == staleness_table(single)


@pytest.mark.parametrize("name", ["async-sgd", "softsync", "k-batch-async"])
@examples(20, 160)
@given(order=ORDERS, team=CREWS, steps=st.integers(0, 8), servers=SEVERAL)
def test_each_server_is_a_server_of_its_shard(
    name: str, order: Chooser, team: tuple[int, int], steps: int, servers: int
) -> None:
    """Number 71: numbers 19, 20 and 24 hold for every shard, with its own versions, exactly."""
    workers, learner = team[0], ExactBowl(size=5)
    method = SERVERS[name](*team, servers=servers, **({"damping": "none"} if name != "k-batch-async" else {}))
    run = exact_run(method, workers, steps, order, learner)
    gradients = {(e.move.rank, e.answer.step): e.answer.vector for e in run.log if isinstance(e.op, Gradient)}
    whole = run.job.learner.initial()
    for shard in run.job.team[0].shards:
        rows = [row for row in run.trace.layers if row.layer == shard.range_name]
        sizes = Counter(row.version_applied for row in rows)
        assert sizes == dict.fromkeys(range(steps), method.needed(workers)), "an update is missing or not full"
        assert max(Counter((row.rank, row.step) for row in rows).values(), default=1) == 1, "a gradient counts twice"
        for row in rows:
            whole[shard.part] -= RATE * gradients[row.rank, row.step][shard.part] / method.needed(workers)
        last = pulled_last(rows, waits=False)
        after = sum(steps - last.get(Rank(rank), 0) for rank in range(workers))
        assert sum(row.staleness for row in rows) + after == (workers - 1) * steps
    assert (run.trace.weights == whole).all()
    first = run.job.team[0].shards[0].range_name
    assert [row[1:6] for row in run.trace.updates] == [
        (row.rank, row.step, *row[4:]) for row in run.trace.layers if row.layer == first
    ]


def test_the_shards_of_a_gradient_may_have_different_staleness() -> None:
    """Otherwise number 71 would say nothing that 24 does not: servers take pushes in different orders."""
    trace = exact_run(SERVERS["async-sgd"](3, 1, servers=2), 3, 9, Shuffled(1), ExactBowl()).trace
    by_shard: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
    for row in trace.layers:
        by_shard[row.layer][row.rank, row.step] = row.staleness
    one, other = by_shard.values()
    assert any(one[key] != other[key] for key in one.keys() & other.keys())
