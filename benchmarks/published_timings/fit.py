"""Errors, and the fit of the two factors for latencies and bandwidths.

Rules of this file: of the sorted sizes of a system, those at even places (the first, the third …) are used for the fit
and those at odd places for the test, with all their rows. Errors are |predicted − measured| / measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize

LEAST_SIZES = 6
PULL = 0.003
"""weight of a regularisation towards the catalogue: two factors that few rows cannot separate stay near it"""

SMALL = 0.05
"""errors below this count as squares"""

Floats = npt.NDArray[np.float64]
Ways = Sequence[Sequence[tuple[float, float]]]
"""for each row, (latency_s, transfer_s) of each way"""


def mean_error(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Returns the mean absolute percentage error, as a fraction; None for no rows.

    >>> mean_error([1.1, 1.5], [1.0, 2.0])
    0.175
    """
    if not measured:
        return None
    return round(math.fsum(abs(p - m) / m for p, m in zip(predicted, measured, strict=True)) / len(measured), 12)


def mean_of(errors: Sequence[float | None]) -> float | None:
    """Returns the mean of the values that are not None."""
    known = [error for error in errors if error is not None]
    return math.fsum(known) / len(known) if known else None


def halves(sizes: Sequence[float]) -> tuple[list[int], list[int]] | None:
    """Returns the places of the rows to fit and of those to test; None if there are too few sizes.

    >>> halves([1, 1, 2, 3, 4, 5, 6])
    ([0, 1, 3, 5], [2, 4, 6])
    """
    known = sorted(set(sizes))
    if len(known) < LEAST_SIZES:
        return None
    fitted = set(known[::2])
    return (
        [place for place, size in enumerate(sizes) if size in fitted],
        [place for place, size in enumerate(sizes) if size not in fitted],
    )


def predicted_s(ways: Ways, factors: tuple[float, float]) -> list[float]:
    """Returns the seconds of each row: λ · latency + transfer / σ of its cheapest way."""
    return [min(factors[0] * latency + transfer / factors[1] for latency, transfer in row) for row in ways]


def fitted(ways: Ways, measured_s: Sequence[float]) -> tuple[float, float]:
    """Returns λ and σ that minimise the mean of |predicted − measured| / measured, smoothed below `SMALL`.

    This is the error that is reported. Absolute values prevent that a measurement far off dominates the fit. The search
    starts from the best point of a grid.

    Args:
        ways: One or more ways for each row.
        measured_s: Seconds of each row.

    >>> ways = [[(1.0, 0.1 * n)] for n in (1, 10, 100, 1000)]
    >>> [round(factor, 1) for factor in fitted(ways, predicted_s(ways, (2.0, 0.5)))]
    [2.0, 0.5]
    """
    widest = max(map(len, ways))
    padded = np.array([list(row) + [row[-1]] * (widest - len(row)) for row in ways])
    latency, transfer, measured = padded[:, :, 0], padded[:, :, 1], np.array(measured_s)

    def loss(logs: Floats) -> float:
        seconds = np.min(math.exp(logs[0]) * latency + transfer / math.exp(logs[1]), axis=1)
        errors = 2 * SMALL**2 * (np.sqrt(1 + ((seconds / measured - 1) / SMALL) ** 2) - 1)
        return float(np.mean(errors) + PULL * np.sum(np.square(logs)))

    start = optimize.brute(loss, ((-2.0, 2.5), (-2.0, 1.5)), Ns=41, finish=None)
    found = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    return math.exp(found.x[0]), math.exp(found.x[1])
