"""Number 57: a deterministic method gives the same result in simulated, any-order and real runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.job import Evaluation, Job, Learner, OneByOne
from paceline.algorithms.core.method import changed
from paceline.algorithms.core.values import Layout, Rank, Samples
from paceline.algorithms.methods.parameter_server import SyncSgdPs
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Shuffled
from paceline.checking.replay import Recording, replay
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import MeasuredNetwork
from paceline.workloads import build
from paceline.workloads.choices import Precision
from paceline.workloads.learners import torch_learner
from tests.backend.jobs import job_with, plain, run_for_real
from tests.folded import check_all
from tests.support import FixedTiming, built, staleness_table
from tests.thorough import WAYS, sampled

pytestmark = pytest.mark.backend

STEPS = 22  # no multiple of k2
FOUR = [[Rank(0), Rank(1)], [Rank(2), Rank(3)]]
DETERMINISTIC = [name for name in METHODS if built(name).deterministic]
# gloo adds in another order, so the last digits may differ: by a rounding or two of each step's sum. In float64 that
# stays far below 1e-12 of the weights' scale (the maximum seen was 4e-16); in float32 one rounding per step is allowed
# (2.6e-6; 1.8e-7 was seen).
TOLERANCE = {"float64": 1e-12, "float32": STEPS * float(np.finfo(np.float32).eps)}
PROBLEMS: list[tuple[str, Precision]] = [("quadratic", "float64"), ("digits-mlp", "float64"), ("digits-mlp", "float32")]


@dataclass(frozen=True)
class Noting(OneByOne):
    """A learner that records which batches were loaded, and a checksum of their content."""

    learner: Learner
    folder: Path

    @property
    def layout(self) -> Layout:
        return self.learner.layout

    @property
    def num_samples(self) -> int:
        return self.learner.num_samples

    def initial(self) -> Any:
        return self.learner.initial()

    def load(self, samples: Samples) -> Any:
        data = self.learner.load(samples)
        parts = data if isinstance(data, tuple) else (data,)
        checksum = zlib.crc32(b"".join(np.asarray(part).tobytes() for part in parts))
        with (self.folder / f"worker{samples.worker}").open("a") as file:
            file.write(f"{samples} {checksum}\n")
        return data

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return self.learner.gradient(vector, data)

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        return self.learner.layer_gradients(vector, data, ready)

    def evaluate(self, vector: Any) -> Evaluation:
        return self.learner.evaluate(vector)


def simulated(job: Job) -> Trace:
    timing = FixedTiming(compute=lambda rank, step: 1.0 + (rank + step) % 3 / 7)
    network = MeasuredNetwork(
        lambda _kind, members, size: 0.5 + 1e-3 * members + 1e-4 * size, lambda size: 0.25 + 1e-4 * size
    )
    return simulate_job(job, timing, network, Schedule(every=5))


def in_any_order(job: Job) -> Trace:
    return AnyOrder(job).run(Shuffled(5))


INTERPRETERS: dict[str, Callable[[Job], Trace]] = {
    "any-order": in_any_order,
    "simulated": simulated,
    "real": run_for_real,
}


@dataclass(frozen=True)
class Outcome:
    """The result of the job in one interpreter."""

    trace: Trace
    batches: dict[str, list[str]]
    """those of each worker, in order"""


@cache
def learner_of(model: str, precision: Precision) -> Learner:
    if model == "digits-mlp":
        return build(model, dataset="digits", learning="train", seed=3, dtype=precision)
    return build(model, dataset=None, learning="quadratic", seed=3)


@pytest.mark.parametrize(
    ("name", "model", "precision"),
    sampled(
        [(name, *problem) for problem in PROBLEMS for name in DETERMINISTIC],
        lambda case: case[0] == "sync-sgd" or (case[0] in WAYS and case[1:] == ("digits-mlp", "float32")),
    ),
)
def test_the_interpreters_agree(name: str, model: str, precision: Precision, tmp_path: Path) -> None:
    """`make test` runs one method of each way of communicating on the digits, and sync-sgd on everything."""
    learner, found = learner_of(model, precision), {}
    for kind, interpret in INTERPRETERS.items():
        folder = tmp_path / kind
        folder.mkdir()
        trace = interpret(job_with(built(name), Noting(learner, folder), steps=STEPS))
        found[kind] = Outcome(trace, {file.name: file.read_text().splitlines() for file in folder.iterdir()})
    check_all(
        {
            "the same weights": lambda: the_same_weights(found, learner, precision),
            "the same batches in the same order": lambda: the_same_batches_in_the_same_order(found),
            "the same updates and staleness": lambda: the_same_updates_and_staleness(found),
            "the same samples at the end": lambda: the_same_samples_at_the_end(found),
        }
    )


@pytest.mark.parametrize(
    "name",
    sampled(
        [name for name in DETERMINISTIC if not changed(built(name), optimizer="adamw").problems(FOUR)],
        ["layerwise-sgd", "sync-sgd-ps"],
    ),
)
def test_the_interpreters_agree_with_adamw(name: str) -> None:
    learner = learner_of("digits-mlp", "float64")
    method = changed(built(name), optimizer="adamw", learning_rate=0.01)
    traces = {kind: interpret(job_with(method, learner, steps=STEPS)) for kind, interpret in INTERPRETERS.items()}
    the_same_weights({kind: Outcome(trace, {}) for kind, trace in traces.items()}, learner, "float64")


@pytest.mark.parametrize("name", sampled(["sync-sgd", "layerwise-sgd", "agd", "sync-sgd-ps"], ["layerwise-sgd"]))
def test_the_interpreters_agree_with_accumulated_gradients(name: str) -> None:
    learner, method = learner_of("digits-mlp", "float64"), changed(built(name), accumulate=3)
    traces = {kind: interpret(job_with(method, learner, steps=STEPS)) for kind, interpret in INTERPRETERS.items()}
    outcomes = {kind: Outcome(trace, {}) for kind, trace in traces.items()}
    the_same_weights(outcomes, learner, "float64")
    the_same_updates_and_staleness(outcomes)
    assert {row.samples for row in traces["real"].updates} == {3 * 16}


@pytest.mark.parametrize(
    ("servers", "layerwise"), sampled([(1, False), (2, False), (4, False), (2, True)], [(4, False), (2, True)])
)
def test_several_servers_are_a_single_server(servers: int, layerwise: bool) -> None:
    """Bit for bit: servers add the gradients of tensors in the order of ranks, whatever part of them they hold."""
    learner = learner_of("digits-mlp", "float64")
    methods = SyncSgdPs(servers=servers, momentum=0.5, layerwise=layerwise), SyncSgdPs(momentum=0.5)
    job, single = (job_with(method, learner, steps=STEPS) for method in methods)
    expected = plain(in_any_order(single).weights)
    for interpret in INTERPRETERS.values():
        trace = interpret(job)
        np.testing.assert_array_equal(plain(trace.weights), expected)
        assert staleness_table(trace) == staleness_table(in_any_order(single))


def the_same_weights(outcomes: dict[str, Outcome], learner: Learner, precision: str) -> None:
    weights = {name: plain(outcome.trace.weights) for name, outcome in outcomes.items()}
    expected = weights["any-order"]
    scale = np.abs(expected).max()
    assert np.abs(expected - plain(learner.initial())).max() > 0.01 * scale, "nothing was learned"
    np.testing.assert_array_equal(weights["simulated"], expected)  # both add in the order of ranks
    np.testing.assert_allclose(weights["real"], expected, rtol=0, atol=TOLERANCE[precision] * scale)


def the_same_batches_in_the_same_order(outcomes: dict[str, Outcome]) -> None:
    expected = outcomes["any-order"].batches
    contents = [line.split()[-1] for batches in expected.values() for line in batches]
    assert len(set(contents)) == len(contents) >= STEPS, "batches must differ, or a swapped pair would not show"
    assert outcomes["simulated"].batches == expected
    assert outcomes["real"].batches == expected


def the_same_updates_and_staleness(outcomes: dict[str, Outcome]) -> None:
    tables = {name: staleness_table(outcome.trace) for name, outcome in outcomes.items()}
    assert len(tables["any-order"]) >= STEPS
    assert tables["simulated"] == tables["any-order"]
    assert tables["real"] == tables["any-order"]


def the_same_samples_at_the_end(outcomes: dict[str, Outcome]) -> None:
    ends = {name: outcome.trace.snapshots[-1] for name, outcome in outcomes.items()}
    assert len({(end.version, end.samples) for end in ends.values()}) == 1


BY_GLOO = {"sync-sgd", "post-local-sgd"}
"""all-reduces among four ranks of two nodes"""


@pytest.mark.parametrize(
    "name",
    sampled([*sorted(BY_GLOO), "async-sgd", "async-easgd", "gossip", "dc-asgd"], ["sync-sgd", "async-sgd"]),
)
def test_a_gradient_whose_parts_lie_apart_is_the_same_in_a_real_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reduced, sent, added and applied; a replay with whole gradients has the same bits."""
    learner = build("digits-mlp", learning="train", seed=3, dtype="float64")
    job = job_with(built(name), learner, steps=STEPS)
    monkeypatch.setattr(torch_learner, "APART_BYTES", 0)
    recorded = run_for_real(job)
    monkeypatch.setattr(torch_learner, "APART_BYTES", 2**62)
    again = replay(job, Recording.of_run(recorded))
    within = TOLERANCE["float64"] if name in BY_GLOO else 0.0
    np.testing.assert_allclose(again.weights, recorded.weights, rtol=0, atol=within)


@pytest.mark.parametrize("name", sampled(["sync-sgd", "layerwise-sgd", "post-local-sgd"], ["layerwise-sgd"]))
def test_a_real_run_weighs_batches_that_differ_as_the_others_do(name: str) -> None:
    job = job_with(built(name), learner_of("digits-mlp", "float64"), steps=STEPS, batch=(6, 20, 9, 13))
    expected, found = simulated(job), run_for_real(job)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=TOLERANCE["float64"])
    assert {(row.rank, row.samples) for row in found.updates} == {(row.rank, row.samples) for row in expected.updates}
