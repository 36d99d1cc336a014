"""Runs methods on two hosts, started by torchrun, mpirun or srun in two network namespaces joined by a shaped link.

    python benchmarks/two_hosts.py                       # all methods, two workers a host: two minutes on two cores
    python benchmarks/two_hosts.py --per-host 1 --samples 320 --json
    python benchmarks/two_hosts.py --launcher srun       # by a Slurm installation of its own
    python benchmarks/two_hosts.py --predict 40          # predicts unpaced runs and measures them: three minutes

Needs root, because the hosts are network namespaces of this machine (`backend/emulation/emulated_hosts.py`), and the
launcher (`emulated_network/launchers.py`): a torchrun on each host, or one mpirun or srun for both. Each rank of a host
is a process. One start runs all methods that can use two nodes, one after the other. Methods whose workers share memory
or belong to one chip need all workers on one node: a second start runs them on the first host, and the processes of the
second host take no part.

Shown for each method: the updates of the weights' owner, the final loss, the hosts of its ranks, the uncertainty of the
clocks of the two hosts, and for deterministic methods whether the weights equal those of ranks forked on this
machine, bit for bit. Collectives use gloo everywhere (`train.shared_memory: false`), whose order of addition depends
only on the ranks.

With `--predict S`, `paceline calibrate` measures both hosts in the launcher's processes (no further round begins after
S seconds), `paceline train` runs every method there, and `paceline compare --measured` predicts it from the machine
file alone. Shown are the mean step times, the error of the prediction, that of the prediction at the speed which the
machine had during the run, and that of the α–β model. Each host has half of this machine's cores, so that hosts do not
slow each other down, as real hosts do not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from common.harness import Answer, names_of, run_command, table
from emulated_network.launchers import COMMAND, LAUNCHERS, launched
from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.values import Rank
from paceline.backend.emulation.emulated_hosts import hosts
from paceline.backend.training import train
from paceline.records import Run
from paceline.records.store import as_array, read_run

RATE = 125e6
"""bytes/s of the link of each host"""
PREDICTED = ("sync-sgd", "layerwise-sgd", "async-sgd", "easgd")
"""two that wait for each other, one of them with overlap, and two with a server"""


def scenario(
    methods: Sequence[str], nodes: int, per_node: int, samples: int, rate: float = 0.05, **workload: Any
) -> dict[str, Any]:
    """Returns a scenario with a small network on this many nodes, trained by these methods without pacing."""
    device = {"name": "cpu", "overhead": "1 ms", "per_sample": "0.1 ms"}
    return {
        "name": "two-hosts",
        "algorithms": list(methods),
        "hyperparameters": {"learning_rate": rate},
        "workload": {"model": "digits-mlp", "batch_per_worker": 16, **workload},
        "cluster": {
            "nodes": [{"device": device, "count": nodes, "workers_per_node": per_node}],
            "network": {"topology": "star", "link": "eth-1g"},
        },
        "train": {"pace": "none"},
        "stop": {"samples": samples},
        "evaluate": {"every": "1000 epochs"},
        "seed": 1,
    }


def suits(name: str, nodes: int, per_node: int) -> bool:
    """Tells whether a method can be placed like this."""
    ranks = iter(range(nodes * per_node))
    return not find(name)().problems([[Rank(next(ranks)) for _ in range(per_node)] for _ in range(nodes)])


def starts(methods: Sequence[str], per_host: int, samples: int) -> Iterator[dict[str, Any]]:
    """Yields the scenarios that together contain these methods."""
    spread = [name for name in methods if suits(name, 2, per_host)]
    together = [name for name in methods if name not in spread]
    for names, nodes in ((spread, 2), (together, 1)):
        if names:
            by_gloo = {"train": {"pace": "none", "shared_memory": False}}
            yield scenario(names, nodes, per_host, samples) | by_gloo


def row(run: Run, forked: Run | None) -> dict[str, Any]:
    seats, clocks = run.machine["seats"], run.machine["clocks"]
    return {
        "algorithm": run.algorithm,
        "updates": run.summary["updates"],
        "loss": run.summary["final_loss"],
        "hosts": [[seat["rank"] for seat in seats if seat["host"] == host] for host in (0, 1)],
        "clock_error_s": max(clock["error_s"] for clock in clocks) if clocks else None,
        "same_as_forked": forked and bool(np.array_equal(as_array(run.weights), as_array(forked.weights))),
    }


def trained(options: argparse.Namespace) -> Answer:
    """Runs all methods, start by start."""
    rows = []
    for what in starts(options.methods or list(METHODS), options.per_host, options.samples):
        processes = options.per_host + any(find(name).has_server for name in what["algorithms"])
        with tempfile.TemporaryDirectory() as name, hosts(2, bytes_per_s=RATE) as made:
            path, out = Path(name) / "two-hosts.json", Path(name) / "runs"
            path.write_text(json.dumps(what))  # JSON is valid YAML
            out.mkdir()
            launched(options.launcher, made, processes, ["train", str(path), "--out", str(out)])
            runs = {run.algorithm: run for run in map(read_run, sorted(at.parent for at in out.glob("*/run.json")))}
        alike = [name for name in what["algorithms"] if find(name)().deterministic]
        forked = {run.algorithm: run for run in train({**what, "algorithms": alike})}
        rows += [row(runs[name], forked.get(name)) for name in what["algorithms"]]
    cells = {
        "algorithm": "algorithm", "updates": "updates:", "loss": "loss:.3f",
        "ranks of host 0": lambda row: ",".join(map(str, row["hosts"][0])) or "–",
        "of host 1": lambda row: ",".join(map(str, row["hosts"][1])) or "–",
        "clocks ± µs": "clock_error_s*1e6:.0f", "same bits as forked": "same_as_forked",
    }  # fmt: skip
    title = f"Two hosts under {options.launcher}"
    return Answer({"rows": rows}, [table(title, rows, cells)], all(row["same_as_forked"] is not False for row in rows))


def predicted(options: argparse.Namespace) -> Answer:
    """Calibrates two hosts, trains on them, and predicts the runs: three commands, as a user gives them."""
    names, batch = options.methods or PREDICTED, options.batch
    samples = options.steps * batch * 2 * options.per_host
    workload = {"model": options.model, "dataset": "digits", "batch_per_worker": batch}
    what = scenario(names, 2, options.per_host, samples, rate=0.02, **workload)
    with tempfile.TemporaryDirectory() as name, hosts(2, bytes_per_s=RATE) as made:
        folder = Path(name) if options.keep is None else options.keep.absolute()
        folder.mkdir(parents=True, exist_ok=options.keep is None)
        path, machine, runs = folder / "scenario.json", folder / "machine.yaml", folder / "runs"
        path.write_text(json.dumps(what))
        rounds = ["--batches", str(batch), "--seconds", str(options.predict)]
        processes = options.per_host + 1  # the probe of messages has a server
        launched(options.launcher, made, processes, ["calibrate", str(path), *rounds, "--out", str(machine)])
        launched(options.launcher, made, processes, ["train", str(path), "--out", str(runs)])
        answer = compared(sorted(at.parent for at in runs.glob("*/run.json")), machine, runs)
        verdict = yaml.safe_load(machine.read_text())["made"]["verdict"]
    rows = [
        {
            "algorithm": line["name"],
            "predicted_s": line["simulated"]["step_s"]["mean"],
            "measured_s": line["measured"]["step_s"]["mean"],
            "error": line["error"]["step_s"]["mean"],
            "at_speed": (line["corrected"] or line["error"])["step_s"]["mean"],
            "alpha_beta": line["wrong_models"]["alpha_beta"]["step_s"]["mean"],
        }
        for line in answer["algorithms"]
    ]
    mean, corrected = (fmean(abs(row[key]) for row in rows) for key in ("error", "at_speed"))
    cells = {
        "algorithm": "algorithm", "predicted, ms": "predicted_s*1e3:.2f", "measured, ms": "measured_s*1e3:.2f",
        "error": "error:+.1%", "at the speed of the run": "at_speed:+.1%", "α–β model": "alpha_beta:+.1%",
    }  # fmt: skip
    shown = table(f"Step times on two hosts under {options.launcher}", rows, cells)
    means = {"mean_error": mean, "mean_at_speed": corrected}
    notes = [f"mean error {mean:.1%}; at the speed of the run {corrected:.1%}", f"calibration: {verdict}"]
    return Answer({"launcher": options.launcher, "verdict": verdict, "rows": rows, **means}, [shown, *notes])


def compared(runs: Sequence[Path], machine: Path, out: Path) -> Mapping[str, Any]:
    """Returns the answer of `paceline compare --measured` for these runs."""
    named = [text for run in runs for text in ("--measured", str(run))]
    command = [*COMMAND, "compare", *named, "--machine", str(machine), "--out", str(out), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(done.stdout + done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def body(options: argparse.Namespace) -> Answer:
    return trained(options) if options.predict is None else predicted(options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launcher", choices=LAUNCHERS, default="torchrun", help="what starts the processes")
    parser.add_argument("--methods", type=names_of(METHODS), help="names with commas between them")
    parser.add_argument("--per-host", type=int, default=2, help="workers on each host (better 1 with --predict)")
    parser.add_argument("--samples", type=int, default=1280, help="budget of each method, all workers together")
    parser.add_argument("--predict", type=float, metavar="S", help="predict step times from a calibration of S seconds")
    parser.add_argument("--model", default="digits-cnn", help="with --predict; the data set is digits")
    parser.add_argument("--batch", type=int, default=64, help="with --predict: samples of a gradient")
    parser.add_argument("--steps", type=int, default=300, help="with --predict: steps of each worker")
    parser.add_argument("--keep", type=Path, help="with --predict: a new folder for the machine file and the records")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
