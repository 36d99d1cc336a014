"""Every method in every interpreter: it ends when it should, and keeps its guarantees."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import Guarantee
from paceline.checking.anyorder import AnyOrder
from paceline.checking.check_guarantees import broken, conserved
from paceline.checking.moves import RoundRobin, Shuffled
from paceline.testing.contract.methods import (
    gradients_are_applied_once,
    it_keeps_its_promises,
    it_runs_to_its_budget,
    the_clock_never_goes_back,
)
from paceline.testing.contract.programs import Interpreter
from tests.contract.cases import STEPS, job_for
from tests.contract.interpreters import BY_DEFAULT, REAL, SHUFFLED, every_interpreter
from tests.exact import still
from tests.folded import check_all
from tests.support import UNLIKE, Uneven, built, job_of, nodes_for
from tests.thorough import FAMILIES, SIMILAR, WAYS


def in_turn(name: str) -> bool:
    """Whether `make test` starts real processes here; test_replay does for families whose order of arrival varies."""
    return name in WAYS or (name in FAMILIES and name not in SIMILAR and built(name).deterministic)


STARTED = [name for name in METHODS if in_turn(name)]


def every_pair(names: Iterable[str] = METHODS, real: Collection[str] = STARTED) -> pytest.MarkDecorator:
    """Methods in interpreters; `make test` starts real processes for some, and shuffles moves of one of each family."""
    pairs = []
    for name in names:
        keep = BY_DEFAULT - (set() if name in real else {REAL}) - (set() if name in FAMILIES else {SHUFFLED})
        pairs += every_interpreter(keep.__contains__, name)
    return pytest.mark.parametrize(("interpreter", "name"), pairs, indirect=["interpreter"])


def promising(*guarantees: Guarantee) -> pytest.MarkDecorator:
    """Methods with one of these guarantees; `make test` starts real processes for one of each way of communicating."""
    names = [name for name, method in METHODS.items() if method.guarantees & set(guarantees)]
    return every_pair(names, [name for name in names if name in WAYS] or names[:1])


@every_pair()
def test_it_does_what_every_method_does(interpreter: Interpreter, name: str) -> None:
    job = job_for(built(name))
    trace = interpreter(job)
    check_all(
        {
            "it runs to its budget": lambda: it_runs_to_its_budget(job, trace),
            "no gradient is applied twice, or before it is computed": lambda: gradients_are_applied_once(trace),
            "the clock never goes back": lambda: the_clock_never_goes_back(job, trace),
            "it keeps its promises": lambda: it_keeps_its_promises(job, trace),
            "it does nothing on an empty budget": lambda: it_does_nothing_on_an_empty_budget(interpreter, name),
        }
    )


def it_does_nothing_on_an_empty_budget(interpreter: Interpreter, name: str) -> None:
    job = job_for(built(name), steps=0)
    trace = interpreter(job)
    assert trace.updates == []
    np.testing.assert_array_equal(trace.weights, job.learner.initial())


@pytest.mark.parametrize("name", METHODS)
def test_it_is_sync_sgd_only_where_it_says_so(name: str) -> None:
    """On losses of different curvature, over as many samples; methods with equal results are not checked in vain.

    With workers that take turns eager-sgd is sync-sgd, so its moves are in another order.
    """
    method = built(name)
    job = job_of(method, steps=8, nodes=nodes_for(method), learner=Uneven())
    trace = AnyOrder(job).run(Shuffled(0) if name == "eager-sgd" else RoundRobin())
    alike = method.guarantees & {Guarantee.SAME_AS_SYNC_SGD} or name == "sync-sgd" or method.alone
    assert (broken(job, trace, [Guarantee.SAME_AS_SYNC_SGD]) == []) == bool(alike)


@promising(Guarantee.EXACT_DELAY)
@pytest.mark.parametrize("delay", [0, 3])
def test_an_exact_delay_is_the_one_asked_for(interpreter: Interpreter, name: str, delay: int) -> None:
    method: Any = METHODS[name]
    trace = interpreter(job_for(method(delay=delay)))
    assert {row.staleness for row in trace.updates} == {delay}


@promising(Guarantee.REPLICAS_MEET)
@pytest.mark.parametrize("steps", [16, 32])
def test_replicas_meet_where_a_run_ends_with_an_average(interpreter: Interpreter, name: str, steps: int) -> None:
    job = job_for(built(name), steps)
    trace = interpreter(job)
    assert trace.snapshots[-1].samples == steps * job.samples_per_step, "this run ends with an average"
    assert broken(job, trace, [Guarantee.REPLICAS_MEET]) == []


@promising(Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MEAN)
def test_without_gradients_it_conserves_what_it_says(interpreter: Interpreter, name: str) -> None:
    """Number 10 and its like, to 1e-12 of the sum's scale: float64, about a hundred roundings."""
    job = job_of(still(built(name)), steps=STEPS, nodes=nodes_for(built(name), UNLIKE))
    trace = interpreter(job)
    moved = [
        np.abs(trace.states[me.rank].weights.vector - job.method.begin(me, job.learner.initial()).weights.vector).max()
        for me in job.team
    ]
    assert max(moved) > 0.1
    assert conserved(job, trace) == []
