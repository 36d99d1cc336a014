"""LARS: the step of each layer is proportional to the norm of its weights, regardless of the norm of its gradient.

The published algorithm and the authors' code differ, and both changed over time. Each difference is an option with its
source. The ratio uses the norm of the gradient before decay is added. Therefore this transform adds the decay. The
gradient must be the one that all replicas share. With norms of their own gradients, replicas would have different
ratios and would drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paceline.algorithms.core.option_groups import NOT_NEGATIVE, POSITIVE, Options, Range
from paceline.algorithms.core.rules import ScaleByLearningRate, Stateless, StepContext
from paceline.algorithms.core.traffic import COMBINE, NORM, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import join, norm


@dataclass(frozen=True, kw_only=True)
class Lars(Options):
    """Layer-wise adaptive rate scaling: λ = η ‖w‖ / (‖g‖ + β ‖w‖ + ε), separately for each layer.

    Source: You, Gitman, Ginsburg 2017 (arXiv 1708.03888), and SGDSolver::GetLocalRate of NVIDIA/caffe.
    """

    ranges: ClassVar[Mapping[str, Range]] = {"trust_coefficient": POSITIVE, "epsilon": NOT_NEGATIVE}

    trust_coefficient: float = 0.001
    """η; provenance: NVIDIA/caffe, the default of `local_gw_ratio` and of `larc_eta`"""
    decay_in_ratio: bool = True
    """whether β ‖w‖ is in the denominator; provenance: the algorithm as published, and the authors' code from 1 August
    2017; not in NVIDIA/caffe 0.17"""
    policy: Literal["scale", "clip"] = "scale"
    """scale: the layer's learning rate is γ λ; clip: min(γ, λ), known as LARC; provenance: `larc_policy` of
    NVIDIA/caffe 0.17"""
    damped: bool = False
    """whether λ is multiplied by 1 − μ; provenance: one state of NVIDIA/caffe 0.17; not in the published algorithm"""
    zero_norm: Literal["full", "trust", "skip"] = "full"
    """λ of a layer whose weights or gradient are all 0: 1, η or 0; provenance: 1 is what NVIDIA/caffe does, so a bias
    that starts at 0 first takes a full, unscaled step; the others are ours"""
    epsilon: float = 0.0
    """ε; provenance: not in the published algorithm; lightning-bolts and torch-optimizer have 1e-8"""

    def ratio(self, weights: float, gradient: float, *, decay: float = 0.0, momentum: float = 0.0) -> float:
        """Returns the trust ratio λ of a layer.

        Args:
            weights: ‖w‖, the norm of the layer's weights.
            gradient: ‖g‖, the norm of its gradient.
            decay: β.
            momentum: μ; used only by `damped`.

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
        """Returns the factor by which the learning rate is multiplied to get the layer's rate under the policy.

        Args:
            ratio: λ.
            learning_rate: γ, above 0.

        >>> Lars(policy="clip").share(0.2, learning_rate=0.1), Lars(policy="clip").share(0.05, learning_rate=0.1)
        (1.0, 0.5)
        """
        if self.policy == "scale":
            return ratio
        return ratio / learning_rate if ratio < learning_rate else 1.0


@dataclass(frozen=True, slots=True)
class LayerRates(Stateless):
    """Computes λ (g + β w), layer by layer; without layers the whole vector is one layer.

    Args:
        lars: the options.
        scale: the learning rate, which follows in the chain; the policy ``clip`` compares with it.
        decay: β.
        momentum: μ of the velocity that follows; used only by ``damped``.
    """

    lars: Lars
    scale: ScaleByLearningRate
    decay: float = 0.0
    momentum: float = 0.0

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """Returns λ (g + β w)."""
        learning_rate = self.scale.at(at.step)
        decayed = change + self.decay * at.vector if self.decay else change
        scaled = []
        for part in [layer.part for layer in at.layers] or [slice(None)]:
            ratio = self.lars.ratio(norm(at.vector[part]), norm(change[part]), decay=self.decay, momentum=self.momentum)
            scaled.append(self.lars.share(ratio, learning_rate) * decayed[part])
        return join(scaled), None

    def traffic(self, layers: int) -> Traffic:
        """Returns the traffic of the norms and products of every layer, and of joining them."""
        decay = SCALE + COMBINE if self.decay else NOTHING
        whole = 2 * NORM + SCALE
        if layers == 1:
            return decay + whole
        return decay + Traffic(whole.reads, whole.writes, layers * whole.kernels) + SCALE
