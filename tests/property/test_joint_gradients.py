"""A method's simulated numbers do not depend on whether gradients were computed together or one by one.

Where floats are compared: both are float64 and take the same sums, of at most a few hundred terms, in other orders;
1e-10 of the largest number covers that and the few steps after it, and is far below the 1e-3 by which a wrong batch
differs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paceline.algorithms import METHODS
from paceline.algorithms.core.values import Samples
from paceline.algorithms.methods.dynamic_batch import DbsSgd
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads.batches.examples import Examples, LabelledBatch
from paceline.workloads.learners.torch_building import uniform
from paceline.workloads.learners.torch_learner import TorchLearner
from tests.support import FixedTiming, built, job_of, nodes_for, staleness_table
from tests.thorough import FAMILIES, sampled
from tests.thorough import examples as tried

INPUTS, CLASSES, POPULATION = 6, 3, 512
SIX = [[0, 1, 2], [3, 4, 5]]
ACTIVATIONS = st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Softplus])


def examples() -> Examples:
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(POPULATION, INPUTS, generator=source, dtype=torch.float64)
    batch = LabelledBatch(inputs, torch.randint(CLASSES, (POPULATION,), generator=source))
    return Examples(batch, batch.at(slice(0, 32)), CLASSES)


def learner(widths: list[int], activation: type[nn.Module], together: int, seed: int = 1) -> TorchLearner:
    sizes = [INPUTS, *widths, CLASSES]
    layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), activation())]
    module = nn.Sequential(*layers[:-1])
    start = uniform(module, seed)
    return TorchLearner(module, examples(), start, seed=seed, dtype=torch.float64, together=together)


def close(found: torch.Tensor, right: torch.Tensor) -> None:
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-10 * float(right.abs().max()))


@tried(10, 80)
@given(
    widths=st.lists(st.integers(1, 9), max_size=3),
    activation=ACTIVATIONS,
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    together=st.sampled_from([2, 8, 16]),
)
def test_gradients_together_are_those_one_by_one(
    widths: list[int], activation: type[nn.Module], counts: list[int], together: int
) -> None:
    """At different weights, with batches of several sizes mixed."""
    one, many = (learner(widths, activation, most) for most in (1, together))
    vectors = [one.initial() * (1 + 0.1 * place) for place in range(len(counts))]
    samples = [Samples(0, 1, place, count) for place, count in enumerate(counts)]
    answers = zip(many.gradients(vectors, samples), one.gradients(vectors, samples), strict=True)
    for (found, loss), (right, its) in answers:
        close(found, right)
        assert loss == pytest.approx(its, rel=1e-12)


def run(name: str, together: int, widths: list[int], activation: type[nn.Module] = nn.Tanh) -> Trace:
    """Six workers that never end at the same time."""
    method = built(name)
    method = replace(method, interval=2) if isinstance(method, DbsSgd) else method
    job = job_of(method, nodes=nodes_for(method, SIX), steps=9, learner=learner(widths, activation, together))
    timing = FixedTiming(compute=lambda rank, step: 1.0 + 0.125 * ((3 * rank + 7 * step) % 11))
    return simulate_job(job, timing, NoCost(), Schedule(every=3))


def same(one: Trace, many: Trace) -> None:
    assert staleness_table(one) == staleness_table(many)
    assert one.spans == many.spans
    close(many.weights, one.weights)


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
def test_simulated_numbers_of_every_method_are_the_same_either_way(name: str) -> None:
    """Updates and spans exactly, weights up to rounding."""
    same(run(name, 1, [5]), run(name, 8, [5]))


@tried(5, 40)
@given(
    name=st.sampled_from(["sync-sgd", "async-sgd", "k-sync", "layerwise-sgd", "easgd"]),
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=1),
    activation=ACTIVATIONS,
)
def test_simulated_numbers_are_the_same_for_any_module(
    name: str, widths: list[int], activation: type[nn.Module]
) -> None:
    same(run(name, 1, widths, activation), run(name, 8, widths, activation))
