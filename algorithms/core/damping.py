"""Staleness-aware learning rates: factors by which a stale gradient is scaled before it is applied.

Each is a pure function of a gradient and its staleness τ, in versions.
"""

from __future__ import annotations

from typing import Any, Literal

Damping = Literal["none", "inverse", "inverse-plus-one", "exponential"]


def damped(gradient: Any, staleness: int, form: Damping, base: float = 2.0) -> Any:
    """Scales a gradient by α(τ) / α, so that the rule can multiply by α as usual.

    none: 1;  inverse: 1 / max(τ, 1);  inverse-plus-one: 1 / (τ + 1);  exponential: base^(−τ)

    Args:
        gradient: a vector.
        staleness: τ, the updates between reading the weights and applying the gradient, 0 or more.
        form: the form of α(τ). "inverse" is Zhang, Gupta, Lian, Liu, IJCAI'16: α for τ = 0 and for τ = 1; others
            divide by τ + 1, which differs at τ = 1 already. "exponential" is the idea of Chan and Lane, Interspeech
            2014.
        base: of the exponential form, 1 or more.

    Returns:
        The scaled gradient; the same object with "none".

    >>> from typing import get_args
    >>> [[damped(12.0, staleness, form) for staleness in (0, 1, 2, 3)] for form in get_args(Damping)]
    [[12.0, 12.0, 12.0, 12.0], [12.0, 12.0, 6.0, 4.0], [12.0, 6.0, 4.0, 3.0], [12.0, 6.0, 3.0, 1.5]]
    """
    match form:
        case "none":
            return gradient
        case "inverse":
            return gradient / max(staleness, 1)
        case "inverse-plus-one":
            return gradient / (staleness + 1)
        case "exponential":
            return gradient * base**-staleness
