"""NoLoCo: its pairs, its outer step, what it conserves, and its limits, in every order of moves."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.method import Method, build_team
from paceline.algorithms.core.operations import Receive, Send
from paceline.algorithms.core.values import Layout, Null, Rank
from paceline.algorithms.methods.local_sgd import DiLoCo
from paceline.algorithms.methods.noloco import NoLoCo, RoundChange
from paceline.algorithms.methods.periodic import KAvg
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, first
from tests.exact import Apart, ExactBowl, UnlikeBowl, ends
from tests.support import job_of

HALF: Any = Fraction(1, 2)
ONE: Any = Fraction(1)
TENTH: Any = Fraction(1, 10)
NOTHING: Any = Fraction(0)
SEEDS, PERIODS, STEPS = st.integers(0, 999), st.integers(1, 4), st.integers(1, 9)
SHARES = st.fractions(0, 1, max_denominator=8)


@dataclass(frozen=True, kw_only=True)
class NoLoCoApart(Apart, NoLoCo):
    """NoLoCo from different places."""


def run_of(method: Method, workers: int, steps: int, seed: int | None = None, learner: Any = None) -> AnyOrder:
    run = AnyOrder(job_of(method, workers, steps=steps, learner=learner or UnlikeBowl()))
    run.run(first if seed is None else Shuffled(seed))
    return run


# --- pairs -----------------------------------------------------------------------------------------------------------


@given(workers=st.integers(2, 17), number=st.integers(0, 99), seed=st.integers(0, 99))
def test_peers_are_pairs_and_one_is_left_over_of_an_odd_number(workers: int, number: int, seed: int) -> None:
    method = NoLoCo(seed=seed)
    team = build_team(method, [[Rank(rank)] for rank in range(workers)], Layout(()))
    peers = {me.rank: method.peer(me, number) for me in team}
    alone = [rank for rank, peer in peers.items() if peer is None]
    assert len(alone) == workers % 2
    assert all(peers[peer] == rank != peer for rank, peer in peers.items() if peer is not None)


def test_all_pairs_meet() -> None:
    method = NoLoCo()
    team = build_team(method, [[Rank(rank)] for rank in range(5)], Layout(()))
    met = {frozenset((me.rank, method.peer(me, number))) for me in team for number in range(60)}
    assert {frozenset(pair) for pair in combinations(range(5), 2)} <= met


@given(seed=SEEDS, workers=st.integers(2, 5), period=PERIODS, steps=STEPS)
def test_a_round_has_one_message_to_the_peer_and_one_back(seed: int, workers: int, period: int, steps: int) -> None:
    run = run_of(NoLoCo(period=period), workers, steps, seed, ExactBowl())
    sent = [(e.move.rank, e.op.to) for e in run.log if isinstance(e.op, Send)]
    asked = [(e.op.source, e.move.rank) for e in run.log if isinstance(e.op, Receive)]
    assert len(sent) == steps // period * (workers - workers % 2)
    assert sorted(sent) == sorted(asked)


# --- the outer step --------------------------------------------------------------------------------------------------


@given(
    seed=SEEDS, workers=st.integers(2, 5), period=PERIODS, steps=STEPS, momentum=SHARES, rate=SHARES,
    pull=st.fractions(0, 2, max_denominator=8),
)  # fmt: skip
def test_without_gradients_the_mean_is_kept(
    seed: int, workers: int, period: int, steps: int, momentum: Any, rate: Any, pull: Any
) -> None:
    """Exactly, from different places, for any numbers, also of an odd number of workers."""
    method = NoLoCoApart(
        inner="sgd", learning_rate=NOTHING, period=period, outer_learning_rate=rate, outer_momentum=momentum, pull=pull
    )
    run = run_of(method, workers, steps, seed, ExactBowl())
    start = [method.begin(me, run.job.learner.initial()).weights.vector for me in run.job.team]
    assert (ends(run).sum(axis=0) == np.sum(start, axis=0)).all()


@given(period=PERIODS, workers=st.integers(1, 3).map(lambda half: 2 * half), seed=SEEDS)
def test_a_pull_of_one_makes_slow_weights_of_a_pair_equal(period: int, workers: int, seed: int) -> None:
    """Without momentum and gradients both take the mean of the two."""
    method = NoLoCoApart(inner="sgd", learning_rate=NOTHING, outer_momentum=NOTHING, pull=ONE, period=period)
    run = run_of(method, workers, period, seed, ExactBowl())
    found = ends(run)
    for me in run.job.team:
        peer = method.peer(me, 0)
        assert (found[int(me.rank)] == HALF * (me.rank**2 + peer**2) + run.job.learner.initial()).all()  # type: ignore[operator]


def test_the_outer_step_is_the_stated_rule() -> None:
    """Two rounds of four workers, from the messages that they sent, exactly."""
    rate, momentum, pull = Fraction(7, 10), Fraction(1, 2), Fraction(9, 10)
    options: dict[str, Any] = {"outer_learning_rate": rate, "outer_momentum": momentum, "pull": pull}
    method = NoLoCoApart(inner="sgd", learning_rate=TENTH, period=2, **options)
    run = run_of(method, 4, 4, 5)
    rounds: dict[int, list[Any]] = {rank: [] for rank in range(4)}
    for entry in run.log:
        if isinstance(entry.op, Send):
            rounds[int(entry.move.rank)].append(entry.op.value)
    velocity: dict[int, Any] = dict.fromkeys(range(4), 0 * run.job.learner.initial())
    for number in range(2):
        for me in run.job.team:
            rank, peer = int(me.rank), int(method.peer(me, number))  # type: ignore[arg-type]
            own, other = rounds[rank][number], rounds[peer][number]
            change, middle = (own.change + other.change) * HALF, (own.start + other.start) * HALF
            velocity[rank] = momentum * velocity[rank] - rate * change - pull * (own.start - middle)
            after = own.start + velocity[rank]
            found = rounds[rank][1].start if number == 0 else ends(run)[rank]
            assert (found == after).all()


@pytest.mark.parametrize("rate", [0.3, 0.7])
def test_the_default_pull_is_the_outer_rate(rate: float) -> None:
    options: dict[str, Any] = {"period": 2, "outer_learning_rate": rate}
    runs = [run_of(NoLoCoApart(**options, pull=pull), 4, 6, learner=None) for pull in (None, rate)]
    assert (ends(runs[0]) == ends(runs[1])).all()


# --- limits ----------------------------------------------------------------------------------------------------------


@given(seed=SEEDS, period=PERIODS, steps=STEPS, rate=SHARES, pull=st.sampled_from([0.0, 0.7, 1.5]))
def test_two_workers_without_outer_momentum_are_diloco(
    seed: int, period: int, steps: int, rate: Any, pull: float
) -> None:
    """Bit for bit in float64, with AdamW inside and any pull: both hold the same slow weights."""
    options: dict[str, Any] = {"period": period, "outer_learning_rate": 0.1 + float(rate), "outer_momentum": 0.0}
    ours = AnyOrder(job_of(NoLoCo(pull=pull, **options), 2, steps=steps))
    theirs = AnyOrder(job_of(DiLoCo(weight_decay=0.0, **options), 2, steps=steps))
    ours.run(Shuffled(seed))
    theirs.run()
    assert ends(ours).tobytes() == ends(theirs).tobytes()


@given(seed=SEEDS, period=PERIODS, steps=STEPS)
def test_two_workers_without_an_outer_optimiser_are_k_avg(seed: int, period: int, steps: int) -> None:
    method = NoLoCo(
        inner="sgd", learning_rate=TENTH, period=period, outer_learning_rate=ONE, outer_momentum=NOTHING, pull=NOTHING
    )
    assert (ends(run_of(method, 2, steps, seed)) == ends(run_of(KAvg(k=period, learning_rate=TENTH), 2, steps))).all()


def test_more_workers_are_not_diloco() -> None:
    """Guards the limits above: with four workers, slow weights differ, and the pull matters."""
    options: dict[str, Any] = {"period": 2, "outer_momentum": 0.0, "inner": "sgd", "learning_rate": 0.1}
    pulled, free = (ends(four_workers(NoLoCo(pull=pull, **options))) for pull in (0.7, 0.0))
    assert np.abs(pulled - free).max() > 1e-4
    assert np.abs(pulled - ends(four_workers(DiLoCo(**options)))).max() > 1e-4
    assert np.abs(pulled - pulled[0]).max() < np.abs(free - free[0]).max()


def four_workers(method: Method) -> AnyOrder:
    run = AnyOrder(job_of(method, 4, steps=12))
    run.run()
    return run


def test_runs_without_learning_carry_only_sizes() -> None:
    method, x = NoLoCo(), Null(8)
    team = build_team(method, [[Rank(0)], [Rank(1)]], Layout(()))
    state = method.begin(team[0], x)
    assert method.after_pair(state, RoundChange(x, x)) == (x, x)


def test_one_worker_is_refused() -> None:
    (words,) = NoLoCo().problems([[Rank(0)]])
    assert words == "name: found 1 worker, expected 2 or more, since a worker averages with another"
