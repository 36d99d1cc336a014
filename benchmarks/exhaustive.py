"""Explores every inequivalent order of every method on small clusters, and checks what the method promises in each.

    python benchmarks/exhaustive.py                     # 2 workers and 3 workers, 2 steps each
    python benchmarks/exhaustive.py --sizes 2x2 --seconds 5 --methods async-sgd,ssp --json

An order is the answers of all receives, waits, locks and accesses to shared cells. Columns:

* orders: the number of inequivalent orders; "more than" if the limit of time was reached;
* redundant: runs that were cut off because all of their orders were known; 0 if the reduction is optimal;
* without reduction: all sequences of events of these orders; "more than" if not all of them were counted;
* violations: orders in which a guarantee of the method did not hold, or that failed.

Exits with 1 if there is a violation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.checking.check_guarantees import broken
from paceline.checking.driver import LoggedMove
from paceline.checking.exhaustive import explore
from paceline.checking.small_runs import Slopes
from paceline.records.trace import Trace

BATCH = 4
COUNTED_SETS = 1_000_000
"""sets of events that are examined to count sequences without reduction, for each method and size"""


@dataclass(frozen=True, slots=True)
class Row:
    """The exploration of one method on one cluster."""

    method: str
    workers: int
    steps: int
    orders: int
    complete: bool
    """whether these are all orders"""
    redundant: int
    seconds: float
    without_reduction: int | None
    """all sequences of events; a lower bound if not `counted_all`"""
    counted_all: bool
    violations: int
    first_violation: str | None


def row(method: Method, workers: int, steps: int, seconds: float) -> Row | None:
    """Explores the orders of one method; None if it does not support this number of workers.

    Args:
        method: the method.
        workers: the number of workers.
        steps: the steps of each worker.
        seconds: limit of time.
    """
    job = job_of(method, workers, steps)
    if job is None:
        return None
    found: list[str] = []

    def visit(trace: Trace, _: Sequence[LoggedMove]) -> None:
        found.extend(broken(job, trace, job.method.guarantees)[:1])

    def failed(error: Exception, _: Sequence[LoggedMove]) -> None:
        found.append(f"{type(error).__name__}: {error}")

    orders = explore(job, visit=visit, failed=failed, seconds=seconds, count_sets=COUNTED_SETS)
    whole = orders.complete and orders.counted == orders.explored
    first = found[0] if found else None
    return Row(
        method.name, workers, steps, orders.explored, orders.complete, orders.blocked, orders.seconds,
        orders.without_reduction, whole, len(found), first,
    )  # fmt: skip


def job_of(method: Method, workers: int, steps: int) -> Job | None:
    """Returns the small job of a method: one worker on each node or, if it needs that, all on one node."""
    ranks = [Rank(rank) for rank in range(1 if method.alone else workers)]
    for nodes in ([[rank] for rank in ranks], [ranks]):
        if not method.problems(nodes):
            return Job.of(method, nodes, Slopes(), batch=BATCH, budget=Budget(samples=steps * BATCH * len(ranks)))
    return None


NAMES = ("method", "workers x steps", "orders", "redundant", "seconds", "without reduction", "violations")


def cells(one: Row) -> list[str]:
    """Returns the cells of a row, in the order of `NAMES`."""
    orders = f"{'' if one.complete else 'more than '}{one.orders:,}"
    size, seconds = f"{one.workers} x {one.steps}", f"{one.seconds:.2f}"
    return [one.method, size, orders, str(one.redundant), seconds, _sequences(one), str(one.violations)]


def show_markdown(rows: Sequence[Row]) -> None:
    """Prints the rows as a table for a page."""
    for line in (NAMES, ["---"] * len(NAMES), *map(cells, rows)):
        print(f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|")


def show(rows: Sequence[Row], console: Console) -> None:
    """Prints one line for each row."""
    table = Table(*NAMES, box=None)
    for one in rows:
        table.add_row(*cells(one))
    console.print(table)
    for one in rows:
        if one.first_violation is not None:
            console.print(f"{one.method}, {one.workers} x {one.steps}: {one.first_violation}")


def _sequences(one: Row) -> str:
    if one.without_reduction is None:
        return "not counted"
    number = one.without_reduction
    digits = f"{number:,}" if number < 10**9 else f"{number:.2e}"
    return digits if one.counted_all else f"more than {digits}"


def main() -> int:
    """Explores the orders and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2x2,3x2", help="workers x steps, separated by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="names, separated by commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of time of each exploration")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/results/exhaustive.md")
    options = parser.parse_args()
    rows: list[Row] = []
    for size in options.sizes.split(","):
        workers, steps = map(int, size.split("x"))
        for name in options.methods.split(","):
            one = row(METHODS[name](), workers, steps, options.seconds)
            rows += [] if one is None else [one]
            print(f"{name} {size} done", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(one) for one in rows]))
    elif options.markdown:
        show_markdown(rows)
    else:
        show(rows, Console(width=120))
    return 1 if any(one.violations for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
