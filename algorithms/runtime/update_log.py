"""Converts `RecordUpdate` to table rows and measures staleness from the versions of weights and gradients.

An update and the update of a single layer within it are recorded separately, so that no gradient is counted twice. Rows
are tuples because there are many, and tuples are the fastest to create and to write to disk. The age of a gradient in
seconds is not recorded: `records.tables` computes it from the spans.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.core.values import Rank


class Update(NamedTuple):
    """One input of one update: a row of ``updates.parquet``. `rank` and `step` are those of its computation."""

    time_s: float
    rank: Rank
    step: int
    version_read: int
    version_applied: int
    staleness: int
    samples: int


class LayerUpdate(NamedTuple):
    """One input of the update of one layer, in a method that applies layers separately: a row of ``layers.parquet``."""

    time_s: float
    rank: Rank
    step: int
    layer: str
    version_read: int
    version_applied: int
    staleness: int


class Booked(NamedTuple):
    """The result of one `RecordUpdate`."""

    version: int
    """the new version of the weights"""
    updates: list[Update]
    """one row for each input; none for the update of a single layer"""
    layers: list[LayerUpdate]
    """one row for each input of the update of a single layer"""


class UpdateLog:
    """One rank's log of updates: the semantics of `RecordUpdate`.

    Args:
        staleness_kind: the definition of staleness.
        workers: number of workers of the run. With one worker, every local step is also an average of all workers.
    """

    __slots__ = ("age", "staleness_kind", "workers")

    def __init__(self, staleness_kind: StalenessKind, workers: int) -> None:
        self.staleness_kind, self.workers = staleness_kind, workers
        self.age = 0
        """local steps since the version last advanced; 0 with one worker"""

    def book(self, op: RecordUpdate, time_s: float) -> Booked:
        """Records an update, or the update of one layer within it.

        Args:
            op: the operation.
            time_s: time on the clock of the run, in seconds.

        >>> from paceline.algorithms.core.values import Contribution, Weights
        >>> log = UpdateLog(StalenessKind.VERSION_LAG, workers=3)
        >>> gradient = Contribution(Rank(2), 3, version=5, samples=32)
        >>> version, (row,), _ = log.book(RecordUpdate(Weights(None, version=7), [gradient]), time_s=1.0)
        >>> version, row.staleness
        (8, 2)
        >>> version, _, (row,) = log.book(RecordUpdate(Weights(None, version=7), [gradient], layer="fc"), time_s=1.0)
        >>> version, row.layer, row.staleness
        (7, 'fc', 2)
        """
        held, layer = op.weights.version, op.layer
        if layer is not None:
            landed = [LayerUpdate(time_s, c.rank, c.step, layer, c.version, held, held - c.version) for c in op.inputs]
            return Booked(held, [], landed)
        age = self.age if self.staleness_kind is StalenessKind.LOCAL_AGE else None
        rows = [
            Update(time_s, c.rank, c.step, c.version, held, held - c.version if age is None else age, c.samples)
            for c in op.inputs
        ]
        self.age = 0 if op.advance or self.workers == 1 else self.age + 1
        return Booked(held + 1 if op.advance else held, rows, [])
