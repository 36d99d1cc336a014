"""The section `train` of a scenario: settings of real runs."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.scenarios.sections.checkpoints import Checkpoints
from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Default, Field, Given, Nested, Quantity, Section


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
