"""The shared memory of a node: its turns in any order of threads, its table, and its removal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import find
from paceline.algorithms.core.errors import PeerFailed, RunFailed
from paceline.algorithms.core.operations import AllGather, AllReduce, Barrier, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective, Room, outcome
from paceline.backend.local.launch import RankFailed
from paceline.backend.posix.waits import wait_until
from paceline.backend.transports import shared_segment as memory
from paceline.backend.transports.shared_collectives import MemoryChannel
from paceline.backend.transports.shared_segment import Segment
from tests.backend.jobs import no_children, run_for_real
from tests.backend.test_command import Called, call, on_its_way
from tests.backend.test_failures import LONG, Killer
from tests.support import ONE_NODE, job_of
from tests.thorough import examples, extra

__all__ = ["call"]  # a fixture
KINDS = ("sum", "mean", "reduce", "broadcast", "gather", "barrier")
PIECE = 64
"""bytes: eight numbers, so that small vectors take several turns"""


def group_of(count: int) -> Group:
    return Group(tuple(map(Rank, range(count))))


def made(kind: str, value: Any, group: Group, root: Rank) -> Collective:
    match kind:
        case "sum":
            return AllReduce(value=value, group=group, key=kind, op="sum")
        case "mean":
            return AllReduce(value=value, group=group, key=kind)
        case "reduce":
            return Reduce(value=value, group=group, root=root, key=kind)
        case "broadcast":
            return Broadcast(value=value, group=group, root=root, key=kind)
        case "gather":
            return AllGather(value=value, group=group, key=kind)
        case _:
            return Barrier(group=group, key=kind)


def performed(segment: Segment, ops: Sequence[Sequence[Collective]], naps_s: Sequence[Sequence[float]]) -> list[Any]:
    """Returns the answers of each member to its operations, each member in a thread; all end when one fails."""
    group, failed, until = segment.node, threading.Event(), time.monotonic() + 60.0

    def lost(_: Iterable[Rank]) -> Rank | None:
        return Rank(len(group)) if failed.is_set() or time.monotonic() > until else None

    def member(rank: Rank) -> list[Any]:
        number = segment.claim(group, "")
        assert number is not None
        channel = MemoryChannel(segment, number, group, rank, lost)
        answers = []
        try:
            for op, nap_s in zip(ops[rank], naps_s[rank], strict=True):
                time.sleep(nap_s)
                answers.append(channel.perform(op))
        except Exception:
            failed.set()
            raise
        return answers

    with ThreadPoolExecutor(len(group)) as pool:
        return list(pool.map(member, group))


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert (found is None) == (expected is None)
        np.testing.assert_array_equal(np.atleast_1d(found), np.atleast_1d(expected))


@examples(25, 200)
@given(data=st.data(), members=st.integers(1, 4))
def test_any_sequence_is_answered_as_the_simulator_does(data: st.DataObject, members: int) -> None:
    """Bit for bit, however far some are behind the others, for vectors of zero, partial and several pieces."""
    group, draw = group_of(members), data.draw
    steps = draw(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 3)), max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    rooms = []
    for kind, size, root in steps:
        values = [rng.standard_normal(size) for _ in group]
        came = {rank: made(kind, values[rank], group, Rank(root % members)) for rank in group}
        rooms.append(Room(kind, group, kind, Rank(0), "", came))
    naps_s = [[draw(st.sampled_from((0.0, 0.0, 0.001))) for _ in steps] for _ in group]
    ops = [[room.came[rank] for room in rooms] for rank in group]
    found = performed(Segment(group, piece_bytes=PIECE), ops, naps_s)
    for place, room in enumerate(rooms):
        expected = outcome(room)
        for rank in group:
            same(found[rank][place], expected[rank])


def test_the_mean_of_whole_numbers_is_no_whole_number() -> None:
    group = group_of(2)
    ops = [[AllReduce(value=np.array([rank, 3]), group=group, key="mean")] for rank in group]
    for (found,) in performed(Segment(group), ops, [[0.0], [0.0]]):
        same(found, np.array([0.5, 3.0]))


def test_no_rank_passes_a_barrier_before_all_have_come() -> None:
    """Each rank counts before it enters, and afterwards sees the counts of all, turn by turn."""
    group, turns, came = group_of(3), 200, [0, 0, 0]
    segment = Segment(group)

    def member(rank: Rank) -> bool:
        channel = MemoryChannel(segment, 0, group, rank, lambda _: None)
        for turn in range(1, turns + 1):
            came[rank] = turn
            channel.perform(Barrier(group=group, key=""))
            if min(came) < turn:
                return False
        return True

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(member, group)) == [True] * 3


def test_answers_do_not_lie_in_the_memory() -> None:
    """Later collectives that write there do not change them."""
    group = group_of(2)
    kinds = [*KINDS, *KINDS]
    values = [[np.full(8, 10.0 * place + rank) for place in range(len(kinds))] for rank in group]
    ops = [
        [made(kind, value, group, Rank(0)) for kind, value in zip(kinds, values[rank], strict=True)] for rank in group
    ]
    found = performed(Segment(group, piece_bytes=PIECE), ops, [[0.0] * len(kinds)] * 2)
    for answers in found:
        assert [answers[0][0], answers[1][0], answers[3][0]] == [1.0, 10.5, 30.0]
        assert [part[0] for part in answers[4]] == [40.0, 41.0]


def test_a_wait_ends_when_a_rank_is_lost_and_the_channel_stays_broken() -> None:
    group, lost = group_of(2), [None, None, None, Rank(1)]
    channel = MemoryChannel(Segment(group), 0, group, Rank(0), lambda _: lost.pop(0) if len(lost) > 1 else lost[0])
    for _ in range(2):
        with pytest.raises(PeerFailed, match="rank 1 died"):
            channel.perform(Barrier(group=group, key=""))


# --- the table -------------------------------------------------------------------------------------------------------


def no_dead_rank(_: Iterable[Rank]) -> Rank | None:
    return None


def test_who_comes_later_finds_what_the_first_was_given() -> None:
    group = group_of(2)
    segment = Segment(group, channels=1)
    assert segment.claim(group, "a") == 0
    assert segment.claim(group, "b") is None
    segment.leave(group, "a")
    assert segment.claim(group, "a") == 0, "one member is still there"
    segment.leave(group, "a")
    assert segment.claim(group, "b") is None, "its other member has been told so"
    assert segment.claim(group, "c") == 0


def test_a_channel_begins_anew_for_others() -> None:
    group = group_of(2)
    segment = Segment(group, channels=1, piece_bytes=PIECE)
    for stream in "abc":
        ops = [[made("sum", np.full(20, float(rank)), group, Rank(0))] for rank in group]

        def member(rank: Rank, stream: str = stream, ops: Any = ops) -> Any:
            channel = MemoryChannel(segment, segment.claim(group, stream) or 0, group, rank, no_dead_rank)
            answer = channel.perform(ops[rank][0])
            segment.leave(group, stream)
            return answer

        with ThreadPoolExecutor(2) as pool:
            for answer in pool.map(member, group):
                np.testing.assert_array_equal(answer, np.ones(20))


def test_a_full_table_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ROWS", 2)
    segment = Segment(group_of(2))
    for stream in "ab":
        segment.claim(segment.node, stream)
    with pytest.raises(RunFailed, match="more than 2 groups"):
        segment.claim(segment.node, "c")


def test_a_table_that_a_dead_rank_has_locked_delays_no_rank() -> None:
    segment = Segment(group_of(2))
    ready, told = os.pipe()
    if (child := os.fork()) == 0:
        with segment._lock:
            os.write(told, b".")
            time.sleep(60.0)
        os._exit(0)
    os.read(ready, 1)
    waiting = ThreadPoolExecutor(1).submit(segment.claim, segment.node, "")
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert waiting.result(60.0) == 0


# --- nothing is left --------------------------------------------------------------------------------------------------


def named() -> set[Path]:
    """Returns every name in the host's shared memory, except for folders of runs and locks about to be unlinked."""
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("paceline-")}


def nameless(process: psutil.Process) -> bool:
    """Whether a process shares megabytes of memory with others, all of it without a name."""
    lines = [line.split() for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines()]
    shared = [parts for parts in lines if parts[1] == "rw-s"]
    ends = [tuple(int(end, 16) for end in parts[0].split("-")) for parts in shared]
    assert max(last - first for first, last in ends) > 2**20
    return all(parts[-1] == "(deleted)" or Path(parts[-1]).name == "board" for parts in shared)


@pytest.fixture
def clean() -> Iterator[None]:
    before = named()
    yield
    assert no_children()
    assert wait_until(lambda: named() <= before, within_s=30.0), "another program may keep something for a moment"


@pytest.mark.backend
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("end", ["normal", "killed", "interrupted"])
def test_nothing_is_left_of_a_run(end: str) -> None:
    killer = Killer(1, signal.SIGKILL, after_s=0.5)

    def interrupt(step: int, elapsed_s: float) -> None:
        if elapsed_s > 0.5:
            raise KeyboardInterrupt

    job = job_of(find("hsgd")(), nodes=ONE_NODE, steps=20 if end == "normal" else LONG)
    if end == "normal":
        run_for_real(job)
    elif end == "killed":
        with pytest.raises(RankFailed, match="rank 1"):
            run_for_real(job, progress=killer)
    else:
        with pytest.raises(KeyboardInterrupt):
            run_for_real(job, progress=interrupt)


@pytest.mark.backend
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("number", [signal.SIGINT, extra(signal.SIGTERM), extra(signal.SIGKILL)])
def test_nothing_is_left_of_a_launcher_that_is_ended(call: Callable[..., Called], number: signal.Signals) -> None:
    called = call("train", "--algorithms", "hsgd")
    started = on_its_way(called, 3)
    assert all(nameless(process) for process in started.ranks.values())
    os.kill(called.pid, number)
    called.ends(within_s=60.0)
    assert started.gone(within_s=30.0)
    assert called.left() == []
    assert started.removed()
