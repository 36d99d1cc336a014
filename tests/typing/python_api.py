"""The Python API as a user writes it, with the types of its results. `make types` checks this file; nothing runs it."""

from __future__ import annotations

from typing import Literal, assert_type

import pandas as pd
from matplotlib.figure import Figure

import paceline
from paceline import (
    CheckResult,
    Cluster,
    ComparisonResult,
    Device,
    Evaluate,
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
from paceline.scenarios.sections.runs import Checkpoints


def built() -> Scenario:
    """Sections as objects, names, numbers and mappings; a key is held in SI units."""
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
        train=Train(pace="none", checkpoint=Checkpoints(every="1 epoch")),
        evaluate=Evaluate(every="2 s"),
    )


def held() -> None:
    """The values of a section, whatever they were given as."""
    link = Link(latency="20 us", bandwidth=1.25e9)
    assert_type(link.latency, float)
    assert_type(link.download, float | None)
    nodes = Nodes(device={"name": "gpu", "overhead": "4 ms", "per_sample": "1 ms"}, count=None, price_per_hour=3)
    assert_type(nodes.count, int)
    assert_type(nodes.price_per_hour, float | None)
    cluster = Cluster(nodes=[nodes, {"device": "v100-sxm2"}], network={"link": "eth-10g"})
    assert_type(cluster.network, Network)
    assert_type(cluster.nodes, tuple[Nodes, ...] | int | None)
    assert_type(cluster.network.link.latency, float)
    assert_type(Train(pace="none").pace, Literal["device", "none"])


def mistaken() -> None:
    """Mistakes that a type checker must report: an unused `type: ignore` is an error of mypy."""
    Nodes(device="v100-sxm2", number=2)  # type: ignore[call-arg]
    Nodes(device="v100-sxm2", count="two")  # type: ignore[arg-type]
    Nodes(price_per_hour=[3])  # type: ignore[arg-type]
    Device(overhead="4 ms")  # type: ignore[call-arg]
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
