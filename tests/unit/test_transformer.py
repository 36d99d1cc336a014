"""The decoder transformer: its text has the stated probabilities, attention is causal, tables follow from the shape."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch

import paceline
from paceline.algorithms.core.values import Samples
from paceline.scenarios import ScenarioError, load
from paceline.scenarios.resolution.fitted_ranges import outside
from paceline.workloads import MODELS, build, problems
from paceline.workloads.datasets.sentences import ALPHABET, START, grammar, lowest_loss, sentences
from paceline.workloads.learners.torch_learner import _layers
from paceline.workloads.models.decoder import SMALL, decoder
from paceline.workloads.models.decoder_shapes import GPT2_SMALL, GPT3_XL, LLAMA2_7B, DecoderShape, decoder_rows
from paceline.workloads.models.layer_tracing import trace
from paceline.workloads.models.threads import torch_threads


def step(index: int, count: int = 4) -> Samples:
    return Samples(worker=0, workers=1, index=index, count=count)


def test_words_of_a_state_have_probabilities_and_determine_the_next_state() -> None:
    for steps in grammar().values():
        assert sum(one.probability for one in steps) == pytest.approx(1.0, rel=1e-12)
        assert all(one.state in grammar() for one in steps)
        words = sorted(one.word for one in steps)
        assert not any(after.startswith(before) for before, after in pairwise(words))


def test_the_lowest_loss_is_that_of_reading_the_text_by_the_grammar() -> None:
    nats = 0.0
    for tokens in sentences().test:
        text, state = "".join(ALPHABET[token] for token in tokens[1:]), START
        while text:
            whole = [one for one in grammar()[state] if text.startswith(one.word)]
            fits = whole or [one for one in grammar()[state] if one.word.startswith(text)]
            nats -= math.log(sum(one.probability for one in fits))
            text, state = text[len(fits[0].word) :], fits[0].state
    assert lowest_loss() == pytest.approx(nats / (256 * 64), rel=1e-12)


def test_scores_depend_on_earlier_tokens_only() -> None:
    torch.manual_seed(1)
    module, _ = decoder(SMALL)
    tokens = torch.randint(0, 28, (1, 64))
    changed = tokens.clone()
    changed[0, 40] = (changed[0, 40] + 1) % 28
    one, other = module(tokens), module(changed)
    assert one.shape == (1, 28, 64)
    assert torch.allclose(one[..., :40], other[..., :40], atol=1e-6)
    assert not torch.allclose(one[..., 40:], other[..., 40:], atol=1e-3)


def test_the_next_token_is_learned() -> None:
    learner: Any = build("small-gpt", seed=1)
    weights = learner.initial()
    with torch_threads(1):
        before = learner.evaluate(weights)
        for index in range(20):
            gradient = learner.gradient(weights, learner.load(step(index, 4)))[0]
            weights = weights - 0.5 * gradient / max(1.0, float(gradient.norm()))
        after = learner.evaluate(weights)
    assert lowest_loss() < after.loss < before.loss - 0.5
    assert after.accuracy > before.accuracy + 0.1
    labels = learner.examples.test.labels
    right = (learner.module(learner.examples.test.inputs).argmax(dim=1) == labels).double().mean()
    assert after.accuracy == pytest.approx(float(right), rel=1e-12), "a mean over all tokens"


@pytest.mark.parametrize(("style", "tied"), [("gpt", True), ("llama", False)])
def test_tables_have_the_layers_and_operations_of_the_module(style: Literal["gpt", "llama"], tied: bool) -> None:
    shape = DecoderShape(width=32, layers=1, heads=4, vocabulary=50, context=16, mlp=96, style=style, tied=tied)
    module, sample = decoder(shape)
    rows = decoder_rows(shape)
    assert [(row.name, row.parameters) for row in rows if row.parameters] == [
        (layer.name, layer.parameters) for layer in _layers(module)
    ]
    traced = trace(module, sample)
    for way in ("forward", "backward"):
        assert sum(getattr(row, way).flops for row in rows) == sum(getattr(row, way).flops for row in traced)
    assert shape.forward_flops_per_token * shape.context == sum(row.forward.flops for row in rows)
    assert all(sum(one.flops for one in row.products) == row.forward.flops for row in rows)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("gpt2-small", GPT2_SMALL, 124_439_808),
        ("gpt3-xl", GPT3_XL, 1_315_723_264),
        ("llama2-7b", LLAMA2_7B, 6_738_415_616),
    ],
)
def test_big_models_have_the_published_sizes(name: str, shape: DecoderShape, parameters: int) -> None:
    assert MODELS[name].parameters == shape.parameters == parameters
    assert sum(shape.layer_bytes().values()) == 4 * parameters
    assert MODELS[name].training_flops == shape.context * shape.training_flops_per_token


def test_pictures_are_no_text() -> None:
    assert "expected sentences" in problems("small-gpt", dataset="digits", learning="train")[0]
    assert "sentences" in problems("digits-mlp", dataset="sentences", learning="train")[0]


SHORT = ["stop.samples=64", "workload.batch_per_worker=4", "evaluate.every=32 samples", "target.loss=3.64"]


def test_the_shipped_scenario_reaches_a_loss() -> None:
    runs = paceline.simulate(load("transformer", SHORT))
    assert [run.algorithm for run in runs][:3] == ["sync-sgd", "post-local-sgd", "diloco"]
    for run in runs:
        assert run.summary["target_loss"] == 3.64 and run.summary["time_to_accuracy_s"] is None
        assert run.summary["final_loss"] > lowest_loss()  # type: ignore[operator]
    assert runs[0].summary["time_to_loss_s"] is not None, "sync-sgd has learned a little in four steps"


def test_a_big_model_with_a_stand_in_has_its_own_bytes() -> None:
    changes = ["workload.model=gpt2-small", "workload.dataset=null"]
    changes += ["workload.stand_in={model: small-gpt, batch_per_worker: 1}", *SHORT, "stop.samples=32"]
    (run,) = paceline.simulate(load("transformer", changes, algorithms=["sync-sgd"]))
    assert run.summary["bytes_sent"] > 4 * GPT2_SMALL.parameters


def test_targets_that_stop_ends_before_are_wrong() -> None:
    with pytest.raises(
        ScenarioError, match=r"target.loss: found 0.6, but stop.loss ends a run at 0.8; expected a loss"
    ):
        load("transformer", ["stop.loss=0.8"])
    with pytest.raises(ScenarioError, match=r"target.accuracy: found 0.93, but stop.accuracy ends a run at 0.9;"):
        load("quickstart", ["stop.accuracy=0.9"])


def test_a_target_below_the_entropy_gives_a_note() -> None:
    assert not [note for note in outside(load("transformer").plans()[0]) if "target.loss" in note]
    (note,) = (note for note in outside(load("transformer", ["target.loss=0.4"]).plans()[0]) if "target.loss" in note)
    assert "0.405 nats per token" in note
