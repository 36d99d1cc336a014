"""The largest of N unit-mean factors against the table of order statistics (docs/invariants.md, O2)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.topologies import Spread

STEPS = 4_000
E_MAX = {
    ("lognorm", "sigma", 0.25): {2: 1.1403, 4: 1.2734, 8: 1.4001, 16: 1.5215, 32: 1.6387, 64: 1.7528},
    ("lognorm", "sigma", 0.5): {2: 1.2763, 4: 1.5733, 8: 1.8876, 16: 2.2179, 32: 2.5638, 64: 2.9258},
    ("weibull_min", "shape", 2.0): {2: 1.2929, 8: 1.8158, 32: 2.2475},
    ("gamma", "shape", 4.0): {2: 1.2734, 8: 1.8079, 32: 2.3089},
}


def factors(spread: Spread, *, ranks: int, steps: int) -> np.ndarray:
    return np.array([[spread.factor(11, rank, step) for step in range(steps)] for rank in range(ranks)])


@pytest.mark.parametrize("case", E_MAX, ids=lambda case: f"{case[0]}-{case[2]}")
def test_mean_of_the_slowest_of_n(case: tuple[str, str, float]) -> None:
    law, name, value = case
    drawn = factors(Spread.of(law, **{name: value}), ranks=64, steps=STEPS)
    for ranks, expected in E_MAX[case].items():
        slowest = drawn[:ranks].max(axis=0)
        error = slowest.std() / math.sqrt(STEPS)
        assert abs(slowest.mean() - expected) < 4 * error + 5e-5, ranks  # 4 standard errors, and the table's rounding


@pytest.mark.parametrize(
    ("law", "parameters", "cv"),
    [
        ("lognorm", {"sigma": 0.3}, math.sqrt(math.expm1(0.09))),
        ("gamma", {"shape": 4.0}, 0.5),
        ("expon", {}, 1.0),
        ("norm", {"loc": 1.0, "scale": 0.05}, 0.05),
        ("norm", {"loc": 20.0, "scale": 2.0}, 0.1),
        ("uniform", {"loc": 1.0, "scale": 1.0}, 1 / math.sqrt(12) / 1.5),
    ],
)
def test_mean_is_one_and_the_variation_is_the_laws(law: str, parameters: dict[str, float], cv: float) -> None:
    drawn = factors(Spread.of(law, **parameters), ranks=16, steps=STEPS).ravel()
    assert drawn.mean() == pytest.approx(1.0, abs=4 * cv / math.sqrt(drawn.size))
    assert drawn.std() == pytest.approx(cv, rel=0.03)  # 64 000 draws; the fourth moments here allow 1 %


def test_ranks_and_steps_are_independent() -> None:
    drawn = factors(Spread.of("lognorm", sigma=0.3), ranks=2, steps=STEPS)
    limit = 4 / math.sqrt(STEPS)
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < limit
    assert abs(np.corrcoef(drawn[0][:-1], drawn[0][1:])[0, 1]) < limit
