"""A gradient whose parts are separate is the same vector as a contiguous one, in every operation."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms import METHODS
from paceline.algorithms.core import arrays
from paceline.algorithms.core.lazy_concat import Unjoined
from paceline.algorithms.core.values import join, norm
from paceline.records.trace import Schedule
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads import build
from paceline.workloads.learners import torch_learner
from tests.support import ONE_NODE, FixedTiming, job_of, nodes_for
from tests.thorough import FAMILIES, sampled

SHAPES: list[tuple[int, ...]] = [(2, 3), (1,), (4,), (2, 1, 2)]


def parts_of(shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def whole_of(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


@given(shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=5), rate=st.floats(-2, 2))
def test_a_step_is_the_same_to_the_bit_and_puts_nothing_together(shapes: list[tuple[int, ...]], rate: float) -> None:
    parts = parts_of(shapes)
    gradient, whole = Unjoined(parts), whole_of(parts)
    weights = torch.linspace(-1, 1, len(whole))
    stepped = arrays.less(weights, rate, gradient, out=gradient)
    assert gradient.apart
    assert torch.equal(stepped, arrays.less(weights, rate, whole))
    assert torch.equal(weights, torch.linspace(-1, 1, len(whole)))


USES: dict[str, Callable[[Any], Any]] = {
    "times a number": lambda v: 2 * v,
    "over a number": lambda v: v / 3,
    "plus a vector": lambda v: v + v,
    "a vector minus it": lambda v: torch.ones(len(v)) - v,
    "a slice": lambda v: v[2:5],
    "its size": abs,
    "its length": norm,
    "end to end with another": lambda v: join([v, torch.zeros(2)]),
    "among others": lambda v: torch.stack([v, torch.zeros(len(v))]),
    "as an array": np.asarray,
    "copied": copy.deepcopy,
    "detached": lambda v: v.detach().contiguous(),
    "pickled": lambda v: pickle.loads(pickle.dumps(v, protocol=5)),
    "written into": lambda v: v.copy_(torch.ones(len(v))),
    "by a rule": lambda v: arrays.largest(v, 3),
    "in words": repr,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_whatever_else_is_asked_is_answered_by_the_whole(use: Callable[[Any], Any]) -> None:
    parts = parts_of(SHAPES)
    gradient = Unjoined(parts)
    found, expected = use(gradient), use(whole_of(parts))
    assert type(found) is type(expected) and not gradient.apart
    np.testing.assert_array_equal(found, expected)


def test_what_is_known_without_the_numbers_puts_nothing_together() -> None:
    gradient, whole = Unjoined(parts_of(SHAPES)), whole_of(parts_of(SHAPES))
    for name in ("nbytes", "dtype", "device", "shape", "requires_grad"):
        assert getattr(gradient, name) == getattr(whole, name)
    assert len(gradient) == len(whole)
    assert gradient.apart


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
def test_every_method_learns_the_same_from_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, simulated."""
    method = METHODS[name]()
    found = []
    for smallest in (0, 2**62):
        monkeypatch.setattr(torch_learner, "APART_BYTES", smallest)
        learner = build("digits-mlp", learning="train", seed=3, vmap="off")
        job = job_of(method, nodes=nodes_for(method, ONE_NODE), steps=3, learner=learner)
        found.append(simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1)).weights)
    assert torch.equal(*found)
