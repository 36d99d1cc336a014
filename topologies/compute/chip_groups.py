"""A many-core chip divided into groups of cores with their own weights and data: data parallelism inside one chip.

    t(P) = Σ b/P · FLOPs / rate(cores of a group) + (P · fixed + b · moved) / bandwidth + kernels · launch
           + bytes of the tree sum over groups and of every copy's update / bandwidth

Groups are equal and consist of whole tiles of two cores, as the chip's second-level caches do; the remaining cores idle
(`Spec.part`). All groups share the memory. How fast it is depends on what one step touches: weights, gradients and
optimizer state of every copy, and the activations of the batch (the batch among them, as the first layer's input). Data
that a step does not draw only take room. `scaling.Scaling` models how cores slow each other. A chip of 34 tiles makes
four groups of 8 in quadrant and in SNC-4 mode alike; other differences of these modes were not found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device import DeviceModel
from paceline.topologies.catalogue.device_catalogue import Spec
from paceline.topologies.compute.device_model import GradientTimesByBatch, device
from paceline.topologies.compute.device_parameters import fitted_parameters
from paceline.topologies.compute.layer_times import Rates, gradient_s
from paceline.topologies.compute.model_work import Mode, WorkLike, footprint, sustained_bytes_per_s
from paceline.topologies.compute.scaling import part_rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A chip in groups, for one gradient of the whole batch.

    Args:
        cores: the cores of one group.
        compute_s: forward and backward, memory included.
        exchange_s: summing the gradients and updating every copy.
        needed_bytes: the memory of all copies together, with their data.
        touched_bytes: the part of it that a step touches.
        bytes_per_s: the sustained memory bandwidth with so many bytes touched.
    """

    groups: int
    cores: int
    compute_s: float
    exchange_s: float
    needed_bytes: float
    touched_bytes: float
    bytes_per_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.exchange_s


def partitioned(
    spec: Spec,
    work: WorkLike,
    groups: int,
    *,
    samples: int,
    data_bytes: float = 0.0,
    optimizer_copies: int = 0,
    mode: Mode = "flat",
) -> Partition:
    """Returns the times of a gradient over `samples`, divided among groups of cores.

    Args:
        spec: the chip.
        work: the model.
        groups: the number of groups; 1 is the whole chip.
        samples: the whole batch.
        data_bytes: bytes of each group's copy of its data.
        optimizer_copies: numbers of optimizer state per weight.
        mode: the mode of the near memory, see `model_work.sustained_bytes_per_s`.

    Raises:
        InputError: the chip has too few tiles, or its memories are too small.
    """
    part = spec.part(groups)
    touched = _touched_bytes(spec, work, groups, samples, data_bytes, optimizer_copies)
    speed = sustained_bytes_per_s(spec, touched, mode)
    rates = _group_rates(spec, work, groups, samples, speed)
    share, weights = samples / groups, 4.0 * sum(row.parameters for row in work.works)
    return Partition(
        groups=groups,
        cores=part.cores or 0,
        compute_s=gradient_s(work.works, rates, share),
        exchange_s=weights * _copies_moved(groups, optimizer_copies) / speed,
        needed_bytes=touched + groups * data_bytes,
        touched_bytes=touched,
        bytes_per_s=speed,
    )


def group_device(
    spec: Spec,
    work: WorkLike,
    groups: int,
    *,
    samples: int,
    data_bytes: float = 0.0,
    optimizer_copies: int = 1,
    mode: Mode = "flat",
) -> DeviceModel:
    """Returns one group of cores as a device, for the simulation of all groups as workers.

    Its share of the memory bandwidth depends on what all groups touch in a step. `partitioned` has the same times in
    closed form.

    Args:
        spec: the chip.
        work: the model.
        groups: the number of groups.
        samples: the whole batch, of which each group computes its part.
        data_bytes: bytes of each group's copy of its data.
        optimizer_copies: numbers of optimizer state per weight.
        mode: as for `partitioned`.

    Raises:
        InputError: as for `partitioned`.
    """
    part = spec.part(groups)
    touched = _touched_bytes(spec, work, groups, samples, data_bytes, optimizer_copies)
    speed = sustained_bytes_per_s(spec, touched, mode)
    made = device(part, work, samples=-(-samples // groups), optimizer_copies=optimizer_copies)
    own = made.rates
    assert own is not None, "a device of the catalogue has rates"
    return replace(
        made,
        times=GradientTimesByBatch(work.name, _group_rates(spec, work, groups, samples, speed), work.works),
        rates=replace(own, bandwidths=((0.0, speed / groups),)),
        provenance=f"{made.provenance}; a step of {groups} groups touches {touched / 1e9:.3g} GB in {mode} mode",
    )


def _group_rates(spec: Spec, work: WorkLike, groups: int, samples: int, bytes_per_s: float) -> Rates:
    """Returns the rates of one group if the chip's memory sustains `bytes_per_s`."""
    part = spec.part(groups)
    rates = part_rates(part, work, fitted_parameters(), samples, 0.0)
    reached = rates.bytes_per_s / sustained_bytes_per_s(part, 0.0)  # by its software
    return replace(rates, bytes_per_s=reached * bytes_per_s / groups)


def _copies_moved(groups: int, optimizer_copies: int) -> int:
    """Returns how often the weights' bytes move after backward.

    P − 1 sums read two and write one; P − 1 groups copy the result; every group's update reads the sum and its weights
    and writes these, and reads and writes its optimizer state.

    >>> _copies_moved(1, 0), _copies_moved(4, 0), _copies_moved(4, 1)
    (3, 27, 35)
    """
    return 5 * (groups - 1) + groups * (3 + 2 * optimizer_copies)


def _touched_bytes(
    spec: Spec, work: WorkLike, groups: int, samples: int, data_bytes: float, optimizer_copies: int
) -> float:
    """Returns the bytes that a step touches; raises `InputError` if these and the data do not fit into the memories."""
    needs = footprint(spec, work, optimizer_copies=optimizer_copies)
    copy_bytes = needs.weights_bytes + needs.gradients_bytes + needs.optimizer_bytes
    touched = groups * copy_bytes + samples * needs.activation_bytes + needs.workspace_bytes
    needed, there = touched + groups * data_bytes, (spec.memory_bytes or 0.0) + (spec.far_bytes or 0.0)
    if needed > there:
        raise InputError(
            f"{groups} groups of {work.name} need {needed / 1e9:.3g} GB of {there / 1e9:g} GB on {spec.name}: "
            f"{(needed - there) / 1e9:.2g} GB too much"
        )
    return touched
