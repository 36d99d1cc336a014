"""The rows of a gradient's time: by kinds of layers for devices of the catalogue, by layers for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.reports.explanation.formulas import KIND_NAMES, gradient_words, kind_formula
from paceline.reports.explanation.recording import Recorded
from paceline.reports.explanation.row import Row
from paceline.topologies.catalogue.device import Curve


def gradient_rows(run: Recorded, mean_s: float) -> Iterator[Row]:
    """Yields the parts of a gradient: by kinds of layers if all devices are of the catalogue, else by layers."""
    curves = [node.device.times for node in run.plan.cluster.nodes for _ in range(node.workers)]
    known = [curve for curve in curves if curve is not None]
    if len(known) == len(curves):
        yield from _by_kind(run, known, mean_s)
    else:
        yield from _by_layer(run, mean_s)


def _by_kind(run: Recorded, curves: Sequence[Curve], mean_s: float) -> Iterator[Row]:
    """Yields kinds of layers, memory traffic and launches; several devices contribute their mean shares."""
    words, provenance = gradient_words(run, mean_s)
    batch = run.plan.job.batch
    parts: dict[str, list[tuple[float, float]]] = {}
    for curve in curves:
        for part in curve.by_kind(batch):
            parts.setdefault(part.kind, []).append((part.seconds, part.amount))
    total = sum(value for values in parts.values() for value, _ in values)
    for kind, values in sorted(parts.items(), key=lambda one: -sum(value for value, _ in one[1])):
        share = sum(value for value, _ in values) / total
        own_s, amount = (sum(column) / len(values) for column in zip(*values, strict=True))
        yield Row(
            group="gradient",
            name=KIND_NAMES[kind],
            seconds=share * mean_s,
            formula=f"{kind_formula(kind, own_s, amount)}: {100 * share:.3g} % of {words}",
            provenance=provenance,
        )


def _by_layer(run: Recorded, mean_s: float) -> Iterator[Row]:
    forward, backward = run.plan.layer_shares()
    words, provenance = gradient_words(run, mean_s)
    layers = run.plan.job.learner.layout.layers
    if all(len(node.device.forward_shares) != len(layers) for node in run.plan.cluster.nodes):
        provenance += "; divided among layers by their parameters"
    for layer, ahead, back in zip(layers, forward, backward, strict=True):
        share = ahead + back
        formula = f"forward {100 * ahead:.3g} % and backward {100 * back:.3g} % of {words}"
        yield Row(
            group="gradient",
            name=layer.name,
            seconds=share * mean_s,
            formula=formula,
            provenance=provenance,
        )
