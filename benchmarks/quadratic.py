"""What is exact on quadratics, beside simulated runs of the methods on the noisy quadratic.

    python benchmarks/quadratic.py
    python benchmarks/quadratic.py Q6 Q10
    python benchmarks/quadratic.py --json

f(w) = λ w² / 2 in each dimension, gradient noise of variance c / B, g = ηλ. Dimensions of equal curvature are
independent copies of one run, so that one run shows a mean and a variance. Where workers' times are drawn, all copies
share them: there, copies are runs of different seeds. "within" is four standard errors, or, for limits of stability,
what the fit is known to. Every number comes from a run of the method that its line names; nothing here is a learner or
a method of its own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import solve_discrete_lyapunov

from paceline.algorithms.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.delayed import Agd
from paceline.algorithms.job import Budget, Job
from paceline.algorithms.method import Descent
from paceline.algorithms.operations import Work
from paceline.algorithms.periodic import KAvg
from paceline.algorithms.server import AsyncMsgd, AsyncSgd
from paceline.algorithms.values import Rank
from paceline.records.trace import Schedule, Trace
from paceline.simulator.interpreter import simulate_job
from paceline.simulator.network import NoCost
from paceline.topologies.spread import NO_SPREAD, Spread
from paceline.workloads.quadratic import Quadratic, QuadraticOptions

Array = NDArray[np.float64]
EXPONENTIAL = Spread.of("expon")


@dataclass(frozen=True)
class Finding:
    """A closed form and what a run shows of it."""

    oracle: str
    run: str
    expected: float
    measured: float
    within: float

    @property
    def holds(self) -> bool:
        return abs(self.measured - self.expected) <= self.within


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """A step takes a second, times its spread; nothing else takes time."""

    spread: Spread = NO_SPREAD
    seed: int = 1

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        return self.spread.factor(self.seed, rank, step)

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        return (0.25, 0.25), (0.25, 0.25)

    def timeline(self, rank: Rank) -> None:
        return None

    def work_s(self, rank: Rank, op: Work) -> float:
        return 0.0

    def load_s(self, rank: Rank, samples: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Played:
    """A run, and where w − w* was: by evaluation, curvature and copy."""

    trace: Trace
    learner: Quadratic
    path: Array

    def local(self) -> Array:
        """Where the workers end: by worker, curvature and copy."""
        ends = [state.weights.vector for state in self.trace.states.values()]
        return (np.array(ends) - self.learner.target).reshape(len(ends), *self.path.shape[1:])


def play(
    method: Descent,
    curvatures: Sequence[float],
    *,
    updates: int,
    copies: int = 1,
    workers: int = 1,
    batch: int = 1,
    every: int = 1,
    times: Times = Times(),
    **options: Any,
) -> Played:
    """Runs a method in virtual time on a quadratic of these curvatures, each in so many dimensions."""
    chosen = QuadraticOptions(dimensions=len(curvatures) * copies, layers=1, curvatures=tuple(curvatures), **options)
    learner = Quadratic(seed=times.seed, options=chosen)
    budget = Budget(samples=updates * method.samples_per_step(batch, workers))
    nodes = [[Rank(rank)] for rank in range(workers)]
    trace = simulate_job(Job.of(method, nodes, learner, batch=batch, budget=budget), times, NoCost(), Schedule(every))
    path = np.array([shot.vector for shot in trace.snapshots]) - learner.target
    return Played(trace, learner, path.reshape(len(path), len(curvatures), copies))


def named(method: Descent, *more: str) -> str:
    """The method with what is not its default."""
    plain = type(method)()
    own = [f"{name} {value:g}" for name, value in vars(method).items() if value != getattr(plain, name)]
    return f"{method.name} ({', '.join([*own, *more])})"


# --- closed forms ----------------------------------------------------------------------------------------------------


def companion(g: float, *, delay: int = 0, momentum: float = 0.0) -> Array:
    """The matrix of w_{t+1} = (1 + μ) w_t − μ w_{t−1} − g w_{t−d}, on (w_t, w_{t−1}, …)."""
    matrix = np.eye(max(delay, 1) + 1, k=-1)
    matrix[0, :2] = 1 + momentum, -momentum
    matrix[0, delay] -= g
    return matrix


def stationary(g: float, noise: float, *, delay: int = 0, momentum: float = 0.0) -> float:
    """The variance in which w ends, for steps with noise of this variance: P = A P Aᵀ + Q (Q5)."""
    matrix = companion(g, delay=delay, momentum=momentum)
    source = np.zeros_like(matrix)
    source[0, 0] = noise
    return float(solve_discrete_lyapunov(matrix, source)[0, 0])


def limit(*, delay: int = 0, momentum: float = 0.0) -> float:
    """The g at which the largest eigenvalue's modulus is 1."""
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


# --- experiments -----------------------------------------------------------------------------------------------------

COPIES = 40_000


def variance_after(
    oracle: str, method: Descent, expected: float, *, updates: int, copies: int = COPIES, **run: Any
) -> Finding:
    """The variance of w over copies with curvature 1 and c = 1, beside its closed form."""
    played = play(method, [1.0], updates=updates, every=updates, copies=copies, distance=0.0, variance=1.0, **run)
    within = 4 * expected * sqrt(2 / copies)
    return Finding(oracle, named(method), expected, float((played.path[-1] ** 2).mean()), within)


def q1() -> Iterator[Finding]:
    """m' = (1 − g) m, V' = (1 − g)² V + η² c / B, risk = Σ λ (m² + V) / 2: 100 directions λ = c = 1/i, 200 steps."""
    curvature, copies, rate = 1 / np.arange(1, 101), 400, 0.5
    for method, workers, batch in ((SequentialSgd(rate=rate), 1, 1), (SyncSgd(rate=rate), 4, 2)):
        played = play(method, curvature, updates=200, every=20, copies=copies, workers=workers, batch=batch)
        mean, variance, means, variances = np.ones(100), np.zeros(100), [], []
        for step in range(201):
            if step % 20 == 0 and step:
                away = played.path[step // 20]
                means.append((away.mean(axis=1) - mean) / np.sqrt(variance / copies))
                variances.append((away.var(axis=1, ddof=1) / variance - 1) * sqrt(copies / 2))
            if step < 200:
                mean = (1 - rate * curvature) * mean
                noise = rate**2 * curvature / (workers * batch)
                variance = (1 - rate * curvature) ** 2 * variance + noise
        run = f"{named(method)}, {workers} x {batch} samples"
        risks = (0.5 * curvature[:, None] * played.path[-1] ** 2).sum(axis=0)
        expected = float((curvature * (mean**2 + variance)).sum() / 2)
        yield Finding("Q1 risk", run, expected, float(risks.mean()), 4 * float(risks.std()) / sqrt(copies))
        # Evaluations of one direction are not independent, directions are.
        for what, found in (("mean", means), ("variance", variances)):
            squares = (np.array(found) ** 2).mean(axis=0)
            name = f"Q1 {what}, squared standard errors off"
            yield Finding(name, run, 1.0, float(squares.mean()), 4 * float(squares.std()) / 10)


def q2() -> Iterator[Finding]:
    """η c / (B λ (2 − g))."""
    yield variance_after("Q2", SequentialSgd(rate=0.5), 0.5 / 1.5, updates=60)
    yield variance_after("Q2", SyncSgd(rate=0.5), 0.5 / (8 * 1.5), updates=60, workers=4, batch=2)


def q3() -> Iterator[Finding]:
    """(1 + μ) η c / (B λ (1 − μ) (2 (1 + μ) − g))."""
    for mu, updates in ((0.5, 60), (0.9, 300)):
        expected = (1 + mu) * 0.5 / ((1 - mu) * (2 * (1 + mu) - 0.5))
        yield variance_after("Q3", SequentialSgd(rate=0.5, momentum=mu), expected, updates=updates)


def q4() -> Iterator[Finding]:
    """(1 + g) η c / (B λ (1 − g) (2 + g))."""
    yield variance_after("Q4", Agd(delay=1, rate=0.5), 1.5 * 0.5 / (0.5 * 2.5), updates=100)
    yield variance_after("Q4", AsyncSgd(rate=0.5), 1.5 * 0.5 / (0.5 * 2.5), updates=100, workers=2)


def q5() -> Iterator[Finding]:
    """The discrete Lyapunov equation of the companion matrix."""
    cases = [(0.125, 3, 0.0, 200), (0.06, 3, 0.5, 200), *((0.05, delay, 0.0, 600) for delay in (2, 8, 16))]
    for rate, delay, mu, updates in cases:
        expected = stationary(rate, rate**2, delay=delay, momentum=mu)
        yield variance_after("Q5", Agd(delay=delay, rate=rate, momentum=mu), expected, updates=updates, copies=20_000)
    expected = stationary(0.05, 0.05**2, delay=3, momentum=0.5)
    method = AsyncMsgd(rate=0.05, momentum=0.5)
    yield variance_after("Q5", method, expected, updates=200, copies=20_000, workers=4)


def limit_of(oracle: str, method: Descent, expected: float, *, workers: int = 1) -> Finding:
    """Where the growth of w crosses 0, among curvatures around the closed form; η = 1, without noise."""
    curvatures = expected * np.linspace(0.95, 1.05, 40)
    slow = 1 - method.momentum
    updates = int(400 / slow + 400 * slow / expected)
    path = play(method, list(curvatures), updates=updates, variance=0.0, workers=workers).path[:, :, 0]
    with np.errstate(over="ignore", invalid="ignore"):
        third, last = (np.abs(part).mean(axis=0) for part in np.array_split(path, 4)[2:])
        growth = np.log(last / third)
    beyond = int(np.argmax(~(growth < 0)))  # what has overflowed has grown
    measured = np.interp(0.0, growth[beyond - 1 : beyond + 1], curvatures[beyond - 1 : beyond + 1])
    return Finding(oracle, named(method, f"{workers} workers"), expected, float(measured), 1e-3 * expected)


def q6() -> Iterator[Finding]:
    """Delayed gradient descent is stable iff g < 2 sin(π / (2 (2τ + 1)))."""
    for delay in (0, 1, 2, 3, 4, 8, 16, 31):
        yield limit_of("Q6", Agd(delay=delay, rate=1.0), 2 * sin(pi / (2 * (2 * delay + 1))))


def q7() -> Iterator[Finding]:
    """Delay 1 with heavy ball: g < 1 − μ; longer delays by the roots of the companion matrix."""
    for mu in (0.5, 0.9, 0.95):
        yield limit_of("Q7", Agd(delay=1, rate=1.0, momentum=mu), 1 - mu)
    for delay, mu in ((2, 0.5), (8, 0.5), (4, 0.9), (16, 0.9)):
        yield limit_of("Q5, Q7", Agd(delay=delay, rate=1.0, momentum=mu), limit(delay=delay, momentum=mu))
    method = AsyncMsgd(rate=1.0, momentum=0.5)
    yield limit_of("Q7, Q11", method, limit(delay=2, momentum=0.5), workers=3)


def q8() -> Iterator[Finding]:
    """No delay, heavy ball: g < 2 (1 + μ)."""
    for mu in (0.5, 0.9, 0.95):
        yield limit_of("Q8", SequentialSgd(rate=1.0, momentum=mu), 2 * (1 + mu))


def q11() -> Iterator[Finding]:
    """M equal workers in round robin: Q6 at τ = M − 1."""
    for workers in (2, 4, 8):
        expected = 2 * sin(pi / (2 * (2 * workers - 1)))
        yield limit_of("Q11", AsyncSgd(rate=1.0), expected, workers=workers)
