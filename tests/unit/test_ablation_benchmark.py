"""benchmarks/ablation.py: a cost that is left out is out of the step time, and the others stay."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the repository")


def test_what_is_left_out_is_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Synchronous SGD on one DGX-1 has charges and reductions, which follow each other; no server and no cells."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    seconds = importlib.import_module("ablation").steps_of_cases("dgx1-p100", "sync-sgd", "plain")
    whole = seconds["all costs"]
    charges_s, reductions_s = (whole - seconds[f"without {what}"] for what in ("charges", "reductions"))
    assert charges_s > 0 and reductions_s > 0
    assert seconds["without receiving"] == seconds["without shared memory"] == seconds["without interference"] == whole
    assert seconds["without staging"] == pytest.approx(whole, rel=1e-6)  # hidden by gradients
    assert seconds["without all"] == pytest.approx(whole - charges_s - reductions_s, rel=1e-6)
