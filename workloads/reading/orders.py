"""The samples of a step and the pieces of the file that contain them: a function of the seed and of `Samples`.

* Samples are numbered continuously, global batch after global batch; if an epoch ends inside a batch, the next epoch
  begins there. So every epoch has every sample exactly once, whatever the number of workers and the sizes of their
  batches, as long as the division of the global batch is constant.
* scattered: every epoch shuffles all N samples, and each is read separately. This is the order without optimisation.
* strided: the file is read in its own order, and neighbours go to different workers: worker r of P takes every P-th
  sample. Each is read separately.
* contiguous: worker r reads one run of the file in an epoch, ⌊N f/G⌋ … ⌊N (f + b)/G⌋ for its samples f … f + b of the G
  of a global batch. Runs are read in windows of `buffer` records, each shuffled separately, so a sample moves by less
  than the length of a buffer. Runs rotate among the workers between epochs: in epoch e all begin ⌊N j/P⌋ records nearer
  to the front, j = e mod P, wrapping around to the end of the file. With equal batches no run crosses the end of the
  file, so an epoch begins P runs; with unequal batches one run may cross it, and is read as two.
* sharded: worker r reads the records ⌊N r/P⌋ … ⌊N (r + 1)/P⌋ in every epoch of its own, whatever the batches: its part
  of the data never changes. Windows are as with contiguous.

The settings of a scenario for reading samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.fast_values import replace
from paceline.algorithms.core.values import Samples
from paceline.workloads.sampling import check, cut, shuffled

Strategy = Literal["scattered", "strided", "contiguous", "sharded"]
Places = NDArray[np.int64]


class Piece(NamedTuple):
    """Consecutive records of the file."""

    first: int
    records: int


class ShuffleWindow(NamedTuple):
    """A part of a worker's run that is shuffled separately."""

    epoch: int
    start: int
    """number of its first record in the file"""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order in which samples are used; see the top of this file.

    Args:
        strategy: scattered, strided, contiguous or sharded.
        num_samples: number of samples in the file.
        seed: seed of the shuffling.
        buffer: number of records of a window.

    >>> order = Order(strategy="contiguous", num_samples=12, seed=1, buffer=2)
    >>> second = Samples(worker=1, workers=3, index=0, count=4)
    >>> sorted(order.positions(second).tolist()), order.pieces(second)
    ([4, 5, 6, 7], [Piece(first=4, records=2), Piece(first=6, records=2)])
    """

    strategy: Strategy
    num_samples: int
    seed: int
    buffer: int = 1024

    def positions(self, samples: Samples) -> Places:
        """Returns the positions of a step's samples in the file, in the order of use.

        Raises:
            InputError: a global batch has more samples than the file.
        """
        first, together = cut(samples)
        if together > self.num_samples:
            check(self.num_samples, workers=samples.workers, count=-(-together // samples.workers))
        match self.strategy:
            case "contiguous" | "sharded":
                return np.concatenate([self._shuffled(window)[part] for window, part in self._windows(samples)])
            case "strided":
                dealt = _dealt(np.arange(first, first + samples.count), together, samples.workers)
                return (samples.index * together + dealt) % self.num_samples
            case "scattered":
                start = samples.index * together + first
                epochs, places = np.divmod(np.arange(start, start + samples.count), self.num_samples)
                orders = {int(epoch): shuffled(self.num_samples, self.seed, int(epoch)) for epoch in np.unique(epochs)}
                return np.concatenate([order[places[epochs == epoch]] for epoch, order in orders.items()])

    def pieces(self, samples: Samples) -> list[Piece]:
        """Returns the pieces that must be in memory for a step, in the order of reading; see `Held`."""
        if self.strategy in ("strided", "scattered"):
            return [Piece(int(place), 1) for place in self.positions(samples)]
        return [piece for window, _ in self._windows(samples) for piece in self._pieces(window)]

    def _windows(self, samples: Samples) -> Iterator[tuple[ShuffleWindow, slice]]:
        """Yields the windows of a step's samples, with the slice of samples in each."""
        count, fixed = samples.count, self.strategy == "sharded"
        low, high = self._shard(samples) if fixed else self._run(samples)
        place, end = samples.number * count, (samples.number + 1) * count
        while place < end:
            epoch, inside = divmod(place, high - low)
            start = inside // self.buffer * self.buffer
            size = min(self.buffer, high - low - start)
            part = slice(inside - start, min(size, inside - start + end - place))
            ahead = 0 if fixed else self.num_samples * (epoch % samples.workers) // samples.workers
            yield ShuffleWindow(epoch, (low + start - ahead) % self.num_samples, size), part
            place += part.stop - part.start

    def _run(self, samples: Samples) -> tuple[int, int]:
        """Returns the ends of a worker's run of the file in the first epoch."""
        first, together = cut(samples)
        first -= samples.part * samples.count  # the micro-batches of a worker are in one run
        low, high = (self.num_samples * edge // together for edge in (first, first + samples.parts * samples.count))
        return low, high

    def _shard(self, samples: Samples) -> tuple[int, int]:
        """Returns the ends of a worker's own part of the file."""
        low, high = (self.num_samples * edge // samples.workers for edge in (samples.worker, samples.worker + 1))
        return low, high

    def _shuffled(self, window: ShuffleWindow) -> Places:
        return (window.start + _mixed(window, self.seed)) % self.num_samples

    def _pieces(self, window: ShuffleWindow) -> list[Piece]:
        before_end = min(window.size, self.num_samples - window.start)
        pieces = [Piece(window.start, before_end), Piece(0, window.size - before_end)]
        return [piece for piece in pieces if piece.records]


class Held:
    """The pieces that a reader has in memory: those of the previous step."""

    def __init__(self) -> None:
        self._pieces: frozenset[Piece] = frozenset()

    def fresh(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Returns the pieces that must be read for the next step, and drops those that it does not need.

        >>> held = Held()
        >>> held.fresh([Piece(0, 2), Piece(2, 2)]), held.fresh([Piece(2, 2), Piece(4, 2)])
        ([Piece(first=0, records=2), Piece(first=2, records=2)], [Piece(first=4, records=2)])
        """
        missing = [piece for piece in dict.fromkeys(pieces) if piece not in self._pieces]
        self._pieces = frozenset(pieces)
        return missing


def following(samples: Samples) -> Samples:
    """Returns the batch that a worker is expected to take next, whose samples are read ahead."""
    index, part = divmod(samples.number + 1, samples.parts)
    return replace(samples, index=index, part=part)


def _dealt(numbers: Places, together: int, workers: int) -> Places:
    """Permutes numbers within a global batch such that those of one worker are `workers` apart.

    It is a permutation of 0 … together − 1: the columns of a table of `workers` columns, one after the other.

    >>> _dealt(np.arange(7), 7, 3).tolist()
    [0, 3, 6, 1, 4, 2, 5]
    """
    rows, longer = divmod(together, workers)
    long = longer * (rows + 1)
    column = np.where(numbers < long, numbers // (rows + 1), longer + (numbers - long) // max(rows, 1))
    row = np.where(numbers < long, numbers % (rows + 1), (numbers - long) % max(rows, 1))
    return row * workers + column


# A reader uses few windows at a time; a simulation has a reader for every rank.
@lru_cache(maxsize=4096)
def _mixed(window: ShuffleWindow, seed: int) -> Places:
    order = np.random.default_rng(np.random.SeedSequence((seed, *window))).permutation(window.size)
    order.setflags(write=False)
    return order


BUFFER = 1024
"""records in a shuffle buffer; provenance: ours, three mebibytes of pictures of 32 × 32 × 3 bytes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """How samples are read; see `Order` for the strategies.

    Args:
        strategy: the order of the samples, which determines the pieces.
        buffer: number of records that are shuffled together, if the strategy is contiguous or sharded.
        prefetch: number of batches that are read ahead; 0: a rank waits for every batch.
        record: bytes of one sample in the file; None: those of the data set.
    """

    strategy: Strategy = "contiguous"
    buffer: int = BUFFER
    prefetch: int = 2
    record: int | None = None

    def order(self, num_samples: int, seed: int) -> Order:
        """Returns the order of samples.

        Args:
            num_samples: number of samples in the file.
            seed: seed of the shuffling.
        """
        return Order(strategy=self.strategy, num_samples=num_samples, seed=seed, buffer=self.buffer)
