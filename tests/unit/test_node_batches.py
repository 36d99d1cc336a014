"""`batch_per_worker` of single kinds of nodes: what a scenario makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.records.figures import significant
from paceline.reports.planning.search_space import OWN_NODES, SearchChoice, offered_nodes, scenario_of
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.grid import grid
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.runs.run import simulate


def device(name: str, per_sample: str) -> dict[str, Any]:
    return {"name": name, "overhead": "1 ms", "per_sample": per_sample}


def mixed(slow: int | None = None, fast: int | None = None, **more: Any) -> Scenario:
    """Two slow workers and two of twice their speed."""
    return load(
        {
            "name": "mixed",
            "cluster": {
                "nodes": [
                    {"device": device("slow", "0.4 ms"), "workers_per_node": 2, "batch_per_worker": slow},
                    {"device": device("fast", "0.2 ms"), "count": 2, "batch_per_worker": fast},
                ],
                "network": {"topology": "star", "link": "eth-10g"},
            },
            "workload": {"model": "digits-mlp", "learning": "none", "batch_per_worker": 24},
            "algorithms": ["sync-sgd"],
            "stop": {"updates": 10},
            **more,
        }
    )


def test_the_batches_follow_the_nodes_and_their_counts() -> None:
    assert mixed(16).plans()[0].job.batches == (16, 16, 24, 24)
    assert mixed(16, 32).plans()[0].job.batches == (16, 16, 32, 32)
    assert mixed().plans()[0].job.batches == (24, 24, 24, 24)


def test_each_device_takes_the_time_of_its_own_batch_and_a_step_that_of_the_slowest() -> None:
    (unequal,) = mixed(16, 32).plans()
    times = [unequal.compute_s(me.rank, 0, unequal.job.batches[me.rank]) for me in unequal.job.team]
    assert times == pytest.approx([7.4e-3, 7.4e-3, 7.4e-3, 7.4e-3])
    (before,), (after,) = ([dict[str, Any](run.summary) for run in simulate(one)] for one in (mixed(), mixed(16, 32)))
    assert before["updates"] == after["updates"] == 10
    assert before["samples"] == after["samples"] == 960
    gained = before["step_s"]["mean"] - after["step_s"]["mean"]
    assert significant(gained) == significant(10.6e-3 - 7.4e-3)
    assert after["samples_per_s"] == pytest.approx(96 / after["step_s"]["mean"])


def test_epochs_count_the_samples_of_all_batches() -> None:
    (plan,) = mixed(16, 32, stop={"epochs": 1}).plans()
    assert plan.job.limit == -(-plan.job.learner.num_samples // 96)


def test_a_batch_of_nodes_is_an_axis_of_sweeps() -> None:
    points = grid(mixed(16), ["cluster.nodes[0].batch_per_worker=8,16"])
    assert [point.scenario.plans()[0].job.batches[0] for point in points] == [8, 16]


def test_strong_scaling_says_that_it_does_not_change_batches_of_nodes() -> None:
    kind = {"device": device("slow", "0.4 ms"), "workers_per_node": 2, "batch_per_worker": 8}
    scenario = mixed(cluster={"nodes": [kind], "network": {"topology": "star", "link": "eth-10g"}})
    with pytest.raises(ScenarioError, match=r"found cluster\.nodes\[0\]\.batch_per_worker, which does not follow"):
        grid(scenario, ["gpus=2,4"], scaling="strong")


def test_batches_together_do_not_exceed_the_samples() -> None:
    with pytest.raises(ScenarioError, match="on average, so that 4 workers together"):
        mixed(1000, 20)


def test_a_plan_keeps_the_ratio_of_the_batches() -> None:
    given = mixed(16, 32)
    choice = SearchChoice(method="sync-sgd", nodes=OWN_NODES, workers=4, batch_per_worker=48, hyperparameters={})
    made = load(scenario_of(given.dump(), offered_nodes(given), choice, None, [1]))
    assert made.plans()[0].job.batches == (32, 32, 64, 64)


def test_a_batch_that_does_not_fit_names_its_node() -> None:
    nodes = [{"device": "v100-sxm2"}, {"device": "v100-sxm2", "batch_per_worker": 4000}]
    workload = {"model": "resnet50", "learning": "none", "batch_per_worker": 32}
    with pytest.raises(ScenarioError, match=r"cluster\.nodes\[1\]\.batch_per_worker: .*4000"):
        mixed(cluster={"nodes": nodes}, workload=workload)
