"""The claims of PNNL: speed-ups by overlap, equality of real runs, and the gradients that a worker holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.papers import pnnl
from paceline.papers.claim import Given, inputs_of
from paceline.papers.runs import step_s
from paceline.scenarios import load

FEW = ("cluster.nodes[0].count=2", "cluster.network.leaves=2", "cluster.step_time=null")


def given(**changed: str) -> Given:
    """The most plausible inputs of all speed-ups, with a short run on two nodes without jitter."""
    inputs = inputs_of("pnnl")
    values = {name: inputs[name].value for name in pnnl.EVERY_INPUT}
    few = {"sandy_bridge_nodes": "2", "sandy_bridge_jitter": "0"}
    return Given(tuple((values | few | changed).items()), quick=True)


def test_overlap_cannot_do_better_than_hide_all_communication() -> None:
    """With a delay a step takes at least as long as gradient and update; without communication nothing is gained."""
    found = pnnl.speed_ups(pnnl.SANDY_BRIDGE, "alexnet", given(), pnnl.METHODS)
    assert all(1.0 < ratio < 2.0 for ratio in found.values())
    assert pnnl.fastest(pnnl.SANDY_BRIDGE, "alexnet", given()) == max(found.values())
    assert 1.0 <= pnnl.fastest(pnnl.SANDY_BRIDGE, "alexnet", given(sandy_bridge_gradient="50")) < 1.02


@pytest.mark.parametrize("system", pnnl.SYSTEMS, ids=lambda system: system.prefix)
def test_the_most_plausible_inputs_are_the_shipped_scenario(system: pnnl.System) -> None:
    inputs = inputs_of("pnnl")
    central = Given(tuple((name, inputs[name].value) for name in system.inputs))
    changed, shipped = (load(system.scenario, changes) for changes in (system.changes(central), []))
    assert changed.workload == shipped.workload and changed.cluster == shipped.cluster


def test_step_times_do_not_depend_on_the_number_of_evaluated_steps_without_jitter() -> None:
    few, many = (step_s("pnnl-sandy-bridge", "sync-sgd", FEW, steps=steps) for steps in (1, 3))
    assert few == pytest.approx(many)


def test_real_runs_layer_by_layer_have_the_weights_of_the_synchronous_one() -> None:
    synchronous = pnnl.trained("sync-sgd", steps=3, seed=1)
    assert pnnl.distance(pnnl.trained("{name: layerwise-agd, delay: 0}", steps=3, seed=1), synchronous) == 0.0
    assert pnnl.distance(pnnl.trained("{name: layerwise-agd, delay: 1}", steps=3, seed=1), synchronous) > 1e-3


@pytest.mark.parametrize("delay", [1, 2])
def test_a_delay_holds_one_more_gradient_for_each_step(delay: int) -> None:
    """Layer by layer, a layer's old gradient is applied as soon as its new one is there."""
    assert pnnl.gradients_held("alexnet", "agd", delay, 32) == pytest.approx(delay + 1)
    assert delay < pnnl.gradients_held("alexnet", "layerwise-agd", delay, 32) <= delay + 1


def test_memory_is_relative_to_that_of_the_batch() -> None:
    small, large = (pnnl.extra_memory("alexnet", replace(given(dgx1_batch=batch), seed=1)) for batch in ("8", "256"))
    assert 0 < large < small < 25
