"""The device model: how long a gradient takes on a device of the catalogue.

Read `layer_times` for the formula, `utilisation` for products that do not fill a device, `device_parameters` for what
a device reaches, and `device_fit` for how that was fitted to published throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.charge_rates import device_rates
from paceline.topologies.catalogue.device import DeviceModel, measured_times
from paceline.topologies.catalogue.device_catalogue import SPECS, Spec
from paceline.topologies.compute.device_parameters import Parameters, Software, fitted_parameters, usual_software
from paceline.topologies.compute.layer_times import KindTime, Rates, gradient_s, kind_times, layer_shares, layer_times
from paceline.topologies.compute.model_work import RowLike, WorkLike, check_fits, footprint
from paceline.topologies.compute.prediction_errors import interval_of
from paceline.topologies.compute.scaling import part_rates

REFERENCE = "p100-sxm2"
"""the device whose rates divide a given time among layers. DERIVED: of all devices of the catalogue, its shares differ
least from those of the GPUs, on average over eight models by 5 % of a gradient in fp32 and 8 % in mixed precision"""


@dataclass(frozen=True, slots=True)
class GradientTimesByBatch:
    """The time of a gradient over the batch, computed once for each batch.

    Args:
        model: its name.
        rates: of the device.
        rows: of the model's layer table.
    """

    model: str
    rates: Rates
    rows: Sequence[RowLike] = field(compare=False, repr=False)
    _known: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    def seconds(self, samples: int) -> float:
        """Returns the seconds of a gradient over so many samples."""
        if samples not in self._known:
            self._known[samples] = gradient_s(self.rows, self.rates, samples)
        return self._known[samples]

    def by_kind(self, samples: int) -> list[KindTime]:
        """Returns the parts of this time: each kind of layer, memory traffic and kernel launches."""
        return kind_times(self.rows, self.rates, samples)


def device(
    spec: Spec,
    work: WorkLike,
    precision: str = "fp32",
    *,
    samples: int = 32,
    optimizer_copies: int = 1,
    software: Software | None = None,
    parameters: Parameters | None = None,
    profile: Sequence[tuple[float, float]] | None = None,
) -> DeviceModel:
    """Returns a device of the catalogue that computes gradients of a model.

    Args:
        spec: from `device_names.named` or `device_names.find`.
        work: the model's layer rows.
        precision: of the arithmetic: fp32, tf32, fp16, bf16, fp64, or amp, float32, …
        samples: of one gradient: it must fit into memory, and the shares of the layers are those of this batch.
        optimizer_copies: numbers that the optimizer keeps per weight: 1 for momentum.
        software: library and framework; the library in common use three years after the chip came out if not given.
        parameters: of the device model; those fitted to all published rows if not given.
        profile: measured (batch, seconds) points instead: a curve goes through them, and the layers share its times.

    Raises:
        InputError: the model has no layer table, the precision is not known, or the memory is too small.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> from types import SimpleNamespace as Row
    >>> ahead, back = (Row(flops=n * 10**9, moved_bytes=10**6, fixed_bytes=0, kernels=1) for n in (1, 2))
    >>> row = Row(name="fc", parameters=1, saved_bytes=0, forward=ahead, backward=back, products=())
    >>> net = Row(name="net", family="", works=(row,))
    >>> made = device(named("p100"), net, parameters=Parameters())
    >>> round(made.compute_s(64) * 1e3, 1)  # 192 GFLOP at half of 10.6 TFLOP/s, 0.1 GB, and two launches
    36.5
    """
    if not work.works:
        raise InputError(f"model {work.name!r}: found no layer table, so its time on {spec.name} cannot be predicted")
    check_fits(spec, work, precision, samples, optimizer_copies=optimizer_copies)
    needed = footprint(spec, work, precision, optimizer_copies=optimizer_copies).needed_bytes(samples)
    fitted_to = parameters or fitted_parameters()
    if spec.part_of is None:
        rates = fitted_to.rates(spec, precision, software or usual_software(spec), needed_bytes=needed)
    else:
        groups = SPECS[spec.part_of].bytes_per_s / spec.bytes_per_s
        rates = part_rates(spec, work, fitted_to, groups * samples, needed)
    forward, backward = layer_shares(layer_times(work.works, rates, samples))
    known = fitted_to.knows(spec)
    rows = "published throughput of the chip and of others" if known else "published throughput of other chips"
    made = DeviceModel(
        name=spec.name,
        times=GradientTimesByBatch(work.name, rates, work.works),
        interval=interval_of(spec, precision, known=known),
        provenance=f"device model of {spec.title}: DERIVED from {rows}",
        forward_shares=forward,
        backward_shares=backward,
        kind=spec.kind,
        architecture=spec.architecture,
        rates=device_rates(spec),
    )
    if profile is None:
        return made
    return replace(
        made,
        times=None,
        measured=measured_times(profile),
        interval=None,
        provenance=f"measured at {len(profile)} batches; layers by the device model",
    )


def shares_of_given_time(
    spec: Spec, work: WorkLike, precision: str, samples: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the shares of the layers in a gradient whose total time is given or measured, forward and backward.

    share of a layer = its time on a device of the catalogue / the time of a gradient on it

    The shares do not depend on the total, so a device that is twice as slow is so in every layer.

    Args:
        spec: the device of the catalogue, such as that of `REFERENCE`.
        work: the model's layer rows.
        precision: of the arithmetic.
        samples: of a gradient.

    >>> from paceline.topologies.catalogue.device_names import named
    >>> from paceline.workloads import MODELS
    >>> forward, backward = shares_of_given_time(named(REFERENCE), MODELS["vgg16"], "fp32", 64)
    >>> dense = sum(forward[-3:]) + sum(backward[-3:])
    >>> 0.01 < dense < 0.05, round(sum(forward) + sum(backward), 9)  # 89 % of the parameters are in dense layers
    (True, 1.0)
    """
    rates = fitted_parameters().rates(spec, precision, usual_software(spec))
    return layer_shares(layer_times(work.works, rates, samples))
