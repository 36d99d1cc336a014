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
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

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
    handling = receiving_of(plan, network) if costs.receiving else NO_HANDLING
    nodes, supply, never = NodeMemory(network), supply_of(plan), Schedule(every=math.inf)
    memory = nodes if costs.memory else None
    processors = processors_of(plan) if costs.interference else None
    hosts = HostCosts(
        supply=supply,
        handling=handling,
        cells=memory,
        staging=nodes if costs.staging else None,
        processors=processors,
    )
    trace = simulate_job(plan.job, timing, network, never, hosts=hosts)
    spans = assemble(trace, num_samples=plan.job.learner.num_samples).spans
    mean = step_times(steps_of(spans, plan.cluster.workers, trace.wall_s))["mean"]
    assert mean is not None
    return mean


def rows(name: str, algorithms: Sequence[str], library: str, report: Callable[[str], object]) -> list[dict[str, Any]]:
    """Returns a row for each algorithm of a scenario: the step time in each case."""
    found, given = [], ["workload.learning=none", f"cluster.network.library={library}"]
    for algorithm in algorithms:
        report(f"{name}, {algorithm}")
        scenario = load(name, given, algorithms=[algorithm])
        workers = scenario.plans()[0].cluster.workers
        samples = STEPS * workers * scenario.workload.batch_per_worker
        (plan,) = load(name, [*given, f"stop={{samples: {samples}}}"], algorithms=[algorithm]).plans()
        found.append(
            {"scenario": name, "algorithm": algorithm}
            | {"step_s": {case: step_s(plan, costs) for case, costs in CASES.items()}}
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="names of shipped scenarios")
    parser.add_argument("--algorithms", help="instead of those that show the costs best")
    parser.add_argument("--library", default="plain", help="the library of all scenarios: plain, nccl, mpi or gloo")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    console = Console(stderr=True)
    found = []
    for name in options.scenarios.split(","):
        algorithms = options.algorithms.split(",") if options.algorithms else SCENARIOS.get(name, ("sync-sgd",))
        found += rows(name, algorithms, options.library, console.print)
    if options.json:
        print(json.dumps({"rows": found}))
        return
    table = Table("scenario", "algorithm", "step, ms", *list(CASES)[1:])
    for row in found:
        whole, *others = row["step_s"].values()
        changes = (f"{100 * (other / whole - 1):+.1f} %" for other in others)
        table.add_row(row["scenario"], row["algorithm"], f"{1e3 * whole:.4g}", *changes)
    Console().print(table)


if __name__ == "__main__":
    main()
