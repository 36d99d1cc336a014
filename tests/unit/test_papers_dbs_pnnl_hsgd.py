"""The claims of DBS-SGD, PNNL and HSGD: what their figures are computed from, on settings whose results are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

from paceline.papers.core.claim import Effort
from paceline.papers.core.input_files import inputs_of
from paceline.papers.dbs import claims as dbs
from paceline.papers.dbs import training_runs
from paceline.papers.dbs.training_runs import SAMPLES, Outcome, Setting
from paceline.papers.hsgd import claims as hsgd
from paceline.papers.hsgd import strategies
from paceline.papers.hsgd.measured import NUMBERS, _all_reduce_s
from paceline.papers.pnnl import claims as pnnl
from paceline.papers.pnnl.layerwise_equality import distance, trained
from paceline.papers.runs.step_times import step_s
from paceline.scenarios import load


def outcome(samples: list[float], losses: list[float], *, staleness: float = 1.0) -> Outcome:
    """A run with these evaluations, one each second."""
    return Outcome(
        samples=tuple(samples), times_s=tuple(map(float, range(len(samples)))), losses=tuple(losses),
        accuracies=tuple(100 - 10 * loss for loss in losses), samples_per_s=100.0, staleness=7.0,
        node_staleness=staleness, iteration_spread=1.0,
    )  # fmt: skip


EPOCHS = [0.0, SAMPLES, 2 * SAMPLES]
ONE = Setting("mnist", epochs=2.0, length=2.0)


# --- DBS-SGD ---------------------------------------------------------------------------------------------------------


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

    monkeypatch.setattr(training_runs, "outcome", made)
    training_runs.largest_rate.cache_clear()
    try:
        assert training_runs.common_rate(Setting("mnist")) == 0.1
        assert training_runs.common_rate(Setting("mnist", rate_factor=0.25)) == pytest.approx(0.025)
    finally:
        training_runs.largest_rate.cache_clear()


@pytest.mark.parametrize(
    ("method", "rate"), [("dbs-sgd", 0.1), ("async-sgd", 0.1), ("softsync", 0.2), ("sync-sgd", 0.8)]
)
def test_a_fresh_sample_has_the_same_weight_in_all_methods(method: training_runs.MethodName, rate: float) -> None:
    """An update of softsync averages two gradients of eight workers, one of sync-sgd all eight."""
    assert yaml.safe_load(training_runs._algorithm(method, 0.1, 8))["learning_rate"] == pytest.approx(rate)


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
    synchronous = trained("sync-sgd", steps=3, seed=1)
    assert distance(trained("{name: layerwise-agd, delay: 0}", steps=3, seed=1), synchronous) == 0.0
    assert distance(trained("{name: layerwise-agd, delay: 1}", steps=3, seed=1), synchronous) > 1e-3


# --- HSGD ------------------------------------------------------------------------------------------------------------


def gradient_s(setting: strategies.Setting, replicas: int) -> float:
    (plan,) = load("hsgd-tianhe2", setting.changes(replicas, link="loopback")).plans()
    batch = plan.scenario.workload.batch_per_worker
    return plan.cluster.nodes[0].device.compute_s(batch)


def test_without_a_serial_part_one_process_computes_as_fast_as_three() -> None:
    setting = strategies.Setting(serial=0.0)
    assert gradient_s(setting, 1) == pytest.approx(gradient_s(setting, 3), rel=1e-6)


def test_a_serial_part_costs_one_process_at_most_the_number_of_replicas() -> None:
    ratios = [
        gradient_s(one, 1) / gradient_s(one, 3) for one in (replace(strategies.Setting(), serial=s) for s in (0.1, 1.0))
    ]
    assert 2.0 < ratios[0] < ratios[1] == pytest.approx(3.0)


def test_native_strategies_differ_from_the_hierarchical_one_by_communication_only() -> None:
    setting = strategies.Setting(nodes=2, serial=0.0)
    rates = {name: native(setting) for name, (native, _) in strategies.NATIVE.items()}
    assert rates["server"] < min(rates["sockets"], rates["one-process"])
    assert strategies.hierarchical(setting) > rates["server"]


def test_both_ways_of_an_all_reduce_are_timed() -> None:
    for shared_memory in (False, True):
        times = np.array(_all_reduce_s(shared_memory=shared_memory))
        assert times.shape == (len(NUMBERS),) and (times > 0).all()


# --- all -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [dbs, pnnl, hsgd])
def test_the_inputs_of_all_claims_are_written_down(module: object) -> None:
    claims = module.CLAIMS  # type: ignore[attr-defined]
    assert len({claim.name for claim in claims}) == len(claims)
    for claim in claims:
        assert set(claim.inputs) <= set(inputs_of(claim.paper))


def test_step_times_do_not_depend_on_the_number_of_evaluated_steps_without_jitter() -> None:
    few, many = (step_s("pnnl-sandy-bridge", "sync-sgd", FEW, steps=steps) for steps in (1, 3))
    assert few == pytest.approx(many)


def test_a_quick_run_is_shorter() -> None:
    assert dbs._central("mnist", Effort(quick=True)).epochs < dbs._central("mnist", Effort()).epochs
