"""Invariants of parameter servers (numbers as in docs/invariants.md), in every order of moves.

Number 25 is in closed_form/test_simulator_waiting.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.operations import Receive, Send
from paceline.algorithms.server import AsyncSgd, Push, Stop
from paceline.algorithms.values import Rank
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, Shuffled
from paceline.checking.strategies import drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter import simulate_job
from paceline.simulator.network import NoCost
from tests.exact import ExactBowl
from tests.support import FixedTiming, job_of

WORKERS, STEPS = st.integers(1, 4), st.integers(0, 10)


def exact_run(choose: Chooser, workers: int, steps: int) -> AnyOrder:
    method: Any = AsyncSgd(rate=Fraction(1, 10))  # type: ignore[arg-type]
    run = AnyOrder(job_of(method, workers, steps=steps, learner=ExactBowl()))
    run.run(choose)
    return run


@given(data=st.data(), workers=WORKERS, steps=STEPS)
def test_messages_are_conserved_and_versions_rise_by_1(data: st.DataObject, workers: int, steps: int) -> None:
    """Number 19: at the end nothing is in flight, so what was sent is applied or was dropped by the stopped server."""
    run = exact_run(drawn(data), workers, steps)
    sent = Counter(e.move.rank for e in run.log if isinstance(e.op, Send) and isinstance(e.op.value, Push))
    goodbyes = [e.op.to for e in run.log if isinstance(e.op, Send) and isinstance(e.op.value, Stop)]
    applied = Counter(row.rank for row in run.trace.updates)
    assert sorted(goodbyes) == list(range(workers))
    assert sent == applied + Counter(goodbyes)
    assert [row.version_applied for row in run.trace.updates] == list(range(steps))
    assert all(row.staleness == row.version_applied - row.version_read >= 0 for row in run.trace.updates)


@given(data=st.data(), workers=WORKERS, steps=STEPS)
def test_the_servers_weights_are_the_start_less_what_was_applied(data: st.DataObject, workers: int, steps: int) -> None:
    """Number 20, exactly: recomputed from the pushes in the order in which the server took them."""
    run = exact_run(drawn(data), workers, steps)
    heard = [e.answer.value for e in run.log if isinstance(e.op, Receive) and e.move.rank == Rank(workers)]
    expected = ExactBowl().initial()
    for push in heard[:steps]:
        expected = expected - Fraction(1, 10) * push.vector
    assert (run.trace.weights == expected).all()


@given(data=st.data(), steps=STEPS)
def test_one_worker_has_no_lag(data: st.DataObject, steps: int) -> None:
    """Number 22: push, then pull."""
    assert {row.staleness for row in exact_run(drawn(data), 1, steps).trace.updates} <= {0}


@given(data=st.data(), workers=WORKERS, steps=STEPS)
def test_lags_and_unfinished_rounds_are_all_other_updates(data: st.DataObject, workers: int, steps: int) -> None:
    """Number 24, the identity behind the law: each worker sees all updates of others, in its lags or after its last.

    Σ lag + Σ_i (updates after the last of i) = (λ − 1) · updates, in any order: the mean lag is λ − 1 but for the ends.
    """
    rows = exact_run(drawn(data), workers, steps).trace.updates
    last = {row.rank: row.version_applied + 1 for row in rows}
    after = sum(steps - last.get(Rank(rank), 0) for rank in range(workers))
    assert sum(row.staleness for row in rows) + after == (workers - 1) * steps


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("law", ["equal", "uniform", "unlike"])
def test_the_mean_lag_is_one_less_than_the_workers(workers: int, law: str) -> None:
    """Number 24 in virtual time, for any speeds; O(λ²/updates) remains, from the rounds cut off at the end.

    A worker's last round is cut off by at most (λ − 1) · (its step / the shortest step) updates of others, which is
    4 (λ − 1) here, and λ workers have one: the mean falls short by at most 4 λ (λ − 1) / updates.
    """
    updates = 2000
    drawn_s = np.random.default_rng(3).uniform(0.5, 2.0, size=(workers, updates + 2))
    times: dict[str, Any] = {
        "equal": 1.0,
        "uniform": lambda rank, step: float(drawn_s[rank, step]),
        "unlike": lambda rank, _step: 0.5 + 1.5 * rank / (workers - 1),
    }
    job = job_of(AsyncSgd(), workers, steps=updates)
    trace = simulate_job(job, FixedTiming(compute=times[law]), NoCost(), Schedule(every=updates))
    lags = [row.staleness for row in trace.updates]
    assert len(lags) == updates
    assert 0 <= (workers - 1) - np.mean(lags) <= 4 * workers * (workers - 1) / updates


def test_a_starved_worker_is_never_heard() -> None:
    """Guards the laws above: orders really differ, from fair to as unfair as can be."""
    starved = exact_run(Adversary(Rank(0)), 3, 30).trace.updates
    fair = exact_run(Shuffled(0), 3, 30).trace.updates
    assert Rank(0) not in {row.rank for row in starved}
    assert Rank(0) in {row.rank for row in fair}
