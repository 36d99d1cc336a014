"""Explanations of copies between hosts and devices: rows, formulas, provenance, and what would avoid them."""

from __future__ import annotations

import pytest

from paceline.reports.attribution.explain import changes, explain, timing_only
from paceline.reports.attribution.recording import RecordedRun, record
from paceline.reports.attribution.rows import ExplainedRow, breakdown, total
from paceline.scenarios import load
from paceline.simulator.runs.short_runs import length_of

TWO_GPUS = """
name: two
workload: {model: lenet, learning: none, batch_per_worker: 1000}
cluster:
  nodes:
    - node: pcie-tree
      settings: {switches: 1, gpus_per_switch: 2, nics: 1}
      device: {name: even, overhead: 2 ms, per_sample: 0 ms}
stop: {updates: 10}
"""
BATCH = 1000 * 4 * 28 * 28
"""bytes; two copies share an uplink of 12 GB/s"""


def run_of(algorithm: str, *settings: str) -> RecordedRun:
    scenario = timing_only(load(TWO_GPUS + f"algorithms: [{algorithm}]\n", settings))
    (plan,) = scenario.plans()
    return record(plan, length_of(plan, 6))


def staged(run: RecordedRun) -> dict[str, ExplainedRow]:
    step_s, rows = breakdown(run)
    assert total(rows) == pytest.approx(step_s, rel=1e-9)
    return {row.name: row for row in rows if row.group == "staging"}


def test_a_hidden_copy_costs_nothing() -> None:
    (row,) = staged(run_of("sync-sgd")).values()
    assert row.seconds == pytest.approx(0.0, abs=1e-9)
    assert row.hidden_s == pytest.approx(2 * BATCH / 12e9 + 4.2e-6, rel=1e-6)
    assert row.formula.startswith(
        "simulated with contention: 527 µs on average; alone 1000 × 3.14 kB = 3.14 MB / 12 GB/s"
    )
    assert "pcie3" in row.provenance and "MEMORY" in row.provenance


def test_a_copy_that_is_waited_for_is_part_of_the_step() -> None:
    (row,) = staged(run_of("sync-sgd", "cluster.staging.batches=pageable")).values()
    assert row.seconds == pytest.approx(2 * BATCH / 12e9 + 2 * BATCH / 12e9 + 4.2e-6, rel=1e-3)
    assert "3.14 MB / 6 GB/s by a core" in row.formula


@pytest.mark.parametrize("algorithm", ["sync-sgd", "async-sgd", "gossip", "easgd"])
def test_copies_of_vectors_are_not_communication(algorithm: str) -> None:
    run = run_of(algorithm, "cluster.network.library=gloo", "cluster.staging.batches=none")
    (row,) = staged(run).values()
    each = [span.end_s - span.start_s for span in run.trace.spans if span.activity == "copy"]
    assert min(each) >= 1_724_320 / 12e9
    assert 0.5 * min(each) < row.seconds + row.hidden_s < 8 * max(each)
    assert row.provenance.endswith("gloo copies whole vectors")


def test_changes_that_avoid_copies_are_tried() -> None:
    def tried(*settings: str) -> set[str]:
        return {change.words for change in changes(run_of("sync-sgd", *settings))}

    ahead, direct = "batches copied ahead from pinned memory", "GPUDirect RDMA"
    assert not tried() & {ahead, direct}
    assert ahead in tried("cluster.staging.prefetch=0")
    mpi = "cluster.network.library=mpi"
    assert direct in tried(mpi, "cluster.staging.gpudirect=off") and direct not in tried(mpi)
    (found,) = explain(load(TWO_GPUS + "algorithms: [sync-sgd]\n", [mpi, "cluster.staging.gpudirect=off"]), steps=4)
    assert found.effects[0].words == direct or found.effects[0].saved >= 0
