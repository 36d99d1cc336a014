"""Decoupled DiLoCo: its limit, its merges, its quorum and grace window, and its stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import Send
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.decoupled_diloco import DecoupledDiLoCo, FragmentPush, MergedFragment
from paceline.algorithms.methods.ssp import Farewell
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.support import Bowl, FixedTiming, Uneven, job_of


def timed(method: Method, times: Sequence[float], steps: int, learner: Any = None, message_s: float = 0.0) -> Trace:
    """A run in virtual time in which each worker has a fixed time for a step."""
    job = job_of(method, len(times), steps=steps, learner=learner or Bowl())
    timing = FixedTiming(compute=lambda rank, _: times[rank])
    return simulate_job(job, timing, fixed_costs(message_s=message_s), Schedule(1))


@given(
    workers=st.integers(1, 3), fragments=st.integers(1, 2), half=st.integers(1, 3), alpha=st.sampled_from([0.0, 0.5]),
    inner=st.sampled_from(["sgd", "adamw"]),
)  # fmt: skip
def test_equal_learners_and_immediate_messages_are_streaming_diloco(
    workers: int, fragments: int, half: int, alpha: float, inner: Any
) -> None:
    """An answer that is there at once is applied after the next step, as with an overlap of 1."""
    options: dict[str, Any] = {"inner": inner, "period": 2 * half, "fragments": fragments, "alpha": alpha}
    decoupled = timed(DecoupledDiLoCo(**options, quorum=workers), [1.0] * workers, 4, Uneven())
    streamed = timed(StreamingDiLoCo(**options, overlap=1), [1.0] * workers, 4 * 2 * half + 1, Uneven())
    shots = [shot.vector for shot in decoupled.snapshots]
    assert len(shots) == 5
    # the outer weights of streaming-diloco after the last fragment of each round: its version counts local steps too
    expected = [shot.vector for shot in streamed.snapshots]
    for vector in shots:
        assert any(np.allclose(vector, other, rtol=1e-12, atol=1e-12) for other in expected)
    np.testing.assert_allclose(shots[-1], expected[-1], rtol=1e-12, atol=1e-12)


def merges(run: AnyOrder) -> list[tuple[MergedFragment, list[FragmentPush]]]:
    """The merged fragments in their order, each with the pushes of its members."""
    left: dict[tuple[Rank, int], list[FragmentPush]] = {}
    found: list[tuple[MergedFragment, list[FragmentPush]]] = []
    for entry in run.log:
        if not isinstance(entry.op, Send):
            continue
        value = entry.op.value
        if isinstance(value, FragmentPush):
            left.setdefault((entry.move.rank, value.fragment), []).append(value)
        elif isinstance(value, MergedFragment) and entry.op.to == 0:
            found.append((value, [left[rank, value.fragment].pop(0) for rank in sorted(value.members)]))
    return found


@given(
    seed=st.integers(0, 99), workers=st.integers(1, 4), fragments=st.integers(1, 2), grace=st.sampled_from([0.0, 1.0]),
    quorum=st.sampled_from([None, 1, 2]),
)  # fmt: skip
def test_each_merge_follows_the_formula(
    seed: int, workers: int, fragments: int, grace: float, quorum: int | None
) -> None:
    """In every order: a quorum or more, and the weights by samples and samples per step."""
    method = DecoupledDiLoCo(
        inner="sgd", period=2, fragments=fragments, quorum=min(quorum, workers) if quorum else None, grace=grace,
        outer_learning_rate=0.5, outer_momentum=0.25,
    )  # fmt: skip
    run = AnyOrder(job_of(method, workers, steps=4, learner=Uneven()))
    run.run(Shuffled(seed))
    whole = run.job.learner.initial()
    parts = method.parts(run.job.team[0])
    held, velocity = [part.of(whole) for part in parts], [0 * part.of(whole) for part in parts]
    found = merges(run)
    assert [answer.fragment for answer, _ in found] == [*range(len(parts))] * 4
    for answer, pushes in found:
        assert len(pushes) >= method.needed(workers)
        shares = np.array([push.samples**2 / push.steps for push in pushes])
        change = sum(
            share * (held[answer.fragment] - push.vector)
            for share, push in zip(shares / shares.sum(), pushes, strict=True)
        )
        velocity[answer.fragment] = 0.25 * velocity[answer.fragment] + change
        held[answer.fragment] = held[answer.fragment] - 0.5 * (change + 0.25 * velocity[answer.fragment])
        np.testing.assert_allclose(answer.vector, held[answer.fragment], rtol=1e-12, atol=1e-12)
        held[answer.fragment] = answer.vector


@pytest.mark.parametrize(("grace", "members"), [(0.0, {0}), (2.5, {0, 1}), (9.0, {0, 1, 2})])
def test_the_window_decides_who_is_merged(grace: float, members: set[int]) -> None:
    """Steps of 1, 2 and 5 s, one step a round: after the first push the window is so many seconds long."""
    method = DecoupledDiLoCo(inner="sgd", period=1, fragments=1, quorum=1, grace=grace)
    trace = timed(method, (1.0, 2.0, 5.0), 1)
    assert {row.rank for row in trace.updates} == members


def test_a_slow_learner_holds_up_nobody() -> None:
    """Nine times slower: the others make as many rounds as without it, and its work counts when it is there."""
    method = DecoupledDiLoCo(inner="sgd", period=2, quorum=2, grace=0.5)
    alone, beside = (timed(method, times, 20) for times in ((1.0, 1.0), (1.0, 1.0, 9.0)))
    assert beside.wall_s <= alone.wall_s + 20 * 0.5 + 18.0
    assert 2 in {row.rank for row in beside.updates}


@given(seed=st.integers(0, 99), workers=st.integers(1, 3))
def test_every_learner_says_farewell_after_its_last_push(seed: int, workers: int) -> None:
    run = AnyOrder(job_of(DecoupledDiLoCo(period=2), workers, steps=3))
    run.run(Shuffled(seed))
    last = {entry.move.rank: entry.op.value for entry in run.log if isinstance(entry.op, Send)}
    assert all(isinstance(last[Rank(rank)], Farewell) for rank in range(workers))
