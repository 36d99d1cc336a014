"""A rank that hangs is named, however it hangs and however the others wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Barrier, NextStep, Receive, Send
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.local import worker
from paceline.backend.local.launch import RankFailed
from paceline.testing.contract.programs import ContractProgram
from tests.backend.jobs import no_children, run_for_real
from tests.support import job_of
from tests.thorough import extra

pytestmark = pytest.mark.backend

TIMEOUT_S = 1.0


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    assert no_children()


def hang() -> None:
    """Sleeps longer than any test here waits, without a sign of life."""
    threading.Event().wait(60.0)


@dataclass(frozen=True, kw_only=True)
class HangsWhenReceivedFrom(ContractProgram):
    """The others sleep until a message comes."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 1:
            hang()
            yield from Send(Rank(0), None)
        elif me.rank == 0:
            yield from Receive(Rank(1))


@dataclass(frozen=True, kw_only=True)
class HangsBeforeBarrier(ContractProgram):
    """The others poll the memory of their node: they use their CPUs although they wait."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 1:
            hang()
        yield from Barrier(group=me.workers, key="everybody")


@dataclass(frozen=True, kw_only=True)
class HangsAtItsEnd(ContractProgram):
    """The others have ended, and stay until this rank has ended."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            yield from self.body(me, step, state)
            state = Replica(step.number + 1, state.weights, None)
        return state

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 1:
            hang()
        yield from ()


HANGS = {
    HangsWhenReceivedFrom: "rank 0 (worker) at ",
    HangsBeforeBarrier: "rank 0 (worker) at ",
    HangsAtItsEnd: None,
}


@pytest.mark.parametrize("case", HANGS)
def test_a_rank_without_a_sign_of_life_is_named_with_those_who_wait(case: type[ContractProgram]) -> None:
    """A rank that has ended does not report that it waits: it waits for the end of the run."""
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(case(), nodes=[[0, 1]], steps=1), timeout_s=TIMEOUT_S)
    first, *others = str(caught.value).splitlines()
    assert first.startswith("rank 1 (worker) made no progress for 1 s at step 0, running")
    if (waiting := HANGS[case]) is None:
        assert not others
    else:
        assert len(others) == 1 and waiting in others[0] and "waits " in others[0]


def test_the_log_of_a_silent_rank_says_where_it_stands() -> None:
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(HangsBeforeBarrier(), nodes=[[0, 1]], steps=1), timeout_s=TIMEOUT_S)
    trace: Any = caught.value.trace
    assert b"in hang\n" in trace.files["logs/rank1.log"]
    assert b"in perform\n" in trace.files["logs/rank0.log"]


def hangs_in(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Makes rank 1 hang in a function at the beginning of its process, before the start."""
    before = getattr(worker, name)

    def body(place: worker.RankEnvironment, me: RankContext, *more: Any, **named: Any) -> Any:
        if me.rank == 1:
            hang()
        return before(place, me, *more, **named)

    monkeypatch.setattr(worker, name, body)


@pytest.mark.parametrize(
    ("function", "nodes"),
    [
        ("begin_log", [[0, 1]]),
        extra(("begin_log", [[0], [1]])),
        extra(("interface_at", [[0, 1]])),
        ("interface_at", [[0], [1]]),
    ],
)
def test_a_rank_that_never_comes_to_the_start_is_named(
    monkeypatch: pytest.MonkeyPatch, function: str, nodes: list[list[int]]
) -> None:
    """Whether the others are connecting to it meanwhile, or are ready. It may be a rank without a log yet."""
    hangs_in(monkeypatch, function)
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(SyncSgd(), nodes=nodes, steps=1), timeout_s=TIMEOUT_S)
    first, other = str(caught.value).splitlines()
    said = "rank 1 (worker) made no progress for 1 s before the start, starting"
    assert first.startswith(said)
    assert other.strip() == f"rank 0 (worker) is {'connecting' if len(nodes) == 2 else 'ready for the start'}"


def test_ranks_that_never_get_connected_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The culprit cannot be determined: both wait for each other."""
    hangs_in(monkeypatch, "mail_of")
    with pytest.raises(RankFailed, match=r"made no progress for 1 s before the start, connecting") as caught:
        run_for_real(job_of(SyncSgd(), nodes=[[0], [1]], steps=1), timeout_s=TIMEOUT_S)
    assert str(caught.value).endswith(" (worker) is connecting")
