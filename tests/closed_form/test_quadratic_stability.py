"""Limits of stability on the quadratic: closed forms beside simulated runs (O5, Q6 to Q8 and Q11).

What elastic averaging adds to them (Q17, Q18) is in tests/property/test_elastic.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi, sin
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.parameter_server import AsyncMsgd, AsyncSgd
from tests.quadratic import Experiment, Finding, limit, named, play
from tests.thorough import sampled


def limit_of(oracle: str, method: SgdMethod, expected: float, *, workers: int = 1, span: float = 0.05) -> Finding:
    """Returns the curvature at which the growth of w crosses 0, among curvatures around the closed form; η = 1, no
    noise.
    """
    curvatures = expected * np.linspace(1 - span, 1 + span, 40)
    slow = 1 - method.momentum
    updates = int(400 / slow + 400 * slow / expected)
    path = play(method, list(curvatures), updates=updates, variance=0.0, workers=workers).path[:, :, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        third, last = (np.abs(part).mean(axis=0) for part in np.array_split(path, 4)[2:])
        growth = np.log(last / third)
    # an overflow means growth; a decayed value consists of rounding errors, which may grow or shrink
    beyond = int(np.argmax(~(growth < 0) & ~(last < 1e-9)))
    measured = np.interp(0.0, growth[beyond - 1 : beyond + 1], curvatures[beyond - 1 : beyond + 1])
    return Finding(
        oracle,
        named(method, *([f"{workers} workers"] if workers > 1 else [])),
        expected,
        float(measured),
        1e-3 * expected,
    )


def q6() -> Iterator[Finding]:
    """Delayed gradient descent is stable iff g < 2 sin(π / (2 (2τ + 1)))."""
    for delay in (0, 1, 2, 4, 8, 16, 31):
        yield limit_of("Q6", Agd(delay=delay, learning_rate=1.0), 2 * sin(pi / (2 * (2 * delay + 1))))


def q7() -> Iterator[Finding]:
    """Delay 1 with heavy ball: g < 1 − μ; longer delays by the roots of the companion matrix."""
    for mu in (0.5, 0.9, 0.95):
        yield limit_of("Q7", Agd(delay=1, learning_rate=1.0, momentum=mu), 1 - mu)
    for delay, mu in ((8, 0.5), (16, 0.9)):
        yield limit_of("Q5, Q7", Agd(delay=delay, learning_rate=1.0, momentum=mu), limit(delay=delay, momentum=mu))
    method = AsyncMsgd(learning_rate=1.0, momentum=0.5)
    yield limit_of("Q7, Q11", method, limit(delay=2, momentum=0.5), workers=3)


def q8() -> Iterator[Finding]:
    """No delay, heavy ball: g < 2 (1 + μ)."""
    for mu in (0.5, 0.9, 0.95):
        yield limit_of("Q8", SequentialSgd(learning_rate=1.0, momentum=mu), 2 * (1 + mu), span=0.002)


def q11() -> Iterator[Finding]:
    """M equal workers in round robin: Q6 at τ = M − 1."""
    for workers in (2, 4, 8):
        expected = 2 * sin(pi / (2 * (2 * workers - 1)))
        yield limit_of("Q11", AsyncSgd(learning_rate=1.0), expected, workers=workers)


EXPERIMENTS: tuple[Experiment, ...] = (q6, q7, q8, q11)


@pytest.mark.parametrize("experiment", sampled(EXPERIMENTS, [q8, q11]))
def test_runs_show_what_is_exact(experiment: Experiment) -> None:
    for finding in experiment():
        assert finding.holds, finding


@pytest.mark.parametrize(("pushed", "momentum"), [(AsyncSgd, 0.0), (AsyncMsgd, 0.5)])
def test_equal_workers_in_turn_are_a_delay_bit_for_bit(pushed: type[AsyncSgd], momentum: float) -> None:
    """Q11 with noise and all: worker r's gradient number i is the sequence's number M i + r, M − 1 updates old."""
    run: dict[str, Any] = {"copies": 50, "batch": 4, "variance": 1.0}
    in_turn = play(pushed(learning_rate=0.1, momentum=momentum), [1.0, 0.5], workers=4, updates=40, **run)
    delayed = play(Agd(learning_rate=0.1, momentum=momentum, delay=3), [1.0, 0.5], updates=43, **run)
    assert [row.staleness for row in in_turn.trace.updates][3:] == [3] * 37
    np.testing.assert_array_equal(in_turn.path[:41], delayed.path[3:44])
