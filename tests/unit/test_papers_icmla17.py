"""Speed-ups of hierarchical bulk-synchronous SGD, from made-up trainings and throughputs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.papers.core.claim import Effort
from paceline.papers.icmla17 import claims, tuned_runs
from paceline.papers.icmla17.tuned_runs import GPUS, TARGETS, Tuned, hbs
from paceline.papers.runs.stand_ins import Trained

QUICK = Effort(quick=True)


def needing(*samples: float) -> Tuned:
    """Two seeds that need these samples to the targets."""
    return Tuned(0.1, (Trained(dict(zip(TARGETS, samples, strict=True)), 97.0),) * 2)


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 GPUs are 100 times as fast as one; samples are twice as many; k2 = 16 never reaches 0.97."""

    def tuned(method: SgdMethod, effort: Effort) -> Tuned:
        if isinstance(method, SequentialSgd):
            return needing(1000.0, 1500.0, 2500.0, 4000.0)
        assert isinstance(method, HbsSgd)
        return needing(2000.0, 3000.0, 5000.0, math.inf if method.k2 == 16 else 6000.0)

    def samples_per_s(method: Any, timing: str) -> float:
        return 1.0 if isinstance(method, SequentialSgd) else 110.0 if timing == "16 DGX-1" else 100.0

    for module in (claims, tuned_runs):
        monkeypatch.setattr(module, "tuned", tuned)
        monkeypatch.setattr(module, "samples_per_s", samples_per_s)
    tuned_runs.central_target.cache_clear()


def test_the_target_needs_two_thousand_reference_updates() -> None:
    assert tuned_runs.central_target(QUICK) == 0.96


def test_a_speed_up_is_the_ratio_of_rates_over_that_of_samples() -> None:
    assert claims.speed_ups(4, 0.96, QUICK) == [50.0, 50.0]
    assert claims.speed_ups(16, 0.97, QUICK) == [0.0, 0.0]


def test_the_interval_spans_targets_and_timings() -> None:
    found = claims.speed_up(QUICK)
    assert found.value == 50.0 and found.low == 50.0
    assert found.high == pytest.approx(1.1 * 100 * 4000 / 6000)
    assert "56 is not reached at any k2" in found.details[1]
    assert "4000 updates (accuracy 0.97): 67 at k2 = 1" in found.reason


def test_the_efficiency_is_the_speed_up_by_gpu() -> None:
    share, factor = claims.speed_up(QUICK, scale=100 / GPUS), claims.speed_up(QUICK)
    assert share.value == pytest.approx(100 * factor.value / GPUS)
    assert share.curve is None and factor.curve is not None


def test_a_node_averages_four_times_as_often() -> None:
    assert [(hbs(k2).k1, hbs(k2).k2) for k2 in (1, 4, 16)] == [(1, 1), (1, 4), (4, 16)]
