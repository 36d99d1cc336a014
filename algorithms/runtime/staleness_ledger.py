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


class Ledger:
    """One rank's book of what was applied there.

    Args:
        notion: what the staleness of an update counts.
        workers: of the run. The weights of a single worker are the average of everyone after each of its local steps.
    """

    def __init__(self, staleness_kind: StalenessKind, workers: int) -> None:
        self.staleness_kind, self.workers = staleness_kind, workers
        self.age = 0
        """local steps since the version last moved; 0 where there is one worker"""

    def enter(self, op: RecordUpdate, time_s: float) -> tuple[int, list[Update]]:
        """The version that the weights now have, and one row per input.

        >>> from paceline.algorithms.core.values import Contribution, Weights
        >>> book = Ledger(StalenessKind.VERSION_LAG, workers=3)
        >>> op = RecordUpdate(Weights(None, version=7), [Contribution(Rank(2), step=3, version=5, samples=32)])
        >>> version, (row,) = book.enter(op, time_s=1.0)
        >>> version, row.staleness
        (8, 2)
        """
        held = op.weights.version
        rows = [
            Update(
                time_s,
                c.rank,
                c.step,
                c.version,
                held,
                self.age if self.staleness_kind is StalenessKind.LOCAL_AGE else held - c.version,
                c.samples,
            )
            for c in op.inputs
        ]
        self.age = 0 if op.advance or self.workers == 1 else self.age + 1
        return (held + 1 if op.advance else held), rows

    @staticmethod
    def land(op: RecordUpdate, layer: str, time_s: float) -> list[LayerUpdate]:
        """One row per input of a layer that has landed by itself; its weights are in the version they had.

        >>> from paceline.algorithms.core.values import Contribution, Weights
        >>> origins = [Contribution(Rank(0), step=5, version=5, samples=32)]
        >>> op = RecordUpdate(Weights(None, version=7), origins, layer="fc")
        >>> [(row.layer, row.staleness) for row in Ledger.land(op, "fc", time_s=1.0)]
        [('fc', 2)]
        """
        held = op.weights.version
        return [LayerUpdate(time_s, c.rank, c.step, layer, c.version, held, held - c.version) for c in op.inputs]
