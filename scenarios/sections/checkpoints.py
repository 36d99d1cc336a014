"""`train.checkpoint`: how often a real run is checkpointed, so that it can be resumed."""

from __future__ import annotations

from pydantic import Field, field_validator

from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected
from paceline.scenarios.values.section import Part


class CheckpointPart(Part):
    every: fields.Interval = Field(description="how often: '100 updates', '1 epoch' or '5000 samples'")
    keep: fields.Count = Field(default=2, description="how many of the latest checkpoints are kept")

    @field_validator("every")
    @classmethod
    def _counted(cls, every: fields.Every) -> fields.Every:
        if every.unit == "seconds":  # all ranks pause at the same step, and their clocks differ
            words = "how often, in what ranks count: '100 updates', '1 epoch' or '5000 samples'"
            complain([((), expected(words), every.text)])
        return every

    def steps(self, *, num_samples: int, samples_per_step: int) -> int:
        """Returns the number of steps of the rank that owns the weights between two checkpoints, rounded up.

        >>> CheckpointPart(every="1 epoch").steps(num_samples=100, samples_per_step=32)
        4
        """
        if self.every.unit == "updates":
            return int(self.every.count)
        samples = self.every.count * (num_samples if self.every.unit == "epochs" else 1)
        return max(1, -(-round(samples) // samples_per_step))
