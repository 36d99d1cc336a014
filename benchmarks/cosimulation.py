"""Measures the cost of training in virtual time, relative to computing the same gradients in plain torch.

    python benchmarks/cosimulation.py            # prints a table
    python benchmarks/cosimulation.py --json
    python benchmarks/cosimulation.py --workers 64 --models mlp-64-64-10 --repeats 5

For each number of workers three things are timed in turn, in one process and with one thread. The median of the repeats
counts:

* whole: a simulated run that trains, from its first event to its last, without evaluation;
* overhead: the same run with `learning: none`, so the simulator without any arithmetic;
* bare: the same number of gradients with the same batch size, one at a time, in plain torch. Each uses the module of
  its worker and the examples of its own batch, computes the loss, and calls backward.

`ratio` is whole / bare, and `learning_ratio` is (whole - overhead) / bare. One short run before the first turn pays for
what torch loads at first use (about one second per process). Every turn builds new learners.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

from paceline.algorithms.core.job import Budget, Job, Learner
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.workloads.batches.examples import Examples
from paceline.workloads.learners.timing_only import TimingOnly
from paceline.workloads.learners.torch_building import uniform
from paceline.workloads.learners.torch_learner import TorchLearner
from training_speed.models import CLASSES, cnn, made_up, mlp

clock = time.perf_counter
BATCH = 32
ALGORITHMS = ("async-sgd", "sync-sgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and the amount of work to time."""

    name: str
    module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """shape of a sample"""
    workers: tuple[int, ...]
    gradients: int
    """number of gradients in one turn"""
    num_samples: int

    def examples(self) -> Examples:
        """Returns random examples."""
        return made_up(self.shape, self.num_samples)


SMALL = Case(
    name="mlp-64-64-10",
    module=partial(mlp, 64, 64, CLASSES),
    shape=(64,),
    workers=(16, 64, 256, 1024),
    gradients=32_768,
    num_samples=65_536,
)
"""small enough for gradients to be computed together"""
MUCH_WORK = Case(name="cnn-3x32x32", module=cnn, shape=(3, 32, 32), workers=(16, 64), gradients=192, num_samples=4096)
"""too much work per gradient to be computed together: 100 million operations in a forward pass"""
MANY_WEIGHTS = Case(
    name="mlp-784-1024-512-10",
    module=partial(mlp, 784, 1024, 512, CLASSES),
    shape=(784,),
    workers=(16,),
    gradients=192,
    num_samples=4096,
)
"""too many weights to be computed together: 1.3 million, with little work for each"""
CASES = {case.name: case for case in (SMALL, MUCH_WORK, MANY_WEIGHTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The times of one gradient for one number of workers."""

    algorithm: str
    model: str
    workers: int
    whole_us: float
    overhead_us: float
    bare_us: float

    @property
    def ratio(self) -> float:
        return self.whole_us / self.bare_us

    @property
    def learning_ratio(self) -> float:
        return (self.whole_us - self.overhead_us) / self.bare_us

    def record(self) -> dict[str, float | int | str]:
        return {**asdict(self), "ratio": self.ratio, "learning_ratio": self.learning_ratio}


def plan_of(algorithm: str, workers: int, learner: Learner, gradients: int) -> Plan:
    """Returns a plan with this many gradients on a star of machines with jitter."""
    device = {"name": "made-up", "overhead": "4 ms", "per_sample": "0.5 ms"}
    scenario = load(
        {
            "name": "cosimulation",
            "algorithms": [algorithm],
            "workload": {"model": "digits-mlp", "learning": "none", "batch_per_worker": 1},
            "cluster": {
                "nodes": [{"device": device, "count": workers, "workers_per_node": 1}],
                "network": {"topology": "star", "link": "eth-10g"},
                "step_time": {"distribution": "lognorm", "sigma": 0.1},
            },
            "evaluate": {"every": "1000000 s"},
            "stop": {"updates": 1},
        }
    )
    (plan,) = scenario.plans()
    budget = Budget(samples=gradients * BATCH)
    return replace(plan, job=Job.of(plan.job.method, plan.cluster.placement, learner, batch=BATCH, budget=budget))


def simulated_us(algorithm: str, workers: int, learner: Learner, gradients: int) -> float:
    """Returns the wall time of a simulated run divided by its number of gradients."""
    plan = plan_of(algorithm, workers, learner, gradients)
    network, timing, schedule = ClusterNetwork(plan.cluster), PlanTiming(plan), plan.schedule()
    start_s = clock()
    with collected_seldom():
        trace = simulate_job(plan.job, timing, network, schedule)
    wall_s = clock() - start_s
    return wall_s / sum(span.activity == "compute" for span in trace.spans) * 1e6


def bare_us(case: Case, workers: int) -> float:
    """Returns the wall time of one gradient in plain torch."""
    train = case.examples().train
    modules = [case.module() for _ in range(workers)]
    order = torch.randperm(case.num_samples, generator=torch.Generator().manual_seed(1)).view(-1, BATCH)
    start_s = clock()
    for number in range(case.gradients):
        module, places = modules[number % workers], order[number % len(order)]
        module.zero_grad()
        loss = F.cross_entropy(module(train.inputs[places]), train.labels[places])
        loss.backward()
        loss.item()
    return (clock() - start_s) / case.gradients * 1e6


def measured(case: Case, algorithm: str, workers: int, repeats: int) -> Row:
    """Returns the medians over the repeats."""

    def training() -> Learner:
        module = case.module()
        return TorchLearner(module, case.examples(), uniform(module, 1), seed=1)

    def none() -> Learner:
        return TimingOnly(training().layout, case.num_samples)

    turns: dict[str, Callable[[], float]] = {
        "whole_us": lambda: simulated_us(algorithm, workers, training(), case.gradients),
        "overhead_us": lambda: simulated_us(algorithm, workers, none(), case.gradients),
        "bare_us": lambda: bare_us(case, workers),
    }
    found = [{name: turn() for name, turn in turns.items()} for _ in range(repeats)]
    return Row(
        algorithm=algorithm,
        model=case.name,
        workers=workers,
        **{name: statistics.median(one[name] for one in found) for name in turns},
    )


def rows(cases: list[Case], only: list[int] | None, repeats: int) -> Iterator[Row]:
    """Yields a row for each case, algorithm and number of workers."""
    measured(replace(SMALL, gradients=512), "async-sgd", 64, 1)  # pays for what torch loads at first use
    for case in cases:
        for algorithm in ALGORITHMS:
            for workers in case.workers:
                if only is None or workers in only:
                    yield measured(case, algorithm, workers, repeats)


def table(found: list[Row]) -> Table:
    """Renders the rows."""
    shown = Table(title="Time of one gradient, in µs")
    for name in ("model", "algorithm", "workers", "whole", "overhead", "bare", "ratio", "learning ratio"):
        shown.add_column(name, justify="left" if name in {"model", "algorithm"} else "right")
    for row in found:
        numbers = [row.whole_us, row.overhead_us, row.bare_us]
        ratios = [row.ratio, row.learning_ratio]
        texts = [*(f"{number:.0f}" for number in numbers), *(f"{number:.2f}" for number in ratios)]
        shown.add_row(row.model, row.algorithm, str(row.workers), *texts)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--workers", nargs="+", type=int, help="only these numbers of workers")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = list(rows([CASES[name] for name in given.models], given.workers, given.repeats))
    if given.json:
        print(json.dumps({"rows": [row.record() for row in found]}))
    else:
        Console().print(table(found))


if __name__ == "__main__":
    main()
