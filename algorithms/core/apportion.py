"""How a batch is shared out among nodes of unlike speed: pure functions, exact where their arguments are.

A node needs t = o + b / v seconds for b samples: an overhead o, and 1 / v for each sample. The shares b_i of a total B
that make all nodes take the same time T are b_i = v_i (T − o_i), with T from Σ b_i = B. They are rounded by largest
remainders, so that the sum is B exactly and nobody is off by a whole sample.

Everything is computed in fractions: rounding errors would decide ties, and would lose a sample now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

APART = 0.05
"""spread of a node's batches, relative to their mean, from which its overhead can be told; provenance: ours"""
MOST = 0.9
"""the largest share of a step that is taken to be overhead; provenance: ours"""
Number = float | Fraction
ZERO = Fraction(0)


def quotas(total: int, speeds: Sequence[Number], overheads: Sequence[Number] = (), least: int = 0) -> list[Fraction]:
    """The shares, not rounded, with which all nodes take the same time.

    b_i = max(least, v_i (T − o_i)), Σ b_i = B

    Args:
        total: B, in samples; at least `least` for each node.
        speeds: v, in samples per second, above 0.
        overheads: o, in seconds per batch; none are all 0.
        least: samples that every node gets.

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
    """Whole numbers with the same sum: what is left after rounding down goes to the largest remainders, ties by index.

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
    """Everybody's batch; arguments as of `quotas`.

    >>> apportion(512, [8, 4, 4, 2, 2, 1, 1, 1])
    (178, 89, 89, 45, 45, 22, 22, 22)
    """
    return rounded(quotas(total, speeds, overheads, least))


def change(old: Sequence[int], new: Sequence[int]) -> float:
    """The largest relative change of anybody's batch.

    >>> change([10, 30], [12, 28])
    0.2
    """
    return max(abs(after - before) / before for before, after in zip(old, new, strict=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What measurements say of a node: exponentially weighted means and moments of its batches and their times.

    The line t = o + b / v through them needs batches that differ. Until they do, o is taken to be 0; when they no
    longer do, o stays as it was found, and v follows from the means alone: v = b̄ / (t̄ − o).

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
        """With one more measurement, which counts for so much of the means."""
        wider, longer = batch - self.batch, seconds - self.seconds
        mean, mean_s = self.batch + weight * wider, self.seconds + weight * longer
        variance = (1 - weight) * (self.variance + weight * wider * wider)
        covariance = (1 - weight) * (self.covariance + weight * wider * longer)
        overhead = self.overhead
        if variance > (APART * mean) ** 2:
            overhead = mean_s - covariance / variance * mean
        return Estimate(mean, mean_s, variance, covariance, min(max(overhead, 0.0), MOST * mean_s))
