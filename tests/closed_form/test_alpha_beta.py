"""The α–β model beside its formula: the step time on measured hosts, between hosts, and the time to a target."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.reports.comparison.predict import (
    WRONG_MODELS,
    AlphaBeta,
    line_through,
    mean_gradient_s,
    model_of,
    predict,
    with_times,
)
from paceline.scenarios import Scenario, load
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import EmulationCosts, JoinedHosts, MeasuredCosts, Profile
from paceline.topologies.packet_lines import lines_of
from tests.made_up import run

NBYTES = 4810 * 4
"""bytes of a gradient of digits-mlp"""
MACHINE = Profile(
    inside={("AllReduce", 4): ((10_000, 0.003), (20_000, 0.005)), ("Reduce", 4): ((10_000, 0.4),)},
    messages=((0, 0.001), (10_000, 0.002)),
    update_s=0.0007,
    load_s=0.3,
    late_s=0.3,
)
"""α = 1 ms and β = 0.2 ms per kB for all-reduces, β = 0.1 ms per kB for messages; the model ignores the rest"""
BUSY = GradientTimes(batch=32, busy=((1, 0.01), (2, 0.012)), factors=(0.5, 1.5))


def scenario(*changes: str, algorithm: str = "sync-sgd", nodes: int = 1) -> Scenario:
    device = "{name: even, overhead: 4 ms, per_sample: 0.5 ms}"
    cluster = f"cluster.nodes=[{{device: {device}, workers_per_node: {4 // nodes}, count: {nodes}}}]"
    return load("quickstart", [cluster, *changes], algorithms=[algorithm])


def model(costs: MeasuredCosts, asked: Scenario) -> AlphaBeta:
    (plan,) = asked.plans(paced=asked.train.pace == "device")
    return model_of(plan, costs)


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "agd", "easgd"])
def test_the_step_of_every_method_is_gradient_update_and_one_all_reduce(algorithm: str) -> None:
    found = model(MeasuredCosts(MACHINE), scenario(algorithm=algorithm))
    assert found.step_s == pytest.approx(0.020 + 0.0007 + 0.001 + NBYTES * 0.2e-6)


def test_the_gradient_is_the_mean_of_the_devices_without_their_spread() -> None:
    (plan,) = load("quickstart", algorithms=["sync-sgd"]).plans(paced=True)  # two of 20 ms, two of 40 ms, both varying
    assert mean_gradient_s(plan, MACHINE) == pytest.approx(0.030)


def test_a_gradient_that_is_not_paced_is_that_of_busy_ranks_and_shared_cores() -> None:
    """Four ranks on two cores: twice the time of two ranks, one on each core."""
    machine = Profile(inside=MACHINE.inside, gradients=(BUSY,), cores=2)
    assert model(MeasuredCosts(machine), scenario("train.pace=none")).gradient_s == pytest.approx(2 * 0.012)


def test_a_single_worker_has_no_all_reduce() -> None:
    alone = scenario("cluster.nodes[0].workers_per_node=1")
    assert model(MeasuredCosts(Profile()), alone).step_s == pytest.approx(0.020)


def test_without_measured_all_reduces_a_ring_of_messages_is_assumed() -> None:
    """Six messages, each of a quarter of the bytes."""
    found = model(MeasuredCosts(Profile(messages=MACHINE.messages)), scenario())
    assert found.all_reduce_s == pytest.approx(6 * 0.001 + 6 / 4 * NBYTES * 0.1e-6)


def test_all_reduces_of_fewer_ranks_are_scaled_as_in_the_simulation() -> None:
    machine = Profile(inside={("AllReduce", 2): ((NBYTES, 0.003),)})
    assert model(MeasuredCosts(machine), scenario()).all_reduce_s == pytest.approx(0.003 * (2 * 3 / 4) / (2 * 1 / 2))
    assert model(MeasuredCosts(machine), scenario()).all_reduce_s == machine.collective_s(
        "AllReduce", 4, NBYTES, inside=True
    )


def test_neither_all_reduces_nor_messages_is_an_error() -> None:
    with pytest.raises(KeyError, match="neither all-reduces nor messages"):
        model(MeasuredCosts(Profile()), scenario())


def test_hosts_joined_by_links_take_a_ring_over_the_slowest() -> None:
    asked = scenario("train.pace=none", "cluster.network={topology: star, link: eth-10g}", nodes=2)
    (plan,) = asked.plans()
    line = lines_of(plan.cluster, [me.rank for me in plan.job.team], "shortest", 1.0).slowest
    assert line is not None
    machine = Profile(inside=MACHINE.inside, gradients=(BUSY,), cores=2)
    found = model(MeasuredCosts(machine, joined=JoinedHosts()), asked)
    assert found.gradient_s == pytest.approx(0.012), "two ranks on each host"
    # a route has two links, from a host to the switch and from there
    assert found.all_reduce_s == pytest.approx(6 * 2 * line.latency_s + 6 / 4 * NBYTES / line.bytes_per_s)


def test_an_emulated_network_adds_its_rate_to_the_measured_all_reduce() -> None:
    network = "cluster.network={topology: star, link: {latency: 2 ms, bandwidth: 20 Mbit/s}}"
    asked = scenario(network, "train.network=emulated", nodes=2)
    emulation = EmulationCosts(message_s=0.01, all_reduce_s=0.03, few_bytes=64, packet_bytes=1500)
    found = model(MeasuredCosts(MACHINE, emulation), asked)
    assert found.beta_s == pytest.approx(6 / 4 / 2.5e6)
    assert found.all_reduce_s == pytest.approx(0.03 + (NBYTES - 64) * 6 / 4 / 2.5e6)


def test_the_line_is_that_of_least_squares() -> None:
    points = ((0, 1.0), (1, 3.0), (2, 2.0))  # slope 1/2, mean 2 at 1
    assert line_through(points) == pytest.approx((1.5, 0.5))


def test_neither_parameter_is_negative() -> None:
    assert line_through(((1, 0.0), (2, 2.0)))[0] == 0.0
    assert line_through(((1, 2.0), (2, 0.0))) == pytest.approx((1.0, 0.0))


def test_the_time_to_a_target_is_the_simulated_steps_times_the_step() -> None:
    summary = run("sync-sgd").summary  # two workers of 10 samples a step; the target is reached at 20 samples
    assert summary["samples_to_accuracy"] == 20.0
    made = with_times(summary, AlphaBeta(gradient_s=2.0, update_s=0.5, alpha_s=0.5, beta_s=0.0, nbytes=8), 2, 20)
    assert made["time_to_accuracy_s"] == pytest.approx(3.0)
    assert made["wall_s"] == pytest.approx(4 * 3.0)
    assert made["time_fraction"] == pytest.approx(
        {"compute": 2 / 3, "load": 0.0, "update": 1 / 6, "communication": 1 / 6, "wait": 0.0}
    )
    assert made["staleness"]["mean"] is None and made["staleness"]["histogram"] == []


def test_a_prediction_has_every_simpler_model_beside_it() -> None:
    asked = scenario("stop={samples: 512}", algorithm="async-sgd")
    machine = Profile(inside=MACHINE.inside, messages=MACHINE.messages, inside_messages=MACHINE.messages)
    found = predict(asked, MeasuredCosts(machine))
    assert list(found.wrong) == list(WRONG_MODELS)
    (ours,), (line,) = found.simulated, found.wrong["alpha_beta"]
    step_s: Any = line.summary["step_s"]["mean"]
    assert step_s == pytest.approx(0.020 + 0.001 + NBYTES * 0.2e-6) and step_s != ours.summary["step_s"]["mean"]
    assert line.summary["updates"] == ours.summary["updates"]


def test_without_spread_measured_gradients_take_their_mean_time() -> None:
    machine = Profile(inside=MACHINE.inside, gradients=(BUSY,), cores=8)
    even = predict(scenario("train.pace=none", "stop={samples: 512}"), MeasuredCosts(machine)).wrong["no_spread"][0]
    spans = even.tables.spans.query("activity == 'compute'")
    assert (spans["end_s"] - spans["start_s"]).to_numpy() == pytest.approx(0.01 / (0.01 / 0.012))
