"""The errors that predictions state: of published step times, by chip and network, and of epochs by batch."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from paceline.records.epoch_errors import RelationError, RunSpread
from paceline.records.step_errors import ANY, ONE_NODE, SHARE, StepErrors
from paceline.validation.outcome import Outcome


def step_errors(outcomes: Sequence[Outcome]) -> list[StepErrors]:
    """Returns the errors of steps that were predicted by a scenario, for each chip and network, and for any."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.scenario is not None and outcome.unit in ("samples/s", "s"):
            names = (outcome.chip or ANY, ANY), (outcome.network or ONE_NODE, ANY)
            for place in dict.fromkeys(product(*names)):
                groups.setdefault(place, []).append(outcome)
    return [_errors_of(*place, groups[place]) for place in sorted(groups)]


def _errors_of(chip: str, network: str, outcomes: Sequence[Outcome]) -> StepErrors:
    factors = [
        each.measured / each.predicted if each.unit == "s" else each.predicted / each.measured for each in outcomes
    ]
    low, high = np.quantile(factors, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    median = float(np.median([each.error for each in outcomes]))
    return StepErrors(chip=chip, network=network, rows=len(outcomes), low=float(low), high=float(high), median=median)


def written(rows: Sequence[StepErrors] | Sequence[RelationError] | Sequence[RunSpread]) -> str:
    """Returns errors as the text of a CSV file, with four significant digits."""
    lines: list[dict[str, Any]] = [dict(row) if isinstance(row, Mapping) else dataclasses.asdict(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else list(StepErrors.__annotations__), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in line.items()})
    return text.getvalue()
