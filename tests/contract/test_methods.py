"""Every method in every interpreter: it ends when it should, and keeps its guarantees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method, changed
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.parameter_server import Sharded
from paceline.checking.anyorder import AnyOrder
from paceline.checking.check_guarantees import broken, conserved
from paceline.checking.moves import RoundRobin, Shuffled
from paceline.records.trace import Trace
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
from tests.thorough import FAMILIES, SIMILAR, WAYS, extra, sampled


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


SEVERAL_SERVERS = [name for name, method in METHODS.items() if issubclass(method, Sharded)]


@pytest.mark.parametrize("servers", [2, extra(3)])
@every_pair(SEVERAL_SERVERS, ["sync-sgd-ps", "async-sgd"])
def test_several_servers_do_what_every_method_does(interpreter: Interpreter, name: str, servers: int) -> None:
    several_servers_do_what_every_method_does(interpreter, changed(built(name), servers=servers), servers)


@pytest.mark.parametrize("servers", [2, extra(3)])
def test_servers_that_exchange_layer_by_layer_do_what_every_method_does(interpreter: Interpreter, servers: int) -> None:
    method = changed(built("sync-sgd-ps"), servers=servers, layerwise=True)
    several_servers_do_what_every_method_does(interpreter, method, servers)


def several_servers_do_what_every_method_does(interpreter: Interpreter, method: Method, servers: int) -> None:
    """Each makes all updates of its part of the weights, and every version of the whole weights is evaluated once."""
    job = job_for(method)
    trace = interpreter(job)
    per_update = job.method.samples_per_step(1, job.workers)
    check_all(
        {
            "it runs to its budget": lambda: it_runs_to_its_budget(job, trace),
            "no gradient is applied twice, or before it is computed": lambda: gradients_are_applied_once(trace),
            "the clock never goes back": lambda: the_clock_never_goes_back(job, trace),
            "it keeps its promises": lambda: it_keeps_its_promises(job, trace),
            "all versions are evaluated": lambda: every_version_is_evaluated(trace),
            "each shard has all updates": lambda: each_shard_has(trace, servers, STEPS * per_update),
        }
    )


def every_version_is_evaluated(trace: Trace) -> None:
    assert [shot.version for shot in trace.snapshots] == list(range(STEPS + 1))
    np.testing.assert_array_equal(trace.snapshots[-1].vector, trace.weights)


def each_shard_has(trace: Trace, servers: int, gradients: int) -> None:
    by_shard = Counter(row.layer for row in trace.layers)
    assert list(by_shard.values()) == [gradients] * servers
    assert max(Counter((row.layer, row.rank, row.step) for row in trace.layers).values()) == 1


def it_does_nothing_on_an_empty_budget(interpreter: Interpreter, name: str) -> None:
    job = job_for(built(name), steps=0)
    trace = interpreter(job)
    assert trace.updates == []
    np.testing.assert_array_equal(trace.weights, job.learner.initial())


@pytest.mark.parametrize("name", METHODS)
def test_it_is_sync_sgd_only_where_it_says_so(name: str) -> None:
    """On losses of different curvature, over as many samples; methods with equal results are not checked in vain.

    With workers that take turns eager-sgd and sync-dbs-sgd are sync-sgd, so their moves are in another order, and
    sync-dbs-sgd looks at the batches after every step.
    """
    method = changed(built(name), interval=1) if name == "sync-dbs-sgd" else built(name)
    job = job_of(method, steps=8, nodes=nodes_for(method), learner=Uneven())
    trace = AnyOrder(job).run(Shuffled(0) if name in ("eager-sgd", "sync-dbs-sgd") else RoundRobin())
    alike = method.guarantees & {Guarantee.SAME_AS_SYNC_SGD} or name == "sync-sgd" or method.alone
    assert (broken(job, trace, [Guarantee.SAME_AS_SYNC_SGD]) == []) == bool(alike)


WITH_ADAM: dict[str, dict[str, Any]] = {
    "async-msgd": {"momentum": 0.0},
    "async-measgd": {"momentum": 0.0},
    "eamsgd": {"momentum": 0.0},
    "hsgd": {"momentum": 0.0, "lars": None},
}
"""what a scenario has to write besides `optimizer: adamw`, as the errors say"""
WITHOUT_ADAM = {"sasgd": "a round ends with a step of SGD", "demo": "demo has an update rule of its own"}
"""methods that refuse it, and why"""


@pytest.mark.parametrize(
    ("name", "optimizer"),
    sampled([(name, rule) for name in METHODS for rule in ("adamw", "adam")],
            lambda pair: pair[1] == "adamw" or pair[0] in WAYS),
)  # fmt: skip
def test_every_method_takes_steps_of_adam_or_says_why_not(name: str, optimizer: Any) -> None:
    """Its guarantees hold in any order of moves, and its weights are others than with SGD."""
    given = {"optimizer": optimizer, "learning_rate": 0.05, **WITH_ADAM.get(name, {})}
    method = changed(built(name), **given)
    nodes = nodes_for(built(name), UNLIKE)
    said = method.problems([[Rank(rank) for rank in node] for node in nodes])
    if name in WITHOUT_ADAM:
        assert [text.startswith("optimizer: found") and WITHOUT_ADAM[name] in text for text in said] == [True]
        return
    assert said == []
    job = job_of(method, steps=STEPS, nodes=nodes, learner=Uneven())
    trace = AnyOrder(job).run(Shuffled(3))
    it_runs_to_its_budget(job, trace)
    gradients_are_applied_once(trace)
    it_keeps_its_promises(job, trace)
    plain = job_of(changed(method, optimizer="sgd"), steps=STEPS, nodes=nodes, learner=Uneven())
    assert np.abs(trace.weights - AnyOrder(plain).run(Shuffled(3)).weights).max() > 1e-3


@pytest.mark.parametrize("name", WITH_ADAM)
def test_the_errors_say_what_to_write_for_adam(name: str) -> None:
    method: Any = METHODS[name]
    nodes = [[Rank(rank) for rank in node] for node in nodes_for(built(name))]
    said = method(optimizer="adamw").problems(nodes)
    wanted = {key: "null" if value is None else "0" for key, value in WITH_ADAM[name].items()}
    assert {text.partition(":")[0]: text.rpartition(": ")[2] for text in said} == wanted


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
    assert trace.snapshots[-1].samples == job.samples_in(steps), "this run ends with an average"
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
