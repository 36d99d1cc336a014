"""Injects faults: kills or stops a random rank at a random moment of a run and checks the outcome.

    python benchmarks/faults.py
    python benchmarks/faults.py --runs 40 --seed 7
    python benchmarks/faults.py --case 31
    python benchmarks/faults.py --json

The methods take turns. The fault (SIGKILL, SIGTERM, SIGSTOP, or SIGSTOP with a SIGCONT half a second later), the rank
and the moment, from the start of its process to after the end of the run, follow from the seed and the number of the
case. After each run these conditions are checked: it ended within the promised time; the run continued without a worker
that its method tolerates to lose, and reported any other death with the rank's name; no process, no file in shared
memory and no namespace remains; the record can be read; all other ranks reached the end. The exit status is 1 if a
check failed, and each failed case is printed with the command that runs it alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fault_injection.cases import CHECKS, FAULTS, Case, Happened, draw, happened
from paceline.algorithms import METHODS

RUNS, SEED = 222, 1
"""six of each method"""


def examined(case: Case) -> tuple[Happened, list[str], str]:
    """Runs a case and returns what happened, the failed checks, and a label."""
    with tempfile.TemporaryDirectory(prefix="paceline-faults-", dir="/dev/shm") as name:
        what = happened(case, Path(name))
        wrong = []
        for check in CHECKS:
            try:
                wrong += check(what)
            except Exception as error:  # for example a record that cannot be read
                wrong.append(f"{check.__name__} failed: {type(error).__name__}: {error}")
        return what, wrong, "wrong" if wrong else called(what)


def called(what: Happened) -> str:
    """Classifies the outcome of a run without failed checks."""
    assert what.reported is not None
    if what.reported["error"] is not None:
        return "before the start" if "before the start" in what.reported["error"] else "ended, named"
    survived = what.case.fault != "SIGSTOP, SIGCONT" and what.hit_s is not None and what.hit_s < what.reported["end_s"]
    return "survived" if survived else "unharmed"


def campaign(numbers: Sequence[int], seed: int, err: Console) -> dict[str, Any]:
    """Runs the cases with these numbers and returns all figures."""
    rows, failed, delays_s = Counter[tuple[str, str, str]](), [], []
    for count, number in enumerate(numbers, 1):
        case = draw(number, seed)
        what, wrong, name = examined(case)
        rows[case.method, case.fault, name] += 1
        if what.hit_s is not None and name == "ended, named":
            delays_s.append(what.ended_s - what.hit_s)
        err.print(f"{count}/{len(numbers)}  {case}: {name}", highlight=False)
        for line in wrong:
            err.print(f"    {line}", style="red", highlight=False, markup=False)
        if wrong:
            failed.append(
                {"case": number, "fault": str(case), "wrong": wrong, "again": f"--seed {seed} --case {number}"}
            )
    return {
        "runs": len(numbers),
        "seed": seed,
        "failed": failed,
        "ended_after_s": {"median": median(delays_s), "max": max(delays_s)} if delays_s else None,
        "rows": [{"method": m, "fault": f, "outcome": o, "runs": n} for (m, f, o), n in sorted(rows.items())],
    }


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Renders a row for each method and a column for each fault, with the number of each outcome."""
    table = Table("method", *FAULTS, title="what became of the runs")
    for method in METHODS:
        cells = [
            ", ".join(
                f"{row['runs']} {row['outcome']}" for row in rows if (row["method"], row["fault"]) == (method, fault)
            )
            for fault in FAULTS
        ]
        if any(cells):
            table.add_row(method, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many (default: {RUNS}, six of each method)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # before anything is forked
    found = campaign([given.case] if given.case is not None else range(given.runs), given.seed, Console(stderr=True))
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        console = Console()
        console.print(table_of(found["rows"]))
        said = f"{found['runs']} runs, {len(found['failed'])} of them wrong"
        if (after_s := found["ended_after_s"]) is not None:
            said += f"; one that ended did so {after_s['median']:.2f} s after the fault, {after_s['max']:.2f} s at most"
        console.print(said)
    sys.exit(1 if found["failed"] else 0)


if __name__ == "__main__":
    main()
