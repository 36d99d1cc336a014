"""What predictions of a time to accuracy state: errors of the relation of epochs to batch, and spreads of single runs.

`python -m paceline.validation.epochs` computes both from the published trainings of `sets/epochs.py` and
`sets/noise_scales.py`, and writes them into the data of `paceline.records.epoch_errors`. A test fails if these are out
of date.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.records import epoch_errors
from paceline.records.epoch_errors import OTHER, SHARE, Origin, RelationError, RunSpread
from paceline.validation.outcome import CONSTANT, Errors, Outcome
from paceline.validation.sets import Line, MeasurementSet, epochs, noise_scales
from paceline.validation.support import written

FEWEST_RUNS = 4
"""of a system with one batch, to say how much its runs differ; provenance: ours, MLPerf asks for five or more"""


def outcomes_of(known: MeasurementSet) -> list[Outcome]:
    """Returns the predicted rows of a set."""
    groups, _ = known.groups(known.lines())
    return [row for rows in groups for row in known.predict(rows) if isinstance(row, Outcome)]


def relation_errors() -> list[RelationError]:
    """Returns the errors of the relation, with noise scales fitted to other batches, and measured from gradients."""
    return [
        _summary("fitted", outcomes_of(epochs.SET)),
        _summary("measured", outcomes_of(noise_scales.SET)),
    ]


def _summary(noise_scale: Origin, outcomes: Sequence[Outcome]) -> RelationError:
    errors = Errors.of(outcome.error for outcome in outcomes)
    constant = Errors.of(outcome.error_of(CONSTANT) for outcome in outcomes)
    assert errors is not None and constant is not None, "the published tables have rows"
    trainings = len({outcome.system for outcome in outcomes})
    return RelationError(
        noise_scale, trainings, len(outcomes), errors.median, errors.p90, constant.median, constant.p90
    )


def run_spreads(lines: Sequence[Line]) -> list[RunSpread]:
    """Returns the interval of a single run for every benchmark of MLPerf, and for `OTHER` models the median of these.

    Deviations from the mean of n runs are multiplied by √(n / (n − 1)), because that mean contains the run. Submitters
    choose the runs that they submit, so the spread is a lower bound.

    Args:
        lines: Those of the table of `epochs`.
    """
    runs = epochs.runs_of(lines)
    runs["folder"] = runs.source.str.rsplit("/", n=1).str[0]
    alike = ["folder", "global_batch_size_samples"]
    times = runs.groupby(alike, dropna=False).duration_s
    runs["count"], runs["mean_s"] = times.transform("size"), times.transform("mean")
    runs = runs[runs["count"] >= FEWEST_RUNS]
    runs = runs.assign(factor=1 + (runs.duration_s / runs.mean_s - 1) * np.sqrt(runs["count"] / (runs["count"] - 1)))
    spreads = []
    for name in sorted(runs.benchmark.unique()):
        of_benchmark = runs[runs.benchmark == name]
        low, high = of_benchmark.factor.quantile([(1 - SHARE) / 2, (1 + SHARE) / 2])
        systems = len(of_benchmark[alike].drop_duplicates())
        spreads.append(RunSpread(name, float(low), float(high), len(of_benchmark), systems))
    return [
        *spreads,
        RunSpread(
            OTHER,
            low=float(np.median([spread.low for spread in spreads])),
            high=float(np.median([spread.high for spread in spreads])),
            runs=sum(spread.runs for spread in spreads),
            systems=sum(spread.systems for spread in spreads),
        ),
    ]


def main() -> None:
    """Writes the figures that predictions state."""
    epoch_errors.RELATION.write_text(written(relation_errors()), encoding="utf-8")
    epoch_errors.SPREADS.write_text(written(run_spreads(epochs.SET.lines())), encoding="utf-8")


if __name__ == "__main__":
    main()
