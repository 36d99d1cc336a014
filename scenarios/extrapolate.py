"""The section of a scenario for models that cannot be trained here: what is known of them, what stands for the rest.

Rules of this file:

* What is taken from elsewhere (a training whose outcome is known, a noise scale) says where it is from.
* What a method asks of its evidence is checked before anything runs: a relation about gradients says nothing of
  elastic averages, and a stand-in's numbers cannot be cut by the big model's layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from paceline.algorithms.method import Method, Notion
from paceline.scenarios import fields
from paceline.scenarios.part import Part
from paceline.scenarios.problems import Fault, complain, expected, one_of, wrong

if TYPE_CHECKING:
    from paceline.scenarios.schema import ExtrapolatePart, StandInPart, WorkloadPart

Sentence = Annotated[str, Field(min_length=1)]
Slowdown = Literal["none", "stability-limit", "implicit-momentum"]
COVERED = (Notion.STEPS, Notion.VERSION_LAG, Notion.LOCAL_AGE)
"""the staleness that a relation about gradients can say something of"""


class ReferencePart(Part):
    """A training of the model whose outcome is known, from a paper or from one's own records."""

    reaches: Sentence = Field(description="what it reached, in words: '75 % top-1'; this is the target")
    epochs: fields.Positive = Field(description="how many epochs that took")
    batch: fields.Count = Field(description="samples of one synchronous update in it")
    provenance: Sentence = Field(description="where these figures are from")


class RelationPart(Part):
    """A published relation: samples to a target grow as 1 + slowdown × batch / noise scale (McCandlish et al. 2018)."""

    noise_scale: fields.Positive = Field(description="the gradient noise scale (critical batch) of the model, samples")
    staleness: Annotated[Slowdown, *fields.choices("none", "stability-limit", "implicit-momentum")] = Field(
        default="stability-limit",
        description="by what stale gradients slow training down: stability-limit, implicit-momentum, or none",
    )
    momentum: float | None = Field(
        default=None, ge=0, lt=1, description="of the reference's training, for staleness: implicit-momentum"
    )
    provenance: Sentence = Field(description="where the noise scale is from")

    @model_validator(mode="after")
    def _momentum(self) -> RelationPart:
        if (self.momentum is None) == (self.staleness == "implicit-momentum"):
            words = "found none, expected the reference's" if self.momentum is None else "found one, expected none"
            complain([(("momentum",), wrong(f"{words} with staleness: {self.staleness}"), self.momentum)])
        return self


def stand_for(workload: WorkloadPart, stand_in: StandInPart, batch: int) -> float:
    """The stand-in's samples that so many of the model's stand for."""
    return batch * stand_in.batch_per_worker / workload.batch_per_worker


def faults_of(
    part: ExtrapolatePart, workload: WorkloadPart | None, workers: int | None, methods: Sequence[Method]
) -> list[Fault]:
    """What does not fit the rest of the scenario, as far as that is right itself."""
    found: list[Fault] = []
    if (part.stand_in is None) == (part.relation is None):
        how = "neither" if part.stand_in is None else "both"
        found.append(((), wrong(f"found {how} of stand_in and relation; expected one of them"), None))
    if workload is not None and workload.learning != "none":
        words = (
            f"found a scenario that learns (workload.learning: {workload.learning}); expected learning: none, or no "
        )
        found.append(((), wrong(words + "extrapolate section: what is trained here needs none"), None))
    if part.stand_in is not None and part.stand_in.learning != "train":
        found.append(
            (("stand_in", "learning"), expected("train: it is trained to an accuracy"), part.stand_in.learning)
        )
    elif part.stand_in is not None and workload is not None and workers is not None:
        found += _batches(part, part.stand_in, workload, workers)
    if part.stand_in is not None:
        found += [(("stand_in",), wrong(text), None) for method in methods for text in _uncut(method)]
    elif part.relation is not None:
        found += [(("relation",), wrong(text), None) for method in methods for text in _uncovered(method)]
    return found


def _batches(part: ExtrapolatePart, stand_in: StandInPart, workload: WorkloadPart, workers: int) -> Iterator[Fault]:
    most = stand_in.population // workers
    if stand_in.batch_per_worker > most:
        words = (
            f"at most {most}, so that {workers} workers together take no more than all {stand_in.population} samples"
        )
        yield ("stand_in", "batch_per_worker"), expected(words), stand_in.batch_per_worker
    batch = stand_for(workload, stand_in, part.reference.batch)
    if not batch.is_integer():
        words = f"a batch that is a whole number of the stand-in's samples; this is {batch:g}, as "
        words += f"{workload.batch_per_worker} stand for {stand_in.batch_per_worker}"
        yield ("reference", "batch"), expected(words), part.reference.batch


def _uncut(method: Method) -> Iterator[str]:
    """What a method does to vectors that would not be the same to a stand-in's."""
    for name, why in (("lars", "the layers are the model's"), ("compression", "its sizes follow from the numbers")):
        if getattr(method, name, None) is not None:
            yield f"cannot say anything of {method.name} with {name}, as {why}; expected it without"


def _uncovered(method: Method) -> Iterator[str]:
    if method.notion not in COVERED:
        words = "says nothing of {}, whose staleness is {}; expected a stand_in, or methods with {}"
        yield words.format(method.name, method.notion.value, one_of([notion.value for notion in COVERED]))
