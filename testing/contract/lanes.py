"""Start, Wait, WaitFor and Cancel, sub-programs as lanes, and shared state of lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from paceline.algorithms.core.errors import ProgramError, TimedOut
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    Access,
    AllReduce,
    Cancel,
    Cell,
    Handle,
    LayerGradients,
    Load,
    Lock,
    Now,
    Receive,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Rank, Step
from paceline.checking.replay import Recording, replay
from paceline.testing.contract.programs import Contract, ContractProgram, Interpreter, answers, job_of, number, vector

ZERO = Rank(0)


@dataclass(frozen=True, kw_only=True)
class TwoReductions(ContractProgram):
    """Both are in flight before either is waited for, and they are waited for in reverse order."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[tuple[float, float, float]]:
        first = yield from Start(AllReduce(value=vector(me.rank), group=me.workers, key="a", op="sum"))
        second = yield from Start(AllReduce(value=vector(10 * me.rank), group=me.workers, key="b", op="sum"))
        direct = yield from AllReduce(value=vector(100 * me.rank), group=me.workers, key="c", op="sum")
        late, early = (yield from Wait(second)), (yield from Wait(first))
        return number(early), number(late), number(direct)


@program
def sum_of(value: float, group: Group, key: str) -> Program[float]:
    total = yield from AllReduce(value=vector(value), group=group, key=key, op="sum")
    again = yield from AllReduce(value=total, group=group, key=f"{key} again", op="sum")
    return number(again)


@dataclass(frozen=True, kw_only=True)
class LanesOfCollectives(ContractProgram):
    """Sub-programs run their own collectives, in any order relative to those of the main program."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[float]]:
        lanes = []
        for lane in range(3):
            lanes.append((yield from Start(sum_of(10.0**lane, me.workers, f"lane {lane}"))))
        total = yield from sum_of(5.0, me.workers, "main")
        return [total, *[answer for _, answer in (yield from WaitFor(lanes))]]


@dataclass(frozen=True, kw_only=True)
class SomeOfThree(ContractProgram):
    """Ranks 1 and 2 send at once, rank 3 only on request; so two of three handles can be done, never the third."""

    need: Any

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        if me.rank == 3:
            yield from Receive(ZERO)
        if me.rank != ZERO:
            yield from Send(ZERO, 10 * me.rank)
            return None
        handles: list[Handle[Any]] = []
        for source in (1, 2, 3):
            handles.append((yield from Start(Receive(Rank(source)))))
        done = yield from WaitFor(handles, self.need)
        yield from Send(Rank(3), None)
        everything = yield from WaitFor(handles)
        return [(i, m.value) for i, m in done], [(i, m.value) for i, m in everything]


@dataclass(frozen=True, kw_only=True)
class CancelsAReceive(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        if me.rank == 1:
            yield from Receive(ZERO, tag="go")
            yield from Send(ZERO, "for the second")
            return None
        given_up = yield from Start(Receive(Rank(1)))
        in_time = yield from Cancel(given_up)
        yield from Send(Rank(1), None, tag="go")
        heard = yield from Start(Receive(Rank(1)))
        value = (yield from Wait(heard)).value
        return in_time, value, (yield from Cancel(heard))


@program
def failing() -> Program[float]:
    now = yield from Now()
    raise ValueError(f"at {now}")


@dataclass(frozen=True, kw_only=True)
class Failures(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[str]]:
        caught = []
        late = yield from Start(Receive(timeout_s=0.01))
        broken = yield from Start(failing())
        try:
            yield from Wait(late)
        except TimedOut:
            caught.append("TimedOut")
        try:
            yield from WaitFor([broken])
        except ValueError:
            caught.append("ValueError")
        return caught


@dataclass(frozen=True, kw_only=True)
class StrangeHandle(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Wait(Handle(me.rank, 10_000))


@dataclass(frozen=True, kw_only=True)
class SharedCell(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[Any]]:
        seen = [(yield from Access(Cell("x"), "read"))]
        seen.append((yield from Access(Cell("x"), "swap", vector(1.0))))
        seen.append((yield from Access(Cell("x"), "add", vector(2.0))))
        seen.append((yield from Access(Cell("y"), "add", vector(7.0))))
        seen.append((yield from Access(Cell("x"), "read")))
        seen.append((yield from Access(Cell("y"), "read")))
        return [None if value is None else number(value) for value in seen]


@program
def count_up(times: int) -> Program[None]:
    cell = Cell("counter")
    for _ in range(times):
        yield from Lock(cell)
        value = yield from Access(cell, "read")
        yield from Access(cell, "swap", vector(1.0) if value is None else value + vector(1.0))
        yield from Unlock(cell)


@dataclass(frozen=True, kw_only=True)
class CountsInALane(ContractProgram):
    """Two ranks of one node, two lanes each, read and write a cell in two operations; the lock makes them atomic."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[float]:
        lane = yield from Start(count_up(5))
        yield from count_up(5)
        yield from Wait(lane)
        yield from AllReduce(value=vector(0.0), group=me.workers, key="all have counted")
        return number((yield from Access(Cell("counter"), "read")))


@program
def receives_thrice() -> Program[None]:
    first = yield from Start(Receive(ZERO))
    yield from Wait(first)
    for _ in range(2):
        yield from Start(Receive(ZERO))  # neither of the two is waited for


@dataclass(frozen=True, kw_only=True)
class LeftToItself(ContractProgram):
    """The program ends while operations that it has started still start and wait; they are completed."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Any]:
        yield from Start(receives_thrice())
        for _ in range(3):
            yield from Send(ZERO, None)
        return state

    def body(self, me: RankContext, step: Step, state: Replica) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class LateTimeOut(ContractProgram):
    """The program waits for a timeout that is longer than the deadlock timeout of real runs in these tests."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[str]:
        handle = yield from Start(Receive(timeout_s=1.5))
        try:
            yield from Wait(handle)
        except TimedOut:
            return "timed out"
        return "heard"


@program
def hears_one() -> Program[Any]:
    message = yield from Start(Receive())
    return (yield from Wait(message)).value


@dataclass(frozen=True, kw_only=True)
class Listeners(ContractProgram):
    """Sub-programs receive from any rank, beside a gradient by layers; the program gets the one that finished first."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        if me.rank != ZERO:
            return (yield from Send(ZERO, int(me.rank)))
        parts = yield from LayerGradients(state.weights, (yield from Load(step.samples)))
        lanes = []
        for _ in range(2):
            lanes.append((yield from Start(hears_one())))
        never = yield from Start(Receive(ZERO))
        early = yield from WaitFor([*lanes, never], "any")
        yield from WaitFor(parts)
        return early, (yield from Cancel(never)), (yield from WaitFor(lanes))


class LanesContract(Contract):
    """Started operations and sub-programs run beside the main program."""

    def test_started_collectives_are_issued_in_the_order_of_their_starts(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, TwoReductions(), workers=3) == [(3.0, 30.0, 300.0)] * 3

    def test_lanes_keep_their_collectives_apart(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, LanesOfCollectives(), workers=2) == [[20.0, 4.0, 40.0, 400.0]] * 2

    @pytest.mark.parametrize(("need", "least"), [(2, 2), ("any", 1), (1, 1), (0, 0)])
    def test_wait_for_some_answers_all_that_are_done(self, interpreter: Interpreter, need: Any, least: int) -> None:
        done, everything = answers(interpreter, SomeOfThree(need=need), workers=4)[0]
        assert everything == [(0, 10), (1, 20), (2, 30)]
        assert len(done) >= least
        assert set(done) <= {(0, 10), (1, 20)}
        assert done == sorted(done)

    def test_cancel_says_whether_it_was_in_time_and_costs_no_message(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, CancelsAReceive())[0] == (True, "for the second", False)

    def test_a_failure_is_raised_where_it_is_waited_for(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, Failures(), workers=1) == [["TimedOut", "ValueError"]]

    def test_a_handle_that_was_not_started_is_an_error(self, interpreter: Interpreter) -> None:
        with pytest.raises(ProgramError, match="rank 0"):
            interpreter(job_of(StrangeHandle(), 1, steps=1))

    def test_access_answers_the_value_before(self, interpreter: Interpreter) -> None:
        """Each rank is a node of its own, so neither sees the other's cells."""
        assert answers(interpreter, SharedCell(), workers=2) == [[None, None, 1.0, None, 3.0, 7.0]] * 2

    def test_a_lock_lets_one_in_at_a_time(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, CountsInALane(), nodes=[[0, 1]]) == [20.0, 20.0]

    def test_what_a_program_has_started_is_completed_after_its_end(self, interpreter: Interpreter) -> None:
        assert len(interpreter(job_of(LeftToItself(), 1, steps=1)).heard) == 3

    def test_waiting_for_a_time_out_is_no_deadlock(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, LateTimeOut(), workers=1) == ["timed out"]

    def test_what_lanes_heard_and_were_told_is_replayed(self, interpreter: Interpreter) -> None:
        """Every interpreter gives lanes the same names, so that a record of any of them can be followed."""
        job = job_of(Listeners(), 3, steps=1)
        recorded = interpreter(job)
        assert {lane for (rank, _), lane in zip(recorded.heard, recorded.hearers, strict=True)} == {"/1.1", "/2.1"}
        again = replay(job, Recording.of_run(recorded))
        assert again.states[ZERO].optimizer_state == recorded.states[ZERO].optimizer_state
        assert again.outcomes == recorded.outcomes
