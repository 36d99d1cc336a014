"""Replaying a record: the same weights, or a clear error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import find
from paceline.algorithms.errors import TimedOut
from paceline.algorithms.method import Me, Replica
from paceline.algorithms.operations import Access, Cell, Now, Receive, Send
from paceline.algorithms.program import Program, program
from paceline.algorithms.values import Rank, Step
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, first
from paceline.checking.replay import Recording, ReplayError, replay
from tests.contract.cases import Case, vector
from tests.support import job_of

ZERO = Rank(0)


@pytest.mark.parametrize("seed", range(10))
def test_asynchronous_sgd_ends_in_the_recorded_weights(seed: int) -> None:
    """The orders differ among themselves and from the replay's own, so there is something to get right."""
    job = job_of(find("async-sgd")(), 4, steps=40)
    recorded = AnyOrder(job).run(Shuffled(seed))
    again = replay(job, Recording.of(recorded.heard))
    np.testing.assert_array_equal(again.weights, recorded.weights)
    assert [(u.rank, u.staleness) for u in again.updates] == [(u.rank, u.staleness) for u in recorded.updates]
    assert (again.weights != AnyOrder(job).run(first).weights).any()


@dataclass(frozen=True, kw_only=True)
class ByTheClock(Case):
    """Rank 0 hears whoever comes in time and does as the clock says: all that a record must hold."""

    @program
    def body(self, me: Me, step: Step, state: Replica) -> Program[Any]:
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
    told = recorded.states[ZERO].memory
    again = replay(job, Recording.of(recorded.heard, recorded.now_s))
    assert again.states[ZERO].memory == told


def test_time_outs_do_happen_in_those_runs() -> None:
    told = [AnyOrder(job_of(ByTheClock(), 3, steps=1)).run(Shuffled(seed)).states[ZERO].memory for seed in range(10)]
    assert any(isinstance(answer, float) for answers in told for answer in answers)


@pytest.fixture
def heard() -> list[tuple[Rank, Rank | None]]:
    return [*AnyOrder(job_of(find("easgd")(), 2, steps=6)).run().heard]


def test_a_program_that_listens_to_another_has_left_the_record(heard: list[tuple[Rank, Rank | None]]) -> None:
    """EASGD's server takes its workers in turn; the record is made to say that it did not."""
    server = Rank(2)
    wrong = [(r, Rank(1) if (r, s) == (server, Rank(0)) else s) for r, s in heard]
    with pytest.raises(
        ReplayError, match=r"rank 2 \(server\) at algorithms/elastic\.py:\d+ .*its record hears rank 1 next"
    ):
        replay(job_of(find("easgd")(), 2, steps=6), Recording.of(wrong))


def test_a_record_that_is_too_short_is_said(heard: list[tuple[Rank, Rank | None]]) -> None:
    with pytest.raises(ReplayError, match=r"rank 2 .*its record hears no more"):
        replay(job_of(find("easgd")(), 2, steps=6), Recording.of(heard[:5]))


def test_a_record_that_is_too_long_is_said(heard: list[tuple[Rank, Rank | None]]) -> None:
    with pytest.raises(ReplayError, match=r"rank \d ended before its record, \d messages early"):
        replay(job_of(find("easgd")(), 2, steps=4), Recording.of(heard))


@dataclass(frozen=True, kw_only=True)
class Sharing(Case):
    @program
    def body(self, me: Me, step: Step, state: Replica) -> Program[None]:
        yield from Access(Cell("c"), "add", vector(1.0))


def test_what_the_record_does_not_hold_is_refused() -> None:
    with pytest.raises(ReplayError, match=r"rank 0 \(worker\) at .*: asks for Access, whose answer depends on"):
        replay(job_of(Sharing(), 1, steps=1), Recording({}))


def test_a_clock_that_was_not_recorded_is_said() -> None:
    job = job_of(ByTheClock(), 1, steps=1)
    with pytest.raises(ReplayError, match="asks for the time more often than its record says"):
        replay(job, Recording({ZERO: [None]}))
