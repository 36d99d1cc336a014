"""A lane advances while its own thread computes a gradient layer by layer, as long as it does not have to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import AllReduce, Handle, LayerGradients, Load, Receive, Send, Start, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.backend.local.launch import RankFailed
from paceline.testing.contract.programs import ContractProgram
from tests.backend.jobs import Steps, run_for_real
from tests.support import Bowl, job_of

pytestmark = pytest.mark.backend


@dataclass(frozen=True)
class Slow(Bowl):
    """A learner that needs some time for each layer."""

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            time.sleep(0.2)
            ready(layer.name, gradient[layer.part])
        return loss


@dataclass(frozen=True, kw_only=True)
class Overlapping(ContractProgram):
    """Exchanges each layer as soon as its gradient is ready."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        batch = yield from Load(step.samples)
        means = list[Handle[Any]]()
        for part in (yield from LayerGradients(state.weights, batch)):
            gradient = yield from Wait(part)
            key = f"part {len(means)}"
            means.append((yield from Start(AllReduce(value=gradient.vector, group=me.workers, key=key))))
        found = []
        for mean in means:
            found.append((yield from Wait(mean)))
        return found


@pytest.mark.parametrize("nodes", [[[0, 1]], [[0], [1]]], ids=["one node", "two nodes"])
@pytest.mark.parametrize("pace", [None, Steps((0.4, 0.4))], ids=["as fast as it goes", "paced"])
def test_the_first_exchange_begins_before_the_last_layer_is_done(nodes: list[list[int]], pace: Steps | None) -> None:
    trace = run_for_real(job_of(Overlapping(), nodes=nodes, steps=1, learner=Slow()), pace=pace)
    for rank in (0, 1):
        begun = [
            s.start_s for s in trace.spans if s.activity == "collective" and s.rank == rank and "part 0" in str(s.key)
        ]
        layers = [span.end_s for span in trace.spans if span.activity == "compute" and span.rank == rank]
        assert len(begun) == 1 and len(layers) == 2
        assert min(layers) <= begun[0] < max(layers)
    for one, other in zip(*(trace.states[Rank(rank)].optimizer_state for rank in (0, 1)), strict=True):
        np.testing.assert_array_equal(one, other)


@dataclass(frozen=True, kw_only=True)
class WaitsMeanwhile(ContractProgram):
    """Rank 0 sends after its whole gradient; rank 1 requests the message while its own gradient is being computed."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        batch = yield from Load(step.samples)
        last, first = yield from LayerGradients(state.weights, batch)
        yield from Wait(last)
        if me.rank == 1:
            message = yield from Receive(Rank(0))
            return message.value, (yield from Wait(first)).vector
        yield from Wait(first)
        return (yield from Send(Rank(1), 7))


def test_what_waits_for_others_waits_until_the_layers_are_done() -> None:
    """The message is requested after the first layer and arrives after the last one; there is no deadlock."""
    trace = run_for_real(job_of(WaitsMeanwhile(), 2, steps=1, learner=Slow()), pace=None)
    value, vector = trace.states[Rank(1)].optimizer_state
    assert value == 7 and len(vector) == 2


@dataclass(frozen=True, kw_only=True)
class RaisesMeanwhile(ContractProgram):
    """The program is wrong, which is detected between two layers."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        batch = yield from Load(step.samples)
        last, _ = yield from LayerGradients(state.weights, batch)
        yield from Wait(last)
        raise ValueError("this program is wrong")


@dataclass(frozen=True)
class Broken(Bowl):
    """The backward pass fails after the first layer that it returns."""

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        ready(self.layout.layers[-1].name, vector[self.layout.layers[-1].part])
        raise ArithmeticError("this learner is broken")


@dataclass(frozen=True)
class Stateless(Bowl):
    """The backward pass returns only the last layer."""

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        ready(self.layout.layers[-1].name, vector[self.layout.layers[-1].part])
        return 0.0


@pytest.mark.parametrize(
    ("case", "learner", "said"),
    [
        (RaisesMeanwhile(), Slow(), "this program is wrong"),
        (Overlapping(), Broken(), "this learner is broken"),
        (Overlapping(), Stateless(), "the learner has handed out no gradient of first"),
    ],
    ids=["the program", "the learner", "a layer that is left out"],
)
def test_failures_between_layers_are_told_as_what_they_are(case: ContractProgram, learner: Bowl, said: str) -> None:
    with pytest.raises((RankFailed, ProgramError), match=said):
        run_for_real(job_of(case, 1, steps=1, learner=learner), pace=None)
