"""Measures the costs of requests on the storage of a folder, and returns them as the simulator's storage model.

Rules of this file:

* Requests are those of a reader, at random places of a record file, one after another, so Python's work for each is
  part of its latency. Nothing is fitted to reads that are to be predicted.
* One reader defines the line t = L + s / b through its times for a request of one record and for a large one: readers
  request single records and windows. Times for sizes in between do not lie on a line, because memory outside all caches
  is slower. Several readers with small requests show how many latencies overlap, and with large requests their total
  bandwidth B.
* Times are means over a burst, and the median over bursts, because other load on the machine varies.
* Every process opens the file itself, and bypasses the page cache if the file system supports that. Otherwise the
  cached pages of the file are dropped before each task, as far as the kernel follows the advice.
* Tasks are prepared in every process before the time starts. All begin at the same moment; the time ends with the last.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

import numpy as np
import psutil
from numpy.typing import NDArray

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.backend.posix.processes import fork
from paceline.backend.posix.waits import RunClock
from paceline.topologies.catalogue.storage_devices import READ_AHEAD, StorageModel
from paceline.workloads.reading import Piece
from paceline.workloads.reading.file import RecordFile, record_dtype, write_records
from paceline.workloads.reading.reader import Opened

START_IN_S = 0.002
HOST = "the host below a virtual machine may still cache"


class Work(Protocol):
    """A task of a process on the file; it can be pickled."""

    def ready(self, opened: Opened) -> Callable[[], object]:
        """Prepares the task and returns the function to be timed."""
        ...


class Readers:
    """A context manager for several processes.

    Args:
        file: the file that they read.
        count: the number of processes.
        direct: bypasses the page cache if possible; otherwise cached pages are read from the cache.
    """

    def __init__(self, file: RecordFile, count: int, *, direct: bool = True) -> None:
        self.file, self.count, self.direct = file, count, direct
        self.past_cache = "no: through the page cache"
        """how the page cache is bypassed, in words"""
        self.bypassed = False
        """whether it is bypassed by O_DIRECT, which also disables read-ahead"""
        self._children: list[tuple[int, Connection]] = []

    def __enter__(self) -> Self:
        for _ in range(self.count):
            ours, child_end = multiprocessing.Pipe()
            if (pid := fork()) == 0:
                ours.close()
                serve(child_end, self.file, self.direct)
            child_end.close()
            self._children.append((pid, ours))
        notes = [self._answer(connection) for _, connection in self._children]
        self.bypassed = self.direct and notes[0] is None
        if self.direct:
            self.past_cache = f"O_DIRECT; {HOST}" if self.bypassed else f"posix_fadvise(DONTNEED); {HOST}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid, connection in self._children:
            connection.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._children = []

    def seconds(self, work: Sequence[Work]) -> float:
        """Returns the time from the common start, with one task per process, to the end of the last.

        Raises:
            RunFailed: one of them failed.
        """
        busy = [connection for _, connection in self._children[: len(work)]]
        assert len(busy) == len(work), f"{len(work)} pieces of work for {self.count} readers"
        for connection, piece in zip(busy, work, strict=True):
            connection.send(piece)
        for connection in busy:
            self._answer(connection)
        start_s = time.monotonic() + START_IN_S
        for connection in busy:
            connection.send(start_s)
        return float(max(self._answer(connection) for connection in busy) - start_s)

    def _answer(self, connection: Connection) -> Any:
        try:
            answer = connection.recv()
        except EOFError as error:
            raise RunFailed("a reader died") from error
        if isinstance(answer, Exception):
            raise RunFailed(f"a reader failed: {answer}") from answer
        return answer


def serve(connection: Connection, file: RecordFile, direct: bool) -> NoReturn:
    """Runs in each process: performs the tasks that it receives until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which ends this process
    try:
        opened = Opened(file, direct=direct)
        opened.read(Piece(0, 1))  # the first read shows whether O_DIRECT works
        connection.send(opened.note)
        while True:
            run = connection.recv().ready(opened)
            if opened.note is not None:
                forget(file)
            connection.send(None)
            RunClock(0.0).wait_until(connection.recv())
            run()
            connection.send(time.monotonic())
    except EOFError:
        os._exit(0)
    except Exception as error:
        connection.send(error)
    finally:
        os._exit(1)


def forget(file: RecordFile) -> None:
    """Asks the kernel to drop the cached pages of a file."""
    handle = os.open(file.path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
"""file systems that are not storage"""
CHUNK = 4096
"""records per write"""
REQUESTS, BURST_BYTES = 4096, 128 << 20
"""the most requests and bytes of a burst: enough for rare delays to occur in it"""
FEWEST = 4
TURNS = 7
ARM = 1.1
"""numbers of overlapping latencies up to this one count as one"""
LARGEST = 4 << 20
"""bytes of a large request, about as large as the largest buffers of the presets' readers"""

Kind = tuple[int, int]
"""number of readers, and records of each request"""
Timed = dict[Kind, list[float]]
"""seconds from one request of a reader to its next, for each burst"""


@contextmanager
def scratch(folder: Path, *, mebibytes: float, inputs: int) -> Iterator[RecordFile]:
    """Creates a record file of random bytes in a folder of its own, and removes it afterwards.

    Args:
        folder: a folder on the storage in question.
        mebibytes: the approximate size of the file.
        inputs: bytes of a sample's inputs.

    Raises:
        InputError: the folder is in memory.
    """
    if (kind := file_system(folder)) in MEMORY:
        raise InputError(f"{folder}: found a file system in memory ({kind}), expected a folder on a disk")
    dtype = record_dtype(np.uint8, (inputs,))
    count = max(2, round(mebibytes * 2**20 / dtype.itemsize))
    own = Path(tempfile.mkdtemp(prefix="paceline-reading-", dir=folder))
    try:
        write_records(own / "scratch.npy", _random(count, dtype), count=count, dtype=dtype)
        yield RecordFile.open(own / "scratch.npy")
    finally:
        shutil.rmtree(own, ignore_errors=True)


def file_system(folder: Path) -> str:
    """Returns the type of a folder's file system; empty if it is not known."""
    path = folder.resolve()
    mounts = {Path(partition.mountpoint): partition.fstype for partition in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in (path, *path.parents) if place in mounts), "")


def _random(count: int, dtype: np.dtype[np.void]) -> Iterable[NDArray[np.void]]:
    numbers = np.random.default_rng(1)
    for first in range(0, count, CHUNK):
        some = min(CHUNK, count - first)
        yield np.frombuffer(numbers.bytes(some * dtype.itemsize), dtype)


@dataclass(frozen=True, slots=True)
class Requests:
    """A burst of requests at random places, of `records` records each."""

    records: int
    count: int
    seed: int
    pause_s: float
    """busy time between the end of a request and the next one, as in a reader"""

    def ready(self, opened: Opened) -> Callable[[], None]:
        places = np.random.default_rng(self.seed).integers(0, opened.file.num_samples - self.records + 1, self.count)
        pieces = [Piece(int(place), self.records) for place in places]

        def run() -> None:
            kept = None
            for piece in pieces:
                due_s = time.perf_counter() + self.pause_s
                while time.perf_counter() < due_s:
                    pass
                kept = opened.read(piece)  # while the previous buffer exists, as in a reader, which affects memory use
            del kept

        return run


@dataclass
class StorageProbe:
    """Times of bursts on one file, collected in turns.

    Args:
        readers: as many processes as will read at the same time.
        pause_s: how long a reader processes a record before its next request. A device that receives the next request
            immediately is faster than one that has entered a sleep state.
    """

    readers: Readers
    pause_s: float = 0.0
    timed: Timed = field(default_factory=lambda: defaultdict(list))
    _seed: int = 0

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of bursts: each request size by one reader, and by 2, 4 … all."""
        return [(readers, records) for readers in (1, *self.several) for records in self.sizes]

    @property
    def sizes(self) -> list[int]:
        """Request sizes in records: one, and a large one of which at least four fit into the file."""
        file = self.readers.file
        return sorted({1, max(1, min(LARGEST // file.record_bytes, file.num_samples // 4))})

    @property
    def several(self) -> list[int]:
        """The numbers of concurrent readers above one."""
        doubled = [2**power for power in range(1, self.readers.count.bit_length())]
        return sorted({*doubled, self.readers.count} - {1})

    def time(self, kind: Kind) -> None:
        """Times one burst."""
        (readers, records), file = kind, self.readers.file
        fits = BURST_BYTES // (records * file.record_bytes * readers)
        count = max(FEWEST, min(REQUESTS, fits, file.num_samples // records))
        self._seed += readers
        work = [Requests(records, count, self._seed + reader, self.pause_s) for reader in range(readers)]
        self.timed[kind].append(self.readers.seconds(work) / count)

    def storage(self, turn: int | None = None, *, name: str = "this machine") -> StorageModel:
        """Returns the storage model of the bursts of one turn, in which each kind is timed once; or of all turns."""
        timed = self.timed if turn is None else {kind: [times[turn]] for kind, times in self.timed.items()}
        reader, ahead = self.readers, None if self.readers.bypassed else READ_AHEAD
        return fitted(
            timed,
            reader.file.record_bytes,
            pause_s=self.pause_s,
            name=name,
            past_cache=reader.past_cache,
            read_ahead_bytes=ahead,
        )


def calibrate(
    folder: Path, *, mebibytes: float = 256.0, inputs: int = 3072, readers: int = 4, turns: int = TURNS
) -> StorageModel:
    """Measures the storage of a folder, as `readers` processes of this machine use it without the page cache.

    Args:
        folder: a folder on the storage in question, in which a scratch file is created.
        mebibytes: the size of that file.
        inputs: bytes of a sample's inputs; the smallest request is one record.
        readers: as many processes as will read at the same time.
        turns: how often everything is timed; the median counts.

    Raises:
        InputError: the folder is in memory.
    """
    with scratch(folder, mebibytes=mebibytes, inputs=inputs) as file, Readers(file, readers) as processes:
        probe = StorageProbe(processes)
        for _ in range(turns):
            for kind in probe.kinds:
                probe.time(kind)
        return probe.storage()


def fitted(
    timed: Timed, record_bytes: int, *, pause_s: float, name: str, past_cache: str, read_ahead_bytes: int | None
) -> StorageModel:
    """Returns the storage model for these times.

    Args:
        timed: bursts of one reader and of several, with requests of one record and with large ones.
        record_bytes: bytes of a record.
        pause_s: the part of each time that is not due to the request.
        name: the name of the storage.
        past_cache: how the page cache was bypassed.
        read_ahead_bytes: how far the system reads ahead; None: not at all.
    """
    typical = {kind: median(times) - pause_s for kind, times in timed.items()}
    small, large = (of(records for _, records in typical) for of in (min, max))
    latency_s, alone = line({records * record_bytes: typical[1, records] for records in {small, large}})
    together = {
        readers: readers * large * record_bytes / (seconds - latency_s)
        for (readers, records), seconds in typical.items()
        if records == large and seconds > latency_s
    }
    bytes_per_s = max([alone, *together.values()]) if large > small else alone
    rates = {
        readers: readers / (seconds + pause_s) for (readers, records), seconds in typical.items() if records == small
    }
    at_once, waiting = limits(rates, latency_s)
    bursts = f"medians of {min(map(len, timed.values()))} bursts; page cache passed by: {past_cache}"
    return StorageModel(
        name=name,
        latency_s=latency_s,
        bytes_per_s=bytes_per_s,
        one_bytes_per_s=alone if alone < bytes_per_s else None,
        depth=at_once,
        waiting=waiting,
        read_ahead_bytes=read_ahead_bytes,
        title="measured here, with requests as a reader makes them",
        provenance={
            "latency": f"measured, {bursts}",
            "bandwidth": f"measured, {bursts}",
            "reader": f"measured, {bursts}",
            "depth": f"measured, {max(rates)} readers at most; {bursts}",
            "waiting": f"measured, {max(rates)} readers at most; {bursts}",
        },
    )


def line(times: Mapping[int, float]) -> tuple[float, float]:
    """Returns L and B of t = L + s / B through the times of two sizes; for a single size, all of it is latency.

    >>> latency_s, bytes_per_s = line({1000: 0.002, 4000: 0.005})
    >>> round(latency_s, 6), round(bytes_per_s)
    (0.001, 1000000)
    """
    small, large = min(times), max(times)
    per_byte_s = max(times[large] - times[small], 0.0) / max(large - small, 1)
    return max(times[small] - small * per_byte_s, 0.0), 1 / max(per_byte_s, 1e-15)


def limits(rates: Mapping[int, float], latency_s: float) -> tuple[float | None, float]:
    """Returns D and w of min(R x, D / L, R / (L (1 + w (R − 1)))), the requests per second of R readers; one makes x.

    The pair with the smallest largest relative deviation; of equally good ones, the pair with the weakest limit. D is
    None if no limit was observed, and 1, one arm, if several readers make hardly more requests than one.

    Args:
        rates: requests per second by the number of readers; contains 1.
        latency_s: L, the latency of a request.

    >>> limits({1: 100.0, 2: 200.0, 4: 250.0}, latency_s=0.01)
    (2.5, 0.0)
    >>> limits({1: 100.0, 2: 160.0, 4: 228.6}, latency_s=0.01)
    (None, 0.25)
    >>> limits({1: 100.0, 2: 198.0, 4: 390.0}, latency_s=0.01)
    (None, 0.01)
    >>> limits({1: 100.0, 2: 103.0, 4: 98.0}, latency_s=0.01)
    (1, 0.0)
    """
    most, x = max(rates), rates[1]
    if most == 1 or latency_s <= 0:
        return None, 0.0
    if max(rates.values()) <= ARM * x:
        return 1, 0.0

    def worst(tried: tuple[float, float]) -> float:
        at_once, waiting = tried
        most_of = {readers: min(at_once, readers / (1 + waiting * (readers - 1))) / latency_s for readers in rates}
        return max(abs(math.log(min(readers * x, most_of[readers]) / rates[readers])) for readers in rates)

    depths = np.arange(most, 1.0, -0.05).round(2).tolist()
    pairs = ((depth, percent / 100) for percent in range(101) for depth in depths)
    at_once, waiting = min(pairs, key=lambda pair: round(worst(pair), 4))
    return None if at_once >= most else at_once, waiting
