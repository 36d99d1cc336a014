"""How far the relation of epochs to batch is from published trainings, and how much single runs differ.

`paceline.validation.epochs` computes both and writes the two files. Predictions of a time to a target state them.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

RELATION = Path(__file__).parent / "data" / "relation_errors.csv"
SPREADS = Path(__file__).parent / "data" / "run_spreads.csv"
SHARE = 0.8
"""share of runs in the interval of a single run; that of other intervals of predictions"""
OTHER = "other"
"""stands for models without published runs"""

MLPERF = {"resnet50": "resnet", "resnet50-v1.5": "resnet"}
"""benchmarks of MLPerf Training by the model of the catalogue that they train"""

Origin = Literal["fitted", "measured"]
"""of a noise scale: fitted to the epochs of other batches, or measured from gradients"""


@dataclass(frozen=True, slots=True)
class RelationError:
    """Errors of the epochs or samples to a target that the relation predicts, |predicted − measured| / measured.

    Args:
        noise_scale: the origin of the noise scale.
        trainings: published trainings.
        batches: batches that were predicted.
        median, p90: median and 90th percentile of the errors.
        naive_median, naive_p90: those of the prediction that epochs do not depend on the batch.
    """

    noise_scale: Origin
    trainings: int
    batches: int
    median: float
    p90: float
    naive_median: float
    naive_p90: float


@dataclass(frozen=True, slots=True)
class RunSpread:
    """The interval of a single run's time to the target, as factors on the mean over runs.

    Args:
        benchmark: the benchmark of MLPerf Training, or `OTHER`.
        low, high: the ends of the interval, which has `SHARE` of the runs.
        runs: published runs.
        systems: systems that made them, each with one batch.
    """

    benchmark: str
    low: float
    high: float
    runs: int
    systems: int


@cache
def relation_errors() -> tuple[RelationError, ...]:
    """Returns the errors of the relation, for fitted noise scales and for measured ones.

    >>> [error.noise_scale for error in relation_errors()]
    ['fitted', 'measured']
    """
    return tuple(
        RelationError(
            cast(Origin, row["noise_scale"]), int(row["trainings"]), int(row["batches"]),
            *(float(row[name]) for name in ("median", "p90", "naive_median", "naive_p90")),
        )
        for row in _rows(RELATION)
    )  # fmt: skip


def run_spread(model: str) -> RunSpread:
    """Returns the interval of a single run of a model; of a model without published runs, that of a typical one.

    >>> run_spread("resnet50").benchmark, run_spread("digits-mlp").benchmark
    ('resnet', 'other')
    """
    spreads = _spreads()
    return spreads[MLPERF.get(model, OTHER)]


@cache
def _spreads() -> dict[str, RunSpread]:
    return {
        row["benchmark"]: RunSpread(
            row["benchmark"], float(row["low"]), float(row["high"]), int(row["runs"]), int(row["systems"])
        )
        for row in _rows(SPREADS)
    }


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
