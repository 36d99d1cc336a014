"""Intervals of step times against closed forms: what part of a step follows the gradient's interval."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from paceline.records import Run
from paceline.records.prediction_interval import StepFactors
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.run import perform, reusable_network
from paceline.simulator.runs.step_interval import step_factors
from paceline.topologies.catalogue.device import Interval
from paceline.topologies.closed_forms import ring_all_reduce_s
from tests.thorough import extra

LOW, HIGH = 0.8, 1.25
INTERVAL = Interval(LOW, HIGH, 0.8, "predictions of this test")
GRADIENT_S = 0.01
STAR = """
name: star
algorithms: [sync-sgd]
workload: {model: lenet, learning: none, batch_per_worker: 10}
cluster:
  nodes: [{device: {name: even, overhead: 0 ms, per_sample: 1 ms}, count: 4}]
  network: {topology: star, link: {latency: 50 us, bandwidth: 10 Gbit/s}, allreduce_algorithm: ring}
stop: {updates: 10}
"""


def plan_of(algorithm: str, *changes: str, devices: tuple[dict[str, Any], ...] = ({},)) -> Plan:
    """Returns a plan whose node n has device n modulo their number, with an interval unless it has another one."""
    (plan,) = load(STAR, list(changes), algorithms=[algorithm]).plans()
    nodes = tuple(
        replace(node, device=replace(node.device, **{"interval": INTERVAL, **devices[number % len(devices)]}))
        for number, node in enumerate(plan.cluster.nodes)
    )
    return replace(plan, cluster=replace(plan.cluster, nodes=nodes))


def factors_of(plan: Plan, *, message_cost: bool = True) -> tuple[StepFactors | None, float]:
    """Returns the factors on the mean step time, and the mean step time."""
    carry_out = partial(perform, message_cost=message_cost)
    trace = carry_out(plan, plan.schedule())
    run = Run.of(trace, job=plan.job, kind="simulated", scenario={}, name="star")
    step_s = run.summary["step_s"]["mean"]
    assert step_s is not None
    return step_factors(plan, carry_out, run), step_s


def known(found: StepFactors | None) -> tuple[float, float]:
    assert found is not None
    return found.low, found.high


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "hbs-sgd", "gossip", "layerwise-sgd"])
@pytest.mark.parametrize("updates", [3, extra(300)])
def test_without_communication_a_step_has_the_gradients_interval(algorithm: str, updates: int) -> None:
    found, _ = factors_of(plan_of(algorithm, f"stop.updates={updates}"), message_cost=False)
    assert known(found) == pytest.approx((LOW, HIGH))


@pytest.mark.parametrize("updates", [3, 300])
def test_communication_that_nothing_hides_stays_as_it_is(updates: int) -> None:
    """t = gradient + all-reduce, of which only the gradient is uncertain."""
    found, step_s = factors_of(plan_of("sync-sgd", f"stop.updates={updates}"))
    rest_s = step_s - GRADIENT_S
    assert rest_s > 0.1 * step_s
    expected = [(end * GRADIENT_S + rest_s) / step_s for end in (LOW, HIGH)]
    assert known(found) == pytest.approx(expected)


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "easgd"])
def test_communication_only_has_no_width(algorithm: str) -> None:
    found, step_s = factors_of(plan_of(algorithm, devices=({"per_sample_s": 0.0},)))
    assert step_s > 0
    assert known(found) == (1.0, 1.0)


@pytest.mark.parametrize("updates", [400, extra(2500)])
def test_a_server_has_the_interval_of_whole_runs(updates: int) -> None:
    """The same as two whole runs with scaled gradients; the share of the gradients in a step would be far off."""
    plan = plan_of("async-sgd", f"stop.updates={updates}", "cluster.network.link.bandwidth=1 Gbit/s")
    found, step_s = factors_of(plan)
    for factor, expected in zip((LOW, HIGH), known(found), strict=True):
        scaled = plan_of(
            "async-sgd",
            f"stop.updates={updates}",
            "cluster.network.link.bandwidth=1 Gbit/s",
            devices=({"interval": None, "per_sample_s": 0.001 * factor},),
        )
        assert factors_of(scaled)[1] / step_s == pytest.approx(expected, rel=0.02)


def test_hidden_communication_appears_where_gradients_are_shorter() -> None:
    """t = max(gradient, all-reduce): the low end stops at the all-reduce."""
    bits_per_s = 2.3e9
    plan = plan_of("agd", "stop.updates=100", f"cluster.network.link.bandwidth={bits_per_s / 1e9} Gbit/s")
    found, step_s = factors_of(plan)
    all_reduce_s = ring_all_reduce_s(4, plan.job.learner.layout.size * 4, 50e-6, 8 / bits_per_s)
    assert LOW * GRADIENT_S < all_reduce_s < GRADIENT_S
    assert step_s == pytest.approx(GRADIENT_S, rel=0.01)
    assert known(found) == pytest.approx((all_reduce_s / GRADIENT_S, HIGH), rel=0.01)


def test_a_given_device_keeps_its_time() -> None:
    """t = max(gradients): 10 ms of the catalogue and 11 ms given."""
    given = {"interval": None, "per_sample_s": 0.0011}
    found, _ = factors_of(plan_of("sync-sgd", devices=({}, given)), message_cost=False)
    assert known(found) == pytest.approx((1.0, HIGH * 10 / 11))


def test_without_a_device_of_the_catalogue_there_is_no_interval() -> None:
    found, _ = factors_of(plan_of("sync-sgd", devices=({"interval": None},)))
    assert found is None


def test_a_worker_with_one_step_has_no_interval() -> None:
    plan = plan_of("sync-sgd", "stop.updates=1")
    run = Run.of(perform(plan, plan.schedule()), job=plan.job, kind="simulated", scenario={}, name="star")
    assert step_factors(plan, perform, run) is None


@pytest.mark.parametrize("algorithm", ["sync-sgd", "layerwise-sgd", "easgd"])
def test_a_network_that_served_a_run_serves_another_alike(algorithm: str) -> None:
    plan = plan_of(algorithm)
    network = reusable_network(plan)
    runs = [perform(plan, Schedule(every=1.0), network=one) for one in (None, network, network)]
    assert runs[0].spans == runs[1].spans == runs[2].spans
