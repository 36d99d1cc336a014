"""Small any-order runs that try a method before it is used: the problem, the size and the end of such a run.

Rules of this file:

* A trial is small and deterministic: four workers if the method allows four, eight weights, a bounded gradient (so that
  no learning rate makes the weights overflow), and enough steps for the method's longest period.
* The hyper-parameters are the scenario's, except for integers above `LONGEST`: nothing would happen in a trial with a
  period of 1000 steps, so such a number is replaced by `SHORT` if the method allows it.
* If the uninterrupted run fails or does not end, there is no trial, since there is nothing to compare with.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algorithms.core.job import Budget, Evaluation, Job, OneByOne
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.checking.anyorder import AnyOrder
from paceline.checking.driver import Driver
from paceline.checking.limits import limited
from paceline.checking.moves import Chooser, RoundRobin, Shuffled
from paceline.records.trace import Trace

Nodes = Sequence[Sequence[Rank]]
Order = Callable[[], Chooser]

BATCH = 8
FEWEST_STEPS = 12
"""least number of steps of each worker"""
LONGEST = 30
"""the largest integer hyper-parameter for which a trial is long enough"""
SHORT = 4
"""replaces a larger integer"""
MOST_MOVES = 20_000
"""limit of a trial, in moves; 62 steps of four workers with a server take about 3,000"""
MOST_WORKERS = 32
"""largest number of workers for a trial on the scenario's own cluster, if the method accepts no smaller one"""
TWO_BY_TWO: Nodes = ((Rank(0), Rank(1)), (Rank(2), Rank(3)))
ONE_NODE: Nodes = ((Rank(0), Rank(1), Rank(2), Rank(3)),)
TWO_WORKERS: Nodes = ((Rank(0),), (Rank(1),))
ONE_WORKER: Nodes = ((Rank(0),),)
ORDERS: tuple[Order, ...] = (RoundRobin, lambda: Shuffled(0))


LAYOUT = Layout((Layer("first", 0, 4), Layer("second", 4, 8)))


@dataclass(frozen=True)
class Slopes(OneByOne):
    """A problem of eight weights in two layers, with a different target for each worker and step.

    The gradient is a / (1 + |a|), where a is the distance from the target: it depends on the weights and is below 1.

    Args:
        tensors: whether the vectors are torch tensors, as in training, instead of NumPy arrays.
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
    """The weights at the end of a run: the learned ones, then those in the state of each rank that has any."""

    vectors: tuple[NDArray[Any], ...]

    def away(self, other: Ended) -> float | None:
        """Returns the largest difference from another end; None if every bit is the same."""
        pairs = list(zip(self.vectors, other.vectors, strict=False))
        if len(self.vectors) == len(other.vectors) and all(a.tobytes() == b.tobytes() for a, b in pairs):
            return None
        return max((float(np.abs(a - b).max()) for a, b in pairs if a.shape == b.shape), default=float("nan"))


@dataclass(frozen=True)
class Trial:
    """A method on a small job, and the end of the job's uninterrupted runs."""

    job: Job
    steps: int
    """number of steps of each worker"""
    replaced: Mapping[str, tuple[int, int]]
    """hyper-parameters that differ from the scenario's: the value there and the value here"""
    ends: tuple[Ended, ...]
    """for each of `ORDERS`"""


def trial_of(method: Method, nodes: Callable[[], Nodes] = tuple, *, tensors: bool = False) -> Trial | None:
    """Returns a trial of the method; None if no small run of it ends.

    Args:
        method: the method, with the hyper-parameters of the scenario.
        nodes: returns the workers of each node of the scenario; called if the method accepts no smaller cluster.
        tensors: whether the vectors are torch tensors instead of NumPy arrays.
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
    """Returns a trial of the method on these nodes; None if the run fails or does not end."""
    steps = max(FEWEST_STEPS, 2 * max((n for n in _whole(method).values() if n <= LONGEST), default=0) + 2)
    try:
        job = Job.of(method, nodes, Slopes(tensors), batch=BATCH, budget=Budget())
        job = dataclasses.replace(job, budget=Budget(samples=steps * BATCH * job.workers))
        ends = tuple(end_of(AnyOrder(job), order()) for order in ORDERS)
    except Exception:  # an error of the method is reported when it is used
        return None
    return Trial(job, steps, {}, ends)


def broken_in_small_runs(method: Method, *, tensors: bool = False) -> list[str]:
    """Returns the guarantees that small runs of a method violate, each once as ``guarantee: what was found``.

    Args:
        method: the method, with the hyper-parameters of the scenario.
        tensors: whether the vectors are torch tensors instead of NumPy arrays.
    """
    from paceline.checking.check_guarantees import broken  # which imports this module

    trial, problems = trial_of(method, tensors=tensors), dict[str, str]()
    if trial is None:
        return []
    for order in ORDERS:
        trace = AnyOrder(trial.job).run(limited(order(), MOST_MOVES))
        promised = {guarantee for guarantee in method.guarantees if not getattr(guarantee, "needs_times", False)}
        for line in broken(trial.job, trace, promised):
            problems.setdefault(line.partition(":")[0], line)
    return list(problems.values())


def end_of(run: Driver, choose: Chooser) -> Ended:
    """Runs to the end; raises `DoesNotEnd` if that takes too many moves."""
    return ended(run.job, run.run(limited(choose, MOST_MOVES)))


def ended(job: Job, trace: Trace) -> Ended:
    """Returns the end of a run of the job."""
    own = [getattr(getattr(trace.states[me.rank], "weights", None), "vector", None) for me in job.team]
    return Ended(tuple(np.asarray(vector) for vector in (trace.weights, *own) if vector is not None))


def _whole(method: Method) -> dict[str, int]:
    """Returns the hyper-parameters that are integers."""
    return {name: value for name, value in vars(method).items() if type(value) is int}


def _variants(method: Method) -> Iterator[Method]:
    """Yields the method with its long periods shortened, if it has any, then unchanged."""
    long: dict[str, Any] = {name: SHORT for name, value in _whole(method).items() if value > LONGEST}
    with contextlib.suppress(Exception):  # its constructor may refuse the shorter ones
        yield from [dataclasses.replace(method, **long)] if long else []
    yield method


def _placement(method: Method, nodes: Callable[[], Nodes]) -> Nodes | None:
    """Returns the first cluster that the method accepts: a small one, or the scenario's."""
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
    except Exception:  # a `problems` that expects the scenario's cluster may fail
        return False
