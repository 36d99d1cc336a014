"""Send and Receive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.errors import TimedOut
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.testing.contract.programs import Contract, ContractProgram, Interpreter, answers, vector

ZERO, ONE, TWO = Rank(0), Rank(1), Rank(2)


@dataclass(frozen=True, kw_only=True)
class FromAnyone(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[tuple[int, int]]]:
        heard = []
        if me.rank == ZERO:
            for _ in me.workers.ranks[1:]:
                message = yield from Receive()
                heard.append((int(message.source), message.value))
        else:
            yield from Send(ZERO, 10 * me.rank)
        return heard


@dataclass(frozen=True, kw_only=True)
class FromSource(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[str]]:
        heard = []
        if me.rank == ZERO:
            for source in (TWO, ONE, TWO, ONE):
                heard.append((yield from Receive(source)).value)
        else:
            yield from Send(ZERO, f"first of {me.rank}")
            yield from Send(ZERO, f"second of {me.rank}")
        return heard


@dataclass(frozen=True, kw_only=True)
class ByTag(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[tuple[str, int]]]:
        heard = []
        if me.rank == ZERO:
            for tag in ("b", "", "a"):
                message = yield from Receive(tag=tag)
                heard.append((message.tag, message.value))
        else:
            yield from Send(ZERO, 1, tag="a")
            yield from Send(ZERO, 2, tag="b")
            yield from Send(ZERO, 3)
        return heard


@dataclass(frozen=True, kw_only=True)
class LateMessage(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[str]]:
        if me.rank == ONE:
            yield from Receive(ZERO, tag="go")
            yield from Send(ZERO, "late")
            return []
        try:
            yield from Receive(ONE, timeout_s=0.01)
        except TimedOut:
            seen = ["timed out"]
        yield from Send(ONE, None, tag="go")
        return [*seen, (yield from Receive(ONE)).value]


@dataclass(frozen=True, kw_only=True)
class InTime(ContractProgram):
    """The message may arrive in time or not, depending on the interpreter; in the end it is received exactly once."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[int]:
        if me.rank == ONE:
            yield from Send(ZERO, 7)
            return 0
        try:
            message = yield from Receive(ONE, timeout_s=60.0)
        except TimedOut:
            message = yield from Receive(ONE)
        return int(message.value)


@dataclass(frozen=True, kw_only=True)
class ChangedAfterSending(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[float]]:
        if me.rank == ZERO:
            value = vector(1.0, 2.0)
            yield from Send(ONE, value)
            value *= 0
            yield from Send(ONE, None, tag="changed")
            return []
        yield from Receive(ZERO, tag="changed")
        return list((yield from Receive(ZERO)).value)


@dataclass(frozen=True, kw_only=True)
class EachOther(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[float]:
        other = Rank(1 - me.rank)
        yield from Send(other, np.full(100_000, float(me.rank)))
        return float((yield from Receive(other)).value.sum())


class MessagesContract(Contract):
    """Messages arrive once, in the order of each sender."""

    def test_from_anyone_hears_each_once_and_knows_from_whom(self, interpreter: Interpreter) -> None:
        heard, *others = answers(interpreter, FromAnyone(), workers=4)
        assert sorted(heard) == [(1, 10), (2, 20), (3, 30)]
        assert others == [[], [], []]

    def test_from_a_source_in_the_order_of_its_sends(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, FromSource(), workers=3)[0] == [
            "first of 2", "first of 1", "second of 2", "second of 1",
        ]  # fmt: skip

    def test_by_tag_leaves_other_tags_for_later(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, ByTag())[0] == [("b", 2), ("", 3), ("a", 1)]

    def test_a_receive_that_timed_out_costs_no_message(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, LateMessage())[0] == ["timed out", "late"]

    def test_a_message_in_time_is_heard(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, InTime())[0] == 7

    def test_the_value_is_the_one_at_the_time_of_sending(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, ChangedAfterSending())[1] == [1.0, 2.0]

    def test_sending_does_not_wait_for_the_receiver(self, interpreter: Interpreter) -> None:
        """Both send before either receives; the messages are too large for a socket's buffer."""
        assert answers(interpreter, EachOther()) == [100_000.0, 0.0]

    def test_the_trace_holds_bytes_and_sources(self, interpreter: Interpreter) -> None:
        from paceline.testing.contract.programs import job_of

        trace = interpreter(job_of(EachOther(), steps=1))
        assert [span.bytes for span in trace.spans if span.activity == "send"] == [800_000] * 2
        assert [span.bytes for span in trace.spans if span.activity == "receive"] == [800_000] * 2
        assert sorted(trace.heard) == [(0, 1), (1, 0)]
