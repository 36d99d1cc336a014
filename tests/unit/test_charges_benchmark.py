"""benchmarks/charges.py: what it predicts is what the programs declare. Its figures depend on the machine."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from paceline.algorithms.core.traffic import COMBINE, COMBINE_IN_PLACE, COPY, ELASTIC_PULL, SCALE, Traffic

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


def test_every_case_has_the_traffic_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    charges = importlib.import_module("charges")
    rows = {(row["kind"], row["name"]): row for row in (charges.row(case, 1) for case in charges.cases(6400))}
    expected: dict[tuple[str, str], Traffic] = {
        ("update", "plain SGD"): COMBINE_IN_PLACE,
        ("update", "momentum"): 2 * SCALE + 2 * COMBINE,
        ("update", "momentum, weight decay"): 3 * SCALE + 3 * COMBINE,
        ("copy", "into existing memory"): COPY,
        ("copy", "into new memory"): SCALE,
        ("server", "async-sgd"): COMBINE + 2 * COPY,
        ("server", "async-msgd"): 2 * SCALE + 2 * COMBINE + 2 * COPY,
        ("server", "async-easgd"): ELASTIC_PULL + 2 * COPY,
    }
    for key, traffic in expected.items():
        assert (rows[key]["passes"], rows[key]["kernels"]) == (traffic.passes, traffic.kernels), key
    assert rows.keys() - expected.keys() == {("update", "LARS")}
    for row in rows.values():
        assert row["predicted_s"] > 0 and row["measured_s"] > 0
        assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
