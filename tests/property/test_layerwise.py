"""Number 36: layer by layer gives the same values as synchronous SGD. The property, and the mutations it must kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import WaitFor
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.delayed import LayerwiseAgd
from paceline.algorithms.methods.layerwise import (
    BucketWeights,
    Landing,
    LayerwiseSgd,
    LayerwiseSgdLazy,
    LayerwiseSgdNextForward,
    land,
)
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled, drawn
from paceline.checking.replay import Recording, replay
from tests.exact import applied
from tests.support import Bowl, job_of

LAYERWISE: list[Callable[..., Method]] = [
    partial(method, bucket=None) for method in (LayerwiseSgd, LayerwiseSgdLazy, LayerwiseSgdNextForward)
]


def check_the_numbers(method: Callable[..., Method]) -> None:
    """Bit for bit, on every worker after every step: each element is summed in the same order either way."""

    @settings(database=None, phases=[Phase.generate])  # a mutation need only be found, not made small
    @given(
        data=st.data(),
        workers=st.integers(1, 3),
        steps=st.integers(1, 3),
        size=st.sampled_from([2, 6]),
        momentum=st.sampled_from([0.0, 0.5]),
        bucket=st.sampled_from([None, 1, 3, 100]),
    )
    def same(data: st.DataObject, workers: int, steps: int, size: int, momentum: float, bucket: int | None) -> None:
        layered, flat = (
            AnyOrder(job_of(one, workers, steps=steps, learner=Bowl(size=size)))
            for one in (method(momentum=momentum, bucket=bucket), SyncSgd(momentum=momentum))
        )
        np.testing.assert_array_equal(layered.run(drawn(data)).weights, flat.run().weights)
        for rank in range(workers):
            found, expected = ([op.weights.vector for op in applied(run, Rank(rank))] for run in (layered, flat))
            np.testing.assert_array_equal(found, expected)

    same()


WITHOUT_DELAY: list[Callable[..., Method]] = [*LAYERWISE, partial(LayerwiseAgd, delay=0)]
IN_BUCKETS: list[Callable[..., Method]] = [partial(method, bucket=2) for method in WITHOUT_DELAY]


@pytest.mark.parametrize("method", [*WITHOUT_DELAY, *IN_BUCKETS])
def test_layer_by_layer_is_the_same_in_value(method: Callable[..., Method]) -> None:
    check_the_numbers(method)


@dataclass(frozen=True, kw_only=True)
class MixesUpLayers(LayerwiseSgdLazy):
    """Records the layers in the order in which their means arrive."""

    @program
    def settle(self, landings: Sequence[Landing]) -> Program[list[BucketWeights]]:
        pieces: dict[int, BucketWeights] = {}
        while missing := [place for place in range(len(landings)) if place not in pieces]:
            for found, _ in (yield from WaitFor([landings[place].mean for place in missing], "any")):
                pieces[missing[found]] = yield from land(landings[missing[found]])
        return list(pieces.values())


@pytest.mark.parametrize("mutation", [MixesUpLayers, partial(LayerwiseAgd, delay=1)])
def test_who_mixes_layers_up_or_does_not_wait_for_them_is_found(mutation: Callable[..., Method]) -> None:
    with pytest.raises(AssertionError):
        check_the_numbers(mutation)


def test_layers_do_come_in_other_orders() -> None:
    """Guards number 36 for the lazy method: means are found alone, and the later before the earlier."""
    runs = [AnyOrder(job_of(LayerwiseSgdLazy(bucket=None), 2, steps=4)).run(Shuffled(seed)) for seed in range(8)]
    found = {outcome for run in runs for outcomes in run.outcomes.values() for outcome in outcomes}
    assert found == {(0,), (1,), (0, 1)}


@pytest.mark.parametrize("method", LAYERWISE)
def test_they_are_replayed_from_their_records(method: Callable[..., Method]) -> None:
    job = job_of(method(), 3, steps=5)
    recorded = AnyOrder(job).run(Shuffled(3))
    again = replay(job, Recording.of_run(recorded))
    np.testing.assert_array_equal(again.weights, recorded.weights)
    assert again.outcomes == recorded.outcomes
