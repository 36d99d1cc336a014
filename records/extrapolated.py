"""The extrapolated figures of a model that was not trained: its time per sample, and an estimate of its samples.

* Extrapolated figures are separate from those of training: they are in a labelled block, with every assumption as a
  sentence.
* If the stand-in did not reach its target, figures are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

Way = Literal["stand-in", "relation"]


class ReferenceFacts(TypedDict):
    """A published training of the model."""

    reaches: str
    epochs: float
    samples: float
    batch: int
    provenance: str


class Extrapolated(TypedDict):
    """An estimated time to a target; samples are those of the model."""

    label: Literal["extrapolated"]
    method: Way
    """the source of the statistical penalty: a stand-in that was trained, or a published relation"""
    time_to_target_s: float | None
    """samples_to_target / samples_per_s; null if the stand-in did not reach its target"""
    samples_to_target: float | None
    """the reference's samples × statistical_penalty"""
    statistical_penalty: float | None
    """samples that this method with this number of workers needs, as a multiple of the reference's"""
    samples_per_s: float | None
    """rate of the simulated run of the model"""
    reference: ReferenceFacts
    evidence: dict[str, Any]
    """the figures from which the penalty was computed"""
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
    """Combines hardware efficiency and statistical efficiency.

    time = reference samples × penalty / (samples per second)

    Args:
        method: the source of the penalty.
        penalty: the statistical penalty; None if the target was not reached.
        samples_per_s: the rate of the simulated run.
        reference: the published training.
        evidence: the figures from which the penalty was computed.
        assumptions: the assumptions, as sentences.

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
