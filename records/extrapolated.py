"""The extrapolated figures of a model that was not trained: its time per sample, and an estimate of its samples.

* Extrapolated figures are separate from those of training: they are in a labelled block, with every assumption as a
  sentence: first those of all algorithms, then those of one.
* If the stand-in did not reach its target, figures are None.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from paceline.records.epoch_errors import OTHER, SHARE, RelationError, relation_errors, run_spread
from paceline.records.figures import PERCENT, PLAIN
from paceline.records.targets import SMOOTHING

Way = Literal["stand-in", "relation"]
SLOWDOWNS = {
    "stability-limit": "as a constant delay lowers the largest stable rate on a quadratic",
    "implicit-momentum": "as asynchrony acts like momentum on a quadratic (Mitliagkas et al. 2016)",
}


class ReferenceFacts(TypedDict):
    """A published training of the model."""

    reaches: str
    epochs: float
    samples: float
    batch: int
    provenance: str


class SingleRun(TypedDict):
    """The interval of a single run, as factors on a time to the target, which is a mean over runs."""

    share: float
    """of published runs in the interval"""
    low: float
    high: float
    benchmark: str
    """the benchmark of MLPerf Training that these runs are of, or `other`"""


class Extrapolated(TypedDict):
    """An estimated time to a target; samples are those of the model."""

    label: Literal["extrapolated"]
    method: Way
    """the source of the statistical penalty: a stand-in that was trained, or a published relation"""
    time_to_target_s: float | None
    """samples_to_target / samples_per_s; null if the stand-in did not reach its target"""
    samples_to_target: float | None
    """the reference's samples × statistical_penalty"""
    statistical_penalty: float | None
    """samples that this method with this number of workers needs, as a multiple of the reference's"""
    samples_per_s: float | None
    """rate of the simulated run of the model"""
    reference: ReferenceFacts
    evidence: dict[str, Any]
    """the figures from which the penalty was computed"""
    single_run: NotRequired[SingleRun]
    """missing in runs that earlier versions stored"""
    relation_errors: NotRequired[list[dict[str, Any]]]
    """the errors of the relation on published trainings; of an estimate by a relation"""
    assumptions: list[str]


def extrapolated(
    method: Way,
    *,
    model: str,
    penalty: float | None,
    samples_per_s: float | None,
    reference: ReferenceFacts,
    evidence: dict[str, Any],
    assumptions: Sequence[str],
) -> Extrapolated:
    """Combines hardware efficiency and statistical efficiency.

    time = reference samples × penalty / (samples per second)

    Args:
        method: the source of the penalty.
        model: the model that was not trained.
        penalty: the statistical penalty; None if the target was not reached.
        samples_per_s: the rate of the simulated run.
        reference: the published training.
        evidence: the figures from which the penalty was computed.
        assumptions: the assumptions, as sentences.

    >>> facts = ReferenceFacts(reaches="75 %", epochs=2.0, samples=2000.0, batch=8, provenance="made up")
    >>> two = dict(model="resnet50", samples_per_s=100.0, reference=facts, evidence={}, assumptions=[])
    >>> extrapolated("relation", penalty=1.5, **two)["time_to_target_s"]
    30.0
    >>> extrapolated("relation", penalty=None, **two)["time_to_target_s"] is None
    True
    """
    samples = None if penalty is None else reference["samples"] * penalty
    spread = run_spread(model)
    block = Extrapolated(
        label="extrapolated",
        method=method,
        time_to_target_s=None if samples is None or not samples_per_s else samples / samples_per_s,
        samples_to_target=samples,
        statistical_penalty=penalty,
        samples_per_s=samples_per_s,
        reference=reference,
        evidence=evidence,
        single_run=SingleRun(share=SHARE, low=spread.low, high=spread.high, benchmark=spread.benchmark),
        assumptions=[*assumptions, run_sentence(model)],
    )
    if method == "relation":
        block["relation_errors"] = [dataclasses.asdict(error) for error in relation_errors()]
    return block


def reference_sentences(model: str, reference: ReferenceFacts) -> list[str]:
    """Returns the sources of the model's own figures."""
    return [
        f"{model} was not trained here: its samples/s come from a simulated run without learning, start included.",
        (
            f"{model} reaches {reference['reaches']} in {reference['epochs']:g} epochs of synchronous updates of "
            f"{reference['batch']} samples: {reference['provenance']}."
        ),
    ]


VALIDATION = "docs/results/validation.md"


def run_sentence(model: str) -> str:
    """Returns how much the time of a single run of a model differs from the mean over runs."""
    spread = run_spread(model)
    runs = f"{spread.runs:,} published runs of " + (
        "other models, the median over models" if spread.benchmark == OTHER else f"{model} on {spread.systems} systems"
    )
    return (
        f"{PERCENT.with_symbol(SHARE)} of single runs take {PLAIN.text(spread.low)} to {PLAIN.text(spread.high)} times "
        f"the mean time to a target ({runs}); as submitters choose runs, others differ more ({VALIDATION})."
    )


def error_sentence() -> str:
    """Returns the errors of the relation on published trainings."""
    fitted, measured = relation_errors()

    def words(error: RelationError) -> str:
        return (
            f"median error {PERCENT.with_symbol(error.median)}, 90th percentile {PERCENT.with_symbol(error.p90)} over "
            f"{error.batches} batches of {error.trainings} published synchronous trainings"
        )

    return (
        f"Epochs by batch: {words(fitted)}, each with a noise scale fitted to other batches; {words(measured)}, with "
        f"one measured from gradients of the smallest batch ({VALIDATION})."
    )


@dataclass(frozen=True, slots=True)
class Needed:
    """The samples to the stand-in's accuracy, for each seed; None if it was not reached."""

    samples: tuple[float | None, ...]
    learning_rate: float | None = None
    """the learning rate used; None for a method without one"""

    @property
    def mean(self) -> float:
        """The mean over the seeds; infinity if one did not reach the accuracy."""
        return math.fsum(math.inf if count is None else count for count in self.samples) / len(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInAssumptions:
    """What an estimate by a smaller model assumes."""

    method: str
    model: str
    stand_in: str
    accuracy: float
    model_batch: int
    """samples of the model that a worker computes a gradient of"""
    batch: int
    """samples of the stand-in that represent them"""
    reference_batch: int
    """samples of the model in an update of the reference"""
    reference_updates: float
    evaluated: str
    """how often the stand-in is evaluated"""
    epochs: float
    """limit of its training"""
    rates: Sequence[float]
    """the learning rates that were tried; empty: each method's own"""
    alone: str
    """the method by which one worker trains the reference"""
    needed: Needed
    needed_alone: Needed

    @property
    def batch_alone(self) -> int:
        """Samples of the stand-in that represent an update of the reference."""
        return round(self.reference_batch * self.batch / self.model_batch)

    def sentences(self) -> Iterator[str]:
        """Yields the assumptions."""
        model, small, goal = self.model, self.stand_in, f"{100 * self.accuracy:g} % accuracy"
        ratio = f"{self.model_batch / self.batch:g}"
        yield (
            f"The extra samples that a method needs to {goal} on {small} carry over to {model}. Gradients are those of "
            f"{small}; step times, messages, their order and so every update's staleness are those of {model}."
        )
        yield f"That they carry over was not tested on published trainings; of the relation it was ({VALIDATION})."
        yield (
            f"A sample of {small} represents {ratio} of {model}: {self.batch} per worker for {self.model_batch}, "
            f"{self.batch_alone} for the reference's {self.reference_batch}. If {model} tolerates batches more than "
            f"{ratio} times as large as {small} does, the penalty is overstated; if less, understated."
        )
        yield (
            f"Samples to {goal} are interpolated on means of {SMOOTHING} evaluations, every {self.evaluated} "
            "or, if weights are averaged less often, at every average."
        )
        if None not in self.needed_alone.samples:
            yield (
                f"The reference's training has {self.reference_updates:,.0f} updates, the stand-in's "
                f"{self.needed_alone.mean / self.batch_alone:,.0f}. Effects that need updates to settle, such as "
                "staleness and local steps, matter more in the shorter one."
            )
        yield from self._rates()
        for name, needed in (
            (self.method, self.needed),
            (f"{self.alone} with the reference's batch", self.needed_alone),
        ):
            if None in needed.samples:
                yield f"{name} did not reach {goal} on {small} within {self.epochs:g} epochs with every seed."

    def _rates(self) -> Iterator[str]:
        """Yields which learning rates were used; a best rate at the end of the list may not be the best."""
        if not self.rates:
            yield (
                f"Learning rates are the scenario's own, {self.needed_alone.learning_rate:g} for the reference; "
                "none is scaled with the batch."
            )
            if self.needed.learning_rate is not None:
                yield f"The learning rate of {self.method} is {self.needed.learning_rate:g}."
            return
        tried = ", ".join(f"{rate:g}" for rate in self.rates)
        yield (
            f"Each uses a constant learning rate: the one of {tried} at which its slowest seed needs the fewest "
            "samples."
        )
        for name, needed in ((self.method, self.needed), ("the reference", self.needed_alone)):
            if needed.learning_rate is not None and None not in needed.samples:
                edge = len(self.rates) > 1 and needed.learning_rate in (min(self.rates), max(self.rates))
                beyond = ", at the end of the rates tried: a rate beyond it may need fewer samples" if edge else ""
                yield f"The best learning rate of {name} is {needed.learning_rate:g}{beyond}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationAssumptions:
    """What an estimate by a published relation assumes."""

    method: str
    noise_scale: float
    provenance: str
    batch: float
    """samples of one update"""
    staleness: float
    """mean staleness of the updates"""
    slowdown: str
    """the model of what staleness costs: none, or a key of `SLOWDOWNS`"""
    local_steps: bool
    """whether the method averages weights after local steps"""

    def sentences(self) -> Iterator[str]:
        """Yields the assumptions."""
        yield (
            f"Samples grow as 1 + slowdown × batch / {self.noise_scale:g}, with a constant noise scale, although "
            "it grows, and the best learning rate for each batch (McCandlish et al. 2018, on a quadratic)."
        )
        yield f"The noise scale: {self.provenance}."
        yield error_sentence()
        yield f"The batch of {self.method} is {self.batch:g} samples, those of one update."
        if self.local_steps:
            yield f"Local steps between averages cost nothing, as with constant curvature: {self.method}."
        elif self.staleness and self.slowdown == "none":
            yield f"The staleness of {self.method} costs nothing."
        elif self.staleness:
            yield (
                f"The mean staleness of its updates slows {self.method} down {SLOWDOWNS[self.slowdown]}. That the "
                "slowdown multiplies the batch is derived here, not published."
            )
