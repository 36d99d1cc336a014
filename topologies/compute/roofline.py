"""The compute model: the time of a gradient on a device of the catalogue.

    t(b) = Σ over modules and both passes of max(b · FLOPs / (peak · efficiency), (fixed + b · moved) / bandwidth)
           + kernels · launch

Rules of this file: the work of a model is given as rows of layers, so this file is independent of models. A row is
bound by arithmetic or by memory. The efficiency is the share of peak arithmetic that is reached when memory does not
bind. It may exceed 1, because fast convolutions need fewer products than are counted. Numbers of half the size move in
half the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device import Device
from paceline.topologies.catalogue.device_catalogue import ITEM_BYTES, Spec, precision_named
from paceline.topologies.compute.efficiencies import Efficiency, efficiency_of
from paceline.topologies.compute.memory import check_fits, footprint, sustained_bytes_per_s
from paceline.topologies.compute.model_work import PassLike, RowLike, WorkLike


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of some work as a function of the batch, near one batch: overhead_s + b · per_sample_s."""

    overhead_s: float
    per_sample_s: float

    def at(self, samples: float) -> float:
        return self.overhead_s + samples * self.per_sample_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The roofline of a device.

    Args:
        flops_per_s: peak times efficiency.
        bytes_per_s: sustained memory bandwidth.
        launch_s: the cost of one kernel.
        scale: the size of a number relative to float32.
    """

    flops_per_s: float
    bytes_per_s: float
    launch_s: float
    scale: float = 1.0

    def line(self, work: PassLike, samples: float) -> Line:
        """Returns the time of one pass through one module: exact at this batch, and while the same roof binds it."""
        launch_s = work.kernels * self.launch_s
        fixed_s = work.fixed_bytes * self.scale / self.bytes_per_s
        moved_s = work.moved_bytes * self.scale / self.bytes_per_s
        arithmetic_s = work.flops / self.flops_per_s
        if arithmetic_s * samples >= fixed_s + moved_s * samples:
            return Line(launch_s, arithmetic_s)
        return Line(launch_s + fixed_s, moved_s)


def roof_of(spec: Spec, precision: str, efficiency: Efficiency, *, needed_bytes: float = 0.0) -> Roof:
    """Returns the device's roof at this efficiency; memory is slower if so many bytes reach into a far memory.

    Args:
        spec: the device.
        precision: the precision of arithmetic.
        efficiency: the share of peak arithmetic, and the cost of a kernel.
        needed_bytes: the memory in use, in bytes.
    """
    precision = precision_named(precision)
    return Roof(
        flops_per_s=spec.peak(precision) * efficiency.value,
        bytes_per_s=sustained_bytes_per_s(spec, needed_bytes),
        launch_s=efficiency.launch_s,
        scale=ITEM_BYTES[precision] / 4,
    )


def lines(works: Sequence[RowLike], roof: Roof, samples: float) -> Iterator[tuple[RowLike, Line, Line]]:
    """Yields each module with its forward and backward lines."""
    for row in works:
        yield row, roof.line(row.forward, samples), roof.line(row.backward, samples)


def whole(works: Sequence[RowLike], roof: Roof, samples: float) -> Line:
    """Returns the line of all modules together."""
    both = [line for _, *ways in lines(works, roof, samples) for line in ways]
    return Line(sum(line.overhead_s for line in both), sum(line.per_sample_s for line in both))


def device(
    spec: Spec,
    work: WorkLike,
    precision: str = "fp32",
    *,
    samples: int = 32,
    optimizer_copies: int = 1,
    efficiency: Efficiency | None = None,
    profile: Sequence[tuple[float, float]] | None = None,
) -> Device:
    """Returns a device of the catalogue that computes gradients of a model.

    Args:
        spec: from `device_names.named` or `device_names.find`.
        work: the model's rows of layers.
        precision: the precision of arithmetic: fp32, tf32, fp16, bf16, fp64, or amp, float32, …
        samples: the batch of one gradient, at which the straight line is exact.
        optimizer_copies: numbers of optimizer state per weight: 1 for momentum.
        efficiency: the share of the device's peak; None: that of device and family (`efficiency_of`).
        profile: measured (batch, seconds) points, to which the line is fitted instead; the roofline divides it among
            the layers.

    Raises:
        InputError: the model's layers or the precision are not known, or the memory is too small.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> from types import SimpleNamespace as Row
    >>> ahead, back = (Row(flops=n * 10**9, moved_bytes=10**6, fixed_bytes=0, kernels=1) for n in (1, 2))
    >>> row = Row(name="fc", parameters=1, saved_bytes=0, forward=ahead, backward=back)
    >>> net = Row(name="net", family="", works=(row,))
    >>> made = device(named("p100"), net, efficiency=Efficiency(0.5, 1e-5, "given"))
    >>> made.overhead_s, round(made.per_sample_s * 1e3, 4)  # 3 GFLOP at 5.3 TFLOP/s
    (2e-05, 0.566)
    """
    if not work.works:
        raise InputError(f"model {work.name!r}: found no layer table, so its time on {spec.name} cannot be predicted")
    chosen = efficiency or efficiency_of(spec, work.name, work.family, precision)
    check_fits(spec, work, precision, samples, optimizer_copies=optimizer_copies)
    needed = footprint(spec, work, precision, optimizer_copies=optimizer_copies).needed_bytes(samples)
    rows = list(lines(work.works, roof_of(spec, precision, chosen, needed_bytes=needed), samples))
    forward, backward = _by_layer([(row, ahead.at(samples), back.at(samples)) for row, ahead, back in rows])
    total = sum(forward) + sum(backward)
    both = [line for _, *ways in rows for line in ways]
    line = Line(sum(line.overhead_s for line in both), sum(line.per_sample_s for line in both))
    words, batches, inferred = f"roofline of {spec.title}: {chosen.provenance}", chosen.batches, chosen.inferred
    if profile is not None:
        line, words = fitted(profile), f"fitted to {len(profile)} measured batches; layers by the roofline"
        batches, inferred = tuple(sorted(int(batch) for batch, _ in profile)), False
    return Device(
        name=spec.name,
        overhead_s=line.overhead_s,
        per_sample_s=line.per_sample_s,
        provenance=words,
        forward_shares=tuple(seconds / total for seconds in forward),
        backward_shares=tuple(seconds / total for seconds in backward),
        batches=batches,
        inferred=inferred,
        reduce_s_per_byte=3 / spec.sustained_bytes_per_s,  # two bytes are read and one is written
    )


def _by_layer(rows: Sequence[tuple[RowLike, float, float]]) -> tuple[list[float], list[float]]:
    """Returns the seconds of each layer with parameters; other layers are added to the one before, or to the first."""
    forward: list[float] = []
    backward: list[float] = []
    early = [0.0, 0.0]
    for row, ahead_s, back_s in rows:
        if row.parameters:
            forward.append(ahead_s + early[0])
            backward.append(back_s + early[1])
            early = [0.0, 0.0]
        elif forward:
            forward[-1] += ahead_s
            backward[-1] += back_s
        else:
            early = [early[0] + ahead_s, early[1] + back_s]
    return forward, backward


def fitted(points: Sequence[tuple[float, float]]) -> Line:
    """Fits t₀ + b / r to measured (batch, seconds) points, by least squares of relative errors, none below 0.

    >>> line = fitted([(32, 0.1641), (64, 0.2922)])  # ResNet-50 on a P100 (TensorFlow's benchmarks)
    >>> round(line.overhead_s * 1e3), round(1 / line.per_sample_s)
    (36, 250)
    """
    wrong = [point for point in points if point[0] <= 0 or point[1] <= 0]
    if wrong or not points:
        raise InputError(f"profile: found {wrong or 'no points'}; expected pairs of batch and seconds above 0")
    from scipy.optimize import nnls  # slow to import: only where a profile is given

    batches, seconds = np.array(points, dtype=float).T
    (overhead_s, per_sample_s), _ = nnls(np.stack([1 / seconds, batches / seconds], axis=1), np.ones(len(seconds)))
    return Line(float(overhead_s), float(per_sample_s))
