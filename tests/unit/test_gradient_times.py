"""Measured times of gradients: from the record of a probe to the speed of shared cores and to a prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.gradient_costs import (
    FEWEST,
    MOST,
    WARM_UP,
    LaunchGradients,
    Overlap,
    available_cores,
    gradient_tasks,
    gradients_of,
    pooled,
    steps_of,
)
from paceline.backend.calibration.probes import GRADIENTS, PAUSES_S, ProbeGradients, phases_of
from paceline.backend.calibration.rounds import widest
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.shared_processor import Speeds
from paceline.simulator.network.interference import Demand, Processors
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.cost_model import host_law
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.gradient_times import GradientTimes, SharedCores, shared_cores, slices
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile
from paceline.topologies.faults.gradient_variation import gradient_factor
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of

UNPACED = {
    "name": "unpaced",
    "algorithms": ["sync-sgd"],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8, "learning": "none"},
    "cluster": {
        "nodes": [{"device": {"name": "any", "overhead": "1 ms", "per_sample": "0 ms"}, "workers_per_node": 2}]
    },
    "train": {"pace": "none"},
    "stop": {"samples": 160},
}


def test_the_probe_computes_on_more_and_more_ranks() -> None:
    job = job_of(ProbeGradients(cores=2), 3, steps=2 * len(phases_of(3, 3, 2)))
    trace = simulate_job(job, FixedTiming(compute=lambda rank, _: 1.0 + rank), NoCost(), Schedule(1))
    times = gradients_of(job, trace)
    found = times.by_busy
    kept = GRADIENTS - WARM_UP - 1
    assert {pause_s: len(found) for pause_s, found in times.paused.items()} == dict.fromkeys(PAUSES_S, 4 * kept)
    assert {count: len(times) for count, times in found.items()} == {1: 2 * kept, 2: 4 * kept, 3: 6 * kept}
    assert set(found[1]) == {1.0} and set(found[3]) == {1.0, 2.0, 3.0}
    assert times.layers_s == pytest.approx((2 * (2 / 6 + 1 / 3), 2 * 1 / 3))  # of 2 s in the mean; forward first


def test_launches_are_pooled_by_the_median_of_their_means() -> None:
    launches = [{1: [0.1, 0.3], 2: [0.4]}, {1: [0.4], 2: [0.5]}, {1: [9.0], 2: [0.6]}]
    assert pooled(32, [LaunchGradients(times) for times in launches]).busy == ((1, 0.4), (2, 0.5))


def test_layer_wise_gradients_have_a_factor_and_shares() -> None:
    """Layers of 0.5 s (with 0.2 s forward) and 0.3 s, 0.8 s in all, against a gradient of 0.4 s."""
    found = pooled(8, [LaunchGradients({1: [0.4]}, layers_s=(0.5, 0.3))], forward=0.25)
    assert found.layered == pytest.approx(2.0)
    assert found.forward == pytest.approx(0.25)
    assert found.backward == pytest.approx((0.375, 0.375))
    assert sum(map(sum, found.layer_shares())) == pytest.approx(2.0)


@pytest.mark.parametrize(("gradient_s", "all_reduce_s"), [(2.0, 0.25), (1.0, 3.0)])
def test_the_probe_finds_the_speeds_of_overlapping_activities(gradient_s: float, all_reduce_s: float) -> None:
    """The probe runs in a simulation whose speeds are known."""

    def law(compute: float, communicate: float) -> Speeds:
        return Speeds(0.8, 0.4) if compute and communicate else Speeds(1.0, 1.0)

    hosts = HostCosts(processors=Processors(lambda rank: Demand(rank, 1.0, 1.0, law=law)))
    job, network = (
        job_of(ProbeGradients(cores=2), 2, steps=len(phases_of(2, 2, 2))),
        fixed_costs(collective_s=all_reduce_s),
    )
    found = gradients_of(job, simulate_job(job, FixedTiming(compute=gradient_s), network, Schedule(1), hosts=hosts))
    assert found.overlap is not None
    assert found.overlap.alone_s == pytest.approx(all_reduce_s)
    assert found.overlap.speeds(gradient_s) == pytest.approx((0.8, 0.4))
    times = pooled(8, [found])
    assert (times.beside, times.overlap) == pytest.approx((0.8, 0.4))


def test_the_widest_interval_is_that_of_a_median_of_few_launches() -> None:
    """Means of 1.0, 1.1 and 1.2 s: 1.25 · 4.303 · 0.1 s / √3 over 1.1 s; a plain number, which processes exchange."""
    (task,) = gradient_tasks(load(UNPACED))
    found = widest({task: [LaunchGradients({1: [mean_s]}) for mean_s in (1.0, 1.1, 1.2)]})
    assert type(found) is float
    assert found == pytest.approx(1.25 * 4.303 * 0.1 / math.sqrt(3) / 1.1, rel=1e-3)


def test_gradients_after_pauses_are_compared_with_those_of_as_many_busy_ranks() -> None:
    cores = available_cores()
    busy = {count: [0.1 * count] for count in range(1, cores + 2)}
    (found,) = pooled(8, [LaunchGradients(busy, paused={0.01: [0.1 * cores + 0.03]})]).pauses
    assert found == pytest.approx((0.01, 0.03))


def test_a_gradient_takes_longer_after_a_pause() -> None:
    """Steps of 40 ms with an all-reduce of 10 ms between gradients, after which a gradient takes 5 ms longer."""
    times = GradientTimes(batch=8, busy=((1, 0.04),), pauses=((0.01, 0.005), (0.1, 0.02)))
    machine = Profile(gradients=(times,), cores=2, inside={("AllReduce", 2): ((0, 0.01),)})
    (plan,) = load(UNPACED).plans()
    spans = perform(plan, Schedule(every=math.inf), machine=MeasuredCosts(machine)).spans
    seconds = [span.end_s - span.start_s for span in spans if span.activity == "compute" and span.rank == Rank(0)]
    assert seconds == pytest.approx([0.04] + [0.045] * (len(seconds) - 1))


def test_a_launch_is_short_on_a_slow_network() -> None:
    """Gradients of 2 ms fill 1.5 s in 62 steps, of which 60 are made; all-reduces of 20 ms fill 5 s in 10 steps."""
    gradients = {1: [0.002]}
    assert steps_of(LaunchGradients(gradients, overlap=Overlap(1e-4, 1e-4, 0.002))) == MOST
    assert steps_of(LaunchGradients(gradients, overlap=Overlap(0.02, 0.0217, 0.002))) == 10
    assert steps_of(LaunchGradients(gradients, overlap=Overlap(2.0, 2.0, 0.002))) == FEWEST


def test_a_calibrated_host_has_the_measured_speeds() -> None:
    times = GradientTimes(batch=8, busy=((1, 0.1), (2, 0.125)), beside=0.9, overlap=0.1)
    speeds = host_law(Profile(gradients=(times,), cores=2, message_beside=0.5, serve_beside=0.25), 8, workers=2)
    assert speeds(1.0, 0.0) == (1.0, 1.0, 0.5, 1.0)
    assert speeds(2.0, 0.0) == pytest.approx((0.8, 1.0, 0.5, 0.25))
    assert speeds(2.0, 1.0) == pytest.approx((0.72, 0.1, 0.5, 0.25))
    assert speeds(0.0, 2.0) == (1.0, 1.0, 1.0, 1.0)
    assert speeds(4.0, 0.0).compute == pytest.approx(0.4)


def test_a_server_takes_a_core_from_gradients() -> None:
    """One worker of 40 ms and a server of 20 ms a message on one core: gradients wait for nobody, but share it."""
    machine = Profile(
        gradients=(GradientTimes(batch=8, busy=((1, 0.04),)),),
        cores=1,
        messages=((0, 0.0),),
        inside_messages=((0, 0.0),),
        serve_s=0.02,
    )
    (plan,) = load({**UNPACED, "algorithms": ["async-sgd"]}).plans()
    trace = perform(plan, Schedule(every=math.inf), machine=MeasuredCosts(machine))
    longest = max(span.end_s - span.start_s for span in trace.spans if span.activity == "compute")
    served = [span.end_s - span.start_s for span in trace.spans if span.activity == "update" and span.rank == Rank(2)]
    assert served == pytest.approx([0.02] * len(served))
    assert longest > 0.08  # two gradients on one core, and a server meanwhile


def test_slices_keep_the_distribution() -> None:
    times = np.random.default_rng(1).lognormal(0.0, 0.3, 20_000)
    found = GradientTimes(batch=1, busy=((1, 1.0),), factors=slices(list(times)))
    drawn = [gradient_factor(found, 1, 0, 0, step) for step in range(4000)]
    assert np.mean(drawn) == pytest.approx(1.0, abs=4 * 0.3 / math.sqrt(4000))  # four standard errors
    assert np.std(drawn) == pytest.approx(np.std(times) / np.mean(times), rel=0.1)  # within slices nothing varies


def test_beyond_the_measured_ranks_cores_are_shared_evenly() -> None:
    cores = shared_cores(2, GradientTimes(batch=8, busy=((1, 0.1), (2, 0.125), (4, 0.25))))
    assert cores == SharedCores(2, ((1, 1.0), (2, 0.8), (4, 0.4)))
    assert cores(8) == pytest.approx(0.2)


@pytest.mark.parametrize(("cores", "step_s"), [(2, 0.04), (1, 0.08)])
def test_a_prediction_takes_the_measured_gradients(cores: int, step_s: float) -> None:
    """Two ranks compute 40 ms each; on one core, twice as long."""
    busy = ((1, 0.04),)
    machine = Profile(
        gradients=(GradientTimes(batch=8, busy=busy),),
        cores=cores,
        collectives={("AllReduce", 2): ((1, 0.0),)},
        inside={("AllReduce", 2): ((1, 0.0),)},
    )
    (plan,) = load(UNPACED).plans()
    trace = perform(plan, Schedule(every=math.inf), machine=MeasuredCosts(machine))
    ends = sorted(span.end_s for span in trace.spans if span.activity == "compute" and span.rank == Rank(0))
    assert ends[:3] == pytest.approx([step_s, 2 * step_s, 3 * step_s])
