"""The shipped scenarios: every method of each runs, and the predictions are plausible."""

import math
from typing import Any

import pytest

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.rules import Lars
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.scenarios import SHIPPED
from paceline.scenarios.sections.clusters import Cluster
from tests.thorough import sampled

SHORT = {
    "dgx1-p100": ["stop.samples=4096"],
    "cori-knl": ["stop.samples=2048", "cluster.nodes=8"],
    "fat-tree-1024": ["stop.samples=2048", "cluster.nodes[0].count=4"],
    "fat-tree-128": ["stop.samples=2048", "cluster.nodes[0].count=4"],
}
"""a few gradients of each worker; fewer machines in very large clusters"""
PAPERS = {
    "sc17-lenet-gpu": ["stop.samples=2048"],
    "sc17-alexnet-gpu": ["stop.samples=1024"],
    "sc17-knl-weak": ["stop.samples=4096", "cluster.nodes=4"],
    "sc17-knl-groups": ["stop.updates=3"],
    "softsync-p775": ["stop.epochs=0.5"],
    "dbs-mnist": ["stop.epochs=0.5"],
    "dbs-cifar10": ["stop.epochs=0.5"],
    "fashion-lenet": ["stop.samples=512"],
    "pnnl-dgx1": ["stop.updates=3"],
    "pnnl-sandy-bridge": ["stop.updates=3", "cluster.nodes[0].count=4", "cluster.network.leaves=2"],
    "icmla17-cifar10": [
        "stop.samples=4096",
        "cluster.nodes=2",
        "extrapolate.stand_in.epochs=0.1",
        "extrapolate.stand_in.learning_rates=[0.1]",
    ],
}
"""changes for a short horizon of the scenarios of `paceline reproduce`, and of one with real images"""
WIDE_AREA = {
    "wan-diloco": ["stop.seconds=20 s"],
    "two-datacentres": ["stop.samples=32768"],
    "home-gpus": ["stop.samples=32768"],
}
"""scenarios of sites that are far apart: at least one round of every method; wan-diloco has all methods of home-gpus"""
EXTRAPOLATED = [
    "seeds=1",
    "stop.samples=2560",
    "cluster.nodes=2",
    "extrapolate.stand_in.batch_per_worker=2",
    "extrapolate.stand_in.epochs=1",
    "extrapolate.stand_in.learning_rates=[0.1]",
]
"""a scenario in which no algorithm reaches its target"""


def summaries(name: str) -> dict[str, dict[str, Any]]:
    return {run.algorithm: dict(run.summary) for run in paceline.simulate(paceline.load(name, SHORT[name]))}


def test_all_but_the_first_scenario_are_run_here() -> None:
    assert set(SHIPPED) == {
        "quickstart",
        "resnet50-extrapolated",
        "hsgd-tianhe2",
        "fat-tree-100k",
        "transformer",
        "halos-regions",
        "learner-failures",
        *SHORT,
        *PAPERS,
        *WIDE_AREA,
    }


@pytest.mark.parametrize("name", sampled(SHORT, lambda name: name != "fat-tree-128"))
def test_every_method_of_a_shipped_scenario_runs(name: str) -> None:
    found = summaries(name)
    quickstart = {plan.name for plan in paceline.load("quickstart").plans()}
    assert set(found) == quickstart | {"layerwise-sgd"}
    for summary in found.values():
        assert summary["samples"] > 0
        assert sum(summary["time_fraction"].values()) == pytest.approx(1.0)
    # overlapped communication is no slower than waiting, and strict turns are slowest of all
    rate = {algorithm: summary["samples_per_s"] for algorithm, summary in found.items()}
    assert rate["layerwise-sgd"] >= rate["sync-sgd"]
    assert min(rate, key=rate.__getitem__) == "easgd"


@pytest.mark.parametrize("name", sampled(WIDE_AREA, lambda name: name != "home-gpus"))
def test_rare_averages_are_faster_over_slow_lines_and_send_less(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each method runs; diloco sends a vector of weights per period instead of one per step.

    Intervals, which tests of their own check, would have every run repeated three times.
    """
    monkeypatch.setattr("paceline.simulator.runs.run.step_factors", lambda *_: None)
    scenario = paceline.load(name, WIDE_AREA[name])
    found: dict[str, dict[str, Any]] = {run.algorithm: dict(run.summary) for run in paceline.simulate(scenario)}
    assert set(found) == {plan.name for plan in scenario.plans()}
    per_step = {algorithm: one["bytes_sent"] / one["steps"] for algorithm, one in found.items()}
    assert found["diloco"]["samples_per_s"] > found["sync-sgd"]["samples_per_s"]
    assert per_step["diloco"] < per_step["sync-sgd"] / 8


def test_a_server_in_every_region_brings_more_samples_into_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow links carry the changes of regions, and not those of workers; a synchronous round waits for the slowest."""
    monkeypatch.setattr("paceline.simulator.runs.run.step_factors", lambda *_: None)
    runs = paceline.simulate(paceline.load("halos-regions", ["stop.seconds=400 s"]))
    found: dict[str, dict[str, Any]] = {run.algorithm: dict(run.summary) for run in runs}
    rate = {name: summary["samples_per_s"] for name, summary in found.items()}
    assert rate["halos"] > 1.2 * rate["async-diloco"] > 2 * rate["diloco"]
    step_s = {name: summary["step_s"]["mean"] for name, summary in found.items()}
    assert step_s["halos"] < step_s["async-diloco"] / 1.5


def test_learners_without_a_common_clock_use_more_of_the_time_between_failures() -> None:
    """A synchronous step needs all eight learners; a learner of decoupled-diloco only itself."""
    runs = paceline.simulate(paceline.load("learner-failures", ["stop.seconds=2000 s"]))
    used = {run.algorithm: run.summary["time_fraction"]["compute"] for run in runs}
    up = math.exp(-27.5 / 168)
    assert used["sync-sgd"] == pytest.approx(up**8, abs=0.08)
    assert used["decoupled-diloco"] == pytest.approx(up, abs=0.04)


def test_a_hundred_thousand_workers() -> None:
    (run,) = paceline.simulate(paceline.load("fat-tree-100k", ["cluster.nodes[0].count=4"]))
    assert run.summary["updates"] == 8
    (plan,) = paceline.load("fat-tree-100k").plans()
    assert plan.job.workers == 100_000 and plan.job.team[-1].node.ranks[0] == 99_992


@pytest.mark.parametrize("name", PAPERS)
def test_every_method_of_a_papers_scenario_runs(name: str) -> None:
    scenario = paceline.load(name, PAPERS[name])
    runs = paceline.simulate(scenario)
    assert [run.algorithm for run in runs] == [plan.name for plan in scenario.plans()]
    for run in runs:
        assert run.summary["samples"] > 0 and run.summary["samples_per_s"]


def test_what_a_shipped_scenario_extrapolates_is_labelled() -> None:
    runs = paceline.simulate(paceline.load("resnet50-extrapolated", EXTRAPOLATED))
    assert [run.algorithm for run in runs] == ["sequential-sgd", "sync-sgd", "async-sgd", "hbs-sgd"]
    for run in runs:
        block = run.summary.get("extrapolated")
        assert block is not None and block["label"] == "extrapolated"
        assert block["evidence"]["reference_batch"] == 16
        assert run.summary["final_accuracy"] is run.summary["time_to_accuracy_s"] is None


def test_hsgd_runs_whole() -> None:
    """Two levels, LARS and reading ahead, on two nodes."""
    changes = ["cluster.nodes[0].count=2", "workload.batch_per_worker=8", "stop.updates=4", "stop.samples=null"]
    (run,) = paceline.simulate(paceline.load("hsgd-tianhe2", changes))
    assert (run.algorithm, run.summary["samples"]) == ("hsgd", 4 * 2 * 3 * 8)
    assert run.summary["samples_per_s"] is not None
    assert run.summary["final_loss"] is None


def test_hsgd_takes_the_published_steps() -> None:
    """AlexNet at 8K, NVIDIA/caffe of LARS's author: from 1 in 600 steps up to (1 − t / 15,600)² of 10, at last nothing.
    The batch is the multiple of the workers that is nearest to 8K."""
    scenario = paceline.load("hsgd-tianhe2")
    (method,) = scenario.algorithms
    assert isinstance(method, Hsgd)
    law = method.schedule
    assert law is not None
    rates = [law.learning_rate(method.learning_rate, step) for step in (0, 300, 600, 7800, 15_600)]
    assert rates == pytest.approx([1.0, 5.5, 10 * (1 - 600 / 15_600) ** 2, 2.5, 0.0])
    assert (method.momentum, method.weight_decay, method.lars) == (0.9, 0.0005, Lars())
    assert abs(scenario.workload.batch_per_worker * scenario.cluster.workers - 8192) <= scenario.cluster.workers / 2


def test_hsgd_has_the_network_and_the_processors_of_tianhe2() -> None:
    """Its nodes are hosts, since processes of one host share memory; the rest is the preset."""
    scenario = paceline.load("hsgd-tianhe2")
    ours, preset = scenario.cluster, Cluster(system="tianhe2", nodes=32)
    assert ours.workers == preset.workers
    assert ours.devices(scenario.workload)[0][1] == preset.devices(scenario.workload)[0][1]
    switches = [
        {(one.ends, one.link, one.count) for one in graph.connections if set(one.ends) <= set(graph.of_kind("switch"))}
        for graph in (ours.layout.graph, preset.layout.graph)
    ]
    assert switches[0] == switches[1] != set()


def test_a_parameter_server_makes_gradients_as_stale_as_there_are_other_workers() -> None:
    (run,) = paceline.simulate(paceline.load("dgx1-p100", ["stop.samples=51200"], algorithms=["async-sgd"]))
    assert 6.5 < float(run.summary["staleness"]["mean"] or 0.0) <= 7.0


def test_workers_compute_for_a_device_step_whatever_they_wait_for() -> None:
    scenario = paceline.load("cori-knl", SHORT["cori-knl"], algorithms=["sync-sgd"])
    (run,) = paceline.simulate(scenario, jitter=False)
    computed_s = float(run.summary["time_fraction"]["compute"] or 0.0) * float(run.summary["step_s"]["mean"] or 0.0)
    assert computed_s == pytest.approx(scenario.plans()[0].cluster.nodes[0].device.compute_s(64), rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "cluster.network.link=ib-hdr",
            "cluster.network.link: found 'ib-hdr', expected nothing: dgx1-p100 has its own",
        ),
        ("cluster.network.topology=ring", "cluster.network.topology: found 'ring', expected nothing"),
        ("cluster.network.hosts=9", "cluster.network.parameters: found {'hosts': 9}, expected nothing"),
    ],
)
def test_what_a_system_would_pass_over_is_refused(change: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        paceline.load("dgx1-p100", [change])
    assert message in str(caught.value)


def test_a_system_takes_other_rules_and_comes_back_from_its_record() -> None:
    scenario = paceline.load("cori-knl", ["cluster.network.routing=valiant", "cluster.nodes=8"])
    assert paceline.load(scenario.dump()) == scenario


def test_a_problem_too_large_for_any_memory_is_refused() -> None:
    changes = ["workload.model=quadratic", "workload.learning=quadratic", "workload.dataset=null"]
    with pytest.raises(InputError, match=r"dimensions: found 100000000000, expected at most 10000000"):
        paceline.load("quickstart", [*changes, "workload.options.dimensions=100000000000"])
