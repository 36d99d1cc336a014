"""The section `workload` of a scenario: the model and its samples, or a small problem in place of missing data.

Rules of the stand-in:

* If the folder of the data set is there, nothing of it is used.
* Otherwise layers, bytes, batches and times are those of the model, and gradients and evaluations those of the stand-in
  (`workloads.learners.stand_in`). A note in the record and in every answer names both.
* A real run cannot use it: its messages would have the size of the stand-in.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.sections.reading import Reading
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import Fault, Place, one_of, wrong
from paceline.scenarios.values.section import Default, Field, Given, Nested, Section, Values
from paceline.workloads import MODELS, OWN, build, find_model, num_samples, problems, record_bytes
from paceline.workloads.datasets import DATA, place_of
from paceline.workloads.learners.stand_in import StandIn
from paceline.workloads.models.zoo import known_model

if TYPE_CHECKING:
    from paceline.algorithms.core.job import Learner


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


class Workload(Section):
    """What is trained: the model, its data set and the batch.

    >>> Workload(model="digits-mlp", batch_per_worker=16).document()
    {'model': 'digits-mlp', 'batch_per_worker': 16}
    """

    model: Given[fields.ModelName, str | Values] = Field(
        description=f"{one_of([*MODELS, OWN])}; or a mapping with the size of a transformer in the names of Hugging "
        "Face's config.json, or the path of such a file",
        json_schema_extra={"examples": list(MODELS)},
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
        return record_bytes(self.model, dataset=self.dataset, data_dir=self.data_dir, learning=self.learning)

    @property
    def num_samples(self) -> int:
        """Number of samples in one epoch."""
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
    faults: list[Fault] = []
    keys = set(Workload.model_fields) - {"batch_per_worker", "compute_dtype", "reading", "stand_in"}
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
