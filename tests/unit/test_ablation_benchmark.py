"""benchmarks/ablation.py: a cost that is left out is out of the step time, and the others stay."""

from __future__ import annotations

import pytest

ablation = pytest.importorskip("benchmarks.ablation", reason="needs the repository")


def test_what_is_left_out_is_the_difference() -> None:
    """Synchronous SGD on one DGX-1 has charges and reductions, which follow each other; no server and no cells."""
    (row,) = ablation.rows("dgx1-p100", ["sync-sgd"], "plain", lambda _: None)
    seconds = row["step_s"]
    whole = seconds["all costs"]
    charges_s, reductions_s = (whole - seconds[f"without {what}"] for what in ("charges", "reductions"))
    assert charges_s > 0 and reductions_s > 0
    assert seconds["without receiving"] == seconds["without shared memory"] == seconds["without interference"] == whole
    assert seconds["without staging"] == pytest.approx(whole, rel=1e-6)  # hidden by gradients
    assert seconds["without all"] == pytest.approx(whole - charges_s - reductions_s, rel=1e-6)
