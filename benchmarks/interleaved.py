"""Measures the error of the model alone: calibration and measured runs take turns, so both see the same machine.

    python benchmarks/interleaved.py                                  # wide-mlp, ten methods, four rounds: six minutes
    python benchmarks/interleaved.py --setting "unpaced, digits-mlp, 2 workers" --rounds 8
    python benchmarks/interleaved.py --methods sync-sgd,easgd --json

The speed of a shared machine changes by tens of per cent from minute to minute, which `fidelity.py`, which calibrates
first, counts as errors of predictions. Here every round launches each probe once and runs each method once. All
probes are pooled, the runs are predicted from them, and the mean measured step time of each method is compared. No
prediction uses a measured run.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from rich.console import Console
from rich.table import Table

from fidelity_runs.configurations import SETTINGS
from fidelity_runs.settings import Setting
from paceline.backend.calibration.gradient_costs import LaunchGradients, available_cores, gradient_tasks
from paceline.backend.calibration.gradient_costs import pooled as pooled_gradients
from paceline.backend.calibration.message_costs import message_tasks
from paceline.backend.calibration.recorded_costs import Costs, pooled
from paceline.backend.training import train
from paceline.records.machine import OtherLoad
from paceline.reports.comparison.predict import predict
from paceline.simulator.runs.dry_run import dry_run
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile

UNPACED = [setting for setting in SETTINGS if not setting.paced and setting.link is None]
EPOCHS = 40.0
"""epochs of a measured run; a predicted one has a quarter, since its steps are alike"""


@dataclass(frozen=True, slots=True)
class Line:
    """The step times of one method, in seconds."""

    method: str
    predicted_s: float
    measured_s: float
    error_s: float
    """the standard error of the measured mean"""

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1


def rounds_of(setting: Setting, rounds: int, say: Console) -> tuple[Profile, dict[str, list[float]]]:
    """Returns the pooled probes and the mean step times of each method's runs.

    Args:
        setting: the setting with its methods.
        rounds: how often each probe and each run is made.
        say: where progress is printed.
    """
    scenario = setting.scenario(setting.methods)
    (gradients,), messages = gradient_tasks(scenario), message_tasks(scenario, dry_run(scenario.plans()))
    steps = gradients.steps()
    launches, costs, measured = list[LaunchGradients](), list[Costs](), defaultdict[str, list[float]](list)
    for number in range(1, rounds + 1):
        launches += gradients.measure(steps)
        for task in messages:
            costs += task.measure(number)
        for method in setting.methods:
            (run,) = train(setting.scenario((method,)))
            measured[method].append(run.summary["step_s"]["mean"])
        say.print(f"round {number} of {rounds}")
    times = pooled_gradients(gradients.batch, launches)
    return replace(pooled(costs), gradients=(times,), cores=available_cores()), measured


def lines_of(setting: Setting, machine: Profile, measured: dict[str, list[float]]) -> list[Line]:
    """Predicts each method and compares it with the runs.

    Args:
        setting: the setting.
        machine: the pooled probes.
        measured: the mean step times of each method's runs.
    """
    found, short = [], replace(setting, epochs=setting.epochs / 4)
    for method, times_s in measured.items():
        (run,) = predict(short.scenario((method,)), MeasuredCosts(machine)).simulated
        spread_s = stdev(times_s) / len(times_s) ** 0.5 if len(times_s) > 1 else 0.0
        found.append(Line(method, run.summary["step_s"]["mean"], fmean(times_s), spread_s))
    return found


def table(title: str, lines: Sequence[Line]) -> Table:
    """Returns the step times as a table."""
    shown = Table(title=title, title_justify="left", box=None)
    shown.add_column("method")
    for head in ("predicted, ms", "measured, ms", "error, %"):
        shown.add_column(head, justify="right")
    for one in lines:
        measured = f"{1e3 * one.measured_s:.2f} ± {1e3 * one.error_s:.2f}"
        shown.add_row(one.method, f"{1e3 * one.predicted_s:.2f}", measured, f"{100 * one.error:+.1f}")
    shown.add_row("mean size", "", "", f"{100 * fmean(abs(one.error) for one in lines):.1f}")
    return shown


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="unpaced, wide-mlp, 2 workers", choices=[one.name for one in UNPACED])
    parser.add_argument("--methods", help="some of the setting's methods; default: all")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    asked = parser.parse_args()
    (setting,) = (one for one in UNPACED if one.name == asked.setting)
    methods = setting.methods if asked.methods is None else tuple(asked.methods.split(","))
    setting = replace(setting, methods=methods, epochs=EPOCHS / setting.longer)
    with OtherLoad() as other:
        machine, measured = rounds_of(setting, max(1, asked.rounds), Console(stderr=True))
    lines = lines_of(setting, machine, measured)
    if asked.json:
        rows = [{"method": one.method, "predicted_s": one.predicted_s, "measured_s": one.measured_s} for one in lines]
        print(json.dumps({"setting": setting.name, "other_load": other.share, "results": rows}))
        return
    Console().print(table(f"{setting.name}; other programs used {100 * other.share:.0f} % of the machine", lines))


if __name__ == "__main__":
    main()
