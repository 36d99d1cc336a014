"""Number 10 for asynchronous elastic averaging: when all messages have arrived, centre plus workers is unchanged.

If weights are sent, the reply must be the centre from which the server computes its delta. If the delta is sent, the
centre may have any staleness, because the same change is applied to the worker and, sooner or later, to the centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Gradient, Load, NextStep, Receive, RecordUpdate, Send
from paceline.algorithms.core.program import Lane, Program, Routine, program
from paceline.algorithms.core.values import Contribution, Message, Rank, Step, Weights
from paceline.algorithms.methods.async_elastic import Ask, AsyncEasgd, AsyncMeasgd, Delta, Eamsgd, landed, takes_deltas
from paceline.algorithms.methods.elastic import Exchange
from paceline.algorithms.methods.parameter_server import ServerStopped, server_of
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Adversary, Move, Shuffled, drawn
from tests.elastic import check_the_sum, exact_job, total
from tests.exact import Apart, apart
from tests.support import job_of
from tests.thorough import examples

HALF = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True)
class SendsWeights(Apart, AsyncEasgd):
    """From different places; mutations change one side."""


@dataclass(frozen=True, kw_only=True)
class ReplyAfterUpdate(SendsWeights):
    """The mistake: the worker moves towards a centre that has already moved."""

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha = self.alpha(me)
        while step := (yield from NextStep(state)):
            message = yield from Receive()
            centre = state.weights.vector + alpha * (message.value.vector - state.weights.vector)
            origin = replace(message.value.origin, version=state.weights.version)
            version = yield from RecordUpdate(Weights(centre, state.weights.version), [origin])
            state = Replica(step.number + 1, Weights(centre, version))
            yield from Send(message.source, state.weights)
        yield from goodbyes(me)
        return state


@dataclass(frozen=True, kw_only=True)
class StaleReply(SendsWeights):
    """The reply is the centre as it was one update ago; the server moves the newest."""

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        alpha, older = self.alpha(me), state.weights
        while step := (yield from NextStep(state)):
            message = yield from Receive()
            yield from Send(message.source, older)
            older = state.weights
            centre = older.vector + alpha * (message.value.vector - older.vector)
            version = yield from RecordUpdate(
                Weights(centre, older.version), [replace(message.value.origin, version=older.version)]
            )
            state = Replica(step.number + 1, Weights(centre, version))
        yield from goodbyes(me)
        return state


@program
def goodbyes(me: RankContext) -> Program[None]:
    for _ in me.workers:
        message = yield from Receive()
        yield from Send(message.source, ServerStopped())


@dataclass(frozen=True, kw_only=True)
class MovesInBetween(SendsWeights):
    """The worker takes its step before the reply comes, and then its elastic term from where it is by then."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        server, alpha = server_of(me), self.alpha(me)
        while step := (yield from NextStep(state)):
            origin = Contribution(me.rank, step.number, 0, step.samples.count)
            yield from Send(server, Exchange(state.weights.vector, origin))
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            moved = state.weights.vector - HALF * gradient.vector  # any step other than 0
            centre = (yield from Receive(server)).value
            if isinstance(centre, ServerStopped):
                return state
            pull = alpha * (moved - centre.vector)
            vector = moved - pull + HALF * gradient.vector  # the step is undone, so that only the elastic term is wrong
            state = Replica(step.number + 1, Weights(vector, state.weights.version + 1))
        return state


@dataclass(frozen=True, kw_only=True)
class ForgetsDeltas(Apart, AsyncEasgd):
    """A server that stops without waiting for promised deltas."""

    def server(self, me: RankContext, state: Replica) -> Routine[Any]:
        return forgetful(me, state)


@program
def forgetful(me: RankContext, state: Replica) -> Program[Replica]:
    while step := (yield from NextStep(state)):
        while isinstance((message := (yield from Receive())).value, Delta):
            state = yield from landed(state, message.value)
        yield from Send(message.source, state.weights)
        state = replace(state, step=step.number + 1)
    asked = 0
    while asked < len(me.workers):
        message = yield from Receive()
        if isinstance(message.value, Ask):
            asked += 1
            yield from Send(message.source, ServerStopped())
    return state


CASES: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (SendsWeights, {}),
    (SendsWeights, {"sends": "delta"}),
    (apart(AsyncMeasgd), {"momentum": HALF}),
    (apart(AsyncMeasgd), {"momentum": HALF, "sends": "delta"}),
    (apart(Eamsgd), {"momentum": HALF, "period": 1}),
    (apart(Eamsgd), {"momentum": HALF, "period": 3}),
]


@pytest.mark.parametrize(("method", "parameters"), CASES)
def test_the_sum_is_conserved(method: Callable[..., Any], parameters: dict[str, Any]) -> None:
    check_the_sum(method, **parameters)


@pytest.mark.parametrize(
    ("mutant", "parameters"),
    [(ReplyAfterUpdate, {}), (StaleReply, {}), (MovesInBetween, {}), (ForgetsDeltas, {"sends": "delta"})],
)
def test_the_mutation_is_killed(mutant: Callable[..., Any], parameters: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="the sum has moved"):
        check_the_sum(mutant, **parameters)


@pytest.mark.parametrize(("parameters", "latest"), [({"sends": "delta"}, 35), ({}, 0)])
def test_deltas_do_land_late(parameters: dict[str, Any], latest: int) -> None:
    """Without this order the property would not test stale centres: the delta of a starved worker arrives last."""
    job = exact_job(apart(AsyncEasgd), 4, 40, learning_rate=Fraction(0), elastic=Fraction(1, 5), **parameters)
    fair, starving = Shuffled(1), Adversary(Rank(0))

    def choose(ready: Sequence[Move]) -> Move:
        """Starves rank 0 after its first reply."""
        replied = any(isinstance(entry.op, Receive) and entry.move.rank == 0 for entry in run.log)
        return starving(ready) if replied else fair(ready)

    run = AnyOrder(job)
    lags = [row.staleness for row in run.run(choose).updates]
    assert max(lags) >= latest if latest else set(lags) == {0}


@given(data=st.data(), workers=st.integers(1, 4), steps=st.integers(0, 8), period=st.integers(1, 3))
def test_every_exchange_lands_once_and_every_worker_is_told_once(
    data: st.DataObject, workers: int, steps: int, period: int
) -> None:
    """The stop: promised deltas arrive, every request is answered, and an exchange has `period` gradients."""
    job = exact_job(Eamsgd, workers, steps, learning_rate=HALF, momentum=Fraction(0), period=period)
    run = AnyOrder(job)
    trace = run.run(drawn(data))
    sent = [entry.op.value for entry in run.log if isinstance(entry.op, Send)]
    assert sum(isinstance(value, ServerStopped) for value in sent) == workers
    assert sum(isinstance(value, Ask) for value in sent) == steps + workers
    deltas = [value for value in sent if isinstance(value, Delta)]
    assert [len(delta.origins) for delta in deltas] == [period] * steps
    assert sorted((row.rank, row.step) for row in trace.updates) == sorted(
        (one.rank, one.step) for delta in deltas for one in delta.origins
    )
    assert trace.states[Rank(workers)].step == steps
    assert sorted({row.version_applied for row in trace.updates}) == list(range(steps))


@pytest.mark.parametrize(("method", "parameters"), CASES)
@examples(10, 200)
@given(data=st.data(), workers=st.integers(1, 3), stops=st.sets(st.integers(0, 5), max_size=2))
def test_a_stop_on_the_way_loses_nothing(
    method: Callable[..., Any], parameters: dict[str, Any], data: st.DataObject, workers: int, stops: set[int]
) -> None:
    """Continued from its states: the sum stays, versions rise by 1, every gradient is applied once."""
    job = exact_job(method, workers, 6, learning_rate=Fraction(0), elastic=Fraction(1, 4), **parameters)
    start = {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}
    parts = run_in_parts(job, sorted(stops), lambda: drawn(data))
    assert (total(parts[-1].states) == total(start)).all()
    rows = [row for part in parts for row in part.updates]
    assert sorted({row.version_applied for row in rows}) == list(range(6))
    for rank in range(workers):
        steps = [row.step for row in rows if row.rank == rank]
        assert steps == list(range(len(steps)))


class Workers:
    """Workers that send deltas, as their server sees them: each asks, and after the reply sends a delta and asks again.

    Messages of a sender arrive in their order. A worker may die after any message; its death is reported after that
    one.
    """

    def __init__(self, data: st.DataObject, count: int) -> None:
        self.data = data
        self.under_way: dict[Rank, list[Any]] = {Rank(rank): [Ask()] for rank in range(count)}
        self.dead, self.told = set[Rank](), set[Rank]()
        self.deltas = 0
        """sent so far"""

    def hear(self, rank: Rank, value: Any) -> None:
        """A message from the server."""
        if isinstance(value, ServerStopped):
            self.told.add(rank)
            return
        living = len(self.under_way.keys() - self.dead)
        if rank in self.dead or (living > 1 and self.data.draw(st.booleans(), label=f"{rank} dies before its delta")):
            self.dead.add(rank)
            return
        self.under_way[rank].append(Delta(np.zeros(4), ()))
        self.deltas += 1
        if living > 1 and self.data.draw(st.booleans(), label=f"{rank} dies after its delta"):
            self.dead.add(rank)
        else:
            self.under_way[rank].append(Ask())

    def speak(self) -> Message | PeerFailed:
        """Returns the next message to the server."""
        heard = [rank for rank, values in self.under_way.items() if values or rank in self.dead]
        assert heard, "the server waits for a message that no worker will send"
        rank = self.data.draw(st.sampled_from(heard), label="heard")
        if self.under_way[rank]:
            return Message(rank, self.under_way[rank].pop(0))
        del self.under_way[rank]
        self.dead.remove(rank)
        return PeerFailed(f"rank {rank} died", rank)


@given(data=st.data(), count=st.integers(1, 4), steps=st.integers(0, 6))
def test_the_server_waits_for_every_delta_of_the_living_and_for_none_of_the_dead(
    data: st.DataObject, count: int, steps: int
) -> None:
    """It would hang if it waited for dead workers, and leave a delta behind if it ended too early."""
    job = job_of(AsyncEasgd(sends="delta"), count)
    (me,) = (me for me in job.team if me.role == "server")
    workers, begun, applied = Workers(data, count), 0, 0
    lane = Lane(takes_deltas(me, job.method.begin(me, job.learner.initial())))
    op = lane.advance()
    while op is not None:
        answer: Any = None
        match op:
            case NextStep():
                answer = Step(begun, job.samples(me, begun)) if begun < steps else None
                begun += 1
            case Receive():
                answer = workers.speak()
            case Send(to, value):
                workers.hear(to, value)
            case RecordUpdate():
                answer = applied = applied + 1
        op = lane.advance(None, answer) if isinstance(answer, PeerFailed) else lane.advance(answer)
    living = workers.under_way.keys() - workers.dead
    assert living == workers.told
    assert not any(workers.under_way[rank] for rank in living)
    waiting = sum(isinstance(value, Delta) for rank in workers.dead for value in workers.under_way[rank])
    assert applied == workers.deltas - waiting
