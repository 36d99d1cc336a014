"""A partitioned chip computes the same as the whole one (number 2 in docs/invariants.md), in every order of moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, NextStep
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.steps import descend, gradient_at
from paceline.algorithms.core.values import Rank, Samples
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.chip_partitioned import ChipPartitionedSgd, part_of
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.workloads import build
from paceline.workloads.sampling import positions, stream_start

PARTS = st.integers(1, 6)


@given(parts=PARTS, spare=st.integers(0, 20), index=st.integers(0, 40), seed=st.integers(0, 99))
def test_parts_are_the_chips_batch_without_a_gap(parts: int, spare: int, index: int, seed: int) -> None:
    whole = Samples(worker=0, workers=1, index=index, count=parts + spare)
    cut = [part_of(replace(whole, worker=part, workers=parts)) for part in range(parts)]
    counts = [part.count for part in cut]
    assert sum(counts) == whole.count
    assert max(counts) - min(counts) <= 1

    def lie(samples: Samples) -> list[int]:
        return list(positions(samples, num_samples=60, seed=seed))

    assert [place for part in cut for place in lie(part)] == lie(whole)
    assert stream_start(cut[0]) == stream_start(whole)
    assert all(stream_start(one) + one.count == stream_start(other) for one, other in pairwise(cut))
    assert stream_start(cut[-1]) + cut[-1].count == stream_start(replace(whole, index=index + 1))


def check_the_whole_batch(method: Callable[..., Any], **options: Any) -> None:
    """The property, to 1e-12 of the scale: sums are taken in another order."""

    @settings(database=None, phases=[Phase.generate])  # a mutation need only be found, not made small
    @given(seed=st.integers(0, 99), parts=PARTS, spare=st.integers(0, 9), steps=st.integers(1, 5))
    def same(seed: int, parts: int, spare: int, steps: int) -> None:
        learner = build("quadratic", dataset=None, learning="quadratic", seed=seed)
        batch = parts + spare
        budget = Budget(samples=steps * batch)
        one_node = [[Rank(rank) for rank in range(parts)]]
        chip = AnyOrder(Job.of(method(**options), one_node, learner, batch=batch, budget=budget))
        whole = AnyOrder(Job.of(SequentialSgd(**options), [[Rank(0)]], learner, batch=batch, budget=budget)).run()
        trace = chip.run(Shuffled(seed))
        assert sum(row.samples for row in trace.updates) == steps * batch == trace.snapshots[-1].samples
        scale = np.abs(whole.weights).max()
        for state in trace.states.values():
            np.testing.assert_allclose(
                state.weights.vector, whole.weights, rtol=0, atol=1e-12 * scale, err_msg="another batch"
            )

    same()


@dataclass(frozen=True, kw_only=True)
class PartsCountAlike(ChipPartitionedSgd):
    """The mistake where parts are unequal: the mean of the parts' means."""

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        rule = self.rule(me.layout.layers)
        while step := (yield from NextStep(state)):
            gradient = yield from gradient_at(state.weights, part_of(step.samples))
            mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=str(step.number))
            state = yield from descend(rule, state, mean, gradient.contribution())
        return state


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}], ids=str)
def test_a_chip_in_parts_is_a_chip(options: dict[str, Any]) -> None:
    """Number 2, with unequal parts; every part ends with the same weights."""
    check_the_whole_batch(ChipPartitionedSgd, **options)


def test_parts_that_count_alike_are_killed() -> None:
    """Number 2 fails, as it must, where the batch cannot be divided."""
    with pytest.raises(AssertionError, match="another batch"):
        check_the_whole_batch(PartsCountAlike)


def test_a_part_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="batch_per_worker: 3 samples do not make 4 parts; give 4 or more"):
        part_of(Samples(worker=0, workers=4, index=0, count=3))


def test_one_chip_is_one_node() -> None:
    nodes = [[Rank(0), Rank(1)], [Rank(2)]]
    (found,) = ChipPartitionedSgd().problems(nodes)
    assert "found 2 nodes; put all workers on one node" in found
    assert ChipPartitionedSgd().problems(nodes[:1]) == []
