"""A job: one method on one set of ranks with one learner. What every interpreter is given.

An interpreter adds what is its own (a clock, a network, processes); nothing here knows of any.
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
    """What an evaluation finds; accuracy is None where the problem has none."""

    loss: float
    accuracy: float | None


class Learner(Protocol):
    """What is being learned. The same seed gives the same numbers in every process and interpreter.

    A learner that computes each gradient by itself takes its `gradients` from `OneByOne`.
    """

    @property
    def layout(self) -> Layout:
        """Where the layers lie in the flat weight vector."""
        ...

    @property
    def num_samples(self) -> int:
        """Samples in one epoch."""
        ...

    def initial(self) -> Any:
        """The initial weights: the same vector at every rank."""
        ...

    def load(self, samples: Samples) -> Any:
        """The data of a batch: a function of the seed and `samples` alone."""
        ...

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        """Mean gradient, a new vector that a program may give away, and mean loss over a batch, at `vector`."""
        ...

    def gradients(self, vectors: Sequence[Any], samples: Sequence[Samples]) -> list[tuple[Any, float]]:
        """As `gradient` at each of the vectors, on the data of its samples: together where the learner can."""
        ...

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        """As `gradient`, handing each layer's part to `ready` with its name as it is complete, last layer first."""
        ...

    def evaluate(self, vector: Any) -> Evaluation:
        """Loss and accuracy on data held out."""
        ...


class OneByOne:
    """Gives a learner `gradients` that are computed one by one."""

    def gradients(self: Learner, vectors: Sequence[Any], samples: Sequence[Samples]) -> list[tuple[Any, float]]:
        """As `gradient` at each of the vectors, on the data of its samples."""
        return [self.gradient(vector, self.load(one)) for vector, one in zip(vectors, samples, strict=True)]


Counted = Literal["samples", "epochs", "updates"]
"""what the number of samples after which a run ends was given as"""
Reason = Literal[Counted, "seconds", "accuracy", "loss", "divergence", "failure"]
"""why a run ended: its budget of samples, epochs, updates or seconds was spent, an evaluation reached the accuracy or
the loss that was to end it, or showed that it had diverged; or, of a real run, it failed"""


@dataclass(frozen=True, slots=True)
class Budget:
    """When a run ends: after so many samples, or before that at a time on the run's own clock or at an evaluation.

    Args:
        samples: of all workers together.
        seconds: on the run's own clock, virtual or real.
        accuracy: the smoothed one that is to be reached.
        loss: the smoothed one that is to be reached.
        divergence: whether a loss that has diverged ends it.
        counted: what the number of samples was given as.
    """

    samples: int | None = None
    seconds: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    divergence: bool = False
    counted: Counted = "samples"

    @property
    def scored(self) -> bool:
        """Whether weights are evaluated while the run lasts, since that may end it."""
        return self.accuracy is not None or self.loss is not None or self.divergence

    @property
    def usual_end(self) -> Counted | None:
        """Why a run ends that nothing ends before; None where it is not limited."""
        return None if self.samples is None else self.counted

    def measured(self) -> Budget:
        """What of it ends a real run, and a prediction of one.

        Evaluating takes a processor that is being measured. So divergence ends a real run only where it is evaluated
        while it lasts anyway.

        >>> Budget(divergence=True).measured().divergence, Budget(loss=0.1, divergence=True).measured().divergence
        (False, True)
        """
        return self if self.accuracy is not None or self.loss is not None else replace(self, divergence=False)

    def spent(self, *, samples: int, seconds: float) -> float:
        """The share of it that is spent, 0 … 1, by whichever of samples and seconds is nearer to its end.

        >>> Budget(samples=200, seconds=10.0).spent(samples=50, seconds=5.0)
        0.5
        """
        shares = [done / whole for done, whole in ((samples, self.samples), (seconds, self.seconds)) if whole]
        return min(1.0, max(shares, default=0.0))


@dataclass(frozen=True)
class Job:
    """One method, its ranks, its learner and its end.

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
    batch: int
    budget: Budget
    seed: int = 0

    @staticmethod
    def of(
        method: Method, nodes: Sequence[Sequence[Rank]], learner: Learner, *, batch: int, budget: Budget, seed: int = 0
    ) -> Job:
        """The job of `method` with its workers placed on `nodes`."""
        return Job(method, build_team(method, nodes, learner.layout), learner, batch, budget, seed)

    @cached_property
    def workers(self) -> int:
        return len(self.team[0].workers)

    @property
    def weights_owner(self) -> Rank:
        """The rank whose `RecordUpdate` weights are the ones being learned."""
        return next(me.rank for me in self.team if me.role == self.method.weights_owner)

    @property
    def spare(self) -> int:
        """How many workers a run can lose and go on."""
        if Guarantee.SURVIVES_WORKERS not in self.method.guarantees:
            return 0
        return int(self.method.bounds(self.workers)[Guarantee.SURVIVES_WORKERS])

    @property
    def samples_per_step(self) -> int:
        """Samples that one step of the keeper's role stands for."""
        return self.method.samples_per_step(self.batch, self.workers)

    @property
    def limit(self) -> int | None:
        """Steps of the keeper's role after which the sample budget is spent, rounded up; None without one.

        Of all workers together where they step independently.
        """
        if self.budget.samples is None:
            return None
        return -(-self.budget.samples // self.samples_per_step)

    def samples(self, me: RankContext, step: int) -> Samples:
        """The samples of a worker's step: together the workers' steps number k cover one global batch."""
        return Samples(
            worker=int(me.rank), workers=self.workers, index=step, count=self.batch if me.role == "worker" else 0
        )
