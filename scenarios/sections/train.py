"""The section `train` of a scenario: how a real run is made."""

from __future__ import annotations

from pydantic import Field

from paceline.scenarios.sections.checkpoints import CheckpointPart
from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Part


class TrainPart(Part):
    pace: fields.Pace = Field(default="device", description="device: hold steps to device times; none: run freely")
    network: fields.RealNetwork = Field(
        default="local",
        description="local: messages cross this machine only; emulated: a network of the cluster's links (needs root)",
    )
    torch_threads: fields.Threads = Field(default=1, description="threads of each worker")
    time_dilation: fields.Factor = Field(
        default=1.0, description="multiplies device times in a paced run, and the times of an emulated network"
    )
    device: fields.RealDevice = Field(
        default="cpu", description="cpu, cuda, or auto: GPUs where there is one for every rank of the host"
    )
    share_gpus: fields.Flag = Field(
        default=False, description="ranks may share a GPU; collectives then go by way of the host's memory"
    )
    start_method: fields.RealStart = Field(
        default="auto", description="processes of ranks: fork, spawn, or auto: spawn for GPUs, which cannot be forked"
    )
    cpu_affinity: fields.Pin = Field(
        default="auto",
        description="each rank to cores of its own, each node to a numa node, none, or auto: cores if one is left",
    )
    shared_memory: fields.Flag = Field(
        default=True,
        description="collectives and messages inside a node go through memory that its ranks share; false: by sockets",
    )
    interfaces: tuple[fields.Interface, ...] = Field(
        default=(), description="network interfaces: a host's k-th rank has the k-th, and from the first again"
    )
    timeout: fields.Period = Field(
        default=60.0, description="a rank that is stopped, or silent while others wait for it, for so long is dead"
    )
    on_nonfinite: fields.OnNonfinite = Field(
        default="warn", description="on a NaN or infinite loss or gradient: raise ends the run, warn logs it once"
    )
    checkpoint: CheckpointPart | None = Field(
        default=None, description="a mapping with every: how often a run is written down, to be gone on with"
    )
