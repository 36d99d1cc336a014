"""From the names in a scenario to a learner; all that is wrong is said at once, and before torch is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from paceline.algorithms.errors import InputError
from paceline.algorithms.job import Learner
from paceline.algorithms.naming import near_miss
from paceline.workloads.models import MODELS, find_model
from paceline.workloads.quadratic import Quadratic, QuadraticOptions
from paceline.workloads.timing import TimingOnly
from paceline.workloads.zoo import ZOO

Learning = Literal["train", "quadratic", "none"]
Precision = Literal["float32", "float64"]

OWN = "module:function of your own"
DATA = {"digits-mlp": "digits"}
"""the data that a model is trained on"""


def problems(
    model: str, *, data: str | None, learning: str, precision: str = "float32", options: Mapping[str, Any] | None = None
) -> list[str]:
    """All that is wrong with a workload, each as ``key: found …, expected …``; empty if nothing.

    >>> problems("digits-mpl", data=None, learning="train")  # doctest: +ELLIPSIS
    ["model: found 'digits-mpl', expected ... (did you mean digits-mlp?)"]
    """
    found = [
        *_unknown_model(model),
        *_unknown("learning", learning, get_args(Learning)),
        *_unknown("precision", precision, get_args(Precision)),
    ]
    return found or [*_mismatched(model, data, learning), *_option_problems(learning, options or {})]


def build(
    model: str,
    *,
    data: str | None = None,
    learning: Learning = "train",
    seed: int,
    precision: Precision = "float32",
    **options: Any,
) -> Learner:
    """The learner of a workload.

    Args:
        model: a name in `MODELS`, or ``module:function`` of a model of one's own (see `find_model`).
        data: the data set, or None for the model's own.
        learning: ``train`` the model, learn the noisy ``quadratic`` (always in float64), or ``none``: timing only.
        seed: of initial weights, order of samples and noise.
        precision: of weights and gradients.
        options: of the quadratic problem, see `QuadraticOptions`.

    Raises:
        InputError: naming everything that is wrong.

    >>> build("lenet", learning="none", seed=1).initial().nbytes
    1724320
    """
    wrong = problems(model, data=data, learning=learning, precision=precision, options=options)
    if wrong:
        raise InputError("\n".join(f"workload.{line}" for line in wrong))
    match learning:
        case "none":
            info = find_model(model)
            return TimingOnly(info.layout(), info.population, item_bytes=4 if precision == "float32" else 8)
        case "quadratic":
            return Quadratic(seed=seed, options=QuadraticOptions(**options))
        case "train":
            return _trained(model, seed, precision)


def _trained(model: str, seed: int, precision: Precision) -> Learner:
    import torch  # here, because it takes a second that the other learners need not pay

    from paceline.workloads.digits import digits
    from paceline.workloads.starts import uniform
    from paceline.workloads.torch_learner import TorchLearner

    module = ZOO[model].make()
    dtype = torch.float32 if precision == "float32" else torch.float64
    return TorchLearner(module, digits(), uniform(module, seed), seed=seed, dtype=dtype)


def _unknown_model(model: str) -> list[str]:
    if ":" not in model:
        return _unknown("model", model, [*MODELS, OWN])
    try:
        find_model(model)
    except InputError as error:
        return [f"model: {str(error).removeprefix('model ')}"]
    return []


def _unknown(key: str, value: str, known: Iterable[str]) -> list[str]:
    known = list(known)
    if value in known:
        return []
    return [f"{key}: found {value!r}, expected one of {', '.join(known)}{near_miss(value, known)}"]


def _mismatched(model: str, data: str | None, learning: str) -> list[str]:
    if learning == "train" and model not in DATA:
        trainable = ", ".join(DATA)
        return [f"learning: found 'train', but {model} cannot be trained yet; expected {trainable}, or learning: none"]
    if (learning == "quadratic") != (model == "quadratic") and learning != "none":
        return [f"learning: found {learning!r} for {model}; expected the model quadratic with learning: quadratic"]
    if data is not None and data != DATA.get(model):
        right = f"expected {DATA[model]}" if model in DATA else "expected none: the model has no data"
        return [f"data: found {data!r} for {model}, {right}"]
    return []


def _option_problems(learning: str, options: Mapping[str, Any]) -> list[str]:
    if learning != "quadratic":
        return [f"options.{key}: only learning: quadratic has options" for key in options]
    try:
        chosen = TypeAdapter(QuadraticOptions).validate_python(dict(options), strict=False)
    except ValidationError as error:
        return [
            _option_problem(detail["loc"], detail["type"], detail["msg"], detail["input"]) for detail in error.errors()
        ]
    return [f"options.{line}" for line in chosen.problems()]


def _option_problem(place: tuple[int | str, ...], kind: str, message: str, value: Any) -> str:
    name = ".".join(map(str, place))
    if kind in {"unexpected_keyword_argument", "extra_forbidden"}:
        names = list(QuadraticOptions.__dataclass_fields__)
        hint = near_miss(name, names) or f" (there are {', '.join(names)})"
        return f"options.{name}: there is no such option{hint}"
    return f"options.{name}: found {value!r}; {message.lower()}"
