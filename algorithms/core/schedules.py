"""Learning-rate schedules: closed forms of the number of the step.

A step is an update that this rule has made, counted from 0; other ranks' updates and epochs do not count. The rule of a
server counts the server's updates, that of a worker the worker's own. With ``counts: global-steps`` an update counts as
the part of a global batch that it stands for, see `SgdMethod.global_steps`. So a step may be a fraction. A schedule has
no state, so a resumed run continues with the right learning rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from paceline.algorithms.core.option_groups import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, POSITIVE, SHARE, Options, Range

Counts = Literal["updates", "global-steps"]
"""what a step is: an update of the rule, or as many samples of all workers together as they use in one step each"""
WARMUP: Mapping[str, Range] = {"warmup_steps": COUNT_OR_NONE, "warmup_start": NOT_NEGATIVE}


@dataclass(frozen=True, kw_only=True)
class Warmup(Options, ABC):
    """A schedule that may begin with a linear ramp from `warmup_start` to the full rate in `warmup_steps` steps.

    After the ramp, the schedule counts from the first step of the ramp, not from its end.
    """

    ranges: ClassVar[Mapping[str, Range]] = WARMUP

    warmup_steps: int = 0
    """steps of the ramp; provenance: Goyal et al. 2017 (arXiv 1706.02677) for a linear one, which in NVIDIA/caffe 0.17
    is quadratic; NVIDIA/caffe for counting the law from the ramp's first step"""
    warmup_start: float = 0.0
    """the rate of the ramp's first step; provenance: NVIDIA/caffe's `rampup_lr`, and its default"""

    @abstractmethod
    def factor(self, step: float) -> float:
        """Returns the factor of the learning rate in this step, after the ramp."""

    def learning_rate(self, base: float, step: float) -> float:
        """Returns the learning rate of a step.

        Args:
            base: γ, the full learning rate.
            step: the number of the step, from 0; a fraction between two global steps.

        >>> ramp = Constant(warmup_steps=4, warmup_start=0.2)
        >>> [round(ramp.learning_rate(1.0, step), 3) for step in range(6)]
        [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]
        """
        if step < self.warmup_steps:
            return self.warmup_start + (base - self.warmup_start) * step / self.warmup_steps
        return base * self.factor(step)


@dataclass(frozen=True, kw_only=True)
class Constant(Warmup):
    """γ, after the ramp."""

    kind: Literal["constant"] = "constant"
    counts: Counts = "updates"
    """what a step is; provenance: updates are those of torch's schedulers, which are stepped with the optimizer"""

    def factor(self, step: float) -> float:
        """Returns 1."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Polynomial(Warmup):
    """γ (1 − t / T)^p, and 0 from step T on.

    >>> Polynomial(total_steps=10).learning_rate(1.0, 5)
    0.25
    """

    ranges: ClassVar[Mapping[str, Range]] = {**WARMUP, "total_steps": COUNT, "power": POSITIVE}

    kind: Literal["polynomial"] = "polynomial"
    total_steps: int = 0
    """T, in steps; required, since it depends on the length of the run"""
    power: float = 2.0
    """p; provenance: You, Gitman, Ginsburg 2017 (LARS), all their settings"""
    counts: Counts = "updates"
    """what a step is; provenance: updates are those of torch's schedulers, which are stepped with the optimizer"""

    def factor(self, step: float) -> float:
        """Returns (1 − t / T)^p, and 0 from step T on."""
        return float(max(0.0, 1 - step / self.total_steps) ** self.power)


@dataclass(frozen=True, kw_only=True)
class Steps(Warmup):
    """γ f^k, where k is the number of milestones up to and including the current step.

    >>> [Steps(milestones=(2, 3), gamma=0.5).learning_rate(1.0, step) for step in range(5)]
    [1.0, 1.0, 0.5, 0.25, 0.25]
    """

    ranges: ClassVar[Mapping[str, Range]] = {
        **WARMUP,
        "milestones": (
            lambda at: len(at) > 0 and at[0] >= 1 and list(at) == sorted(set(at)),
            "whole numbers of 1 or more, each above the one before",
        ),
        "gamma": SHARE,
    }

    kind: Literal["steps"] = "steps"
    milestones: tuple[int, ...] = ()
    """the steps from which the learning rate is lower; required"""
    gamma: float = 0.1
    """f; provenance: He et al. 2015 (ResNet) and most that came after"""
    counts: Counts = "updates"
    """what a step is; provenance: updates are those of torch's schedulers, which are stepped with the optimizer"""

    def factor(self, step: float) -> float:
        """Returns f^k."""
        return float(self.gamma ** bisect_right(self.milestones, step))


@dataclass(frozen=True, kw_only=True)
class Exponential(Warmup):
    """γ f^t."""

    ranges: ClassVar[Mapping[str, Range]] = {**WARMUP, "gamma": SHARE}

    kind: Literal["exponential"] = "exponential"
    gamma: float = 0.999964
    """f, applied in every step; provenance: the AlexNet run scripts of matex-org/caffe-intel (PNNL)"""
    counts: Counts = "updates"
    """what a step is; provenance: updates are those of torch's schedulers, which are stepped with the optimizer"""

    def factor(self, step: float) -> float:
        """Returns f^t."""
        return float(self.gamma**step)


LearningRateSchedule = Constant | Polynomial | Steps | Exponential
