"""What each cost of the simulated cluster contributes: the step time with one cost left out at a time.

    python benchmarks/ablation.py
    python benchmarks/ablation.py --scenarios dgx1-p100 --algorithms sync-sgd,easgd --json

Costs: charges (updates, averages, copies and a server's work), receiving (copies and the order of receives),
reductions inside collectives, the sharing of a node's memory by accesses to cells, interference of communication with
gradients, which needs a library that uses the devices (`--library nccl`), and staging (copies of batches to devices,
and of gradients and weights where the library moves them through the host). The weights are not trained.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, replace
from typing import Any

from common.harness import Answer, run_command, say, table
from paceline import load
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.values import Rank
from paceline.records.summary import step_times, steps_of
from paceline.records.tables import assemble
from paceline.records.trace import Schedule
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.host_costs import NO_HANDLING, HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.node_memory import NodeMemory
from paceline.simulator.runs.cost_model import cluster_network, processors_of, receiving_of, supply_of
from paceline.simulator.runs.plan_timing import PlanTiming

SCENARIOS = {
    "dgx1-p100": ("sync-sgd", "async-sgd", "easgd", "async-easgd", "hogwild-sgd"),
    "cori-knl": ("sync-sgd", "async-sgd"),
    "fat-tree-128": ("sync-sgd", "async-sgd"),
}
STEPS = 20
"""gradients of each worker"""


class FreeCharges(PlanTiming):
    """The plan's times; charges take none, apart from accesses to cells."""

    def work_s(self, rank: Rank, op: Charge) -> float:
        return super().work_s(rank, op) if op.kind == "access" else 0.0


@dataclass(frozen=True)
class Costs:
    """The costs that are simulated."""

    charges: bool = True
    receiving: bool = True
    reductions: bool = True
    memory: bool = True
    interference: bool = True
    staging: bool = True


CASES = {
    "all costs": Costs(),
    "without charges": Costs(charges=False),
    "without receiving": Costs(receiving=False),
    "without reductions": Costs(reductions=False),
    "without shared memory": Costs(memory=False),
    "without interference": Costs(interference=False),
    "without staging": Costs(staging=False),
    "without all": Costs(
        charges=False, receiving=False, reductions=False, memory=False, interference=False, staging=False
    ),
}


def no_reduction(*_: Any) -> float:
    """A reduction that takes no time."""
    return 0.0


def step_s(plan: Plan, costs: Costs) -> float:
    """Returns the mean step time of a plan with these costs, in seconds."""
    if not costs.staging:
        plan = replace(plan, cluster=replace(plan.cluster, staging=None))
    network = cluster_network(plan)
    if not costs.reductions:
        network.fabric.reduce_cost = no_reduction  # type: ignore[method-assign]
    timing = PlanTiming(plan) if costs.charges else FreeCharges(plan)
    nodes = NodeMemory(network)
    hosts = HostCosts(
        supply=supply_of(plan),
        handling=receiving_of(plan, network) if costs.receiving else NO_HANDLING,
        cells=nodes if costs.memory else None,
        staging=nodes if costs.staging else None,
        processors=processors_of(plan) if costs.interference else None,
    )
    trace = simulate_job(plan.job, timing, network, Schedule(every=math.inf), hosts=hosts)
    spans = assemble(trace, num_samples=plan.job.learner.num_samples).spans
    mean = step_times(steps_of(spans, plan.cluster.workers, trace.wall_s))["mean"]
    assert mean is not None
    return mean


def steps_of_cases(name: str, algorithm: str, library: str) -> dict[str, float]:
    """Returns the step time of an algorithm of a scenario in each case, in seconds."""
    say(f"{name}, {algorithm}")
    changes = ["workload.learning=none", f"cluster.network.library={library}"]
    scenario = load(name, changes, algorithms=[algorithm])
    workers = scenario.plans()[0].cluster.workers
    samples = STEPS * workers * scenario.workload.batch_per_worker
    (plan,) = load(name, [*changes, f"stop={{samples: {samples}}}"], algorithms=[algorithm]).plans()
    return {case: step_s(plan, costs) for case, costs in CASES.items()}


def body(options: argparse.Namespace) -> Answer:
    rows = [
        {"scenario": name, "algorithm": algorithm, "step_s": steps_of_cases(name, algorithm, options.library)}
        for name in options.scenarios.split(",")
        for algorithm in (options.algorithms.split(",") if options.algorithms else SCENARIOS.get(name, ("sync-sgd",)))
    ]
    changes = [
        {**row, **{case: seconds / row["step_s"]["all costs"] - 1 for case, seconds in row["step_s"].items()}}
        | {"whole_s": row["step_s"]["all costs"]}
        for row in rows
    ]
    cells = {"scenario": "scenario", "algorithm": "algorithm", "step, ms": "whole_s*1e3:.4g"}
    cells |= {case: f"{case}:+.1%" for case in list(CASES)[1:]}
    return Answer({"rows": rows}, [table("Step time with one cost left out", changes, cells)])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="names of shipped scenarios")
    parser.add_argument("--algorithms", help="instead of those that show the costs best")
    parser.add_argument("--library", default="plain", help="the library of all scenarios: plain, nccl, mpi or gloo")


if __name__ == "__main__":
    sys.exit(run_command(__doc__, body, add_options))
