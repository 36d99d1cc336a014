"""The section `workload` of a scenario: the model and its samples, or a small problem in place of missing data.

Rules of the stand-in:

* If the folder of the data set is there, nothing of it is used.
* Otherwise layers, bytes, batches and times are those of the model, and gradients and evaluations those of the stand-in
  (`workloads.learners.stand_in`). A note in the record and in every answer names both.
* A real run cannot use it: its messages would have the size of the stand-in.

Rules of the trace:

* Workers take the mean time of a gradient of its steps, whatever their devices. Beside a model, layers are those of the
  model.
* Without a model, the layers are the parts of the trace's gradient. A trace does not divide the forward pass: each
  layer has the same share of it as of the backward pass. Learning is not possible, and an epoch has `samples`, or as
  many as that of a model of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.sections.reading import Reading
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import Fault, Place, complain, expected, one_of, wrong
from paceline.scenarios.values.section import Default, Field, Given, Nested, Section, Values
from paceline.topologies.importing import training_trace
from paceline.topologies.importing.torch_profile import GradientProfile
from paceline.workloads import MODELS, OWN, build, find_model, num_samples, problems, record_bytes
from paceline.workloads.datasets import DATA, place_of
from paceline.workloads.learners.stand_in import StandIn, TimingOnly
from paceline.workloads.models.layer_tables import LayerInfo, layout_of
from paceline.workloads.models.zoo import IMAGENET, known_model

if TYPE_CHECKING:
    from paceline.algorithms.core.job import Learner


TRACED = "trace"
"""the model whose layers are the parts of a trace's gradient"""
FILE = f"the path of a trace: {training_trace.FORMATS}"
ITEM_BYTES = 4
"""bytes of a number of such a layer, whose last one may be padding"""


def _trace(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise expected(FILE)
    try:
        profile_of(value)
    except InputError as error:
        complain([((), wrong(line), value) for line in str(error).splitlines()])
        raise
    return value


def profile_of(file: str) -> GradientProfile:
    """Returns the costs of the training steps in a trace.

    Args:
        file: its path.

    Raises:
        InputError: it cannot be read, or is no such trace.
    """
    path = Path(file)
    return _profile(path, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=16)
def _profile(path: Path, _: int) -> GradientProfile:
    return training_trace.profile(path)


class StandInData(Section):
    """A small problem to learn if there is no folder of the data set."""

    model: Given[fields.ModelName, str | Values] = Field(
        description=f"{one_of([*MODELS])}, or the size of a transformer"
    )
    dataset: str | None = Field(
        default=None, description="its data set, which must be bundled; default: that of the model"
    )
    batch_per_worker: fields.Count = Field(description="its samples in a batch of one worker of the model")

    @property
    def words(self) -> str:
        """The model and its data set.

        >>> StandInData(model="digits-cnn", batch_per_worker=16).words
        'digits-cnn on digits'
        """
        return self.model if self.data is None else f"{self.model} on {self.data}"

    @property
    def data(self) -> str | None:
        """The name of its data set; None if the model brings its own data."""
        return usual_data(self.model, self.dataset)

    def learner(self, seed: int, *, model: str, batch: int, dtype: str) -> Learner:
        """Returns the learner with the numbers of this problem and the sizes of the model.

        Args:
            seed: the seed of initial weights and of the order of samples.
            model: the model whose layers and bytes it has.
            batch: samples of the model in a batch of one worker.
            dtype: type of weights and gradients of the model.
        """
        problem = build(self.model, dataset=self.dataset, seed=seed, dtype="float32")
        item_bytes = 4 if dtype == "float32" else 8
        return StandIn(problem, find_model(model).layout(), batch, self.batch_per_worker, item_bytes)

    def faults(self, reading: Reading | None) -> list[tuple[Place, PydanticCustomError]]:
        """Returns the mistakes of this part.

        Args:
            reading: how the samples of the model are read.
        """
        faults: list[tuple[Place, PydanticCustomError]] = []
        for text in problems(self.model, dataset=self.dataset, learning="train"):
            key, _, rest = text.partition(": ")
            faults.append((tuple(key.split(".")), wrong(rest)))
        if reading is not None:
            words = "found beside workload.reading; expected one of them: a stand-in is in memory"
            faults.append(((), wrong(words)))
        return faults


def usual_data(model: str, dataset: str | None) -> str | None:
    """Returns the name of the data set that a model learns; None if it is unknown.

    Args:
        model: the model, whose own data set is used if none is given.
        dataset: the data set, if one is given.

    >>> usual_data("lenet", None), usual_data("lenet", "fashion-mnist"), usual_data("resnet50", None)
    ('mnist', 'fashion-mnist', 'images')
    """
    return dataset or (known.data if (known := known_model(model)) else None)


def title_of(model: str, data: str | None) -> str:
    """Returns the name of a data set in a sentence.

    Args:
        model: the model that learns it.
        data: its name; None if it is unknown.

    >>> title_of("lenet", "mnist"), title_of("resnet50", None)
    ('MNIST', 'the data of resnet50')
    """
    return f"the data of {model}" if data is None else DATA[data].title


def folder_is_missing(model: str, dataset: str | None) -> bool:
    """Returns whether a data set has to be read from a folder that is not there.

    Args:
        model: the model, whose own data set is used if none is given.
        dataset: the data set.
    """
    name = usual_data(model, dataset)
    if name is None:
        return True
    try:
        place_of(name, None)
    except (InputError, KeyError):
        return True
    return False


class TracedTimes(NamedTuple):
    """The time of a gradient in a trace."""

    seconds: float
    batch: int
    """its samples"""
    forward: tuple[float, ...]
    """the share of each layer, first layer first; empty if the layers are not those of the trace"""
    backward: tuple[float, ...]
    words: str
    """where it comes from"""


class Workload(Section):
    """What is trained: the model, its data set and the batch.

    >>> Workload(model="digits-mlp", batch_per_worker=16).document()
    {'model': 'digits-mlp', 'batch_per_worker': 16}
    """

    model: Given[fields.ModelName, str | Values] = Field(
        default=TRACED,
        description=f"{one_of([*MODELS, OWN])}; or a mapping with the size of a transformer in the names of Hugging "
        f"Face's config.json, or the path of such a file; default beside trace: {TRACED}, whose layers are the parts "
        "of the trace's gradient",
        json_schema_extra={"examples": list(MODELS)},
    )
    trace: Given[
        Annotated[str, PlainValidator(_trace), WithJsonSchema({"type": "string", "description": FILE})] | None,
        str | Path | None,
    ] = Field(
        default=None,
        description=f"{FILE}; the time of a worker's gradient, and without a model also its layers, are those of the "
        "trace",
    )
    trace_batch: fields.Count | None = Field(
        default=None,
        description="samples of a gradient of the trace, which are then the default of batch_per_worker, too; 32 if "
        "neither is given. Gradients of other batches take time in proportion",
    )
    dataset: str | None = Field(default=None, description="the data set; default: that of the model")
    data_dir: Given[str | None, str | Path | None] = Field(
        default=None,
        description="the folder with the data set's files; default: the one of its name in $PACELINE_DATA, or the "
        "one of its Debian package",
    )
    samples: fields.Count | None = Field(
        default=None,
        description="the number of training samples that are used, with the same share of the held-out ones; the same "
        "for all seeds; default: all",
    )
    batch_per_worker: Default[fields.Count] = Field(default=32, description="samples in one gradient of one worker")
    learning: Given[str, Literal["train", "quadratic", "none"] | None] = Field(
        default="train", description="train, quadratic, or none: timing only"
    )
    dtype: Given[str, Literal["float32", "float64"] | None] = Field(
        default="float32", description="type of weights and gradients, in memory and in messages: float32 or float64"
    )
    vmap: Given[Annotated[str, fields.SWITCH], Literal["on", "off", "auto"] | None] = Field(
        default="auto",
        description="whether simulated gradients in flight are computed together: on, off, or auto: by sizes",
    )
    compute_dtype: Default[fields.Arithmetic] = Field(
        default="fp32",
        description="precision in which devices of the catalogue compute; affects only the time of a gradient: fp32, "
        "tf32, fp16, bf16, fp64 or amp (mixed precision); tensor cores need tf32, fp16, bf16 or amp",
    )
    options: Nested[dict[str, Any]] = Field(
        default={}, description="options of the learning problem, such as those of the quadratic"
    )
    stand_in: Nested[StandInData | None] = Field(
        default=None,
        description="a small problem to learn if there is no folder of the data set; sizes and times stay the model's; "
        "simulate only",
    )
    reading: Nested[Reading | None] = Field(
        default=None, description="a mapping: how samples are read; default: they are in memory, shuffled every epoch"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_trace(cls, value: object) -> object:
        """Fills what follows from a trace."""
        if not isinstance(value, Mapping) or value.get("trace") is None:
            return value
        given = {"learning": "none", **value} if value.get("model", TRACED) == TRACED else dict(value)
        if given.get("batch_per_worker") is None:
            usual = cls.model_fields["batch_per_worker"].default
            given["batch_per_worker"] = given["trace_batch"] = given.get("trace_batch") or usual
        return given

    @model_validator(mode="after")
    def _complete(self) -> Workload:
        about, faults = type(self).model_fields, list[Fault]()
        if self.model == TRACED and self.trace is None:
            words = f"missing; expected {about['model'].description}"
            if "model" in self.model_fields_set:
                words = f"found {TRACED!r} without trace; expected {FILE} as workload.trace"
            faults.append((("model",), wrong(words), None))
        if (self.trace is None) != (self.trace_batch is None):
            words = f"missing beside batch_per_worker; expected {about['trace_batch'].description}"
            if self.trace is None:
                words = f"found {self.trace_batch} without trace; expected both or none"
            faults.append((("trace_batch",), wrong(words), None))
        complain(faults)
        return self

    @property
    def profile(self) -> GradientProfile | None:
        """The costs of the steps in the trace; None without a trace."""
        return None if self.trace is None else profile_of(self.trace)

    @property
    def traced_layers(self) -> tuple[LayerInfo, ...]:
        """The layers of the trace, first layer first; empty if the model has its own."""
        if self.model != TRACED or self.profile is None:
            return ()
        parts = self.profile.parts[::-1]
        usual = (f"part-{number}" if len(parts) > 1 else "gradient" for number in range(1, len(parts) + 1))
        return tuple(
            LayerInfo(part.name or name, -(-part.nbytes // ITEM_BYTES)) for part, name in zip(parts, usual, strict=True)
        )

    def traced_times(self) -> TracedTimes | None:
        """Returns the time of a gradient as the trace has it; None without a trace."""
        profile = self.profile
        if profile is None or self.trace_batch is None:
            return None
        shares = [part.share for part in profile.parts[::-1]] if self.model == TRACED else []
        forward = profile.forward_share
        return TracedTimes(
            seconds=fmean(profile.gradient),
            batch=self.trace_batch,
            forward=tuple(forward * share for share in shares),
            backward=tuple((1 - forward) * share for share in shares),
            words=f"the mean of {len(profile.gradient)} steps of {Path(str(self.trace)).name} ({profile.tool})",
        )

    @property
    def stood_in(self) -> StandInData | None:
        """The stand-in that is learned; None if the model learns its own data set, or nothing is learned."""
        if self.stand_in is None or self.learning != "train" or self.data_dir is not None:
            return None
        return self.stand_in if folder_is_missing(self.model, self.dataset) else None

    @property
    def stood_in_words(self) -> str | None:
        """Which model stands in for which, as in "digits-mlp standing in for resnet50"; None without a stand-in."""
        return None if self.stood_in is None else f"{self.stood_in.model} standing in for {self.model}"

    @property
    def stood_in_note(self) -> str:
        """Says what was learned in place of the data set, and what would train the model; "" without a stand-in."""
        if (stand_in := self.stood_in) is None:
            return ""
        data = usual_data(self.model, self.dataset)
        install = f", or apt-get install {DATA[data].package}" if data is not None and DATA[data].package else ""
        return (
            f"Learned on {title_of(stand_in.model, stand_in.data)}, which stand in for {title_of(self.model, data)}: "
            f"losses and accuracies are those of {stand_in.model}, sizes and times those of {self.model}. To train "
            f"{self.model} itself, give workload.data_dir{install}."
        )

    def learner(self, seed: int) -> Learner:
        """Returns the learner for one seed."""
        if self.model == TRACED:
            return TimingOnly(layout_of(self.traced_layers), self.num_samples, ITEM_BYTES)
        if self.stood_in is not None:
            return self.stood_in.learner(seed, model=self.model, batch=self.batch_per_worker, dtype=self.dtype)
        return build(
            self.model,
            dataset=self.dataset,
            data_dir=self.data_dir,
            learning=self.learning,  # type: ignore[arg-type]  # checked by problems
            seed=seed,
            dtype=self.dtype,  # type: ignore[arg-type]
            vmap=self.vmap,  # type: ignore[arg-type]
            reading=None if self.reading is None else self.reading.settings(),
            samples=self.samples,
            **self.options,
        )

    @property
    def record_bytes(self) -> int | None:
        """Bytes of one sample in the file; None if unknown."""
        if self.reading is not None and self.reading.record is not None:
            return round(self.reading.record)
        if self.model == TRACED:
            return None
        return record_bytes(self.model, dataset=self.dataset, data_dir=self.data_dir, learning=self.learning)

    @property
    def num_samples(self) -> int:
        """Number of samples in one epoch."""
        if self.model == TRACED:
            return self.samples or IMAGENET
        if self.learning == "quadratic" or self.stood_in is not None:
            return self.learner(0).num_samples
        return num_samples(
            self.model,
            dataset=self.dataset,
            data_dir=self.data_dir,
            learning=self.learning,
            samples=self.samples,
        )


REDUCED = {
    "float16": "amp",
    "fp16": "amp",
    "half": "amp",
    "amp": "amp",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "tf32": "tf32",
}
"""the `compute_dtype` for names of precisions that weights and gradients cannot have"""


def _suggested(rest: str, dtype: str) -> str:
    """Adds a suggestion to a mistake in a dtype, if it is one that only devices can compute in."""
    if dtype not in REDUCED:
        return rest
    expected = rest.partition(" (did you mean")[0]
    return f"{expected}; for devices of the catalogue that compute in {dtype} give compute_dtype: {REDUCED[dtype]}"


def unbuildable(workload: Workload) -> list[Fault]:
    """Returns the mistakes in the names and options of a workload."""
    if workload.model == TRACED:
        return _untraceable(workload)
    faults: list[Fault] = []
    keys = set(Workload.model_fields) - {
        "batch_per_worker",
        "compute_dtype",
        "reading",
        "stand_in",
        "trace",
        "trace_batch",
    }
    given = workload.model_dump(include=keys)
    if (stand_in := workload.stood_in) is not None:
        given["learning"] = "none"  # only its sizes are used
        faults += [(("stand_in", *place), error, stand_in) for place, error in stand_in.faults(workload.reading)]
    for text in problems(**given):
        key, _, rest = text.partition(": ")
        if key == "dtype" and "compute_dtype" not in workload.model_fields_set:
            rest = _suggested(rest, workload.dtype)
        faults.append((tuple(key.split(".")), wrong(rest), workload))
    return faults


def _untraceable(workload: Workload) -> list[Fault]:
    """Returns the mistakes of a workload whose layers are those of a trace."""
    faults: list[Fault] = []
    profile = workload.profile
    assert profile is not None
    if not profile.parts:
        words = f"{workload.trace}: {profile.no_parts}; or give workload.model, whose layers share the time"
        faults.append((("trace",), wrong(words), None))
    for key, usual in (("learning", "none"), ("dtype", "float32")):
        if (given := getattr(workload, key)) != usual:
            words = f"found {given!r} for the layers of a trace, expected {usual}; or give workload.model"
            faults.append(((key,), wrong(words), None))
    for key in ("dataset", "data_dir", "options", "stand_in"):
        if getattr(workload, key):
            words = "found beside the layers of a trace, which has no data; expected none, or workload.model"
            faults.append(((key,), wrong(words), None))
    return faults


def unreadable(workload: Workload) -> list[Fault]:
    """Returns the mistakes of a workload that lacks what reading from storage requires."""
    if workload.reading is None:
        words = (
            "missing; cluster.storage is there, but samples are in memory: give reading, such as {strategy: contiguous}"
        )
        return [(("reading",), wrong(words), None)]
    if workload.record_bytes is None:
        words = f"missing; expected the bytes of a sample, such as '110 kB': no data set is known for {workload.model}"
        return [(("reading", "record"), wrong(words), None)]
    return []
