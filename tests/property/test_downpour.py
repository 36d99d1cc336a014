"""Downpour SGD: pushes, fetches and local steps, exactly and in every order of moves."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.operations import Gradient, Receive, Send
from paceline.algorithms.core.values import Rank, Weights
from paceline.algorithms.methods.downpour import Downpour
from paceline.algorithms.methods.parameter_server import AsyncSgd, ServerStopped
from paceline.algorithms.methods.pull_on_demand import Packet
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Chooser, Shuffled, drawn
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.exact import ExactBowl, applied
from tests.support import FixedTiming, job_of

PERIOD, WORKERS, STEPS = st.integers(1, 4), st.integers(1, 3), st.integers(0, 6)
ANSWERS: list[Literal["after", "before"]] = ["after", "before"]
ETA = Fraction(1, 10)


def exact_run(choose: Chooser, workers: int, steps: int, **given_: Any) -> AnyOrder:
    method: Any = Downpour(learning_rate=ETA, **given_)  # type: ignore[arg-type]
    run = AnyOrder(job_of(method, workers, steps=steps, learner=ExactBowl()))
    run.run(choose)
    return run


def test_pushing_and_fetching_every_step_is_async_sgd_bit_for_bit() -> None:
    """Times, bytes, updates and weights."""
    times = np.random.default_rng(5).uniform(0.5, 2.0, (4, 40))
    timing = FixedTiming(compute=lambda rank, step: float(times[rank, step % 40]))
    pour, free = (
        simulate_job(job_of(method, 4, steps=60), timing, fixed_costs(message_s=0.05), Schedule(1))
        for method in (Downpour(n_push=1, n_fetch=1), AsyncSgd())
    )
    assert pour.spans == free.spans
    assert pour.updates == free.updates
    np.testing.assert_array_equal(pour.weights, free.weights)


@given(data=st.data(), workers=WORKERS, steps=STEPS, n_push=PERIOD, n_fetch=PERIOD, answer=st.sampled_from(ANSWERS))
def test_the_server_subtracts_the_sums_of_the_gradients(
    data: st.DataObject, workers: int, steps: int, n_push: int, n_fetch: int, answer: Literal["after", "before"]
) -> None:
    """Exactly: every update is that of n_push successive gradients of one worker, each counted once."""
    run = exact_run(drawn(data), workers, steps, n_push=n_push, n_fetch=n_fetch, answer=answer)
    gradients = {
        (entry.move.rank, entry.answer.step): entry.answer for entry in run.log if isinstance(entry.op, Gradient)
    }
    expected: Any = ExactBowl().initial()
    for update in applied(run, Rank(workers)):
        origins = [(one.rank, one.step) for one in update.inputs]
        rank, first = origins[0]
        assert first % n_push == 0
        assert origins == [(rank, first + number) for number in range(n_push)]
        assert [one.version for one in update.inputs] == [gradients[key].version for key in origins]
        expected = expected - ETA * sum(gradients[key].vector for key in origins)
        assert (update.weights.vector == expected).all()
    assert len({(row.rank, row.step) for row in run.trace.updates}) == steps * n_push


@given(data=st.data(), steps=STEPS, n_push=PERIOD, n_fetch=PERIOD, local=st.sampled_from([None, 0, Fraction(1, 3)]))
def test_local_steps_and_fetched_weights(
    data: st.DataObject, steps: int, n_push: int, n_fetch: int, local: Any
) -> None:
    """Each gradient is computed at the last fetched weights, minus the local steps since, exactly."""
    run = exact_run(drawn(data), 2, steps, n_push=n_push, n_fetch=n_fetch, local_learning_rate=local)
    eta = ETA if local is None else local
    for rank in (Rank(0), Rank(1)):
        held: Any = ExactBowl().initial()
        for entry in run.log:
            if entry.move.rank != rank or entry.op is None:
                continue
            if isinstance(entry.op, Receive) and isinstance(entry.answer.value, Weights):
                held = entry.answer.value.vector
            elif isinstance(entry.op, Gradient):
                assert (entry.op.weights.vector == held).all()
                held = held - eta * entry.answer.vector


@pytest.mark.parametrize(("answer", "lag"), [("after", 0), ("before", 1)])
def test_the_answer_holds_ones_own_push_or_not(answer: Literal["after", "before"], lag: int) -> None:
    """With one worker, an answer from before its push is one update old when the next push lands."""
    run = exact_run(Shuffled(0), 1, 5, n_push=2, n_fetch=2, answer=answer)
    assert [row.staleness for row in run.trace.updates] == [0, 0] + [lag] * 8


@given(data=st.data(), workers=WORKERS, steps=STEPS, stop=STEPS, n_push=PERIOD, n_fetch=PERIOD)
def test_stopping_loses_no_push(
    data: st.DataObject, workers: int, steps: int, stop: int, n_push: int, n_fetch: int
) -> None:
    """Number 19: every push is applied or stored by the server, also after a resume; versions rise by 1."""
    job = job_of(Downpour(n_push=n_push, n_fetch=n_fetch), workers, steps=steps)
    parts = run_in_parts(job, [min(stop, steps)], lambda: drawn(data))
    rows = [row for part in parts for row in part.updates]
    assert [row.version_applied for row in rows] == [step for step in range(steps) for _ in range(n_push)]
    for rank in range(workers):
        own = [row.step for row in rows if row.rank == rank]
        assert own == list(range(len(own)))
    assert all(row.staleness >= 0 for row in rows)


@given(data=st.data(), workers=WORKERS, steps=STEPS, n_push=PERIOD, n_fetch=PERIOD)
def test_messages_are_conserved(data: st.DataObject, workers: int, steps: int, n_push: int, n_fetch: int) -> None:
    """Number 19: applied and stored pushes together are those sent, and every worker gets one final reply."""
    run = exact_run(drawn(data), workers, steps, n_push=n_push, n_fetch=n_fetch)
    sent = Counter(
        entry.move.rank
        for entry in run.log
        if isinstance(entry.op, Send) and isinstance(entry.op.value, Packet) and entry.op.value.origins
    )
    taken = Counter(update.inputs[0].rank for update in applied(run, Rank(workers)))
    kept = Counter(rank for rank, packet in run.trace.states[Rank(workers)].pending if packet.origins)
    assert sent == taken + kept
    goodbyes = [
        entry.op.to for entry in run.log if isinstance(entry.op, Send) and isinstance(entry.op.value, ServerStopped)
    ]
    assert sorted(goodbyes) == list(range(workers))


def test_wrong_periods_are_refused() -> None:
    problems = Downpour(n_push=0, n_fetch=-1, local_learning_rate=-0.1).problems([[Rank(0)]])
    assert [problem.partition(":")[0] for problem in problems] == ["n_push", "n_fetch", "local_learning_rate"]
