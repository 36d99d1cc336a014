"""Runs of shipped scenarios with changes, for the predictions of claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.records import Run
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate


def simulated(
    scenario: str, changes: Iterable[str] = (), *, algorithms: Sequence[Any] | None = None, seed: int = 1
) -> list[Run]:
    """Simulates the algorithms of a shipped scenario with one seed.

    Args:
        scenario: Its name.
        changes: Changes ``path=value``, as in ``--set``.
        algorithms: Names or methods; default: those of the scenario.
        seed: Of initial weights, samples and jitter.

    >>> [run.algorithm for run in simulated("quickstart", ["stop.epochs=1"], algorithms=["agd"])]
    ['agd']
    """
    changes = [*changes, f"seed={seed}", "seeds=1"]
    return simulate(load(scenario, changes, algorithms=algorithms))


def accuracy_of(run: Run) -> float:
    """Returns the final held-out accuracy of a run in per cent; that of a guess of ten classes if it diverged."""
    final = run.summary["final_accuracy"]
    return 10.0 if final is None else 100.0 * float(final)


def rate_of(run: Run) -> float:
    """Returns the samples per second of all workers."""
    rate = run.summary["samples_per_s"]
    return 0.0 if rate is None else float(rate)
