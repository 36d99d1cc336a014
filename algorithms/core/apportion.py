"""Divides a batch among nodes of different speed. Pure functions, exact if their arguments are.

A node needs t = o + b / v seconds for b samples: an overhead o, and 1 / v for each sample. All nodes take the same time
T with the shares b_i = v_i (T − o_i) of a total B, where T follows from Σ b_i = B. Shares are rounded by the method of
largest remainders, so the sum is exactly B and each share changes by less than one sample.

Everything is computed in fractions, because rounding errors would decide ties and sometimes lose a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

APART = 0.05
"""minimum standard deviation of a node's batches, relative to their mean, for fitting its overhead; provenance: ours"""
MOST = 0.9
"""maximum fraction of a step that counts as overhead; provenance: ours"""
Number = float | Fraction
ZERO = Fraction(0)


def quotas(total: int, speeds: Sequence[Number], overheads: Sequence[Number] = (), least: int = 0) -> list[Fraction]:
    """Returns the unrounded shares with which all nodes take the same time.

    b_i = max(least, v_i (T − o_i)), Σ b_i = B

    Args:
        total: B, in samples; at least `least` for each node.
        speeds: v, in samples per second, above 0.
        overheads: o, in seconds per batch; empty: all 0.
        least: the minimum share of a node, in samples.

    >>> quotas(8, [1.0, 3.0])
    [Fraction(2, 1), Fraction(6, 1)]
    >>> quotas(8, [1.0, 1.0], overheads=[0.0, 2.0])
    [Fraction(5, 1), Fraction(3, 1)]
    """
    exact = [Fraction(speed) for speed in speeds]
    fixed = [Fraction(overhead) for overhead in overheads] or [ZERO] * len(exact)
    above = set(range(len(exact)))
    while above:
        rest = total - least * (len(exact) - len(above))
        end = (rest + sum((exact[i] * fixed[i] for i in above), ZERO)) / sum((exact[i] for i in above), ZERO)
        low = {i for i in above if exact[i] * (end - fixed[i]) < least}
        if not low:
            break
        above -= low
    shares = [Fraction(least)] * len(exact)
    for i in above:
        shares[i] = exact[i] * (end - fixed[i])
    return shares


def rounded(shares: Sequence[Fraction]) -> tuple[int, ...]:
    """Rounds shares to integers with the same sum: the largest remainders are rounded up, ties by index.

    >>> rounded([Fraction(5, 2), Fraction(7, 2), Fraction(2)])
    (3, 3, 2)
    """
    whole = [share.numerator // share.denominator for share in shares]
    left = int(sum(shares)) - sum(whole)
    largest = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))[:left]
    return tuple(count + (i in largest) for i, count in enumerate(whole))


def apportion(
    total: int, speeds: Sequence[Number], overheads: Sequence[Number] = (), *, least: int = 1
) -> tuple[int, ...]:
    """Divides a batch among nodes such that all take about the same time.

    Args:
        total: B, in samples; at least `least` for each node.
        speeds: v, in samples per second, above 0.
        overheads: o, in seconds per batch; empty: all 0.
        least: the minimum share of a node, in samples.

    Returns:
        The batch of each node, in samples.

    >>> apportion(512, [8, 4, 4, 2, 2, 1, 1, 1])
    (178, 89, 89, 45, 45, 22, 22, 22)
    """
    return rounded(quotas(total, speeds, overheads, least))


def change(old: Sequence[int], new: Sequence[int]) -> float:
    """Returns the largest relative change of a batch.

    Args:
        old: the batches before, in samples, above 0.
        new: the batches after, in the same order.

    >>> change([10, 30], [12, 28])
    0.2
    """
    return max(abs(after - before) / before for before, after in zip(old, new, strict=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimates speed and overhead of a node from exponentially weighted moments of its batches and their times.

    Fitting the line t = o + b / v requires batches that differ. Until they do, o is 0; when they no longer do, o keeps
    its last value and v follows from the means: v = b̄ / (t̄ − o).

    >>> seen = Estimate(10, 3.0).seen(20, 5.0, weight=0.5)
    >>> round(seen.overhead, 6), round(seen.speed, 6)
    (1.0, 5.0)
    """

    batch: float
    """b̄, in samples"""
    seconds: float
    """t̄"""
    variance: float = 0.0
    """of batches"""
    covariance: float = 0.0
    """of batches and seconds"""
    overhead: float = 0.0
    """o, in seconds"""

    @property
    def speed(self) -> float:
        """v, in samples per second."""
        return self.batch / (self.seconds - self.overhead)

    def seen(self, batch: int, seconds: float, weight: float) -> Estimate:
        """Returns the estimate after one more measurement.

        Args:
            batch: in samples.
            seconds: the time of the batch.
            weight: of the measurement in the means, above 0, up to 1.
        """
        wider, longer = batch - self.batch, seconds - self.seconds
        mean, mean_s = self.batch + weight * wider, self.seconds + weight * longer
        variance = (1 - weight) * (self.variance + weight * wider * wider)
        covariance = (1 - weight) * (self.covariance + weight * wider * longer)
        overhead = self.overhead
        if variance > (APART * mean) ** 2:
            overhead = mean_s - covariance / variance * mean
        return Estimate(mean, mean_s, variance, covariance, min(max(overhead, 0.0), MOST * mean_s))
