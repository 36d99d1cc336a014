"""How the cores of a chip slow each other: the rate of one computation on c cores.

    rate(c) = peak of c cores · e₁ / (1 + σ (c − 1))

Σ is the loss of a core by each further one. It follows from two figures that do not depend on dividing chips into
groups: the rate of the best matrix product, and the rate of training on all cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import SPECS, Spec
from paceline.topologies.compute.device_parameters import Parameters, usual_software
from paceline.topologies.compute.layer_times import Filling, Rates, gradient_s
from paceline.topologies.compute.model_work import WorkLike


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The part of the peak that training reaches, with its provenance."""

    value: float
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How the rate of one computation grows with its cores: cores · peak · best / (1 + loss · (cores − 1)).

    >>> Scaling(best=0.75, loss=0.02, provenance="").efficiency(51)
    0.375
    """

    best: float
    loss: float
    provenance: str

    def efficiency(self, cores: int) -> float:
        return self.best / (1 + self.loss * (cores - 1))


def scaling_of(spec: Spec, efficiency: Efficiency) -> Scaling:
    """Returns the scaling in which one core has the chip's best product and all cores the efficiency of training.

    Args:
        spec: the chip.
        efficiency: the efficiency of training on all cores.

    Raises:
        InputError: the number of cores or a measured product of the chip is not known.

    >>> found = scaling_of(SPECS["knl-7250"], Efficiency(0.3, ""))
    >>> round(found.efficiency(1), 3), round(found.efficiency(68), 3)
    (0.749, 0.3)
    """
    if spec.cores is None or "fp32" not in spec.gemms:
        raise InputError(f"{spec.name}: found no cores or no measured product; expected a chip such as knl-7250")
    best = spec.gemms["fp32"] / spec.peaks["fp32"]
    loss = max(0.0, (best / efficiency.value - 1) / (spec.cores - 1))
    words = f"one core: {spec.provenance['gemm_fp32_tflops']}; all of them: {efficiency.provenance}"
    return Scaling(best=best, loss=loss, provenance=words)


def training_efficiency(spec: Spec, work: WorkLike, parameters: Parameters, samples: float) -> Efficiency:
    """Returns the part of its peak that a whole chip reaches in the products of a model.

    Args:
        spec: the chip.
        work: the model.
        parameters: of the device model.
        samples: of the batch.
    """
    rates = parameters.rates(spec, "fp32", usual_software(spec))
    words = f"device model: {'rows of the chip and of others' if parameters.knows(spec) else 'rows of other chips'}"
    return Efficiency(_flops_per_s(work, rates, samples) / spec.peak("fp32"), words)


def _flops_per_s(work: WorkLike, rates: Rates, samples: float) -> float:
    """The rate of the products of a model."""
    flops = samples * sum(row.forward.flops + row.backward.flops for row in work.works)
    arithmetic = replace(rates, bytes_per_s=math.inf, launch_s=0.0)
    return flops / gradient_s(work.works, arithmetic, samples)


def part_rates(part: Spec, work: WorkLike, parameters: Parameters, samples: float, needed_bytes: float) -> Rates:
    """Returns the rates of a chip or of a group of its cores, which slow each other less than all cores do.

    A group's products reach the efficiency of `Scaling`; the share of each kind of layer is as on the whole chip.

    Args:
        part: the chip or the group.
        work: the model.
        parameters: of the device model.
        samples: of the whole chip's batch.
        needed_bytes: in the memory of the group.
    """
    rates = parameters.rates(part, "fp32", usual_software(part), needed_bytes=needed_bytes)
    if part.part_of is None:
        return rates
    chip = SPECS[part.part_of]
    best = scaling_of(chip, training_efficiency(chip, work, parameters, samples))
    rates = replace(rates, filling=Filling())
    gain = best.efficiency(part.cores or 1) * part.peak("fp32") / _flops_per_s(work, rates, samples)
    return replace(rates, flops_per_s=tuple(gain * rate for rate in rates.flops_per_s))
