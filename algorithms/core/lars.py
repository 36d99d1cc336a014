"""LARS: each layer's step is in proportion to the layer's weights, whatever the size of its gradient.

Rules of this file:

* The published algorithm and the code that its authors ran differ, and both changed; where they do, the choice is an
  option with its source.
* The norm is that of the gradient as it comes, before decay is added: so decay is added here, in the same link.
* The gradient has to be the one that all replicas share. A replica that took the norm of its own gradient would have
  ratios of its own, and replicas would drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.option_groups import NOT_NEGATIVE, POSITIVE, Options, Range
from paceline.algorithms.core.rules import ScaleByLearningRate, Stateless, StepContext
from paceline.algorithms.core.values import join, norm


@dataclass(frozen=True, kw_only=True)
class Lars(Options):
    """Layer-wise adaptive rate scaling: λ = η ‖w‖ / (‖g‖ + β ‖w‖ + ε), for each layer for itself.

    Source: You, Gitman, Ginsburg 2017 (arXiv 1708.03888), and SGDSolver::GetLocalRate of NVIDIA/caffe.
    """

    ranges: ClassVar[Mapping[str, Range]] = {"trust_coefficient": POSITIVE, "epsilon": NOT_NEGATIVE}

    trust_coefficient: float = 0.001
    """η; provenance: NVIDIA/caffe, the default of `local_gw_ratio` and of `larc_eta`"""
    decay_in_ratio: bool = True
    """whether β ‖w‖ is in the denominator; provenance: the algorithm as published, and the authors' code from 1 August
    2017; not in NVIDIA/caffe 0.17"""
    policy: Literal["scale", "clip"] = "scale"
    """scale: the layer's rate is γ λ; clip: min(γ, λ), known as LARC; provenance: `larc_policy` of NVIDIA/caffe 0.17"""
    damped: bool = False
    """whether λ is multiplied by 1 − μ; provenance: one state of NVIDIA/caffe 0.17; not in the published algorithm"""
    zero_norm: Literal["full", "trust", "skip"] = "full"
    """λ of a layer whose weights or gradient are all 0: 1, η or 0; provenance: 1 is what NVIDIA/caffe does, by which a
    bias that starts at 0 first takes a full, unscaled step; the others are ours"""
    epsilon: float = 0.0
    """ε; provenance: not in the published algorithm; lightning-bolts and torch-optimizer have 1e-8"""

    def ratio(self, weights: float, gradient: float, *, decay: float = 0.0, momentum: float = 0.0) -> float:
        """λ of a layer with these norms of weights and gradient.

        >>> Lars(trust_coefficient=0.01).ratio(2.0, 4.0)
        0.005
        >>> [Lars(zero_norm=choice).ratio(0.0, 4.0) for choice in ("full", "trust", "skip")]
        [1.0, 0.001, 0.0]
        """
        if weights == 0 or gradient == 0:
            return {"full": 1.0, "trust": self.trust_coefficient, "skip": 0.0}[self.zero_norm]
        denominator = gradient + (decay * weights if self.decay_in_ratio else 0.0) + self.epsilon
        return self.trust_coefficient * weights / denominator * ((1 - momentum) if self.damped else 1)

    def share(self, ratio: float, learning_rate: float) -> float:
        """What the rate is still to be multiplied by, so that the layer's rate is the policy's.

        >>> Lars(policy="clip").share(0.2, learning_rate=0.1), Lars(policy="clip").share(0.05, learning_rate=0.1)
        (1.0, 0.5)
        """
        if self.policy == "scale":
            return ratio
        return ratio / learning_rate if ratio < learning_rate else 1.0


@dataclass(frozen=True, slots=True)
class LayerRates(Stateless):
    """λ (g + β w), layer by layer; without layers the whole vector is one.

    Args:
        lars: the options.
        scale: the rate that follows in the chain; the policy ``max_grad_norm`` compares with it.
        decay: β.
        momentum: μ of the velocity that follows; only ``damped`` needs it.
    """

    lars: Lars
    scale: ScaleByLearningRate
    decay: float = 0.0
    momentum: float = 0.0

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """λ (g + β w)."""
        learning_rate = self.scale.at(at.number)
        decayed = change + self.decay * at.vector if self.decay else change
        scaled = []
        for part in [layer.part for layer in at.layers] or [slice(None)]:
            ratio = self.lars.ratio(norm(at.vector[part]), norm(change[part]), decay=self.decay, momentum=self.momentum)
            scaled.append(self.lars.share(ratio, learning_rate) * decayed[part])
        return join(scaled), None
