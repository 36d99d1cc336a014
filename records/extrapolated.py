"""What is said of a model that nobody has trained: time per sample of the model, samples needed by something else.

Rules of this file:

* Nothing here is a trained figure, and none of it goes where trained figures stand: the block is labelled, and carries
  every assumption that it rests on, each a sentence.
* A target that the evidence never reached leaves None, never a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

Way = Literal["stand-in", "relation"]


class ReferenceFacts(TypedDict):
    """A training of the model whose outcome is known."""

    reaches: str
    epochs: float
    samples: float
    batch: int
    provenance: str


class Extrapolated(TypedDict):
    """A time to a target that was put together, not trained; samples are the model's."""

    label: Literal["extrapolated"]
    method: Way
    """where the statistical penalty comes from: a stand-in that was trained, or a published relation"""
    time_to_target_s: float | None
    """samples_to_target / samples_per_s; null where the stand-in did not reach its own target"""
    samples_to_target: float | None
    """the reference's samples × statistical_penalty"""
    statistical_penalty: float | None
    """samples that this method with so many workers needs, as a multiple of the reference's"""
    samples_per_s: float | None
    """of the simulated run of the model"""
    reference: ReferenceFacts
    evidence: dict[str, Any]
    """what the penalty was worked out from"""
    assumptions: list[str]


def extrapolated(
    method: Way,
    *,
    penalty: float | None,
    samples_per_s: float | None,
    reference: ReferenceFacts,
    evidence: dict[str, Any],
    assumptions: Sequence[str],
) -> Extrapolated:
    """Hardware efficiency and statistical efficiency together.

    time = reference samples × penalty / (samples per second)

    >>> facts = ReferenceFacts(reaches="75 %", epochs=2.0, samples=2000.0, batch=8, provenance="made up")
    >>> two = dict(samples_per_s=100.0, reference=facts, evidence={}, assumptions=[])
    >>> extrapolated("relation", penalty=1.5, **two)["time_to_target_s"]
    30.0
    >>> extrapolated("relation", penalty=None, **two)["time_to_target_s"] is None
    True
    """
    samples = None if penalty is None else reference["samples"] * penalty
    return Extrapolated(
        label="extrapolated",
        method=method,
        time_to_target_s=None if samples is None or not samples_per_s else samples / samples_per_s,
        samples_to_target=samples,
        statistical_penalty=penalty,
        samples_per_s=samples_per_s,
        reference=reference,
        evidence=evidence,
        assumptions=list(assumptions),
    )
