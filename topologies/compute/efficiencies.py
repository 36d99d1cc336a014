"""The share of its peak that a device reaches: by device, model family and precision.

    ln e(device, family) = family's mean over devices, weighted by closeness in age
                           + mean of the differences of the device's own rows from their families' means

Rules of this file: each row of `data/efficiencies.csv` is DERIVED from one published throughput in
`data/throughput.csv`: the efficiency at which the roofline gives exactly that figure, and the cost of a kernel if two
batches were published (`paceline.scenarios.sections.derived_efficiencies` derives them). A row of the same model or
family is used unchanged; otherwise the formula is used, over devices of the same kind and the same sort of arithmetic.
Untypical rows, such as code without a vendor's library, are used for their own device only.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from statistics import fmean, median

from paceline.topologies.catalogue.device_catalogue import DATA, ITEM_BYTES, SPECS, Spec, precision_named
from paceline.topologies.compute.scaling import scaling_of

TENSOR = 4.0
"""peaks of at least this multiple of float32's belong to units for matrix products, which are harder to keep busy"""
GENERATION = 1.5
"""years between two generations of chips: a device that is older or younger by this has half the weight"""
NOTHING = {"gpu": 0.5, "manycore": 0.3, "cpu": 0.27}
"""if no device of this kind has rows: DERIVED from the ranges in the throughput tables"""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The share of peak arithmetic, the cost of a kernel, and their provenance.

    Args:
        batches: the batches of the published throughput from which it follows, smallest first.
        inferred: whether that throughput is of other chips or other families of models.
    """

    value: float
    launch_s: float
    provenance: str
    batches: tuple[int, ...] = ()
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """An efficiency that reproduces a published throughput.

    Args:
        launch_s: the cost of a kernel; None if only one batch was published.
        typical: whether it may be used for other devices.
        batches: the batches of the published throughput.
    """

    device: str
    kind: str
    year: int
    model: str
    family: str
    precision: str
    tensor: bool
    efficiency: float
    launch_s: float | None
    typical: bool
    batches: tuple[int, ...] = ()


def is_tensor(spec: Spec, precision: str) -> bool:
    """Whether products in this precision use units of their own.

    >>> is_tensor(SPECS["v100-sxm2"], "fp16"), is_tensor(SPECS["p100-sxm2"], "fp16")
    (True, False)
    """
    return spec.peak(precision) >= TENSOR * spec.peak("fp32")


@cache
def rows() -> tuple[Row, ...]:
    """Returns all rows of the file."""
    with (DATA / "efficiencies.csv").open(newline="", encoding="utf-8") as file:
        return tuple(_row(line) for line in csv.DictReader(file))


def _row(line: dict[str, str]) -> Row:
    from paceline.topologies.catalogue.device_names import named  # which parses numbers of sockets

    spec = named(line["device"])
    return Row(
        device=line["device"],
        kind=spec.kind,
        year=spec.year,
        model=line["model"],
        family=line["family"],
        precision=line["precision"],
        tensor=is_tensor(spec, line["precision"]),
        efficiency=float(line["efficiency"]),
        launch_s=float(line["launch_us"]) * 1e-6 if line["launch_us"] else None,
        typical=line["typical"] == "yes",
        batches=tuple(map(int, line["batches"].split())),
    )


def efficiency_of(
    spec: Spec, model: str, family: str, precision: str, *, known: Sequence[Row] | None = None
) -> Efficiency:
    """Returns the efficiency of this device, model family and precision.

    Args:
        spec: the device.
        model: the name of the model.
        family: the family of the model.
        precision: the precision of arithmetic.
        known: the rows to use; None: all rows. A test leaves some out.

    >>> efficiency_of(SPECS["p100-sxm2"], "resnet50", "resnet", "fp32").provenance
    'efficiency DERIVED from published throughput of resnet50 on p100-sxm2'
    >>> efficiency_of(SPECS["m40"], "vgg16", "vgg", "fp32").provenance
    'efficiency INFERENCE: mean over vgg on 6 devices of kind gpu'
    """
    if spec.part_of is not None:
        chip = SPECS[spec.part_of]
        whole = efficiency_of(chip, model, family, precision, known=known)
        words = f"{whole.provenance}, corrected for the smaller loss between {spec.cores} cores than {chip.cores}"
        return replace(whole, value=scaling_of(chip, whole).efficiency(spec.cores or 1), provenance=words)
    precision, tensor = precision_named(precision), is_tensor(spec, precision)
    alike = [row for row in (rows() if known is None else known) if (row.kind, row.tensor) == (spec.kind, tensor)]
    own = [row for row in alike if row.device in _same_chip(spec)]
    for exact, what in _closest(own, model, family, precision):
        times = [row.launch_s for row in exact if row.launch_s is not None]
        where = f"efficiency DERIVED from published throughput of {what} on {exact[0].device}"
        batches = tuple(sorted({batch for row in exact for batch in row.batches}))
        return Efficiency(_mean(exact), median(times) if times else spec.launch_s, where, batches)
    measured = [row.launch_s for row in own if row.launch_s is not None]
    launch_s = median(measured) if measured else spec.launch_s
    general = [row for row in alike if row.typical]
    means = _family_means(general, spec.year)
    base = means.get(family, fmean(means.values()) if means else log(NOTHING[spec.kind]))
    above = [log(row.efficiency) - means.get(row.family, base) for row in own]
    devices = {row.device for row in general if row.family == family or family not in means}
    over = family if family in means else "all families"
    words = f"efficiency INFERENCE: mean over {over} on {len(devices)} devices of kind {spec.kind}"
    if own:
        words += f", times the mean ratio of {spec.name} to it in {len(own)} rows"
    return Efficiency(exp(base + (fmean(above) if above else 0.0)), launch_s, words, inferred=True)


def _closest(own: Sequence[Row], model: str, family: str, precision: str) -> Iterator[tuple[list[Row], str]]:
    """Yields a device's own rows, closest first: of the model or its family, in this precision or one of equal size."""
    size = ITEM_BYTES[precision]
    for few, what in (
        ([row for row in own if row.model == model and row.precision == precision], model),
        ([row for row in own if row.model == model and ITEM_BYTES[row.precision] == size], model),
        ([row for row in own if row.family == family and row.precision == precision], f"its family {family}"),
        ([row for row in own if row.family == family], f"its family {family}"),
    ):
        if few:
            yield few, what


def _same_chip(spec: Spec) -> set[str]:
    """Returns the devices with the same arithmetic and memory speed, which differ only in the size of memory."""
    rates = spec.peaks, spec.bytes_per_s
    return {spec.name} | {other.name for other in SPECS.values() if (other.peaks, other.bytes_per_s) == rates}


def _mean(some: Iterable[Row]) -> float:
    return exp(fmean(log(row.efficiency) for row in some))


def _family_means(some: Iterable[Row], year: int) -> dict[str, float]:
    """Returns the mean of ln e per family over devices, weighted by closeness in age."""
    by_device: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in some:
        by_device[row.family][row.device].append(row)
    means = {}
    for family, devices in by_device.items():
        weights = [2.0 ** -(abs(few[0].year - year) / GENERATION) for few in devices.values()]
        means[family] = fmean([log(_mean(few)) for few in devices.values()], weights)
    return means
