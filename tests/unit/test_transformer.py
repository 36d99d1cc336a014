"""The decoder transformer: its text has the stated probabilities, attention is causal, tables follow from the shape."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.algorithms.core.values import Samples
from paceline.scenarios import ScenarioError, load
from paceline.scenarios.resolution.fitted_ranges import outside
from paceline.workloads import MODELS, build, find_model, problems
from paceline.workloads.datasets.sentences import ALPHABET, START, grammar, lowest_loss, sentences
from paceline.workloads.learners.torch_learner import _layers
from paceline.workloads.models.decoder import SMALL, decoder
from paceline.workloads.models.layer_tracing import trace
from paceline.workloads.models.threads import torch_threads
from paceline.workloads.models.transformer_config import canonical, shape_of
from paceline.workloads.models.transformer_shapes import GPT2_SMALL, GPT3_XL, LLAMA2_7B, TransformerShape, shape_rows


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


@pytest.mark.parametrize(
    "more",
    [
        {"style": "gpt", "tied": True},
        {"style": "llama", "tied": False},
        {"style": "llama", "kv_heads": 2, "head": 6, "biased": ("inward",)},
        {"style": "llama", "kv_heads": 1, "biased": ("inward", "outward", "mlp"), "tied": False},
        {"style": "gpt", "positions": 40, "activation": "relu"},
    ],
)
def test_tables_have_the_layers_and_operations_of_the_module(more: dict[str, Any]) -> None:
    shape = TransformerShape(width=32, layers=1, heads=4, vocabulary=50, context=16, mlp=96, **more)
    module, sample = decoder(shape)
    rows = shape_rows(shape)
    assert [(row.name, row.parameters) for row in rows if row.parameters] == [
        (layer.name, layer.parameters) for layer in _layers(module)
    ]
    traced = trace(module, sample)
    for way in ("forward", "backward"):
        assert sum(getattr(row, way).flops for row in rows) == sum(getattr(row, way).flops for row in traced)
    assert shape.forward_flops_per_token * shape.context == sum(row.forward.flops for row in rows)
    assert all(sum(one.flops for one in row.products) == row.forward.flops for row in rows)


GPT2 = {"vocab_size": 50257, "n_positions": 1024}
LLAMA = {"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": False}
BERT = {"model_type": "bert", "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2}
PUBLISHED: list[tuple[dict[str, Any], int]] = [
    ({**GPT2, "n_layer": 12, "n_embd": 768, "n_head": 12}, 124_439_808),
    ({**GPT2, "n_layer": 24, "n_embd": 1024, "n_head": 16, "n_ctx": 1024}, 354_823_168),
    ({**GPT2, "n_layer": 36, "n_embd": 1280, "n_head": 20}, 774_030_080),
    ({**GPT2, "n_layer": 48, "n_embd": 1600, "n_head": 25}, 1_557_611_200),
    ({**GPT2, "n_layer": 24, "n_embd": 2048, "n_head": 16, "n_positions": 2048}, 1_315_723_264),
    (
        {**LLAMA, "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008,
         "max_position_embeddings": 4096, "vocab_size": 32000},
        6_738_415_616,
    ),
    (
        {**LLAMA, "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
         "intermediate_size": 14336, "max_position_embeddings": 8192, "vocab_size": 128256},
        8_030_261_248,
    ),
    (
        {**LLAMA, "num_hidden_layers": 22, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4,
         "intermediate_size": 5632, "max_position_embeddings": 2048, "vocab_size": 32000},
        1_100_048_384,
    ),
    (
        {"model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 32768, "vocab_size": 32000,
         "sliding_window": 4096, "sequence_length": 4096},
        7_241_732_096,
    ),
    (
        {"model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14,
         "num_key_value_heads": 2, "intermediate_size": 4864, "max_position_embeddings": 32768, "vocab_size": 151936,
         "sliding_window": 32768, "use_sliding_window": False, "tie_word_embeddings": True},
        494_032_768,
    ),
    (
        {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28,
         "num_key_value_heads": 4, "intermediate_size": 18944, "max_position_embeddings": 32768, "vocab_size": 152064,
         "tie_word_embeddings": False},
        7_615_616_512,
    ),
    ({**BERT, "num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
     109_514_298),
]  # fmt: skip
"""sizes, and their parameters. provenance: FOUND. GPT-2 and Llama 2 in the presets of keras-hub ("params") and in the
metadata of Hugging Face's checkpoints, the others in such metadata and in GGUF files ("general.parameter_count"); BERT
in listings of bert-base-uncased as BertForMaskedLM. GPT-3 XL: "1.3 B" (Brown et al., 2020)"""


@pytest.mark.parametrize(("config", "parameters"), PUBLISHED)
def test_a_size_has_the_published_parameters_and_operations(config: dict[str, Any], parameters: int) -> None:
    text = canonical(config)
    model, shape = find_model(text), shape_of(text)
    assert model.parameters == shape.parameters == parameters
    assert shape_of(canonical(text)) == shape, "the text says all"
    work = 12 * shape.layers * shape.context * shape.width
    products = sum(
        one.channels_in * one.channels_out for row in model.works for one in row.products if one.form == "dense"
    )
    assert model.training_flops == shape.context * (6 * products + work), "6 N + 12 L T d with all matrices, exactly"
    embeddings = 0 if shape.tied else shape.width * shape.vocabulary  # their rows are read, not multiplied
    assert shape.training_flops_per_token == pytest.approx(6 * (parameters - embeddings) + work, rel=0.01)


def test_named_models_are_sizes() -> None:
    for name, (config, _) in {"gpt2-small": PUBLISHED[0], "gpt3-xl": PUBLISHED[4], "llama2-7b": PUBLISHED[5]}.items():
        assert find_model(canonical(config)).works == MODELS[name].works


def complete(**more: Any) -> dict[str, Any]:
    return {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 28, **more}


def llama(**more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}
    return {**sizes, "max_position_embeddings": 64, "vocab_size": 28, **more}


@pytest.mark.parametrize(
    ("config", "faults"),
    [
        ({}, ["num_hidden_layers: missing", "hidden_size: missing", "num_attention_heads: missing",
              "max_position_embeddings: missing", "vocab_size: missing", "intermediate_size: missing"]),
        ({"n_layer": 2}, ["n_embd: missing", "n_head: missing", "n_positions: missing", "vocab_size: missing"]),
        (complete(n_head=5), ["n_head: found 5, which do not divide n_embd: 64"]),
        (complete(n_layers=3), ["n_layers: there is no such key (did you mean n_layer?)"]),
        (complete(num_hidden_layers=3), ["num_hidden_layers: found 3 beside n_layer: 2; expected one of them"]),
        (complete(n_layer=True, vocab_size=2.5), ["n_layer: found True", "vocab_size: found 2.5, expected a whole"]),
        (complete(n_layer=10**9), ["n_layer: found 1000000000, expected a whole number from 1 to 10000"]),
        (complete(resid_pdrop=1.5), ["resid_pdrop: found 1.5, expected a share of at least 0 and below 1"]),
        (complete(activation_function="tanhh"), ["activation_function: found 'tanhh', expected one of gelu"]),
        (complete(sequence_length=65), ["sequence_length: found 65, expected at most n_positions, 64"]),
        (complete(num_key_value_heads=2), ["num_key_value_heads: found 2; gpt2 has no such key"]),
        (complete(num_experts=8), ["num_experts: found 8; mixtures of experts are not modelled"]),
        (complete(is_encoder_decoder=True), ["is_encoder_decoder: found True; an encoder with a decoder"]),
        (complete(architectures=["GPT2ForTokenClassification"]), ["architectures: found 'GPT2ForTokenClassification'"]),
        (llama(num_key_value_heads=3), ["num_key_value_heads: found 3, which do not divide num_attention_heads: 4"]),
        (llama(head_dim=15), ["head_dim: found a head of 15 numbers; expected an even number"]),
        (llama(sliding_window=16), ["sliding_window: found 16, fewer than the 64 tokens of a sample; attention"]),
        (llama(model_type="mixtral", num_local_experts=8),
         ["model_type: found 'mixtral', expected one of gpt2, llama", "num_local_experts: found 8; mixtures of"]),
        (llama(kv_lora_rank=8), ["kv_lora_rank: found 8; latent attention is not modelled"]),
        ({"model_type": "t5", "d_model": 512, "num_layers": 6}, ["model_type: found 't5', expected one of gpt2"]),
        ({"config": 3}, ["config: found 3, expected the path of a config.json"]),
    ],
)  # fmt: skip
def test_all_mistakes_of_a_size_are_told_with_their_keys(config: dict[str, Any], faults: list[str]) -> None:
    with pytest.raises(ScenarioError) as error:
        load(sized(config))
    lines = str(error.value).splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(f"scenario: workload.model.{fault}")


def sized(model: Any, **more: Any) -> dict[str, Any]:
    device = {"device": {"name": "d", "overhead": "1 ms", "per_sample": "1 ms"}, "workers_per_node": 2}
    workload = {"model": model, "learning": "none", "batch_per_worker": 2, **more}
    return {
        "name": "sized",
        "algorithms": ["sync-sgd"],
        "workload": workload,
        "cluster": {"nodes": [device]},
        "stop": {"samples": 16},
    }


def test_a_scenario_takes_a_size_a_file_and_changes_of_a_file(tmp_path: Path) -> None:
    """Other keys of a file are ignored, and the file is beside the scenario. A stored scenario needs no file."""
    config = {**llama(num_key_value_heads=2), "model_type": "llama", "my_own_key": 1, "hidden_act": "silu"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "s.yaml").write_text(json.dumps(sized("config.json")), encoding="utf-8")
    text = (
        "llama(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, max_position_embeddings=64, vocab_size=28, "
        "intermediate_size=96, num_key_value_heads=2)"
    )
    loaded = load(tmp_path / "s.yaml")
    assert loaded.workload.model == text
    assert load(loaded.dump()).workload == loaded.workload
    deeper = load(tmp_path / "s.yaml", ["workload.model.num_hidden_layers=3", "workload.model.sequence_length=32"])
    assert deeper.workload.model == text.replace("layers=2", "layers=3")[:-1] + ", sequence_length=32)"
    assert load(loaded.dump(), ["workload.model.vocab_size=30"]).workload.model == text.replace("28", "30")
    for model in (
        {"config": str(tmp_path / "config.json"), "n_layer": 3, "sequence_length": 32},
        deeper.workload.model,
    ):
        assert load(sized(model)).workload.model == deeper.workload.model
    with pytest.raises(ScenarioError, match=r"workload.model.config: .*nope.json: cannot be read"):
        load(sized({"config": str(tmp_path / "nope.json")}))
    with pytest.raises(ScenarioError, match=r"workload.model: num_experts: found 8"):
        load(sized("llama(num_experts=8, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, vocab_size=28, "
                   "intermediate_size=96, max_position_embeddings=64)"))  # fmt: skip


@pytest.mark.parametrize("wrong", ["[1, 2]", "{", "[" * 100_000, "3"])
def test_a_file_that_is_no_config_is_told(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"workload.model: .*config.json: .*expected a config.json of Hugging Face"):
        load(sized(str(path)))


def test_a_size_predicts_and_its_bytes_are_sent() -> None:
    scenario = sized(complete(n_embd=128))
    (run,) = paceline.simulate(load(scenario))
    parameters = shape_of(canonical(complete(n_embd=128))).parameters
    assert run.summary["bytes_sent"] == pytest.approx(run.summary["steps"] / 2 * 2 * 4 * parameters)
    scenario["cluster"]["nodes"] = [{"device": "a100", "count": 2}]
    times = []
    for layers in (2, 4):
        scenario["workload"]["model"] = complete(n_layer=layers, n_embd=1024, n_head=16)
        times.append(load(scenario).plans()[0].cluster.nodes[0].device.compute_s(64))
    assert 1.4 < times[1] / times[0] < 2.0, "twice the blocks, the same embeddings"


def test_a_text_that_is_too_long_for_a_device_is_told_with_the_key() -> None:
    scenario = sized(complete(n_positions=2**24))
    scenario["cluster"]["nodes"] = [{"device": "a100", "count": 2}]
    with pytest.raises(ScenarioError, match=r"a sample has 16777216 tokens; sequence_length of the model's size"):
        load(scenario).plans()
    scenario["workload"]["model"]["sequence_length"] = 64
    assert load(scenario).plans()[0].cluster.nodes[0].device.compute_s(2) > 0


@pytest.mark.parametrize("config", [complete(), llama(num_key_value_heads=2, vocab_size=40)])
def test_a_small_decoder_learns_the_sentences(config: dict[str, Any]) -> None:
    text = canonical(config)
    assert problems(text, dataset=None, learning="train") == []
    learner: Any = build(text, seed=1)
    assert learner.layout == find_model(text).layout()
    weights = learner.initial()
    with torch_threads(1):
        before = learner.evaluate(weights).loss
        for index in range(12):
            gradient = learner.gradient(weights, learner.load(step(index, 4)))[0]
            weights = weights - 0.5 * gradient / max(1.0, float(gradient.norm()))
        assert learner.evaluate(weights).loss < before - 0.3


def test_dropout_costs_memory_traffic_and_a_fused_attention_draws_its_own() -> None:
    def work(**more: Any) -> tuple[int, int, int]:
        rows = find_model(canonical(complete(**more))).works
        passes = [one for row in rows for one in (row.forward, row.backward)]
        return sum(one.flops for one in passes), sum(one.moved_bytes for one in passes), sum(p.kernels for p in passes)

    numbers, scores = 64 * 64, 4 * 64 * 64  # of a sample of 64 tokens of width 64, and of its 4 heads
    flops, moved, kernels = work()
    assert work(attn_pdrop=0.1) == (flops, moved, kernels)
    assert work(resid_pdrop=0.1) == (flops, moved + 2 * 2 * 2 * 9 * numbers, kernels + 2 * 2 * 2)
    assert work(embd_pdrop=0.1) == (flops, moved + 2 * 9 * numbers, kernels + 2)
    flops, moved, kernels = work(attn_implementation="eager")
    assert work(attn_implementation="eager", attn_pdrop=0.1) == (flops, moved + 2 * 2 * 8 * scores, kernels + 2 * 2)


def test_a_decoder_with_dropout_learns_and_evaluates_without() -> None:
    drops = {"resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1}
    plain: Any = build(canonical(complete()), seed=1)
    learner: Any = build(canonical(complete(**drops)), seed=1)
    assert learner.random and not plain.random
    weights = learner.initial()
    assert learner.evaluate(weights) == plain.evaluate(weights)
    data = learner.load(step(0, 2))
    assert torch.equal(learner.gradient(weights, data)[0], learner.gradient(weights, data)[0])
    assert not torch.equal(learner.gradient(weights, data)[0], plain.gradient(weights, data)[0])


def test_a_size_without_fitting_data_has_a_stand_in() -> None:
    big = canonical(complete(n_positions=128))
    (line,) = problems(big, dataset=None, learning="train")
    assert "expected learning: none; a decoder for 64 tokens of 28 or more words learns sentences" in line
    encoder = {**BERT, "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64}
    encoder["max_position_embeddings"] = 64
    (line,) = problems(canonical(encoder), dataset="sentences", learning="train")
    assert "dataset: found 'sentences'" in line, "an encoder sees the next token"
    scenario = sized(complete(n_positions=128), learning="train", stand_in={"model": complete(), "batch_per_worker": 1})
    (run,) = paceline.simulate(load({**scenario, "stop": {"samples": 8}}))
    assert str(run.summary.get("stand_in")).startswith("gpt2(n_layer=2")


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("gpt2-small", GPT2_SMALL, 124_439_808),
        ("gpt3-xl", GPT3_XL, 1_315_723_264),
        ("llama2-7b", LLAMA2_7B, 6_738_415_616),
    ],
)
def test_big_models_have_the_published_sizes(name: str, shape: TransformerShape, parameters: int) -> None:
    assert MODELS[name].parameters == shape.parameters == parameters
    assert sum(shape.layer_bytes().values()) == 4 * parameters
    assert MODELS[name].training_flops == shape.context * shape.training_flops_per_token


def test_pictures_are_no_text() -> None:
    assert "expected sentences" in problems("small-gpt", dataset="digits", learning="train")[0]
    assert "sentences" in problems("digits-mlp", dataset="sentences", learning="train")[0]


SHORT = ["stop.samples=64", "workload.batch_per_worker=4", "evaluate.every=64 samples", "target.loss=3.64"]


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
