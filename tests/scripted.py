"""Small programs as data, for tests of orders: each rank performs a list of actions and returns their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from paceline.algorithms.core.errors import TimedOut
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    Access,
    Cancel,
    Cell,
    Charge,
    Handle,
    Lock,
    Receive,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.testing.contract.programs import ContractProgram, number, vector

Action = tuple[Any, ...]


@program
def added(cell: str, amount: float) -> Program[float]:
    """Adds to a cell under its lock, by a read and a swap; returns the sum."""
    yield from Lock(Cell(cell))
    value = yield from Access(Cell(cell), "read")
    total = amount + (0.0 if value is None else number(value))
    yield from Access(Cell(cell), "swap", vector(total))
    yield from Unlock(Cell(cell))
    return total


@program
def heard(source: Rank | None, tag: str, timeout_s: float | None) -> Program[Any]:
    """Receives a message; returns its source and value, or "late"."""
    try:
        message = yield from Receive(source, tag, timeout_s)
    except TimedOut:
        return "late"
    return int(message.source), message.value


@program
def relayed(source: Rank | None, to: Rank) -> Program[Any]:
    """Receives a message and sends its value on."""
    message = yield from Receive(source)
    yield from Send(to, ("relayed", message.value))
    return int(message.source), message.value


@dataclass(frozen=True, kw_only=True)
class Script(ContractProgram):
    """Each rank performs its actions; its result is the list of their answers."""

    actions: tuple[tuple[Action, ...], ...]

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        return Replica(1, state.weights, (yield from self.body(me, Step(0, None), state)))  # type: ignore[arg-type]

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        answers: list[Any] = []
        handles: list[Handle[Any]] = []
        for index, (kind, *rest) in enumerate(self.actions[me.rank]):
            match kind:
                case "send":
                    yield from Send(rest[0], (int(me.rank), index), *rest[1:])
                case "receive":
                    answers.append((yield from heard(rest[0], "", None)))
                case "receive or not":
                    answers.append((yield from heard(rest[0], "", 1.0)))
                case "relay":
                    handles.append((yield from Start(relayed(rest[0], rest[1]))))
                case "start receive":
                    handles.append((yield from Start(Receive(rest[0]))))
                case "start receive or not":
                    handles.append((yield from Start(heard(rest[0], "", 1.0))))
                case "start charge":
                    handles.append((yield from Start(Charge("work", 1))))
                case "start add":
                    handles.append((yield from Start(added(rest[0], 1.0 + me.rank))))
                case "add":
                    answers.append((yield from added(rest[0], 1.0 + me.rank)))
                case "wait for any" if handles:
                    arrived = yield from WaitFor(handles, min(rest[0], len(handles)))
                    answers.append([(index, str(answer)) for index, answer in arrived])
                    handles = [handle for at, handle in enumerate(handles) if at not in dict(arrived)]
                case "wait" if handles:
                    answers.append(str((yield from Wait(handles.pop(0)))))
                case "cancel" if handles:
                    answers.append((yield from Cancel(handles.pop())))
                case "lock":
                    yield from Lock(Cell(rest[0]))
                case "read":
                    value = yield from Access(Cell(rest[0]), "read")
                    answers.append(None if value is None else number(value))
                case "swap" | "add to":
                    action: Literal["swap", "add"] = "swap" if kind == "swap" else "add"
                    before = yield from Access(Cell(rest[0]), action, vector(1.0 + me.rank))
                    answers.append(None if before is None else number(before))
                case _:
                    pass
        return answers


def actions(ranks: int) -> st.SearchStrategy[Action]:
    """Actions of one of so many ranks; sends are frequent, so that few receives wait in vain."""
    others = st.sampled_from([Rank(rank) for rank in range(ranks)])
    anyone = st.sampled_from([None, None, *(Rank(rank) for rank in range(ranks))])
    cells = st.sampled_from(["x", "x", "y"])
    send = st.tuples(st.just("send"), others)
    receive = st.tuples(st.sampled_from(["receive", "receive or not", "start receive", "start receive or not"]), anyone)
    memory = st.tuples(st.sampled_from(["add", "start add", "read", "swap", "add to"]), cells)
    return st.one_of(
        send,
        send,
        receive,
        st.tuples(st.just("relay"), anyone, others),
        memory,
        st.tuples(st.just("start charge")),
        st.tuples(st.just("wait for any"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["wait", "cancel"])),
        st.tuples(st.just("lock"), cells),
    )


@st.composite
def scripts(draw: st.DrawFn, longest: int = 4) -> Script:
    """Programs of two or three ranks."""
    ranks = draw(st.integers(2, 3))
    each = st.lists(actions(ranks), max_size=longest if ranks == 2 else longest - 1).map(tuple)
    return Script(actions=tuple(draw(each) for _ in range(ranks)))
