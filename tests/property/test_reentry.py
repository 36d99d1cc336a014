"""Stopping anywhere and continuing from the states: a run in parts ends like a run in one part."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.method import Method
from paceline.algorithms.methods.delayed import Agd, LayerwiseAgd
from paceline.algorithms.methods.layerwise import LayerwiseSgdNextForward
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import run_in_parts
from paceline.checking.moves import Shuffled, drawn
from tests.support import job_of, nodes_for
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
@examples(8, 200)
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


@given(data=st.data(), stops=st.sets(st.integers(0, STEPS), max_size=3), workers=st.integers(1, 4))
def test_asynchronous_sgd_goes_on_where_it_stopped(data: st.DataObject, stops: set[int], workers: int) -> None:
    """Versions continue to rise by 1; a push that the stopped server dropped is computed again, so no step is lost."""
    job = job_of(find("async-sgd")(), workers, steps=STEPS)
    rows = [u for part in run_in_parts(job, sorted(stops), lambda: drawn(data)) for u in part.updates]
    assert [u.version_applied for u in rows] == list(range(STEPS))
    for rank in range(workers):
        steps = [u.step for u in rows if u.rank == rank]
        assert steps == list(range(len(steps)))
    assert all(u.staleness >= 0 for u in rows)
