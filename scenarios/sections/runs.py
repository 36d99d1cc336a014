"""The sections of a scenario for runs: settings of real runs, evaluation, records, and the end of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from pydantic import field_validator

from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import complain, expected
from paceline.scenarios.values.section import Default, Field, Given, Nested, Quantity, Section


class Checkpoints(Section):
    """How often a real run is checkpointed."""

    every: Given[fields.Interval, str] = Field(description="how often: '100 updates', '1 epoch' or '5000 samples'")
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


class Train(Section):
    """How a real run is made."""

    pace: Default[fields.Pace] = Field(
        default="device", description="device: pace steps to the modelled device; none: run as fast as possible"
    )
    network: Default[fields.RealNetwork] = Field(
        default="local",
        description="local: messages cross this machine only; emulated: a network of the cluster's links (needs root)",
    )
    torch_threads: Default[fields.Threads] = Field(default=1, description="torch threads of each worker")
    time_dilation: Default[fields.Factor] = Field(
        default=1.0,
        description="time dilation: a factor on device times of a paced run and on the times of an emulated network",
    )
    device: Default[fields.RealDevice] = Field(
        default="cpu", description="cpu, cuda, or auto: GPUs where there is one for every rank of the host"
    )
    share_gpus: Default[fields.Flag] = Field(
        default=False, description="ranks may share a GPU; collectives then go through the host's memory"
    )
    start_method: Default[fields.RealStart] = Field(
        default="auto",
        description="how processes of ranks start: fork, spawn, or auto: spawn for GPUs, since CUDA cannot be forked",
    )
    cpu_affinity: Default[fields.Pin] = Field(
        default="auto",
        description="CPU affinity: own cores per rank, a numa node per node, none, or auto: cores if one is left",
    )
    shared_memory: Default[fields.Flag] = Field(
        default=True,
        description="collectives and messages inside a node use shared memory; false: sockets",
    )
    interfaces: Given[tuple[fields.Interface, ...], Sequence[str] | None] = Field(
        default=(), description="network interfaces: rank k of a host uses interface k, starting again after the last"
    )
    timeout: Quantity[fields.Period] = Field(
        default=60.0, description="time without progress before a rank is declared failed"
    )
    on_nonfinite: Default[fields.OnNonfinite] = Field(
        default="warn", description="on a NaN or infinite loss or gradient: raise ends the run, warn logs it once"
    )
    checkpoint: Nested[Checkpoints | None] = Field(
        default=None, description="a mapping with every: how often a run is checkpointed, so that it can be resumed"
    )


class Evaluate(Section):
    """When the weights are evaluated."""

    every: Given[fields.Interval, str | None] = Field(
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
        faults = []
        if None not in (self.accuracy, stop.accuracy) and self.accuracy > stop.accuracy:  # type: ignore[operator]
            words = f"expected an accuracy of {stop.accuracy:g} or less"
            faults.append(
                ("accuracy", f"found {self.accuracy:g}, but stop.accuracy ends a run at {stop.accuracy:g}; {words}")
            )
        if None not in (self.loss, stop.loss) and self.loss < stop.loss:  # type: ignore[operator]
            words = f"expected a loss of {stop.loss:g} or more"
            faults.append(("loss", f"found {self.loss:g}, but stop.loss ends a run at {stop.loss:g}; {words}"))
        return faults
