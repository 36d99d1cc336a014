"""The scenario: methods, cluster, workload and end of the runs. `Scenario` is the whole file.

Sections are frozen, and unknown keys are mistakes. Each key has a description. A `Scenario` object is always valid:
names are resolved, quantities are in SI units, and the sections are consistent. A check of several sections runs as
soon as these are valid, so that one mistake does not hide another. This determines the order of the sections in
`Scenario`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, field_validator

from paceline.algorithms import reference
from paceline.algorithms.core.errors import InputError
from paceline.records.keeping import Choice
from paceline.scenarios.sections.clusters import Cluster, some
from paceline.scenarios.sections.extrapolate import Extrapolate, faults_of
from paceline.scenarios.sections.methods import AlgorithmList, Algorithms
from paceline.scenarios.sections.planning import Planning
from paceline.scenarios.sections.runs import Evaluate, Record, Stop, Target, Train
from paceline.scenarios.sections.workload import Workload, unbuildable, unreadable
from paceline.scenarios.values import fields
from paceline.scenarios.values.limits import MOST_ALGORITHMS, MOST_RUNS
from paceline.scenarios.values.mistakes import Fault, complain, expected, wrong
from paceline.scenarios.values.section import Field, Section, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paceline.algorithms.core.method import Method
    from paceline.scenarios.resolution.plan import Plan


def _not_too_many(value: object) -> object:
    """Checks the length of a list of algorithms before its elements are validated."""
    listed = some(value)
    if isinstance(listed, list | tuple) and len(listed) > MOST_ALGORITHMS:
        raise wrong(f"found {len(listed)} algorithms, expected at most {MOST_ALGORITHMS}")
    return listed


def _said_twice(algorithms: Algorithms, index: int, first: int) -> str:
    """Returns what is wrong with an entry that has the label of an earlier one."""
    given = algorithms.entries[index].label or algorithms.entries[first].label
    if given is None and algorithms[index] == algorithms[first]:
        return f"{algorithms[index].name} is there twice with the same hyper-parameters; expected once, or a label"
    label = algorithms.labels[index]
    return f"found the label {label!r}, which algorithms[{first}] has too; expected labels that differ"


class Scenario(Section):
    """Everything that a simulated or real run needs: methods, a cluster, a workload and an end."""

    name: fields.Name = Field(description="a name of letters, digits, '.', '-' and '_'")
    cluster: Cluster = Field(description="a mapping with nodes, or the name of a system")
    workload: Workload = Field(description="a mapping with a model: what is trained")
    hyperparameters: dict[str, Any] = Field(
        default={}, exclude=True, description="defaults for all algorithms that have such hyper-parameters"
    )
    algorithms: Annotated[AlgorithmList, BeforeValidator(_not_too_many)] = Field(
        description="a list of methods, by name or as mappings with name, label and hyper-parameters"
    )
    train: Train = Field(default=Train(), description="how a real run is made")
    evaluate: Evaluate = Field(default=Evaluate(), description="when the weights are evaluated")
    record: Record = Field(default=Record(), description="what else a simulation measures; costs no virtual time")
    records: Choice = Field(
        default="auto",
        description="which spans and updates a simulation keeps: all (full), those of some ranks and some updates "
        "(sampled), none (summary), or full up to 200,000 steps of all workers and sampled above (auto), where each "
        "bucket of a layer-wise method counts as a step",
    )
    stop: Stop = Field(
        description="a mapping with epochs, updates, samples or seconds, and accuracy or loss: when a run ends"
    )
    target: Target = Field(
        default=Target(), description="an accuracy or a loss that the time is measured to; else that of stop"
    )
    extrapolate: Extrapolate | None = Field(
        default=None, description="how long a model takes to a target that cannot be trained here; simulate only"
    )
    plan: Planning = Field(
        default=Planning(), exclude=True, description="what `paceline plan` may change; no effect on a run"
    )
    seed: fields.Index = Field(default=1, description="random seed of initial weights, samples and jitter")
    seeds: fields.Count = Field(default=1, description="number of runs of each algorithm, with seed, seed + 1, …")

    def __init__(
        self,
        *,
        cluster: Cluster | Values | str,
        workload: Workload | Values,
        algorithms: Sequence[str | Method | type[Method] | Values],
        stop: Stop | Values,
        name: str = "scenario",
        hyperparameters: Values | None = None,
        train: Train | Values | None = None,
        evaluate: Evaluate | Values | None = None,
        record: Record | Values | None = None,
        records: Choice | None = None,
        target: Target | Values | None = None,
        extrapolate: Extrapolate | Values | None = None,
        plan: Planning | Values | None = None,
        seed: int | None = None,
        seeds: int | None = None,
    ) -> None:
        """Makes a scenario in code; None leaves a key out.

        Args:
            cluster: the cluster, or the name of a system.
            workload: what is trained.
            algorithms: names of methods, classes of methods, methods with their hyper-parameters, or mappings.
            stop: when a run ends.
            name: for tables and folders.
            hyperparameters: defaults for all algorithms that have such hyper-parameters; a method that is given as an
                object has its own.
            train: how a real run is made.
            evaluate: when the weights are evaluated.
            record: what else a simulation measures.
            records: which spans and updates a simulation keeps.
            target: the accuracy or loss that the time is measured to.
            extrapolate: how long a model takes to a target that cannot be trained here.
            plan: what a plan may change.
            seed: random seed of initial weights, samples and jitter.
            seeds: number of runs of each algorithm.

        Raises:
            ScenarioError: with all mistakes, each with its place.

        >>> from paceline import Cluster, Device, Nodes, Stop, Workload
        >>> device = Device(name="gpu", overhead="4 ms", per_sample="0.5 ms")
        >>> made = Scenario(
        ...     cluster=Cluster(nodes=[Nodes(device=device, count=2)]),
        ...     workload=Workload(model="digits-mlp", batch_per_worker=16),
        ...     algorithms=["sync-sgd"],
        ...     stop=Stop(epochs=1),
        ... )
        >>> made.cluster.workers, made.workload.batch_per_worker
        (2, 16)
        """
        from paceline.scenarios.resolution.load_scenario import load  # imported here, since it imports this class

        given: dict[str, Any] = {key: value for key, value in locals().items() if key in type(self).model_fields}
        made = load({key: value for key, value in given.items() if value is not None})
        self.__setstate__(made.__getstate__())

    # `model_validate` fills an object itself, as with pydantic's own constructor, and does not call this one.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("workload")
    @classmethod
    def _trainable(cls, workload: Workload, info: ValidationInfo) -> Workload:
        complain(unbuildable(workload))
        if "cluster" in info.data:
            batches = info.data["cluster"].batches(workload)
            if sum(batches) > workload.num_samples:
                workers, mean = len(batches), workload.num_samples // len(batches)
                words = f"at most {mean}{' on average' * (len(set(batches)) > 1)}, so that {workers} workers"
                words += f" together take no more than all {workload.num_samples} samples at once"
                complain([(("batch_per_worker",), expected(words), workload.batch_per_worker)])
            try:
                info.data["cluster"].devices(workload)
            except InputError as error:  # a model of unknown cost, or one that does not fit into memory
                complain([((), wrong(str(error)), workload)])
            complain(unreadable(workload) if info.data["cluster"].storage is not None else [])
        return workload

    @field_validator("algorithms")
    @classmethod
    def _told_apart(cls, algorithms: Algorithms) -> Algorithms:
        classes = {method.name: type(method) for method in reversed(algorithms)}
        text = "is called {} as another class here is, {}; expected names that differ"
        complain(
            [
                ((index,), wrong(f"{reference(type(method))} " + text.format(method.name, reference(first))), None)
                for index, method in enumerate(algorithms)
                if (first := classes[method.name]) is not type(method)
            ]
        )
        labels = algorithms.labels
        complain(
            [
                ((index,), wrong(_said_twice(algorithms, index, labels.index(label))), None)
                for index, label in enumerate(labels)
                if label in labels[:index]
            ]
        )
        return algorithms

    @field_validator("algorithms")
    @classmethod
    def _fit_into_an_epoch(cls, algorithms: Algorithms, info: ValidationInfo) -> Algorithms:
        """Rejects methods whose workers accumulate more samples in a step than there are."""
        if "cluster" in info.data and "workload" in info.data:
            once = info.data["cluster"].workers * info.data["workload"].batch_per_worker
            most = info.data["workload"].num_samples // once
            words = f"at most {most}, so that all workers together take no more than all samples in a step"
            complain(
                [
                    ((index, "accumulate"), expected(words), method.micro_batches)
                    for index, method in enumerate(algorithms)
                    if method.micro_batches > most
                ]
            )
        return algorithms

    @field_validator("algorithms")
    @classmethod
    def _fit_into_memory(cls, algorithms: Algorithms, info: ValidationInfo) -> Algorithms:
        """Rejects methods whose optimizer state does not fit into the memory of a device."""
        if "cluster" in info.data and "workload" in info.data:
            problems: list[Fault] = []
            for index, method in enumerate(algorithms):
                if method.optimizer_copies > 1:
                    try:
                        info.data["cluster"].devices(info.data["workload"], method.optimizer_copies)
                    except InputError as error:
                        words = f"its optimizer keeps {method.optimizer_copies} numbers for each weight; {error}"
                        problems.append(((index,), wrong(words), method.name))
            complain(problems)
        return algorithms

    @field_validator("record")
    @classmethod
    def _has_numbers(cls, record: Record, info: ValidationInfo) -> Record:
        if "workload" in info.data and info.data["workload"].learning == "none":
            words = "null where workload.learning is none: there is nothing to measure"
            complain([((name,), expected(words), getattr(record, name)) for name in record.asked])
        return record

    @field_validator("stop")
    @classmethod
    def _ends(cls, stop: Stop) -> Stop:
        if all(rule is None for rule in (stop.epochs, stop.updates, stop.samples, stop.seconds)):
            hopes = [name for name in ("accuracy", "loss") if getattr(stop, name) is not None]
            actual = f"only {' and '.join(hopes)}, which may never be reached" if hopes else "no rule"
            complain([((), wrong(f"found {actual}; expected one of epochs, updates, samples or seconds too"), None)])
        return stop

    @field_validator("target")
    @classmethod
    def _before_the_end(cls, target: Target, info: ValidationInfo) -> Target:
        if (stop := info.data.get("stop")) is not None:
            complain([((name,), wrong(text), getattr(target, name)) for name, text in target.missed(stop)])
        return target

    @field_validator("seeds")
    @classmethod
    def _plannable(cls, seeds: int, info: ValidationInfo) -> int:
        if (runs := seeds * len(info.data.get("algorithms", [None]))) > MOST_RUNS:
            complain([((), wrong(f"found {seeds}, which makes {runs} runs; expected at most {MOST_RUNS} runs"), seeds)])
        return seeds

    @field_validator("extrapolate")
    @classmethod
    def _fits(cls, part: Extrapolate | None, info: ValidationInfo) -> Extrapolate | None:
        if part is not None:
            if part.stand_in is not None:
                complain([(("stand_in", *place), error, value) for place, error, value in unbuildable(part.stand_in)])
            cluster = info.data.get("cluster")
            workers = None if cluster is None else cluster.workers
            complain(faults_of(part, info.data.get("workload"), workers, info.data.get("algorithms", ())))
        return part

    @property
    def target_accuracy(self) -> float | None:
        """The target of the time to accuracy."""
        return self.stop.accuracy if self.target.accuracy is None else self.target.accuracy

    @property
    def target_loss(self) -> float | None:
        """The target of the time to a loss."""
        return self.stop.loss if self.target.loss is None else self.target.loss

    def dump(self) -> dict[str, Any]:
        """Returns the resolved scenario as plain data; loading it gives an equal scenario."""
        return self.model_dump(mode="json")

    def plans(self, *, paced: bool = False) -> list[Plan]:
        """Returns one plan per algorithm and seed, ordered by algorithm.

        Args:
            paced: for a paced real run and its prediction: device times are multiplied by `train.time_dilation`. No
                effect if `train.pace` is none.

        Raises:
            ScenarioError: if `paced` and a device is too fast for this machine to hold its pace.
        """
        from paceline.scenarios.resolution.plan import (
            plans,  # imported here, since plans import scenarios
        )

        return plans(self, paced=paced)
