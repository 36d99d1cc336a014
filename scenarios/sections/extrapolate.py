"""The section of a scenario for models that cannot be trained here: a reference training, and a stand-in or a relation.

Values from elsewhere (a training with known outcome, a noise scale) have a provenance. Whether the evidence applies to
a method is checked before anything runs: a relation about gradients does not apply to elastic averages, and the vectors
of a stand-in cannot be divided into the layers of the big model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import StringConstraints, field_validator, model_validator

from paceline.algorithms.core.method import Method, StalenessKind
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.scenarios.sections.methods import Algorithm
from paceline.scenarios.sections.workload import Workload
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import Fault, complain, expected, one_of, wrong
from paceline.scenarios.values.section import Default, Field, Given, Nested, Section, Values

Sentence = Annotated[str, StringConstraints(min_length=1)]
Slowdown = Literal["none", "stability-limit", "implicit-momentum"]
COVERED = (StalenessKind.STEPS, StalenessKind.VERSION_LAG, StalenessKind.LOCAL_AGE)
"""the kinds of staleness that a relation about gradients applies to"""


class ReferenceTraining(Section):
    """A training of the model with known outcome, from a paper or from one's own records."""

    reaches: Sentence = Field(description="the accuracy that it reached, as text: '75 % top-1'; this is the target")
    epochs: fields.Positive = Field(description="number of epochs of this training")
    batch: fields.Count = Field(description="samples of one synchronous update of this training")
    provenance: Sentence = Field(description="source of these figures")


class Relation(Section):
    """A published relation: samples to a target grow as 1 + slowdown × batch / noise scale (McCandlish et al. 2018)."""

    noise_scale: fields.Positive = Field(description="the gradient noise scale (critical batch) of the model, samples")
    staleness: Default[Annotated[Slowdown, *fields.choices("none", "stability-limit", "implicit-momentum")]] = Field(
        default="stability-limit",
        description="model of the slowdown by stale gradients: stability-limit, implicit-momentum, or none",
    )
    momentum: float | None = Field(
        default=None, ge=0, lt=1, description="momentum of the reference training, for staleness: implicit-momentum"
    )
    provenance: Sentence = Field(description="source of the noise scale")

    @model_validator(mode="after")
    def _momentum(self) -> Relation:
        if (self.momentum is None) == (self.staleness == "implicit-momentum"):
            words = "found none, expected the reference's" if self.momentum is None else "found one, expected none"
            complain([(("momentum",), wrong(f"{words} with staleness: {self.staleness}"), self.momentum)])
        return self


class StandInWorkload(Workload):
    """A small problem that is trained in place of the model, with the model's timing."""

    accuracy: fields.Accuracy = Field(description="target accuracy of the stand-in, which stands for the target")
    epochs: Default[fields.Positive] = Field(
        default=40.0, description="limit of the stand-in's training, in epochs of its data"
    )
    evaluate: Given[fields.Interval, str | None] = Field(
        default=fields.Every(1 / 16, "epochs"), description="how often it is evaluated"
    )
    learning_rates: Given[tuple[fields.Positive, ...], Sequence[float] | None] = Field(
        default=(),
        description="learning rates to try with each method and the reference; the best counts; default: its own",
    )
    alone: Given[Algorithm, str | Method | type[Method] | Values | None] = Field(
        default=SequentialSgd(), description="the algorithm by which one worker trains the stand-in's reference"
    )

    @field_validator("alone")
    @classmethod
    def _one_worker(cls, alone: Algorithm) -> Algorithm:
        if not alone.alone:
            complain([(("name",), expected("a method of one worker, such as sequential-sgd"), alone.name)])
        return alone

    def stand_for(self, model_batch: int, batch: int) -> float:
        """Returns the number of the stand-in's samples that correspond to a batch of the model.

        Args:
            model_batch: samples of the model's gradient to which `batch_per_worker` of the stand-in corresponds.
            batch: samples of the model.
        """
        return batch * self.batch_per_worker / model_batch


class Extrapolate(Section):
    """How long a model takes to a target that cannot be trained here."""

    reference: Given[ReferenceTraining, ReferenceTraining | Values] = Field(
        description="a training of the model with known outcome"
    )
    stand_in: Nested[StandInWorkload | None] = Field(
        default=None, description="a small problem, trained with the model's timing"
    )
    relation: Nested[Relation | None] = Field(
        default=None, description="a published relation of samples to batch size and staleness"
    )


def faults_of(
    part: Extrapolate, workload: Workload | None, workers: int | None, methods: Sequence[Method]
) -> list[Fault]:
    """Returns the mistakes of the section with respect to the valid part of the scenario."""
    faults: list[Fault] = []
    if (part.stand_in is None) == (part.relation is None):
        how = "neither" if part.stand_in is None else "both"
        faults.append(((), wrong(f"found {how} of stand_in and relation; expected one of them"), None))
    if workload is not None and workload.learning != "none":
        words = (
            f"found a scenario that learns (workload.learning: {workload.learning}); expected learning: none, or no "
        )
        faults.append(((), wrong(words + "extrapolate section: what is trained here needs none"), None))
    if part.stand_in is not None and part.stand_in.learning != "train":
        faults.append(
            (("stand_in", "learning"), expected("train: it is trained to an accuracy"), part.stand_in.learning)
        )
    elif part.stand_in is not None and workload is not None and workers is not None:
        faults += _batches(part, part.stand_in, workload, workers)
    if part.stand_in is not None:
        faults += [(("stand_in",), wrong(text), None) for method in methods for text in _uncut(method)]
    elif part.relation is not None:
        faults += [(("relation",), wrong(text), None) for method in methods for text in _uncovered(method)]
    return faults


def _batches(part: Extrapolate, stand_in: StandInWorkload, workload: Workload, workers: int) -> Iterator[Fault]:
    most = stand_in.num_samples // workers
    if stand_in.batch_per_worker > most:
        words = (
            f"at most {most}, so that {workers} workers together take no more than all {stand_in.num_samples} samples"
        )
        yield ("stand_in", "batch_per_worker"), expected(words), stand_in.batch_per_worker
    batch = stand_in.stand_for(workload.batch_per_worker, part.reference.batch)
    if not batch.is_integer():
        words = f"a batch that is a whole number of the stand-in's samples; this is {batch:g}, as "
        words += f"{workload.batch_per_worker} stand for {stand_in.batch_per_worker}"
        yield ("reference", "batch"), expected(words), part.reference.batch


def _uncut(method: Method) -> Iterator[str]:
    """Yields the reasons why a method would treat the vectors of a stand-in differently."""
    for name, why in (("lars", "the layers are the model's"), ("compression", "its sizes follow from the numbers")):
        if getattr(method, name, None) is not None:
            yield f"cannot say anything of {method.name} with {name}, as {why}; expected it without"


def _uncovered(method: Method) -> Iterator[str]:
    if method.staleness_kind not in COVERED:
        words = "says nothing of {}, whose staleness is {}; expected a stand_in, or methods with {}"
        yield words.format(method.name, method.staleness_kind.value, one_of([notion.value for notion in COVERED]))
