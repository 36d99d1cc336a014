"""Delay compensation: a stale gradient is corrected for the change of the weights since it was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.option_groups import FRACTION, NOT_NEGATIVE, Range
from paceline.algorithms.core.rules import Chain
from paceline.algorithms.core.values import root
from paceline.algorithms.methods.parameter_server import SERVING, ParameterServer, Push

EPSILON = 1e-7


@dataclass(frozen=True, slots=True)
class Backups:
    """The memory of the server: the weights of each worker, by rank; the mean square; the state of the rule."""

    weights: tuple[Any, ...]
    square: Any
    rule: Any


@dataclass(frozen=True, kw_only=True)
class DcAsgd(ParameterServer):
    """Asynchronous SGD with delay compensation: the first Taylor term of the gradient, with g ⊙ g for the Hessian.

    server, on push g from i:  x ← x − η (g + λ g ⊙ g ⊙ (x − b_i));  b_i ← x;  version ← version + 1;  reply x
    adaptive:  s ← m s + (1 − m) g ⊙ g;  λ_t = λ / √(s + 1e-7), in place of λ

    b_i are the weights that worker i received last, at which its gradient was computed. The server stores them, so a
    push is no larger than in async-sgd; with λ = 0 it is async-sgd.
    """

    name = "dc-asgd"
    source = "Zheng, Meng, Wang, Chen, Yu, Ma, Liu, 'ASGD with Delay Compensation', ICML'17 (arXiv 1609.08326)"
    guarantees = SERVING | {Guarantee.DISTINCT_WORKERS}

    ranges: ClassVar[Mapping[str, Range]] = {"compensation": NOT_NEGATIVE, "square_decay": FRACTION}

    compensation: float = 0.04
    """λ; provenance: the paper's constant variant on CIFAR-10, and MXNet's; its adaptive one has 2.0"""
    adaptive: bool = False
    """whether λ is divided by the root mean square of the gradients (DC-ASGD-a); provenance: the paper has both"""
    square_decay: float = 0.95
    """m of the mean square; provenance: the paper on CIFAR-10 (0 on ImageNet)"""

    def begin(self, me: RankContext, vector: Any) -> Replica:
        replica = super().begin(me, vector)
        if me.role == "worker":
            return replica
        return replace(
            replica, optimizer_state=Backups((vector,) * len(me.workers), 0 * vector, replica.optimizer_state)
        )

    def applied(self, rule: Chain, state: Replica, taken: Sequence[Push]) -> tuple[Any, Backups]:
        (push,) = taken
        optimizer_state: Backups = state.optimizer_state
        rank, g, x = push.origin.rank, push.vector, state.weights.vector
        square = self.square_decay * optimizer_state.square + (1 - self.square_decay) * (g * g)
        correction = self.compensation * (g * g) * (x - optimizer_state.weights[rank])
        if self.adaptive:
            correction = correction / root(square, EPSILON)
        vector, kept = rule.update(x, g + correction, optimizer_state.rule)
        weights = (*optimizer_state.weights[:rank], vector, *optimizer_state.weights[rank + 1 :])
        return vector, Backups(weights, square, kept)
