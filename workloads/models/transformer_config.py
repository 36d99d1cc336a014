"""Sizes of transformers, in the names of Hugging Face's config.json.

A size is written as a mapping, as the path of a config.json, or as text, ``gpt2(n_layer=24, n_embd=1024, …)``. The text
is the canonical form: it names the model in every table and record, and it is complete. A missing key has the default
of the model type's class in `transformers`, except for dropout, which is 0 where it is not given. What has no default
there, or what only the class of one published model has (`intermediate_size`), is required. A key that changes the
shape and is not modelled is a mistake. Other keys are ignored in a file. In a mapping they are a mistake, too, unless
`IGNORED` has them, because there they are likely misspelt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paceline.algorithms.core.checksums import read_json
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.workloads.models.transformer_shapes import Biased, TransformerShape

MOST = 2**31
"""largest size; more does not fit the indices of torch's kernels"""
MOST_LAYERS = 10_000
"""largest number of blocks; each has about ten rows in a table"""
TEXT = re.compile(r"(\w+)\((.*)\)")
EXAMPLE = "{n_layer: 12, n_embd: 768, n_head: 12, n_positions: 1024, vocab_size: 50257}"
CONFIG = "config"
"""the key of the path of a file"""


class SizeError(InputError):
    """The mistakes of a size, each with its key, which is empty if no key is wrong."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("\n".join(f"{key}: {words}" if key else words for key, words in faults))
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The blocks of a model type, and the defaults of its class in `transformers`."""

    style: Literal["gpt", "llama", "bert"]
    tied: bool
    activation: str
    biased: tuple[Biased, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """names of sizes that differ from Llama's"""
    head: str
    """what the names of architectures with the head of a language model end with"""


GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "embedding_dropout": "embd_pdrop",
}
TYPES = {
    "gpt2": Type(style="gpt", tied=True, activation="gelu_new", names=GPT2_NAMES, head="LMHeadModel"),
    "llama": Type(style="llama", tied=False, activation="silu", head="ForCausalLM"),
    "mistral": Type(style="llama", tied=False, activation="silu", head="ForCausalLM"),
    "qwen2": Type(style="llama", tied=False, activation="silu", biased=("inward",), head="ForCausalLM"),
    "bert": Type(
        style="bert",
        tied=True,
        activation="gelu",
        names={"attention_dropout": "attention_probs_dropout_prob"},
        head="ForMaskedLM",
    ),
}
"""provenance: the defaults of GPT2Config, LlamaConfig, MistralConfig, Qwen2Config and BertConfig (MEMORY
certain); the numbers of parameters that follow are the published ones (tests/unit/test_transformer.py)"""

SIZES = {
    "num_hidden_layers": "the number of blocks",
    "hidden_size": "the width",
    "num_attention_heads": "the heads of an attention",
    "max_position_embeddings": "the tokens of the longest text",
    "vocab_size": "the number of tokens that are told apart",
}
"""required of every type; names are Llama's"""
OPTIONAL = (
    *("intermediate_size", "num_key_value_heads", "head_dim", "type_vocab_size", "sequence_length"),
    *("hidden_act", "tie_word_embeddings", "attention_bias", "mlp_bias", "attn_implementation"),
    *("hidden_dropout_prob", "attention_dropout", "embedding_dropout"),
)
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
}
KERNELS = {"eager": "plain", "sdpa": "fused", "flash_attention_2": "fused", "flash_attention_3": "fused"}
MEANINGS = {
    **{key: key for key in (*SIZES, *OPTIONAL)},
    **{name: key for kind in TYPES.values() for key, name in kind.names.items()},
    "_attn_implementation": "attn_implementation",
}
"""Llama's name of each key that is read"""
UNMODELLED = {
    **dict.fromkeys(
        ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        "mixtures of experts are not modelled",
    ),
    **dict.fromkeys(
        ("is_encoder_decoder", "decoder_layers", "num_decoder_layers", "add_cross_attention"),
        "an encoder with a decoder is not modelled",
    ),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), "latent attention is not modelled"),
    **dict.fromkeys(("use_parallel_residual", "parallel_attn"), "parallel attention and network are not modelled"),
    "multi_query": "give num_key_value_heads: 1 in its place",
    **dict.fromkeys(("use_qk_norm", "qk_layernorm"), "normalised queries and keys are not modelled"),
    "num_nextn_predict_layers": "layers that predict several tokens are not modelled",
    "gradient_checkpointing": "a forward pass that is computed twice is not modelled",
    **dict.fromkeys(("text_config", "vision_config", "audio_config"), "give the keys of the language model alone"),
}
"""keys that change the shape or its costs, unless their value is null, false or 0"""
IGNORED = frozenset(
    (
        *("architectures", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "layer_norm_epsilon"),
        *("layer_norm_eps", "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "torch_dtype", "dtype"),
        *("transformers_version", "use_cache", "pretraining_tp", "summary_activation", "summary_first_dropout"),
        *("summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params", "scale_attn_weights"),
        *("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "max_window_layers", "use_sliding_window"),
        *("layer_types", "classifier_dropout", "position_embedding_type", "_name_or_path", "n_ctx"),
    )
)
"""keys of a mapping that change nothing here"""


def is_size(model: str) -> bool:
    """Returns whether a model is given by a size: as text, or as the path of a config.json.

    >>> is_size("gpt2(n_layer=2)"), is_size("a/config.json"), is_size("gpt2-small"), is_size("mine.py:net")
    (True, True, False, False)
    """
    return TEXT.fullmatch(model) is not None or is_config_path(model)


def is_config_path(model: str) -> bool:
    """Returns whether a model is the path of a JSON file."""
    return model.endswith(".json")


def canonical(model: str | Mapping[str, Any]) -> str:
    """Returns the canonical text of a size.

    Args:
        model: the path of a config.json, a text, or a mapping, which may have such a path under ``config``.

    Raises:
        SizeError: the size is wrong; with all mistakes.

    >>> canonical({"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 28})
    'gpt2(n_layer=2, n_embd=64, n_head=4, n_positions=64, vocab_size=28)'
    """
    return _read(model)[0]


def shape_of(model: str) -> TransformerShape:
    """Returns the shape of a size.

    Args:
        model: a canonical text, or the path of a config.json.

    Raises:
        SizeError: the size is wrong; with all mistakes.

    >>> text = "llama(num_hidden_layers=32, hidden_size=4096, num_attention_heads=32, intermediate_size=11008, "
    >>> shape_of(text + "max_position_embeddings=4096, vocab_size=32000)").parameters
    6738415616
    """
    return _read(model)[1]


def keys_of(model: str) -> dict[str, Any]:
    """Returns a size as a mapping.

    Args:
        model: a text, or the path of a config.json.

    Raises:
        SizeError: it has another form.

    >>> keys_of("gpt2(n_layer=2, n_embd=64)"), keys_of("a/config.json")
    ({'model_type': 'gpt2', 'n_layer': 2, 'n_embd': 64}, {'config': 'a/config.json'})
    """
    return {CONFIG: model} if is_config_path(model) else _of_text(model)


def _read(model: str | Mapping[str, Any]) -> tuple[str, TransformerShape]:
    if isinstance(model, str):
        given, lenient = (_of_file(model), True) if is_config_path(model) else (_of_text(model), False)
        return _SizeReader(given, given if lenient else {}).read()
    own = {str(key): value for key, value in model.items() if key != CONFIG}
    if CONFIG not in model:
        return _SizeReader(own, {}).read()
    if not isinstance(path := model[CONFIG], str) or not path.strip():
        raise SizeError([(CONFIG, f"found {path!r}, expected the path of a config.json")])
    try:
        file = _of_file(path)
    except SizeError as error:
        raise SizeError([(CONFIG, words) for _, words in error.faults]) from error
    replaced = {MEANINGS.get(key, key) for key in own}
    kept = {key: value for key, value in file.items() if MEANINGS.get(key, key) not in replaced}
    return _SizeReader({**kept, **own}, file).read()


def _of_file(path: str) -> dict[str, Any]:
    what = "a config.json of Hugging Face"
    try:
        content = read_json(Path(path), what)
    except InputError as error:
        raise SizeError([("", str(error))]) from error
    if not isinstance(content, dict):
        raise SizeError([("", f"{path}: found a {type(content).__name__}; expected {what}, a mapping")])
    return content


def _of_text(text: str) -> dict[str, Any]:
    """Reads ``type(key=value, …)``."""
    if (match := TEXT.fullmatch(text)) is None:
        raise SizeError([("", f"found {text!r}, expected type(key=value, …)")])
    pairs = [part.partition("=") for part in match[2].split(",") if part.strip()]
    if bad := [key for key, equals, _ in pairs if not equals]:
        raise SizeError([("", f"found {bad[0].strip()!r} in {text!r}, expected key=value")])
    return {"model_type": match[1], **{key.strip(): _value(value.strip()) for key, _, value in pairs}}


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class _SizeReader:
    """Reads one size and collects its mistakes; other keys are ignored in a file."""

    def __init__(self, given: Mapping[str, Any], file: Mapping[str, Any]) -> None:
        self.given, self.file = given, file
        self.faults: list[tuple[str, str]] = []
        self.kind = self._type()
        self.type = TYPES[self.kind]
        self.values: dict[str, Any] = {}
        """by Llama's names"""
        self.keys: dict[str, str] = {}
        """the names as they were given"""

    def read(self) -> tuple[str, TransformerShape]:
        """Returns the canonical text and the shape."""
        self.faults += self._unmodelled()
        if self.given.get("model_type", self.kind) != self.kind:
            raise SizeError(self.faults)  # the names of its sizes are not known
        self._collect()
        shape = self._shape()
        if self.faults or shape is None:
            raise SizeError(list(dict.fromkeys(self.faults)))
        return self._text(), shape

    def _type(self) -> str:
        """Returns the model type, which follows from the names of the sizes if it is not given."""
        kind = self.given.get("model_type")
        if kind in TYPES:
            return str(kind)
        if kind is not None:
            same = "; a model with the same blocks as one of them may be given by its name"
            known = ", ".join(TYPES)
            self.faults.append(("model_type", f"found {kind!r}, expected one of {known}{same}"))
        if any(name in self.given for name in ("n_layer", "n_embd", "n_head")):
            return "gpt2"
        return "bert" if "type_vocab_size" in self.given else "llama"

    def _name(self, key: str) -> str:
        """Returns the type's own name of a key that has Llama's."""
        return self.type.names.get(key, key)

    def _unmodelled(self) -> Iterator[tuple[str, str]]:
        """Yields the keys that change the shape in a way that is not modelled."""
        for key, words in UNMODELLED.items():
            if self.given.get(key):
                stated = f"found {self.given[key]!r}" if isinstance(self.given[key], int | str) else "found"
                yield key, f"{stated}; {words}"
        if self.given.get("model_type", self.kind) != self.kind:
            return  # the names of heads and of layers of another type
        for name in self.given.get("architectures") or ():
            if isinstance(name, str) and not name.endswith((self.type.head, "Model")):
                yield "architectures", f"found {name!r}, expected the head of a language model, …{self.type.head}"
        if (positions := self.given.get("position_embedding_type", "absolute")) != "absolute":
            yield "position_embedding_type", f"found {positions!r}, expected absolute"
        for kind in self.given.get("layer_types") or ():
            if kind not in ("full_attention", "sliding_attention"):
                yield "layer_types", f"found {kind!r}, expected full_attention"

    def _collect(self) -> None:
        """Sorts the keys by their meaning."""
        for name, value in self.given.items():
            if (key := MEANINGS.get(name)) is None:
                known = {*UNMODELLED, *IGNORED, "model_type", "sliding_window"}
                if name not in self.file and name not in known:
                    self.faults.append((name, f"there is no such key{near_miss(name, MEANINGS)}"))
            elif value is None:
                continue
            elif key in self.values and self.values[key] != value:
                other = self.keys[key]
                self.faults.append(
                    (name, f"found {value!r} beside {other}: {self.values[key]!r}; expected one of them")
                )
            else:
                self.values[key], self.keys[key] = value, name
        if "max_position_embeddings" not in self.values and self.given.get("n_ctx") is not None:
            self.values["max_position_embeddings"] = self.given["n_ctx"]
            self.keys["max_position_embeddings"] = "n_ctx"

    # --- values

    def _fault(self, key: str, words: str) -> None:
        self.faults.append((self.keys.get(key, self._name(key)), words))

    def _whole(self, key: str, otherwise: int | None = None, most: int = MOST) -> int | None:
        value = self.values.get(key, otherwise)
        if value is None:
            if key in SIZES:
                self._fault(key, f"missing; expected {SIZES[key]}")
        elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self._fault(key, f"found {value!r}, expected a whole number from 1 to {most}")
            return None
        return value

    def _flag(self, key: str, otherwise: bool) -> bool:
        if not isinstance(value := self.values.get(key, otherwise), bool):
            self._fault(key, f"found {value!r}, expected true or false")
            return otherwise
        return value

    def _share(self, key: str) -> float:
        value = self.values.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self._fault(key, f"found {value!r}, expected a share of at least 0 and below 1")
            return 0.0
        return float(value)

    def _choice(self, key: str, known: Mapping[str, str], otherwise: str) -> str:
        value = self.values.get(key, otherwise)
        if value not in known:
            self._fault(key, f"found {value!r}, expected one of {', '.join(known)}{near_miss(value, known)}")
            return known[otherwise]
        return known[value]

    def _shape(self) -> TransformerShape | None:
        llama, bert = self.type.style == "llama", self.type.style == "bert"
        layers = self._whole("num_hidden_layers", most=MOST_LAYERS)
        width, heads, positions, words = (self._whole(key) for key in [*SIZES][1:])
        kv_heads, head, sequence = (self._whole(key) for key in ("num_key_value_heads", "head_dim", "sequence_length"))
        inner = self._whole("intermediate_size", 4 * width if width and not llama and not bert else None)
        if inner is None and "intermediate_size" not in self.values and (width or llama or bert):
            short = (
                ""
                if self.kind != "llama" or "model_type" in self.given
                else " (model_type: gpt2 has 4 times the width)"
            )
            self._fault("intermediate_size", f"missing; expected the inner width of the network of a block{short}")
        if not llama:
            for key in ("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"):
                if key in self.values:
                    self._fault(key, f"found {self.values[key]!r}; {self.kind} has no such key")
        if "embedding_dropout" in self.values and (llama or bert):
            self._fault("embedding_dropout", f"{self.kind} has no such key")
        if width and heads and head is None and width % heads:
            name = self.keys.get("hidden_size", "hidden_size")
            self._fault("num_attention_heads", f"found {heads}, which do not divide {name}: {width}")
        elif width and heads and llama and (head or width // heads) % 2:
            words_of = f"a head of {head or width // heads} numbers; expected an even number, for rotary positions"
            self._fault("head_dim" if head else "num_attention_heads", f"found {words_of}")
        if heads and kv_heads and heads % kv_heads:
            name = self.keys.get("num_attention_heads", "num_attention_heads")
            self._fault("num_key_value_heads", f"found {kv_heads}, which do not divide {name}: {heads}")
        context = sequence or positions
        if sequence and positions and sequence > positions:
            name = self.keys.get("max_position_embeddings", "max_position_embeddings")
            self._fault("sequence_length", f"found {sequence}, expected at most {name}, {positions}")
        self._window(context)
        activation = self._choice("hidden_act", ACTIVATIONS, self.type.activation)
        attention = self._choice("attn_implementation", KERNELS, "sdpa")
        tied = self._flag("tie_word_embeddings", self.type.tied)
        if bert and not tied:
            self._fault("tie_word_embeddings", "found False, expected true: the head of bert is tied")
        drops = [self._share(key) for key in ("hidden_dropout_prob", "attention_dropout", "embedding_dropout")]
        biased = self._biased() if llama else None
        types = self._whole("type_vocab_size", 2)
        if not (layers and width and heads and positions and words and inner and context and types):
            return None
        return TransformerShape(
            width=width,
            layers=layers,
            heads=heads,
            vocabulary=words,
            context=context,
            mlp=inner,
            style=self.type.style,
            tied=tied,
            attention=attention,  # type: ignore[arg-type]
            kv_heads=kv_heads,
            head=head,
            positions=positions,
            types=types,
            biased=biased,
            activation=activation,  # type: ignore[arg-type]
            dropout=drops[0],
            attention_dropout=drops[1],
            embedding_dropout=drops[0] if bert else drops[2],
        )

    def _biased(self) -> tuple[Biased, ...] | None:
        attention, network = self._flag("attention_bias", False), self._flag("mlp_bias", False)
        if not attention and not network:
            return self.type.biased
        parts: tuple[Biased, ...] = ("inward", "outward") if attention else self.type.biased or ()
        return (*parts, "mlp") if network else parts

    def _window(self, context: int | None) -> None:
        """Adds a mistake if attention does not reach the whole context."""
        window = self.given.get("sliding_window")
        if window is None or self.given.get("use_sliding_window") is False or not context:
            return
        if not isinstance(window, int) or window < context:
            words = (
                f"found {window!r}, fewer than the {context} tokens of a sample; attention to a window is not modelled"
            )
            shorter = (
                f"{words}: give sequence_length: {window}, or less" if isinstance(window, int) and window else words
            )
            self.faults.append(("sliding_window", shorter))

    def _text(self) -> str:
        """Returns the canonical text: all sizes, and other values that were given and differ from their defaults."""
        width = self.values["hidden_size"]
        defaults = {
            "intermediate_size": 4 * width if self.type.style == "gpt" else None,
            "num_key_value_heads": self.values["num_attention_heads"],
            "type_vocab_size": 2,
            "sequence_length": self.values["max_position_embeddings"],
            "hidden_act": self.type.activation,
            "tie_word_embeddings": self.type.tied,
            "attention_bias": False,
            "mlp_bias": False,
            "attn_implementation": "sdpa",
            **dict.fromkeys(("hidden_dropout_prob", "attention_dropout", "embedding_dropout"), 0),
        }
        if "head_dim" in self.values:
            defaults["head_dim"] = width / self.values["num_attention_heads"]
        kept = [key for key in (*SIZES, *OPTIONAL) if key in self.values and self.values[key] != defaults.get(key)]
        return f"{self.kind}({', '.join(f'{self._name(key)}={_word(self.values[key])}' for key in kept)})"


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
