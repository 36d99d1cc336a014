"""From `Applied` to rows: staleness is measured here, from the versions that weights and gradients carry."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.method import Notion
from paceline.algorithms.operations import Applied
from paceline.algorithms.values import Rank


@dataclass(frozen=True, slots=True)
class Update:
    """One input of one update: a row of ``updates.parquet``. `rank` and `step` are those of who computed the input."""

    time_s: float
    rank: Rank
    step: int
    version_read: int
    version_applied: int
    staleness: int
    samples: int


class Ledger:
    """One rank's book of what was applied there."""

    def __init__(self, notion: Notion) -> None:
        self.notion = notion
        self.age = 0
        """local steps since the version last moved"""

    def enter(self, op: Applied, time_s: float) -> tuple[int, list[Update]]:
        """The version that the weights now have, and one row per input.

        >>> from paceline.algorithms.values import Contribution, Weights
        >>> book = Ledger(Notion.VERSION_LAG)
        >>> op = Applied(Weights(None, version=7), [Contribution(Rank(2), step=3, version=5, samples=32)])
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
                self.age if self.notion is Notion.LOCAL_AGE else held - c.version,
                c.samples,
            )
            for c in op.inputs
        ]
        self.age = 0 if op.advance else self.age + 1
        return (held + 1 if op.advance else held), rows
