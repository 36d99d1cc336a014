"""The runs behind the claims, and the figures computed from each run.

Rules of this file:

* A loss that is not finite or above chance, ln 10, counts as ln 10. Otherwise one run that diverged to 10²⁰ would
  decide every mean.
* Accuracies are trailing means over 5 % of the run's time, on a time grid that is the same for all methods, because a
  mean over a number of evaluations would lag more where evaluations are rare.
* Figures at the end of a run are interpolated to that exact time (or sample) between the evaluations around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from accuracy_claims.settings import Contender
from paceline.records.metrics import smoothed
from paceline.records.targets import crossing
from paceline.reports.sweeps.parallel_tasks import TaskFailure, each
from paceline.simulator.runs.run import simulate

CHANCE = math.log(10)
"""the loss of a guess among ten classes"""
POINTS = 400
"""points of the time grid"""
WINDOW = POINTS // 20
ENGINE = "paceline.simulator.runs.run"


@dataclass(frozen=True, slots=True)
class Piece:
    """One run."""

    contender: Contender
    rate: float
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures that are kept of a run."""

    samples: tuple[float, ...]
    losses: tuple[float, ...]
    """held-out loss after these samples, at most `CHANCE`"""
    loss: float
    """final loss"""
    accuracy: float
    """final accuracy in per cent"""
    reached: float | None
    """when the target was reached, in ms of virtual time (in samples, where the end is in samples)"""
    staleness: float
    """mean over updates"""
    staleness_of_ranks: float
    """mean of the ranks' means"""
    samples_per_s: float

    @property
    def diverged(self) -> bool:
        """Whether the final loss is that of a guess."""
        return self.loss >= CHANCE

    def loss_at(self, samples: float) -> float:
        """Returns the loss after this many samples."""
        return float(np.interp(samples, self.samples, self.losses))


def outcome(piece: Piece) -> Outcome:
    """Runs it and returns its figures."""
    setting = piece.contender.setting
    (run,) = simulate(piece.contender.scenario(piece.rate, piece.seed))
    seen, staleness = run.tables.evaluations, run.summary["staleness"]
    axis = seen["time_s" if setting.samples is None else "samples"]
    losses = np.minimum(np.nan_to_num(seen["loss"].to_numpy(), nan=CHANCE, posinf=CHANCE), CHANCE)
    grid = np.linspace(0.0, setting.end, POINTS + 1)
    accuracies = smoothed(np.interp(grid, axis, seen["accuracy"]).tolist(), WINDOW)
    reached = crossing(setting.target, accuracies.tolist())
    return Outcome(
        samples=tuple(seen["samples"].astype(float)),
        losses=tuple(losses.tolist()),
        loss=float(np.interp(setting.end, axis, losses)),
        accuracy=100 * float(accuracies[-1]),
        reached=None if reached is None else reached.at(grid.tolist()) * setting.unit,
        staleness=staleness["mean"] or 0.0,
        staleness_of_ranks=staleness["mean_of_ranks"] or 0.0,
        samples_per_s=run.summary["samples_per_s"] or 0.0,
    )


def outcomes(pieces: Sequence[Piece], *, jobs: int) -> Iterator[tuple[Piece, Outcome]]:
    """Runs all pieces in parallel processes.

    Raises:
        RuntimeError: If one of them fails.
    """
    for position, came in each(outcome, pieces, jobs=jobs, preload=[ENGINE]):
        piece = pieces[position]
        if isinstance(came, TaskFailure):
            raise RuntimeError(f"{piece.contender.label}, rate {piece.rate}, seed {piece.seed}: {came.message}")
        yield piece, came.result
