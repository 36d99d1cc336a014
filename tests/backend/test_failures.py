"""Failures in a real run: it ends soon, names the rank and the cause, keeps the record, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms import find
from paceline.algorithms.core.errors import DeadlockError, PeerFailed, ProgramError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import AllReduce, Barrier, Gradient, Load, NextStep, Receive, Send, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.backend.local.launch import RankFailed
from paceline.testing.contract.programs import ContractProgram, vector
from tests.backend.jobs import Steps, no_children, ranks_of, run_for_real
from tests.support import Bowl, job_of
from tests.thorough import extra

pytestmark = pytest.mark.backend

HERE = r"tests/backend/test_failures\.py:\d+ in "
LONG = 5000
"""some twenty seconds of steps, so a run that takes less was ended early"""


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A separate folder for the shared folders of runs; it and this process have no leftovers afterwards."""
    monkeypatch.setattr("paceline.backend.posix.run_folders.SHARED", tmp_path)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert no_children()


class Killer:
    """Kills a rank from the launcher's own loop, once the run has reached this step."""

    def __init__(self, rank: int, how: signal.Signals, after_s: float = 0.7) -> None:
        self.rank, self.how, self.after_s = rank, how, after_s
        self.done_s = 0.0
        self.step = -1

    def __call__(self, step: int, elapsed_s: float) -> None:
        if elapsed_s < self.after_s or self.done_s:
            return
        started = ranks_of(os.getpid())
        assert started is not None
        self.done_s, self.step = time.monotonic(), step
        started.ranks[self.rank].send_signal(self.how)


@pytest.mark.parametrize(
    ("name", "rank", "role", "how"),
    [
        ("sync-sgd", 2, "worker", signal.SIGKILL),
        ("sync-sgd", 0, "worker", signal.SIGTERM),
        extra(("sync-easgd3", 1, "worker", signal.SIGKILL)),
        ("layerwise-sgd", 3, "worker", signal.SIGKILL),
        extra(("agd", 0, "worker", signal.SIGKILL)),
        extra(("easgd", 1, "worker", signal.SIGKILL)),
        extra(("async-sgd", 4, "server", signal.SIGKILL)),
        ("easgd", 4, "server", signal.SIGTERM),
    ],
)
def test_a_killed_rank_ends_the_run_and_is_named(name: str, rank: int, role: str, how: signal.Signals) -> None:
    killer = Killer(rank, how)
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(find(name)(), 4, steps=LONG), progress=killer)
    assert re.fullmatch(rf"rank {rank} \({role}\) died at step \d+: killed by {how.name}", str(caught.value))
    trace = caught.value.trace
    assert trace is not None
    assert {span.rank for span in trace.spans if span.activity == "compute"} == {0, 1, 2, 3}
    assert killer.step * 0.3 < max(update.version_applied for update in trace.updates) < LONG
    assert trace.weights is not None
    assert trace.wall_s > 0.4


def test_the_others_keep_their_record_up_to_the_death() -> None:
    """Survivors write everything they have; of the dead rank at most the last half second is lost."""
    killer = Killer(1, signal.SIGKILL, after_s=1.2)
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(find("sync-sgd")(), 3, steps=LONG), progress=killer)
    assert caught.value.trace is not None
    died = re.search(r"died at step (\d+)", str(caught.value))
    assert died is not None
    last, until_s = dict.fromkeys(range(3), 0), 0.0
    for span in caught.value.trace.spans:
        last[span.rank] = max(last[span.rank], span.step)
        until_s = max(until_s, span.end_s) if span.rank == 1 else until_s
    assert min(last[0], last[2]) >= int(died[1]) - 1
    assert until_s > 0.3, "it writes twice a second"


@dataclass(frozen=True, kw_only=True)
class Divides(ContractProgram):
    """One rank's program fails in its third step, while the others wait for it."""

    culprit: int = 1

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if step.number == 2 and me.rank == self.culprit:
            raise ZeroDivisionError("by the program itself")
        yield from AllReduce(value=vector(1.0), group=me.workers, key=f"gradient {step.number}")


def test_a_program_that_raises_leaves_its_traceback() -> None:
    with pytest.raises(RankFailed) as caught:
        run_for_real(job_of(Divides(), 3, steps=9))
    assert str(caught.value) == "rank 1 (worker) failed: ZeroDivisionError: by the program itself"
    (traceback,) = caught.value.__notes__
    assert traceback.startswith("Traceback ")
    assert re.search(r'test_failures\.py", line \d+, in body', traceback)
    assert caught.value.rank == 1
    assert traceback in caught.value.trace.files["logs/rank1.log"].decode()


@dataclass(frozen=True, kw_only=True)
class GoesOn(ContractProgram):
    """The death of a peer is an exception at the operation that needed it, and the program may continue without it."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        step = yield from NextStep(state)
        assert step is not None
        batch = yield from Load(step.samples)
        yield from Gradient(state.weights, batch)
        if me.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            yield from Receive(Rank(1))
        except PeerFailed as failure:
            return Replica(1, state.weights, str(failure))
        return state

    def body(self, me: RankContext, step: Step, state: Replica) -> Any:
        raise NotImplementedError


def test_a_dead_peer_is_an_exception_in_the_program() -> None:
    with pytest.raises(RankFailed, match=r"rank 1 \(worker\) died at step 0: killed by SIGKILL") as caught:
        run_for_real(job_of(GoesOn(), 2, steps=1))
    assert caught.value.trace is not None
    assert caught.value.trace.states[Rank(0)].optimizer_state == "rank 1 died"


@dataclass(frozen=True, kw_only=True)
class Exits(ContractProgram):
    """A rank that ends without a message, as after an exit call in a library."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 0 and step.number == 1:
            os._exit(7)
        yield from Barrier(group=me.workers, key=f"step {step.number}")


def test_an_exit_without_a_word_is_told_with_its_status() -> None:
    with pytest.raises(RankFailed, match=r"rank 0 \(worker\) died at step 1: exit status 7"):
        run_for_real(job_of(Exits(), 2, steps=4))


@dataclass(frozen=True, kw_only=True)
class KeepsFunction(ContractProgram):
    """Its state cannot be serialised."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        yield from Barrier(group=me.workers, key=f"step {step.number}")
        return lambda: None


def test_a_record_that_cannot_be_written_fails_its_rank() -> None:
    """The rank's process also ends: it must not continue in the launcher's code."""
    with pytest.raises(RankFailed, match=r"rank 0 \(worker\) failed: .*[Pp]ickl.*lambda"):
        run_for_real(job_of(KeepsFunction(), 1, steps=1))


# --- programs that are wrong -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NeverSent(Method):
    """The server waits for a message of a worker that never arrives; the workers wait for the server, or for each
    other.
    """

    name = "never-sent"
    staleness_kind = StalenessKind.STEPS
    source = "a test"
    guarantees = frozenset()
    has_server = True

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            if step.number == 3:
                if me.rank == 0:
                    yield from Receive(Rank(2), tag="answer")
                yield from Wait((yield from Start(Barrier(group=me.workers, key="stuck"))))
            yield from Send(Rank(2), vector(1.0))
            yield from Receive(Rank(2))
            state = Replica(step.number + 1, state.weights)
        return state

    @program
    def server(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            for worker in me.workers:
                message = yield from Receive(worker)
                yield from Send(worker, message.value)
            state = Replica(step.number + 1, state.weights)
        return state


def test_a_deadlock_names_rank_role_line_step_and_what_it_waits_for() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_for_real(job_of(NeverSent(), 2, steps=50), deadlock_timeout_s=2.0)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith(
        "deadlock: no rank has made progress for 2 s, after which ranks that all wait for each other"
    )
    expected = [
        rf"  rank 0 \(worker\) at {HERE}worker, step 3: waits to receive from rank 2 with tag 'answer'",
        (
            rf"  rank 1 \(worker\) at {HERE}worker, step 3: waits .*Barrier 'stuck' over ranks 0,1, "
            rf"started at {HERE}worker; missing: rank 0, which waits elsewhere, at {HERE}worker, step 3"
        ),
        rf"  rank 2 \(server\) at {HERE}server, step 3: waits to receive from rank 0",
    ]
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line)


@dataclass(frozen=True, kw_only=True)
class Short(ContractProgram):
    """Rank 1 leaves after two steps, as one with fewer batches; the others average on."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Barrier(group=me.workers, key="average")

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            if me.rank == 1 and step.number == 2:
                return state
            yield from self.body(me, step, state)
            state = Replica(step.number + 1, state.weights)
        return state


def test_a_deadlock_names_the_rank_whose_program_has_ended() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_for_real(job_of(Short(), 3, steps=50), deadlock_timeout_s=2.0)
    _, *lines = str(caught.value).splitlines()
    ended = r"over ranks 0,1,2; missing: rank 1, whose program has ended, at step 2"
    assert [bool(re.search(ended + "$", line)) for line in lines] == [True, True]
    assert [line.split()[1] for line in lines] == ["0", "2"]


@dataclass(frozen=True, kw_only=True)
class Slow(ContractProgram):
    """A gradient takes longer than the timeout; the other rank waits for it in a collective. This is no deadlock."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        if me.rank == 0:
            batch = yield from Load(step.samples)
            yield from Gradient(state.weights, batch)
        yield from Barrier(group=me.workers, key="after the gradient")


def test_waiting_for_a_long_gradient_is_no_deadlock() -> None:
    trace = run_for_real(job_of(Slow(), 2, steps=1), deadlock_timeout_s=0.2, pace=Steps((1.0, 1.0)))
    assert trace.wall_s > 1.0


@dataclass(frozen=True, kw_only=True)
class Swapped(ContractProgram):
    """Rank 1 issues the same two collectives in the other order; gloo would add up what does not belong together."""

    size: int = 1
    """elements of the second one"""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        keys = [("left", 1), ("right", self.size)]
        for key, size in keys if me.rank == 0 else reversed(keys):
            yield from AllReduce(value=vector(*[1.0] * size), group=me.workers, key=key)


@dataclass(frozen=True, kw_only=True)
class SwappedStarts(ContractProgram):
    """The same with collectives that are started."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        handles = []
        for key in ("left", "right") if me.rank == 0 else ("right", "left"):
            handles.append((yield from Start(AllReduce(value=vector(1.0), group=me.workers, key=key))))
        for handle in handles:
            yield from Wait(handle)


@pytest.mark.parametrize("case", [Swapped(), Swapped(size=7), SwappedStarts()], ids=["alike", "unlike", "started"])
def test_mismatched_collectives_name_both_sides(case: ContractProgram) -> None:
    with pytest.raises(ProgramError) as caught:
        run_for_real(job_of(case, 2, steps=1))
    size = case.size if isinstance(case, Swapped) else 1
    left, right = "AllReduce 'left' mean of 8 bytes", f"AllReduce 'right' mean of {8 * size} bytes"
    sides = re.fullmatch(
        rf"mismatched collectives: rank (\d) at {HERE}body enters (.*), where rank (\d) at {HERE}body entered (.*); "
        "all members of a group must issue the same collectives in the same order",
        str(caught.value),
    )
    assert sides is not None, caught.value
    said = {int(sides[1]): sides[2], int(sides[3]): sides[4]}
    assert said == {0: left, 1: right}


@dataclass(frozen=True, kw_only=True)
class Stranger(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        yield from Send(Rank(9), None)


def test_sending_to_a_rank_that_is_not_there_is_said() -> None:
    with pytest.raises(ProgramError, match=r"rank \d .*sends to rank 9; there are ranks 0"):
        run_for_real(job_of(Stranger(), 2, steps=1))


# --- interrupted -----------------------------------------------------------------------------------------------------


def interrupt(step: int, elapsed_s: float) -> None:
    if elapsed_s > 0.3:
        raise KeyboardInterrupt


def test_an_interrupt_passes_through_and_leaves_nothing() -> None:
    job: Job = job_of(find("async-sgd")(), 4, steps=LONG)
    with pytest.raises(KeyboardInterrupt):
        run_for_real(job, progress=interrupt)


# --- before the start ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fragile(Bowl):
    """A learner with which only the first rank to arrive survives until the start."""

    folder: Path = Path()
    raises: bool = False

    def initial(self) -> Any:
        (self.folder / f"came{os.getpid()}").touch()
        if os.getpid() != LAUNCHER and len(list(self.folder.glob("came*"))) >= 2:
            if self.raises:
                raise MemoryError("no room for the weights")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().initial()


LAUNCHER = os.getpid()


@pytest.mark.parametrize(
    ("raises", "message"),
    [
        (True, r"rank \d \(worker\) failed: MemoryError: no room"),
        (False, r"rank \d \(worker\) died .*: killed by SIGKILL"),
    ],
)
def test_a_rank_that_dies_before_the_start_ends_the_run(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, raises: bool, message: str
) -> None:
    """The others wait for it to be ready; they are given up after the grace."""
    monkeypatch.setattr("paceline.backend.supervision.supervisor.GRACE_S", 0.5)
    learner = Fragile(folder=tmp_path_factory.mktemp("came"), raises=raises)
    with pytest.raises(RankFailed, match=message):
        run_for_real(job_of(find("async-sgd")(), 3, steps=5, learner=learner))
