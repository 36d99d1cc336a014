"""Scenarios that name devices of the catalogue."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.device_model import device
from paceline.workloads import MODELS


def scenario(cluster: Any, *, model: str = "resnet50", batch: int = 32) -> dict[str, Any]:
    workload = {"model": model, "learning": "none", "batch_per_worker": batch}
    stop = {"updates": 3}
    return {"name": "x", "cluster": cluster, "workload": workload, "algorithms": ["sync-sgd"], "stop": stop}


def plan_of(*arguments: Any, **options: Any) -> Plan:
    return load(scenario(*arguments, **options)).plans()[0]


def test_a_named_device_takes_its_time_from_the_model_and_the_batch() -> None:
    plan = plan_of({"nodes": [{"device": "p100", "count": 2}, {"device": "k80"}]})
    for rank, name in enumerate(["p100-sxm2", "p100-sxm2", "k80"]):
        made = device(named(name), MODELS["resnet50"], samples=32)
        assert plan.cluster.device_of(rank).compute_s(32) == made.compute_s(32)  # type: ignore[arg-type]
    assert plan.cluster.device_of(0).compute_s(32) == pytest.approx(32 / 195, rel=0.2)  # type: ignore[arg-type]


def test_layers_take_their_shares_from_the_model() -> None:
    """In AlexNet the convolutions have 6 % of the parameters and most of the work."""
    forward, backward = plan_of({"nodes": [{"device": "p100"}]}, model="alexnet", batch=128).layer_shares()
    assert sum(forward) + sum(backward) == pytest.approx(1)
    assert sum(forward[:5]) + sum(backward[:5]) > 0.6


@pytest.mark.parametrize("cluster", ["dgx1-p100", "cori-knl", {"nodes": [{"device": "xeon-e5-2670-x2", "count": 2}]}])
def test_systems_and_sockets_run(cluster: Any) -> None:
    which = cluster if isinstance(cluster, dict) else {"system": cluster, "nodes": 2}
    (run,) = simulate(scenario(which, model="googlenet", batch=8))
    assert (run.summary["step_s"]["mean"] or 0) > 0


def test_a_group_of_a_chips_cores() -> None:
    plan = plan_of({"nodes": [{"node": "knl-node", "settings": {"parts": 4}}]}, model="alexnet", batch=64)
    assert plan.cluster.workers == 4
    quarter, whole = plan.cluster.device_of(0), device(named("knl-7250"), MODELS["alexnet"], samples=256)  # type: ignore[arg-type]
    assert whole.compute_s(256) > quarter.compute_s(64) > whole.compute_s(256) / 4


@pytest.mark.parametrize(
    ("cluster", "options", "words"),
    [
        (
            {"nodes": [{"device": "dgx-a100"}]},
            {},
            "cluster.nodes[0].device: found 'dgx-a100', expected a device; dgx-a100 is a system with nodes and network",
        ),
        ({"nodes": [{"device": "p101"}]}, {}, "cluster.nodes[0].device: unknown device 'p101' (did you mean p100?)"),
        ({"nodes": [{"device": 3}]}, {}, "expected a device of `paceline list devices`"),
        ({"nodes": [{"device": "k20"}]}, {"batch": 256}, "workload: resnet50 with 256 samples needs"),
        ({"nodes": [{"device": "k20"}]}, {"model": "quadratic"}, "workload: model 'quadratic': found no layer table"),
        ({"nodes": [{"device": "k80/2"}]}, {}, "expected a many-core chip"),
    ],
)
def test_what_a_device_cannot_do_is_told(cluster: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(scenario(cluster, **options))
    assert words in str(caught.value)


def test_the_moments_of_adam_have_to_fit_into_memory() -> None:
    """VGG-16 has 138 million weights: with the second moment, a P100 holds 180 instead of 187 images beside them."""
    made = scenario({"nodes": [{"device": "p100"}]}, model="vgg16", batch=184)
    load(made)
    with pytest.raises(ScenarioError) as caught:
        load({**made, "algorithms": ["sync-sgd", {"name": "ddp", "optimizer": "adamw"}]})
    assert "algorithms[1]: its optimizer keeps 2 numbers for each weight; vgg16 with 184" in str(caught.value)
    assert "the largest batch that fits is 180" in str(caught.value)


def test_a_measured_profile_is_a_curve_over_batches() -> None:
    """A GPU that small batches do not fill: the step takes 100 ms up to 16 samples."""
    points = {4: "100 ms", 16: "100 ms", 32: "164.1 ms", 64: "292.2 ms"}
    profile = [{"batch": batch, "time": time} for batch, time in points.items()]
    made = plan_of({"nodes": [{"device": {"name": "mine", "profile": profile}}]}).cluster.device_of(0)  # type: ignore[arg-type]
    assert [made.compute_s(batch) for batch in (4, 8, 16, 32, 64)] == pytest.approx([0.1, 0.1, 0.1, 0.1641, 0.2922])
    assert made.compute_s(48) == pytest.approx((0.1641 + 0.2922) / 2)


def test_a_method_that_changes_batches_follows_the_curve() -> None:
    """`dbs-sgd` divides 64 samples so that both nodes take the same time.

    The first takes 20 ms for 32 samples and then 1.25 ms for each, the second 2 ms for each:
    20 + 1.25 (x − 32) = 2 (64 − x) at x = 45.5, which is 36.9 ms. The line nearest to the first node's points would
    give 32.5 ms.
    """
    bent = [{"batch": 8, "time": "16 ms"}, {"batch": 32, "time": "20 ms"}, {"batch": 64, "time": "60 ms"}]
    straight = [{"batch": 8, "time": "16 ms"}, {"batch": 64, "time": "128 ms"}]
    nodes = [{"device": {"name": name, "profile": points}} for name, points in (("bent", bent), ("straight", straight))]
    changed = scenario({"nodes": nodes}, model="digits-mlp") | {"algorithms": ["dbs-sgd"], "stop": {"updates": 200}}
    (run,) = simulate(changed)
    assert run.summary["step_s"]["p50"] == pytest.approx(0.0369, rel=0.04)


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"batch": 0, "time": "1 ms"}, "profile[0].batch: found 0"),
        ({"batch": 8, "time": "0 s"}, "profile[0].time: found"),
        ({"batch": 8}, "profile[0].time: missing"),
    ],
)
def test_a_wrong_point_is_told(point: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of({"nodes": [{"device": {"name": "mine", "profile": [point]}}]})
    assert words in str(caught.value)


def test_a_device_is_described_in_one_way() -> None:
    both = {"name": "mine", "overhead": "1 ms", "profile": [{"batch": 1, "time": "2 ms"}]}
    with pytest.raises(ScenarioError, match=r"device.profile: found beside overhead or per_sample; expected one"):
        plan_of({"nodes": [{"device": both}]})
