"""Fits the process of `topologies.faults.step_times` to measured steps of several workers.

* The factor of a worker is its mean step over that of all workers; with few steps, chance differences between equal
  workers are in it, too, and `persistent` says how much of the variance is left without them.
* Everything else is fitted to the ratios of steps to their worker's mean. Their covariance over time, of the same
  worker and of workers of one node, is an exponential of the time between two steps, fitted by least squares.
* What remains at no distance in time is noise. Slow trends of a worker over the whole measurement count as correlated.
* Nodes that the table does not name are not guessed: what all workers have in common then counts as that of one node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.topologies.catalogue.gradient_times import slices
from paceline.topologies.faults.jitter import Jitter
from paceline.topologies.faults.step_times import StepTimes
from paceline.topologies.importing.step_series import StepSeries

Values = NDArray[np.float64]

LAGS, LONGEST = 32, 0.25
"""distances at which covariances are compared, and the longest, as a fraction of the measured steps: longer ones have
too few independent pairs"""
SLICES = 200
"""factors that describe the distribution"""
PERIODS = (1, 8, 32)
"""steps between two waits, for which measured and fitted slowdowns are compared"""
DRAWS = 20
"""runs of the fitted process, from which what it repeats is computed"""
NAMED = ("lognorm", "gamma", "weibull_min")
"""distributions of scipy.stats that are compared with the measured one"""


@dataclass(frozen=True, slots=True)
class Decay:
    """A covariance over the variance that falls with time: share · e^(-time / time_s).

    Args:
        share: the value at small distances.
        time_s: the correlation time.
    """

    share: float
    time_s: float


class Halves(NamedTuple):
    """How much the halves of a series differ.

    Args:
        measured: between the measured halves.
        most: the most in `DRAWS` runs of the fitted process.
        most_from_first: the most in as many runs of the process that is fitted to the first half alone. If the measured
            halves differ more, the first half does not announce the second.
    """

    measured: float
    most: float
    most_from_first: float


@dataclass(frozen=True)
class StepFit:
    """The process that was fitted to a series.

    Args:
        times: the process, with the factors of the measured workers.
        persistent: the share of the variance of all steps by which workers differ for the whole series, 0 to 1.
        variation: the standard deviation of all steps over their mean.
    """

    series: StepSeries
    times: StepTimes
    persistent: float
    variation: float

    @property
    def lag_1(self) -> float:
        """The mean correlation of successive steps of a worker."""
        return _correlation(self.series, 1)

    @cached_property
    def compared(self) -> list[tuple[int, float, float]]:
        """Numbers of steps between waits, each with the measured slowdown and the mean of the process."""
        return self._repeated(StepSeries.slowdown)

    @cached_property
    def correlations(self) -> list[tuple[int, float, float]]:
        """Numbers of steps, each with the correlation of a worker's steps so far apart, measured and of the process."""
        return self._repeated(_correlation)

    def _repeated(self, figure: Callable[[StepSeries, int], float]) -> list[tuple[int, float, float]]:
        """Returns a figure for each of `PERIODS`: measured, and its mean over runs of the process."""
        return [
            (period, figure(self.series, period), float(np.mean([figure(run, period) for run in self.runs])))
            for period in PERIODS
            if 2 * period <= self.series.seconds.shape[1]
        ]

    @cached_property
    def distances(self) -> dict[str, float]:
        """Kolmogorov–Smirnov distances of all steps to those of the process, and to named distributions fitted to them.

        A distance is the largest difference of two distribution functions, 0 to 1. The process's steps together are
        every factor of the distribution at every worker.
        """
        from scipy import stats

        steps = self.series.seconds.ravel() / self.series.seconds.mean()
        written = np.outer(_scaled(self.times.workers), _scaled(self.times.law.values or (1.0,)))
        distances = {"process": float(stats.ks_2samp(steps, written.ravel()).statistic)}
        if steps.std() > 0:
            for name in NAMED:
                law = getattr(stats, name)
                distances[name] = float(stats.kstest(steps, law(*law.fit(steps, floc=0.0)).cdf).statistic)
        return distances

    @cached_property
    def change(self) -> Halves:
        """The largest factor by which a worker's share of the mean changes between the halves."""
        return self._between_halves(_largest_change)

    @cached_property
    def distance_of_halves(self) -> Halves:
        """The Kolmogorov–Smirnov distance of the steps of the two halves."""
        return self._between_halves(_distance_of_halves)

    @cached_property
    def runs(self) -> list[StepSeries]:
        """`DRAWS` runs of the process, with as many workers and steps as the series."""
        return self._runs_of(self.times, self.series)

    @cached_property
    def _runs_of_first_half(self) -> list[StepSeries]:
        """As many runs of the process that is fitted to the first half, as long as the whole series."""
        half = self.series.part(0, self.series.seconds.shape[1] // 2)
        return self._runs_of(fit_steps(half).times, half)

    def _runs_of(self, times: StepTimes, fitted: StepSeries) -> list[StepSeries]:
        workers, steps = self.series.seconds.shape
        nodes, step_s = self.series.nodes or (0,) * workers, float(fitted.seconds.mean())
        return [drawn_together(times, nodes, steps, seed=seed, step_s=step_s) for seed in range(DRAWS)]

    def _between_halves(self, differ: Callable[[StepSeries], float]) -> Halves:
        whole, first = (max(map(differ, runs)) for runs in (self.runs, self._runs_of_first_half))
        return Halves(differ(self.series), whole, first)


def _scaled(factors: Sequence[float]) -> Values:
    """Returns factors with mean 1."""
    values = np.asarray(factors, dtype=np.float64)
    scaled: Values = values / values.mean()
    return scaled


def _correlation(series: StepSeries, lag: int) -> float:
    """Returns the mean correlation of a worker's steps that are `lag` apart."""
    apart = series.seconds / series.seconds.mean(axis=1, keepdims=True) - 1.0
    variance = float((apart**2).mean())
    return float((apart[:, :-lag] * apart[:, lag:]).mean()) / variance if variance > 1e-12 else 0.0


def _halves(series: StepSeries) -> tuple[Values, Values]:
    half = series.seconds.shape[1] // 2
    return series.seconds[:, :half], series.seconds[:, half:]


def _largest_change(series: StepSeries) -> float:
    """Returns the largest factor by which a worker's mean changes between the halves, over that of all workers."""
    first, second = (half.mean(axis=1) / half.mean() for half in _halves(series))
    return float(np.exp(np.abs(np.log(second / first)).max()))


def _distance_of_halves(series: StepSeries) -> float:
    from scipy import stats

    first, second = _halves(series)
    return float(stats.ks_2samp(first.ravel(), second.ravel()).statistic)


def drawn_together(
    times: StepTimes, nodes: Sequence[int], steps: int, *, seed: int = 1, step_s: float = 1.0
) -> StepSeries:
    """Draws the steps of workers that begin each step together, when the slowest has ended the one before.

    Args:
        times: the process.
        nodes: the number of each worker's node.
        steps: the number of steps.
        seed: the seed of the draws.
        step_s: the mean seconds of a step.

    >>> drawn_together(StepTimes(workers=(0.5, 1.5)), [0, 0], 2).seconds.tolist()
    [[0.5, 0.5], [1.5, 1.5]]
    """
    factors = times.of_ranks(seed, range(len(nodes)), nodes, steps)
    begin_s, rows = 0.0, []
    for step in range(steps):
        rows.append(step_s * factors.factors(step, np.full(len(nodes), begin_s)))
        begin_s += float(rows[-1].max())
    return StepSeries.together("drawn", np.array(rows).T, nodes)


def fit_steps(series: StepSeries) -> StepFit:
    """Fits the process to a series.

    Args:
        series: the measured steps.

    >>> drawn = np.random.default_rng(1).gamma(20.0, 0.05, (4, 400)) * np.array([[1.0], [1.0], [1.0], [2.0]])
    >>> fit = fit_steps(StepSeries.together("made", drawn))
    >>> [round(factor, 1) for factor in fit.times.workers], fit.times.correlated < 0.1, round(fit.persistent, 1)
    ([0.8, 0.8, 0.8, 1.6], True, 0.7)
    """
    means = series.seconds.mean(axis=1, keepdims=True)
    ratios, overall = series.seconds / means, float(series.seconds.mean())
    factors = (means / overall).ravel()
    law = Jitter.measured(slices(ratios.ravel().tolist(), SLICES))
    within = float(((ratios - 1.0) ** 2).mean())
    variation = float(series.seconds.std()) / overall
    if within < 1e-12:
        return StepFit(series, StepTimes(workers=_given(factors)), 1.0 if variation else 0.0, variation)
    distances, own, shared = _covariances(series, ratios - 1.0)
    own, shared = own / within, shared / within
    node = _decay(distances, shared)
    total = _decay(distances[1:], own[1:])
    share = min(1.0, max(0.0, total.share - node.share))
    times = StepTimes(
        law=law,
        node=round(min(node.share, 1.0 - share), 4),
        correlated=round(share, 4),
        correlation_time_s=total.time_s if share else math.inf,
        node_correlation_time_s=node.time_s if node.share else math.inf,
        workers=_given(factors),
    )
    chance = within * _repeats(own) / series.seconds.shape[1]
    persistent = max(0.0, float(factors.var()) - chance) / variation**2
    return StepFit(series, times, min(1.0, persistent), variation)


def _given(factors: Values) -> tuple[float, ...]:
    return tuple(float(f"{factor:.4g}") for factor in factors)


def _covariances(series: StepSeries, deviations: Values) -> tuple[Values, Values, Values]:
    """Returns the mean covariances of a worker, and of two workers of a node, by the mean distance in seconds."""
    workers, steps = deviations.shape
    nodes = np.array(series.nodes or (0,) * workers)
    together = (nodes[:, None] == nodes[None, :]) & ~np.eye(workers, dtype=bool)
    lags = np.unique(np.round(np.geomspace(1, max(2, LONGEST * steps), LAGS)).astype(int))
    distances, own, shared = [], [], []
    for lag in (0, *lags.tolist()):
        products = deviations[:, : steps - lag] @ deviations[:, lag:].T / (steps - lag)
        own.append(float(np.diag(products).mean()))
        shared.append(float(products[together].mean()) if together.any() else 0.0)
        distances.append(float((series.begins_s[:, lag:] - series.begins_s[:, : steps - lag]).mean()))
    return np.array(distances), np.array(own), np.array(shared)


def _decay(distances: Values, covariances: Values) -> Decay:
    """Fits an exponential, starting from several correlation times."""
    from scipy.optimize import least_squares

    longest = max(float(distances[-1]), 1e-9)
    shortest = max(float(distances[distances > 0].min()) / 4, longest * 1e-6)

    def residuals(parameters: Values) -> Values:
        apart: Values = parameters[0] * np.exp(-distances / math.exp(parameters[1])) - covariances
        return apart

    bounds = ([0.0, math.log(shortest)], [1.0, math.log(4 * longest)])
    begin = min(1.0, max(0.01, float(covariances[0])))
    fits = [
        least_squares(residuals, [begin, math.log(time_s)], bounds=bounds)
        for time_s in np.geomspace(shortest * 1.01, 3.9 * longest, 4)
    ]
    share, logarithm = min(fits, key=lambda fit: fit.cost).x
    return Decay(float(share), float(f"{math.exp(logarithm):.4g}"))


def _repeats(correlations: Values) -> float:
    """Returns by how much correlations multiply the variance of a mean: 1 + 2 Σ ρ, up to the first below 0."""
    positive = correlations[1:]
    end = int(np.argmax(positive <= 0)) if (positive <= 0).any() else len(positive)
    return 1.0 + 2.0 * float(positive[:end].sum())
