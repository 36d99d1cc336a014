"""Links whose bandwidth varies over time: moments of the process, and times of flows that are integrals of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline.topologies.graphs.links import VariationModel
from tests.changing_links import end_of, ends, fault, varying_star

LAWS = [
    VariationModel(cv=0.1),
    VariationModel(cv=0.3, correlation=0.0),
    VariationModel(cv=0.5, correlation=0.9, floor=0.3),
    VariationModel(cv=1.0, correlation=0.5, floor=0.0),
]
DRAWS = 200_000


def drawn(law: VariationModel, seed: int = 5, link: str = "switch>host0", draws: int = DRAWS) -> NDArray[np.float64]:
    return np.fromiter(islice(law.factors(seed, link), draws), dtype=float, count=draws)


def standard_error(law: VariationModel) -> float:
    """The standard deviation of the mean of correlated factors: that of a geometric correlation is a bound."""
    return law.cv * sqrt((1 + law.log_correlation) / (1 - law.log_correlation) / DRAWS)


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_tends_to_one(law: VariationModel) -> None:
    """Within four standard errors of 200,000 intervals; so the given bandwidth is the mean bandwidth."""
    assert drawn(law).mean() == pytest.approx(1.0, abs=4 * standard_error(law))


@pytest.mark.parametrize("law", LAWS)
def test_the_spread_and_the_correlation_are_those_given(law: VariationModel) -> None:
    """Within 5 % of the coefficient of variation, and 0.03 of the correlation one and five intervals later."""
    factors = drawn(law)
    assert factors.std() == pytest.approx(law.cv, rel=0.05)
    for after in (1, 5):
        found = float(np.corrcoef(factors[:-after], factors[after:])[0, 1])
        assert found == pytest.approx(law.correlation_after(after), abs=0.03)
    assert law.correlation_after(1) == pytest.approx(law.correlation, rel=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_no_factor_is_below_the_floor(law: VariationModel) -> None:
    assert drawn(law).min() >= law.floor and drawn(law).min() > 0.0


def test_the_first_interval_has_the_law_of_all() -> None:
    """Over 20,000 links, the factors of the first interval have mean 1 and the spread, within four standard errors."""
    law = VariationModel(cv=0.5, correlation=0.9)
    firsts = np.array([next(law.factors(3, f"link{number}")) for number in range(20_000)])
    assert firsts.mean() == pytest.approx(1.0, abs=4 * 0.5 / sqrt(20_000))
    assert firsts.std() == pytest.approx(0.5, rel=0.05)


def test_links_and_seeds_are_independent() -> None:
    law = VariationModel(cv=0.5, correlation=0.0)
    first = drawn(law)
    for other in (drawn(law, link="switch>host1"), drawn(law, seed=6)):
        assert abs(float(np.corrcoef(first, other)[0, 1])) < 4 / sqrt(DRAWS)
    assert np.array_equal(first, drawn(law))


@pytest.mark.parametrize("nbytes", [100, 5000, 77_777])
@pytest.mark.parametrize("law", [VariationModel(cv=0.4, every_s=2.0), VariationModel(cv=1.0, every_s=0.3, floor=0.0)])
def test_a_flow_takes_the_integral_of_the_bandwidth(law: VariationModel, nbytes: int) -> None:
    """One varying link and one that does not vary: bytes = ∫ B min(1, f(t)) dt; two varying ones: the smaller."""
    one = varying_star(1, 1, host1=law)
    expected_s = end_of(nbytes, law, None, names=("switch>host1", ""))
    assert ends(one, [(0.0, 0, 1, nbytes)]) == pytest.approx([expected_s], rel=1e-12)
    both = varying_star(1, 1, host0=law, host1=law)
    expected_s = end_of(nbytes, law, law, names=("switch>host0", "switch>host1"))
    assert ends(both, [(0.0, 0, 1, nbytes)]) == pytest.approx([expected_s], rel=1e-12)


def test_both_directions_have_the_same_factor_at_a_time() -> None:
    law = VariationModel(cv=0.4, every_s=2.0)
    cluster = varying_star(1, 1, host1=law)
    there, back = ends(cluster, [(0.0, 0, 1, 9000), (0.0, 1, 0, 9000)])
    assert there == back


def test_a_ring_of_two_takes_the_integral_in_each_round() -> None:
    """2 (p − 1) = 2 rounds of half of the bytes, in both directions at once: the same as one message of all bytes."""
    law = VariationModel(cv=0.4, every_s=0.7)
    cluster = varying_star(1, 1, host0=law, host1=law)
    expected_s = end_of(8000, law, law, names=("switch>host0", "switch>host1"))
    assert ends(cluster, (), [(0.0, 8000)]) == pytest.approx([expected_s], rel=1e-9)


def test_a_fault_multiplies_the_bandwidth_of_the_moment() -> None:
    """From the start on half of the bandwidth is left, whatever it is: as a message of twice the bytes."""
    law = VariationModel(cv=0.4, every_s=2.0)
    plain = varying_star(1, 1, host0=law, host1=law)
    faults = fault("host1", "switch", 0.0, rate=0.5), fault("host0", "switch", 0.0, rate=0.5)
    halved = replace(plain, link_faults=faults)
    assert ends(halved, [(0.0, 0, 1, 5000)]) == pytest.approx(ends(plain, [(0.0, 0, 1, 10_000)]), rel=1e-12)


def test_while_a_link_is_broken_nothing_passes_and_its_bandwidth_goes_on_varying() -> None:
    """Broken from 1 s to 30 s: the bytes before pass at the first factor, the others as the process is at 30 s."""
    law = VariationModel(cv=0.4, every_s=2.0)
    cluster = replace(varying_star(1, 1, host1=law), link_faults=(fault("host1", "switch", 1.0, 29.0),))
    factors = list(islice(law.factors(0, "switch>host1"), 60))
    left, now = 20_000 - 1000 * min(1.0, factors[0]), 30.0
    for factor in factors[15:]:
        rate = 1000 * min(1.0, factor)
        if left <= 2 * rate:
            now += left / rate
            break
        left, now = left - 2 * rate, now + 2.0
    assert ends(cluster, [(0.0, 0, 1, 20_000)]) == pytest.approx([now], rel=1e-12)
