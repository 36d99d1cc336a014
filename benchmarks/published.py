"""Predicts published measurements of collectives and training throughput and reports the errors.

    python benchmarks/published.py                 # tables by system, and every row with an error above 15 %
    python benchmarks/published.py --json
    python benchmarks/published.py --collectives FILE --throughput FILE   # other tables with the same columns
    python benchmarks/published.py --utilisation 1B,10B,100B              # and compute utilisation: five minutes more

The first predictions use the catalogue alone: the device model is fitted without the chip of a row, and in further
lines without its model or its family. For systems with at least six sizes, two factors are then fitted, one for all
latencies (of throughput: memory and kernel launches), one for all bandwidths (arithmetic): fitted on every other size
and tested on the rest (swapped: the other way round). Targets: 28 % on collectives from the catalogue alone, 12 % on
their tested halves, 6 % on throughput from one device to several. Rows that cannot be predicted are listed with the
reason.

With `--utilisation`, simulated compute utilisation is compared with the table of Streaming DiLoCo for these models
(`published_timings/utilisation.py`): the bandwidth at which a utilisation is reached, its distance from the published
one in steps of the grid of the table, and the utilisation at the published bandwidth. `--scale` gives the bytes
relative to 16 bits a parameter, which are otherwise fitted.
"""

from __future__ import annotations

import argparse
import csv
import sys
from functools import partial
from pathlib import Path
from typing import Any

from common.harness import Answer, names_of, run_command, table
from paceline.validation.machines import Row
from published_timings.errors import (
    MISS,
    Section,
    Skipped,
    collective_case,
    mean_error,
    scaling,
    section,
    throughput_case,
)
from published_timings.predictions import Job, LeftOut, chips_of, method_of
from published_timings.utilisation import compared, published

DATA = Path(__file__).parent / "data"


def rows_of(path: Path) -> list[Row]:
    """Reads the rows of a CSV file; missing cells are empty."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return [
            {key: value or "" for key, value in row.items() if isinstance(key, str)} for row in csv.DictReader(file)
        ]


def percent(error: float | None) -> float | None:
    """Converts a fraction to per cent; None stays None."""
    return None if error is None else round(100 * error, 4)


def as_json(table_section: Section) -> dict[str, Any]:
    """Returns a section as plain values, with errors in per cent."""
    return {
        "overall": {
            "mape_catalogue": percent(table_section.mean("catalogue")),
            "mape_tested": percent(table_section.mean("tested")),
            "mape_halves_swapped": percent(table_section.mean("swapped")),
            "rows": sum(len(system.cases) for system in table_section.systems),
            "rows_not_predicted": len(table_section.skipped),
        },
        "systems": [
            {
                "system": system.name,
                "rows": len(system.cases),
                "mape_catalogue": percent(system.catalogue),
                "mape_tested": percent(system.tested),
                "mape_halves_swapped": percent(system.swapped),
                "factors": system.factors and {"latency": system.factors[0], "bandwidth": system.factors[1]},
                "misses": list(system.misses),
            }
            for system in table_section.systems
        ],
        "not_predicted": _skipped(table_section.skipped),
    }


def _skipped(skipped: tuple[Skipped, ...] | list[Skipped]) -> list[dict[str, Any]]:
    return [{"line": left.row, "system": left.system, "reason": left.reason} for left in skipped]


def scaling_json(jobs: list[tuple[Job, float]], skipped: list[Skipped]) -> dict[str, Any]:
    """Returns the error over all scaling rows, in per cent, and the rows with large errors."""
    misses = [
        f"{job.row.get('device')}, {job.model.name}, {job.devices} x {job.batch:g}, {job.precision}, "
        f"{job.row.get('data') or 'data not given'}: predicted {predicted:.0f}, measured {job.images_per_s:.0f} "
        f"images/s ({predicted / job.images_per_s - 1:+.0%}) as {method_of(job)}"
        for job, predicted in jobs
        if abs(predicted - job.images_per_s) > MISS * job.images_per_s
    ]
    error = mean_error([predicted for _, predicted in jobs], [job.images_per_s for job, _ in jobs])
    methods: dict[str, list[tuple[float, float]]] = {}
    for job, predicted in jobs:
        methods.setdefault(method_of(job), []).append((predicted, job.images_per_s))
    return {
        "mape": percent(error),
        "rows": len(jobs),
        "methods": {
            name: {"mape": percent(mean_error(*zip(*pairs, strict=True))), "rows": len(pairs)}
            for name, pairs in methods.items()
        },
        "misses": misses,
        "not_predicted": _skipped(skipped),
    }


def left_out_json(throughput: list[Row]) -> dict[str, float | None]:
    """Returns the mean error over systems, in per cent, with every row's model or family left out of the fit."""
    kinds: tuple[LeftOut, ...] = ("model", "family")
    sections = {kind: section(throughput, partial(throughput_case, left_out=kind), "device") for kind in kinds}
    return {
        f"mape_{kind}_left_out": percent(section_without.mean("catalogue"))
        for kind, section_without in sections.items()
    }


def coverage(table_section: Section) -> dict[str, Any]:
    """Returns the share of the rows measured within the intervals of their predictions, in per cent."""
    inside = [case.inside for system in table_section.systems for case in system.cases if case.inside is not None]
    return {"inside": percent(sum(inside) / len(inside)) if inside else None, "rows": len(inside)}


CELLS = {
    "system": "system", "rows": "rows:", "catalogue %": "mape_catalogue:.1f", "tested %": "mape_tested:.1f",
    "swapped %": "mape_halves_swapped:.1f", "× latency": "latency:.2f", "× bandwidth": "bandwidth:.2f",
}  # fmt: skip
UTILISED = {
    "model": "model", "method": "method", "target": "target:.0%", "published Gbit/s": "published_gbit_per_s:.3g",
    "ours Gbit/s": "ours_gbit_per_s:.3g", "steps": "grid_steps:+d", "utilisation": "utilisation:.1%",
    "difference": "difference:+.1%",
}  # fmt: skip


def shown_section(title: str, figures: dict[str, Any]) -> list[Any]:
    """Returns a section as a table, and its rows with large errors."""
    overall, systems = figures["overall"], figures["systems"]
    means = (
        f"mean over systems: catalogue {overall['mape_catalogue']} %, tested {overall['mape_tested']} %, "
        f"halves swapped {overall['mape_halves_swapped']} %; "
        f"{overall['rows']} rows predicted, {overall['rows_not_predicted']} not\n"
    )
    misses = [f"  {system['system']}: {miss}" for system in systems for miss in system["misses"]]
    left = [
        f"  line {row['line']}, {row['system']}: not predicted: {row['reason']}" for row in figures["not_predicted"]
    ]
    return [table(title, [row | (row["factors"] or {}) for row in systems], CELLS), means, *misses, *left]


def timings(options: argparse.Namespace) -> Answer:
    """Predicts collectives and throughput."""
    throughput = rows_of(options.throughput)
    predicted = section(throughput, partial(throughput_case, chips=chips_of(throughput)), "device")
    collectives = as_json(section(rows_of(options.collectives), collective_case, "system"))
    left_out, within, more = left_out_json(throughput), coverage(predicted), scaling_json(*scaling(throughput))
    trained = as_json(predicted) | {"left_out": left_out, "intervals": within, "scaling": more}
    shown = [*shown_section("collectives", collectives), *shown_section("throughput", trained)]
    for name, error in left_out.items():
        shown.append(f"mean over systems, {name.removeprefix('mape_').replace('_', ' ')}: {error} %")
    shown.append(f"measured within the interval of 80 %: {within['inside']} % of {within['rows']} rows")
    shown.append(f"\none device to several: {more['mape']} % over {more['rows']} rows")
    shown += [
        f"  as {name}: {of_method['mape']} % over {of_method['rows']} rows"
        for name, of_method in more["methods"].items()
    ]
    shown += [f"  {miss}" for miss in more["misses"]]
    return Answer({"collectives": collectives, "throughput": trained}, shown)


def utilisation(models: list[str], scale: float | None) -> Answer:
    """Compares simulated compute utilisation with the published table."""
    scale, cells = compared(models, scale)
    shown = [table("compute utilisation", cells, UTILISED)]
    for method in dict.fromkeys(row["method"] for row in cells):
        rows = [row for row in cells if row["method"] == method]
        same, worst = sum(row["grid_steps"] == 0 for row in rows), max(abs(row["difference"]) for row in rows)
        shown.append(
            f"{method}: {same} of {len(rows)} bandwidths are equal; utilisation differs by at most {worst:.1%}."
        )
    shown.append(f"A parameter counts as {16 * scale:.1f} bits.")
    return Answer({"scale": scale, "cells": cells}, shown)


def body(options: argparse.Namespace) -> Answer:
    answer = timings(options)
    if not options.utilisation:
        return answer
    more = utilisation(options.utilisation, options.scale)
    return Answer({**answer.figures, "utilisation": more.figures}, [*answer.shown, *more.shown])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--collectives", type=Path, default=DATA / "published_collectives.csv", metavar="CSV")
    parser.add_argument("--throughput", type=Path, default=DATA / "published_throughput.csv", metavar="CSV")
    models = dict.fromkeys(row.model for row in published())
    parser.add_argument("--utilisation", type=names_of(models), metavar="MODEL,…", help=f"some of {', '.join(models)}")
    parser.add_argument("--scale", type=float, help="of --utilisation; default: fitted")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
