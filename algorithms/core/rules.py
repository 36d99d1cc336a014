"""The optimizer chain: gradient transforms as pure functions `init` and `update`, as in Optax, composed by `Chain`.

Rules of this file:

* A transform receives the change that is to be subtracted from the weights (first the gradient itself) and returns
  another one. It has no state of its own: its memory is an argument and a result.
* A rule works on a flat vector with known layers. A transform states whether it acts on each layer separately (LARS) or
  on the whole vector (clipping).
* The memory of a transform consists of new vectors. It never contains a vector that the transform was given, because
  the buffer of that vector may be reused.
* A rule does not know the origin or the age of a gradient: programs scale stale gradients before they apply them.
* If the learning rate is the last transform, it is applied in the same pass as the subtraction. The result is the same
  as with torch.optim.SGD, bit for bit.
* A transform declares its memory traffic next to its formula; the cost of a step is the sum.
* The order of a chain is that of LARS with momentum: clip, decay and layer-wise ratio, learning rate, velocity.

Adam, with or without decoupled weight decay, as a transform of a chain.

LARS: the step of each layer is proportional to the norm of its weights, regardless of the norm of its gradient.

The published algorithm and the authors' code differ, and both changed over time. Each difference is an option with its
source. The ratio uses the norm of the gradient before decay is added. Therefore this transform adds the decay. The
gradient must be the one that all replicas share. With norms of their own gradients, replicas would have different
ratios and would drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

from paceline.algorithms.core import arrays
from paceline.algorithms.core.fast_values import fast_constructor
from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.option_groups import NOT_NEGATIVE, POSITIVE, Options, Range
from paceline.algorithms.core.schedules import LearningRateSchedule
from paceline.algorithms.core.traffic import COMBINE, COMBINE_IN_PLACE, COMBINE_INTO, NORM, NOTHING, SCALE, Traffic
from paceline.algorithms.core.values import Layer, join, norm, root


@fast_constructor
@dataclass(frozen=True, slots=True)
class StepContext:
    """The weights at which a step is taken, the number of the step, from 0, the layers, and the schedule's step."""

    vector: Any
    number: int
    layers: Sequence[Layer] = ()
    scheduled: float | None = None
    """None: the number of the step"""

    @property
    def step(self) -> float:
        """The step that the schedule of the learning rate counts."""
        return self.number if self.scheduled is None else self.scheduled


class Transform(Protocol):
    """One transform of a chain."""

    def init(self, vector: Any) -> Any:
        """Returns the memory before the first step from `vector`; None if the transform has none."""
        ...

    def update(self, change: Any, memory: Any, at: StepContext) -> tuple[Any, Any]:
        """Transforms a change.

        Args:
            change: the vector to subtract from the weights; first the gradient. It must not be modified.
            memory: the result of `init` or of the last update.
            at: the weights and the number of the step.

        Returns:
            The vector to subtract instead, and the new memory.
        """
        ...

    def traffic(self, layers: int) -> Traffic:
        """Returns the memory traffic of `update` for a vector with so many layers."""
        ...


@fast_constructor
@dataclass(frozen=True, slots=True)
class OptimizerState:
    """The state of a chain: the number of steps taken, and the memory of each transform."""

    number: int
    links: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Applies transforms one after the other to the gradient, then subtracts the result from the weights.

    Args:
        links: the transforms, first to last; the last ones scale by the learning rate and hold the velocity.
        layers: the positions of the layers in the vectors.
        steps_per_update: the steps of the schedule in one update; None: 1.

    >>> import numpy as np
    >>> x, rule = np.array([1.0]), Chain((ScaleByLearningRate(0.5), Momentum(0.5)))
    >>> memory = rule.init(x)
    >>> for _ in range(2):
    ...     x, memory = rule.update(x, np.array([1.0]), memory)
    >>> float(x[0])  # −0.5, then −0.25 − 0.5
    -0.25
    """

    links: tuple[Transform, ...]
    layers: Sequence[Layer] = ()
    steps_per_update: Fraction | None = None
    _charges: dict[tuple[int, str, Traffic, bool], Charge] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """of the arguments of `charge` so far: a program charges the same at every step"""

    def init(self, vector: Any) -> OptimizerState:
        """Returns the state before the first step from `vector`."""
        return OptimizerState(0, tuple(link.init(vector) for link in self.links))

    def update(self, vector: Any, gradient: Any, memory: OptimizerState, out: Any = None) -> tuple[Any, OptimizerState]:
        """Takes a step.

        Args:
            vector: the weights, a flat vector.
            gradient: the gradient, a vector of the same shape and type.
            memory: the result of `init` or of the last step.
            out: a tensor that is not used afterwards, such as the gradient; its buffer may be used for the new weights.

        Returns:
            The new vector and the new memory.
        """
        last = self.links[-1] if self.links else None
        if not isinstance(last, ScaleByLearningRate):
            change, memory = self.step(vector, gradient, memory)
            return arrays.less(vector, None, change, out), memory
        change, kept = self._through(self.links[:-1], vector, gradient, memory)
        return arrays.less(vector, last.at(self._step(memory.number)), change, out), OptimizerState(
            memory.number + 1, (*kept, None)
        )

    def step(self, vector: Any, gradient: Any, memory: OptimizerState) -> tuple[Any, OptimizerState]:
        """Computes a step without taking it.

        Args:
            vector: the weights, a flat vector.
            gradient: the gradient, a vector of the same shape and type.
            memory: the result of `init` or of the last step.

        Returns:
            The vector to subtract from the weights, and the new memory.
        """
        change, kept = self._through(self.links, vector, gradient, memory)
        return change, OptimizerState(memory.number + 1, kept)

    def charge(
        self,
        nbytes: int,
        where: Literal["device", "host"] = "device",
        *,
        also: Traffic = NOTHING,
        donated: bool = False,
    ) -> Charge:
        """Returns the charge of `update`: its memory traffic follows from the transforms.

        Args:
            nbytes: the size of the gradient.
            where: the place of the weights.
            also: further traffic on vectors of this size, such as an elastic pull.
            donated: whether `update` gets the gradient as its `out`.

        >>> plain, momentum = ScaleByLearningRate(0.1), Momentum(0.9)
        >>> [Chain(links).charge(400).traffic.passes for links in ((plain,), (plain, momentum))]
        [3, 10]
        """
        key = nbytes, where, also, donated
        if (charge := self._charges.get(key)) is None:
            charge = self._charges[key] = self._charge(nbytes, where, also, donated)
        return charge

    def _charge(self, nbytes: int, where: Literal["device", "host"], also: Traffic, donated: bool) -> Charge:
        fused = bool(self.links) and isinstance(self.links[-1], ScaleByLearningRate)
        before = self.links[:-1] if fused else self.links
        into_gradient = COMBINE_INTO if before else COMBINE_IN_PLACE
        traffic = self._traffic(before) + (into_gradient if donated else COMBINE) + also
        return Charge("update", nbytes, where=where, traffic=traffic)

    def charge_step(
        self, nbytes: int, where: Literal["device", "host"] = "device", *, also: Traffic = NOTHING
    ) -> Charge:
        """Returns the charge of `step`; arguments as in `charge`."""
        return Charge("update", nbytes, where=where, traffic=self._traffic(self.links) + also)

    def _traffic(self, links: Sequence[Transform]) -> Traffic:
        return sum((link.traffic(max(1, len(self.layers))) for link in links), NOTHING)

    @property
    def look_ahead_traffic(self) -> Traffic:
        """The memory traffic of `look_ahead`."""
        return (SCALE + COMBINE) if any(isinstance(link, Momentum) for link in self.links) else NOTHING

    def look_ahead(self, vector: Any, memory: OptimizerState) -> Any:
        """Returns x + μ v: the vector moved by momentum alone, without decay and layer-wise rates; x without momentum.

        v is the negative of the velocity that `Momentum` stores, since a rule subtracts.

        Args:
            vector: x, the weights.
            memory: the result of `init` or of the last step.

        >>> import numpy as np
        >>> x, rule = np.array([1.0]), Chain((WeightDecay(0.5), ScaleByLearningRate(0.1), Momentum(0.5)))
        >>> float(rule.look_ahead(x, OptimizerState(1, (None, None, np.array([0.2])))).round(3)[0])
        0.9
        """
        for link, own in zip(self.links, memory.links, strict=True):
            if isinstance(link, Momentum):
                return arrays.less(vector, None, link.momentum * own)
        return vector

    def _step(self, number: int) -> float:
        """Returns the step of the schedule in which this update is made."""
        return number if self.steps_per_update is None else float(number * self.steps_per_update)

    def _through(
        self, links: Sequence[Transform], vector: Any, change: Any, memory: OptimizerState
    ) -> tuple[Any, tuple[Any, ...]]:
        """Applies these transforms, the first ones of the chain, to a change; returns it and their new memories."""
        if not links:  # plain SGD
            return change, ()
        step = None if self.steps_per_update is None else self._step(memory.number)
        at, kept = StepContext(vector, memory.number, self.layers, step), []
        for link, own in zip(links, memory.links, strict=False):
            change, own = link.update(change, own, at)
            kept.append(own)
        return change, tuple(kept)


class Stateless:
    """A transform without memory."""

    __slots__ = ()

    def init(self, vector: Any) -> None:
        """Returns None: there is no memory."""

    def traffic(self, layers: int) -> Traffic:
        """Returns the memory traffic of one function of the change; a transform that moves more overrides this."""
        return SCALE


@dataclass(frozen=True, slots=True)
class Clip(Stateless):
    """Scales a change down to a maximum norm: g min(1, c / ‖g‖), with the norm of the whole vector.

    Source: Pascanu, Mikolov, Bengio, ICML'13 (arXiv 1211.5063), section 3.2.

    >>> import numpy as np
    >>> Clip(1.0).update(np.array([3.0, 4.0]), None, StepContext(None, 0))[0]
    array([0.6, 0.8])
    """

    limit: float

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """Returns the change with at most the maximum norm."""
        length = norm(change)
        return (self.limit / length * change if length > self.limit else change), None

    def traffic(self, layers: int) -> Traffic:
        return NORM + SCALE


@dataclass(frozen=True, slots=True)
class Sign(Stateless):
    """Replaces each number by its sign: signSGD, and Signum if the change is a momentum.

    Source: Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML'18 (arXiv 1802.04434).

    >>> import numpy as np
    >>> Sign().update(np.array([3.0, -0.5, 0.0]), None, StepContext(None, 0))[0]
    array([ 1., -1.,  0.])
    """

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """Returns the signs of the change."""
        return arrays.sign(change), None


@dataclass(frozen=True, slots=True)
class WeightDecay(Stateless):
    """Weight decay as the gradient of β ‖x‖² / 2, which later transforms scale too: g + β x."""

    decay: float

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """Returns g + β x."""
        return change + self.decay * at.vector, None

    def traffic(self, layers: int) -> Traffic:
        return SCALE + COMBINE


@dataclass(frozen=True, slots=True)
class ScaleByLearningRate(Stateless):
    """Multiplies by the learning rate: η g, or with a schedule by that of the step, η_t g."""

    learning_rate: float
    schedule: LearningRateSchedule | None = None

    def at(self, step: float) -> float:
        """Returns η_t."""
        return self.learning_rate if self.schedule is None else self.schedule.learning_rate(self.learning_rate, step)

    def update(self, change: Any, memory: None, at: StepContext) -> tuple[Any, None]:
        """Returns η_t times the change."""
        return self.at(at.step) * change, None


@dataclass(frozen=True, slots=True)
class Momentum:
    """Momentum: v ← μ v + change. Subtracts the new v, or change + μ v with Nesterov's momentum.

    After `ScaleByLearningRate` this is the papers' MSGD, V ← μ V − η g, W ← W + V (equations (3) and (4) of You, Buluç,
    Demmel, SC'17), with the opposite sign of V. The learning rate is inside the velocity; in torch.optim.SGD it is
    outside. With a constant learning rate the weights are the same, and v is η times torch's buffer.
    """

    momentum: float
    nesterov: bool = False

    def init(self, vector: Any) -> Any:
        """Returns a velocity of 0."""
        return 0 * vector

    def update(self, change: Any, memory: Any, at: StepContext) -> tuple[Any, Any]:
        """Returns the change to subtract, and the new velocity."""
        velocity = self.momentum * memory + change
        return (change + self.momentum * velocity if self.nesterov else velocity), velocity

    def traffic(self, layers: int) -> Traffic:
        return (2 if self.nesterov else 1) * (SCALE + COMBINE)


ADAMW_DECAY = 0.01
"""AdamW's weight decay if a scenario gives none; provenance: FOUND, the default of torch.optim.AdamW"""
ADAM_LEARNING_RATE = 0.001
"""η with Adam and AdamW if a scenario gives none; provenance: FOUND, the default of torch.optim.Adam and AdamW"""


@dataclass(frozen=True, slots=True)
class Moments:
    """The running means of the gradients and of their squares."""

    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class AdamW:
    """Divides the mean gradient by the root of the mean square, and adds weight decay that bypasses the moments.

    m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²
    change = (m / (1 − β1^t)) / (√(v / (1 − β2^t)) + ε) + d x, with t counted from 1

    The learning rate is applied by `ScaleByLearningRate` after it. The decay is not part of the moments; this is the
    difference from Adam on a loss with |x|² in it (Loshchilov and Hutter, ICLR'19). That one is this transform with
    d = 0 after `WeightDecay` (Kingma and Ba, ICLR'15, with the L2 penalty of torch.optim.Adam).

    Args:
        beta1: β1, from 0 to below 1.
        beta2: β2, from 0 to below 1.
        epsilon: ε, above 0.
        decay: d, 0 or more.

    >>> import numpy as np
    >>> x, rule = np.array([1.0, 1.0]), AdamW()
    >>> change, _ = rule.update(np.array([100.0, -0.01]), rule.init(x), StepContext(x, 0))
    >>> change.round(3)
    array([ 1., -1.])
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0

    def init(self, vector: Any) -> Moments:
        """Returns moments of 0."""
        return Moments(0 * vector, 0 * vector)

    def update(self, change: Any, memory: Moments, at: StepContext) -> tuple[Any, Moments]:
        """Returns the step at learning rate 1, and the new moments."""
        first = arrays.between(memory.first, change, 1 - self.beta1)
        second = arrays.plus_square(self.beta2 * memory.second, 1 - self.beta2, change)
        whole, square = 1 - self.beta1 ** (at.number + 1), 1 - self.beta2 ** (at.number + 1)
        # both corrections as factors of the divisor, in one pass: √(v / b) a + ε a
        quotient = first / (whole / square**0.5 * root(second) + self.epsilon * whole)
        return (arrays.less(quotient, -self.decay, at.vector) if self.decay else quotient), Moments(first, second)

    def traffic(self, layers: int) -> Traffic:
        """Returns the traffic of the moments, of their corrections, of the quotient and of a decay."""
        moments = COMBINE + SCALE + COMBINE
        quotient = 3 * SCALE + COMBINE
        return moments + quotient + (COMBINE if self.decay else NOTHING)


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
