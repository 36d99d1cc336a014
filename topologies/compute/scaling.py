"""How the cores of a chip slow each other: the rate of one computation on c cores.

    rate(c) = peak of c cores · e₁ / (1 + σ (c − 1))

Rules of this file: σ is the loss of a core by each further one. It follows from two figures that do not depend on
dividing chips into groups: the rate of the best matrix product, and the rate of training on all cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import SPECS, Spec
from paceline.topologies.compute.device_parameters import Parameters
from paceline.topologies.compute.layer_kinds import KINDS, Filling, backward_work, forward_work
from paceline.topologies.compute.layer_times import Rates
from paceline.topologies.compute.model_work import WorkLike
from paceline.topologies.compute.software import usual_software


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


def training_efficiency(spec: Spec, work: WorkLike, parameters: Parameters) -> Efficiency:
    """Returns the part of its peak that a whole chip reaches in the products of a model.

    Args:
        spec: the chip.
        work: the model.
        parameters: of the device model.
    """
    rates = parameters.rates(spec, "fp32", usual_software(spec))
    flops = sum(row.forward.flops + row.backward.flops for row in work.works)
    ways = [both for row in work.works for both in (forward_work(row, 1, Filling()), backward_work(row, 1, Filling()))]
    seconds = sum(some / rates.flops_per_s[KINDS.index(kind)] for way in ways for kind, some in way)
    words = f"device model: {'rows of the chip and of others' if parameters.knows(spec) else 'rows of other chips'}"
    return Efficiency(flops / seconds / spec.peak("fp32"), words)


def part_rates(part: Spec, work: WorkLike, parameters: Parameters, bytes_per_s: float) -> Rates:
    """Returns the rates of a group of a chip's cores, which slow each other less than all cores do.

    Args:
        part: the group.
        work: the model.
        parameters: of the device model.
        bytes_per_s: the group's share of the sustained memory bandwidth.
    """
    chip = SPECS[part.part_of or part.name]
    rates = parameters.rates(part, "fp32", usual_software(part))
    whole = training_efficiency(chip, work, parameters)
    gain = scaling_of(chip, whole).efficiency(part.cores or 1) / whole.value if part.part_of else 1.0
    return replace(rates, flops_per_s=tuple(gain * rate for rate in rates.flops_per_s), bytes_per_s=bytes_per_s)
