"""The distribution of gradient times: fitted laws, their goodness of fit, and correlations.

Rules of this file:

* Times are divided by the mean of their launch, so a law describes the times of a launch and not the differences
  between launches.
* A law has the parameters of the highest likelihood. Its statistic is that of Kolmogorov and Smirnov, the largest
  distance between the law and the measured distribution. As its parameters were fitted to the same times, the usual
  table of this statistic does not hold. So the p-value is a parametric bootstrap: the share of samples drawn from the
  law, to which the law is fitted again, with a larger statistic. Source: H. W. Lilliefors, J. Am. Stat. Assoc. 62
  (318), 1967, and W. Stute et al., Metrika 40, 1993; provenance of the citations: MEMORY medium.
* Of the laws with a p-value of at least `LEAST`, the one with the largest p-value is taken. If there is none, the
  measured distribution stays.
* The test assumes independent times. Correlated times are rejected too often, which is the safe side: the measured
  distribution is then used. At most `MOST` times are tested, at equal distances in the order of measurement.
* Correlations are Spearman's, so that a single long time does not determine them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.scenarios.machine_file import FitPart
from paceline.topologies import NO_JITTER, Jitter
from paceline.topologies.faults.jitter import cumulative, scipy_law

LEAST = 0.05
"""the smallest p-value of a law that is taken: the usual level of significance"""
SAMPLES = 200
"""samples of the bootstrap; a p-value of 0.05 then has a standard error of 0.015: DERIVED, √(0.05 · 0.95 / 200)"""
MOST, FEWEST = 400, 30
"""the most and the fewest times to which laws are fitted: INFERENCE"""
SEED = 20
"""of the bootstrap, so that the same times give the same law"""
LARGE = 0.3
"""the correlation from which on the words of a calibration mention it"""
Values = np.ndarray
Sequences = Mapping[tuple[Rank, int], Sequence[float]]
"""successive times by rank and step of a probe"""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Laws that were fitted to times, and the one that was chosen.

    Args:
        law: the chosen law; no jitter if none fits.
        fits: all laws.
    """

    law: Jitter = NO_JITTER
    fits: tuple[FitPart, ...] = ()


def fitted(ratios: Sequence[float]) -> Fitted:
    """Fits all laws to times.

    Args:
        ratios: times over the mean of their launch, in the order of measurement.

    >>> drawn = np.random.default_rng(1).gamma(20.0, 0.05, 300)
    >>> laws = fitted(list(drawn))
    >>> laws.law.distribution, len(laws.fits)
    ('gamma', 4)
    >>> fitted([1.0] * 100).law == NO_JITTER
    True
    """
    values = np.asarray(ratios, dtype=np.float64)
    if len(values) > MOST:
        values = values[np.linspace(0, len(values) - 1, MOST).astype(int)]
    if len(values) < FEWEST or float(np.std(values)) < 1e-6 * float(np.mean(values)) or values.min() <= 0:
        return Fitted()
    fits = tuple(goodness_of_fit(fit, values) for fit in LAWS)
    best = max(fits, key=lambda fit: fit.p_value)
    return Fitted(best.law if best.p_value >= LEAST else NO_JITTER, fits)


@dataclass(frozen=True, slots=True)
class Correlations:
    """Spearman's correlations of gradient times, -1 to 1.

    Args:
        between_steps: of successive times of a rank.
        between_ranks: of the times of two ranks in the same step.
    """

    between_steps: float = 0.0
    between_ranks: float = 0.0


def correlations(launches: Sequence[Sequences]) -> Correlations:
    """Returns the correlations of times; 0 where there are too few of them.

    Pairs of all launches count together. Each launch's times are divided by their mean, and each rank's too, because a
    rank on a slower core is no correlation between steps.

    Args:
        launches: the times of each launch.

    >>> correlations([{(Rank(0), 0): [1.0, 2.0, 3.0, 4.0] * 10, (Rank(1), 0): [1.0, 2.0, 3.0, 4.0] * 10}]).between_ranks
    1.0
    """
    steps: list[tuple[float, float]] = []
    ranks: list[tuple[float, float]] = []
    for launch in launches:
        means = {
            rank: float(np.mean([time for (other, _), times in launch.items() if other == rank for time in times]))
            for rank in {rank for (rank, _), times in launch.items() if times}
        }
        scaled = {(rank, step): [time / means[rank] for time in times] for (rank, step), times in launch.items()}
        for times in scaled.values():
            steps += pairwise(times)
        for (first, step), (other, same) in combinations(sorted(scaled), 2):
            if step == same and first != other:
                ranks += zip(scaled[first, step], scaled[other, same], strict=False)
    return Correlations(_spearman(steps), _spearman(ranks))


def words(correlated: Correlations) -> list[str]:
    """Returns sentences on large correlations.

    >>> words(Correlations(0.41, 0.1))
    ['successive gradient times of a rank are correlated (0.41)']
    """
    said = []
    if abs(correlated.between_steps) > LARGE:
        said.append(f"successive gradient times of a rank are correlated ({correlated.between_steps:.2f})")
    if abs(correlated.between_ranks) > LARGE:
        said.append(f"simultaneous gradient times of ranks are correlated ({correlated.between_ranks:.2f})")
    return said


def _spearman(pairs: Sequence[tuple[float, float]]) -> float:
    from scipy.stats import spearmanr

    if len(pairs) < FEWEST:
        return 0.0
    first, second = (np.asarray(column) for column in zip(*pairs, strict=True))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    correlation = float(spearmanr(first, second).statistic)
    return round(min(1.0, max(-1.0, correlation)), 4)


# --- laws -------------------------------------------------------------------------------------------------------------


def lognormal(values: Values) -> dict[str, float]:
    """Returns the parameters of the lognormal law: the standard deviation and the mean of the logarithms."""
    logs = np.log(values)
    return {"sigma": float(np.std(logs)), "scale": float(np.exp(np.mean(logs)))}


def gamma(values: Values) -> dict[str, float]:
    """Returns the parameters of the gamma law, by Newton's method on ln k − ψ(k) = ln mean − mean of logarithms.

    Source: T. P. Minka, "Estimating a Gamma distribution", 2002: MEMORY high.
    """
    from scipy.special import polygamma, psi

    mean = float(np.mean(values))
    excess = math.log(mean) - float(np.mean(np.log(values)))
    shape = 0.5 / excess
    for _ in range(20):
        slope = 1 / shape - float(polygamma(1, shape))
        shape = 1 / (1 / shape + (math.log(shape) - float(psi(shape)) - excess) / (shape**2 * slope))
    return {"shape": shape, "scale": mean / shape}


def shifted_exponential(values: Values) -> dict[str, float]:
    """Returns the parameters of the shifted exponential law: the smallest time, and the mean above it."""
    least = float(np.min(values))
    return {"loc": least, "scale": float(np.mean(values)) - least}


def inverse_gaussian(values: Values) -> dict[str, float]:
    """Returns the parameters of the inverse Gaussian law with 1/λ = the mean of 1/x − 1/mean; SciPy's mu is mean/λ."""
    mean = float(np.mean(values))
    inverse = float(np.mean(1 / values)) - 1 / mean
    return {"mu": mean * inverse, "scale": 1 / inverse}


Fit = tuple[str, Callable[[Values], dict[str, float]]]
LAWS: tuple[Fit, ...] = (
    ("lognorm", lognormal),
    ("gamma", gamma),
    ("expon", shifted_exponential),
    ("invgauss", inverse_gaussian),
)
"""names of `scipy.stats` and their fits"""


def goodness_of_fit(fit: Fit, values: Values) -> FitPart:
    """Fits one law and tests it by a parametric bootstrap.

    Args:
        fit: the name and the fit of the law.
        values: times over their mean.
    """
    name, estimate = fit
    parameters = estimate(values)
    law, random = scipy_law(_jitter(name, parameters)), np.random.default_rng(SEED)
    statistic = _distance(_jitter(name, parameters), values)
    larger = 0
    for _ in range(SAMPLES):
        drawn = law.rvs(size=len(values), random_state=random)
        larger += _distance(_jitter(name, estimate(drawn)), drawn) >= statistic
    scaled = float(law.mean())
    kept = {key: value / scaled if key in ("loc", "scale") else value for key, value in parameters.items()}
    kept = {key: float(f"{value:.6g}") for key, value in kept.items()}
    return FitPart.model_construct(
        law=Jitter.of(name, **kept), statistic=round(statistic, 4), p_value=(1 + larger) / (1 + SAMPLES)
    )


def _jitter(name: str, parameters: Mapping[str, float]) -> Jitter:
    return Jitter(name, tuple(sorted(parameters.items())))


def _distance(law: Jitter, values: Values) -> float:
    """Returns the largest distance between a law and the distribution of values (Kolmogorov-Smirnov)."""
    probability = cumulative(law, np.sort(values))
    count = len(values)
    above = np.arange(1, count + 1) / count - probability
    below = probability - np.arange(count) / count
    return float(max(above.max(), below.max()))
