"""What the checker sees: every inequivalent order of small runs, and how soon planted bugs are found, on one core.

    python benchmarks/checking.py                                # both: 20 minutes
    python benchmarks/checking.py --only orders --markdown       # the table of docs/results/simulator.md
    python benchmarks/checking.py --only orders --sizes 2x2 --seconds 5 --methods async-sgd,ssp
    python benchmarks/checking.py --only bugs --bugs ssp-gate-off-by-one,easgd-replies-after-move

An order is the answers of all receives, waits, locks and accesses to shared cells. Columns of `orders`:

* orders: the number of inequivalent orders; "more than" if the limit of time was reached;
* redundant: runs that were cut off because all of their orders were known; 0 if the reduction is optimal;
* without reduction: all sequences of events of these orders; "more than" if not all of them were counted;
* violations: orders in which a guarantee of the method did not hold, or that failed.

A planted bug is a method with one mistake (tests/planted_bugs). Columns of `bugs`: the seconds until the first
violation, the number of schedules, the seconds for making the counterexample smaller, and the size of the smallest one:
ranks, steps of a worker, and context switches (none for a simulated run).

Exits with 1 if an order has a violation, or a bug was not found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the planted bugs are part of the test suite

from common.harness import Answer, names_of, of_groups, run_command, say, table
from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.checking.check_guarantees import broken
from paceline.checking.driver import LoggedMove
from paceline.checking.exhaustive import explore
from paceline.checking.small_runs import Slopes
from paceline.records.trace import Trace
from tests.planted_bugs.finding import search
from tests.planted_bugs.table import BUGS

BATCH = 4
COUNTED_SETS = 1_000_000
"""sets of events that are examined to count sequences without reduction, for each method and size"""
PLANTED = {bug.name: bug for bug in BUGS}


# --- every order ------------------------------------------------------------------------------------------------------


def explored(method: Method, workers: int, steps: int, seconds: float) -> dict[str, Any] | None:
    """Explores the orders of one method; None if it does not support this number of workers."""
    job = job_of(method, workers, steps)
    if job is None:
        return None
    violations: list[str] = []

    def visit(trace: Trace, _: Sequence[LoggedMove]) -> None:
        violations.extend(broken(job, trace, job.method.guarantees)[:1])

    def failed(error: Exception, _: Sequence[LoggedMove]) -> None:
        violations.append(f"{type(error).__name__}: {error}")

    orders = explore(job, visit=visit, failed=failed, seconds=seconds, count_sets=COUNTED_SETS)
    return {
        "method": method.name,
        "workers": workers,
        "steps": steps,
        "orders": orders.explored,
        "complete": orders.complete,
        "redundant": orders.blocked,
        "seconds": orders.seconds,
        "without_reduction": orders.without_reduction,
        "counted_all": orders.complete and orders.counted == orders.explored,
        "violations": len(violations),
        "first_violation": violations[0] if violations else None,
    }


def job_of(method: Method, workers: int, steps: int) -> Job | None:
    """Returns the small job of a method: one worker on each node or, if it needs that, all on one node."""
    ranks = [Rank(rank) for rank in range(1 if method.alone else workers)]
    for nodes in ([[rank] for rank in ranks], [ranks]):
        if not method.problems(nodes):
            return Job.of(method, nodes, Slopes(), batch=BATCH, budget=Budget(samples=steps * BATCH * len(ranks)))
    return None


def orders(options: argparse.Namespace) -> Answer:
    rows = []
    for size in options.sizes.split(","):
        workers, steps = map(int, size.split("x"))
        for name in options.methods:
            row = explored(METHODS[name](), workers, steps, options.seconds)
            rows += [] if row is None else [row]
            say(f"{name} {size} done")
    cells = {
        "method": "method", "workers x steps": lambda row: f"{row['workers']} x {row['steps']}",
        "orders": lambda row: _more(row["complete"], f"{row['orders']:,}"), "redundant": "redundant:",
        "seconds": "seconds:.2f", "without reduction": _sequences, "violations": "violations:",
    }  # fmt: skip
    said = [f"{row['method']}: {row['first_violation']}" for row in rows if row["violations"]]
    return Answer({"rows": rows}, [table("Inequivalent orders", rows, cells), *said], not said)


def _more(whole: bool, number: str) -> str:
    return number if whole else f"more than {number}"


def _sequences(row: dict[str, Any]) -> str:
    number = row["without_reduction"]
    if number is None:
        return "not counted"
    return _more(row["counted_all"], f"{number:,}" if number < 10**9 else f"{number:.2e}")


# --- planted bugs -----------------------------------------------------------------------------------------------------


def bugs(options: argparse.Namespace) -> Answer:
    rows = [bug_row(name, options.schedules, options.seed) for name in options.bugs]
    caught = [row for row in rows if row["found"]]
    summary: dict[str, Any] = {"found": len(caught)}
    for figure in ("seconds", "schedules", "shrink_s", "ranks", "steps"):
        values = [row[figure] for row in caught]
        summary |= {f"median_{figure}": median(values), f"most_{figure}": max(values)} if caught else {}
    cells = {
        "bug": "name", "guarantee": "guarantee", "seconds": "seconds:.2f", "schedules": "schedules:",
        "shrinking": "shrink_s:.2f", "ranks": "ranks:", "steps": "steps:", "switches": "context_switches:",
    }  # fmt: skip
    said = f"found {len(caught)} of {len(rows)}"
    if caught:
        said += (
            f"; median {summary['median_seconds']:.2f} s and {summary['median_schedules']:g} schedules, longest "
            f"{summary['most_seconds']:.2f} s; at most {summary['most_ranks']} ranks and {summary['most_steps']} steps"
        )
    shown = [table("Planted bugs", rows, cells), said]
    return Answer({"rows": rows, **summary}, shown, len(caught) == len(rows))


def bug_row(name: str, schedules: int, seed: int) -> dict[str, Any]:
    """Searches for one bug; the figures are missing if it was not found."""
    caught = search(PLANTED[name], schedules=schedules, seed=seed)
    if caught is None:
        return {"name": name, "found": False, "guarantee": "not found"}
    figures = ("seconds", "schedules", "shrink_s", "ranks", "steps", "context_switches")
    violation = {"guarantee": caught.violation.guarantee, "interpreter": caught.violation.case.interpreter}
    return {"name": name, "found": True, **violation, **{figure: getattr(caught, figure) for figure in figures}}


GROUPS = {"orders": orders, "bugs": bugs}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=names_of(GROUPS), default=list(GROUPS), metavar="A,B", help="orders, bugs")
    parser.add_argument("--sizes", default="2x2,3x2", help="of orders: workers x steps, separated by commas")
    parser.add_argument("--methods", type=names_of(METHODS), default=list(METHODS), help="of orders")
    parser.add_argument("--seconds", type=float, default=60.0, help="of orders: limit of time of each exploration")
    parser.add_argument("--bugs", type=names_of(PLANTED), default=list(PLANTED), help="names, separated by commas")
    parser.add_argument("--schedules", type=int, default=1000, help="of bugs: limit for each (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of bugs: of the random cases (default 1)")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, partial(of_groups, GROUPS), add_options))
