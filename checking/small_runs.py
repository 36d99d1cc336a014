"""Small runs without a clock on which a method is tried before it is used: its problem, its size, its end.

Rules of this file:

* A trial is small and the same every time: four workers where the method takes four, eight weights, a bounded gradient
  (so that no learning rate makes the weights overflow), and as many steps as the method's longest period needs.
* The hyper-parameters are the scenario's, except for whole numbers above `LONGEST`: a period of 1000 steps would make a
  trial in which nothing happens, so such a number is replaced by `SHORT` where the method allows it.
* A trial that fails or does not end without any interruption says nothing of interruptions: there is then no trial.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import Driver
from paceline.checking.moves import Chooser, Move, RoundRobin, Shuffled
from paceline.records.trace import Trace

Nodes = Sequence[Sequence[Rank]]
Order = Callable[[], Chooser]

BATCH = 8
FEWEST_STEPS = 12
"""of each worker"""
LONGEST = 30
"""the largest whole number among the hyper-parameters for which a trial is long enough"""
SHORT = 4
"""in place of a larger one"""
MOST_MOVES = 20_000
"""after which a run is given up; 62 steps of four workers with a server take about 3,000"""
MOST_WORKERS = 32
"""of the scenario's own cluster, which is tried where the method takes no smaller one"""
TWO_BY_TWO: Nodes = ((Rank(0), Rank(1)), (Rank(2), Rank(3)))
ONE_NODE: Nodes = ((Rank(0), Rank(1), Rank(2), Rank(3)),)
TWO_WORKERS: Nodes = ((Rank(0),), (Rank(1),))
ONE_WORKER: Nodes = ((Rank(0),),)
ORDERS: tuple[Order, ...] = (RoundRobin, lambda: Shuffled(0))


LAYOUT = Layout((Layer("first", 0, 4), Layer("second", 4, 8)))


class DoesNotEnd(PacelineError):
    """A trial run has made `MOST_MOVES` moves and has not ended."""


@dataclass(frozen=True)
class Slopes(OneByOne):
    """A problem of eight weights in two layers, each worker and step with a target of its own.

    The gradient is a / (1 + |a|), where a is the distance from the target: it depends on the weights and is below 1.

    Args:
        tensors: vectors are torch's, as where a model is trained, instead of NumPy's.
    """

    tensors: bool = False
    num_samples: int = 64

    @property
    def layout(self) -> Layout:
        return LAYOUT

    def initial(self) -> Any:
        return self._vector(np.zeros(LAYOUT.size))

    def load(self, samples: Samples) -> Any:
        return self._vector(np.arange(1.0, 1.0 + LAYOUT.size) + samples.worker + 0.25 * (samples.index % 7))

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        away = vector - data
        return away / (1 + abs(away)), float((away * away).sum())

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        gradient, loss = self.gradient(vector, data)
        for layer in reversed(LAYOUT.layers):
            ready(layer.name, gradient[layer.part])
        return loss

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(float((vector * vector).sum()), None)

    def _vector(self, numbers: NDArray[np.float64]) -> Any:
        if not self.tensors:
            return numbers
        import torch

        return torch.from_numpy(numbers).float()


@dataclass(frozen=True)
class Ended:
    """The weights with which a run ended: those being learned, then those of each rank that has some in its state."""

    vectors: tuple[NDArray[Any], ...]

    def away(self, other: Ended) -> float | None:
        """The largest difference from another end; None where every bit is the same."""
        pairs = list(zip(self.vectors, other.vectors, strict=False))
        if len(self.vectors) == len(other.vectors) and all(a.tobytes() == b.tobytes() for a, b in pairs):
            return None
        return max((float(np.abs(a - b).max()) for a, b in pairs if a.shape == b.shape), default=float("nan"))


@dataclass(frozen=True)
class Trial:
    """A method on a small job, and how the job ends without any interruption."""

    job: Job
    steps: int
    """of each worker"""
    replaced: Mapping[str, tuple[int, int]]
    """hyper-parameters that are not the scenario's: their value there, and here"""
    ends: tuple[Ended, ...]
    """for each of `ORDERS`"""


def trial_of(method: Method, nodes: Callable[[], Nodes] = tuple, *, tensors: bool = False) -> Trial | None:
    """A trial of the method; None if there is no small run of it that ends.

    Args:
        method: with the hyper-parameters that it is to be used with.
        nodes: asked for the workers of the scenario's nodes, if the method takes no smaller cluster.
        tensors: whether the vectors are torch's.
    """
    for tried in _variants(method):
        if (placement := _placement(tried, nodes)) is None:
            continue
        trial = trial_on(tried, placement, tensors=tensors)
        if trial is not None:
            before, now = vars(method), vars(tried)
            replaced = {name: (before[name], now[name]) for name in before if before[name] != now[name]}
            return dataclasses.replace(trial, replaced=replaced)
    return None


def trial_on(method: Method, nodes: Nodes, *, tensors: bool = False) -> Trial | None:
    """The method on these nodes; None if the run fails or does not end."""
    steps = max(FEWEST_STEPS, 2 * max((n for n in _whole(method).values() if n <= LONGEST), default=0) + 2)
    try:
        job = Job.of(method, nodes, Slopes(tensors), batch=BATCH, budget=Budget())
        job = dataclasses.replace(job, budget=Budget(samples=steps * BATCH * job.workers))
        ends = tuple(end_of(AnyOrder(job), order()) for order in ORDERS)
    except Exception:  # whatever is wrong with the method shows when it is used, where it is said
        return None
    return Trial(job, steps, {}, ends)


def end_of(run: Driver, choose: Chooser) -> Ended:
    """Runs it to its end; raises `DoesNotEnd` if there is none."""
    return ended(run.job, run.run(limited(choose)))


def ended(job: Job, trace: Trace) -> Ended:
    """How a run of the job has ended."""
    own = [getattr(getattr(trace.states[me.rank], "weights", None), "vector", None) for me in job.team]
    return Ended(tuple(np.asarray(vector) for vector in (trace.weights, *own) if vector is not None))


def limited(choose: Chooser) -> Chooser:
    """The chooser, until it has chosen `MOST_MOVES` times."""
    left = MOST_MOVES

    def limit(ready: Sequence[Move]) -> Move:
        nonlocal left
        left -= 1
        if left < 0:
            raise DoesNotEnd(f"the run has not ended after {MOST_MOVES} moves")
        return choose(ready)

    return limit


def _whole(method: Method) -> dict[str, int]:
    """The hyper-parameters that are whole numbers."""
    return {name: value for name, value in vars(method).items() if type(value) is int}


def _variants(method: Method) -> Iterator[Method]:
    """The method as it is tried: with short periods where it has long ones, then as it is."""
    long: dict[str, Any] = {name: SHORT for name, value in _whole(method).items() if value > LONGEST}
    with contextlib.suppress(Exception):  # its constructor may refuse the shorter ones
        yield from [dataclasses.replace(method, **long)] if long else []
    yield method


def _placement(method: Method, nodes: Callable[[], Nodes]) -> Nodes | None:
    """The first cluster that the method takes: a small one, or the scenario's."""
    for placement in (TWO_BY_TWO, ONE_NODE):
        if _takes(method, placement):
            return placement
    own = nodes()
    if 0 < sum(map(len, own)) <= MOST_WORKERS and _takes(method, own):
        return own
    return next((placement for placement in (TWO_WORKERS, ONE_WORKER) if _takes(method, placement)), None)


def _takes(method: Method, nodes: Nodes) -> bool:
    try:
        return not method.problems(nodes)
    except Exception:  # which a `problems` that expects the scenario's cluster may raise
        return False
