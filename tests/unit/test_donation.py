"""Helpers that reuse buffers: a gradient that they have consumed cannot be used, and methods leave memory to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import paceline.algorithms.methods
from paceline.algorithms import (
    Chain,
    Gradient,
    GradientResult,
    Group,
    Load,
    NextStep,
    Program,
    ProgramError,
    Rank,
    RankContext,
    Replica,
    SgdMethod,
    StalenessKind,
    TopK,
    Weights,
    apply_gradient,
    average_compressed,
    average_gradient,
    descend,
    program,
    start_average,
)
from paceline.algorithms.core.program import Lane
from paceline.algorithms.core.steps import average_weights
from paceline.algorithms.methods.baseline import SyncSgd
from tests.contract.interpreters import named
from tests.support import job_of

ROOT = Path(paceline.algorithms.methods.__path__[0])
CONSUMED = "the gradient of step 0 on rank . has been consumed"
Consumer = Callable[[RankContext, Replica, GradientResult], Any]


@dataclass(frozen=True, kw_only=True)
class Careless(SgdMethod):
    """Uses a gradient after a helper has consumed it."""

    name = "careless"
    staleness_kind = StalenessKind.STEPS
    source = "none: a mistake"
    guarantees = frozenset()

    consume: Any = None

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            gradient = yield from Gradient(state.weights, (yield from Load(step.samples)))
            yield from self.consume(me, replace(state, optimizer_state=Chain(()).init(None)), gradient)
            len(gradient.vector)  # raises, so that the next step is not reached
        return state


CONSUMERS: dict[str, Consumer] = {
    "average_gradient": lambda me, _, gradient: average_gradient(gradient, me.workers, "mean"),
    "start_average": lambda me, _, gradient: start_average(gradient, me.workers, "mean"),
    "apply_gradient": lambda _, state, gradient: apply_gradient(Chain(()), state, gradient),
    "average_compressed": lambda me, _, gradient: average_compressed(
        gradient, me.workers, "mean", TopK(), 0 * gradient.vector
    ),
}


@pytest.mark.parametrize("interpreter", ["any-order, shuffled", "simulated, messages cost time"])
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumed_gradient_cannot_be_used(name: str, interpreter: str) -> None:
    job = job_of(Careless(consume=CONSUMERS[name]), nodes=[[0, 1]], steps=1)
    with pytest.raises(ProgramError, match=CONSUMED):
        named(interpreter)(job)


def driven(routine: Any, *answers: Any) -> tuple[list[Any], Any]:
    """The operations of a program that gets these answers, and what it returns."""
    lane = Lane(routine)
    operations = [lane.advance()]
    operations += [lane.advance(answer) for answer in answers]
    assert operations.pop() is None
    return operations, lane.answer


def gradient_of(vector: Any) -> GradientResult:
    return GradientResult(vector, 0, 0.5, 8, Rank(0), 0, 0.01)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_new_weights_lie_in_the_buffer_of_the_gradient(momentum: float) -> None:
    rule, own, weights = SyncSgd(momentum=momentum).rule(()), torch.ones(3), torch.zeros(3)
    state = Replica(0, Weights(weights, 0), rule.init(weights))
    (operation,), mean = driven(average_gradient(gradient_of(own), Group((Rank(0), Rank(1))), "mean"), own)
    assert operation.donate and operation.value is own
    _, after = driven(apply_gradient(rule, state, mean), None, 1)
    assert after.weights.vector.data_ptr() == own.data_ptr()
    assert after.weights.vector.tolist() == pytest.approx([-0.1] * 3)
    assert weights.tolist() == [0.0] * 3


def test_descend_leaves_the_vector_unchanged() -> None:
    rule, vector, weights = SyncSgd().rule(()), torch.ones(3), torch.zeros(3)
    state = Replica(0, Weights(weights, 0), rule.init(weights))
    _, after = driven(descend(rule, state, vector, gradient_of(vector).contribution()), None, 1)
    assert (vector.tolist(), after.weights.vector.tolist()) == ([1.0] * 3, pytest.approx([-0.1] * 3))


def test_weights_are_averaged_in_their_own_buffer() -> None:
    local = Weights(torch.ones(3), 4)
    (operation,), after = driven(average_weights(Replica(3, local), Group((Rank(0),)), "all"), local.vector)
    assert operation.donate and operation.value is local.vector
    assert after.weights.vector is local.vector
    assert (after.step, after.weights.version) == (3, 4)


def test_what_is_not_the_vector_remains() -> None:
    gradient = GradientResult(np.ones(2), 3, 0.5, 8, Rank(1), 0, 0.01)
    gradient.take_vector()
    assert (gradient.loss, gradient.contribution().version) == (0.5, 3)
    assert not hasattr(gradient, "norm")


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.stem)
def test_methods_leave_buffers_to_the_helpers(path: Path) -> None:
    assert not re.findall(r"\b(?:donate|out)=", path.read_text())


@dataclass(frozen=True, kw_only=True)
class UnlikeKeys(Careless):
    """Every rank averages under a key of its own."""

    name = "unlike-keys"

    @program
    def worker(self, me: RankContext, state: Replica) -> Program[Replica]:
        while step := (yield from NextStep(state)):
            batch = yield from Load(step.samples)
            gradient = yield from Gradient(state.weights, batch)
            yield from average_gradient(gradient, me.workers, f"key {me.rank}")
        return state


@pytest.mark.parametrize("interpreter", ["any-order, shuffled", "simulated, messages cost time"])
def test_a_message_names_the_line_of_the_method_and_not_of_the_helper(interpreter: str) -> None:
    with pytest.raises(ProgramError) as caught:
        named(interpreter)(job_of(UnlikeKeys(), 2, steps=1))
    assert str(caught.value).count("tests/unit/test_donation.py") == 2
    assert "algorithms/core" not in str(caught.value)
