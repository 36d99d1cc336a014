"""Predicts published measurements of collectives and training throughput and reports the errors.

    python benchmarks/published.py                 # tables by system, and every row with an error above 15 %
    python benchmarks/published.py --json
    python benchmarks/published.py --collectives FILE --throughput FILE   # other tables with the same columns

The first predictions use the catalogue alone: the device model is fitted without the chip of a row, and in further
lines without its model or its family. For systems with at least six sizes, two factors are then fitted, one for all
latencies (of throughput: memory and kernel launches), one for all bandwidths (arithmetic): fitted on every other size
and tested on the rest (swapped: the other way round). Targets: 28 % on collectives from the catalogue alone, 12 % on
their tested halves, 6 % on throughput from one device to several. Rows that cannot be predicted are listed with the
reason.
"""

from __future__ import annotations

import argparse
import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from published_timings.fit import mean_error
from published_timings.parsing import Row
from published_timings.scaling import method_of
from published_timings.systems import MISS, Section, Skipped, collective_case, scaling, section, throughput_case
from published_timings.training import Job, LeftOut, chips_of

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


def as_json(found: Section) -> dict[str, Any]:
    """Returns a section as plain values, with errors in per cent."""
    return {
        "overall": {
            "mape_catalogue": percent(found.catalogue),
            "mape_tested": percent(found.tested),
            "mape_halves_swapped": percent(found.swapped),
            "rows": sum(len(system.cases) for system in found.systems),
            "rows_not_predicted": len(found.skipped),
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
            for system in found.systems
        ],
        "not_predicted": _skipped(found.skipped),
    }


def _skipped(skipped: tuple[Skipped, ...] | list[Skipped]) -> list[dict[str, Any]]:
    return [{"line": one.row, "system": one.system, "reason": one.reason} for one in skipped]


def scaling_json(jobs: list[tuple[Job, float]], skipped: list[Skipped]) -> dict[str, Any]:
    """Returns the error over all scaling rows, in per cent, and the rows with large errors."""
    misses = [
        f"{job.row.get('device')}, {job.model.name}, {job.devices} x {job.batch:g}, {job.precision}, "
        f"{job.row.get('data') or 'data not given'}: predicted {found:.0f}, measured {job.images_per_s:.0f} images/s "
        f"({found / job.images_per_s - 1:+.0%}) as {method_of(job)}"
        for job, found in jobs
        if abs(found - job.images_per_s) > MISS * job.images_per_s
    ]
    error = mean_error([found for _, found in jobs], [job.images_per_s for job, _ in jobs])
    methods: dict[str, list[tuple[float, float]]] = {}
    for job, found in jobs:
        methods.setdefault(method_of(job), []).append((found, job.images_per_s))
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
    return {f"mape_{kind}_left_out": percent(found.catalogue) for kind, found in sections.items()}


def coverage(found: Section) -> dict[str, Any]:
    """Returns the share of the rows measured within the intervals of their predictions, in per cent."""
    inside = [case.inside for system in found.systems for case in system.cases if case.inside is not None]
    return {"inside": percent(sum(inside) / len(inside)) if inside else None, "rows": len(inside)}


def show(console: Console, title: str, found: dict[str, Any]) -> None:
    """Prints a section as a table, and its rows with large errors."""
    table = Table("system", "rows", "catalogue %", "tested %", "swapped %", "× latency", "× bandwidth", title=title)
    for system in found["systems"]:
        factors = system["factors"] or {}
        errors = [system[name] for name in ("mape_catalogue", "mape_tested", "mape_halves_swapped")]
        cells = [*errors, factors.get("latency"), factors.get("bandwidth")]
        formats = ("{:.1f}", "{:.1f}", "{:.1f}", "{:.2f}", "{:.2f}")
        texts = ["" if cell is None else text.format(cell) for cell, text in zip(cells, formats, strict=True)]
        table.add_row(system["system"], str(system["rows"]), *texts)
    console.print(table)
    overall = found["overall"]
    console.print(
        f"mean over systems: catalogue {overall['mape_catalogue']} %, tested {overall['mape_tested']} %, "
        f"halves swapped {overall['mape_halves_swapped']} %; "
        f"{overall['rows']} rows predicted, {overall['rows_not_predicted']} not\n"
    )
    for system in found["systems"]:
        for miss in system["misses"]:
            console.print(f"  {system['system']}: {miss}", soft_wrap=True, highlight=False)
    for one in found["not_predicted"]:
        console.print(f"  line {one['line']}, {one['system']}: not predicted: {one['reason']}", soft_wrap=True)


def main() -> int:
    """Reads the tables, predicts, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectives", type=Path, default=DATA / "published_collectives.csv", metavar="CSV")
    parser.add_argument("--throughput", type=Path, default=DATA / "published_throughput.csv", metavar="CSV")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables; errors in per cent")
    given = parser.parse_args()
    throughput = rows_of(given.throughput)
    chips = chips_of(throughput)
    predicted = section(throughput, partial(throughput_case, chips=chips), "device")
    result = {
        "collectives": as_json(section(rows_of(given.collectives), collective_case, "system")),
        "throughput": as_json(predicted) | {"left_out": left_out_json(throughput), "intervals": coverage(predicted)},
    }
    result["throughput"]["scaling"] = scaling_json(*scaling(throughput))
    if given.json:
        print(json.dumps(result, indent=2))
        return 0
    console = Console()
    show(console, "collectives", result["collectives"])
    show(console, "throughput", result["throughput"])
    for name, error in result["throughput"]["left_out"].items():
        console.print(f"mean over systems, {name.removeprefix('mape_').replace('_', ' ')}: {error} %")
    within = result["throughput"]["intervals"]
    console.print(f"measured within the interval of 80 %: {within['inside']} % of {within['rows']} rows")
    more = result["throughput"]["scaling"]
    console.print(f"\none device to several: {more['mape']} % over {more['rows']} rows")
    for name, one in more["methods"].items():
        console.print(f"  as {name}: {one['mape']} % over {one['rows']} rows")
    for miss in more["misses"]:
        console.print(f"  {miss}", soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
