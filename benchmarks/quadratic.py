"""Compares simulated runs of the methods on the noisy quadratic with exact results for quadratics.

    python benchmarks/quadratic.py
    python benchmarks/quadratic.py q6 q10
    python benchmarks/quadratic.py --json

The experiments are those of tests/closed_form/test_quadratic_*.py; docs/results/quadratic.md has the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests

from tests.closed_form import test_quadratic_asynchrony as asynchrony
from tests.closed_form import test_quadratic_noise as noise
from tests.closed_form import test_quadratic_stability as stability
from tests.quadratic import Finding


def table(findings: list[Finding]) -> Table:
    """Prints one line for each finding."""
    shown = Table("oracle", "run", "expected", "measured", "within", "holds")
    for one in findings:
        figures = (f"{one.expected:.5g}", f"{one.measured:.5g}", f"{one.within:.2g}")
        shown.add_row(one.oracle, one.run, *figures, "yes" if one.holds else "NO")
    return shown


def main() -> int:
    """Runs the chosen experiments and prints the findings. Returns 1 if one does not hold."""
    experiments = {one.__name__: one for one in noise.EXPERIMENTS + stability.EXPERIMENTS + asynchrony.EXPERIMENTS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracles", nargs="*", metavar="ORACLE", help=f"all if not given: {', '.join(experiments)}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    if unknown := set(given.oracles) - set(experiments):
        parser.error(f"found {', '.join(sorted(unknown))}; expected some of {', '.join(experiments)}")
    findings = [finding for name in given.oracles or experiments for finding in experiments[name]()]
    if given.json:
        print(json.dumps([{**asdict(one), "holds": one.holds} for one in findings], indent=2))
    else:
        Console().print(table(findings))
    return 0 if all(one.holds for one in findings) else 1


if __name__ == "__main__":
    raise SystemExit(main())
