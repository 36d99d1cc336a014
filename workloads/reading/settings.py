"""How the samples of a workload are read, as a scenario says it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.workloads.reading.orders import Order, Strategy

BUFFER = 1024
"""records in a shuffle buffer; provenance: ours, a mebibyte of pictures of 32 × 32 × 3 bytes each three times over"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How samples are read; see `Order` for the strategies.

    Args:
        strategy: in which order, and so in which pieces.
        buffer: records that are shuffled among each other, where the strategy is contiguous.
        prefetch: batches that are read ahead of the one that a rank works on; 0: it waits for every batch.
        record: bytes of one sample in the file; None: as many as the data set has.
    """

    strategy: Strategy = "contiguous"
    buffer: int = BUFFER
    prefetch: int = 2
    record: int | None = None

    def order(self, num_samples: int, seed: int) -> Order:
        """The order of so many samples."""
        return Order(strategy=self.strategy, num_samples=num_samples, seed=seed, buffer=self.buffer)
