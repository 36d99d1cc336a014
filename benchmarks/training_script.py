"""Records a training script by `paceline.torch.hook`, predicts it on two and on four ranks, and measures both.

    python benchmarks/training_script.py                 # two models; five minutes
    python benchmarks/training_script.py --rate 12.5e6   # with links of 100 Mbit/s between the hosts

Needs root, because hosts are network namespaces of this machine (`emulated_network/launchers.py`), each with half of
its cores. The script (`torch_comparison/ddp_script.py`) is DistributedDataParallel with gloo. On one host with two
ranks, it trains without the hook, with it, and again without it. The recording predicts a step on that host, and on two
such hosts with two ranks each, which are measured then.

What the hook costs cannot be seen in these steps, which vary by ten times as much. Its callbacks do the same for a
parameter of any size, so their time is measured in the steps of as many parameters of one number each.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

import paceline.torch
from common.harness import Answer, names_of, run_command, table
from emulated_network.launchers import by_torchrun, named, performed, start
from paceline import simulate
from paceline.algorithms.core.errors import RunFailed
from paceline.backend.emulation.emulated_hosts import Hosts, hosts
from paceline.scenarios import load

MODELS = ("cnn", "transformer")
RANKS = 2
"""of each host"""
SCRIPT = Path(__file__).parent / "torch_comparison/ddp_script.py"
LATENCY = "50 us"
"""of a link between the hosts: about that of two namespaces behind a bridge; provenance: docs/results/emulation.md"""


def rows_of(model: str, made: Hosts, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns a row for one host and one for two."""
    recording, out = folder / model, folder / f"{model}.json"
    script = [sys.executable, str(SCRIPT), model, str(options.steps), str(out)]
    with named(made), by_torchrun(made, RANKS, [*script, str(recording)], count=1) as begun:
        performed(begun)
    alone = json.loads(out.read_text())
    if not (recording / "scenario.yaml").exists():
        raise RunFailed(f"{SCRIPT.name} recorded nothing")
    with start("torchrun", made, RANKS, script) as begun:
        performed(begun)
    together = json.loads(out.read_text())
    cost_s = cost_of_hook_s(alone["parameters"], options.pairs)
    link = json.dumps({"bandwidth": f"{options.rate} B/s", "latency": LATENCY})
    two = ["cluster.nodes[0].count=2", f"cluster.network.link={link}"]
    return [
        {"model": model, "ranks": RANKS, "predicted_s": predicted_s(recording, []), "measured_s": alone["step_s"],
         "hook": cost_s / alone["step_s"]},
        {"model": model, "ranks": 2 * RANKS, "predicted_s": predicted_s(recording, two),
         "measured_s": together["step_s"], "hook": None},
    ]  # fmt: skip


def cost_of_hook_s(parameters: int, pairs: int) -> float:
    """Returns the seconds that the callbacks take in a step of so many parameters.

    Args:
        parameters: of the model.
        pairs: measured steps with and without the callbacks, in turn; each follows a step of the same kind.
    """
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(parameters)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    recording, inputs = paceline.torch.hook(model, optimizer, steps=4 * pairs, warm_up=1), torch.ones(1, 1)

    def second_step_s() -> float:
        for _ in range(2):
            start = time.perf_counter()
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()
        return time.perf_counter() - start

    costs = []
    for _ in range(pairs):
        plain_s = second_step_s()
        recording.attach()
        costs.append(second_step_s() - plain_s)
        recording.detach()
    return median(costs)


def predicted_s(recording: Path, changes: list[str]) -> float:
    """Returns the mean seconds of a step as the recording predicts it."""
    (run,) = simulate(load(str(recording / "scenario.yaml"), changes))
    mean_s = run.summary["step_s"]["mean"]
    assert mean_s is not None
    return mean_s


def body(options: argparse.Namespace) -> Answer:
    with tempfile.TemporaryDirectory() as name, hosts(2, bytes_per_s=options.rate) as made:
        rows = [row for model in options.models for row in rows_of(model, made, Path(name), options)]
    for row in rows:
        row["error"] = row["predicted_s"] / row["measured_s"] - 1
    cells = {
        "model": "model", "ranks": "ranks", "predicted, ms": "predicted_s*1e3:.1f",
        "measured, ms": "measured_s*1e3:.1f", "error": "error:+.1%",
        "cost of the hook": lambda row: "" if row["hook"] is None else f"{row['hook']:.2%}",
    }  # fmt: skip
    return Answer({"rows": rows}, [table("A training script, recorded on one host of two ranks", rows, cells)])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=names_of(MODELS), default=list(MODELS), help="names with commas between them")
    parser.add_argument("--steps", type=int, default=100, help="steps of each part")
    parser.add_argument("--pairs", type=int, default=2000, help="steps with and without the hook, for its cost")
    parser.add_argument("--rate", type=float, default=125e6, help="bytes/s of the links between the hosts")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
