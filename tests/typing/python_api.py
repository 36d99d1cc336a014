"""The Python API as a user writes it, with the types of its results. `make types` checks this file; nothing runs it."""

from __future__ import annotations

from typing import assert_type

import pandas as pd
from matplotlib.figure import Figure

import paceline
from paceline import (
    CheckResult,
    Cluster,
    ComparisonResult,
    Device,
    Link,
    MeasuredRuns,
    Network,
    Nodes,
    PlanResult,
    Run,
    Scenario,
    SimulatedRuns,
    Stop,
    SweepResult,
    Target,
    Train,
    Workload,
)
from paceline.algorithms import METHODS


def built() -> Scenario:
    """Sections as builders, names, numbers and mappings."""
    device = Device(name="gpu", overhead="4 ms", per_sample=0.0005)
    return Scenario(
        name="typed",
        cluster=Cluster(
            nodes=[Nodes(device=device, count=2), Nodes(device="v100-sxm2"), {"device": "v100-sxm2", "count": 2}],
            network=Network(link=Link(latency=20e-6, bandwidth="10 Gbit/s"), allreduce_algorithm="ring"),
        ),
        workload=Workload(model="digits-mlp", batch_per_worker=16, dtype="float64"),
        algorithms=["sync-sgd", METHODS["agd"], METHODS["ssp"](), {"name": "easgd"}],
        stop=Stop(epochs=1, seconds=30),
        train=Train(pace="none"),
    )


def mistaken() -> None:
    """Mistakes that a type checker must report: an unused `type: ignore` is an error of mypy."""
    Nodes(device="v100-sxm2", number=2)  # type: ignore[call-arg]
    Nodes(device="v100-sxm2", count="two")  # type: ignore[arg-type]
    Train(pace="slow")  # type: ignore[arg-type]
    Link(rate="1 GB/s")  # type: ignore[call-arg]
    Scenario(cluster="dgx1-p100", workload={"model": "vgg16"}, algorithms=["sync-sgd"])  # type: ignore[call-arg]


def results(scenario: Scenario) -> None:
    """The result of each function."""
    runs = assert_type(paceline.simulate(scenario), SimulatedRuns)
    assert_type(runs[0], Run)
    assert_type(runs["agd"], SimulatedRuns)
    assert_type(runs[:2], SimulatedRuns)
    assert_type([run.seed for run in runs], list[int])
    assert_type(runs.frame("updates"), pd.DataFrame)
    assert_type(runs.plot(x="samples"), Figure)
    assert_type(paceline.train(scenario), MeasuredRuns)
    comparison = assert_type(paceline.compare(scenario), ComparisonResult)
    assert_type(comparison.measured, MeasuredRuns)
    assert_type(paceline.sweep(scenario, {"stop.epochs": [1, 2]}), SweepResult)
    assert_type(paceline.check([METHODS["agd"], "ssp"]), CheckResult)
    plan = assert_type(
        paceline.plan(scenario, target=Target(loss=0.1), budget=200, minimise=["time", "cost"]), PlanResult
    )
    assert_type(plan.scenario(), Scenario)
    assert_type(paceline.__version__, str)
