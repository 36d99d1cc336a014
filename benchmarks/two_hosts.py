"""Runs every method on two hosts, started by torchrun, mpirun or srun in two network namespaces joined by a shaped
link.

    python benchmarks/two_hosts.py                       # all methods, two workers a host: two minutes on two cores
    python benchmarks/two_hosts.py --per-host 1 --samples 320 --json
    python benchmarks/two_hosts.py --launcher srun       # by a Slurm installation of its own
    python benchmarks/two_hosts.py --launcher mpirun --methods sync-sgd,async-sgd

Needs root, because the hosts are network namespaces of this machine (`backend/emulation/emulated_hosts.py`), and the
launcher (`emulated_network/launchers.py`): a torchrun on each host, or one mpirun or srun for both. Each rank of a host
is a process. One start runs all methods that can use two nodes, one after the other. Methods whose workers share memory
or belong to one chip need all workers on one node: a second start runs them on the first host, and the processes of the
second host take no part.

Shown for each method: the steps of the weights' owner, the final loss, the hosts of its ranks, the uncertainty between
the clocks of the two hosts, and for deterministic methods whether the weights equal those of ranks forked on this
machine, bit for bit. Collectives use gloo everywhere (`train.shared_memory: false`), whose order of addition depends
only on the ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from emulated_network.launchers import LAUNCHERS, launched
from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.values import Rank
from paceline.backend.emulation.emulated_hosts import Hosts, hosts
from paceline.backend.training import train
from paceline.records import Run
from paceline.records.store import as_array, read_run

RATE = 125e6
"""bytes/s of the link of each host"""
WIDTH = 120
"""columns of a table that is not shown in a terminal, so that no name is truncated"""


def scenario(methods: Sequence[str], nodes: int, workers_per_node: int, samples: int) -> dict[str, Any]:
    """Returns a scenario with a small network on this many nodes, trained by these methods without pacing."""
    device = {"name": "cpu", "overhead": "1 ms", "per_sample": "0.1 ms"}
    return {
        "name": "two-hosts",
        "algorithms": list(methods),
        "hyperparameters": {"learning_rate": 0.05},
        "workload": {"model": "digits-mlp", "batch_per_worker": 16},
        "cluster": {
            "nodes": [{"device": device, "count": nodes, "workers_per_node": workers_per_node}],
            "network": {"topology": "star", "link": "eth-10g"},
        },
        "train": {"pace": "none", "shared_memory": False},
        "stop": {"samples": samples},
        "seed": 1,
    }


def suits(name: str, nodes: int, workers_per_node: int) -> bool:
    """Tells whether a method can be placed like this."""
    ranks = iter(range(nodes * workers_per_node))
    return not find(name)().problems([[Rank(next(ranks)) for _ in range(workers_per_node)] for _ in range(nodes)])


def starts(methods: Sequence[str], per_host: int, samples: int) -> Iterator[dict[str, Any]]:
    """Returns the scenarios that together contain these methods."""
    if spread := [name for name in methods if suits(name, 2, per_host)]:
        yield scenario(spread, 2, per_host, samples)
    if together := [name for name in methods if name not in spread]:
        yield scenario(together, 1, per_host, samples)


def trained(launcher: str, made: Hosts, what: Mapping[str, Any], processes: int, out: Path) -> list[Run]:
    """Trains a scenario on two hosts and returns its runs as stored.

    Raises:
        RunFailed: The launcher failed. The message is its output.
    """
    path = out.parent / "two-hosts.json"  # JSON is valid YAML
    path.write_text(json.dumps(what))
    launched(launcher, made, processes, ["train", str(path), "--out", str(out)])
    return [read_run(folder) for folder in sorted(out.iterdir()) if (folder / "run.json").exists()]


def row(run: Run, forked: Run | None) -> dict[str, Any]:
    """Returns the row of a method."""
    seats = run.machine["seats"]
    clocks = run.machine["clocks"]
    return {
        "algorithm": run.algorithm,
        "updates": run.summary["updates"],
        "loss": run.summary["final_loss"],
        "hosts": [[one["rank"] for one in seats if one["host"] == host] for host in (0, 1)],
        "clock_error_s": max(one["error_s"] for one in clocks) if clocks else None,
        "same_as_forked": None if forked is None else bool(np.array_equal(_weights(run), _weights(forked))),
    }


def _weights(run: Run) -> Any:
    return as_array(run.weights)


def rows(launcher: str, methods: Sequence[str], per_host: int, samples: int) -> Iterator[dict[str, Any]]:
    """Returns the rows of all methods, start by start."""
    for what in starts(methods, per_host, samples):
        processes = per_host + any(find(name).has_server for name in what["algorithms"])
        with tempfile.TemporaryDirectory() as folder, hosts(2, bytes_per_s=RATE) as made:
            out = Path(folder) / "runs"
            out.mkdir()
            found = {run.algorithm: run for run in trained(launcher, made, what, processes, out)}
        alike = [name for name in what["algorithms"] if find(name)().deterministic]
        forked = {run.algorithm: run for run in train({**what, "algorithms": alike})}
        for name in what["algorithms"]:
            yield row(found[name], forked.get(name))


def shown(found: Sequence[Mapping[str, Any]]) -> Table:
    """Renders the rows."""
    table = Table(box=None)
    for title in ("algorithm", "updates", "loss", "ranks of host 0", "of host 1", "clocks ± µs", "as forked"):
        table.add_column(title, justify="left" if title == "algorithm" else "right", no_wrap=True)
    for one in found:
        error_s, same = one["clock_error_s"], one["same_as_forked"]
        table.add_row(
            one["algorithm"],
            str(one["updates"]),
            "–" if one["loss"] is None else f"{one['loss']:.3f}",
            *(",".join(map(str, ranks)) or "–" for ranks in one["hosts"]),
            "–" if error_s is None else f"{error_s * 1e6:.0f}",
            {None: "–", True: "same bits", False: "differs"}[same],
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", choices=LAUNCHERS, default="torchrun", help="what starts the processes")
    parser.add_argument("--methods", default=",".join(METHODS), help="names with commas between them; default: all")
    parser.add_argument("--per-host", type=int, default=2, help="workers on each host")
    parser.add_argument("--samples", type=int, default=1280, help="budget of each method, all workers together")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    asked = parser.parse_args()
    try:
        found = list(rows(asked.launcher, asked.methods.split(","), asked.per_host, asked.samples))
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except PacelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if asked.json:
        print(json.dumps({"rows": found}))
    else:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(shown(found))
    return 0 if all(one["same_as_forked"] in (None, True) for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
