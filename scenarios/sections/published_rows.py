"""Which chips, families of models, precisions and batches the published throughput covers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from paceline.topologies.catalogue.device_catalogue import DATA, Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.device_parameters import chip_key, precision_class
from paceline.workloads.models.zoo import ZOO


@dataclass(frozen=True, slots=True)
class Covered:
    """What a published row covers."""

    chip: str
    family: str
    precision: str
    batch: int


@cache
def covered() -> tuple[Covered, ...]:
    """Returns the rows of `throughput.csv`."""
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    specs = {line["device"]: named(line["device"]) for line in lines}
    return tuple(
        Covered(
            chip_key(specs[line["device"]]),
            "transformer" if "@" in line["model"] else ZOO[line["model"]].family,
            precision_class(specs[line["device"]], line["precision"]),
            int(line["batch"]),
        )
        for line in lines
    )


def gaps(spec: Spec, model: str, family: str, precision: str, batch: int) -> Iterator[tuple[str, str]]:
    """Yields where a prediction lies outside the published throughput: the key of the scenario, and a sentence.

    Args:
        spec: the device.
        model: the model's name.
        family: of the model.
        precision: of the arithmetic.
        batch: samples of a gradient.

    >>> from paceline.topologies.catalogue.device_catalogue import SPECS
    >>> [key for key, _ in gaps(SPECS["p100-sxm2"], "resnet50", "resnet", "fp32", 64)]
    []
    >>> [key for key, _ in gaps(SPECS["l40s"], "lenet", "lenet", "amp", 64)]
    ['cluster', 'workload.model']
    """
    rows = covered()
    chip = [row for row in rows if row.chip == chip_key(spec)]
    alike = [row for row in rows if row.family == family]
    if not chip:
        yield (
            "cluster",
            f"found {spec.name}, of which the fit has no published throughput; its time follows from other chips",
        )
    if not alike:
        yield "workload.model", f"found {model}; the fit has no published throughput of its family, on any chip"
    group = precision_class(spec, precision)
    if chip and all(row.precision != group for row in chip):
        yield (
            "workload.compute_dtype",
            f"found {precision}; the fit has no published throughput of {spec.name} in such arithmetic",
        )
    own = [row.batch for row in alike if row in chip]
    same = own or [row.batch for row in alike]
    if same and not min(same) <= batch <= max(same):
        fitted = " to ".join(str(size) for size in sorted({min(same), max(same)}))
        if own:
            yield "workload.batch_per_worker", f"found {batch}; the time of {spec.name} was fitted at {fitted}"
        else:
            published = f"the fit has throughput of its family at {fitted}, on other chips than {spec.name}"
            yield "workload.batch_per_worker", f"found {batch}; {published}"
