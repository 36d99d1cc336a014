"""Predicts unpaced runs on two hosts, started by torchrun, srun or mpirun in two network namespaces joined by a shaped
link, and measures them.

    python benchmarks/predicted_hosts.py                                # torchrun, one worker on each host
    python benchmarks/predicted_hosts.py --launcher srun --json
    python benchmarks/predicted_hosts.py --methods sync-sgd,easgd --batch 256 --seconds 60

Needs what `two_hosts.py` needs: root, and the launcher. `paceline calibrate` measures both hosts in the launcher's
processes, `paceline train` runs every method there, and `paceline compare --measured` predicts from the machine file.

Shown for each method: the mean step time, predicted and measured, the error of the prediction, and that of the α–β
model. Below are the mean error and the verdict of the calibration.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from emulated_network.host_predictions import Predictions, predictions
from emulated_network.launchers import LAUNCHERS
from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.backend.emulation.emulated_hosts import hosts

RATE = 125e6
"""bytes/s of the link of each host, as in `two_hosts.py`"""
METHODS = "sync-sgd,layerwise-sgd,async-sgd,easgd"
"""two that wait for each other, one of them with overlap, and two with a server"""
WIDTH = 120
"""columns of a table that is not shown in a terminal"""


def scenario(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns the scenario: two hosts, not paced."""
    device = {"name": "cpu", "overhead": "1 ms", "per_sample": "0.1 ms"}
    return {
        "name": "predicted-hosts",
        "algorithms": asked.methods.split(","),
        "hyperparameters": {"learning_rate": 0.02},
        "workload": {"model": asked.model, "dataset": "digits", "batch_per_worker": asked.batch},
        "cluster": {
            "nodes": [{"device": device, "count": 2, "workers_per_node": asked.per_host}],
            "network": {"topology": "star", "link": "eth-1g"},
        },
        "train": {"pace": "none"},
        "stop": {"samples": asked.steps * asked.batch * 2 * asked.per_host},
        "evaluate": {"every": "1000 epochs"},
        "seed": 1,
    }


def shown(found: Predictions) -> Table:
    """Renders the rows."""
    table = Table(box=None, title=f"step times on two hosts under {found.launcher}", title_justify="left")
    for title in ("algorithm", "predicted, ms", "measured, ms", "error, %", "α–β model, %"):
        table.add_column(title, justify="left" if title == "algorithm" else "right", no_wrap=True)
    for row in found.rows:
        times = (f"{1e3 * seconds:.2f}" for seconds in (row.predicted_s, row.measured_s))
        table.add_row(row.algorithm, *times, f"{100 * row.error:+.1f}", f"{100 * row.alpha_beta:+.1f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", choices=LAUNCHERS, default="torchrun", help="what starts the processes")
    parser.add_argument("--methods", default=METHODS, help="names with commas between them")
    parser.add_argument("--per-host", type=int, default=1, help="workers on each host")
    parser.add_argument("--model", default="digits-cnn", help="the model; the data set is digits")
    parser.add_argument("--batch", type=int, default=64, help="samples of a gradient")
    parser.add_argument("--steps", type=int, default=300, help="steps of each worker")
    parser.add_argument("--seconds", type=float, default=40.0, help="no further round of the calibration begins later")
    parser.add_argument("--keep", type=Path, help="a new folder for the machine file and the records")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    asked = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as temporary, hosts(2, bytes_per_s=RATE) as made:
            folder = Path(temporary) if asked.keep is None else asked.keep.absolute()
            folder.mkdir(parents=True, exist_ok=asked.keep is None)
            processes = asked.per_host + 1  # the probe of messages has a server
            found = predictions(asked.launcher, made, scenario(asked), processes, folder, asked.seconds)
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except PacelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if asked.json:
        print(json.dumps({**asdict(found), "mean_error": found.mean_error}))
        return 0
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(shown(found))
    console.print(f"mean error {100 * found.mean_error:.1f} %; other programs used {100 * found.other_load:.0f} %")
    console.print(f"calibration: {found.verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
