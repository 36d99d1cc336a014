"""The sections of a scenario for evaluation, records, and the end of a run."""

from __future__ import annotations

from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Default, Field, Quantity, Section


class Evaluate(Section):
    """When the weights are evaluated."""

    every: Default[fields.Interval] = Field(
        default=fields.Every(1.0, "epochs"), description="how often: '1 epoch', '2 s'"
    )


class Record(Section):
    """What else a simulation measures."""

    loss_change: fields.Count | None = Field(
        default=None, description="measure the loss before and after every N-th update; simulated runs only"
    )
    drift: fields.Count | None = Field(
        default=None,
        description="measure the workers' distances from their mean after every N-th step; simulated runs only",
    )

    @property
    def asked(self) -> list[str]:
        """Returns the keys that are set."""
        return [name for name, every in self if every is not None]


class Stop(Section):
    """When a run ends: at the first of these limits.

    >>> Stop(epochs=2, seconds=30).document()
    {'epochs': 2, 'seconds': '30 s'}
    """

    accuracy: fields.Accuracy | None = Field(
        default=None, description="end when the smoothed accuracy reaches this value"
    )
    loss: fields.Positive | None = Field(default=None, description="end when the smoothed loss falls to this value")
    epochs: fields.Positive | None = Field(default=None, description="end after this number of epochs")
    updates: fields.Count | None = Field(
        default=None,
        description="end after this number of steps of the rank that owns the weights: a worker or the server",
    )
    samples: fields.Count | None = Field(
        default=None, description="end after this number of samples of all workers together"
    )
    seconds: Quantity[fields.Period | None] = Field(
        default=None, description="end after this time, with its unit, on the run's own clock"
    )
    divergence: Default[fields.Flag] = Field(
        default=True,
        description="end at an evaluation whose loss is NaN, infinite, or more than ten times the first one",
    )


class Target(Section):
    """The accuracy or the loss that the time is measured to."""

    accuracy: fields.Accuracy | None = Field(default=None, description="the target of the time to accuracy")
    loss: fields.Positive | None = Field(default=None, description="the target of the time to a loss")

    def missed(self, stop: Stop) -> list[tuple[str, str]]:
        """Returns the targets that no run reaches because `stop` ends it before: the key, and what is wrong.

        Args:
            stop: when a run ends.

        >>> Target(loss=0.5).missed(Stop(epochs=1, loss=0.8))
        [('loss', 'found 0.5, but stop.loss ends a run at 0.8; expected a loss of 0.8 or more')]
        """
        found = []
        if None not in (self.accuracy, stop.accuracy) and self.accuracy > stop.accuracy:  # type: ignore[operator]
            words = f"expected an accuracy of {stop.accuracy:g} or less"
            found.append(
                ("accuracy", f"found {self.accuracy:g}, but stop.accuracy ends a run at {stop.accuracy:g}; {words}")
            )
        if None not in (self.loss, stop.loss) and self.loss < stop.loss:  # type: ignore[operator]
            words = f"expected a loss of {stop.loss:g} or more"
            found.append(("loss", f"found {self.loss:g}, but stop.loss ends a run at {stop.loss:g}; {words}"))
        return found
