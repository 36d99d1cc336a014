"""Measures how much each gradient counts in the weights, and compares it with what the method declares.

Rules of this file:

* Every gradient is a unit vector of its own, whatever the weights are. So each number of the final weights is the
  weight of one gradient, and one number is that of the initial weights.
* After the first gradients all further ones are 0. What the first have set in motion (averages, momentum, residuals,
  exchanges in flight) ends, which the run waits for, and then every rank has to hold each of them with the weight of
  `Method.gradient_weight`.
* The method has the hyper-parameters of its `linear_form`. Every second seed has a learning rate that changes with each
  step, which shows whose steps are counted.
* The order of moves is that of the case, until the first gradients have been computed. Then all ranks get their turns.
* A second run has no gradients and a weight decay, of which the initial weights keep `Method.initial_weight`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.algorithms.core.guarantees import AppliedGradient
from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method, changed
from paceline.algorithms.core.operations import NextStep
from paceline.algorithms.core.schedules import Steps
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples, Step
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.checking.cases.case import Case
from paceline.checking.cases.observed import WithDeaths
from paceline.checking.cases.performing import MOVES_PER_STEP
from paceline.checking.driver import LaneTask
from paceline.checking.limits import limited
from paceline.checking.moves import Fair, Move
from paceline.records.figures import written_apart

BATCH = 5
"""samples of a worker in a step; not divisible by 2, 3 or 4, so that parts of a batch are unequal"""
EACH = 3
"""first gradients of each worker, on average"""
FADING_STEPS = 40
"""steps or rounds until the influence of the past has faded: 0.775^40 of an elastic distance of 4 workers is left"""
STILL, QUIET = 1e-5, 4
"""a weight that moves less than this share of a usual one is still, and a run ends once all weights have been still for
so many steps, and for so many periods; provenance: ours"""
LONGEST = 6
"""the longest period that is measured, in steps; random cases have short periods too"""
AFTER_DEATH = 20
"""moves of each rank after a death until all have noticed it; provenance: ours"""
SCALES = (1.0, 0.5)
"""the length of a gradient in each of the two layers"""
PRECISION = 2e-3
"""relative difference of a weight that is none; a lost or doubled part is far larger"""
DECAY = 0.05
"""the share of the weights that an update of the second run takes, far more than rounding"""
DECAY_STEPS = 6
RATES = Steps(milestones=tuple(range(1, 9)), gamma=0.8)
"""a learning rate that falls with each of the first steps"""


@dataclass
class UnitGradients(OneByOne):
    """A problem of two layers whose gradients are unit vectors, in the order in which they are computed, and then 0.

    Args:
        count: number of gradients that are not 0.
        opened: whether the next gradient is one of them.
    """

    count: int
    opened: bool = True
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    """the number of the gradient of a worker and step"""
    samples: dict[tuple[int, int], int] = field(default_factory=dict)
    """the samples of this gradient"""
    num_samples: int = 64

    @property
    def layout(self) -> Layout:
        size = self.count + 1
        return Layout((Layer("first", 0, size), Layer("second", size, 2 * size)))

    def initial(self) -> Any:
        vector = np.zeros(2 * self.count + 2)
        vector[self.count] = vector[-1] = 1.0
        return vector

    def load(self, samples: Samples) -> Samples:
        return samples

    def gradient(self, vector: Any, data: Samples) -> tuple[Any, float]:
        result, key = np.zeros(2 * self.count + 2), (data.worker, data.index)
        if self.opened and key not in self.places and not self.all_computed:
            self.places[key], self.samples[key] = len(self.places), data.count
        if (place := self.places.get(key)) is not None:
            for layer, scale in zip(self.layout.layers, SCALES, strict=True):
                result[layer.start + place] = scale
        return result, 1.0

    def layer_gradients(self, vector: Any, data: Samples, ready: Callable[[str, Any], None]) -> float:
        result, loss = self.gradient(vector, data)
        for layer in reversed(self.layout.layers):
            ready(layer.name, result[layer.part])
        return loss

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(0.0, None)

    @property
    def all_computed(self) -> bool:
        """Whether all gradients that are not 0 have been computed."""
        return len(self.places) == self.count


def is_measured(case: Case) -> bool:
    """Whether the weights of gradients are measured in this case: with gradients, without a clock and stops."""
    if not case.gradients or case.times is not None or case.stops:
        return False
    form = _form(case)
    return form is not None and form.longest_period(case.workers) <= LONGEST


def _form(case: Case) -> Method | None:
    try:
        method = changed(case.method, schedule=RATES) if case.seed % 2 else case.method
        form = method.linear_form()
        return None if form is None or form.problems(case.placement) else form
    except Exception:  # of any kind: the method is the user's, and may not accept these hyper-parameters
        return None


@dataclass(frozen=True)
class Measurement:
    """The final weights of a run whose gradients are unit vectors, and its record."""

    job: Job
    learner: UnitGradients
    copies: dict[str, Any]
    """the weights by the words for their place: of every rank, and of every centre"""
    rows: dict[tuple[int, int], Update]
    """the update of each gradient, by worker and step"""
    living: int
    rows_of_shards: Mapping[str, Mapping[tuple[int, int], LayerUpdate]] = field(default_factory=dict)
    """with several servers: the update of each gradient by each of them, by the name of its shard"""

    def found(self, copy: str, place: int, layer: int) -> float:
        """Returns the weight of a gradient, or of the initial weights, in a copy."""
        at = self.job.learner.layout.layers[layer].start + place
        return float(self.copies[copy][at])

    def rows_at(self, position: int) -> Mapping[tuple[int, int], Update | LayerUpdate]:
        """Returns the updates of a number of the weights, which each of several servers makes for its own."""
        for shard in self.job.team[0].shards:
            if shard.part.start <= position < shard.part.stop:
                return self.rows_of_shards[shard.range_name]
        return self.rows

    def declared(self, key: tuple[int, int], layer: int) -> float:
        """Returns the weight that the method declares; 0 if no update applies the gradient.

        Every sample counts as much, so a gradient of b_i samples counts b_i P / B times as much as of equal batches.
        """
        job = self.job
        rows = self.rows_at(job.learner.layout.layers[layer].start + self.learner.places[key])
        if (row := rows.get(key)) is None:
            return 0.0
        applied = AppliedGradient(
            step=row.step,
            version=row.version_applied,
            staleness=row.staleness,
            together=Counter(other.version_applied for other in rows.values())[row.version_applied],
            workers=job.workers,
            living=self.living,
            layers=len(SCALES),
            layer=layer,
        )
        return self._share(key) * job.workers * job.method.gradient_weight(applied)

    def _share(self, key: tuple[int, int]) -> float:
        """Returns the samples of a gradient, as a share of those of all workers in a step."""
        job = self.job
        if job.method.divides_batch:
            return self.learner.samples[key] / job.samples_in(1)
        return job.batches[key[0]] * job.method.micro_batches / job.global_batch


def measured_weights(case: Case) -> Measurement | None:
    """Runs the case with unit gradients; None if that run fails, which other checks report."""
    if not is_measured(case) or (form := _form(case)) is None:
        return None
    learner = UnitGradients(EACH * case.workers + 1, opened=not case.deaths)
    batches = case.batch_of_each if case.batches else BATCH
    job = Job.of(form, case.placement, learner, batch=batches, budget=Budget(), seed=case.seed)
    steps = EACH + 1 + FADING_STEPS * form.longest_period(job.workers)
    ended = _ended(case, job, learner, steps)
    if ended is None:
        return None
    run, trace = ended, ended.trace
    copies = {
        f"{words} rank {me.rank}": weights.vector
        for me in job.team
        if me.rank not in run.dead and me.shard is None
        for name, words in (("weights", "the weights of"), ("centre", "the centre at"))
        if (weights := getattr(trace.states[me.rank], name, None)) is not None
    }
    rows = {(int(row.rank), row.step): row for row in trace.updates}
    of_shards: dict[str, dict[tuple[int, int], LayerUpdate]] = {}
    for name in [shard.range_name for shard in job.team[0].shards]:
        of_shards[name] = {(int(row.rank), row.step): row for row in trace.layers if row.layer == name}
        copies["the weights of the servers"] = trace.weights
    return Measurement(job, learner, copies, rows, job.workers - len(run.dead), of_shards)


class _Fading(WithDeaths):
    """A run that ends when the weights of no rank have moved for some steps after the last gradient."""

    def __init__(self, job: Job, deaths: Sequence[tuple[int, int]], learner: UnitGradients) -> None:
        super().__init__(job, deaths)
        self._learner, self._still = learner, float(getattr(job.method, "learning_rate", 1.0)) / job.workers * STILL
        self._needed = QUIET * (1 + job.method.longest_period(job.workers))
        self._seen = dict[Rank, Any]()
        self._quiet = dict.fromkeys((me.rank for me in job.team), 0)

    def _next(self, task: LaneTask, op: NextStep) -> Step | None:
        rank, weights = task.me.rank, getattr(op.state, "weights", None)
        if self._learner.all_computed and weights is not None:
            moved = rank not in self._seen or np.abs(weights.vector - self._seen[rank]).max() > self._still
            self._quiet[rank] = 0 if moved else self._quiet[rank] + 1
            self._seen[rank] = np.array(weights.vector)
            if min(steps for other, steps in self._quiet.items() if other not in self.dead) >= self._needed:
                self._rule.stop("loss")
        return super()._next(task, op)


def _ended(case: Case, job: Job, learner: UnitGradients, steps: int) -> WithDeaths | None:
    """Runs a job for so many steps of each worker, after the moves of the case; None if that fails."""
    job = dataclasses.replace(job, budget=Budget(samples=steps * job.global_batch))
    budget = Budget(samples=job.samples_in((job.limit or 0) + len(case.choices) // 4))
    run = _Fading(dataclasses.replace(job, budget=budget), case.deaths, learner)
    most = MOVES_PER_STEP * len(job.team) * (steps + len(case.choices))
    try:
        run.run(limited(_Order(case, learner, len(job.team)), most))
    except Exception:  # of any kind: the program is the user's
        return None
    return run


class _Order:
    """The order of moves: that of the case until the gradients have been computed, then fair."""

    def __init__(self, case: Case, learner: UnitGradients, ranks: int) -> None:
        self._choices, self._learner, self._fair = iter(case.choices), learner, Fair()
        self._opens = max((move for _, move in case.deaths), default=0) + AFTER_DEATH * ranks
        self._made, self._left = 0, AFTER_DEATH * ranks

    def __call__(self, ready: Sequence[Move]) -> Move:
        self._made += 1
        self._learner.opened |= self._made > self._opens
        self._left -= self._learner.all_computed
        choice = next(self._choices, None) if self._left > 0 else None
        return self._fair(ready) if choice is None else ready[choice % len(ready)]


def wrong_weights(case: Case) -> Iterator[str]:
    """Yields a sentence about the first gradient whose weight differs from the declared one, and about weight decay.

    >>> from paceline.algorithms import find
    >>> list(wrong_weights(Case(method=find("easgd")(), nodes=(1, 1), steps=1)))
    []
    """
    yield from _wrong_gradients(case)
    yield from _wrong_decay(case)


def _wrong_decay(case: Case) -> Iterator[str]:
    """Compares what weight decay leaves of the initial weights, at their owners, with `Method.initial_weight`."""
    if case.deaths or not is_measured(case) or (form := _form(case)) is None:
        return
    decay = DECAY / getattr(form, "learning_rate", 1.0)
    plain = changed(form, momentum=0.0, nesterov=False, weight_decay=decay, compression=None)
    learner = UnitGradients(1, opened=False)
    job = Job.of(plain, case.placement, learner, batch=BATCH, budget=Budget(), seed=case.seed)
    if plain.initial_weight(1) in (None, 1.0) or (run := _ended(case, job, learner, DECAY_STEPS)) is None:
        return
    for me in job.team:
        if me.role != plain.weights_owner:
            continue
        state = run.trace.states[me.rank]
        updates = state.weights.version if plain.has_server else state.step
        vector = run.trace.weights if me.shards else state.weights.vector
        right, actual = plain.initial_weight(updates), float(vector[learner.count])
        if right is not None and not abs(actual - right) <= PRECISION * abs(right):
            here, declared = written_apart(actual, right)
            yield (
                f"with weight decay and without gradients, rank {me.rank} keeps {here} of the "
                f"initial weights after {updates} updates, and {declared} by "
                f"{type(case.method).__name__}.initial_weight{_said(case.method, plain)}"
            )
            return


def _wrong_gradients(case: Case) -> Iterator[str]:
    measured = measured_weights(case)
    if measured is None:
        return
    method, said = measured.job.method, _said(case.method, measured.job.method)
    for copy in measured.copies:
        for layer, part in enumerate(measured.learner.layout.layers):
            if not abs((total := measured.found(copy, measured.learner.count, layer)) - 1) <= PRECISION:
                before, after = written_apart(1.0, total)
                yield f"without gradients, {copy} change: in the layer {part.name!r} from {before} to {after}{said}"
                return
    for key, place in measured.learner.places.items():
        words = f"the gradient of rank {key[0]}'s step {key[1]}"
        if key not in measured.rows and not method.drops_gradients and key[0] in _living(measured):
            yield f"{words} is part of no update{said}; a method that may drop one declares drops_gradients"
            return
        for layer, part in enumerate(measured.learner.layout.layers):
            right = measured.declared(key, layer)
            for copy in measured.copies:
                total = 0.0 - measured.found(copy, place, layer) / SCALES[layer]
                if not abs(total - right) <= PRECISION * max(abs(right), method_scale(measured)):
                    here, declared = written_apart(total, right)
                    yield (
                        f"{words} counts {here} in {copy}, layer {part.name!r}, when everything in flight has "
                        f"ended, and {declared} by {type(case.method).__name__}.gradient_weight{said}"
                    )
                    return


def _living(measured: Measurement) -> set[Rank]:
    return {me.rank for me in measured.job.team if f"the weights of rank {me.rank}" in measured.copies}


def method_scale(measured: Measurement) -> float:
    """Returns the size of a usual weight, η / P, against which a weight of 0 is compared."""
    return float(getattr(measured.job.method, "learning_rate", 1.0)) / measured.job.workers


def _said(given: Method, used: Method) -> str:
    changes = changes_of(given, used)
    return f" (with {', '.join(changes)})" if changes else ""


def changes_of(given: Method, used: Method) -> list[str]:
    """Returns the words for the hyper-parameters of a linear form that differ from the given ones."""
    before, now = vars(given), vars(used)
    names = [option.name for option in dataclasses.fields(used)]
    changes = [f"{name}={now[name]!r}" for name in names if before[name] != now[name] and name != "schedule"]
    if now.get("schedule") is RATES:
        changes.append("a learning rate that falls with each step")
    return changes
