"""Compares reading a file record by record with reading long runs: measured on this machine, and simulated.

    python benchmarks/reading.py                       # a scratch file of 256 MiB in this folder: about three minutes
    python benchmarks/reading.py --folder /data --mebibytes 64 --inputs 110000 --buffer 32 --json

One, two and four processes read a record file without the page cache, each its share of every global batch, with the
reader of real runs and each of its strategies. The storage is calibrated with separate requests at random places
between the measured reads. The handling by the reader (finding its records, shuffling, gathering) is measured on
memory. The simulation of each cell uses only these two calibrations.

A round times all cells and calibrations in mixed order, every second one in reverse order, so that other activity
on the machine affects both sides. Ratios and errors are computed within one round, and the median counts. Exits with 1
if the error of a predicted rate or ratio exceeds 20 %.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import simpy

from common.harness import CORES, Answer, at_least, numbers, run_command, say, table
from paceline.algorithms.core.values import Samples
from paceline.backend.calibration.storage_costs import Kind, Readers, StorageProbe, scratch
from paceline.records.metrics import interval
from paceline.simulator.interpreter.storage import Stores
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Held, Order, Piece, Strategy
from paceline.workloads.reading.file import RecordFile, Records
from paceline.workloads.reading.reader import Opened, Reader

AIM = 0.2
"""allowed error, relative to the measured figure"""
SHARE = 16
"""fraction of an epoch that is read if every record is a request"""
SEED = 1
STRATEGIES: tuple[Strategy, ...] = ("scattered", "strided", "contiguous")
IN_MEMORY = 64 << 20
"""bytes of records in memory: more than caches hold"""


class InMemory(Opened):
    """A record file in memory. Reading it costs only the work of the reader."""

    def __init__(self, file: RecordFile) -> None:
        self.file, self.note, self.direct = file, None, False
        self._records = np.ones(
            min(file.num_samples, IN_MEMORY // file.record_bytes) * file.record_bytes, np.uint8
        ).view(file.dtype)

    def read(self, piece: Piece) -> Records:
        first = piece.first % (len(self._records) - piece.records + 1)
        return self._records[first : first + piece.records]


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one of several readers: a number of steps from a first one."""

    order: Order
    worker: int
    workers: int
    batch: int
    first: int
    steps: int
    from_memory: bool = False

    @property
    def samples(self) -> Iterator[Samples]:
        """Reads step by step."""
        for index in range(self.first, self.first + self.steps):
            yield Samples(self.worker, self.workers, index, self.batch)

    def ready(self, opened: Opened) -> Callable[[], None]:
        """See `readers.Work`. The order of the epoch is computed before the timing begins."""
        file = InMemory(opened.file) if self.from_memory else opened
        reader, steps = Reader(opened.file, self.order, opened=file), list(self.samples)
        self.order.positions(steps[0])

        def run() -> None:
            for samples in steps:
                reader.records(samples)

        return run


@dataclass(frozen=True, slots=True)
class Cell:
    """The number of readers and their strategy."""

    readers: int
    strategy: Strategy

    def shares(self, num_samples: int, *, buffer: int, batch: int, turn: int) -> list[Share]:
        """Returns the share of each reader in a turn: the whole epoch, or a part of it if each record is a request.

        Args:
            num_samples: Records in the file.
            buffer: Records of a shuffle buffer.
            batch: Samples of one step of one reader.
            turn: Number of the turn. Each turn reads the records after those of the previous one.
        """
        order = Order(strategy=self.strategy, num_samples=num_samples, seed=SEED, buffer=buffer)
        epoch = num_samples // (self.readers * batch)
        steps = epoch if self.strategy == "contiguous" else max(2, epoch // SHARE)
        first = turn * steps
        return [Share(order, worker, self.readers, batch, first, steps) for worker in range(self.readers)]


def simulated_s(storage: StorageModel, record_bytes: int, shares: Sequence[Share], handling_s: float) -> float:
    """Returns the simulated seconds of these shares.

    Args:
        storage: The calibrated storage.
        record_bytes: Bytes of a record.
        shares: The shares of the readers on one node.
        handling_s: Seconds that a reader needs for a batch after its bytes arrived, on one of `CORES`.
    """
    env = simpy.Environment()
    cores = simpy.Resource(env, CORES)
    stores = Stores(env, storage, record_bytes, [0] * len(shares))

    def read(share: Share) -> Generator[simpy.Event, Any, None]:
        reader, held = stores.reader(0), Held()
        for samples in share.samples:
            asked = reader.ask(held.fresh(share.order.pieces(samples)))
            if asked.requests:
                there = env.event()
                stores.read(reader, asked, partial(_come, there))
                yield there
            with cores.request() as core:
                yield core
                yield env.timeout(handling_s)

    env.run(until=env.all_of([env.process(read(share)) for share in shares]))
    return float(env.now)


def _come(event: simpy.Event) -> None:
    event.succeed()


def records(shares: Sequence[Share]) -> int:
    """Returns the records of all shares."""
    return sum(share.steps * share.batch for share in shares)


def row_of(
    readers: int, what: str, measured: list[float], simulated: list[float], record_bytes: int | None = None
) -> dict[str, Any]:
    """Returns records per second, or a ratio of two (without bytes), measured and simulated in every round.

    The simulation of a round is from the calibration of that round. `low` and `high` are the 95 % interval of the
    measured mean, `error` is the median of (simulated − measured) / measured.
    """
    typical, spread = median(measured), interval(measured)
    error = median(simulated_rate / rate - 1 for rate, simulated_rate in zip(measured, simulated, strict=True))
    return {
        "readers": readers,
        "what": what,
        "measured": measured,
        "simulated": simulated,
        "median": typical,
        "low": spread["low"],
        "high": spread["high"],
        "simulated_median": median(simulated),
        "error": error,
        "megabytes_per_s": record_bytes and typical * record_bytes / 1e6,
        "holds": abs(error) <= AIM,
    }


@dataclass
class Bench:
    """All cells on one file."""

    file: RecordFile
    readers: Readers
    options: argparse.Namespace

    def __post_init__(self) -> None:
        self.cells = [Cell(readers, strategy) for readers in self.options.readers for strategy in STRATEGIES]
        self.rates: dict[Cell, list[float]] = defaultdict(list)
        self.handling_s: dict[Strategy, list[float]] = defaultdict(list)
        """samples of a batch"""
        record_s = median(self._handling_s("scattered", 0) for _ in range(3)) / self.options.batch
        self.probe = StorageProbe(self.readers, pause_s=record_s)

    def _shares(self, cell: Cell, turn: int) -> list[Share]:
        options = self.options
        return cell.shares(self.file.num_samples, buffer=options.buffer, batch=options.batch, turn=turn)

    def _handling_s(self, strategy: Strategy, turn: int) -> float:
        """Returns the seconds that a reader needs for a batch in addition to the reading."""
        share = self._shares(Cell(1, strategy), turn)[0]
        return self.readers.seconds([replace(share, from_memory=True)]) / share.steps

    def repeat(self, turn: int) -> None:
        """Times every cell once, with the calibrations in between; every second time in reverse order."""
        work: list[Cell | Kind | Strategy] = [*self.cells, *self.probe.kinds, *STRATEGIES]
        work = [work[place] for place in np.random.default_rng(SEED).permutation(len(work))]
        for piece in work if turn % 2 == 0 else work[::-1]:
            if isinstance(piece, Cell):
                shares = self._shares(piece, turn)
                self.rates[piece].append(records(shares) / self.readers.seconds(shares))
            elif isinstance(piece, str):
                self.handling_s[piece].append(self._handling_s(piece, turn))
            else:
                self.probe.time(piece)

    def simulated(self, cell: Cell) -> list[float]:
        """Returns the records per second predicted from the calibration of each repeat."""
        rates = []
        for turn, handling_s in enumerate(self.handling_s[cell.strategy]):
            shares = self._shares(cell, turn)
            seconds = simulated_s(self.probe.storage(turn), self.file.record_bytes, shares, handling_s)
            rates.append(records(shares) / seconds)
        return rates

    def rows(self) -> Iterator[dict[str, Any]]:
        """Returns the rates and, for each number of readers, how much faster long runs are."""
        simulated = {cell: self.simulated(cell) for cell in self.cells}
        for readers in self.options.readers:
            for cell in (cell for cell in self.cells if cell.readers == readers):
                yield row_of(readers, cell.strategy, self.rates[cell], simulated[cell], self.file.record_bytes)
            whole, single = Cell(readers, "contiguous"), Cell(readers, "scattered")
            measured, expected = (np.divide(rates[whole], rates[single]).tolist() for rates in (self.rates, simulated))
            yield row_of(readers, "contiguous / scattered", measured, expected)


def body(options: argparse.Namespace) -> Answer:
    with (
        scratch(options.folder, mebibytes=options.mebibytes, inputs=options.inputs) as file,
        Readers(file, max(options.readers)) as readers,
    ):
        bench = Bench(file, readers, options)
        for turn in range(options.rounds):
            bench.repeat(turn)
            say(f"round {turn + 1} of {options.rounds} done")
        storage = bench.probe.storage()
    rows = list(bench.rows())
    cells = {
        "readers": "readers:", "order": "what", "measured": _figure("median"), "from": _figure("low"),
        "to": _figure("high"), "MB/s": "megabytes_per_s:,.1f", "simulated": _figure("simulated_median"),
        "error": "error:+.1%",
    }  # fmt: skip
    title = "Records a second, measured (median and 95 % interval of the mean) and simulated"
    holds = all(row["holds"] for row in rows)
    figures = {"rows": rows, "storage": asdict(storage), "past_cache": readers.past_cache, "holds": holds}
    return Answer(figures, [table(title, rows, cells), words(storage)], holds)


def _figure(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: format(row[key], ".2f" if row["megabytes_per_s"] is None else ",.0f")


def words(storage: StorageModel) -> str:
    """Describes the calibrated storage."""
    limit = "no limit of latencies at once" if storage.depth is None else f"{storage.depth:g} at once"
    limit += f", {storage.waiting:.0%} of each excludes other requests"
    return (
        f"Storage: {storage.latency_s * 1e6:.0f} µs a request, {limit}; {storage.bytes_per_s / 1e6:,.0f} MB/s, "
        f"{storage.reader_bytes_per_s / 1e6:,.0f} for one reader. {storage.provenance['latency']}"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, default=Path(), help="a folder on the storage to be measured")
    parser.add_argument("--mebibytes", type=float, default=256.0, help="size of the scratch file")
    parser.add_argument("--inputs", type=int, default=3072, help="bytes of a sample's inputs; 8 more are its label")
    parser.add_argument("--buffer", type=int, default=1024, help="records of a shuffle buffer, and of a long request")
    parser.add_argument("--batch", type=int, default=64, help="samples of one reader's step")
    parser.add_argument("--readers", type=numbers, default=[1, 2, 4], help="numbers of readers (default: 1,2,4)")
    parser.add_argument("--rounds", type=at_least(2), default=21, help="two or more, because of the spread")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
