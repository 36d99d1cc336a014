"""Compares predictions with real runs by `paceline compare`, and checks the accuracies that the product promises.

    python benchmarks/promises.py                              # quickstart three times, then every method: 20 minutes
    python benchmarks/promises.py --rounds 1 --seeds 1 --methods sync-sgd,gossip --json
    python benchmarks/promises.py --only quickstart --scenario FILE

`quickstart` checks in every run of every method:

* step time within 5 %;
* staleness of deterministic methods exactly as predicted; of the others the mean of each rank within 5 %, and a total
  variation of 0.15 at most;
* time to accuracy within 5 % for deterministic methods, within 15 % over the seeds for the others;
* where a model without message cost or without jitter differs from ours by more than 5 %, ours is closer to the
  measurement.

`methods` runs every method with its defaults on the digits, for 20 epochs or until it reaches 95 %: it must learn,
simulated and real. Four paced workers run on two nodes: two of a fast device (20 ms per step of 32 samples) and two of
a device that is half as fast. Methods whose workers share memory have four fast ones on one node. Messages use this
machine's memory and loopback, so the simulated cluster is this machine, measured by a probe at the start.

Exits with 1 if a promise is broken, or a method stays below 90 % test accuracy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

import paceline
from common.harness import Answer, at_least, names_of, of_groups, run_command, say, table
from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.values import Rank
from paceline.records.figures import ACTIVITIES, number
from paceline.reports.comparison.comparison import ComparedLine

STEP, RANK, VARIATION, TIME, TIME_ASYNC, APART = 0.05, 0.05, 0.15, 0.05, 0.15, 0.05
LEAST = 0.9
"""test accuracy that every method reaches"""
FAST = {"name": "fast", "overhead": "4 ms", "per_sample": "0.5 ms"}
SLOW = {"name": "slow", "overhead": "4 ms", "per_sample": "1.125 ms"}
TWO_NODES = [{"device": FAST, "workers_per_node": 2}, {"device": SLOW, "workers_per_node": 2}]
ONE_NODE = [{"device": FAST, "workers_per_node": 4}]
PLACED = [[Rank(0), Rank(1)], [Rank(2), Rank(3)]]


# --- promised accuracies ----------------------------------------------------------------------------------------------


def verdicts(line: ComparedLine) -> Iterator[dict[str, Any]]:
    """Yields each promise for one method, with the error and its limit."""
    deterministic = Guarantee.DETERMINISTIC in METHODS[line.name.split("(")[0]].guarantees
    step, ranks = number(line.error["step_s"]["mean"]), line.error["staleness"]["by_rank"]
    errors = [number(error) for _, error in ranks]
    worst = max((abs(error) for error in errors if error is not None), default=None)
    limits = {
        "step time": (step, STEP),
        "staleness, total variation": (number(line.error["staleness_tv"]), 0.0 if deterministic else VARIATION),
        "staleness, worst rank's mean": (worst, 0.0 if deterministic else RANK),
        "time to accuracy": (number(line.error["time_to_accuracy_s"]), TIME if deterministic else TIME_ASYNC),
    }
    for promise, (error, allowed) in limits.items():
        holds = error is not None and abs(error) <= allowed
        yield {"algorithm": line.name, "promise": promise, "error": error, "allowed": allowed, "holds": holds}
    for name, wrong in line.wrong_models.items():
        other = number(wrong["step_s"]["mean"])
        if step is not None and other is not None and abs(other - step) > APART:
            nearer = {"promise": f"nearer than {name.replace('_', ' ')}", "error": step, "allowed": abs(other)}
            yield {"algorithm": line.name, **nearer, "holds": abs(step) < abs(other)}


def quickstart(options: argparse.Namespace) -> Answer:
    scenario = paceline.load(options.scenario, [f"seeds={options.seeds}"])
    rows, lines = [], list[ComparedLine]()
    for number_of_run in range(1, options.rounds + 1):
        compared = paceline.compare(scenario)
        lines += compared.lines
        rows += [{"run": number_of_run, **verdict} for line in compared.lines for verdict in verdicts(line)]
        say(f"run {number_of_run} of {options.rounds} done")
    worst = []
    for algorithm, promise in dict.fromkeys((row["algorithm"], row["promise"]) for row in rows):
        same = [row for row in rows if (row["algorithm"], row["promise"]) == (algorithm, promise)]
        row = max(same, key=lambda row: (not row["holds"], abs(row["error"] or 0.0) - row["allowed"]))
        worst.append({**row, "held": f"{sum(row['holds'] for row in same)} of {len(same)}"})
    cells = {
        "algorithm": "algorithm", "promise": "promise", "error": "error:+.1%", "allowed": "allowed:.1%",
        "holds": "held",
    }  # fmt: skip
    broken = sum(not row["holds"] for row in rows)
    shares = [_shares([line for line in lines if line.name == name]) for name in dict.fromkeys(x.name for x in lines)]
    heads = {"algorithm": "algorithm", **{activity: activity for activity in ACTIVITIES}}
    shown = [
        table("Fractions of the workers' time, %: predicted / measured", shares, heads),
        table("Worst error of all runs", worst, cells),
        f"{broken} of {len(rows)} promises broken",
    ]
    return Answer({"rows": rows, "shares": shares, "holds": not broken}, shown, not broken)


def _shares(lines: list[ComparedLine]) -> dict[str, str]:
    """Returns the means over all runs of a method. No accuracy is promised for these."""

    def mean(activity: str, side: str) -> str:
        shares = (number(getattr(line, side)["time_fraction"][activity]) or 0.0 for line in lines)
        return f"{100 * fmean(shares):.1f}"

    both = {name: f"{mean(name, 'simulated')} / {mean(name, 'measured')}" for name in ACTIVITIES}
    return {"algorithm": lines[0].name, **both}


# --- every method -----------------------------------------------------------------------------------------------------


def scenario(names: list[str], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": "methods",
        "algorithms": names,
        "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 32},
        "cluster": {
            "nodes": nodes,
            "network": {"topology": "star", "link": "eth-10g"},
            "step_time": {"distribution": "lognorm", "sigma": 0.3},
        },
        "train": {"pace": "device", "network": "local", "torch_threads": 1},
        "evaluate": {"every": "256 samples"},
        "target": {"accuracy": LEAST},
        "stop": {"epochs": 20, "accuracy": 0.95},
        "seed": 1,
    }


def every_method(options: argparse.Namespace) -> Answer:
    together = [name for name in options.methods if METHODS[name]().problems(PLACED)]
    apart = [name for name in options.methods if name not in together]
    rows = []
    for names, nodes in ((apart, TWO_NODES), (together, ONE_NODE)):
        if names:
            lines = paceline.compare(scenario(names, nodes), stage=say).lines
            rows += [_row(line.name, kind, getattr(line, kind)) for line in lines for kind in ("simulated", "measured")]
    cells = {
        "algorithm": "algorithm", "kind": "kind", "step, ms": "step_s*1e3:.1f",
        "time to 90 %, s": "time_to_accuracy_s:.2f",
        "accuracy": "final_accuracy:.1%", "staleness": "staleness_mean:.2f", "most": "staleness_max:g",
        "KB a gradient": "bytes_per_gradient*1e-3:.1f", "lost": "lost_share:.2%",
    }  # fmt: skip
    below = [f"{row['algorithm']} ({row['kind']})" for row in rows if not row["learned"]]
    title = "Every method, simulated and measured"
    return Answer({"rows": rows}, [table(title, rows, cells), f"below 90 %: {', '.join(below) or 'none'}"], not below)


def _row(name: str, kind: str, summary: Any) -> dict[str, Any]:
    kept = {key: summary[key] for key in ("wall_s", "time_to_accuracy_s", "final_accuracy")}
    return {
        "algorithm": name,
        "kind": kind,
        "step_s": summary["step_s"]["mean"],
        **kept,
        "staleness_mean": summary["staleness"]["mean"],
        "staleness_max": summary["staleness"]["max"],
        "bytes_per_gradient": summary["bytes_sent"] / summary["steps"] if summary["steps"] else None,
        "lost_share": summary["lost_updates"] and summary["lost_updates"]["lost_share"],
        "learned": summary["final_accuracy"] >= LEAST,
    }


GROUPS = {"quickstart": quickstart, "methods": every_method}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", type=names_of(GROUPS), default=list(GROUPS), metavar="A,B", help="quickstart, methods"
    )
    parser.add_argument("--scenario", default="quickstart", help="of quickstart (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="of quickstart (default: %(default)s)")
    parser.add_argument("--seeds", type=at_least(1), default=3, help="of quickstart (default: %(default)s)")
    parser.add_argument("--methods", type=names_of(METHODS), default=list(METHODS), metavar="A,B,…", help="of methods")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, partial(of_groups, GROUPS), add_options))
