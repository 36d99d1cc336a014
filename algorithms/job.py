"""A job: one method on one set of ranks with one learner. What every interpreter is given.

An interpreter adds what is its own (a clock, a network, processes); nothing here knows of any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from paceline.algorithms.method import Me, Method, crew
from paceline.algorithms.values import Layout, Rank, Samples


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluation finds; accuracy is None where the problem has none."""

    loss: float
    accuracy: float | None


class Learner(Protocol):
    """What is being learned. The same seed gives the same numbers in every process and interpreter."""

    @property
    def layout(self) -> Layout:
        """Where the layers lie in the flat weight vector."""
        ...

    @property
    def population(self) -> int:
        """Samples in one epoch."""
        ...

    def initial(self) -> Any:
        """The initial weights: the same vector at every rank."""
        ...

    def load(self, samples: Samples) -> Any:
        """The data of a batch: a function of the seed and `samples` alone."""
        ...

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        """Mean gradient and mean loss over a batch, at `vector`."""
        ...

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        """As `gradient`, handing each layer's part to `ready` with its name as it is complete, last layer first."""
        ...

    def evaluate(self, vector: Any) -> Score:
        """Loss and accuracy on data held out."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """When a run ends: after so many samples, and earlier at a loss, an accuracy or a time on the run's own clock."""

    samples: int | None = None
    seconds: float | None = None
    accuracy: float | None = None

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
    >>> job.keeper, job.limit  # the server, which applies 100 / 32 gradients, rounded up
    (2, 4)
    """

    method: Method
    team: tuple[Me, ...]
    learner: Learner
    batch: int
    budget: Budget
    seed: int = 0

    @staticmethod
    def of(
        method: Method, nodes: Sequence[Sequence[Rank]], learner: Learner, *, batch: int, budget: Budget, seed: int = 0
    ) -> Job:
        """The job of `method` with its workers placed on `nodes`."""
        return Job(method, crew(method, nodes, learner.layout), learner, batch, budget, seed)

    @cached_property
    def workers(self) -> int:
        return len(self.team[0].workers)

    @property
    def keeper(self) -> Rank:
        """The rank whose `Applied` weights are the ones being learned."""
        return next(me.rank for me in self.team if me.role == self.method.keeper)

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

    def samples(self, me: Me, step: int) -> Samples:
        """The samples of a worker's step: together the workers' steps number k cover one global batch."""
        return Samples(
            worker=int(me.rank), workers=self.workers, index=step, count=self.batch if me.role == "worker" else 0
        )
