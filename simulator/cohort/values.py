"""Gradients of all ranks of a class."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from paceline.algorithms.core.job import Learner, OneByOne
from paceline.algorithms.core.values import Null, Samples
from paceline.simulator.cohort.of_one import of_one
from paceline.simulator.cohort.stacked import Stacked
from paceline.simulator.cohort.unsuitable import NotACohort
from paceline.simulator.cohort.varying import of_ranks, vary


@runtime_checkable
class StackedLearner(Protocol):
    """A learner that computes the gradients of many ranks together, with the bits of `gradient`."""

    def stacked_gradients(self, vectors: Any, starts: Any, count: int) -> tuple[Any, Any] | None:
        """Computes gradients.

        Args:
            vectors: the weights: one vector for all, or the rows of a matrix.
            starts: the number of the first sample of each.
            count: samples of each.

        Returns:
            The gradients as rows, and the losses; None if they have to be computed one by one.
        """
        ...


class Gradients:
    """The gradients of a run.

    Args:
        learner: its learner.

    Raises:
        NotACohort: the learner computes gradients of several ranks in one computation, which changes their bits.
    """

    def __init__(self, learner: Learner) -> None:
        initial = learner.initial()
        self._sizes_only = isinstance(initial, Null)
        if not self._sizes_only and not isinstance(initial, np.ndarray):
            raise NotACohort("its vectors are tensors of torch")
        if getattr(type(learner), "gradients", None) is not OneByOne.gradients:  # pyright: ignore[reportAttributeAccessIssue]  # its self is a learner
            raise NotACohort("its problem computes several gradients at once, in an order that the run determines")
        self._learner = learner

    def of(self, vector: Any, samples: Samples, count: int) -> tuple[Any, Any]:
        """Returns the gradients of the ranks of a class, with the weights of their batches, and their losses.

        Args:
            vector: the weights.
            samples: the samples of each rank.
            count: the ranks.
        """
        gradient, loss = self._means(vector, samples, count)
        return samples.weighted(gradient), loss

    def _means(self, vector: Any, samples: Samples, count: int) -> tuple[Any, Any]:
        if self._sizes_only:
            return self._learner.gradient(vector, self._learner.load(samples))
        vectors = vector.rows if isinstance(vector, Stacked) else vector
        if isinstance(self._learner, StackedLearner) and isinstance(samples.count, int):
            found = self._learner.stacked_gradients(vectors, of_ranks(_start(samples), count), samples.count)
            if found is not None:
                return Stacked(found[0]), vary(found[1])
        rows, losses = [], []
        for place in range(count):
            mine = of_one(samples, place)
            gradient, loss = self._learner.gradient(of_one(vector, place), self._learner.load(mine))
            rows.append(gradient)
            losses.append(loss)
        return (Stacked(np.stack(rows)), vary(np.array(losses))) if count > 1 else (rows[0], losses[0])


def _start(samples: Samples) -> Any:
    """Returns the number of the first sample of each rank, see `workloads.sampling.stream_start`."""
    from paceline.workloads.sampling import stream_start

    return stream_start(samples)
