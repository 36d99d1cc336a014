"""Gradients in flight: which are computed, how many at once, and how long their inputs are kept."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.algorithms import find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.compute import GradientsInFlight
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.workloads import build
from paceline.workloads.batches.examples import Examples, LabelledBatch
from paceline.workloads.learners.torch_building import uniform
from paceline.workloads.learners.torch_learner import RECORDED_AFTER, TorchLearner
from paceline.workloads.models.tensor_recording import recorded
from tests.support import Bowl, FixedTiming, job_of

POPULATION = 4096


class Looks(nn.Module):
    """A module that `vmap` refuses, because it reads values."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs)
        return outputs if float(outputs.sum()) > 0 else 2 * outputs


def learner(module: nn.Module, together: int | None = None) -> TorchLearner:
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(POPULATION, 8, generator=source, dtype=torch.float64)
    batch = LabelledBatch(inputs, torch.randint(2, (POPULATION,), generator=source))
    examples = Examples(batch, batch.at(slice(0, 32)), 2)
    return TorchLearner(module, examples, uniform(module, 1), seed=1, dtype=torch.float64, together=together)


def mlp(width: int = 64) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))


def simulated(name: str, learner: Any, workers: int, steps: int) -> Trace:
    timing = FixedTiming(compute=lambda rank, step: 1.0 + 0.01 * ((5 * rank + 3 * step) % 97))
    job = job_of(find(name)(), workers, steps=steps, learner=learner)
    return simulate_job(job, timing, NoCost(), Schedule(every=10**9))


def test_what_is_recorded_has_the_same_bits() -> None:
    """The digits' model is really recorded, and a block after it has the same result."""
    one, other = (build("digits-mlp", seed=1) for _ in range(2))
    samples = [Samples(worker, 8, 0, 4) for worker in range(8)]
    vectors = [one.initial() * (1 + worker / 8) for worker in range(8)]
    for _ in range(RECORDED_AFTER + 1):
        one.gradients(vectors, samples)
    (repeated,) = one._joint._recorded.values()  # type: ignore[attr-defined]
    assert repeated is not one._joint._eager  # type: ignore[attr-defined]
    for (found, loss), (right, its) in zip(
        one.gradients(vectors, samples), other.gradients(vectors, samples), strict=True
    ):
        assert torch.equal(found, right) and loss == its


def test_the_rule_goes_by_weights_and_work() -> None:
    """Weights up to 512 KiB, and 16 million operations: one more sample exceeds the limit."""
    assert [learner(mlp(width)).together for width in (64, 2500, 6000)] == [32, 16, 1]
    found = learner(mlp(400))  # 2 (8 × 400 + 400 × 2) = 8,000 operations a sample
    assert [found._pays(count) for count in (2000, 2001)] == [True, False]
    assert learner(mlp(400), together=32)._pays(2001)


def test_what_looks_at_numbers_is_not_recorded() -> None:
    def looks(x: Tensor) -> tuple[Tensor]:
        return (x if x.sum().item() > 0 else -x,)

    assert recorded(looks, torch.ones(2)) is looks


def test_buffers_are_taken_as_they_are_when_it_is_repeated() -> None:
    buffer = torch.ones(2)
    plus = recorded(lambda x: (x + buffer,), torch.zeros(2))
    buffer += 1
    assert plus(torch.zeros(2))[0].tolist() == [2.0, 2.0]


def test_a_module_that_vmap_refuses_is_computed_one_by_one() -> None:
    torch.manual_seed(0)
    module = Looks()
    samples = [Samples(worker, 8, 0, 4) for worker in range(8)]
    one, many = learner(module, 1), learner(module)
    pairs = zip(many.gradients([one.initial()] * 8, samples), one.gradients([one.initial()] * 8, samples), strict=True)
    assert all(torch.equal(found, right) and loss == its for (found, loss), (right, its) in pairs)
    with pytest.raises(InputError, match="vmap: found 'on'"):
        learner(module).choose("on")


@pytest.mark.parametrize("loss", [F.cross_entropy, lambda outputs, labels: F.mse_loss(outputs[..., 0], labels * 1.0)])
def test_the_loss_may_be_any(loss: Any) -> None:
    one, many = learner(mlp(), 1), learner(mlp(), 8)
    one.loss = many.loss = loss
    samples = [Samples(worker, 8, 0, 4) for worker in range(8)]
    for (found, _), (right, _) in zip(
        many.gradients([one.initial()] * 8, samples), one.gradients([one.initial()] * 8, samples), strict=True
    ):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-12)


class Counting(Bowl):
    """Counts what is computed."""

    computed = 0

    def gradients(self, vectors: Sequence[Any], samples: Sequence[Samples]) -> list[tuple[Any, float]]:
        Counting.computed += len(vectors)
        return super().gradients(vectors, samples)


def test_a_gradient_that_is_given_up_in_time_is_not_computed() -> None:
    Counting.computed = 0
    flight = GradientsInFlight(Counting())
    first, second, third = (flight.begin(Bowl().initial(), Samples(worker, 3, 0, 1)) for worker in range(3))
    flight.give_up(second)
    assert Counting.computed == 0
    flight.end(first)
    flight.end(third)
    assert Counting.computed == 2
    flight.give_up(third)  # has been computed: nothing happens


def alive(size: int) -> int:
    """Returns the bytes of all referenced vectors of this size or blocks of them, with shared memory counted once."""
    gc.collect()
    found: dict[int, int] = {}
    for one in gc.get_objects():
        if type(one) is Tensor and one.numel() >= size:
            store = one.untyped_storage()
            found[store.data_ptr()] = store.nbytes()
    return sum(found.values())


class Weighing(TorchLearner):
    """Measures the memory once, when gradients have been computed for the third time."""

    most, calls = 0, 0

    def gradients(self, vectors: Sequence[Tensor], samples: Sequence[Samples]) -> list[tuple[Tensor, float]]:
        answers = super().gradients(vectors, samples)
        self.calls += 1
        if self.calls == 3:
            self.most = alive(self.layout.size)
        return answers


@pytest.mark.parametrize("name", ["async-sgd", "sync-sgd"])
def test_a_worker_holds_its_weights_its_last_gradient_and_its_next(name: str) -> None:
    """256 workers: no more than three vectors each, two blocks, and a few of the server's or of the sum."""
    plain = learner(mlp(width=400))
    weighing = Weighing(plain.module, plain.examples, plain.initial(), seed=1, dtype=torch.float64, together=32)
    before = alive(plain.layout.size)
    simulated(name, weighing, 256, 3 * 256 if name == "async-sgd" else 4)
    vectors = (weighing.most - before) / plain.initial().nbytes
    assert 2 * 256 <= vectors <= 3 * 256 + 2 * 32 + 8


def test_an_answer_keeps_no_block_alive() -> None:
    found = learner(mlp(), 32)
    samples = [Samples(worker, 32, 0, 4) for worker in range(32)]
    for vector, _ in found.gradients([found.initial()] * 32, samples):
        assert vector.untyped_storage().nbytes() == found.initial().nbytes
