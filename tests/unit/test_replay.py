"""Replaying a record: the same weights, or a clear error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import find
from paceline.algorithms.core.errors import TimedOut
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Access, Cancel, Cell, Now, Receive, Send, Start
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Chooser, RoundRobin, Shuffled, first
from paceline.checking.replay import Recording, Replay, ReplayError, replay
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork
from paceline.testing.contract.programs import ContractProgram, vector
from tests.impatient import Impatient
from tests.support import FixedTiming, job_of

ZERO = Rank(0)


@pytest.mark.parametrize("seed", range(10))
def test_asynchronous_sgd_ends_in_the_recorded_weights(seed: int) -> None:
    """The orders differ from each other and from the replay's default one, so the test is not trivial."""
    job = job_of(find("async-sgd")(), 4, steps=40)
    recorded = AnyOrder(job).run(Shuffled(seed))
    again = replay(job, Recording.of(recorded.heard))
    np.testing.assert_array_equal(again.weights, recorded.weights)
    assert [(u.rank, u.staleness) for u in again.updates] == [(u.rank, u.staleness) for u in recorded.updates]
    assert (again.weights != AnyOrder(job).run(first).weights).any()


@dataclass(frozen=True, kw_only=True)
class ByTheClock(ContractProgram):
    """Rank 0 receives from any rank in time and decides by the clock: everything that a record must contain."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        told: list[Any] = []
        if me.rank == ZERO:
            while len([t for t in told if isinstance(t, str)]) < 4:
                try:
                    message = yield from Receive(timeout_s=1.0)
                    told.append(f"{message.source}{message.value}")
                except TimedOut:
                    told.append((yield from Now()))
        else:
            for letter in "ab":
                yield from Send(ZERO, letter)
        return told


@pytest.mark.parametrize("seed", range(10))
def test_times_and_time_outs_are_replayed(seed: int) -> None:
    job = job_of(ByTheClock(), 3, steps=1)
    recorded = AnyOrder(job).run(Shuffled(seed))
    told = recorded.states[ZERO].optimizer_state
    again = replay(job, Recording.of(recorded.heard, recorded.now_s))
    assert again.states[ZERO].optimizer_state == told


def test_time_outs_do_happen_in_those_runs() -> None:
    told = [
        AnyOrder(job_of(ByTheClock(), 3, steps=1)).run(Shuffled(seed)).states[ZERO].optimizer_state
        for seed in range(10)
    ]
    assert any(isinstance(answer, float) for answers in told for answer in answers)


@pytest.fixture
def heard() -> list[tuple[Rank, Rank | None]]:
    return [*AnyOrder(job_of(find("easgd")(), 2, steps=6)).run().heard]


def test_a_program_that_listens_to_another_has_left_the_record(heard: list[tuple[Rank, Rank | None]]) -> None:
    """EASGD's server takes its workers in turn; the record is changed to claim another order."""
    server = Rank(2)
    wrong = [(r, Rank(1) if (r, s) == (server, Rank(0)) else s) for r, s in heard]
    with pytest.raises(
        ReplayError, match=r"rank 2 \(server\) at algorithms/methods/elastic\.py:\d+ .*record is a message of rank 1"
    ):
        replay(job_of(find("easgd")(), 2, steps=6), Recording.of(wrong))


def test_a_record_that_is_too_short_is_said(heard: list[tuple[Rank, Rank | None]]) -> None:
    with pytest.raises(ReplayError, match=r"rank 2 .*next in its record is no message"):
        replay(job_of(find("easgd")(), 2, steps=6), Recording.of(heard[:5]))


def test_a_record_that_is_too_long_is_said(heard: list[tuple[Rank, Rank | None]]) -> None:
    with pytest.raises(ReplayError, match=r"rank \d ended before its record, \d messages early"):
        replay(job_of(find("easgd")(), 2, steps=4), Recording.of(heard))


@dataclass(frozen=True, kw_only=True)
class Sharing(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Access(Cell("c"), "add", vector(1.0))


def test_what_the_record_does_not_hold_is_refused() -> None:
    with pytest.raises(
        ReplayError, match=r"rank 0 \(worker\) at .*: asks for Access, whose answer is not in the record"
    ):
        replay(job_of(Sharing(), 1, steps=1), Recording({}))


def test_a_clock_that_was_not_recorded_is_said() -> None:
    job = job_of(ByTheClock(), 1, steps=1)
    with pytest.raises(ReplayError, match="asks for the time more often than its record says"):
        replay(job, Recording({ZERO: [None]}))


# --- arrival order ----------------------------------------------------------------------------------------------------


def impatient() -> Job:
    return job_of(Impatient(), 3, steps=6)


def assert_same(again: Trace, recorded: Trace) -> None:
    for rank, state in recorded.states.items():
        np.testing.assert_array_equal(again.states[rank].weights.vector, state.weights.vector)
    assert [(u.rank, u.step) for u in again.updates if u.rank == 0] == [
        (u.rank, u.step) for u in recorded.updates if u.rank == 0
    ]
    assert again.outcomes == recorded.outcomes


@pytest.mark.parametrize(
    "other_order", [lambda: first, RoundRobin, lambda: Shuffled(99)], ids=["first", "in turn", "shuffled"]
)
@pytest.mark.parametrize("seed", range(12))
def test_who_was_first_is_replayed(seed: int, other_order: Callable[[], Chooser]) -> None:
    """Gradients and receives cancelled in time, or not in time, end the same, whatever the replay's default order."""
    recorded = AnyOrder(impatient()).run(Shuffled(seed))
    assert_same(Replay(impatient(), Recording.of_run(recorded)).run(other_order()), recorded)


def test_a_replay_can_itself_be_replayed() -> None:
    recorded = AnyOrder(impatient()).run(Shuffled(5))
    again = replay(impatient(), Recording.of_run(recorded))
    assert_same(replay(impatient(), Recording.of_run(again)), recorded)


def test_a_simulated_run_of_impatient_workers_is_replayed() -> None:
    timing = FixedTiming(compute=lambda rank, step: 1.0 + 0.3 * rank + 0.7 * ((step + rank) % 3))
    network = MeasuredNetwork(lambda *_: 0.0, lambda _: 0.9)
    recorded = simulate_job(impatient(), timing, network, Schedule(1))
    kinds = {type(outcome) for outcomes in recorded.outcomes.values() for outcome in outcomes}
    assert kinds == {tuple, bool}
    assert_same(replay(impatient(), Recording.of_run(recorded)), recorded)


def test_every_kind_of_outcome_occurs_in_those_runs() -> None:
    """A gradient first, a message first, both; a `Cancel` in time and one too late: all of them must occur."""
    runs = [AnyOrder(impatient()).run(Shuffled(seed)) for seed in range(12)]
    seen = {outcome for run in runs for outcomes in run.outcomes.values() for outcome in outcomes}
    assert {(0,), (1,), (2,), (0, 1), True, False} <= seen
    assert any(lane == ".3" for run in runs for lane in run.hearers)


def ends_there(recording: Recording, recorded: Trace) -> bool:
    try:
        again = replay(impatient(), recording)
    except ReplayError:
        return False
    return all((again.states[r].weights.vector == s.weights.vector).all() for r, s in recorded.states.items())


def test_nothing_less_than_the_record_is_enough() -> None:
    """Without the lanes of receives, one takes the message of another; without the outcomes, nothing is known."""
    runs = [AnyOrder(impatient()).run(Shuffled(seed)) for seed in range(12)]
    whole = [Recording.of_run(run) for run in runs]
    assert all(map(ends_there, whole, runs))
    deaf = [dataclasses.replace(recording, hearers={}) for recording in whole]
    assert not all(map(ends_there, deaf, runs))
    with pytest.raises(ReplayError, match=r"asks for WaitFor; its record has no more answers"):
        replay(impatient(), dataclasses.replace(whole[0], outcomes={}))


def test_outcomes_of_another_program_are_said() -> None:
    recording = Recording.of_run(AnyOrder(impatient()).run(Shuffled(1)))
    for wrong, says in (((7,), "its record found"), (True, r"its record has the answer True")):
        outcomes = {lane: [wrong, *rest[1:]] for lane, rest in recording.outcomes.items()}
        with pytest.raises(ReplayError, match=says):
            replay(impatient(), dataclasses.replace(recording, outcomes=outcomes))
    longer = {lane: [*rest, True] for lane, rest in recording.outcomes.items()}
    with pytest.raises(ReplayError, match="ended before its record, 1 outcomes early"):
        replay(impatient(), dataclasses.replace(recording, outcomes=longer))


def test_an_outcome_that_does_not_come_is_said() -> None:
    """The record says that the first receive was done, and holds no message for it."""
    recording = Recording({}, outcomes={(Rank(rank), ""): [(1,)] for rank in range(3)})
    with pytest.raises(ReplayError, match=r"rank 0 .*waits for any of 3 handles.*; its record has the answer \(1,\)"):
        replay(impatient(), recording)


@program
def listening() -> Program[Any]:
    return (yield from Receive()).value


@dataclass(frozen=True, kw_only=True)
class GivesUpALane(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[bool]:
        return (yield from Cancel((yield from Start(listening()))))


def test_a_cancelled_sub_program_is_refused() -> None:
    recorded = AnyOrder(job_of(GivesUpALane(), 1, steps=1)).run()
    assert recorded.outcomes == {(ZERO, ""): [True]}
    with pytest.raises(ReplayError, match="cancels a sub-program; its progress at that time is not in the record"):
        replay(job_of(GivesUpALane(), 1, steps=1), Recording.of_run(recorded))
