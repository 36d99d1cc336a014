"""Laws and correlations of gradient times: found in times that have them, and drawn as they were found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.values import Rank
from paceline.backend.calibration import step_time_laws
from paceline.backend.calibration.step_time_laws import correlations, fitted, goodness_of_fit
from paceline.scenarios.machine_file import GradientPart
from paceline.topologies import NO_JITTER
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.faults.gradient_variation import gradient_factor

RANDOM = np.random.default_rng(7)
SAMPLES = 8
LAWS: dict[str, Callable[[], Any]] = {
    "gamma": lambda: RANDOM.gamma(6.0, 1 / 6, 150),
    "lognorm": lambda: RANDOM.lognormal(0.0, 0.5, 150),
    "expon": lambda: 0.8 + RANDOM.exponential(0.2, 150),
    "invgauss": lambda: RANDOM.wald(1.0, 3.0, 150),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_right_law_is_seldom_rejected(name: str) -> None:
    """At a level of 5 %, more than 3 of 8 samples are rejected with a probability of 0.04 %."""
    fits, samples = dict(step_time_laws.LAWS), [LAWS[name]() for _ in range(SAMPLES)]
    assert sum(goodness_of_fit((name, fits[name]), values).p_value < 0.05 for values in samples) <= 3
    if name != "expon":
        assert goodness_of_fit(("expon", fits["expon"]), samples[0]).p_value < 0.05


def test_a_shifted_exponential_is_recognised() -> None:
    found = fitted(list(0.8 + np.random.default_rng(1).exponential(0.2, 300)))
    assert found.law.distribution == "expon"
    assert dict(found.law.parameters)["loc"] == pytest.approx(0.8, abs=0.03)


def test_a_gamma_fit_has_the_highest_likelihood() -> None:
    from scipy.stats import gamma

    values = LAWS["gamma"]()
    shape, _, _ = gamma.fit(values, floc=0)
    (fit,) = (one for one in fitted(list(values)).fits if one.law.distribution == "gamma")
    assert dict(fit.law.parameters)["shape"] == pytest.approx(shape, rel=1e-4)


def test_the_measured_distribution_stays_where_no_law_fits() -> None:
    two_modes = [*RANDOM.normal(0.8, 0.01, 200), *RANDOM.normal(1.2, 0.01, 200)]
    found = fitted(two_modes)
    assert found.law == NO_JITTER
    assert max(one.p_value for one in found.fits) < 0.05


def test_a_law_in_a_file_is_drawn() -> None:
    """The factors have mean 1, and the deviation of the law: sqrt(exp(s²) − 1) of a lognormal one."""
    part = GradientPart.model_validate(
        {
            "batch": 8,
            "busy": [{"ranks": 1, "mean": "1 s"}],
            "factors": [0.9, 1.1],
            "law": {"distribution": "lognorm", "sigma": 0.3},
        }
    )
    drawn = [gradient_factor(part.times(), 1, 0, 0, step) for step in range(4000)]
    spread = math.sqrt(math.exp(0.09) - 1)
    assert np.mean(drawn) == pytest.approx(1.0, abs=4 * spread / math.sqrt(4000))
    assert np.std(drawn) == pytest.approx(spread, rel=0.1)


FACTORS = tuple(np.linspace(0.5, 1.5, 50))


def drawn_pair(hosts: tuple[int, int] = (0, 0), *, steps: float = 0.0, ranks: float = 0.0, count: int = 4000) -> Any:
    """Returns the times of two ranks."""
    times = GradientTimes(batch=8, busy=((1, 1.0),), factors=FACTORS, between_steps=steps, between_ranks=ranks)
    return {
        (Rank(rank), 0): [gradient_factor(times, 3, rank, host, step) for step in range(count)]
        for rank, host in enumerate(hosts)
    }


@pytest.mark.parametrize(("steps", "ranks"), [(0.6, 0.0), (0.0, 0.5), (0.4, 0.3), (0.9, 0.9)])
def test_times_are_drawn_with_the_correlations_that_were_found(steps: float, ranks: float) -> None:
    count = 40_000 if steps > 0.8 else 4000  # at 0.9, a number lasts for ten steps
    drawn = drawn_pair(steps=steps, ranks=ranks, count=count)
    found = correlations([drawn])
    tolerance = 4 * 2 / math.sqrt(4000)  # four standard errors; correlated steps are at most twice as uncertain
    assert found.between_steps == pytest.approx(steps, abs=tolerance)
    assert found.between_ranks == pytest.approx(ranks, abs=tolerance)
    assert np.mean(drawn[Rank(0), 0]) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("ranks", [0.0, 0.3])
def test_a_negative_correlation_between_steps_counts_as_none(ranks: float) -> None:
    assert drawn_pair(steps=-0.4, ranks=ranks) == drawn_pair(steps=0.0, ranks=ranks)


def test_ranks_of_other_hosts_are_independent() -> None:
    drawn = drawn_pair(hosts=(0, 1), ranks=0.9, count=2000)
    assert abs(correlations([drawn]).between_ranks) < 4 / math.sqrt(2000)


def test_long_gradients_are_as_frequent_as_measured_however_correlated() -> None:
    """Of factors up to 10, as on a disturbed machine; a clock in seconds would leave long gradients sooner."""
    factors = tuple(np.geomspace(0.1, 10.0, 50) / np.geomspace(0.1, 10.0, 50).mean())
    times = GradientTimes(batch=8, busy=((1, 1.0),), factors=factors, between_steps=0.6)
    drawn = [gradient_factor(times, 3, 0, 0, step) for step in range(20_000)]
    standard_error = float(np.std(factors)) * math.sqrt((1 + 0.6) / (1 - 0.6) / len(drawn))
    assert np.mean(drawn) == pytest.approx(1.0, abs=4 * standard_error)
    assert np.std(drawn) == pytest.approx(np.std(factors), rel=0.05)


def test_equal_times_do_not_vary_whatever_their_correlation() -> None:
    times = GradientTimes(batch=8, busy=((1, 1.0),), factors=(1.0, 1.0 + 1e-9), between_steps=0.6)
    assert [gradient_factor(times, 3, 0, 0, step) for step in range(3)] == [1.0] * 3
