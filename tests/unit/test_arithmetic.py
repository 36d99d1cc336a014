"""The data types that devices of the catalogue compute in: notes on unused tensor cores and on other precisions."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.scenarios import load
from paceline.scenarios.resolution.fitted_ranges import outside
from paceline.scenarios.values.mistakes import ScenarioError


def notes(device: Any, **workload: Any) -> list[str]:
    scenario = {
        "name": "arithmetic",
        "cluster": {"nodes": [{"device": device, "count": 2}]},
        "workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 64, **workload},
        "algorithms": ["sync-sgd"],
        "stop": {"updates": 2},
    }
    return [note for note in outside(load(scenario).plans()[0]) if note.startswith("workload.compute_dtype: ")]


def test_unused_tensor_cores_are_said() -> None:
    (note,) = (note for note in notes("a100-sxm4-40") if "tensor cores" in note)
    now, then = (
        64 / load(_one(arithmetic)).plans()[0].cluster.nodes[0].device.compute_s(64) for arithmetic in ("fp32", "amp")
    )
    assert then > 2 * now
    assert "found fp32 on a100-sxm4-40, which has tensor cores" in note
    assert f"{now:,.0f} samples/s each; amp (mixed precision) would make it {then:,.0f}" in note


def _one(arithmetic: str) -> dict[str, Any]:
    return {
        "name": "one",
        "cluster": {"nodes": [{"device": "a100-sxm4-40"}]},
        "workload": {"model": "resnet50", "learning": "none", "batch_per_worker": 64, "compute_dtype": arithmetic},
        "algorithms": ["sync-sgd"],
        "stop": {"updates": 2},
    }


@pytest.mark.parametrize(
    ("device", "workload"),
    [
        ("a100-sxm4-40", {"compute_dtype": "amp"}),
        ("a100-sxm4-40", {"compute_dtype": "tf32"}),
        ("p100-sxm2", {}),
        ({"name": "a100-sxm4-40", "overhead": "1 ms", "per_sample": "1 ms"}, {}),
    ],
)
def test_nothing_is_said_where_no_tensor_core_is_unused(device: Any, workload: dict[str, Any]) -> None:
    assert notes(device, **workload) == []


@pytest.mark.parametrize(("precision", "meant"), [("float16", "amp"), ("bf16", "bf16")])
def test_half_precision_of_weights_suggests_arithmetic(precision: str, meant: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        notes("v100-sxm2", dtype=precision)
    assert f"compute in {precision} give compute_dtype: {meant}" in str(refused.value)
    with pytest.raises(ScenarioError) as refused:
        notes("v100-sxm2", dtype=precision, compute_dtype="amp")
    assert "compute_dtype:" not in str(refused.value)
