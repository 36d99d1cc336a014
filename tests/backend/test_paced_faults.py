"""Paced real runs meet the slow places and slowdowns that a simulation meets.

That a device holds them to the moment is tested with a fake clock (tests/unit/test_device.py): a busy machine may wake
every rank late, by more than a gradient takes.
"""

from __future__ import annotations

import pytest

from paceline.algorithms.core.values import Rank
from paceline.backend.training import train
from paceline.scenarios import load

pytestmark = pytest.mark.backend
SCENARIO = """
name: hard
algorithms: [sync-sgd, layerwise-sgd]
workload: {model: digits-mlp, batch_per_worker: 16}
cluster:
  nodes: [{device: {name: d, overhead: 4 ms, per_sample: 0.5 ms}, workers_per_node: 2}]
  step_times: [{worker: 0, step_time: {distribution: lognorm, sigma: 0.2}}]
  stragglers: [{worker: 1, factor: 1.5}]
  slowdowns: [{at: 55 ms, lasts: 100 ms, factor: 3}, {worker: 1, every: 50 ms, lasts: 20 ms, factor: 2}]
stop: {samples: 320}
"""


def test_no_gradient_ends_before_the_simulator_says() -> None:
    scenario = load(SCENARIO)
    for run, plan in zip(train(scenario), scenario.plans(paced=True), strict=True):
        spans = run.tables.spans.query("activity == 'compute'")
        late_s = []
        gradients = spans.groupby(["rank", "step"]).agg({"start_s": "min", "end_s": "max"}).reset_index()
        for rank, step, start_s, end_s in gradients.itertuples(index=False):
            work_s = plan.compute_s(Rank(rank), step, 16)
            late_s.append(end_s - plan.end_s(Rank(rank), start_s, work_s))
        assert len(late_s) == 20
        assert min(late_s) > -1e-4, "never sooner than the pace, but for the clock's reading"
        faults = run.summary.get("faults")
        assert faults is not None
        assert faults["slowed_s"] > 0.05
        assert faults["crashes"] == 0
