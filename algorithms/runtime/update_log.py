"""From `RecordUpdate` to rows: staleness is measured here, from the versions that weights and gradients carry.

Rules of this file:

* An update and the landing of a layer within it are booked apart, so that no gradient is counted twice.
* Rows are tuples, as there are many: these are made, and written to disk, most quickly.
* How long ago in seconds a gradient was begun is not booked: `records.tables` reads it off the spans, once for all.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.operations import RecordUpdate
from paceline.algorithms.core.values import Rank


class Update(NamedTuple):
    """One input of one update: a row of ``updates.parquet``. `rank` and `step` are those of who computed the input."""

    time_s: float
    rank: Rank
    step: int
    version_read: int
    version_applied: int
    staleness: int
    samples: int


class LayerUpdate(NamedTuple):
    """One input of one layer's own step, in a method that applies layers one by one: a row of ``layers.parquet``."""

    time_s: float
    rank: Rank
    step: int
    layer: str
    version_read: int
    version_applied: int
    staleness: int


class Booked(NamedTuple):
    """What one `RecordUpdate` came to."""

    version: int
    """of the weights from now on"""
    updates: list[Update]
    """one row for each input; none where a layer landed by itself"""
    layers: list[LayerUpdate]
    """one row for each input of a layer that landed by itself"""


class UpdateLog:
    """What `RecordUpdate` means: one rank's log of the updates that were applied there.

    Args:
        staleness_kind: what the staleness of an update counts.
        workers: of the run. The weights of a single worker are the average of all after each of its local steps.
    """

    __slots__ = ("age", "staleness_kind", "workers")

    def __init__(self, staleness_kind: StalenessKind, workers: int) -> None:
        self.staleness_kind, self.workers = staleness_kind, workers
        self.age = 0
        """local steps since the version last moved; 0 where there is one worker"""

    def book(self, op: RecordUpdate, time_s: float) -> Booked:
        """Books an update, or the landing of one layer within it.

        Args:
            op: what was applied.
            time_s: on the clock of the run, in seconds.

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
