"""AllReduce, Reduce, Broadcast, AllGather and Barrier, and the check of their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import (
    Access,
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Cell,
    Reduce,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Group, Rank, Step, Vector
from paceline.testing.contract.programs import (
    Contract,
    ContractProgram,
    Interpreter,
    answers,
    job_of,
    number,
    numbers,
    vector,
)


@dataclass(frozen=True, kw_only=True)
class EveryCollective(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[dict[str, Any]]:
        own, everyone, root = vector(me.rank, 1.0), me.workers, Rank(1)
        total = yield from AllReduce(value=own, group=everyone, key="s", op="sum")
        mean = yield from AllReduce(value=own, group=everyone, key="m")
        at_root = yield from Reduce(value=own, group=everyone, root=root, key="r")
        mean_at_root = yield from Reduce(value=own, group=everyone, root=root, key="rm", op="mean")
        roots = yield from Broadcast(value=own, group=everyone, root=root, key="b")
        all_of_them = yield from AllGather(value=own, group=everyone, key="g")
        yield from Barrier(group=everyone, key="x")
        return {
            "sum": numbers(total),
            "mean": numbers(mean),
            "reduce": None if at_root is None else numbers(at_root),
            "reduce mean": None if mean_at_root is None else numbers(mean_at_root),
            "broadcast": numbers(roots),
            "gather": [numbers(part) for part in all_of_them],
            "mine": numbers(own),
        }


@dataclass(frozen=True, kw_only=True)
class InPairs(ContractProgram):
    """Groups of two; the pairs run different numbers of collectives, then all meet."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[tuple[float, float]]:
        first = me.rank // 2 * 2
        pair = Group((Rank(first), Rank(first + 1)))
        value: Vector = vector(me.rank)
        for turn in range(1 + 2 * first):
            value = yield from AllReduce(value=value, group=pair, key=f"pair {turn}")
        everyone = yield from AllReduce(value=value, group=me.workers, key="all", op="sum")
        return number(value), number(everyone)


@dataclass(frozen=True, kw_only=True)
class CountedAtBarrier(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[float]:
        cell = Cell("came")
        yield from Access(cell, "add", vector(1.0))
        yield from Barrier(group=me.workers, key="all here")
        came = yield from Access(cell, "read")
        return number(came)


@dataclass(frozen=True, kw_only=True)
class OneRankDiffers(ContractProgram):
    """Rank 1 differs from the others in one respect."""

    how: str

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        odd = me.rank == 1
        value, everyone = vector(1.0, 2.0), me.workers
        if self.how == "kind" and odd:
            yield from Broadcast(value=value, group=everyone, root=Rank(0), key="gradient")
        elif self.how == "key" and odd:
            yield from AllReduce(value=value, group=everyone, key="something else")
        elif self.how == "op" and odd:
            yield from AllReduce(value=value, group=everyone, key="gradient", op="sum")
        elif self.how == "size" and odd:
            yield from AllReduce(value=vector(1.0), group=everyone, key="gradient")
        else:
            yield from AllReduce(value=value, group=everyone, key="gradient")


@dataclass(frozen=True, kw_only=True)
class Outsider(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Barrier(group=Group((Rank(0), Rank(1))), key="ours")


class CollectivesContract(Contract):
    """Collectives meet and answer what their names say."""

    def test_every_collective_answers_what_its_name_says(self, interpreter: Interpreter) -> None:
        for rank, answer in enumerate(answers(interpreter, EveryCollective(), workers=3)):
            assert answer == {
                "sum": [3.0, 3.0],
                "mean": [1.0, 1.0],
                "reduce": [3.0, 3.0] if rank == 1 else None,
                "reduce mean": [1.0, 1.0] if rank == 1 else None,
                "broadcast": [1.0, 1.0],
                "gather": [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]],
                "mine": [float(rank), 1.0],
            }

    def test_groups_meet_each_for_itself(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, InPairs(), workers=4) == [(0.5, 6.0), (0.5, 6.0), (2.5, 6.0), (2.5, 6.0)]

    def test_no_rank_passes_a_barrier_before_all_have_come(self, interpreter: Interpreter) -> None:
        assert answers(interpreter, CountedAtBarrier(), nodes=[[0, 1, 2]]) == [3.0, 3.0, 3.0]

    @pytest.mark.parametrize("how", ["kind", "key", "op", "size"])
    def test_mismatched_collectives_are_an_error_that_names_both_sides(
        self, interpreter: Interpreter, how: str
    ) -> None:
        with pytest.raises(
            ProgramError, match=r"mismatched collectives: rank \d at .*collectives\.py:\d+ in body"
        ) as e:
            answers(interpreter, OneRankDiffers(how=how), workers=2)
        text = str(e.value)
        assert "rank 0" in text and "rank 1" in text
        assert "'gradient'" in text

    def test_a_rank_outside_the_group_may_not_enter(self, interpreter: Interpreter) -> None:
        with pytest.raises(ProgramError, match=r"rank 2 .*is no member of ranks 0,1"):
            interpreter(job_of(Outsider(), 3, steps=1))
