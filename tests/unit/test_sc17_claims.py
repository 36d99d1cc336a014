"""Claims of SC'17: their inputs, the accounting of communication, and the claims that cost no long run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paceline.algorithms.methods.async_elastic import AsyncEasgd
from paceline.papers.core.claim import Effort
from paceline.papers.core.input_files import inputs_of
from paceline.papers.sc17 import gpu_times, knl, learning
from paceline.papers.sc17.claims import CLAIMS

QUICK = Effort(quick=True, seeds=1)


def test_every_claim_of_the_issue_is_there_with_its_inputs() -> None:
    names = {claim.name for claim in CLAIMS}
    assert len(names) == len(CLAIMS) == 25
    known = inputs_of("sc17")
    for claim in CLAIMS:
        assert set(claim.inputs) <= set(known)
    assert {claim.name for claim in CLAIMS if claim.measured} == {"sc17-deterministic", "sc17-three-are-one"}


def test_the_share_of_communication_leaves_out_the_turns_of_others() -> None:
    """A turn of Original EASGD is centre, gradient, weights: its share does not depend on the number of workers, while
    the time fraction `wait` does."""
    few, many = (gpu_times.times(replace(gpu_times.central(), workers=workers)) for workers in (4, 8))
    assert few.original_share == pytest.approx(many.original_share, rel=0.05)
    assert few.waiting_share < many.waiting_share - 5
    assert many.first_factor() == pytest.approx(5 * many.turn_s / many.step1_s)


def test_overlap_shortens_the_turns_of_original_easgd() -> None:
    central = gpu_times.central()
    assert gpu_times.times(replace(central, overlap=True)).turn_s < 0.5 * gpu_times.times(central).turn_s


def test_rho_gives_the_moving_rate_at_the_rate_of_an_entry() -> None:
    method = learning.Entry("async-easgd", 0.4, beta=0.3, workers=4).algorithm
    assert isinstance(method, AsyncEasgd) and method.rho is not None
    assert 4 * method.rho * 0.4 == pytest.approx(0.3)
    assert not hasattr(learning.Entry("async-sgd", 0.4).algorithm, "rho")


def test_times_that_no_seed_reached_decide_nothing() -> None:
    horizon = learning.HORIZON_S
    unknown = learning.ratio([horizon, horizon], [horizon, horizon])
    assert unknown.low < 1 < unknown.high
    known = learning.ratio([0.1, 0.2], [0.05, 0.1])
    assert math.isclose(known.value, 2.0) and math.isclose(known.low, 2.0)


def test_seventeen_copies_of_weights_and_data_fit() -> None:
    """17 · (249.5 + 687) MB are 15.9 GB."""
    assert knl.copies_in_mcdram(QUICK).value == math.floor(16e9 / (4 * 62_378_344 + 687e6)) == 17


def test_more_jitter_and_fewer_cores_for_reductions_cost_efficiency() -> None:
    base = knl.efficiency(4, 64, 0.001, 68, 1, 5)
    assert 90 < base <= 101
    assert knl.efficiency(4, 64, 0.2, 68, 1, 5) < base
    assert knl.efficiency(4, 64, 0.001, 1, 1, 5) <= base + 1e-9
