"""What the figures of the papers' claims are computed from, on settings whose results are known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.async_elastic import AsyncEasgd
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.papers import dbs, hsgd, icmla17, pnnl
from paceline.papers.claim import Effort, inputs_of
from paceline.papers.dbs import SAMPLES, Outcome, Setting
from paceline.papers.icmla17 import GPUS, TARGETS, Tuned
from paceline.papers.runs import Trained, step_s
from paceline.papers.sc17 import gpu, knl, learning
from paceline.scenarios import load

QUICK = Effort(quick=True)

# --- DBS-SGD ---------------------------------------------------------------------------------------------------------


def outcome(samples: list[float], losses: list[float], *, staleness: float = 1.0) -> Outcome:
    """A run with these evaluations, one each second."""
    return Outcome(
        samples=tuple(samples), times_s=tuple(map(float, range(len(samples)))), losses=tuple(losses),
        accuracies=tuple(100 - 10 * loss for loss in losses), samples_per_s=100.0, staleness=7.0,
        node_staleness=staleness, iteration_spread=1.0,
    )  # fmt: skip


EPOCHS = [0.0, SAMPLES, 2 * SAMPLES]
ONE = Setting("mnist", epochs=2.0, length=2.0)


def test_losses_are_means_over_the_last_epoch() -> None:
    ours, theirs = outcome(EPOCHS, [2.0, 1.0, 0.0]), outcome(EPOCHS, [2.0, 2.0, 2.0])
    assert ours.loss_after(2 * SAMPLES) == pytest.approx(0.5)
    assert dbs.loss_ratio(ours, theirs, ONE) == pytest.approx(0.25)
    assert dbs.accuracy_ratio(ours, theirs, ONE) == pytest.approx(95 / 80)


def test_equal_time_is_that_of_the_slower_method() -> None:
    """The rival needs twice as long, in which our losses fall further."""
    ours, theirs = outcome([0.0, 2 * SAMPLES, 4 * SAMPLES], [2.0, 1.0, 0.5]), outcome(EPOCHS, [2.0, 2.0, 2.0])
    assert dbs.timed_loss_ratio(ours, theirs, ONE) == pytest.approx(0.625 / 2)


def test_a_run_that_ends_where_it_began_has_diverged() -> None:
    assert outcome(EPOCHS, [2.0, 1.0, 2.0]).diverged
    assert not outcome(EPOCHS, [2.0, 3.0, 1.9]).diverged


def test_the_common_rate_is_the_largest_of_the_grid_that_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(_: Setting, method: str, rate: float, seed: int) -> Outcome:
        unstable = rate > (0.1 if method == "dbs-sgd" and seed == 103 else 0.2)
        return outcome(EPOCHS, [2.0, 1.0, 3.0 if unstable else 1.0])

    monkeypatch.setattr(dbs, "outcome", made)
    dbs.largest_rate.cache_clear()
    try:
        assert dbs.common_rate(Setting("mnist")) == 0.1
        assert dbs.common_rate(Setting("mnist", rate_factor=0.25)) == pytest.approx(0.025)
    finally:
        dbs.largest_rate.cache_clear()


@pytest.mark.parametrize(
    ("method", "rate"), [("dbs-sgd", 0.1), ("async-sgd", 0.1), ("softsync", 0.2), ("sync-sgd", 0.8)]
)
def test_a_fresh_sample_has_the_same_weight_in_all_methods(method: dbs.MethodName, rate: float) -> None:
    """An update of softsync averages two gradients of eight workers, one of sync-sgd all eight."""
    assert yaml.safe_load(dbs._algorithm(method, 0.1, 8))["learning_rate"] == pytest.approx(rate)


def test_the_central_setting_is_the_shipped_scenario() -> None:
    changed, shipped = (load("dbs-mnist", changes) for changes in (Setting("mnist").changes(), []))
    assert changed.workload == shipped.workload
    for one, other in ((changed, shipped),):
        devices = [[node.device.compute_s(32) for node in each.plans()[0].cluster.nodes] for each in (one, other)]
        assert devices[0] == pytest.approx(devices[1])
    assert changed.cluster.step_time == shipped.cluster.step_time


# --- PNNL ------------------------------------------------------------------------------------------------------------

FEW = ("cluster.nodes[0].count=2", "cluster.network.leaves=2", "cluster.step_time=null")


def test_overlap_cannot_do_better_than_hide_all_communication() -> None:
    """With delay 1 a step takes at least as long as gradient and update; without communication nothing is gained."""
    system = pnnl.SYSTEMS[1]
    found = pnnl.speedups(system, "alexnet", ("layerwise-sgd", "agd"), changes=FEW, steps=2)
    assert all(1.0 < ratio < 2.0 for _, ratio in found.by_method)
    assert found.best == max(dict(found.by_method).values())
    slower = pnnl.speedups(system, "alexnet", ("agd",), changes=FEW, gradient_factor=50.0, steps=2)
    assert 1.0 <= slower.best < 1.02


def test_the_ranges_of_gradient_times_are_those_of_the_inputs() -> None:
    assert [system.gradient_factors for system in pnnl.SYSTEMS] == [pytest.approx((1 / 1.3, 1.3)), (0.5, 2.0)]
    for system in pnnl.SYSTEMS:
        assert set(system.inputs) <= set(inputs_of("pnnl"))
        batch = int(system.value("batch").split()[0])
        assert load(system.scenario).workload.batch_per_worker == batch


def test_real_runs_layer_by_layer_have_the_weights_of_the_synchronous_one() -> None:
    synchronous = pnnl.trained("sync-sgd", steps=3, seed=1)
    assert pnnl.distance(pnnl.trained("{name: layerwise-agd, delay: 0}", steps=3, seed=1), synchronous) == 0.0
    assert pnnl.distance(pnnl.trained("{name: layerwise-agd, delay: 1}", steps=3, seed=1), synchronous) > 1e-3


# --- HSGD ------------------------------------------------------------------------------------------------------------


def gradient_s(setting: hsgd.Setting, replicas: int) -> float:
    (plan,) = load("hsgd-tianhe2", setting.changes(replicas, link="loopback")).plans()
    batch = plan.scenario.workload.batch_per_worker
    return plan.cluster.nodes[0].device.compute_s(batch)


def test_without_a_serial_part_one_process_computes_as_fast_as_three() -> None:
    setting = hsgd.Setting(serial=0.0)
    assert gradient_s(setting, 1) == pytest.approx(gradient_s(setting, 3), rel=1e-6)


def test_a_serial_part_costs_one_process_at_most_the_number_of_replicas() -> None:
    ratios = [
        gradient_s(one, 1) / gradient_s(one, 3) for one in (replace(hsgd.Setting(), serial=s) for s in (0.1, 1.0))
    ]
    assert 2.0 < ratios[0] < ratios[1] == pytest.approx(3.0)


def test_native_strategies_differ_from_the_hierarchical_one_by_communication_only() -> None:
    setting = hsgd.Setting(nodes=2, serial=0.0)
    rates = {name: native(setting) for name, (native, _) in hsgd.NATIVE.items()}
    assert rates["server"] < min(rates["sockets"], rates["one-process"])
    assert hsgd.hierarchical(setting) > rates["server"]


def test_both_ways_of_an_all_reduce_are_timed() -> None:
    for shared_memory in (False, True):
        times = np.array(hsgd._all_reduce_s(shared_memory=shared_memory))
        assert times.shape == (len(hsgd.NUMBERS),) and (times > 0).all()


# --- runs ------------------------------------------------------------------------------------------------------------


def test_step_times_do_not_depend_on_the_number_of_evaluated_steps_without_jitter() -> None:
    few, many = (step_s("pnnl-sandy-bridge", "sync-sgd", FEW, steps=steps) for steps in (1, 3))
    assert few == pytest.approx(many)


def test_a_quick_run_is_shorter() -> None:
    assert dbs._central("mnist", Effort(quick=True)).epochs < dbs._central("mnist", Effort()).epochs


# --- ICMLA 2017 -------------------------------------------------------------------------------------------------------


def needing(*samples: float) -> Tuned:
    """Two seeds that need these samples to the targets."""
    return Tuned(0.1, (Trained(dict(zip(TARGETS, samples, strict=True)), 97.0),) * 2)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 GPUs are 100 times as fast as one; samples are twice as many; k2 = 16 never reaches 0.97."""

    def tuned(method: SgdMethod, effort: Effort) -> Tuned:
        if isinstance(method, SequentialSgd):
            return needing(1000.0, 1500.0, 2500.0, 4000.0)
        assert isinstance(method, HbsSgd)
        return needing(2000.0, 3000.0, 5000.0, math.inf if method.k2 == 16 else 6000.0)

    def samples_per_s(method: Any, timing: str) -> float:
        return 1.0 if isinstance(method, SequentialSgd) else 110.0 if timing == "16 DGX-1" else 100.0

    monkeypatch.setattr(icmla17, "tuned", tuned)
    monkeypatch.setattr(icmla17, "samples_per_s", samples_per_s)
    icmla17.central_target.cache_clear()


@pytest.mark.usefixtures("made_up")
def test_the_target_needs_two_thousand_reference_updates() -> None:
    assert icmla17.central_target(QUICK) == 0.96


@pytest.mark.usefixtures("made_up")
def test_a_speed_up_is_the_ratio_of_rates_over_that_of_samples() -> None:
    assert icmla17.speed_ups(4, 0.96, QUICK) == [50.0, 50.0]
    assert icmla17.speed_ups(16, 0.97, QUICK) == [0.0, 0.0]


@pytest.mark.usefixtures("made_up")
def test_the_interval_spans_targets_and_timings() -> None:
    found = icmla17.speed_up(QUICK)
    assert found.value == 50.0 and found.low == 50.0
    assert found.high == pytest.approx(1.1 * 100 * 4000 / 6000)
    assert "56 is not reached at any k2" in found.details[1]
    assert "4000 updates (accuracy 0.97): 67 at k2 = 1" in found.reason


@pytest.mark.usefixtures("made_up")
def test_the_efficiency_is_the_speed_up_by_gpu() -> None:
    share, factor = icmla17.speed_up(QUICK, scale=100 / GPUS), icmla17.speed_up(QUICK)
    assert share.value == pytest.approx(100 * factor.value / GPUS)
    assert share.curve is None and factor.curve is not None


def test_a_node_averages_four_times_as_often() -> None:
    assert [(icmla17.hbs(k2).k1, icmla17.hbs(k2).k2) for k2 in (1, 4, 16)] == [(1, 1), (1, 4), (4, 16)]


# --- SC 2017 ----------------------------------------------------------------------------------------------------------


def test_the_share_of_communication_leaves_out_the_turns_of_others() -> None:
    """A turn of Original EASGD is centre, gradient, weights: its share does not depend on the number of workers, while
    the time fraction `wait` does."""
    few, many = (gpu.times(replace(gpu.central(), workers=workers)) for workers in (4, 8))
    assert few.original_share == pytest.approx(many.original_share, rel=0.05)
    assert few.waiting_share < many.waiting_share - 5
    assert many.first_factor() == pytest.approx(5 * many.turn_s / many.step1_s)


def test_overlap_shortens_the_turns_of_original_easgd() -> None:
    central = gpu.central()
    assert gpu.times(replace(central, overlap=True)).turn_s < 0.5 * gpu.times(central).turn_s


def test_rho_gives_the_moving_rate_at_the_rate_of_an_entry() -> None:
    method = learning.Entry("async-easgd", 0.4, beta=0.3, workers=4).algorithm
    assert isinstance(method, AsyncEasgd) and method.rho is not None
    assert 4 * method.rho * 0.4 == pytest.approx(0.3)
    assert not hasattr(learning.Entry("async-sgd", 0.4).algorithm, "rho")


def test_times_that_no_seed_reached_decide_nothing() -> None:
    horizon = learning.HORIZON_S
    unknown = learning.ratio([horizon, horizon], [horizon, horizon])
    assert unknown.low < 1 < unknown.high
    known = learning.ratio([0.1, 0.2], [0.05, 0.1])
    assert math.isclose(known.value, 2.0) and math.isclose(known.low, 2.0)


def test_seventeen_copies_of_weights_and_data_fit() -> None:
    """17 · (249.5 + 687) MB are 15.9 GB."""
    assert knl.copies_in_mcdram(Effort(quick=True, seeds=1)).value == math.floor(16e9 / (4 * 62_378_344 + 687e6)) == 17


def test_more_jitter_and_fewer_cores_for_reductions_cost_efficiency() -> None:
    base = knl.efficiency(4, 64, 0.001, 68, 1, 5)
    assert 90 < base <= 101
    assert knl.efficiency(4, 64, 0.2, 68, 1, 5) < base
    assert knl.efficiency(4, 64, 0.001, 1, 1, 5) <= base + 1e-9
