"""The scenario: which methods, on which cluster, with which work, until when. `Scenario` is the whole file.

Rules of this file:

* Sections are frozen, and a key that is not here is a mistake. Each key's description says what belongs there.
* A scenario that exists is right: names are resolved, quantities are in SI units, and the sections fit each other. What
  needs several sections is checked as soon as those are right, so that one mistake does not hide another; hence
  the order of the sections in `Scenario`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from paceline.algorithms import reference
from paceline.algorithms.baseline import SequentialSgd
from paceline.algorithms.errors import InputError
from paceline.scenarios import fields
from paceline.scenarios.clusters import ClusterPart, cluster_mapping, some
from paceline.scenarios.extrapolate import ReferencePart, RelationPart, faults_of
from paceline.scenarios.limits import MOST_ALGORITHMS, MOST_RUNS
from paceline.scenarios.methods import Algorithm
from paceline.scenarios.part import Part
from paceline.scenarios.problems import Fault, complain, expected, one_of, wrong
from paceline.scenarios.reading import ReadingPart
from paceline.scenarios.real_part import TrainPart
from paceline.workloads import MODELS, OWN, build, population, problems, record_bytes

if TYPE_CHECKING:
    from paceline.algorithms.job import Learner
    from paceline.scenarios.plan import Plan


class WorkloadPart(Part):
    model: str = Field(description=one_of([*MODELS, OWN]), json_schema_extra={"examples": list(MODELS)})
    data: str | None = Field(default=None, description="the data set; the model's own if not given")
    directory: str | None = Field(
        default=None, description="the folder with the data set's files; else the one of its name in $PACELINE_DATA"
    )
    batch_per_worker: fields.Count = Field(default=32, description="samples in one gradient of one worker")
    learning: str = Field(default="train", description="train, quadratic, or none: timing only")
    precision: str = Field(
        default="float32", description="of weights and gradients, in memory and in messages: float32 or float64"
    )
    gradients: str = Field(
        default="auto", description="how simulated ones in flight are computed: together, one-by-one, or auto: by sizes"
    )
    arithmetic: fields.Arithmetic = Field(
        default="fp32",
        description="what devices of the catalogue compute in, for the time of a gradient alone: fp32, tf32, fp16, "
        "bf16, fp64 or amp (mixed precision); tensor cores need tf32, fp16, bf16 or amp",
    )
    options: dict[str, Any] = Field(default={}, description="of the learning problem; the quadratic has some")
    reading: ReadingPart | None = Field(
        default=None, description="a mapping: how samples are read; else they are in memory, shuffled every epoch"
    )

    def learner(self, seed: int) -> Learner:
        """What is learned, for one seed."""
        return build(
            self.model,
            data=self.data,
            directory=self.directory,
            learning=self.learning,  # type: ignore[arg-type]  # checked by problems
            seed=seed,
            precision=self.precision,  # type: ignore[arg-type]
            gradients=self.gradients,  # type: ignore[arg-type]
            reading=None if self.reading is None else self.reading.settings(),
            **self.options,
        )

    @property
    def record_bytes(self) -> int | None:
        """Of one sample in the file; None where nobody says."""
        if self.reading is not None and self.reading.record is not None:
            return round(self.reading.record)
        return record_bytes(self.model, data=self.data, directory=self.directory, learning=self.learning)

    @property
    def population(self) -> int:
        """Samples in one epoch."""
        if self.learning == "quadratic":
            return self.learner(0).population
        return population(self.model, data=self.data, directory=self.directory, learning=self.learning)


REDUCED = {
    "float16": "amp",
    "fp16": "amp",
    "half": "amp",
    "amp": "amp",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "tf32": "tf32",
}
"""what a device is to compute in, by names of precisions in which weights and gradients are not kept"""


def _suggested(rest: str, precision: str) -> str:
    """A mistake in a precision, with what may have been meant where weights and gradients cannot have it."""
    if precision not in REDUCED:
        return rest
    expected = rest.partition(" (did you mean")[0]
    return f"{expected}; for devices of the catalogue that compute in {precision} give arithmetic: {REDUCED[precision]}"


def _unbuildable(workload: WorkloadPart) -> list[Fault]:
    """What is wrong with the names of a workload and with its options."""
    faults: list[Fault] = []
    keys = set(WorkloadPart.model_fields) - {"batch_per_worker", "arithmetic", "reading"}
    for text in problems(**workload.model_dump(include=keys)):
        key, _, rest = text.partition(": ")
        if key == "precision" and "arithmetic" not in workload.model_fields_set:
            rest = _suggested(rest, workload.precision)
        faults.append((tuple(key.split(".")), wrong(rest), workload))
    return faults


def _unreadable(workload: WorkloadPart) -> list[Fault]:
    """What a workload does not say, though its samples are to be read from storage."""
    if workload.reading is None:
        words = (
            "missing; cluster.storage is there, but samples are in memory: give reading, such as {strategy: contiguous}"
        )
        return [(("reading",), wrong(words), None)]
    if workload.record_bytes is None:
        words = f"missing; expected the bytes of a sample, such as '110 kB': no data set is known for {workload.model}"
        return [(("reading", "record"), wrong(words), None)]
    return []


class EvaluatePart(Part):
    every: fields.Interval = Field(default=fields.Every(1.0, "epochs"), description="how often: '1 epoch', '2 s'")


class RecordPart(Part):
    loss_change: fields.Count | None = Field(
        default=None, description="the loss before and after every so many updates; simulated runs only"
    )
    drift: fields.Count | None = Field(
        default=None, description="how far workers are apart after every so many steps; simulated runs only"
    )

    @property
    def asked(self) -> list[str]:
        """The keys that are asked for."""
        return [name for name, every in self if every is not None]


class StopPart(Part):
    accuracy: fields.Accuracy | None = Field(default=None, description="end when the smoothed accuracy reaches this")
    loss: fields.Positive | None = Field(default=None, description="end when the smoothed loss comes down to this")
    epochs: fields.Positive | None = Field(default=None, description="end after so many epochs")
    updates: fields.Count | None = Field(default=None, description="end after so many steps of the weights' keeper")
    samples: fields.Count | None = Field(default=None, description="end after so many samples, of all workers together")
    seconds: fields.Period | None = Field(
        default=None, description="end after this time, with its unit, on the run's own clock"
    )
    divergence: fields.Flag = Field(
        default=True, description="end at an evaluation whose loss is no number or ten times the first one"
    )


class TargetPart(Part):
    accuracy: fields.Accuracy | None = Field(default=None, description="what the time to accuracy is measured to")
    loss: fields.Positive | None = Field(default=None, description="what the time to a loss is measured to")


class StandInPart(WorkloadPart):
    accuracy: fields.Accuracy = Field(description="what the stand-in is trained to; it stands for the target")
    epochs: fields.Positive = Field(
        default=40.0, description="of the stand-in's data, after which it has not got there"
    )
    evaluate: fields.Interval = Field(default=fields.Every(1 / 16, "epochs"), description="how often it is evaluated")
    rates: tuple[fields.Positive, ...] = Field(
        default=(), description="tried with every method and the reference; the best of each counts. Without: their own"
    )
    alone: Algorithm = Field(
        default=SequentialSgd(), description="how one worker trains the stand-in's reference, as an algorithm"
    )

    @field_validator("alone")
    @classmethod
    def _one_worker(cls, alone: Algorithm) -> Algorithm:
        if not alone.alone:
            complain([(("name",), expected("a method of one worker, such as sequential-sgd"), alone.name)])
        return alone


class ExtrapolatePart(Part):
    reference: ReferencePart = Field(description="a training of the model whose outcome is known")
    stand_in: StandInPart | None = Field(default=None, description="a small problem, trained with the model's timing")
    relation: RelationPart | None = Field(default=None, description="what is published of batch size and staleness")


def _not_too_many(value: object) -> object:
    """A list of algorithms, checked before each of them is."""
    listed = some(value)
    if isinstance(listed, list | tuple) and len(listed) > MOST_ALGORITHMS:
        raise wrong(f"found {len(listed)} algorithms, expected at most {MOST_ALGORITHMS}")
    return listed


class Scenario(Part):
    """Methods, a cluster, work and an end: everything that a run needs, whoever runs it."""

    name: fields.Name = Field(description="a name of letters, digits, '.', '-' and '_'")
    cluster: Annotated[ClusterPart, BeforeValidator(cluster_mapping)] = Field(
        description="a mapping with nodes, or the name of a system"
    )
    workload: WorkloadPart = Field(description="a mapping with a model: what is trained")
    hyperparameters: dict[str, Any] = Field(
        default={}, exclude=True, description="for every algorithm that has them and gives none itself"
    )
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(_not_too_many)] = Field(
        description="a list of methods, by name or as mappings with name and hyper-parameters"
    )
    train: TrainPart = Field(default=TrainPart(), description="how a real run is made")
    evaluate: EvaluatePart = Field(default=EvaluatePart(), description="when the weights are evaluated")
    record: RecordPart = Field(
        default=RecordPart(), description="what else a simulation measures; costs no virtual time"
    )
    stop: StopPart = Field(
        description="a mapping with epochs, updates, samples or seconds, and accuracy or loss: when a run ends"
    )
    target: TargetPart = Field(
        default=TargetPart(), description="an accuracy or a loss that the time is measured to; else that of stop"
    )
    extrapolate: ExtrapolatePart | None = Field(
        default=None, description="how long a model takes to a target that cannot be trained here; simulate only"
    )
    seed: fields.Index = Field(default=1, description="of initial weights, samples and spread")
    seeds: fields.Count = Field(default=1, description="how many runs of each algorithm: with seed, seed + 1, …")

    @field_validator("workload")
    @classmethod
    def _trainable(cls, workload: WorkloadPart, info: ValidationInfo) -> WorkloadPart:
        complain(_unbuildable(workload))
        if "cluster" in info.data:
            workers, batch = info.data["cluster"].workers, workload.batch_per_worker
            if workers * batch > workload.population:
                words = f"at most {workload.population // workers}, so that {workers} workers"
                words += f" together take no more than all {workload.population} samples at once"
                complain([(("batch_per_worker",), expected(words), batch)])
            try:
                info.data["cluster"].devices(workload)
            except InputError as error:  # a model whose work is not known, or that does not fit into memory
                complain([((), wrong(str(error)), workload)])
            complain(_unreadable(workload) if info.data["cluster"].storage is not None else [])
        return workload

    @field_validator("algorithms")
    @classmethod
    def _told_apart(cls, algorithms: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
        text = "is there twice with the same hyper-parameters; expected once"
        twice = [index for index, method in enumerate(algorithms) if method in algorithms[:index]]
        complain([((index,), wrong(f"{algorithms[index].name} {text}"), None) for index in twice])
        classes = {method.name: type(method) for method in reversed(algorithms)}
        text = "is called {} as another class here is, {}; expected names that differ"
        complain(
            [
                ((index,), wrong(f"{reference(type(method))} " + text.format(method.name, reference(first))), None)
                for index, method in enumerate(algorithms)
                if (first := classes[method.name]) is not type(method)
            ]
        )
        return algorithms

    @field_validator("record")
    @classmethod
    def _has_numbers(cls, record: RecordPart, info: ValidationInfo) -> RecordPart:
        if "workload" in info.data and info.data["workload"].learning == "none":
            words = "null where workload.learning is none: there is nothing to measure"
            complain([((name,), expected(words), getattr(record, name)) for name in record.asked])
        return record

    @field_validator("stop")
    @classmethod
    def _ends(cls, stop: StopPart) -> StopPart:
        if all(rule is None for rule in (stop.epochs, stop.updates, stop.samples, stop.seconds)):
            hopes = [name for name in ("accuracy", "loss") if getattr(stop, name) is not None]
            found = f"only {' and '.join(hopes)}, which may never be reached" if hopes else "no rule"
            complain([((), wrong(f"found {found}; expected one of epochs, updates, samples or seconds too"), None)])
        return stop

    @field_validator("seeds")
    @classmethod
    def _plannable(cls, seeds: int, info: ValidationInfo) -> int:
        if (runs := seeds * len(info.data.get("algorithms", [None]))) > MOST_RUNS:
            complain([((), wrong(f"found {seeds}, which makes {runs} runs; expected at most {MOST_RUNS} runs"), seeds)])
        return seeds

    @field_validator("extrapolate")
    @classmethod
    def _fits(cls, part: ExtrapolatePart | None, info: ValidationInfo) -> ExtrapolatePart | None:
        if part is not None:
            if part.stand_in is not None:
                complain([(("stand_in", *place), error, value) for place, error, value in _unbuildable(part.stand_in)])
            cluster = info.data.get("cluster")
            workers = None if cluster is None else cluster.workers
            complain(faults_of(part, info.data.get("workload"), workers, info.data.get("algorithms", ())))
        return part

    @property
    def target_accuracy(self) -> float | None:
        """What the time to accuracy is measured to."""
        return self.stop.accuracy if self.target.accuracy is None else self.target.accuracy

    @property
    def target_loss(self) -> float | None:
        """What the time to a loss is measured to."""
        return self.stop.loss if self.target.loss is None else self.target.loss

    @property
    def prefetch(self) -> int | None:
        """Batches that are read ahead; None where nothing says how samples are read: they are in memory."""
        return None if self.workload.reading is None else self.workload.reading.prefetch

    def dump(self) -> dict[str, Any]:
        """The resolved scenario as plain data; loading it gives an equal scenario."""
        return self.model_dump(mode="json")

    def plans(self, *, paced: bool = False) -> list[Plan]:
        """One plan per algorithm and seed, algorithm by algorithm.

        Args:
            paced: for a paced real run and its prediction: device times are multiplied by `train.stretch`. Without
                effect where `train.pace` is none.

        Raises:
            ScenarioError: if `paced` and a device is too fast for this machine to hold its pace.
        """
        from paceline.scenarios.plan import plans  # plans know scenarios, which is the direction that matters

        return plans(self, paced=paced)
