"""Published relations between batch size, staleness and the samples that training needs.

Theory. McCandlish et al. (arXiv 1812.06162) minimise a quadratic's expected loss after one step η: with gradient G,
curvature H and per-sample noise Σ, the step gains η G'G − η²/2 (G'HG + tr(HΣ)/B). The best rate η_max/(1 + Bn/B) gains
gain_max/(1 + Bn/B), with Bn = tr(HΣ)/(G'HG). So S = Smin (1 + Bn/B) steps and E = B S = Emin (1 + B/Bn) samples reach
a given loss: far below Bn a larger batch costs nothing, far above it is wasted.

A stale gradient lowers the rate that the curvature allows and does not change the noise. If the noise-free rate is
smaller by a factor s, so are gain_max and Bn: η_max → s η_max, G'HG → G'HG/s. Then E = Emin (1 + B/(s Bn)): staleness
enlarges the effective batch by the slowdown 1/s. This combination is derived here, not taken from a paper.
"""

from __future__ import annotations

import math


def samples_needed(batch: float, noise_scale: float, slowdown: float = 1.0) -> float:
    """Returns the samples to a target, as a multiple of those of the smallest batches.

    E / Emin = 1 + slowdown · B / Bn

    Args:
        batch: B, samples of one update of the weights.
        noise_scale: Bn, in samples.
        slowdown: 1/s, the factor by which staleness lowers the noise-free rate.

    >>> samples_needed(1000, noise_scale=1000), samples_needed(1, noise_scale=1000)
    (2.0, 1.001)
    """
    return 1 + slowdown * batch / noise_scale


def penalty(batch: float, reference: float, noise_scale: float, slowdown: float = 1.0) -> float:
    """Returns the samples to a target relative to those of a reference batch without staleness.

    (1 + slowdown · B/Bn) / (1 + Bref/Bn)

    >>> penalty(256, 256, noise_scale=8192), round(penalty(4096, 256, noise_scale=8192), 4)
    (1.0, 1.4545)
    """
    return samples_needed(batch, noise_scale, slowdown) / samples_needed(reference, noise_scale)


def stability_slowdown(staleness: float) -> float:
    """Returns the factor by which a constant delay lowers the largest stable rate of gradient descent on a quadratic.

    1 / sin(π / (2 (2τ + 1))), as η λ < 2 sin(π / (2 (2τ + 1))) is stable

    Args:
        staleness: τ, updates between reading the weights and applying the gradient; may be a mean.

    >>> [round(2 / stability_slowdown(delay), 6) for delay in (0, 1, 2)]
    [2.0, 1.0, 0.618034]
    """
    return 1 / math.sin(math.pi / (2 * (2 * staleness + 1)))


def implicit_momentum(staleness: float) -> float:
    """Returns the mean momentum effect of asynchrony, with M = τ + 1 workers whose step times are exponential.

    1 − 1/M. Source: Mitliagkas, Zhang, Hadjis, Ré, Allerton 2016 (arXiv 1605.09774).

    >>> implicit_momentum(3), implicit_momentum(15)
    (0.75, 0.9375)
    """
    return 1 - 1 / (staleness + 1)


def momentum_slowdown(staleness: float, momentum: float) -> float:
    """Returns the slowdown by implicit momentum of a quadratic that was tuned with another momentum.

    (1 − √μ) / (1 − √μ'), with the implicit μ' = 1 − 1/(τ + 1), if μ' > μ; else 1, as one's own momentum is lowered
    correspondingly. Heavy ball reduces errors by √μ per update, for all curvatures that it does not overdamp.

    >>> momentum_slowdown(3, momentum=0.9), round(momentum_slowdown(127, momentum=0.9), 2)
    (1.0, 13.11)
    """
    implied = implicit_momentum(staleness)
    return max(1.0, (1 - math.sqrt(momentum)) / (1 - math.sqrt(implied)))
