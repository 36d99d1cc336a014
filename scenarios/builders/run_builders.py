"""Builders of the workload, of real runs, and of the end of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.scenarios.builders.builder import Builder, Size, Time, Values


@dataclass(frozen=True, kw_only=True, repr=False)
class StandInData(Builder):
    """A small problem to learn if there is no folder of the data set."""

    model: str | Values
    """a name of `paceline list models`, or the size of a transformer"""
    batch_per_worker: int
    """its samples in a batch of one worker of the model"""
    dataset: str | None = None
    """its data set, which must be bundled; default: that of the model"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Reading(Builder):
    """How samples are read from storage."""

    strategy: Literal["scattered", "strided", "contiguous"] | None = None
    """scattered: every sample anywhere; strided; or contiguous: one run per worker"""
    buffer: int | None = None
    """records shuffled among each other, where contiguous"""
    prefetch: int | None = None
    """batches read ahead; 0: a worker waits for every batch"""
    record: Size | None = None
    """size of one sample in the file: '110 kB'; default: that of the data set"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Workload(Builder):
    """What is trained: the model, its data set and the batch.

    >>> Workload(model="digits-mlp", batch_per_worker=16).document()
    {'model': 'digits-mlp', 'batch_per_worker': 16}
    """

    model: str | Values
    """a name of `paceline list models`, module:function of your own, or the size of a transformer in the names of
    Hugging Face's config.json, or the path of such a file"""
    dataset: str | None = None
    """the data set; default: that of the model"""
    data_dir: str | Path | None = None
    """the folder with the data set's files; default: the one of its name in $PACELINE_DATA"""
    batch_per_worker: int | None = None
    """samples in one gradient of one worker"""
    learning: Literal["train", "quadratic", "none"] | None = None
    """train, quadratic, or none: timing only"""
    dtype: Literal["float32", "float64"] | None = None
    """type of weights and gradients, in memory and in messages: float32 or float64"""
    vmap: Literal["on", "off", "auto"] | None = None
    """whether simulated gradients in flight are computed together: on, off, or auto: by sizes"""
    compute_dtype: Literal["fp32", "tf32", "fp16", "bf16", "fp64", "amp"] | None = None
    """precision in which devices of the catalogue compute; affects only the time of a gradient: fp32, tf32, fp16,
    bf16, fp64 or amp (mixed precision); tensor cores need tf32, fp16, bf16 or amp"""
    options: Values | None = None
    """options of the learning problem, such as those of the quadratic"""
    stand_in: StandInData | Values | None = None
    """a small problem to learn if there is no folder of the data set; sizes and times stay the model's; simulate
    only"""
    reading: Reading | Values | None = None
    """a mapping: how samples are read; default: they are in memory, shuffled every epoch"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Checkpoints(Builder):
    """How often a real run is checkpointed."""

    every: str
    """how often: '100 updates', '1 epoch' or '5000 samples'"""
    keep: int | None = None
    """how many of the latest checkpoints are kept"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Train(Builder):
    """How a real run is made."""

    pace: Literal["device", "none"] | None = None
    """device: pace steps to the modelled device; none: run as fast as possible"""
    network: Literal["local", "emulated"] | None = None
    """local: messages cross this machine only; emulated: a network of the cluster's links (needs root)"""
    torch_threads: int | None = None
    """torch threads of each worker"""
    time_dilation: float | None = None
    """time dilation: a factor on device times of a paced run and on the times of an emulated network"""
    device: Literal["cpu", "cuda", "auto"] | None = None
    """cpu, cuda, or auto: GPUs where there is one for every rank of the host"""
    share_gpus: bool | None = None
    """ranks may share a GPU; collectives then go through the host's memory"""
    start_method: Literal["auto", "fork", "spawn"] | None = None
    """how processes of ranks start: fork, spawn, or auto: spawn for GPUs, since CUDA cannot be forked"""
    cpu_affinity: Literal["auto", "none", "cores", "numa"] | None = None
    """CPU affinity: own cores per rank, a numa node per node, none, or auto: cores if one is left"""
    shared_memory: bool | None = None
    """collectives and messages inside a node use shared memory; false: sockets"""
    interfaces: Sequence[str] | None = None
    """network interfaces: rank k of a host uses interface k, starting again after the last"""
    timeout: Time | None = None
    """time without progress before a rank is declared failed"""
    on_nonfinite: Literal["raise", "warn"] | None = None
    """on a NaN or infinite loss or gradient: raise ends the run, warn logs it once"""
    checkpoint: Checkpoints | Values | None = None
    """a mapping with every: how often a run is checkpointed, so that it can be resumed"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluate(Builder):
    """When the weights are evaluated."""

    every: str | None = None
    """how often: '1 epoch', '2 s'"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Record(Builder):
    """What else a simulation measures."""

    loss_change: int | None = None
    """measure the loss before and after every N-th update; simulated runs only"""
    drift: int | None = None
    """measure the workers' distances from their mean after every N-th step; simulated runs only"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Stop(Builder):
    """When a run ends: at the first of these limits.

    >>> Stop(epochs=2, seconds=30).document()
    {'epochs': 2, 'seconds': '30 s'}
    """

    accuracy: float | None = None
    """end when the smoothed accuracy reaches this value"""
    loss: float | None = None
    """end when the smoothed loss falls to this value"""
    epochs: float | None = None
    """end after this number of epochs"""
    updates: int | None = None
    """end after this number of steps of the rank that owns the weights: a worker or the server"""
    samples: int | None = None
    """end after this number of samples of all workers together"""
    seconds: Time | None = None
    """end after this time, on the run's own clock"""
    divergence: bool | None = None
    """end at an evaluation whose loss is NaN, infinite, or more than ten times the first one"""


@dataclass(frozen=True, kw_only=True, repr=False)
class Target(Builder):
    """The accuracy or the loss that the time is measured to."""

    accuracy: float | None = None
    """the target of the time to accuracy"""
    loss: float | None = None
    """the target of the time to a loss"""
