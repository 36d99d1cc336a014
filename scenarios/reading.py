"""The sections of a scenario that say how samples are read."""

from __future__ import annotations

from pydantic import Field

from paceline.scenarios import fields
from paceline.scenarios.part import Part
from paceline.workloads.reading import Reading
from paceline.workloads.reading.settings import BUFFER


class ReadingPart(Part):
    strategy: fields.StrategyName = Field(
        default="contiguous", description="scattered: every sample anywhere; strided; or contiguous: one run per worker"
    )
    buffer: fields.Count = Field(default=BUFFER, description="records shuffled among each other, where contiguous")
    prefetch: fields.Index = Field(default=2, description="batches read ahead; 0: a worker waits for every batch")
    record: fields.Size | None = Field(
        default=None, description="of one sample in the file, with its unit: '110 kB'; else as the data set has it"
    )

    def settings(self) -> Reading:
        """As the workload takes it."""
        record = None if self.record is None else round(self.record)
        return Reading(strategy=self.strategy, buffer=self.buffer, prefetch=self.prefetch, record=record)
