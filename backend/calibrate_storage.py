"""Measures what requests cost on the storage under a folder, and answers it as the simulator's storage.

Rules of this file:

* Requests are those of a reader, at random places of a record file, one after the other: what Python does for each is
  part of its latency. Nothing is fitted to reads that are to be predicted.
* One reader gives the line t = L + s / B through its times for requests of s bytes. Several at once, with small
  requests, show how many latencies pass at the same time; with large ones, what all have together.
* Times are means over a burst, and of those the median over bursts: other work on the machine comes and goes.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from numpy.typing import NDArray

from paceline.algorithms.errors import InputError
from paceline.backend.readers import Readers
from paceline.topologies.storage import READ_AHEAD, Storage
from paceline.workloads.reading import Piece
from paceline.workloads.reading.file import RecordFile, record_dtype, write_records
from paceline.workloads.reading.reader import Opened

MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")
"""file systems that are no storage"""
CHUNK = 4096
"""records that are written at once"""
REQUESTS, BURST_BYTES = 4096, 128 << 20
"""of a burst, at most: so long that what seldom takes long has its share in it"""
FEWEST = 4
TURNS = 7
ARM = 1.1
"""latencies at once that are taken for one"""
LARGEST = 4 << 20
"""bytes of a request; the deepest buffers of the presets' readers are about as large"""

Kind = tuple[int, int]
"""readers, and records of each request"""
Timed = dict[Kind, list[float]]
"""seconds from one request of a reader to its next, burst by burst"""


@contextmanager
def scratch(folder: Path, *, mebibytes: float, inputs: int) -> Iterator[RecordFile]:
    """A record file of random bytes in a folder of its own, removed afterwards.

    Args:
        folder: on the storage in question.
        mebibytes: of the file, roughly.
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
    """The kind that a folder lies on; empty where nobody says."""
    path = folder.resolve()
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[place] for place in (path, *path.parents) if place in mounts), "")


def _random(count: int, dtype: np.dtype[np.void]) -> Iterable[NDArray[np.void]]:
    numbers = np.random.default_rng(1)
    for first in range(0, count, CHUNK):
        some = min(CHUNK, count - first)
        yield np.frombuffer(numbers.bytes(some * dtype.itemsize), dtype)


@dataclass(frozen=True, slots=True)
class Requests:
    """A burst of requests at random places, for as many records each."""

    records: int
    count: int
    seed: int
    pause_s: float
    """between a request's end and the next one's beginning: busy, as a reader is then"""

    def ready(self, opened: Opened) -> Callable[[], None]:
        places = np.random.default_rng(self.seed).integers(0, opened.file.population - self.records + 1, self.count)
        pieces = [Piece(int(place), self.records) for place in places]

        def run() -> None:
            kept = None
            for piece in pieces:
                due_s = time.perf_counter() + self.pause_s
                while time.perf_counter() < due_s:
                    pass
                kept = opened.read(piece)  # beside what was read before, as a reader keeps it: memory is used as there
            del kept

        return run


@dataclass
class Probe:
    """Times of bursts on one file, collected little by little.

    Args:
        readers: as many processes as will ever read at once.
        pause_s: what a reader does with a record before it asks for the next. A device that is asked again at once
            answers sooner than one that has gone to sleep.
    """

    readers: Readers
    pause_s: float = 0.0
    timed: Timed = field(default_factory=lambda: defaultdict(list))
    _seed: int = 0

    @property
    def kinds(self) -> list[Kind]:
        """What is to be timed: each size by one reader, the smallest and the largest by 2, 4 … all."""
        sizes = self.sizes
        return [(1, records) for records in sizes] + [
            (readers, records) for readers in self.several for records in dict.fromkeys((sizes[0], sizes[-1]))
        ]

    @property
    def sizes(self) -> list[int]:
        """Records of requests: 1, 4, 16 … as far as they fit into the file four times."""
        file = self.readers.file
        most = max(1, min(LARGEST // file.record_bytes, file.population // 4))
        return [4**power for power in range(most.bit_length()) if 4**power <= most]

    @property
    def several(self) -> list[int]:
        """How many read at once, beside one alone."""
        doubled = [2**power for power in range(1, self.readers.count.bit_length())]
        return sorted({*doubled, self.readers.count} - {1})

    def time(self, kind: Kind) -> None:
        """One burst."""
        (readers, records), file = kind, self.readers.file
        fits = BURST_BYTES // (records * file.record_bytes * readers)
        count = max(FEWEST, min(REQUESTS, fits, file.population // records))
        self._seed += readers
        work = [Requests(records, count, self._seed + reader, self.pause_s) for reader in range(readers)]
        self.timed[kind].append(self.readers.seconds(work) / count)

    def storage(self, turn: int | None = None, *, name: str = "this machine") -> Storage:
        """What the bursts say: those of one turn, each kind timed once in a turn; or all of them."""
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
) -> Storage:
    """The storage under a folder, as `readers` processes of this machine see it past the page cache.

    Args:
        folder: on the storage in question; a scratch file lies there meanwhile.
        mebibytes: of that file.
        inputs: bytes of a sample's inputs: the smallest request is one record.
        readers: as many as will read at once.
        turns: how often everything is timed; the median counts.

    Raises:
        InputError: the folder is in memory.
    """
    with scratch(folder, mebibytes=mebibytes, inputs=inputs) as file, Readers(file, readers) as processes:
        probe = Probe(processes)
        for _ in range(turns):
            for kind in probe.kinds:
                probe.time(kind)
        return probe.storage()


def fitted(
    timed: Timed, record_bytes: int, *, pause_s: float, name: str, past_cache: str, read_ahead_bytes: int | None
) -> Storage:
    """The storage that behaves like this.

    Args:
        timed: bursts of one reader with several sizes of requests, and of several with the smallest and the largest.
        record_bytes: of a record.
        pause_s: of those times, what is no request's.
        name: of the storage.
        past_cache: how the page cache was passed by.
        read_ahead_bytes: how far the system reads ahead; None: not at all.
    """
    typical = {kind: median(times) for kind, times in timed.items()}
    small, large = (of(records for _, records in typical) for of in (min, max))
    # readers at once share the bytes: to each of R readers its s bytes come as R s bytes do to one
    lines = {
        readers * records * record_bytes: seconds - pause_s
        for (readers, records), seconds in typical.items()
        if readers == 1 or records == large > small
    }
    latency_s, bytes_per_s = line(lines)
    rates = {readers: readers / seconds for (readers, records), seconds in typical.items() if records == small}
    bursts = f"medians of {min(map(len, timed.values()))} bursts; page cache passed by: {past_cache}"
    return Storage(
        name=name,
        latency_s=latency_s,
        bytes_per_s=bytes_per_s,
        depth=depth(rates, latency_s),
        read_ahead_bytes=read_ahead_bytes,
        title="measured here, with requests as a reader makes them",
        provenance={
            "latency": f"measured, {bursts}",
            "bandwidth": f"measured, {bursts}",
            "depth": f"measured, {max(rates)} readers at most; {bursts}",
        },
    )


def line(times: Mapping[int, float]) -> tuple[float, float]:
    """L and B of t = L + s / B: least squares of relative deviations, so that small requests count as much as large.

    >>> latency_s, bytes_per_s = line({1000: 0.002, 2000: 0.003, 4000: 0.005})
    >>> round(latency_s, 6), round(bytes_per_s)
    (0.001, 1000000)
    """
    sizes, seconds = np.array(list(times), dtype=float), np.array(list(times.values()))
    (per_byte_s, latency_s), *_ = np.linalg.lstsq(np.stack([sizes / seconds, 1 / seconds], 1), np.ones(len(sizes)))
    return max(float(latency_s), 0.0), float(1 / max(per_byte_s, math.ulp(0.0)))


def depth(rates: Mapping[int, float], latency_s: float) -> float | None:
    """D of min(R x, D / L), the requests a second of R readers of which one alone makes x; None: no limit was seen.

    The D whose largest relative deviation is the smallest. A limit within a tenth of 1 is one arm.

    >>> depth({1: 100.0, 2: 200.0, 4: 250.0}, latency_s=0.01)
    2.5
    >>> depth({1: 100.0, 2: 198.0, 4: 390.0}, latency_s=0.01) is None
    True
    """
    most = max(rates)
    if most == 1 or latency_s <= 0:
        return None

    def worst(tried: float) -> float:
        return max(abs(math.log(min(readers * rates[1], tried / latency_s) / rates[readers])) for readers in rates)

    best = min(np.arange(1.0, most + 0.05, 0.05).round(2).tolist(), key=worst)
    if best >= 0.9 * most:
        return None
    return 1 if best <= ARM else float(best)
