"""Which records of a run are kept: all, those of some ranks, or none beside the counters; what a summary says of it.

* `full` keeps every span and every update.
* `sampled` keeps the complete spans of some workers, drawn at random with the run's seed, and a reservoir of updates.
  All other spans and updates are only counted, in `records.counters`.
* `summary` stores no spans and no updates. During the run it keeps the spans of a few workers, from which the summary's
  shares of time are estimated.

Servers are never among the kept ranks: a server has spans for the messages of all workers, so that they would grow with
the whole run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, TypedDict

from paceline.algorithms.core.values import Rank
from paceline.records.metrics import Histogram

Kind = Literal["full", "sampled", "summary"]
Choice = Literal["auto", "full", "sampled", "summary"]
FULL_STEPS = 200_000
"""`auto` keeps full records up to this number of worker steps; DERIVED: about 1 GB, at 3 to 6 kB each (measured,
see docs/runs.md)"""
KEPT_STEPS = {"sampled": 10_000, "summary": 4_000}
"""worker steps whose spans are kept, unless `LEAST_RANKS` have more; DERIVED: at most 60 MB and 24 MB at 6 kB each"""
LEAST_RANKS, MOST_RANKS = 4, {"sampled": 64, "summary": 16}
"""kept ranks; fewer than four give no useful standard error; provenance: ours"""
RESERVOIR = 10_000
"""updates in the reservoir: the standard error of an estimated share is at most 0.005; DERIVED: √(0.25 / 10,000)"""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which records of a run are kept."""

    kind: Kind = "full"
    ranks: frozenset[Rank] | None = None
    """ranks whose spans are kept; None: all"""
    updates: int | None = None
    """the number of updates in the reservoir; None: all"""
    seed: int = 0
    """the seed of the reservoir"""

    @staticmethod
    def of(choice: Choice, workers: int, steps: float, seed: int) -> Keeping:
        """Returns what to keep of a run; `auto` chooses full or sampled records by the number of worker steps.

        Args:
            choice: the scenario's `records`.
            workers: number of workers, ranks 0 … workers − 1.
            steps: the expected number of gradients of all workers together; infinite if unknown.
            seed: the run's seed.

        >>> Keeping.of("auto", workers=64, steps=64_000, seed=1)
        Keeping(kind='full', ranks=None, updates=None, seed=0)
        >>> sampled = Keeping.of("auto", workers=1_000, steps=2_000_000, seed=1)
        >>> sampled.kind, len(sampled.ranks), sampled.updates
        ('sampled', 5, 10000)
        """
        if choice == "auto":
            choice = "full" if steps <= FULL_STEPS else "sampled"
        if choice == "full":
            return Keeping()
        each = max(1.0, steps / workers)
        most = min(workers, MOST_RANKS[choice], max(LEAST_RANKS, int(KEPT_STEPS[choice] / each)))
        chosen = random.Random(f"kept ranks {seed}").sample(range(workers), most)
        updates = RESERVOIR if choice == "sampled" else 0
        return Keeping(choice, frozenset(map(Rank, chosen)), updates, seed)

    @property
    def whole(self) -> bool:
        """Whether every record is kept."""
        return self.kind == "full"


FULL = Keeping()
"""every record is kept"""


class LayerCount(TypedDict):
    """The staleness of all updates of one layer."""

    layer: str
    count: int
    mean: float
    max: int


class RecordFigures(TypedDict):
    """Which records were kept, the errors of estimates from them, and exact counts that the tables do not have."""

    kind: Kind
    kept_ranks: list[int]
    """workers whose spans are in the tables, or, of a summary, from which shares of time were estimated"""
    spans: int
    """number of activities of all ranks that were recorded or counted"""
    updates: int
    """number of inputs of updates"""
    updates_kept: int
    time_fraction_error: dict[str, float]
    """standard error of each estimated fraction of time; 0 for computing, which is exact"""
    histograms: dict[str, Histogram]
    """of every kind of staleness, exact"""
    layers: list[LayerCount]
    """in the order of their first updates; empty if whole gradients are applied"""


def says(records: RecordFigures, workers: int) -> str:
    """Describes in a sentence which figures are exact and which are estimated.

    Args:
        records: the summary's entry.
        workers: number of workers of the run.

    >>> figures = RecordFigures(kind="sampled", kept_ranks=[0, 3], spans=90, updates=20, updates_kept=10,
    ...     time_fraction_error={}, histograms={}, layers=[])
    >>> says(figures, 8)
    'Records are sampled: spans of 2 of 8 workers and 10 of 20 updates were kept. The fractions of time other than \
computing are estimated from them; counts, times, bytes and staleness are exact.'
    """
    ranks = f"{len(records['kept_ranks']):,} of {workers:,} workers"
    if records["kind"] == "summary":
        first = f"Only a summary was kept. Fractions of time other than computing are estimated from {ranks};"
    else:
        kept = f"{records['updates_kept']:,} of {records['updates']:,} updates"
        first = f"Records are sampled: spans of {ranks} and {kept} were kept. The fractions of time other than"
        first += " computing are estimated from them;"
    return f"{first} counts, times, bytes and staleness are exact."
