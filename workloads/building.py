"""Builds a learner from the names in a scenario; all mistakes are reported together, before torch is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Learner
from paceline.algorithms.core.naming import near_miss
from paceline.workloads.choices import Learning, Precision, Vmap
from paceline.workloads.datasets import DATA, MANY, RECORDS, misfit, read, unreadable
from paceline.workloads.learners.quadratic import Quadratic, QuadraticOptions
from paceline.workloads.learners.stand_in import TimingOnly
from paceline.workloads.models.layer_tables import MODELS, find_model
from paceline.workloads.models.transformer_config import is_size
from paceline.workloads.models.zoo import known_model
from paceline.workloads.reading import ReadingSettings
from paceline.workloads.reading.file import record_dtype
from paceline.workloads.reading.folder import RecordedDataset

OWN = "module:function of your own"
SIZE = "the size of a transformer"
TRAINABLE = "a decoder for 64 tokens of 28 or more words learns sentences"


def problems(
    model: str,
    *,
    dataset: str | None,
    learning: str,
    dtype: str = "float32",
    data_dir: str | None = None,
    vmap: str = "auto",
    samples: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Returns all mistakes of a workload, each as ``key: found …, expected …``; the arguments are those of `build`.

    >>> problems("digits-mpl", dataset=None, learning="train")  # doctest: +ELLIPSIS
    ["model: found 'digits-mpl', expected ... (did you mean digits-mlp?)"]
    """
    problems = [
        *_unknown_model(model, learning),
        *_unknown("learning", learning, get_args(Learning)),
        *_unknown("dtype", dtype, get_args(Precision)),
        *_unknown("vmap", vmap, get_args(Vmap)),
    ]
    mismatched = problems or _mismatched(model, dataset, learning, data_dir)
    few = [] if mismatched or samples is None else _too_many(samples, model, dataset, learning, data_dir)
    return problems or [*mismatched, *few, *_option_problems(learning, options or {})]


def build(
    model: str,
    *,
    dataset: str | None = None,
    data_dir: str | None = None,
    learning: Learning = "train",
    seed: int,
    dtype: Precision = "float32",
    vmap: Vmap = "auto",
    reading: ReadingSettings | None = None,
    samples: int | None = None,
    **options: Any,
) -> Learner:
    """Builds the learner of a workload.

    Args:
        model: a name in `MODELS`, the size of a transformer, or ``module:function`` of a custom model (`find_model`).
        dataset: the data set, in `DATA`, or None for that of the model.
        data_dir: the data set's folder; None: bundled, or from the environment variable (see `catalogue.read`).
        learning: ``train`` the model, learn the noisy ``quadratic`` (always in float64), or ``none``: timing only.
        seed: seed of initial weights, order of samples and noise.
        dtype: type of weights and gradients.
        vmap: whether a trained model's gradients in flight at the same time are computed together.
        reading: how samples of a trained model are read; None: they are in memory, or, for the data set ``records``,
            read with the defaults of `ReadingSettings`.
        samples: number of training samples that are used, with the same share of the held-out ones; None: all.
        options: options of the quadratic problem, see `QuadraticOptions`.

    Raises:
        InputError: the workload is wrong; with all mistakes.

    >>> build("lenet", learning="none", seed=1).initial().nbytes
    1724320
    """
    wrong = problems(
        model,
        dataset=dataset,
        data_dir=data_dir,
        learning=learning,
        dtype=dtype,
        vmap=vmap,
        samples=samples,
        options=options,
    )
    if wrong:
        raise InputError("\n".join(f"workload.{line}" for line in wrong))
    match learning:
        case "none":
            count = num_samples(model, dataset=dataset, data_dir=data_dir, learning=learning, samples=samples)
            return TimingOnly(find_model(model).layout(), count, item_bytes=4 if dtype == "float32" else 8)
        case "quadratic":
            return Quadratic(seed=seed, options=_quadratic(options))
        case "train":
            import torch  # imported here, as it takes a second and the other learners do not need it

            from paceline.workloads.learners.torch_building import trained

            torch_dtype = torch.float32 if dtype == "float32" else torch.float64
            learner = trained(
                model,
                dataset=dataset,
                data_dir=data_dir,
                seed=seed,
                dtype=torch_dtype,
                reading=reading,
                samples=samples,
            )
            learner.choose(vmap)
            return learner


def num_samples(
    model: str, *, dataset: str | None, data_dir: str | None, learning: str, samples: int | None = None
) -> int:
    """Returns the samples in one epoch of a valid workload; without training, those of the complete data set.

    Args:
        model: as for `build`, like the others.
        dataset: its name; None for the model's own.
        data_dir: the folder with its files.
        learning: ``train``, ``quadratic`` or ``none``.
        samples: the number of them that are used; None: all.

    >>> num_samples("lenet", dataset=None, data_dir=None, learning="none")
    60000
    """
    if samples is not None:
        return min(samples, num_samples(model, dataset=dataset, data_dir=data_dir, learning=learning))
    if learning == "train" and _is_own(model):
        from paceline.workloads.learners.torch_building import own_population

        return own_population(model, dataset, data_dir)
    name = dataset or _usual_data(model)
    known = None if name is None else DATA[name]
    if known is not None and known.read is not None and (learning == "train" or name == RECORDS):
        return read(known.name, data_dir, _shape(model)).num_samples
    return (known and known.train) or find_model(model).num_samples


def record_bytes(model: str, *, dataset: str | None, data_dir: str | None, learning: str) -> int | None:
    """Returns the bytes of one sample of a valid workload in a record file; None if unknown.

    For the data set ``records`` the file has the size; for others it is the size that ``paceline convert`` would write.

    Args:
        model: as for `build`, like the others.
        dataset: its name; None for the model's own.
        data_dir: the folder with its files.
        learning: ``train``, ``quadratic`` or ``none``.

    >>> record_bytes("lenet", dataset=None, data_dir=None, learning="none")
    792
    """
    if learning == "train" and _is_own(model):
        from paceline.workloads.learners.torch_building import own_record_bytes

        return own_record_bytes(model, dataset, data_dir)
    name = dataset or _usual_data(model)
    if name is None:
        return None
    known, shape = DATA[name], _shape(model)
    if known.tokens:
        return None  # a record has one label
    if name == RECORDS and isinstance(there := read(name, data_dir, shape), RecordedDataset):
        return there.train.record_bytes
    shape = shape if known.shape is None else known.shape
    return record_dtype(known.item, shape).itemsize if shape else None


def _shape(model: str) -> tuple[int, ...]:
    """Returns the shape of a sample; () if unknown."""
    return known.shape if (known := known_model(model)) else ()


def _usual_data(model: str) -> str | None:
    """Returns the data set that a model learns unless another is given; None if there is none."""
    return known.data if (known := known_model(model)) else None


def _is_own(model: str) -> bool:
    """Returns whether a model is a function of the user's own."""
    return ":" in model and not is_size(model)


def _unknown_model(model: str, learning: str) -> list[str]:
    if ":" not in model and not is_size(model):
        return _unknown("model", model, [*MODELS, OWN, SIZE])
    if learning == "train" and _is_own(model):
        return []  # it is built and tried with its data
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


def _mismatched(model: str, dataset: str | None, learning: str, data_dir: str | None) -> list[str]:
    if (learning == "quadratic") != (model == "quadratic") and learning != "none":
        return [f"learning: found {learning!r} for {model}; expected the model quadratic with learning: quadratic"]
    if model == "quadratic":
        given = {"dataset": dataset, "data_dir": data_dir}
        words = "expected none: the model has no data"
        return [f"{key}: found {value!r} for {model}, {words}" for key, value in given.items() if value is not None]
    if _is_own(model) and learning == "train":
        from paceline.workloads.learners.torch_building import own_problems

        return own_problems(model, dataset, data_dir)
    if (known := known_model(model)) is None:
        unknown = [] if dataset is None else _unknown("dataset", dataset, DATA)
        return unknown or (unreadable(RECORDS, data_dir, (), MANY) if dataset == RECORDS else [])
    name = dataset or known.data
    if learning == "none" and dataset != RECORDS:
        return [] if dataset is None else misfit(model, dataset, known.shape, known.classes, tokens=known.tokens)
    if name is None:
        smaller = f"; {TRAINABLE}" if is_size(model) else ""
        return [f"learning: found 'train', but no data set has what {model} takes; expected learning: none{smaller}"]
    mistakes = misfit(model, name, known.shape, known.classes, tokens=known.tokens)
    folder = [] if mistakes else unreadable(name, data_dir, known.shape, known.classes or 0)
    instead = "" if name == RECORDS else "; or learning: none, where only time matters"
    return [*mistakes, *(f"{line}{instead}" for line in folder)]


def _too_many(samples: int, model: str, dataset: str | None, learning: str, data_dir: str | None) -> list[str]:
    """Returns the mistake in a number of samples of an otherwise valid workload."""
    if model == "quadratic":
        return [f"samples: found {samples} for {model}, expected none: the model has no data"]
    if dataset == RECORDS:
        return [f"samples: found {samples} for {RECORDS}, expected none: they are read from a file of their own"]
    most = num_samples(model, dataset=dataset, data_dir=data_dir, learning=learning)
    return [f"samples: found {samples}, expected at most the {most} that there are"] if samples > most else []


def _option_problems(learning: str, options: Mapping[str, Any]) -> list[str]:
    if learning != "quadratic":
        return [f"options.{key}: only learning: quadratic has options" for key in options]
    try:
        chosen = _quadratic(options)
    except ValidationError as error:
        return [
            _option_problem(detail["loc"], detail["type"], detail["msg"], detail["input"]) for detail in error.errors()
        ]
    return [f"options.{line}" for line in chosen.problems()]


def _quadratic(options: Mapping[str, Any]) -> QuadraticOptions:
    return TypeAdapter(QuadraticOptions).validate_python(dict(options), strict=False)


def _option_problem(place: tuple[int | str, ...], kind: str, message: str, value: Any) -> str:
    name = ".".join(map(str, place))
    if kind in {"unexpected_keyword_argument", "extra_forbidden"}:
        names = list(QuadraticOptions.__dataclass_fields__)
        hint = near_miss(name, names) or f" (there are {', '.join(names)})"
        return f"options.{name}: there is no such option{hint}"
    return f"options.{name}: found {value!r}; {message.lower()}"
