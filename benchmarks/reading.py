"""Compares reading a file record by record with reading long runs: measured on this machine, and simulated.

    python benchmarks/reading.py                       # a scratch file of 256 MiB in this folder: about three minutes
    python benchmarks/reading.py --folder /data --mebibytes 64 --inputs 110000 --buffer 32 --json

One, two and four processes read a record file without the page cache, each its share of every global batch, with the
reader of real runs and each of its strategies. The storage is calibrated with separate requests at random places
between the measured reads. The handling by the reader (finding its records, shuffling, gathering) is measured on
memory. The simulation of each cell uses only these two calibrations.

A repeat times all cells and calibrations in mixed order, every second repeat in reverse order, so that other activity
on the machine affects both sides. Ratios and errors are computed within one repeat, and the median counts. Exits with 1
if the error of a predicted rate or ratio exceeds 20 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from data_reading.shares import SEED, STRATEGIES, Cell, Share, records, simulated_s
from paceline.algorithms.core.errors import PacelineError
from paceline.backend.calibration.storage_costs import Kind, Readers, StorageProbe, scratch
from paceline.records.machine import OtherLoad
from paceline.records.metrics import interval
from paceline.topologies.catalogue.storage_devices import StorageModel
from paceline.workloads.reading import Strategy
from paceline.workloads.reading.file import RecordFile

AIM = 0.2
"""allowed error, relative to the measured figure"""
BUSY = 0.1
"""share of the processor time taken by other programs above which the measurement is not trusted"""
Rates = list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure (records per second or a ratio of two), measured and simulated in every repeat."""

    readers: int
    what: str
    measured: list[float]
    simulated: list[float]
    """each from the calibration of the same repeat"""
    median: float
    low: float
    high: float
    """half-width of the 95 % interval of the measured mean"""
    simulated_median: float
    error: float
    """(simulated − measured) / measured: the median over the repeats"""
    megabytes_per_s: float | None
    holds: bool

    @staticmethod
    def of(readers: int, what: str, measured: Rates, simulated: Rates, record_bytes: int | None = None) -> Row:
        """Returns the figure with its statistics. It is a ratio if no bytes are given."""
        typical, spread = median(measured), interval(measured)
        error = median(theirs / ours - 1 for theirs, ours in zip(simulated, measured, strict=True))
        return Row(
            readers=readers,
            what=what,
            measured=measured,
            simulated=simulated,
            median=typical,
            low=spread["low"],
            high=spread["high"],
            simulated_median=median(simulated),
            error=error,
            megabytes_per_s=None if record_bytes is None else typical * record_bytes / 1e6,
            holds=abs(error) <= AIM,
        )


@dataclass
class Bench:
    """All cells on one file."""

    file: RecordFile
    readers: Readers
    options: argparse.Namespace

    def __post_init__(self) -> None:
        self.cells = [Cell(readers, strategy) for readers in self.options.readers for strategy in STRATEGIES]
        self.rates: dict[Cell, Rates] = defaultdict(list)
        self.handling_s: dict[Strategy, Rates] = defaultdict(list)
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
        for one in work if turn % 2 == 0 else work[::-1]:
            if isinstance(one, Cell):
                shares = self._shares(one, turn)
                self.rates[one].append(records(shares) / self.readers.seconds(shares))
            elif isinstance(one, str):
                self.handling_s[one].append(self._handling_s(one, turn))
            else:
                self.probe.time(one)

    def simulated(self, cell: Cell) -> Rates:
        """Returns the records per second predicted from the calibration of each repeat."""
        found = []
        for turn, handling_s in enumerate(self.handling_s[cell.strategy]):
            shares = self._shares(cell, turn)
            seconds = simulated_s(self.probe.storage(turn), self.file.record_bytes, shares, handling_s)
            found.append(records(shares) / seconds)
        return found

    def rows(self) -> Iterator[Row]:
        """Returns the rates and, for each number of readers, how much faster long runs are."""
        simulated = {cell: self.simulated(cell) for cell in self.cells}
        for readers in self.options.readers:
            for cell in (cell for cell in self.cells if cell.readers == readers):
                yield Row.of(readers, cell.strategy, self.rates[cell], simulated[cell], self.file.record_bytes)
            whole, single = Cell(readers, "contiguous"), Cell(readers, "scattered")
            measured, expected = (np.divide(rates[whole], rates[single]).tolist() for rates in (self.rates, simulated))
            yield Row.of(readers, "contiguous / scattered", measured, expected)


def table(rows: Sequence[Row]) -> Table:
    """Renders the rows."""
    made = Table(box=None, title="Records a second, measured (median and 95 % interval of the mean) and simulated")
    made.add_column("readers", justify="right")
    made.add_column("order")
    for column in ("measured", "interval", "MB/s", "simulated", "error, %"):
        made.add_column(column, justify="right")
    for row in rows:
        ratio = row.megabytes_per_s is None
        form = ".2f" if ratio else ",.0f"
        rate = "" if row.megabytes_per_s is None else f"{row.megabytes_per_s:,.1f}"
        figures = [format(figure, form) for figure in (row.median, row.low, row.high, row.simulated_median)]
        spread, error = f"{figures[1]} … {figures[2]}", f"{100 * row.error:+.1f}"
        made.add_row(str(row.readers), row.what, figures[0], spread, rate, figures[3], error)
    return made


def words(storage: StorageModel, other_load: float) -> str:
    """Describes the calibrated storage and the conditions of the measurement."""
    limit = "no limit of latencies at once" if storage.depth is None else f"{storage.depth:g} at once"
    limit += f", {storage.waiting:.0%} of each excludes other requests"
    return (
        f"Storage: {storage.latency_s * 1e6:.0f} µs a request, {limit}; {storage.bytes_per_s / 1e6:,.0f} MB/s, "
        f"{storage.reader_bytes_per_s / 1e6:,.0f} for one reader. "
        f"{storage.provenance['latency']}. Other programs took {100 * other_load:.1f} % of the machine"
        + (", so take the measured rates with care." if other_load > BUSY else ".")
    )


def parsed() -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="a folder on the storage to be measured")
    parser.add_argument("--mebibytes", type=float, default=256.0, help="size of the scratch file")
    parser.add_argument("--inputs", type=int, default=3072, help="bytes of a sample's inputs; 8 more are its label")
    parser.add_argument("--buffer", type=int, default=1024, help="records of a shuffle buffer, and of a long request")
    parser.add_argument("--batch", type=int, default=64, help="samples of one reader's step")
    parser.add_argument("--readers", default="1,2,4", help="numbers of readers, with commas between them")
    parser.add_argument("--repeats", type=int, default=21, help="two or more")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.repeats < 2:
        parser.error(f"--repeats: found {options.repeats}, expected 2 or more, because the spread needs two rounds")
    options.readers = [int(count) for count in options.readers.split(",")]
    return options


def main() -> int:
    """Measures, simulates, and prints both."""
    try:
        return compared(parsed())
    except PacelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compared(options: argparse.Namespace) -> int:
    """Runs the whole comparison and returns the exit status."""
    with (
        OtherLoad() as other,
        scratch(options.folder, mebibytes=options.mebibytes, inputs=options.inputs) as file,
        Readers(file, max(options.readers)) as readers,
    ):
        bench = Bench(file, readers, options)
        for turn in range(options.repeats):
            bench.repeat(turn)
            print(f"repeat {turn + 1} of {options.repeats} done", file=sys.stderr)
        storage = bench.probe.storage()
    rows = list(bench.rows())
    holds = all(row.holds for row in rows)
    if options.json:
        found: dict[str, Any] = {"rows": [asdict(row) for row in rows], "storage": asdict(storage)}
        print(json.dumps(found | {"past_cache": readers.past_cache, "other_load": other.share, "holds": holds}))
    else:
        Console().print(table(rows))
        print(words(storage, other.share))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
