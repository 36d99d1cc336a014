"""Runs of the methods on quadratics, and the closed forms with which they are compared (O5 of docs/invariants.md).

f(w) = λ w² / 2 in each dimension, gradient noise of variance c / B, g = ηλ. Dimensions of equal curvature are
independent copies of one run, so one run shows a mean and a variance. Where workers' times are random, all copies share
them: there, copies are runs of different seeds, or parts of a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.core.values import Rank
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.topologies.faults.jitter import Jitter
from paceline.workloads.learners.quadratic import Quadratic, QuadraticOptions
from tests.support import FixedTiming

Array = NDArray[np.float64]
EXPONENTIAL = Jitter.of("expon")
SEED = 1
EQUAL = FixedTiming()


@dataclass(frozen=True)
class Finding:
    """A closed form and the measured value of a run."""

    oracle: str
    run: str
    expected: float
    measured: float
    within: float
    """four standard errors, or the known uncertainty of the measurement"""

    @property
    def holds(self) -> bool:
        return abs(self.measured - self.expected) <= self.within


Experiment = Callable[[], Iterator[Finding]]


def exponential(seed: int = SEED) -> FixedTiming:
    """Steps take exponential times of mean 1 s, by the distribution of scenarios; nothing else takes time."""
    return FixedTiming(compute=lambda rank, step: EXPONENTIAL.factor(seed, rank, step))


@dataclass(frozen=True)
class Played:
    """A run, and the values of w − w*: by evaluation, curvature and copy."""

    trace: Trace
    learner: Quadratic
    path: Array

    def local(self) -> Array:
        """Returns the final weights of the workers: by worker, curvature and copy."""
        ends = [state.weights.vector for state in self.trace.states.values()]
        return (np.array(ends) - self.learner.target).reshape(len(ends), *self.path.shape[1:])


def play(
    method: SgdMethod,
    curvatures: Sequence[float],
    *,
    updates: int,
    copies: int = 1,
    workers: int = 1,
    batch: int = 1,
    every: int = 1,
    timing: FixedTiming = EQUAL,
    **options: Any,
) -> Played:
    """Runs a method in virtual time on a quadratic of these curvatures, each in so many dimensions."""
    chosen = QuadraticOptions(dimensions=len(curvatures) * copies, layers=1, curvatures=tuple(curvatures), **options)
    learner = Quadratic(seed=SEED, options=chosen)
    budget = Budget(samples=updates * method.samples_per_step(batch, workers))
    nodes = [[Rank(rank)] for rank in range(workers)]
    trace = simulate_job(Job.of(method, nodes, learner, batch=batch, budget=budget), timing, NoCost(), Schedule(every))
    path = np.array([shot.vector for shot in trace.snapshots]) - learner.target
    return Played(trace, learner, path.reshape(len(path), len(curvatures), copies))


def named(method: SgdMethod, *more: str) -> str:
    """Returns the method with its main numbers."""
    numbers = {field.name: getattr(method, field.name) for field in fields(method)}
    own = [f"{name} {numbers[name]:g}" for name in ("delay", "k", "rate") if name in numbers]
    if method.momentum:
        own.append(f"momentum {method.momentum:g}")
    return f"{method.name} ({', '.join([*own, *more])})"


# --- closed forms ----------------------------------------------------------------------------------------------------


def companion(g: float, *, delay: int = 0, momentum: float = 0.0) -> Array:
    """The matrix of w_{t+1} = (1 + μ) w_t − μ w_{t−1} − g w_{t−d}, on (w_t, w_{t−1}, …)."""
    matrix = np.eye(max(delay, 1) + 1, k=-1)
    matrix[0, :2] = 1 + momentum, -momentum
    matrix[0, delay] -= g
    return matrix


def stationary(g: float, noise: float, *, delay: int = 0, momentum: float = 0.0) -> float:
    """Returns the stationary variance of w, for steps with noise of this variance: P = A P Aᵀ + Q (Q5)."""
    matrix = companion(g, delay=delay, momentum=momentum)
    source = np.zeros_like(matrix)
    source[0, 0] = noise
    return float(solve_discrete_lyapunov(matrix, source)[0, 0])


def settled(g: float, *, delay: int = 0, momentum: float = 0.0) -> int:
    """Returns after how many updates the variance is stationary to 1 in 100,000."""
    radius = np.abs(np.linalg.eigvals(companion(g, delay=delay, momentum=momentum))).max()
    return ceil(log(1e-5) / (2 * log(radius)))


def limit(*, delay: int = 0, momentum: float = 0.0) -> float:
    """Returns the g at which the largest eigenvalue's modulus is 1."""
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        eigenvalues = np.linalg.eigvals(companion(middle, delay=delay, momentum=momentum))
        low, high = (middle, high) if np.abs(eigenvalues).max() < 1 else (low, middle)
    return low


def moments(g: float, workers: int) -> Array:
    """One update of (E w², E w v_m, E v_m², E v_m v_k), where v_m are the weights that worker m has, any equally
    likely to be the next (Q10)."""
    m, w = workers, np.array([1.0, -2 * g, g * g, 0])
    after = np.array([0, 1.0, 0, -g])
    seen, pair = np.array([0, 0, 1.0, 0]), np.array([0, 0, 0, 1.0])
    return np.array([w, w / m + (1 - 1 / m) * after, w / m + (1 - 1 / m) * seen, (1 - 2 / m) * pair + 2 / m * after])
