"""The weights of a parameter server (numbers 20, 21 and 23), exactly, and methods as cases of one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.damping import damped
from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.parameter_server import AsyncSgd, Push, Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Chooser, Recorded, Shuffled
from tests.exact import applied
from tests.servers import CREWS, FINDING, ORDERS, RATE, SERVERS, Make, exact_run, exactly
from tests.support import job_of

WORKERS, STEPS = st.integers(1, 4), st.integers(0, 6)
DAMPED = ["async-sgd", "async-msgd", "softsync", "k-async", "k-batch-async"]

# --- numbers 20 and 23: arithmetic -----------------------------------------------------------------------------------

DIVISORS: dict[str, Callable[[int], int]] = {
    "none": lambda _: 1,
    "inverse": lambda lag: lag or 1,
    "inverse-plus-one": lambda lag: lag + 1,
    "exponential": lambda lag: 2**lag,
}
"""η / η(τ), implemented again"""


def check_weights(make: Make, damping: str) -> None:
    """Number 20: from the pushes in the log and the inputs of each update, by fractions, to the last digit.

    With momentum to 1e-12 of numbers about 10: a velocity begins as the float 0.
    """
    more: Any = {} if damping == "none" else {"damping": damping, "damping_base": Fraction(2)}

    @settings(FINDING, max_examples=20)
    @given(order=ORDERS, build_team=CREWS, steps=STEPS)
    def recomputed(order: Chooser, build_team: tuple[int, int], steps: int) -> None:
        method = make(*build_team, **more)
        run = exact_run(method, order, build_team[0], steps)
        pushes = [e.op.value for e in run.log if isinstance(e.op, Send) and isinstance(e.op.value, Push)]
        sent = {(push.origin.rank, push.origin.step): push.vector for push in pushes}
        x = run.job.learner.initial()
        velocity = 0 * x
        for update in applied(run, Rank(build_team[0])):
            lags = [update.weights.version - source.version for source in update.inputs]
            terms = [sent[source.rank, source.step] for source in update.inputs]
            total = sum(term / DIVISORS[damping](lag) for term, lag in zip(terms, lags, strict=True))
            velocity = Fraction(method.momentum) * velocity - RATE * total / len(terms)
            x = x + velocity
            assert (abs(update.weights.vector - x) <= (1e-12 if method.momentum else 0)).all(), "the weights are others"

    recomputed()


@pytest.mark.parametrize("name", [name for name in SERVERS if name != "dc-asgd"])  # test_compensated has that one
def test_the_servers_weights_are_the_start_less_what_was_applied(name: str) -> None:
    check_weights(SERVERS[name], SERVERS[name](1, 1).damping if name in DAMPED else "none")


@pytest.mark.parametrize("name", ["async-sgd", "softsync", "k-async"])
@pytest.mark.parametrize("damping", ["inverse", "inverse-plus-one", "exponential"])
def test_the_weights_follow_from_the_staleness_where_it_damps(name: str, damping: str) -> None:
    check_weights(SERVERS[name], damping)


@dataclass(frozen=True, kw_only=True)
class Sums(KBatchAsync):
    """The mistake: the sum of the gradients, not their mean."""

    def weighed(self, push: Push, version: int) -> Any:
        return self.needed(1) * super().weighed(push, version)


@dataclass(frozen=True, kw_only=True)
class CountsFromOne(AsyncSgd):
    """The mistake: the other form of the inverse, α/(τ + 1) for α/τ."""

    def weighed(self, push: Push, version: int) -> Any:
        return damped(push.vector, version - push.origin.version, "inverse-plus-one")


@pytest.mark.parametrize(
    ("make", "damping"), [(exactly(Sums, k=lambda _, number: number + 1), "none"), (exactly(CountsFromOne), "inverse")]
)
def test_wrong_arithmetic_is_killed(make: Make, damping: str) -> None:
    """Number 20 fails on a sum in place of a mean, and number 23 on the one form in place of the other."""
    with pytest.raises(AssertionError, match="the weights are others"):
        check_weights(make, damping)


def test_the_two_forms_of_damping_differ_at_1() -> None:
    """Number 23: α/τ treats τ = 0 and τ = 1 alike, α/(τ + 1) does not; both are α at 0 and below it from 2 on."""
    one, third = Fraction(1), Fraction(1, 3)
    base: Any = Fraction(3)
    assert [damped(one, lag, "inverse") for lag in range(4)] == [1, 1, one / 2, third]
    assert [damped(one, lag, "inverse-plus-one") for lag in range(4)] == [1, one / 2, third, one / 4]
    assert [damped(one, lag, "exponential", base) for lag in range(4)] == [1, third, third**2, third**3]


# --- number 21: one as a case of another -----------------------------------------------------------------------------


def rows_of(run: AnyOrder) -> list[tuple[int, ...]]:
    return [(row.rank, row.step, row.version_read, row.version_applied) for row in run.trace.updates]


@given(seed=st.integers(0, 999), workers=WORKERS, steps=st.integers(0, 12), momentum=st.sampled_from([0.0, 0.9]))
def test_one_gradient_an_update_is_asynchronous_sgd(seed: int, workers: int, steps: int, momentum: float) -> None:
    """Number 21: n = λ without damping, and K = 1, are async-sgd bit for bit, in the same moves."""
    plain = AnyOrder(job_of(AsyncSgd(momentum=momentum), workers, steps=steps))
    plain.run(Shuffled(seed))
    for method in (
        Softsync(n=workers, damping="none", momentum=momentum),
        KBatchAsync(k=1, momentum=momentum),
        KAsync(k=1, momentum=momentum),
    ):
        same = AnyOrder(job_of(method, workers, steps=steps))
        same.run(Recorded(entry.move for entry in plain.log))
        np.testing.assert_array_equal(same.trace.weights, plain.trace.weights)
        assert rows_of(same) == rows_of(plain)


@given(order=ORDERS, workers=WORKERS, steps=STEPS)
def test_who_waits_for_everybody_is_synchronous(order: Chooser, workers: int, steps: int) -> None:
    """Number 21: with no pull before the own gradient is applied, λ gradients an update are hardsync, exactly."""
    hard = exact_run(SyncSgdPs(learning_rate=RATE), Shuffled(1), workers, steps)  # type: ignore[arg-type]
    for method in (
        KAsync(learning_rate=RATE, k=workers),  # type: ignore[arg-type]
        KSync(learning_rate=RATE, k=workers),  # type: ignore[arg-type]
        BackupWorkers(learning_rate=RATE, backups=0),  # type: ignore[arg-type]
    ):
        run = exact_run(method, order, workers, steps)
        assert {row.staleness for row in run.trace.updates} <= {0}
        assert (run.trace.weights == hard.trace.weights).all()


def test_1_softsync_is_not_hardsync() -> None:
    """Number 21: as many gradients in an update, but an early worker has pulled the old weights again."""
    soft = exact_run(Softsync(learning_rate=RATE, n=1), Shuffled(0), 4, 20)  # type: ignore[arg-type]
    hard = exact_run(SyncSgdPs(learning_rate=RATE), Shuffled(0), 4, 20)  # type: ignore[arg-type]
    assert {row.staleness for row in soft.trace.updates} > {0, 1}
    assert (soft.trace.weights != hard.trace.weights).all()
