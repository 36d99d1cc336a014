"""How long `paceline check` needs to find each of the planted bugs of the test suite, on one core.

    python benchmarks/planted_bugs.py
    python benchmarks/planted_bugs.py --names ssp-gate-off-by-one,easgd-replies-after-move --json

A planted bug is a method with one mistake (tests/planted_bugs). For each, the command prints the seconds until the
first violation, the number of schedules, the seconds for making the counterexample smaller, and the size of the
smallest one: ranks, steps of a worker, and context switches (none for a simulated run). The exit status is 1 if a bug
was not found.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the planted bugs are part of the test suite

from rich.console import Console
from rich.table import Table

from tests.planted_bugs.finding import Found, search
from tests.planted_bugs.table import BUGS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", help="only these planted bugs, comma-separated")
    parser.add_argument("--schedules", type=int, default=1000, help="limit for each (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    known = {bug.name: bug for bug in BUGS}
    names = options.names.split(",") if options.names else list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--names: unknown {', '.join(unknown)}; there are {', '.join(known)}")
    rows = [row_of(name, search(known[name], schedules=options.schedules, seed=options.seed)) for name in names]
    report = {"rows": rows, **summary(rows)}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(report)
    return 0 if report["found"] == len(rows) else 1


def row_of(name: str, found: Found | None) -> dict[str, Any]:
    """Returns a row of the report; the figures are null if the bug was not found."""
    row: dict[str, Any] = {"name": name, "found": found is not None}
    if found is None:
        return row
    case = found.violation.case
    return {
        **row,
        "guarantee": found.violation.guarantee,
        "interpreter": case.interpreter,
        "seconds": found.seconds,
        "schedules": found.schedules,
        "shrink_s": found.shrink_s,
        "ranks": found.ranks,
        "steps": found.steps,
        "context_switches": found.context_switches,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the number of bugs that were found, and medians and maxima over these."""
    found = [row for row in rows if row["found"]]
    if not found:
        return {"found": 0}
    return {
        "found": len(found),
        "median_s": statistics.median(row["seconds"] for row in found),
        "longest_s": max(row["seconds"] for row in found),
        "median_schedules": statistics.median(row["schedules"] for row in found),
        "median_shrink_s": statistics.median(row["shrink_s"] for row in found),
        "most_ranks": max(row["ranks"] for row in found),
        "most_steps": max(row["steps"] for row in found),
    }


def print_table(report: dict[str, Any]) -> None:
    table = Table("bug", "guarantee", "seconds", "schedules", "shrinking", "ranks", "steps", "switches", box=None)
    for row in report["rows"]:
        if not row["found"]:
            table.add_row(row["name"], "not found")
            continue
        switches = "" if row["context_switches"] is None else str(row["context_switches"])
        figures = [f"{row['seconds']:.2f}", str(row["schedules"]), f"{row['shrink_s']:.2f}", str(row["ranks"])]
        table.add_row(row["name"], row["guarantee"], *figures, str(row["steps"]), switches)
    console = Console(width=120)
    console.print(table)
    if report["found"]:
        console.print(
            f"found {report['found']} of {len(report['rows'])}; median {report['median_s']:.2f} s and "
            f"{report['median_schedules']:g} schedules, longest {report['longest_s']:.2f} s; "
            f"at most {report['most_ranks']} ranks and {report['most_steps']} steps"
        )


if __name__ == "__main__":
    sys.exit(main())
