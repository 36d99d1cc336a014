"""Predicts unseen configurations from calibrations, then measures them, and reports the errors of the predictions.

    python benchmarks/fidelity.py --quick             # a subset with one seed: about ten minutes
    python benchmarks/fidelity.py                     # all configurations, three seeds each: about three hours
    python benchmarks/fidelity.py --only paced        # one group; --only may be repeated
    python benchmarks/fidelity.py --only order --seeds 2 --seconds 20
                                                      # the order of ten methods: about ten minutes
    python benchmarks/fidelity.py --list              # the configurations
    python benchmarks/fidelity.py --tables            # only the tables of the results so far
    python benchmarks/fidelity.py --interleaved 4     # the error of the model alone, in four rounds: six minutes

Each model with each number of ranks is calibrated once, at batches that no configuration has. Each configuration is
predicted before it is measured. The row of a finished configuration is appended to results.csv in --folder, and another
start skips it; a configuration that failed is tried again. Remove the folder to begin anew, with new calibrations.

The groups are: paced (device times are given to both sides), unpaced-within-cores (at most as many workers as cores),
unpaced-beyond-cores, emulated (paced, on an emulated network between two nodes), emulated-unpaced, and order (ten
methods in each of four settings, measured seed by seed). Emulated networks need root and are skipped without.
The tables show mean, 90th percentile and worst of the errors' sizes, for each group and method, beside the means of
three simpler models, Kendall's τ of the order of methods by time to accuracy, and the pairs of methods in the wrong
order. benchmarks/README.md explains columns and groups.

The speed of a shared machine changes by tens of per cent from minute to minute, which a calibration before the runs
counts as errors of predictions. With --interleaved, every round launches each probe once and runs each method of one
unpaced setting once. All probes are pooled, the runs are predicted from them, and the mean measured step time of each
method is compared. No prediction uses a measured run.

Exits with 1 if a configuration failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from common.harness import CORES, Answer, run_command, say, table
from fidelity_runs.measuring import Row, Study, finished, here
from fidelity_runs.settings import GROUPS, SETTINGS, Configuration, Setting, configurations, quick_settings
from fidelity_runs.tables import tables
from paceline.backend.calibration.gradient_costs import LaunchGradients, available_cores, gradient_tasks
from paceline.backend.calibration.gradient_costs import pooled as pooled_gradients
from paceline.backend.calibration.message_costs import message_tasks
from paceline.backend.calibration.recorded_costs import Costs, pooled
from paceline.backend.posix.network_namespaces import NoHosts, refuse
from paceline.backend.training import train
from paceline.reports.comparison.predict import predict
from paceline.simulator.runs.dry_run import dry_run
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile

SEEDS, SECONDS = 3, 180.0
QUICK_SEEDS, QUICK_SECONDS = 1, 20.0
UNPACED = {setting.name: setting for setting in SETTINGS if not setting.paced and setting.link is None}
EPOCHS = 40.0
"""epochs of an interleaved measured run; a predicted one has a quarter, since its steps are alike"""


def wanted_of(options: argparse.Namespace) -> list[Configuration]:
    """Returns the requested configurations that this machine can run."""
    settings = quick_settings() if options.quick else SETTINGS
    wanted = list(configurations(settings, cores=CORES, only=options.only))
    try:
        refuse()
    except NoHosts as error:
        left = [configuration for configuration in wanted if configuration.setting.network == "local"]
        if len(left) < len(wanted):
            say(f"skipped {len(wanted) - len(left)} configurations on an emulated network: {error}")
        return left
    return wanted


def summary(rows: Sequence[Row]) -> str:
    """Describes the measurements."""
    commits = ", ".join(dict.fromkeys(row["commit"] or "unknown" for row in rows))
    worst = max(max(row["other_load"], row["calibration_load"]) for row in rows)
    machine = ", ".join(dict.fromkeys(f"{row['processor']}, {row['cores']} cores" for row in rows))
    return (
        f"{len(rows)} configurations; commit {commits}; {machine}; other programs took "
        f"{fmean(row['other_load'] for row in rows):.1%} of the machine on average during measurements, and at most "
        f"{worst:.1%} during one or a calibration."
    )


def study(options: argparse.Namespace) -> Answer:
    """Makes the rows that are missing, and shows all."""
    quick = options.quick
    folder = options.folder or Path("fidelity-quick" if quick else "fidelity")
    seconds = options.seconds or (QUICK_SECONDS if quick else SECONDS)
    made = Study(folder=folder, seeds=options.seeds or (QUICK_SEEDS if quick else SEEDS), seconds=seconds, say=say)
    before = finished(made.path)
    if options.list:
        wanted = wanted_of(options)
        return Answer({}, [f"{configuration.setting.group(CORES)}: {configuration.name}" for configuration in wanted])
    failures = list[str]()
    if not options.tables:
        if older := {row["commit"] for row in before} - {here()["commit"]}:
            say(f"note: {made.path} has rows of other commits ({', '.join(sorted(older))}), which are not made again")
        failures = made.run(wanted_of(options), CORES)
    latest = {row["configuration"]: row for row in finished(made.path)}
    rows = [row for row in latest.values() if not options.only or row["group"] in options.only]
    shown = [*tables(rows), summary(rows)] if rows else ["no results yet"]
    return Answer({"rows": rows, "failures": failures}, [*shown, *failures], not failures)


# --- calibration and runs in turn -------------------------------------------------------------------------------------


def interleaved(options: argparse.Namespace) -> Answer:
    setting = UNPACED[options.setting]
    methods = tuple(options.methods.split(",")) if options.methods else setting.methods
    setting = replace(setting, methods=methods, epochs=EPOCHS / setting.longer)
    rows = lines_of(setting, *rounds_of(setting, options.interleaved))
    cells = {
        "method": "method", "predicted, ms": "predicted_s*1e3:.2f", "measured, ms": "measured_s*1e3:.2f",
        "±": "spread_s*1e3:.2f", "error": "error:+.1%",
    }  # fmt: skip
    mean = fmean(abs(row["error"]) for row in rows)
    shown = [table(setting.name, rows, cells), f"mean size of the errors: {mean:.1%}"]
    return Answer({"setting": setting.name, "rows": rows, "mean_error": mean}, shown)


def rounds_of(setting: Setting, rounds: int) -> tuple[Profile, dict[str, list[float]]]:
    """Returns the pooled probes and the mean step times of each method's runs."""
    scenario = setting.scenario(setting.methods)
    (gradients,), messages = gradient_tasks(scenario), message_tasks(scenario, dry_run(scenario.plans()))
    steps = gradients.steps()
    launches, costs, measured = list[LaunchGradients](), list[Costs](), defaultdict[str, list[float]](list)
    for turn in range(1, rounds + 1):
        launches += gradients.measure(steps)
        for task in messages:
            costs += task.measure(turn)
        for method in setting.methods:
            (run,) = train(setting.scenario((method,)))
            measured[method].append(run.summary["step_s"]["mean"])
        say(f"round {turn} of {rounds}")
    times = pooled_gradients(gradients.batch, launches)
    return replace(pooled(costs), gradients=(times,), cores=available_cores()), measured


def lines_of(setting: Setting, machine: Profile, measured: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Predicts each method from the probes and compares it with the mean of its runs, whose standard error is given."""
    rows, short = [], replace(setting, epochs=setting.epochs / 4)
    for method, times_s in measured.items():
        (run,) = predict(short.scenario((method,)), MeasuredCosts(machine)).simulated
        predicted_s, measured_s = run.summary["step_s"]["mean"], fmean(times_s)
        spread_s = stdev(times_s) / len(times_s) ** 0.5 if len(times_s) > 1 else 0.0
        figures = {"predicted_s": predicted_s, "measured_s": measured_s, "spread_s": spread_s}
        rows.append({"method": method, **figures, "error": predicted_s / measured_s - 1})
    return rows


# --- the command ------------------------------------------------------------------------------------------------------


def body(options: argparse.Namespace) -> Answer:
    return interleaved(options) if options.interleaved else study(options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a subset, with one seed and short calibrations")
    parser.add_argument("--only", action="append", choices=GROUPS, default=[], help="a group; may be repeated")
    parser.add_argument("--seeds", type=int, help=f"of each configuration; default {SEEDS}, {QUICK_SEEDS} with --quick")
    parser.add_argument("--seconds", type=float, help="of each calibration, after which no further round begins")
    parser.add_argument("--folder", type=Path, help="of the results; default: fidelity, or fidelity-quick")
    parser.add_argument("--list", action="store_true", help="list the configurations and exit")
    parser.add_argument("--tables", action="store_true", help="print the tables of the results so far and exit")
    parser.add_argument("--interleaved", type=int, metavar="ROUNDS", help="calibration and runs take turns instead")
    parser.add_argument("--setting", default="unpaced, wide-mlp, 2 workers", choices=UNPACED, help="with --interleaved")
    parser.add_argument("--methods", help="with --interleaved: some of the setting's methods; default: all")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
