"""The rows of a gradient's time: by kinds of layers for devices of the catalogue, by layers for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.records.figures import significant
from paceline.reports.explanation.formulas import KIND_NAMES, gradient_words, kind_formula
from paceline.reports.explanation.recording import Recorded
from paceline.reports.explanation.row import Row
from paceline.simulator.runs.interference import processors_of, taken_of
from paceline.topologies.catalogue.device import Curve


def gradient_rows(run: Recorded, mean_s: float) -> Iterator[Row]:
    """Yields the parts of a gradient: by kinds of layers if all devices are of the catalogue, else by layers.

    Args:
        run: the run.
        mean_s: the mean time of a gradient in a step, with what communication takes from it.
    """
    lost = lost_share(run)
    if lost > 0:
        yield _interference(run, lost * mean_s)
        mean_s *= 1 - lost
    curves = [(device.times, batch) for (device, batch), count in run.plan.gradients.items() for _ in range(count)]
    known = [(curve, batch) for curve, batch in curves if curve is not None]
    if len(known) == len(curves):
        yield from _by_kind(run, known, mean_s)
    else:
        yield from _by_layer(run, mean_s)


def lost_share(run: Recorded) -> float:
    """Returns the part of the gradients' time that communication took from them; 0 if it takes nothing."""
    if processors_of(run.plan) is None or run.plan.cluster.faults.shows:
        return 0.0
    spent_s = sum(span.end_s - span.start_s for span in run.trace.spans if span.activity == "compute")
    return max(0.0, 1 - run.gradients_s / spent_s) if spent_s else 0.0


def _interference(run: Recorded, seconds: float) -> Row:
    kinds = {node.device.name: taken_of(run.plan, node) for node in run.plan.cluster.nodes}
    shares = ", ".join(f"{significant(100 * one.share)} % of {name}" for name, one in kinds.items() if one.share)
    return Row(
        group="interference",
        name="gradients slowed down by communication",
        seconds=seconds,
        formula=f"speed 1 / (1 + share) while a message or collective is in flight; share {shares}",
        provenance="; ".join(dict.fromkeys(one.provenance for one in kinds.values() if one.share)),
    )


def _by_kind(run: Recorded, curves: Sequence[tuple[Curve, int]], mean_s: float) -> Iterator[Row]:
    """Yields kinds of layers, memory traffic and launches; several devices contribute their mean shares."""
    words, provenance = gradient_words(run, mean_s)
    parts: dict[str, list[tuple[float, float, float]]] = {}
    for curve, batch in curves:
        for part in curve.by_kind(batch):
            parts.setdefault(part.kind, []).append((part.seconds, part.amount, part.hidden_s))
    total = sum(value for values in parts.values() for value, _, _ in values)
    for kind, values in sorted(parts.items(), key=lambda one: -sum(value for value, _, _ in one[1])):
        share = sum(value for value, _, _ in values) / total
        own_s, amount, hidden_s = (sum(column) / len(values) for column in zip(*values, strict=True))
        yield Row(
            group="gradient",
            name=KIND_NAMES[kind],
            seconds=share * mean_s,
            formula=f"{kind_formula(kind, own_s, amount, hidden_s)}: {significant(100 * share)} % of {words}",
            provenance=provenance,
        )


def _by_layer(run: Recorded, mean_s: float) -> Iterator[Row]:
    forward, backward, how = run.plan.layer_split()
    words, provenance = gradient_words(run, mean_s)
    layers = run.plan.job.learner.layout.layers
    if how:
        provenance += f"; divided among layers {how}"
    for layer, ahead, back in zip(layers, forward, backward, strict=True):
        share = ahead + back
        formula = f"forward {significant(100 * ahead)} % and backward {significant(100 * back)} % of {words}"
        yield Row(
            group="gradient",
            name=layer.name,
            seconds=share * mean_s,
            formula=formula,
            provenance=provenance,
        )
