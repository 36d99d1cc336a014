"""The settings of a scenario for reading samples."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.workloads.reading.orders import Order, Strategy

BUFFER = 1024
"""records in a shuffle buffer; provenance: ours, three mebibytes of pictures of 32 × 32 × 3 bytes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """How samples are read; see `Order` for the strategies.

    Args:
        strategy: the order of the samples, which determines the pieces.
        buffer: number of records that are shuffled together, if the strategy is contiguous.
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
