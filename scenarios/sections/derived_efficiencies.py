"""Derives efficiencies from published throughput, such that the roofline model gives the published figures.

    python -m paceline.scenarios.sections.derived_efficiencies          # is efficiencies.csv what the throughput gives?
    python -m paceline.scenarios.sections.derived_efficiencies --write   # writes it

Rules of this file: rows of the same device, model, precision and software at several batches give one efficiency and
one cost of a kernel; a single batch gives the efficiency, with the catalogue's cost of a kernel. Several kinds of
software give several rows.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from io import StringIO

from scipy.optimize import brentq

from paceline.topologies.catalogue.device_catalogue import DATA, Spec
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.efficiencies import Efficiency
from paceline.topologies.compute.roofline import roof_of, whole
from paceline.workloads import ModelInfo, find_model

COLUMNS = ["device", "model", "family", "precision", "efficiency", "launch_us", "typical", "batches", "software"]
LEAST, MOST = 1e-3, 16.0
"""efficiencies outside of this range are mistakes in the data"""
FILE = DATA / "efficiencies.csv"
Point = tuple[float, float]


def step_s(spec: Spec, model: ModelInfo, precision: str, samples: float, value: float, launch_s: float) -> float:
    """Returns the seconds of a gradient by the roofline model."""
    roof = roof_of(spec, precision, Efficiency(value, launch_s, ""))
    return whole(model.works, roof, samples).at(samples)


def efficiency(spec: Spec, model: ModelInfo, precision: str, point: Point, launch_s: float) -> float:
    """Returns the efficiency at which a batch takes the measured time, or `MOST` if that is still too slow.

    Args:
        spec: the device.
        model: the model with its layers.
        precision: a precision of the device's peaks.
        point: batch and seconds.
        launch_s: the cost of a kernel, in seconds.
    """
    batch, seconds = point

    def late(value: float) -> float:
        return step_s(spec, model, precision, batch, value, launch_s) - seconds

    return MOST if late(MOST) > 0 else float(brentq(late, LEAST, MOST, xtol=1e-12))


def both(spec: Spec, model: ModelInfo, precision: str, points: Sequence[Point]) -> tuple[float, float]:
    """Returns the efficiency and the cost of a kernel that give the times of the smallest and the largest batch."""
    small, large = min(points), max(points)
    kernels = sum(work.forward.kernels + work.backward.kernels for work in model.works)

    def late(launch_s: float) -> float:
        value = efficiency(spec, model, precision, large, launch_s)
        return step_s(spec, model, precision, small[0], value, launch_s) - small[1]

    most = 0.9 * small[1] / kernels
    launch_s = 0.0 if late(0.0) > 0 else float(brentq(late, 0.0, most, xtol=1e-12))
    return efficiency(spec, model, precision, large, launch_s), launch_s


def derived() -> Iterator[list[str]]:
    """Yields the rows of the file."""
    groups: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            key = tuple(line[name] for name in ("device", "model", "precision", "software", "typical"))
            batch = float(line["batch"])
            groups[key].append((batch, batch / float(line["samples_per_s"])))
    for (device, name, precision, software, typical), points in groups.items():
        spec, model = named(device), find_model(name)
        launch = ""
        if len(points) > 1:
            value, launch_s = both(spec, model, precision, points)
            launch = f"{launch_s * 1e6:.2f}"
        else:
            value = efficiency(spec, model, precision, points[0], spec.launch_s)
        batches = " ".join(f"{batch:g}" for batch, _ in sorted(points))
        yield [device, name, model.family, precision, f"{value:.6f}", launch, typical, batches, software]


def text() -> str:
    """Returns the expected content of the file."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([COLUMNS, *derived()])
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description="Derives efficiencies from published throughput.")
    parser.add_argument("--write", action="store_true", help="write them, rather than compare")
    if parser.parse_args().write:
        FILE.write_text(text(), encoding="utf-8")
    same = FILE.read_text(encoding="utf-8") == text()
    sys.stdout.write(f"{FILE.name} is {'what' if same else 'not what'} the throughput gives\n")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
