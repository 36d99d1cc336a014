"""Devices, jitter, links and clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.topologies import LINKS, NO_JITTER, DeviceModel, Jitter
from paceline.topologies.cluster import on_a_star
from paceline.topologies.faults.jitter import BLOCK, LogNormal, _block, distributions

FAST = DeviceModel(name="fast", overhead_s=0.004, per_sample_s=0.0005)
SLOW = DeviceModel(name="slow", overhead_s=0.004, per_sample_s=0.001125)


def test_quickstart_devices_take_twenty_and_forty_milliseconds() -> None:
    assert FAST.compute_s(32) == pytest.approx(0.020)
    assert SLOW.compute_s(32) == pytest.approx(0.040)


def test_placement_is_consecutive_and_the_server_sits_where_told() -> None:
    kinds = [(FAST, 3), (SLOW, 1), (FAST, 2)]
    cluster = on_a_star(kinds, link=LINKS["eth-10g"], local=LINKS["shared-memory"], server_node=1)
    assert cluster.workers == 6
    assert cluster.placement == [[0, 1, 2], [3], [4, 5]]
    assert [cluster.node_of(Rank(rank)) for rank in range(7)] == [0, 0, 0, 1, 2, 2, 1]
    assert [cluster.device_of(Rank(rank)).name for rank in (0, 3, 5, 6)] == ["fast", "slow", "fast", "slow"]


def test_factor_does_not_depend_on_the_order_of_asking() -> None:
    law = Jitter.of("lognorm", sigma=0.3)
    places = [(rank, step) for rank in range(3) for step in (0, BLOCK - 1, BLOCK, 5 * BLOCK)]
    forwards = [law.factor(1, *place) for place in places]
    _block.cache_clear()
    backwards = [law.factor(1, *place) for place in reversed(places)]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) == len(places)


def test_another_seed_draws_otherwise() -> None:
    law = Jitter.of("lognorm", sigma=0.3)
    assert law.factor(1, 0, 0) != law.factor(2, 0, 0)


def test_the_fields_name_and_scipys_letter_are_one_law() -> None:
    assert Jitter.of("lognorm", sigma=0.3).factor(1, 2, 3) == Jitter.of("lognorm", s=0.3).factor(1, 2, 3)


def test_a_draw_below_zero_counts_as_zero() -> None:
    law = Jitter.of("norm", loc=1.0, scale=0.16)
    assert all(law.factor(1, rank, step) >= 0 for rank in range(4) for step in range(1000))


def test_factors_are_drawn_in_blocks() -> None:
    """A factor costs a table look-up; a separate draw would take a hundred times as long."""
    law = Jitter.of("lognorm", sigma=0.3)
    _block.cache_clear()
    for step in range(8 * BLOCK):
        for rank in range(8):
            law.factor(1, rank, step)
    assert _block.cache_info().misses == 8 * 8


@pytest.mark.parametrize(
    ("law", "parameters", "message"),
    [
        ("lognormal", {"sigma": 0.3}, "unknown distribution 'lognormal' .did you mean lognorm"),
        ("lognorm", {"sgma": 0.3}, "sgma: lognorm has no such parameter .did you mean sigma"),
        ("lognorm", {}, "sigma: lognorm needs this parameter once"),
        ("lognorm", {"sigma": 0.3, "s": 0.3}, "sigma: lognorm needs this parameter once"),
        ("lognorm", {"sigma": -0.3}, "lognorm with sigma = -0.3 is no distribution"),
        ("lognorm", {"sigma": math.nan}, "sigma: found nan, expected a finite number"),
        ("pareto", {"b": 0.9}, "pareto with b = 0.9 has no finite mean"),
        ("cauchy", {"loc": 5.0}, "cauchy with loc = 5.0 has no finite mean"),
        ("norm", {}, "norm has mean 0"),
        ("norm", {"loc": 1.0, "scale": 0.5}, "norm with loc = 1.0, scale = 0.5 is below 0 with probability 0.023"),
        ("none", {"sigma": 0.3}, "unknown distribution 'none'"),
    ],
)
def test_laws_that_are_refused(law: str, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Jitter.of(law, **parameters)


def test_none_is_a_law() -> None:
    assert Jitter.of("none") is NO_JITTER


@pytest.mark.parametrize("sigma", [1e-9, 0.3, 1.0, 5.0])
def test_lognorm_has_the_bits_of_scipy(sigma: float) -> None:
    """It is computed without `scipy.stats`, which takes long to import."""
    mine, other = LogNormal(sigma), scipy.stats.lognorm(s=sigma)
    probabilities = np.linspace(0.001, 0.999, 999)
    draws = [law.rvs(size=BLOCK, random_state=np.random.default_rng(7)) for law in (mine, other)]
    assert draws[0].tobytes() == draws[1].tobytes()
    assert mine.ppf(probabilities).tobytes() == other.ppf(probabilities).tobytes()
    assert mine.mean() == other.mean()
    assert mine.support() == other.support()
    assert [mine.cdf(value) for value in (0.0, 0.5, 2.0)] == [other.cdf(value) for value in (0.0, 0.5, 2.0)]


def test_scipys_laws_are_known() -> None:
    assert {"lognorm", "gamma", "weibull_min", "expon", "norm", "truncnorm"} <= set(distributions())


@pytest.mark.parametrize("name", LINKS)
def test_links_say_where_their_values_come_from(name: str) -> None:
    link = LINKS[name]
    assert link.name == name
    if name.startswith(("wan-", "home-")):
        assert 5e-3 < link.latency_s < 0.2  # light needs 5 ms for 1000 km of fibre
        assert 1e6 < link.bytes_per_s < 1e8 * 10
        assert link.variation is not None
        assert any(word in link.variation.provenance for word in ("DERIVED", "INFERENCE"))
    else:
        assert 0 < link.latency_s < 1e-3
        assert 1e8 < link.bytes_per_s < 1e11
    assert any(word in link.provenance for word in ("FOUND", "MEMORY", "measured"))


def test_a_message_alone_takes_latency_and_size_over_bandwidth() -> None:
    assert LINKS["eth-1g"].message_s(110_000_000) == pytest.approx(1.00004)
