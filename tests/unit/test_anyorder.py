"""The any-order interpreter: it explores orders, choosers choose, and its errors are clear."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS, find
from paceline.algorithms.core import operations as ops
from paceline.algorithms.core.errors import DeadlockError, InputError, ProgramError, TimedOut
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Access, Cell, Lock, Op, Receive, Send, Start, Unlock, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.algorithms.runtime.collective_matching import COLLECTIVES
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, Move, Recorded, RoundRobin, Shuffled, drawn, first
from paceline.testing.contract.programs import ContractProgram, number, vector
from tests.support import job_of, nodes_for
from tests.thorough import extra

ZERO = Rank(0)


def results(
    case: ContractProgram,
    choose: Chooser,
    workers: int = 3,
    nodes: list[list[int]] | None = None,
    deliver_at_once: bool = False,
) -> list[Any]:
    trace = AnyOrder(job_of(case, workers, steps=1, nodes=nodes), deliver_at_once=deliver_at_once).run(choose)
    return [trace.states[rank].optimizer_state for rank in sorted(trace.states)]


@dataclass(frozen=True, kw_only=True)
class Arrivals(ContractProgram):
    """Rank 1 sends and then notifies rank 2, which sends too: rank 0 may still receive from rank 2 first."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        if me.rank == 1:
            yield from Send(ZERO, None)
            yield from Send(Rank(2), None)
        elif me.rank == 2:
            yield from Receive(Rank(1))
            yield from Send(ZERO, None)
        else:
            return [(yield from Receive()).source, (yield from Receive()).source]


def test_a_later_message_of_another_may_arrive_earlier() -> None:
    orders = {tuple(results(Arrivals(), Shuffled(seed))[0]) for seed in range(30)}
    assert orders == {(1, 2), (2, 1)}


def test_delivered_at_once_messages_arrive_as_they_are_sent() -> None:
    orders = {tuple(results(Arrivals(), Shuffled(seed), deliver_at_once=True)[0]) for seed in range(30)}
    assert orders == {(1, 2)}


@dataclass(frozen=True, kw_only=True)
class MaybeLate(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[bool]:
        if me.rank == 0:
            try:
                yield from Receive(timeout_s=1e9)
            except TimedOut:
                return True
        elif me.rank == 1:
            yield from Send(ZERO, None)
        return False


def test_a_time_out_is_the_choosers_will() -> None:
    assert {results(MaybeLate(), Shuffled(seed), 2)[0] for seed in range(30)} == {False, True}
    assert results(MaybeLate(), first, 2)[0] is False


@dataclass(frozen=True, kw_only=True)
class Increment(ContractProgram):
    locked: bool

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[float]:
        cell = Cell("n")
        for _ in range(2):
            if self.locked:
                yield from Lock(cell)
            value = yield from Access(cell, "read")
            yield from Access(cell, "swap", vector(1.0) if value is None else value + vector(1.0))
            if self.locked:
                yield from Unlock(cell)
        yield from ops.Barrier(group=me.workers, key="done")
        return number((yield from Access(cell, "read")))


@pytest.mark.parametrize(("locked", "lowest"), [(True, 6.0), (False, 2.0)])
def test_without_a_lock_some_order_loses_updates(locked: bool, lowest: float) -> None:
    found = {results(Increment(locked=locked), Shuffled(seed), nodes=[[0, 1, 2]])[0] for seed in range(200)}
    assert (min(found), max(found)) == (lowest, 6.0)


@given(st.data())
def test_hypothesis_chooses(data: st.DataObject) -> None:
    trace = AnyOrder(job_of(find("async-sgd")(), 2, steps=4)).run(drawn(data))
    assert len(trace.updates) == 4


@pytest.mark.parametrize(
    "choose", [extra(lambda: first), extra(RoundRobin), lambda: Shuffled(4), extra(lambda: Adversary(Rank(1)))]
)
@pytest.mark.parametrize("name", METHODS)
def test_recorded_moves_make_the_same_run(name: str, choose: Callable[[], Chooser]) -> None:
    method = METHODS[name]()
    job = job_of(method, nodes=nodes_for(method, [[0], [1], [2]]), steps=5)
    one, two = AnyOrder(job), AnyOrder(job)
    expected = one.run(choose())
    found = two.run(Recorded([entry.move for entry in one.log]))
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert found.updates == expected.updates
    assert found.spans == expected.spans
    assert [entry.move for entry in two.log] == [entry.move for entry in one.log]


def test_recorded_moves_of_another_job_are_refused() -> None:
    one = AnyOrder(job_of(find("async-sgd")(), 3, steps=5))
    one.run(Shuffled(1))
    with pytest.raises(ProgramError, match=r"move \d+ of the record is go|deliver"):
        AnyOrder(job_of(find("easgd")(), 3, steps=5)).run(Recorded([entry.move for entry in one.log]))


def test_the_adversary_moves_its_victim_only_when_it_must() -> None:
    run = AnyOrder(job_of(find("sync-sgd")(), 3, steps=2))
    choose = Adversary(Rank(1))
    seen: list[tuple[int, set[int]]] = []

    def watched(ready: Any) -> Move:
        move = choose(ready)
        seen.append((move.rank, {m.rank for m in ready}))
        return move

    run.run(watched)
    assert all(possible == {1} for rank, possible in seen if rank == 1)
    assert any(len(possible) > 1 for _, possible in seen)


def test_a_budget_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="budget: found no number of samples"):
        AnyOrder(job_of(find("sync-sgd")(), 2, steps=None, seconds=1.0))


@dataclass(frozen=True, kw_only=True)
class Blocked(ContractProgram):
    """One lane holds a lock for ever; rank 0 waits for the lane, its second lane for the lock."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Lock(Cell("c"))
        second = yield from Start(Lock(Cell("c")))
        yield from Wait(second)


def test_a_deadlock_of_lanes_names_lane_lock_and_handle() -> None:
    with pytest.raises(DeadlockError) as caught:
        AnyOrder(job_of(Blocked(), 1, steps=1)).run()
    main, lane = str(caught.value).splitlines()[1:]
    assert "waits for the end of Lock(), started at tests/unit/test_anyorder.py:" in main
    assert "rank 0 (worker), lane Lock 1 at tests/unit/test_anyorder.py:" in lane
    assert "step 0: waits for the lock of cell 'c', held by rank 0, lane main" in lane


@dataclass(frozen=True, kw_only=True)
class WrongUnlock(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Unlock(Cell("c"))


@dataclass(frozen=True, kw_only=True)
class NoSuchRank(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Send(Rank(9), None)


@dataclass(frozen=True, kw_only=True)
class StartsNothing(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Start("a word")  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class TooMany(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        one = yield from Start(ops.Now())
        yield from ops.WaitFor([one], 2)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (WrongUnlock(), "unlocks cell 'c', which it does not hold"),
        (NoSuchRank(), "sends to rank 9; there are ranks 0"),
        (StartsNothing(), "starts 'a word'; only an operation or a program can be started"),
        (TooMany(), "waits for 2 of 1 handles"),
    ],
)
def test_what_makes_no_sense_is_said_with_rank_line_and_step(case: ContractProgram, said: str) -> None:
    with pytest.raises(
        ProgramError, match=r"^rank 0 \(worker\) at tests/unit/test_anyorder.py:\d+ in body, step 0: "
    ) as e:
        AnyOrder(job_of(case, 1, steps=1)).run()
    assert said in str(e.value)


@program
def failing() -> Program[None]:
    yield from ops.Now()
    raise ValueError("unheard")


@dataclass(frozen=True, kw_only=True)
class Unheard(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Start(failing())


def test_a_failure_that_is_not_waited_for_is_not_lost() -> None:
    with pytest.raises(ValueError, match="unheard"):
        AnyOrder(job_of(Unheard(), 1, steps=1)).run()


@pytest.mark.parametrize("operation", ops.OPERATIONS, ids=lambda operation: operation.__name__)
def test_every_operation_has_a_case(operation: type[Op[Any]]) -> None:
    """Read from the source, so that a new operation cannot be forgotten here."""
    named = re.search(rf"(case |\| ){operation.__name__}\(", inspect.getsource(AnyOrder._perform))
    assert named or issubclass(operation, COLLECTIVES)
