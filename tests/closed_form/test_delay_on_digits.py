"""benchmarks/delay.py: the cost of a delay on the digits has the shape of O6, which another program measured."""

from __future__ import annotations

import numpy as np
import pytest

delay = pytest.importorskip("benchmarks.delay", reason="needs the repository")


def test_a_delay_costs_nothing_and_then_steps() -> None:
    """Of steps to 95 %, by two seeds; the table in docs/results/quadratic.md comes from more of them.

    The network computes in float32, so its rounding depends on the processor. With a delay of 32 it is close to
    instability: whether it reaches 95 % depends on that rounding, that it learns does not. Small delays are compared
    with room for two evaluations, which are 20 steps apart.
    """
    plain, slight, some = (delay.delayed(steps, seeds=2, epochs=8).median(0.95) for steps in (0, 8, 16))
    assert plain < 250
    assert slight < 1.5 * plain
    assert 1.2 * plain < some < 2.2 * plain


@pytest.mark.thorough
def test_a_longer_delay_costs_everything() -> None:
    plain = delay.delayed(0, seeds=2, epochs=8).median(0.95)
    much, most = (delay.delayed(steps, seeds=2, epochs=40) for steps in (32, 64))
    assert much.median(0.95) > 4 * plain
    assert min(much.final) > 0.8
    assert max(most.final) < 0.5


@pytest.mark.thorough
def test_with_the_rate_in_step_twice_the_batch_needs_half_the_steps() -> None:
    """Epochs to 95 % stay the same up to batches of 64 or so."""
    few, more = (delay.batched(batch, rate, seeds=2, epochs=8) for batch, rate in ((16, 0.05), (64, 0.2)))
    assert few.median(0.95) / more.median(0.95) == pytest.approx(4, rel=0.3)
    assert np.isfinite(more.median(0.95))
