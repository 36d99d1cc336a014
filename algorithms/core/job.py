"""A job: one method on one set of ranks with one learner. This is the input of every interpreter.

An interpreter adds its own parts, such as a clock, a network or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import Method, RankContext, build_team
from paceline.algorithms.core.values import Layout, Rank, Samples


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation; accuracy is None if the problem has none."""

    loss: float
    accuracy: float | None


class Learner(Protocol):
    """A learning problem. The same seed gives the same numbers in every process and interpreter.

    A learner that cannot compute several gradients at once inherits `gradients` from `OneByOne`.
    """

    @property
    def layout(self) -> Layout:
        """The positions of the layers in the flat weight vector."""
        ...

    @property
    def num_samples(self) -> int:
        """Samples in one epoch."""
        ...

    def initial(self) -> Any:
        """Returns the initial weights, the same vector at every rank."""
        ...

    def load(self, samples: Samples) -> Any:
        """Returns the data of a batch, which depends only on the seed and `samples`."""
        ...

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        """Computes the gradient of the loss over a batch.

        Args:
            vector: the weights, a flat vector.
            data: the result of `load`.

        Returns:
            The mean gradient, a new vector that may be overwritten, with the shape and dtype of the weights; and the
            mean loss.
        """
        ...

    def gradients(self, vectors: Sequence[Any], samples: Sequence[Samples]) -> list[tuple[Any, float]]:
        """Computes several gradients, in one computation if possible.

        Args:
            vectors: the weights of each gradient.
            samples: the batch of each gradient.

        Returns:
            For each gradient the same as `gradient`.
        """
        ...

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        """Computes a gradient layer by layer, last layer first, as the backward pass does.

        Args:
            vector: the weights, a flat vector.
            data: the result of `load`.
            ready: called with the name and the gradient of each layer when it is complete.

        Returns:
            The mean loss.
        """
        ...

    def evaluate(self, vector: Any) -> Evaluation:
        """Returns loss and accuracy on held-out data."""
        ...


class OneByOne:
    """Implements `gradients` of a learner by computing them one by one."""

    def gradients(self: Learner, vectors: Sequence[Any], samples: Sequence[Samples]) -> list[tuple[Any, float]]:
        """Returns the result of `gradient` at each of the vectors, on the data of its samples."""
        return [self.gradient(vector, self.load(sample)) for vector, sample in zip(vectors, samples, strict=True)]


Counted = Literal["samples", "epochs", "updates"]
"""the unit in which the scenario gives the length of a run"""
Reason = Literal[Counted, "seconds", "accuracy", "loss", "divergence", "failure"]
"""why a run ended: its budget of samples, epochs, updates or seconds was spent, an evaluation reached the target
accuracy or loss or showed divergence, or a real run failed"""


@dataclass(frozen=True, slots=True)
class Budget:
    """The conditions that end a run; the first one that is met counts.

    Args:
        samples: number of samples of all workers together.
        seconds: time on the run's own clock, virtual or real.
        accuracy: target of the smoothed accuracy.
        loss: target of the smoothed loss.
        divergence: whether a diverged loss ends the run.
        counted: the unit in which the scenario gives `samples`.
    """

    samples: int | None = None
    seconds: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    divergence: bool = False
    counted: Counted = "samples"

    @property
    def scored(self) -> bool:
        """Whether weights are evaluated during the run, because an evaluation may end it."""
        return self.accuracy is not None or self.loss is not None or self.divergence

    @property
    def usual_end(self) -> Counted | None:
        """The reason if the run ends by its number of samples; None if that is not limited."""
        return None if self.samples is None else self.counted

    def measured(self) -> Budget:
        """Returns the budget of a real run, and of a prediction of one.

        An evaluation uses the processor that is being measured. So divergence ends a real run only if the run is
        evaluated anyway.

        >>> Budget(divergence=True).measured().divergence, Budget(loss=0.1, divergence=True).measured().divergence
        (False, True)
        """
        return self if self.accuracy is not None or self.loss is not None else replace(self, divergence=False)

    def spent(self, *, samples: int, seconds: float) -> float:
        """Returns the fraction of the budget that is spent, 0 … 1: of samples or of seconds, whichever is larger.

        Args:
            samples: number of samples so far.
            seconds: time so far.

        >>> Budget(samples=200, seconds=10.0).spent(samples=50, seconds=5.0)
        0.5
        """
        shares = [done / whole for done, whole in ((samples, self.samples), (seconds, self.seconds)) if whole]
        return min(1.0, max(shares, default=0.0))


@dataclass(frozen=True, slots=True)
class PlannedDeath:
    """The death of a worker, which does not return.

    Args:
        rank: the worker.
        at_s: when it dies, on the run's own clock; None: at a step.
        step: its own step that it dies in place of beginning, from 0; None: at a time.
        detection_s: how long nobody notices; only a simulation uses it, since a real run takes its own time.
    """

    rank: Rank
    at_s: float | None = None
    step: int | None = None
    detection_s: float = 0.0


@dataclass(frozen=True)
class Job:
    """One method, its ranks, its learner and its budget, and the workers that die.

    >>> from paceline.algorithms import find
    >>> from paceline.workloads import build
    >>> bowl = build("quadratic", learning="quadratic", seed=1)
    >>> job = Job.of(find("async-sgd")(), [[Rank(0)], [Rank(1)]], bowl, batch=32, budget=Budget(samples=100))
    >>> job.weights_owner, job.limit  # the server, which applies 100 / 32 gradients, rounded up
    (2, 4)
    """

    method: Method
    team: tuple[RankContext, ...]
    learner: Learner
    budget: Budget
    seed: int = 0
    deaths: tuple[PlannedDeath, ...] = ()

    @staticmethod
    def of(
        method: Method,
        nodes: Sequence[Sequence[Rank]],
        learner: Learner,
        *,
        batch: int | Sequence[int],
        budget: Budget,
        seed: int = 0,
    ) -> Job:
        """Creates the job of a method.

        Args:
            method: the method.
            nodes: the ranks of the workers on each node.
            learner: the learning problem.
            batch: samples of one worker in one step: a number for all, or one for each worker, by rank.
            budget: when the run ends.
            seed: of the run.
        """
        batches = (batch,) * sum(map(len, nodes)) if isinstance(batch, int) else batch
        return Job(method, build_team(method, nodes, learner.layout, batches), learner, budget, seed)

    @cached_property
    def workers(self) -> int:
        return len(self.team[0].workers)

    @property
    def weights_owner(self) -> Rank:
        """The rank whose recorded weights are evaluated."""
        return self.owners[0]

    @property
    def owners(self) -> tuple[Rank, ...]:
        """The ranks in the role that owns the weights."""
        return tuple([me.rank for me in self.team if me.role == self.method.weights_owner])

    @property
    def spare(self) -> int:
        """The number of workers that may die before the run has to end."""
        if Guarantee.SURVIVES_WORKERS not in self.method.guarantees:
            return 0
        return int(self.method.bounds(self.workers)[Guarantee.SURVIVES_WORKERS])

    @property
    def batches(self) -> tuple[int, ...]:
        """Samples of each worker in one gradient, by rank."""
        return self.team[0].batches

    @cached_property
    def global_batch(self) -> int:
        """Samples of all workers together in one step."""
        return sum(self.batches) * self.method.micro_batches

    @cached_property
    def even_batches(self) -> bool:
        """Whether all workers have the same batch."""
        return len(set(self.batches)) == 1

    def samples_in(self, steps: int) -> int:
        """Returns the samples in so many steps of the role that owns the weights.

        If the workers' batches differ and each step has the batch of one of them, it is their mean that counts.

        Args:
            steps: number of steps.
        """
        return steps * self.method.samples_per_step(self.global_batch, self.workers) // self.workers

    def steps_for(self, samples: int) -> int:
        """Returns the steps of the role that owns the weights that so many samples need, rounded up."""
        return -(-samples * self.workers // self.method.samples_per_step(self.global_batch, self.workers))

    @property
    def limit(self) -> int | None:
        """Steps of the role that owns the weights until the sample budget is spent, rounded up; None without one.

        If workers step independently, the steps of all workers together.
        """
        if self.budget.samples is None:
            return None
        return self.steps_for(self.budget.samples)

    def dies_at(self, rank: Rank, step: int) -> bool:
        """Whether a rank dies in place of beginning this step."""
        return any(death.rank == rank and death.step == step for death in self.deaths)

    def samples(self, me: RankContext, step: int) -> Samples:
        """Returns the samples of a step; the k-th steps of all workers together cover one global batch.

        Args:
            me: the rank; a server has no samples.
            step: the number of the step, from 0.
        """
        parts = self.method.micro_batches
        count = me.batches[me.rank] * parts if me.role == "worker" else 0
        samples = Samples(worker=me.rank, workers=self.workers, index=step, count=count)
        if me.role != "worker" or self.even_batches:
            return samples
        return samples.share(count, me.before * parts, self.global_batch)
