"""Wrong programs: the interpreter reports the rank, the place, the step, and the error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.algorithms.core.errors import DeadlockError, ProgramError, RunFailed
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    OPERATIONS,
    Access,
    AllReduce,
    Barrier,
    Broadcast,
    Cancel,
    Cell,
    Handle,
    Lock,
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
from paceline.algorithms.core.values import Group, Rank, Step
from paceline.testing.contract.programs import Contract, ContractProgram, Interpreter, job_of, vector

HERE = r"testing/contract/wrong_programs\.py:\d+ in body"


@dataclass(frozen=True, slots=True)
class Teleport(Op[None]):
    """An operation that no interpreter knows."""

    to: Rank


@dataclass(frozen=True, kw_only=True)
class Unknown(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if step.number == 2:
            yield from Teleport(Rank(7))


@dataclass(frozen=True, kw_only=True)
class NoOperation(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield "Now()"  # type: ignore[misc]


@dataclass(frozen=True, kw_only=True)
class WaitsForEachOther(ContractProgram):
    """Rank 0 waits for a message that rank 1 would send after a collective that rank 0 is to enter."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if step.number < 1:
            return
        if me.rank == 0:
            yield from Receive(Rank(1), tag="ready")
        yield from AllReduce(value=vector(1.0), group=me.workers, key=f"gradient {step.number}")
        yield from Send(Rank(0), None, tag="ready")


@dataclass(frozen=True, kw_only=True)
class EndsEarly(ContractProgram):
    """One rank does not enter the barrier: it has ended."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        if me.rank == 0:
            yield from Now()
            return state
        yield from Barrier(group=me.workers, key="all")
        return state

    def body(self, me: RankContext, step: Step, state: Replica) -> Any:
        raise NotImplementedError


@program
def forgotten() -> Program[None]:
    yield from Now()


@dataclass(frozen=True, kw_only=True)
class ForgetsASubProgram(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        forgotten()  # type: ignore[unused-awaitable]
        yield from Now()


@dataclass(frozen=True, kw_only=True)
class Broken(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Now()
        raise ZeroDivisionError("by the program itself")


@dataclass(frozen=True, kw_only=True)
class StartsNothing(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Start("a word")  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class WaitsForTooMany(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        handle = yield from Start(Now())
        yield from WaitFor([handle], 2)


@dataclass(frozen=True, kw_only=True)
class WaitsForWhatItCancelled(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        handle = yield from Start(Receive())
        assert [(yield from Cancel(handle)), (yield from Cancel(handle))] == [True, False]
        yield from Wait(handle)


@dataclass(frozen=True, kw_only=True)
class UnlocksWhatItDoesNotHold(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Unlock(Cell("c"))


# --- one sentence for each mistake ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wrong(ContractProgram):
    """Requests one invalid operation."""

    op: Op[Any]

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from self.op


@dataclass(frozen=True, kw_only=True)
class ChangesTheSizeOfACell(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Access(Cell("c"), "swap", vector(1.0, 2.0))
        yield from Access(Cell("c"), "add", vector(1.0))


@dataclass(frozen=True, kw_only=True)
class UnlocksForAnother(ContractProgram):
    """Rank 1 unlocks what rank 0 of the same node has locked."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 0:
            yield from Lock(Cell("c"))
        yield from Barrier(group=me.workers, key="locked")
        if me.rank == 1:
            yield from Unlock(Cell("c"))
        yield from Barrier(group=me.workers, key="unlocked")


@dataclass(frozen=True, kw_only=True)
class StartsDifferentBarriers(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 1:
            yield from Receive(ZERO)  # so that rank 1 is the second one to enter
        else:
            yield from Start(Barrier(group=me.workers, key="left"))
            yield from Send(Rank(1), None)
            return
        yield from Start(Barrier(group=me.workers, key="right"))


ZERO = Rank(0)
PLACE = r"rank \d \(worker\)[^:]* at testing/contract/wrong_programs\.py:\d+ in body, step 0"
LINE = r"testing/contract/wrong_programs\.py:\d+ in body"
MISTAKES: list[tuple[ContractProgram, str]] = [
    (
        Wrong(op=Teleport(Rank(7))),
        "asks for Teleport(to=7), which no interpreter knows; operations are "
        + ", ".join(operation.__name__ for operation in OPERATIONS),
    ),
    (StartsNothing(), "starts 'a word'; only an operation or a program can be started"),
    (WaitsForTooMany(), "waits for 2 of 1 handles; ask for 0 to 1"),
    (Wrong(op=WaitFor([], "any")), "waits for 1 of 0 handles; ask for 0 to 0"),
    (
        WaitsForWhatItCancelled(),
        (
            "waits for Receive(source=None, tag='', timeout_s=None), started at LINE, which was cancelled; "
            "there is no answer to wait for"
        ),
    ),
    (Wrong(op=Wait(Handle(ZERO, 99))), f"uses {Handle(ZERO, 99)}, which stands for nothing that rank 0 has started"),
    (
        Wrong(op=Cancel(Handle(Rank(1), 1))),
        f"uses {Handle(Rank(1), 1)}, which stands for nothing that rank 0 has started",
    ),
    (Wrong(op=Send(Rank(9), None)), "sends to rank 9; there are ranks 0"),
    (Wrong(op=Receive(Rank(9))), "receives from rank 9; there are ranks 0"),
    (
        Wrong(op=Barrier(group=Group((Rank(1), Rank(2))), key="ours")),
        "enters Barrier 'ours' over ranks 1,2, but is no member of ranks 1,2",
    ),
    (
        Wrong(op=Broadcast(value=vector(1.0), group=Group((ZERO,)), root=Rank(1), key="w")),
        "enters Broadcast 'w' over ranks 0, whose root, rank 1, is no member of ranks 0",
    ),
    (
        Wrong(op=AllReduce(value=vector(1.0), group=Group((ZERO,)), key="g", op="max")),  # type: ignore[arg-type]
        "enters AllReduce 'g' over ranks 0 with 'max'; reductions are sum and mean",
    ),
    (
        StartsDifferentBarriers(),
        (
            "mismatched collectives: rank 1 at LINE enters Barrier 'right', where rank 0 at LINE entered "
            "Barrier 'left'; all members of a group must issue the same collectives in the same order"
        ),
    ),
    (UnlocksWhatItDoesNotHold(), "unlocks cell 'c', which it does not hold; Lock it first"),
    (UnlocksForAnother(), "unlocks cell 'c', which it does not hold; Lock it first"),
    (ChangesTheSizeOfACell(), "gives cell 'c' 8 bytes; it has 16 and keeps its size"),
    (Wrong(op=Access(Cell("c"), "add")), "gives no value to add in cell 'c'"),
    (
        Wrong(op=Access(Cell("c"), "halve", vector(1.0))),  # type: ignore[arg-type]
        "asks cell 'c' to halve; actions are read, add and swap",
    ),
]
"""each with its sentence, LINE standing for a line of this file"""
TWO_RANKS = (StartsDifferentBarriers, UnlocksForAnother)


class WrongProgramsContract(Contract):
    """Mistakes of programs are reported in the same sentences by every interpreter."""

    def test_an_unknown_operation_is_named_with_rank_line_and_step(self, interpreter: Interpreter) -> None:
        with pytest.raises(ProgramError, match=rf"rank 0 \(worker\).* at {HERE}, step 2: .*Teleport\(to=7\)"):
            interpreter(job_of(Unknown(), 1, steps=5))

    def test_something_that_is_no_operation_is_refused(self, interpreter: Interpreter) -> None:
        with pytest.raises(ProgramError, match=rf"{HERE}: yielded 'Now\(\)', which is no operation"):
            interpreter(job_of(NoOperation(), 1, steps=1))

    def test_a_deadlock_says_what_each_rank_waits_for(self, interpreter: Interpreter) -> None:
        with pytest.raises(DeadlockError) as caught:
            interpreter(job_of(WaitsForEachOther(), 2, steps=3))
        text = str(caught.value)
        receiver, member = [line for line in text.splitlines() if "rank" in line and " step " in line]
        assert re.search(rf"rank 0 \(worker\).* at {HERE}, step 1: waits .*rank 1.*'ready'", receiver)
        assert re.search(rf"rank 1 \(worker\).* at {HERE}, step 1: waits .*'gradient 1'", member)

    def test_waiting_for_a_rank_that_has_ended_is_a_deadlock(self, interpreter: Interpreter) -> None:
        with pytest.raises(DeadlockError, match=r"rank 1 \(worker\).*'all'"):
            interpreter(job_of(EndsEarly(), 2, steps=1))

    def test_a_forgotten_sub_program_is_warned_of(self, interpreter: Interpreter) -> None:
        with pytest.warns(
            RuntimeWarning, match=r"forgotten\(\) was built but never run; did you forget `yield from`\?"
        ):
            interpreter(job_of(ForgetsASubProgram(), 1, steps=1))

    def test_an_exception_of_the_program_ends_the_run(self, interpreter: Interpreter) -> None:
        # another process cannot raise in ours, so it sends its traceback
        with pytest.raises((ZeroDivisionError, RunFailed), match="by the program itself"):
            interpreter(job_of(Broken(), 1, steps=1))

    @pytest.mark.parametrize(
        ("case", "sentence"), MISTAKES, ids=lambda one: type(one).__name__ * isinstance(one, ContractProgram)
    )
    def test_each_mistake_is_told_in_the_same_sentence_everywhere(
        self, interpreter: Interpreter, case: ContractProgram, sentence: str
    ) -> None:
        """The messages of interpreters may differ only in the place at the beginning."""
        nodes = [[0, 1]] if isinstance(case, TWO_RANKS) else [[0]]
        with pytest.raises(ProgramError) as caught:
            interpreter(job_of(case, steps=1, nodes=nodes))
        message = re.sub(LINE, "LINE", re.sub(rf"^{PLACE}: ", "", caught.value.args[0]))
        assert message == sentence
