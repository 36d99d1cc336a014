"""Reading ahead in a real run: the files, the order, the distance, and failures."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.method import build_team
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.backend.calibration.recorded_costs import LOAD, REST, costs
from paceline.backend.posix.waits import RunClock, wait_until
from paceline.backend.rank.loading import Loader
from paceline.backend.rank.rank_context import RankStation, Thread
from paceline.backend.status.recorder import FileRecorder, Tail
from paceline.backend.status.status_board import StatusBoard
from paceline.records.trace import READER, Activity, Reads, Span, Trace
from paceline.workloads.reading import Order
from paceline.workloads.reading.reader import Reader
from tests.records import numbered

PROGRAM = Thread("main")
TIMES: list[tuple[Activity, float, float]] = [("load", 0.0, 0.2), ("compute", 0.3, 0.7), ("update", 0.7, 0.8)]
"""the phases of a step of 1 s, with start and end"""


@dataclass
class Source:
    """A learner whose batches are names; it counts 10 requests, 1 seek and 100 bytes for each."""

    broken: dict[int, Exception] = field(default_factory=dict)
    asked: list[Samples] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    slow_s: float = 0.0

    @property
    def draw(self) -> Source:
        return self

    def load(self, samples: Samples) -> str:
        self.asked.append(samples)
        self.threads.add(threading.current_thread().name)
        time.sleep(self.slow_s)
        if samples.index in self.broken:
            raise self.broken[samples.index]
        return f"batch {samples.index} of {samples.count}"

    def reads(self, worker: int) -> tuple[int, int, int]:
        done = len(self.asked)
        return 10 * done, done, 100 * done


class Readings:
    """A loader, and its log."""

    def __init__(self, source: Source, depth: int | None, path: Path) -> None:
        me = build_team(SyncSgd(), [[Rank(0)]], Layout((Layer("all", 0, 4),)))[0]
        self.board, self.recorder = StatusBoard(1, [Rank(0)]), FileRecorder(Rank(0), path)
        self.station = RankStation(me, self.board, self.recorder, RunClock(time.monotonic()))
        self.loader, self._path = Loader(self.station, source, depth), path  # type: ignore[arg-type]

    def load(self, samples: Samples) -> Any:
        return self.loader.load(PROGRAM, samples).data

    def spans(self) -> list[Span]:
        self.recorder.flush()
        return [value for kind, value in Tail(self._path).read() if kind == "span"]


@contextmanager
def reading(source: Source, depth: int | None, folder: Path) -> Iterator[Readings]:
    found = Readings(source, depth, folder / "rank0.stream")
    try:
        yield found
    finally:
        found.loader.close()
        found.recorder._file.close()


def step(index: int, count: int = 4) -> Samples:
    return Samples(worker=0, workers=2, index=index, count=count)


def settled(source: Source, count: int) -> list[int]:
    """Returns the requested steps, a while after the expected number was reached: no more should follow."""
    assert wait_until(lambda: len(source.asked) >= count, within_s=60.0)
    time.sleep(0.05)
    return [samples.index for samples in source.asked]


@pytest.mark.parametrize("depth", [None, 0, 1, 2, 5])
def test_batches_are_those_asked_for_whatever_is_read_ahead(tmp_path: Path, depth: int | None) -> None:
    with reading(Source(), depth, tmp_path) as found:
        assert [found.load(step(index)) for index in range(20)] == [f"batch {index} of 4" for index in range(20)]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_so_many_are_read_ahead_and_one_more_is_in_hand(tmp_path: Path, depth: int) -> None:
    """Number P3's w: the places of the queue; the batch in hand waits for a place."""
    source = Source()
    with reading(source, depth, tmp_path) as found:
        assert settled(source, 0) == [], "nothing is read before the first batch is asked for"
        found.load(step(7))
        assert settled(source, depth + 2) == list(range(7, 7 + depth + 2))
        found.load(step(8))
        assert settled(source, depth + 3) == list(range(7, 8 + depth + 2))
        assert source.threads == {READER}


@pytest.mark.parametrize("depth", [None, 0])
def test_without_a_depth_the_program_reads_itself(tmp_path: Path, depth: int | None) -> None:
    source = Source()
    with reading(source, depth, tmp_path) as found:
        found.load(step(0))
        assert settled(source, 1) == [0]
        assert source.threads == {threading.current_thread().name}
        assert [(span.lane, span.activity, span.step) for span in found.spans()] == [("main", "load", 0)]


def test_a_batch_that_was_not_predicted_is_read_anew(tmp_path: Path) -> None:
    """As if the batch had another size than before: batches of the old size that were read ahead are dropped."""
    source = Source()
    with reading(source, 2, tmp_path) as found:
        found.load(step(0))
        settled(source, 4)
        other = replace(step(1, count=6), before=0, together=8)
        assert found.load(other) == "batch 1 of 6"
        settled(source, 8)
        assert found.load(replace(other, index=2)) == "batch 2 of 6"
        settled(source, 9)
        assert [(one.index, one.count) for one in source.asked] == [
            *[(index, 4) for index in range(4)],
            *[(index, 6) for index in range(1, 6)],
        ]


def test_figures_are_those_of_the_batches_taken(tmp_path: Path) -> None:
    """The counts do not depend on the thread's position when the run ended; dropped batches were requested, too."""
    source = Source()
    with reading(source, 3, tmp_path) as found:
        for index in range(4):
            found.load(step(index))
        settled(source, 4 + 3 + 1)
        reads = found.loader.reads
        assert reads is not None and reads._replace(stall_s=0.0) == Reads(requests=40, seeks=4, bytes=400)
        found.load(step(0))
        reads = found.loader.reads
        assert reads is not None and reads.requests == 10 * (4 + 3 + 1 + 1)


def test_the_stall_is_what_the_program_waited(tmp_path: Path) -> None:
    slow_s = 0.1
    with reading(Source(slow_s=slow_s), 2, tmp_path) as found:
        found.load(step(0))
        assert wait_until(lambda: len(read_spans(found)) == 4, within_s=60.0)  # two in the queue, and one more in hand
        found.load(step(1))
        waited = {span.step: span.end_s - span.start_s for span in found.spans() if span.activity == "load"}
        assert waited[0] >= slow_s > waited[1]
        reads = found.loader.reads
        assert reads is not None and reads.stall_s == pytest.approx(sum(waited.values()), abs=slow_s / 2)
        read = read_spans(found)[:4]
        assert [span.step for span in read] == [0, 1, 2, 3] and {span.lane for span in read} == {READER}
        assert all(span.bytes == 0 and span.end_s - span.start_s >= slow_s for span in read)


def read_spans(found: Readings) -> list[Span]:
    return [span for span in found.spans() if span.activity == "read"]


@pytest.mark.parametrize("depth", [0, 2])
def test_a_failure_is_raised_at_the_load_of_its_batch(tmp_path: Path, depth: int) -> None:
    source = Source(broken={2: InputError("data.records: ends at offset 4096")})
    with reading(source, depth, tmp_path) as found:
        assert [found.load(step(index)) for index in (0, 1)] == ["batch 0 of 4", "batch 1 of 4"]
        for _ in range(2):  # it is read again on the next request
            with pytest.raises(InputError, match="ends at offset 4096"):
                found.load(step(2))
        assert max(settled(source, 4)) == 2, "nothing is read behind a failure"
        assert found.load(step(3)) == "batch 3 of 4"


@pytest.mark.parametrize("depth", [0, 2])
def test_what_the_system_says_is_an_error_of_the_run(tmp_path: Path, depth: int) -> None:
    with reading(Source(broken={0: OSError(5, "Input/output error", "data.records")}), depth, tmp_path) as found:
        message = r"worker 0 could not load the batch of step 0: \[Errno 5\] Input/output error: 'data.records'"
        with pytest.raises(RunFailed, match=message):
            found.load(step(0))


def test_closing_ends_the_thread_wherever_it_stands(tmp_path: Path) -> None:
    before = threading.active_count()
    with reading(Source(), 1, tmp_path) as unused:
        pass
    assert unused.loader.reads is None
    with reading(Source(), 1, tmp_path) as found:
        found.load(step(0))
    assert threading.active_count() == before
    slow = Source(slow_s=0.1)
    with reading(slow, 1, tmp_path) as found:
        found.load(step(0))
    assert threading.active_count() == before, "it was in the middle of a batch"


def test_lanes_that_load_at_once_have_their_own_batches(tmp_path: Path) -> None:
    with reading(Source(), 1, tmp_path) as found:
        got: dict[int, str] = {}
        lanes = [threading.Thread(target=lambda i=i: got.update({i: found.load(step(i))})) for i in range(8)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        assert got == {index: f"batch {index} of 4" for index in range(8)}
        assert found.board.ranks[0].busy == 0


def test_what_has_no_file_has_no_figures(tmp_path: Path) -> None:
    plain: Any = SimpleNamespace(load=lambda samples: samples.index)
    with reading(plain, 2, tmp_path) as found:
        assert [found.load(step(index)) for index in range(3)] == [0, 1, 2]
        assert found.loader.reads is None


@pytest.mark.parametrize("direct", [False, True])
def test_a_disk_that_fails_is_named_with_file_and_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    file = numbered(tmp_path / "data.npy", 40)
    reader = Reader(file, Order(strategy="scattered", num_samples=40, seed=1), direct=direct)
    broken: Any = SimpleNamespace(load=reader.records)

    def preadv(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", preadv)
    with reading(broken, 2, tmp_path) as found, pytest.raises(RunFailed, match=r"offset [\d,]+: '.*data\.npy'"):
        found.load(step(0))
    reader.close()


def test_a_probe_takes_what_is_read_ahead_for_no_part_of_a_step(tmp_path: Path) -> None:
    """Loading is the 0.2 s that the program waited; the 0.3 s between its operations are a separate cost."""
    with reading(Source(), 2, tmp_path) as found:
        me = found.station.me
    job: Any = SimpleNamespace(team=[me], batch=4, method=SyncSgd())
    spans = [
        Span(me.rank, "main", activity, None, number, number + begin, number + end)
        for number in range(3)
        for activity, begin, end in TIMES
    ]
    ahead = [Span(me.rank, READER, "read", None, number + 2, number + 0.1, number + 0.9) for number in range(3)]
    for more in ([], ahead):
        found_costs = costs(job, Trace(spans=[*spans, *more]), None)
        assert found_costs[LOAD] == pytest.approx([0.2, 0.2, 0.2])
        assert found_costs[REST] == pytest.approx([0.3, 0.3])
