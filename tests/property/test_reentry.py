"""Stopping anywhere and continuing from the states: a run in parts ends like a run in one part."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method
from paceline.algorithms.methods.layerwise import Agd, LayerwiseAgd, LayerwiseSgdNextForward
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Shuffled
from tests.support import built, job_of, nodes_for
from tests.thorough import examples

STEPS = 12
CASES: list[Method] = [method() for method in METHODS.values() if method().deterministic]
CASES += [
    Agd(delay=3, momentum=0.5),
    LayerwiseAgd(delay=3, bucket=None, momentum=0.5),
    HbsSgd(k1=1, k2=3, momentum=0.5),
]
CASES += [LayerwiseSgdNextForward(momentum=0.5, bucket=None)]


@pytest.mark.parametrize("method", CASES, ids=repr)
@given(seed=st.integers(0, 99), stops=st.sets(st.integers(0, STEPS), max_size=3))
@examples(4, 200)
def test_deterministic_methods_do_not_notice(seed: int, method: Method, stops: set[int]) -> None:
    """Bit for bit, in every rank's weights and every row; with AGD, messages in flight are answered."""
    job = job_of(method, nodes=nodes_for(method, [[0, 1], [2]]), steps=STEPS)
    whole = AnyOrder(job).run()
    parts = run_in_parts(job, sorted(stops), lambda: Shuffled(seed))
    np.testing.assert_array_equal(parts[-1].weights, whole.weights)
    for rank, state in whole.states.items():
        np.testing.assert_array_equal(parts[-1].states[rank].weights.vector, state.weights.vector)
    rows = Counter(
        (u.rank, u.step, u.version_read, u.version_applied, u.staleness) for part in parts for u in part.updates
    )
    assert rows == Counter((u.rank, u.step, u.version_read, u.version_applied, u.staleness) for u in whole.updates)


ORDERED = [name for name, method in METHODS.items() if not method().deterministic]


@pytest.mark.parametrize("name", ORDERED)
@given(seed=st.integers(0, 99), stops=st.sets(st.integers(0, 6), max_size=3))
@examples(4, 100)
def test_others_go_on_where_they_stopped(name: str, seed: int, stops: set[int]) -> None:
    """Versions continue to rise by 1, and no step is applied twice or left out before another of its worker.

    Shared memory is removed in between and filled from the states; no step is lost.
    """
    method = built(name)
    job = job_of(method, nodes=nodes_for(method, [[0, 1], [2]]), steps=6)
    parts = run_in_parts(job, sorted(stops), lambda: Shuffled(seed))
    rows = [row for part in parts for row in part.updates]
    versions = {row.version_applied for row in rows}
    assert all(row.staleness >= 0 for row in rows)
    if method.shared:  # without its lock, two steps may be of one version
        assert len(rows) == 6
        for part, stop in zip(parts, [*sorted(stops), 6], strict=True):
            assert (part.snapshots[-1].version if part.snapshots else stop) == stop
    else:
        assert versions == set(range(len(versions)))
    assert max(Counter((row.rank, row.step) for row in rows).values()) == 1
    if not method.drops_gradients:
        for rank in range(job.workers):
            steps = sorted(row.step for row in rows if row.rank == rank)
            assert steps == list(range(len(steps)))
