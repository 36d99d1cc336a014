"""Programs that are wrong: every interpreter says who, where, in which step, and what was wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.algorithms.core.errors import DeadlockError, ProgramError, RunFailed
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    AllReduce,
    Barrier,
    Cancel,
    Cell,
    Now,
    Op,
    Receive,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from tests.contract.cases import Case, Interpreter, vector
from tests.support import job_of

HERE = r"tests/contract/test_wrong_programs\.py:\d+ in body"


@dataclass(frozen=True, slots=True)
class Teleport(Op[None]):
    """No interpreter knows it."""

    to: Rank


@dataclass(frozen=True, kw_only=True)
class Unknown(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if step.number == 2:
            yield from Teleport(Rank(7))


def test_an_unknown_operation_is_named_with_rank_line_and_step(interpreter: Interpreter) -> None:
    with pytest.raises(ProgramError, match=rf"rank 0 \(worker\).* at {HERE}, step 2: .*Teleport\(to=7\)"):
        interpreter(job_of(Unknown(), 1, steps=5))


@dataclass(frozen=True, kw_only=True)
class NoOperation(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield "Now()"  # type: ignore[misc]


def test_something_that_is_no_operation_is_refused(interpreter: Interpreter) -> None:
    with pytest.raises(ProgramError, match=rf"{HERE}: yielded 'Now\(\)', which is no operation"):
        interpreter(job_of(NoOperation(), 1, steps=1))


@dataclass(frozen=True, kw_only=True)
class Crossed(Case):
    """Rank 0 waits for a message that rank 1 would send after a collective that rank 0 is to enter."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if step.number < 1:
            return
        if me.rank == 0:
            yield from Receive(Rank(1), tag="ready")
        yield from AllReduce(value=vector(1.0), group=me.workers, key=f"gradient {step.number}")
        yield from Send(Rank(0), None, tag="ready")


def test_a_deadlock_says_what_each_rank_waits_for(interpreter: Interpreter) -> None:
    with pytest.raises(DeadlockError) as caught:
        interpreter(job_of(Crossed(), 2, steps=3))
    text = str(caught.value)
    receiver, member = [line for line in text.splitlines() if "rank" in line and " step " in line]
    assert re.search(rf"rank 0 \(worker\).* at {HERE}, step 1: waits .*rank 1.*'ready'", receiver)
    assert re.search(rf"rank 1 \(worker\).* at {HERE}, step 1: waits .*'gradient 1'", member)


@dataclass(frozen=True, kw_only=True)
class EndsEarly(Case):
    """One rank does not come to the barrier: it has ended."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        if me.rank == 0:
            yield from Now()
            return state
        yield from Barrier(group=me.workers, key="all")
        return state

    def body(self, me: RankContext, step: Step, state: Replica) -> Any:
        raise NotImplementedError


def test_waiting_for_a_rank_that_has_ended_is_a_deadlock(interpreter: Interpreter) -> None:
    with pytest.raises(DeadlockError, match=r"rank 1 \(worker\).*'all'"):
        interpreter(job_of(EndsEarly(), 2, steps=1))


@program
def forgotten() -> Program[None]:
    yield from Now()


@dataclass(frozen=True, kw_only=True)
class Stateless(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        forgotten()  # type: ignore[unused-awaitable]
        yield from Now()


def test_a_forgotten_sub_program_is_warned_of(interpreter: Interpreter) -> None:
    with pytest.warns(RuntimeWarning, match=r"forgotten\(\) was built but never run; did you forget `yield from`\?"):
        interpreter(job_of(Stateless(), 1, steps=1))


@dataclass(frozen=True, kw_only=True)
class Broken(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Now()
        raise ZeroDivisionError("by the program itself")


def test_an_exception_of_the_program_ends_the_run(interpreter: Interpreter) -> None:
    # a process of its own cannot raise in ours: it leaves its traceback
    with pytest.raises((ZeroDivisionError, RunFailed), match="by the program itself"):
        interpreter(job_of(Broken(), 1, steps=1))


@dataclass(frozen=True, kw_only=True)
class StartsNothing(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Start("a word")  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class WaitsForTooMany(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        handle = yield from Start(Now())
        yield from WaitFor([handle], 2)


@dataclass(frozen=True, kw_only=True)
class WaitsForWhatItCancelled(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        handle = yield from Start(Receive())
        assert [(yield from Cancel(handle)), (yield from Cancel(handle))] == [True, False]
        yield from Wait(handle)


@dataclass(frozen=True, kw_only=True)
class UnlocksWhatItDoesNotHold(Case):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Unlock(Cell("c"))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (StartsNothing(), "starts 'a word'; only an operation or a program can be started"),
        (WaitsForTooMany(), "waits for 2 of 1 handles; give no more"),
        (WaitsForWhatItCancelled(), "cancelled"),
        (UnlocksWhatItDoesNotHold(), "unlocks cell 'c'"),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Case) else "",
)
def test_nonsense_is_a_program_error_that_names_rank_line_and_step(
    interpreter: Interpreter, case: Case, words: str
) -> None:
    with pytest.raises(ProgramError, match=rf"rank 0 \(worker\).* at {HERE}, step 0: .*{words}"):
        interpreter(job_of(case, 1, steps=1))
