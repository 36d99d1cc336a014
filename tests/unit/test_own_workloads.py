"""A user's own workload: module, data and loss from a function, seeded, tried before it runs, trained by any method."""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget
from paceline.algorithms.core.values import Samples
from paceline.checking.anyorder import AnyOrder
from paceline.scenarios import ScenarioError, load
from paceline.workloads import build, find_model, num_samples, problems

SOURCE = '''
import random

import numpy as np
import torch
from torch import nn

from paceline.workloads.batches.examples import Examples, LabelledBatch

points = np.random.default_rng(0).normal(size=(60, 4))
kinds = (points[:, 0] > 0).astype(np.int32)
heights = points @ np.array([1.0, -2.0, 0.5, 0.0])


def halves(labels):
    return (points[:40], labels[:40]), (points[40:], labels[40:])


def net(outputs=2):
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def classes():
    return net(), halves(kinds)


def regression():
    return net(1), halves(heights)


def regression_in_single():
    return net(1), halves(heights.astype("float32"))


def own_loss():
    def logistic(outputs, labels):
        return nn.functional.softplus(-(2 * labels - 1) * outputs[:, 0]).mean()

    return net(1), halves(kinds), logistic


def examples():
    (inputs, labels), held_out = ([torch.tensor(part) for part in half] for half in halves(heights))
    return net(1), Examples(LabelledBatch(inputs, labels), LabelledBatch(*held_out), None)


def wants_seed(seed):
    module = nn.Linear(4, 2)
    nn.init.constant_(module.weight, float(seed))
    return module, halves(kinds)


def draws():
    return nn.Linear(4, 2), halves((torch.rand(60).numpy() + np.random.rand(60) + random.random() > 1.5).astype(int))


def digits_net():
    return nn.Linear(64, 10), (64,)


def digits_pictures():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 10))


def tokens():
    words = torch.arange(60).remainder(7).reshape(20, 3)
    module = nn.Sequential(nn.Embedding(7, 5), nn.Flatten(), nn.Linear(15, 7))
    return module, ((words, words[:, 0]), (words, words[:, 0]))


def small_bytes():
    return nn.Linear(4, 2), ((points[:40] > 0, kinds[:40]), (points[40:] > 0, kinds[40:]))


def normed():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), halves(kinds)


class Branching(nn.Module):
    """Looks at a number, which cannot be done for many batches at once."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x) if x.sum().item() > -1e9 else self.inner(-x)


def branching():
    return Branching(), halves(kinds)


def dropout():
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)), halves(kinds)


class Noisy(nn.Linear):
    """Draws without a module, and only in training."""

    def forward(self, x):
        return super().forward(x + torch.randn_like(x) if self.training else x)


def noisy():
    return Noisy(4, 2), halves(kinds)


class Skipping(nn.Module):
    """A block that is left out for some samples, as in networks with stochastic depth, and a leaky unit that draws."""

    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.unit = nn.RReLU()

    def forward(self, x):
        x = self.first(x)
        kept = (torch.rand(len(x), 1) < 0.7) / 0.7 if self.training else 1.0
        return self.last(self.unit(x + kept * self.block(x)))


def skipping():
    return Skipping(), halves(kinds)


def transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 4)), layer, nn.Flatten(), nn.Linear(4, 2)), halves(kinds)


class Always(nn.Linear):
    """A dropout that evaluations have, too."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5))


def always():
    return Always(4, 2), halves(kinds)
'''
WRONG = """
import sys

import numpy as np
import torch
from torch import nn

from mine import halves, kinds, heights, net


class OtherNoise(nn.Linear):
    def forward(self, x):
        return super().forward(x + float(np.random.rand()))


def other_noise():
    return OtherNoise(4, 2), halves(kinds)


class OwnNoise(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.own = torch.Generator()

    def forward(self, x):
        return super().forward(x + torch.rand(len(x), 1, generator=self.own))


def own_noise():
    return OwnNoise(), halves(kinds)


class NoisyBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return slope * torch.rand_like(slope)


class Back(nn.Linear):
    def forward(self, x):
        return NoisyBack.apply(super().forward(x))


def noisy_back():
    return Back(4, 2), halves(kinds)


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def counting():
    return Counting(), halves(kinds)


def in_place():
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2)), halves(kinds)


def frozen():
    module = net()
    module[0].weight.requires_grad_(False)
    return module, halves(kinds)


class Unused(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.more = nn.Linear(3, 3)


def unused():
    return Unused(), halves(kinds)


def empty():
    return nn.ReLU(), halves(kinds)


def few_scores():
    return nn.Linear(4, 1), halves(kinds)


def unfitting():
    return nn.Linear(5, 2), halves(kinds)


def mean_of_none():
    return net(), halves(kinds), nn.CrossEntropyLoss(reduction="none")


def odd_labels():
    return net(3), halves(heights)


def fails_with_two(seed):
    if seed == 2:
        raise KeyError("two")
    return net(), halves(kinds)


def fails():
    raise KeyError("my own mistake")


def leaves():
    sys.exit("enough")


def number():
    return 3


def text_for_loss():
    return net(), halves(kinds), "mse"


def unequal():
    return net(), (halves(kinds)[0], (halves(kinds)[1][0], kinds))


def no_pairs():
    return net(), {"train": 1}


def without_data():
    return net()


thing = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes the functions above to files; returns the name of one of them, as a scenario has it."""
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return lambda name: f"{tmp_path}/mine.py:{name}"


def first(count: int = 8) -> Samples:
    return Samples(worker=0, workers=1, index=0, count=count)


def descended(built: Any, steps: int = 60, rate: float = 0.2) -> Any:
    weights = built.initial()
    for index in range(steps):
        data = built.load(Samples(worker=0, workers=1, index=index, count=20))
        weights = weights - rate * built.gradient(weights, data)[0]
    return weights


@pytest.mark.parametrize("name", ["classes", "own_loss", "normed", "branching", "small_bytes", "tokens", "wants_seed"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_what_a_function_returns_is_learned(mine: Callable[[str], str], name: str, precision: Any) -> None:
    built = build(mine(name), seed=1, dtype=precision)
    before, after = built.evaluate(built.initial()), built.evaluate(descended(built))
    assert after.loss < before.loss
    assert (before.accuracy is None) is (name == "own_loss"), "one score a sample is none of two classes"
    assert str(built.initial().dtype) == f"torch.{precision}"


@pytest.mark.parametrize("name", ["regression", "regression_in_single", "examples"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_labels_that_are_no_classes_have_a_squared_error_and_no_accuracy(
    mine: Callable[[str], str], name: str, precision: Any
) -> None:
    built = build(mine(name), seed=1, dtype=precision)
    start = built.initial()
    data = built.load(first())
    outputs = torch.func.functional_call(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(start.dtype),
        dict(zip(["0.weight", "0.bias", "2.weight", "2.bias"], parts(start), strict=True)),
        (data.inputs,),
    )
    assert built.gradient(start, data)[1] == pytest.approx(((outputs[:, 0] - data.labels) ** 2).mean().item(), rel=1e-6)
    after = built.evaluate(descended(built))
    assert after.accuracy is None
    assert after.loss < 0.2 * built.evaluate(start).loss


def parts(start: torch.Tensor) -> list[torch.Tensor]:
    one, two, three, four = start.split([32, 8, 8, 1])
    return [one.view(8, 4), two, three.view(1, 8), four]


def test_learning_starts_where_the_module_was_made(mine: Callable[[str], str]) -> None:
    torch.manual_seed(5)
    layers = [torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)]
    wanted = torch.cat([parameter.detach().reshape(-1) for layer in layers for parameter in layer.parameters()])
    single, double = (build(mine("classes"), seed=5, dtype=size) for size in ("float32", "float64"))
    assert torch.equal(single.initial(), wanted)
    assert torch.equal(double.initial(), wanted.double())
    assert not torch.equal(build(mine("classes"), seed=6).initial(), wanted)


def test_functions_with_a_seed_argument_get_it_and_global_generators_stay(mine: Callable[[str], str]) -> None:
    seen = []
    for build_between in (True, False):
        torch.manual_seed(9)
        np.random.seed(9)  # noqa: NPY002  # the old generator, which users still draw from
        random.seed(9)
        if build_between:
            assert float(build(mine("wants_seed"), seed=3).initial()[0]) == 3.0
            build(mine("draws"), seed=3)
        seen.append((float(torch.rand(1)), np.random.rand(), random.random()))  # noqa: NPY002
    assert seen[0] == seen[1]


def numbers_of(name: str) -> list[float]:
    built = build(name, seed=2)
    return [*built.initial().tolist(), *built.load(first(32)).labels.tolist()]


def test_what_is_drawn_is_the_same_in_every_process(mine: Callable[[str], str]) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(numbers_of, (mine("draws"),)) == numbers_of(mine("draws"))


def test_a_module_may_take_a_data_set_by_name(mine: Callable[[str], str]) -> None:
    flat = build(mine("digits_net"), dataset="digits", seed=1, dtype="float64")
    pictures = build(mine("digits_pictures"), dataset="digits", seed=1, dtype="float64")
    known = build("digits-mlp", seed=1, dtype="float64")
    assert flat.num_samples == pictures.num_samples == 1437
    assert torch.equal(flat.load(first()).inputs, known.load(first()).inputs)
    assert pictures.load(first()).inputs.shape == (8, 1, 8, 8)
    assert (pictures.evaluate(descended(pictures)).accuracy or 0.0) > 0.5
    assert num_samples(mine("digits_net"), dataset="digits", data_dir=None, learning="none") == 1437


def test_a_model_with_data_can_be_traced_for_catalogue_devices(mine: Callable[[str], str]) -> None:
    model = find_model(mine("classes"))
    assert (model.parameters, model.num_samples) == (58, 40)
    assert model.layout() == build(mine("classes"), seed=1).layout
    assert find_model(mine("tokens")).parameters == 35 + 7 * 16


def test_batch_normalisation_goes_by_the_batch_alone(mine: Callable[[str], str]) -> None:
    built = build(mine("normed"), seed=1, dtype="float64")
    start = built.initial()
    before = built.gradient(start, built.load(first()))[0]
    built.gradient(start + 1.0, built.load(first(20)))
    built.evaluate(start + 2.0)
    assert torch.equal(built.gradient(start, built.load(first()))[0], before)


def test_a_module_that_cannot_be_batched_is_computed_one_by_one(mine: Callable[[str], str]) -> None:
    samples = [Samples(worker=worker, workers=8, index=0, count=2) for worker in range(8)]
    for name, batched in (("branching", False), ("classes", True)):
        learner = build(mine(name), seed=1)
        start = learner.initial()
        (one, _), (other, _), *_ = learner.gradients([start] * 8, samples)
        assert (learner.together > 1) is batched  # type: ignore[attr-defined]
        torch.testing.assert_close(one, learner.gradient(start, learner.load(samples[0]))[0])
        assert not torch.equal(one, other)


RANDOM = ["dropout", "noisy", "skipping", "transformer", "always"]


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_of_a_gradient_depend_on_seed_and_samples_alone(mine: Callable[[str], str], name: str) -> None:
    """In any order, together, layer by layer and in another process's learner; and the global generator stays."""
    steps = [Samples(worker, 4, index, 5) for index in range(3) for worker in range(4)]
    built: Any = build(mine(name), seed=1, dtype="float64")
    start = built.initial()
    torch.manual_seed(7)
    state = torch.get_rng_state()
    found = [built.gradient(start, built.load(one))[0] for one in steps]
    assert torch.equal(torch.get_rng_state(), state)
    other: Any = build(mine(name), seed=1, dtype="float64")
    torch.manual_seed(8)
    for one, wanted in reversed(list(zip(steps, found, strict=True))):
        other.evaluate(start)
        assert torch.equal(other.gradient(start, other.load(one))[0], wanted)
    for wanted, (joint, _) in zip(found, other.gradients([start] * len(steps), steps), strict=True):
        assert torch.equal(joint, wanted)
    parts: dict[str, torch.Tensor] = {}
    other.layer_gradients(start, other.load(steps[0]), lambda layer, part: parts.update({layer: part.clone()}))
    assert torch.equal(torch.cat([parts[layer.name] for layer in other.layout.layers]), found[0])
    with pytest.raises(InputError, match=r"workload.vmap: found 'on', expected auto or off: the module draws random"):
        build(mine(name), seed=1, vmap="on")


@pytest.mark.parametrize("name", RANDOM)
def test_each_step_each_worker_and_each_seed_has_its_own_random_numbers(mine: Callable[[str], str], name: str) -> None:
    learner: Any = build(mine(name), seed=1, dtype="float64")
    start, data = learner.initial(), learner.load(first(5))
    found = []
    for samples in (first(5), Samples(0, 1, 1, 5), Samples(1, 2, 0, 5), Samples(0, 1, 0, 4)):
        same = type(data).of(data, samples)  # the same inputs, as another batch
        found.append(learner.gradient(start, same)[0])
    learner.seed = 2
    found.append(learner.gradient(start, data)[0])
    assert len({tuple(one.tolist()) for one in found}) == len(found)


def test_a_dropout_has_the_right_mean_and_evaluations_have_none(mine: Callable[[str], str]) -> None:
    """Inverted dropout: the mean of the outputs over all masks is the output without one."""
    learner: Any = build(mine("dropout"), seed=1, dtype="float64")
    start, data = learner.initial(), learner.load(first(10))
    outputs: list[torch.Tensor] = []

    def kept(answers: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        outputs.append(answers.detach())
        return answers.sum()

    learner.loss = kept
    for index in range(2000):
        learner.gradient(start, type(data).of(data, Samples(0, 1, index, 10)))
    drawn = torch.stack(outputs)
    plain = learner.module.eval()(data.inputs)
    error = drawn.std(dim=0) / len(outputs) ** 0.5
    assert bool(((drawn.mean(dim=0) - plain).abs() < 5 * error).all()), "five standard errors"
    assert float(drawn.std(dim=0).min()) > 0
    fresh: Any = build(mine("dropout"), seed=1, dtype="float64")
    test = fresh.examples.test
    wanted = torch.nn.functional.cross_entropy(plain.new_tensor(learner.module(test.inputs).tolist()), test.labels)
    assert fresh.evaluate(start).loss == pytest.approx(float(wanted), rel=1e-12)


@pytest.mark.parametrize("name", RANDOM)
def test_what_draws_random_numbers_learns(mine: Callable[[str], str], name: str) -> None:
    built: Any = build(mine(name), seed=1)
    before = built.evaluate(built.initial())
    after = descended(built, steps=100)
    assert built.evaluate(after).loss < before.loss
    assert built.evaluate(after) == built.evaluate(after)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("other_noise", "it answers the same samples otherwise the second time; expected a function of weights and"),
        ("own_noise", "alone, or random numbers in the forward pass from torch's generator"),
        ("noisy_back", "the gradient of its parameter weight is otherwise the second time"),
        ("counting", "it changes its buffer calls"),
        ("in_place", "it changes its inputs in place"),
        ("frozen", "its parameter 0.weight needs no gradient"),
        ("unused", "its loss does not depend on its parameter more.weight"),
        ("empty", "it has no parameters"),
        ("few_scores", "it answers with 1 scores a label, expected one for each of 2 classes"),
        ("unfitting", "it fails on a batch of 32 samples of 4: RuntimeError: mat1 and mat2"),
        ("mean_of_none", "the loss is a tensor of 32, expected one number"),
        ("odd_labels", "it fails on a batch of 32 samples of 4: ValueError: found answers of 32 × 3 for labels of 32"),
        ("fails", "it fails with KeyError: 'my own mistake' (line "),
        ("leaves", "it fails with SystemExit: enough"),
        ("number", "it returns int; expected a function that returns a torch.nn.Module"),
        ("text_for_loss", "it returns Sequential, tuple, str; expected"),
        ("unequal", "it returns 20 inputs and 60 labels to be held out"),
        ("no_pairs", "it returns data that are no ((inputs, labels), (inputs, labels))"),
        ("thing", "it fails with TypeError"),
        ("nothing", "found no nothing in"),
    ],
)
def test_what_cannot_be_trained_is_told(mine: Callable[[str], str], name: str, words: str, tmp_path: Path) -> None:
    (line,) = problems(f"{tmp_path}/wrong.py:{name}", dataset=None, learning="train")
    assert line.startswith("model: ")
    assert words in line


def test_what_fails_with_one_seed_only_is_told(mine: Callable[[str], str], tmp_path: Path) -> None:
    name = f"{tmp_path}/wrong.py:fails_with_two"
    assert problems(name, dataset=None, learning="train") == []
    with pytest.raises(InputError, match="cannot be trained with seed 2: it fails with KeyError: 'two'"):
        build(name, seed=2)


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (
            "mine.py:classes",
            {"dataset": "digits"},
            "dataset: found 'digits', expected none: mine.py:classes brings data",
        ),
        ("mine.py:classes", {"data_dir": "x"}, "data_dir: found 'x', expected none: mine.py:classes brings data"),
        ("wrong.py:without_data", {}, "dataset: missing; expected one of digits, mnist, "),
        (
            "wrong.py:without_data",
            {"dataset": "digits"},
            "cannot be trained: it fails on a batch of 32 samples of 1 × 8 × 8",
        ),
        (
            "mine.py:digits_net",
            {"dataset": "mnist"},
            "dataset: found 'mnist' (1 × 28 × 28, 10 classes) for mine.py:digits_net",
        ),
        (
            "mine.py:digits_net",
            {"dataset": "digit"},
            "dataset: found 'digit', expected digits, sentences, records (did you mean digits?)",
        ),
    ],
)
def test_data_and_model_have_to_agree(
    mine: Callable[[str], str], model: str, given: dict[str, str], words: str
) -> None:
    (line,) = problems(model, **{"dataset": None, "learning": "train", **given})  # type: ignore[arg-type]
    assert words in line


SCENARIO = """
name: own
algorithms: [sync-sgd, async-sgd]
workload: {{model: "mine.py:{name}", batch_per_worker: 5, dtype: float64}}
cluster: {{nodes: [{{device: {{name: a, overhead: 4 ms, per_sample: 1 ms}}, workers_per_node: 4}}]}}
train: {{pace: none}}
stop: {{epochs: 4}}
"""


@pytest.fixture
def scenario(mine: Callable[[str], str], tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(SCENARIO.format(name=name), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", ["classes", "regression"])
def test_a_scenario_is_simulated_and_again_from_what_is_stored(scenario: Callable[[str], Path], name: str) -> None:
    runs = paceline.simulate(load(scenario(name)))
    again = paceline.simulate(load(runs[0].scenario))
    evaluations = runs[0].tables.evaluations
    assert evaluations.equals(again[0].tables.evaluations)
    assert evaluations["loss"].iloc[-1] < 0.95 * evaluations["loss"].iloc[0]
    assert evaluations["accuracy"].isna().all() == (name == "regression")


@pytest.mark.backend
@pytest.mark.parametrize("name", ["classes", "regression"])
def test_a_real_run_learns_the_same(scenario: Callable[[str], Path], name: str) -> None:
    chosen = load(scenario(name), algorithms=["sync-sgd"])
    (virtual,), (real,) = paceline.simulate(chosen), paceline.train(chosen)
    ends = [run.tables.evaluations["loss"].iloc[-1] for run in (virtual, real)]
    assert ends[1] == pytest.approx(ends[0], rel=1e-12)


@pytest.mark.parametrize("name", ["dropout", "skipping"])
def test_two_engines_draw_the_same_random_numbers(scenario: Callable[[str], Path], name: str) -> None:
    """Virtual time, and any order without a clock; a batch of them is not computed at once either."""
    (plan,) = load(scenario(name), algorithms=["sync-sgd"]).plans()
    trace = AnyOrder(dataclasses.replace(plan.job, budget=Budget(samples=20 * 8))).run()
    (run,) = paceline.simulate(load(scenario(name), ["stop={samples: 160}"], algorithms=["sync-sgd"]))
    after = plan.job.learner.evaluate(trace.weights)
    assert run.tables.evaluations["loss"].iloc[-1] == pytest.approx(after.loss, rel=1e-12)


@pytest.mark.backend
@pytest.mark.parametrize("name", ["dropout", "skipping"])
def test_a_real_run_draws_the_same_random_numbers(scenario: Callable[[str], Path], name: str) -> None:
    chosen = load(scenario(name), algorithms=["sync-sgd", "layerwise-sgd"])
    for virtual, real in zip(paceline.simulate(chosen), paceline.train(chosen), strict=True):
        ends = [run.tables.evaluations["loss"].iloc[-1] for run in (virtual, real)]
        assert ends[1] == pytest.approx(ends[0], rel=1e-12)


def test_mistakes_are_told_with_the_scenarios_others(scenario: Callable[[str], Path]) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(scenario("classes"), ["workload.model=wrong.py:frozen", "stop.epochs=-1"])
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert re.match(r"classes.yaml: workload.model: '.*wrong.py:frozen' cannot be trained: its parameter 0", lines[0])


ATTENTION = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 50, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.layer(self.embedding(x)))


def separate():
    return Net(False), torch.empty(8, dtype=torch.int64)


def tied():
    return Net(True), torch.randint(0, 50, (8,))
"""


def test_a_traced_model_has_all_parameters_of_its_module_once(tmp_path: Path) -> None:
    path = tmp_path / "attention.py"
    path.write_text(ATTENTION)
    layer = 4 * 16 * 17 + 2 * 32 + 2 * 16 * 32 + 32 + 16  # attention, two normalisations, two linear layers
    assert find_model(f"{path}:separate").parameters == layer + 2 * 800
    shared = find_model(f"{path}:tied")
    assert shared.parameters == layer + 800
    assert [each.name for each in shared.layers][:2] == ["embedding", "layer.self_attn"]
    assert "head" not in [each.name for each in shared.layers]
