"""Simulates very large clusters: time, memory and growth, next to what cannot be avoided.

    python benchmarks/scale.py                      # everything; some minutes
    python benchmarks/scale.py --short              # a tenth of the workers and steps
    python benchmarks/scale.py --only growth --json

Groups (--only, may be repeated):

    large     clusters of 1,024 to 100,000 workers, with the aims of the project
    methods   every method that the vectorised engine can run, 1,000 workers × 1,000 steps
    growth    CPU time of sync-sgd up to 100,000 workers and of async-sgd up to 10,000, and the exponent of a power law
    general   the event-by-event simulator, 64 and 1,000 workers
    floors    bare SimPy with as many events as a general run has, a bare heap, and NumPy drawing lognormal numbers

Each run has a process of its own. Times are CPU times of one core unless a column says wall; loading the scenario is
separate from simulating it, which includes records and summary. Exits with 1 if a case failed; a missed aim is marked
and does not fail, because it depends on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from paceline.algorithms import METHODS
from paceline.records.document import to_json
from paceline.records.machine import OtherLoad, machine_facts, package_versions
from scale_runs.cases import LARGE, Case, every_method, growth, shortened
from scale_runs.floors import heap_s, lognormals_s, simpy_s
from scale_runs.measured import Figures, measure

GENERAL_ALGORITHMS = ("sync-sgd", "async-sgd")
GENERAL_AIMS = {"sync-sgd": 15_000.0, "async-sgd": 6000.0}
"""gradients of all workers per second"""
EXPONENT_AIM = 1.1


@dataclass(frozen=True, slots=True)
class Attempt:
    """A case with its figures, or with the reason why there are none."""

    case: Case
    figures: Figures | None = None
    failure: str = ""
    floor_s: float | None = None
    """seconds in which NumPy draws as many lognormal numbers"""

    def misses(self) -> list[str]:
        """Returns the aims that it misses, in words."""
        case, found = self.case, self.figures
        if found is None:
            return []
        checks = [
            (case.aim_s, found["wall_s"], "{:.0f} s"),
            (case.aim_bytes, found["peak_bytes"], "{:.2g} bytes"),
            (case.aim_floor, found["simulate_s"] / self.floor_s if self.floor_s else 0.0, "{:g} × the floor"),
        ]
        return [f"aim: below {text.format(aim)}" for aim, value, text in checks if aim is not None and value > aim]

    def row(self) -> dict[str, Any]:
        if self.figures is None:
            return {"case": self.case.name, "failure": self.failure}
        floor = {} if self.floor_s is None else {"floor_s": self.floor_s}
        return {**self.figures, **floor, "missed": self.misses()}


def attempt(case: Case, engine: str = "auto", *, floor: bool = False) -> Attempt:
    """Runs one case.

    Args:
        case: the run.
        engine: the engine of the simulator.
        floor: whether to draw as many lognormal numbers with NumPy alone, too.
    """
    try:
        figures = measure(case, engine)
    except Exception as error:
        return Attempt(case, failure=str(error).splitlines()[0])
    return Attempt(case, figures, floor_s=lognormals_s(case.worker_steps) if floor else None)


def large(short: bool) -> list[Attempt]:
    """Runs the large clusters."""
    return [attempt(shortened(case) if short else case, floor=True) for case in LARGE]


def methods(short: bool) -> list[Attempt]:
    """Runs every method for which an engine other than the event-by-event one is found, which a tiny run tells."""
    found = []
    workers, steps = (64, 50) if short else (1000, 1000)
    for case, tiny in zip(
        every_method(sorted(METHODS), workers, steps), every_method(sorted(METHODS), 64, 2), strict=True
    ):
        trial = attempt(tiny)
        if trial.figures is None:
            found.append(Attempt(case, failure=trial.failure))
        elif trial.figures["engine"] == "events":
            found.append(Attempt(case, failure=f"event by event: {trial.figures['reason']}"))
        else:
            found.append(attempt(case))
    return found


def growths(short: bool) -> dict[str, tuple[list[Attempt], float | None]]:
    """Runs growing clusters; returns the runs of each method, and the exponent of CPU time against worker steps."""
    sizes = (1000, 3160) if short else (1000, 3160, 10_000, 31_600, 100_000)
    most = {"async-sgd": 10_000}
    """largest numbers of workers of runs that are simulated event by event"""
    found = {}
    for algorithm in GENERAL_ALGORITHMS:
        attempts = [
            attempt(case) for case in growth(algorithm, sizes) if case.workers <= most.get(algorithm, case.workers)
        ]
        figures = [one.figures for one in attempts if one.figures is not None]
        found[algorithm] = (attempts, exponent(figures) if len(figures) > 1 else None)
    return found


def exponent(figures: Sequence[Figures]) -> float:
    """Returns b of the least-squares fit of a · nᵇ to the CPU times of loading and simulating n worker steps.

    Args:
        figures: runs of different sizes.

    >>> rows = [{"steps": 10, "load_s": 1.0, "simulate_s": 1.0}, {"steps": 100, "load_s": 10.0, "simulate_s": 10.0}]
    >>> round(exponent(rows), 6)
    1.0
    """
    sizes = [log(one["steps"]) for one in figures]
    times = [log(one["load_s"] + one["simulate_s"]) for one in figures]
    return float(np.polyfit(sizes, times, 1)[0])


def general(short: bool) -> list[Attempt]:
    """Runs the event-by-event simulator."""
    cases = [
        Case(name=f"{name}, {workers} workers", algorithm=name, workers=workers, steps=steps)
        for name in GENERAL_ALGORITHMS
        for workers, steps in ((64, 20 if short else 200), (1000, 2 if short else 20))
    ]
    return [attempt(case, "events") for case in cases]


def floors(short: bool) -> list[dict[str, Any]]:
    """Measures the parts that no simulation can avoid."""
    events = 100_000 if short else 1_000_000
    pairs: list[tuple[str, Callable[[int], float]]] = [
        ("SimPy time-outs", simpy_s),
        ("pairs of heappop and heappush", heap_s),
        ("lognormal numbers of NumPy", lognormals_s),
    ]
    found = []
    for name, floor in pairs:
        seconds = floor(events)
        found.append({"floor": name, "number": events, "seconds": seconds, "per_second": events / seconds})
    return found


GROUPS: dict[str, Callable[[bool], Any]] = {
    "large": large,
    "methods": methods,
    "growth": growths,
    "general": general,
    "floors": floors,
}
"""what measures each group; the argument is whether in the short form"""


def main() -> None:
    options = _options()
    chosen = options.only or list(GROUPS)
    found: dict[str, Any] = {}
    with OtherLoad() as other:
        for group in chosen:
            if not options.json:
                print(f"{group} …", file=sys.stderr)
            found[group] = GROUPS[group](options.short)
    document = _document(found) | {
        "other_load": other.share,
        "machine": machine_facts(),
        "versions": package_versions(),
    }
    if options.json:
        print(to_json(document))
    else:
        _show(found, other.share)
    attempts = [one for group in ("large", "general") for one in found.get(group, ())]
    attempts += [one for runs, _ in found.get("growth", {}).values() for one in runs]
    sys.exit(1 if any(one.failure for one in attempts) else 0)


def _document(found: dict[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {
        group: [one.row() for one in found[group]] for group in ("large", "methods", "general") if group in found
    }
    if "growth" in found:
        rows["growth"] = {
            name: {"exponent": power, "rows": [one.row() for one in runs]}
            for name, (runs, power) in found["growth"].items()
        }
    if "floors" in found:
        rows["floors"] = found["floors"]
    return rows


def _show(found: dict[str, Any], other: float) -> None:
    console = Console()
    for group in ("large", "methods", "general"):
        if group in found:
            console.print(_table(group, found[group]))
    for name, (runs, power) in found.get("growth", {}).items():
        console.print(_table(f"growth of {name}", runs))
        if power is not None:
            verdict = "" if power <= EXPONENT_AIM else f" (aim: at most {EXPONENT_AIM})"
            console.print(f"CPU time of {name} grows with worker steps to the power {power:.2f}{verdict}.")
    if "floors" in found:
        table = Table("floor", *_right("number", "seconds", "per second"), title="floors")
        for one in found["floors"]:
            table.add_row(one["floor"], f"{one['number']:,}", f"{one['seconds']:.3g}", f"{one['per_second']:,.0f}")
        console.print(table)
    console.print(f"Other programs used {other:.0%} of the processor time; wall times need an idle machine.")


COLUMNS = ("load s", "simulate s", "wall s", "× floor", "peak MB", "steps/s", "updates/s")


def _table(title: str, attempts: Sequence[Attempt]) -> Table:
    table = Table("case", "engine", *_right(*COLUMNS), "aims missed", title=title)
    for one in attempts:
        if (found := one.figures) is None:
            table.add_row(one.case.name, one.failure)
            continue
        table.add_row(
            found["case"],
            found["engine"],
            f"{found['load_s']:.2f}",
            f"{found['simulate_s']:.2f}",
            f"{found['wall_s']:.2f}",
            "" if one.floor_s is None else f"{found['simulate_s'] / one.floor_s:.1f}",
            f"{found['peak_bytes'] / 1e6:,.0f}",
            f"{found['steps_per_s']:,.0f}",
            f"{found['updates_per_s']:,.0f}",
            "; ".join(one.misses()),
        )
    return table


def _right(*names: str) -> list[Column]:
    return [Column(name, justify="right") for name in names]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a tenth of the workers and steps")
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group of cases; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser.parse_args()


if __name__ == "__main__":
    main()
