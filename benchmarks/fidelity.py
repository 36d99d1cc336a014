"""Predicts unseen configurations from calibrations, then measures them, and reports the errors of the predictions.

    python benchmarks/fidelity.py --quick             # a subset with one seed: about ten minutes
    python benchmarks/fidelity.py                     # all configurations, three seeds each: about three hours
    python benchmarks/fidelity.py --only paced        # one group; --only may be repeated
    python benchmarks/fidelity.py --only order --seeds 2 --seconds 20
                                                      # the order of ten methods: about ten minutes
    python benchmarks/fidelity.py --list              # the configurations
    python benchmarks/fidelity.py --tables            # only the tables of the results so far

Each model with each number of ranks is calibrated once, at batches that no configuration has. Each configuration is
predicted before it is measured. The row of a finished configuration is appended to results.csv in --out, and another
start skips it; a configuration that failed is tried again. Remove the folder to begin anew, with new calibrations.

The groups are: paced (device times are given to both sides), unpaced-within-cores (at most as many workers as cores),
unpaced-beyond-cores, emulated (paced, on an emulated network between two nodes), emulated-unpaced, and order (ten
methods in each of four settings, measured seed by seed). Emulated networks need root and are skipped without.
The tables show mean, 90th percentile and worst of the errors' sizes, for each group and method, beside the means of
three simpler models, Kendall's τ of the order of methods by time to accuracy, and the pairs of methods in the wrong
order.

Exits with 1 if a configuration failed. Other programs on the machine disturb measurements: their share of the processor
time is in the column other_load. fidelity_runs/README.md explains options, columns and groups.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.console import Console

from fidelity_runs.calibrations import Calibrations
from fidelity_runs.configurations import SETTINGS, Configuration, configurations, quick_settings
from fidelity_runs.measuring import Study, here, predict_then_measure, run
from fidelity_runs.results import Row, finished, latest
from fidelity_runs.settings import GROUPS
from fidelity_runs.tables import tables
from paceline.backend.posix.network_namespaces import NoHosts, refuse
from paceline.records.machine import machine_facts

SEEDS, SECONDS = 3, 180.0
QUICK_SEEDS, QUICK_SECONDS = 1, 20.0
WIDTH = 150
"""of printed tables in a file or a pipe"""


def say(line: str) -> None:
    """Prints a line about progress."""
    print(line, file=sys.stderr, flush=True)


def wanted_of(options: argparse.Namespace, cores: int) -> list[Configuration]:
    """Returns the requested configurations that this machine can run.

    Args:
        options: the options.
        cores: the cores of this machine.
    """
    settings = quick_settings() if options.quick else SETTINGS
    found = list(configurations(settings, cores=cores, only=options.only))
    try:
        refuse()
    except NoHosts as error:
        left = [one for one in found if one.setting.network == "local"]
        if len(left) < len(found):
            say(f"skipped {len(found) - len(left)} configurations on an emulated network: {error}")
        return left
    return found


def show(rows: Sequence[Row], console: Console) -> None:
    """Prints the tables and a line about the measurements.

    Args:
        rows: the rows.
        console: where they are printed.
    """
    if not rows:
        console.print("no results yet")
        return
    for table in tables(rows):
        console.print(table)
        console.print()
    commits = ", ".join(dict.fromkeys(one.commit or "unknown" for one in rows))
    load = 100 * fmean(one.other_load for one in rows)
    worst = 100 * max(max(one.other_load, one.calibration_load) for one in rows)
    machine = ", ".join(dict.fromkeys(f"{one.processor}, {one.cores} cores" for one in rows))
    console.print(
        f"{len(rows)} configurations; commit {commits}; {machine}; other programs took {load:.1f} % of the machine "
        f"on average during measurements, and at most {worst:.1f} % during one or a calibration."
    )


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a subset, with one seed and short calibrations")
    parser.add_argument(
        "--only", action="append", choices=GROUPS, default=None, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument("--seeds", type=int, help=f"of each configuration; default {SEEDS}, {QUICK_SEEDS} with --quick")
    parser.add_argument("--seconds", type=float, help="of each calibration, after which no further round begins")
    parser.add_argument("--out", type=Path, help="folder of results; default: fidelity, or fidelity-quick")
    parser.add_argument("--list", action="store_true", help="list the configurations and exit")
    parser.add_argument("--tables", action="store_true", help="print the tables of the results so far and exit")
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON document")
    options = parser.parse_args(given)
    options.only = options.only or []
    options.seeds = options.seeds if options.seeds is not None else QUICK_SEEDS if options.quick else SEEDS
    options.seconds = options.seconds if options.seconds is not None else QUICK_SECONDS if options.quick else SECONDS
    options.out = options.out or Path("fidelity-quick" if options.quick else "fidelity")
    if options.seeds < 1 or options.seconds <= 0:
        parser.error("expected --seeds of 1 or more and --seconds above 0")
    return options


def main(given: Sequence[str] | None = None) -> int:
    """Runs the command."""
    options = arguments(given)
    cores = int(machine_facts()["cores"])
    study = Study(
        folder=options.out,
        seeds=options.seeds,
        calibrations=Calibrations(options.out / "calibrations", options.seconds, say),
        say=say,
        compare=predict_then_measure,
    )
    try:
        before = finished(study.path)
    except ValueError as error:
        say(f"--out: {error}; use another folder")
        return 2
    if options.list:
        for one in wanted_of(options, cores):
            print(f"{one.setting.group(cores)}: {one.name}")
        return 0
    failures = list[str]()
    if not options.tables:
        if older := {one.commit for one in before} - {here().commit}:
            say(f"note: {study.path} has rows of other commits ({', '.join(sorted(older))}), which are not made again")
        failures = run(study, wanted_of(options, cores), cores)
    rows = [one for one in latest(finished(study.path)) if not options.only or one.group in options.only]
    if options.json:
        from dataclasses import asdict

        print(json.dumps({"rows": [asdict(one) for one in rows], "failures": failures}))
    else:
        show(rows, Console(width=None if sys.stdout.isatty() else WIDTH))
    for failure in failures:
        say(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
