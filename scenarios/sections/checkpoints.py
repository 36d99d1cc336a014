"""`train.checkpoint`: how often a real run is checkpointed, so that it can be resumed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from pydantic import field_validator

from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected
from paceline.scenarios.values.section import Default, Field, Section


class Checkpoints(Section):
    """How often a real run is checkpointed."""

    every: fields.Interval = Field(description="how often: '100 updates', '1 epoch' or '5000 samples'")
    keep: Default[fields.Count] = Field(default=2, description="how many of the latest checkpoints are kept")

    @field_validator("every")
    @classmethod
    def _counted(cls, every: fields.Every) -> fields.Every:
        if every.unit == "seconds":  # all ranks pause at the same step, and their clocks differ
            words = "how often, in what ranks count: '100 updates', '1 epoch' or '5000 samples'"
            complain([((), expected(words), every.text)])
        return every

    def steps(self, *, num_samples: int, samples_in: Callable[[int], int]) -> int:
        """Returns the number of steps of the rank that owns the weights between two checkpoints, rounded up.

        Args:
            num_samples: samples of an epoch.
            samples_in: returns the samples of a number of steps.

        >>> Checkpoints(every="1 epoch").steps(num_samples=100, samples_in=lambda steps: 32 * steps)
        4
        """
        if self.every.unit == "updates":
            return int(self.every.count)
        samples = self.every.count * (num_samples if self.every.unit == "epochs" else 1)
        return 1 + bisect_left(range(1, round(samples) + 1), round(samples), key=samples_in)
