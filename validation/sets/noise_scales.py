"""Pollux: samples to a target by global batch, from the smallest batch and the noise scale of its gradients.

* The relation of the extrapolation has nothing fitted here: its noise scale is measured.
* A target is reached where the product's rule says so: interpolated, on means of the last evaluations.
* Learning rates followed AdaScale, and their schedule the progress that it counts from the same gradients. So this
  tests how far the gradients of one batch tell the samples that others need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.records.metrics import smoothed
from paceline.records.targets import SMOOTHING, crossing
from paceline.simulator.runs.extrapolation import batch_penalty
from paceline.validation.outcome import CONSTANT, LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet

NAME = "noise_scales"
OF_THE_WAY = 0.99
"""the target: this part of the way from the first evaluation at the smallest batch to the best of the batch whose best
is worst; provenance: ours, since not all models have a published target in this metric"""
FALLING = ("deepspeech2", "yolov3")
"""models whose metric falls in training: word error rate and validation loss; provenance: the table"""
EVALUATIONS = 5
"""runs with fewer evaluations say too little about when a target was reached; provenance: ours"""
COLUMNS = (
    "model", "global_batch_size", "iteration", "validation_metric", "grad_sqr", "grad_var", "source",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation of a training.

    Args:
        model: The model.
        batch: Samples of an update.
        samples: Samples so far.
        metric: The validation metric, larger is better.
        noise_scale: That of the gradients at the time, for the smallest batch of the model.
        source: Where it was published.
    """

    model: str
    batch: int
    samples: float
    metric: float
    noise_scale: float
    source: str

    @property
    def name(self) -> str:
        """The name of the row of its training."""
        return f"{self.model} batch {self.batch}"


def groups(lines: Sequence[Line]) -> tuple[list[list[Evaluated]], list[LeftOut]]:
    """Returns the evaluations of every model, and the models with too few."""
    of_model: dict[str, list[Evaluated]] = {}
    for line in lines:
        batch, sign = int(line["global_batch_size"]), -1.0 if line["model"] in FALLING else 1.0
        norm, variance = float(line["grad_sqr"]), float(line["grad_var"])
        of_model.setdefault(line["model"], []).append(
            Evaluated(
                line["model"],
                batch,
                float(batch * int(float(line["iteration"]))),
                sign * float(line["validation_metric"]),
                batch * variance / norm if norm > 0 else math.inf,
                line["source"],
            )
        )
    few = {model for model, rows in of_model.items() if min(map(len, _by_batch(rows).values())) < EVALUATIONS}
    left_out = [LeftOut(NAME, model, f"found runs of fewer than {EVALUATIONS} evaluations") for model in sorted(few)]
    return [rows for model, rows in of_model.items() if model not in few], left_out


def _by_batch(rows: Sequence[Evaluated]) -> dict[int, list[Evaluated]]:
    runs: dict[int, list[Evaluated]] = {}
    for row in sorted(rows, key=lambda row: (row.batch, row.samples)):
        runs.setdefault(row.batch, []).append(row)
    return runs


def measured_noise_scale(rows: Sequence[Evaluated]) -> float:
    """Returns the noise scale of a training: the median over its evaluations.

    AdaptDL estimates squared norm and variance at the initial batch B, so Bn = B × variance / norm; a test compares the
    gains that the runs had at larger batches. The noise scale grows ten- to a thousandfold in training. If all samples
    cost their penalty, the mean of 1 / Bn would count, which is that of the first epochs alone. The median was chosen
    among mean, harmonic mean and median with all rows in sight.

    Args:
        rows: The evaluations at the smallest batch.
    """
    return float(np.median([row.noise_scale for row in rows]))


def predict(rows: Sequence[Evaluated]) -> list[Outcome | LeftOut]:
    """Predicts the samples that all larger batches of a model need to the target."""
    runs = _by_batch(rows)
    metrics = {batch: smoothed([row.metric for row in run], SMOOTHING).tolist() for batch, run in runs.items()}
    first, *larger = runs
    start, best = metrics[first][0], min(max(metric) for metric in metrics.values())
    target = start + OF_THE_WAY * (best - start)

    def crossed(batch: int) -> tuple[float, int]:
        reached = crossing(target, metrics[batch])
        if reached is None:
            raise ValueError(f"batch {batch} does not reach the target, which is worse than its best")
        return reached.at(smoothed([row.samples for row in runs[batch]], SMOOTHING).tolist()), reached.index

    samples, index = crossed(first)
    noise_scale = measured_noise_scale(runs[first][: index + 1])
    return [
        Outcome(
            set=NAME,
            name=runs[batch][0].name,
            system=runs[batch][0].model,
            family=runs[batch][0].model,
            unit="samples",
            measured=crossed(batch)[0],
            predicted=samples * batch_penalty(batch, first, noise_scale),
            simpler={CONSTANT: samples},
            assumed=(f"noise scale {noise_scale:.3g} samples, measured from gradients of batch {first}",),
            source=runs[batch][0].source,
        )
        for batch in larger
    ]


SET = MeasurementSet(
    name=NAME,
    title="Pollux: samples to a target by global batch, from the noise scale of the smallest batch",
    file="pollux_sia_convergence.csv.gz",
    columns=frozenset(COLUMNS),
    aim=(0.10, None),
    groups=groups,
    predict=predict,
    in_sight=True,
)
