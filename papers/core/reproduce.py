"""Computes claims, several at a time, and returns their verdicts.

Rules of this file:

* Claims that share runs are one task of one process. Claims about real execution run afterwards, alone, so that
  nothing else uses the machine.
* A claim whose computation fails is reported with its error, and the others are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.algorithms.core.errors import PacelineError
from paceline.papers.core.claim import Claim, Effort, Input, Predicted, Verdict, verdict_of
from paceline.papers.core.input_files import input_named
from paceline.papers.core.registry import claims_named
from paceline.reports.sweeps.parallel_tasks import TaskFailure, each

Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""
ENGINE = "paceline.simulator.runs.run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A claim with our figure and the verdict."""

    claim: Claim
    inputs: tuple[Input, ...]
    predicted: Predicted
    verdict: Verdict
    quick: bool
    wall_s: float
    """seconds that the computation took"""

    def answer(self) -> dict[str, Any]:
        """Returns the result for a JSON answer."""
        claim, ours = self.claim, self.predicted
        return {
            "name": claim.name,
            "paper": claim.paper,
            "claim": claim.sentence,
            "published": claim.published,
            "predicted": ours.value,
            "low": ours.low,
            "high": ours.high,
            "unit": claim.unit,
            "verdict": self.verdict,
            "inputs": [one.answer() for one in self.inputs],
            "section": claim.section,
            "hardware": claim.hardware,
            "model": claim.model,
            "batch": claim.batch,
            "scenario": claim.scenario,
            "command": claim.command,
            "holds_if": claim.holds_if,
            "measured": claim.measured,
            "reason": "" if self.verdict == "holds" else ours.reason,
            "details": list(ours.details),
            "curve": None if ours.curve is None else ours.curve.answer(),
            "quick": self.quick,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The results of claims in the order of the page, and the errors of those that failed."""

    results: tuple[Result, ...]
    failed: dict[str, str]
    """error messages by the name of the claim"""

    def answer(self) -> dict[str, Any]:
        """Returns the JSON answer of ``paceline reproduce``."""
        document: dict[str, Any] = {"results": [one.answer() for one in self.results]}
        if self.failed:
            document["failed"] = [{"name": name, "error": error} for name, error in self.failed.items()]
        return document


@dataclass(frozen=True, slots=True)
class _Task:
    """Names of claims that one process computes, and the effort."""

    names: tuple[str, ...]
    effort: Effort


Came = list[tuple[str, Predicted | str, float]]
"""the name of a claim, its figure or error message, and the seconds that it took"""


def reproduce(
    claims: Sequence[Claim], effort: Effort, *, jobs: int = 1, progress: Report | None = None
) -> Reproduction:
    """Computes claims and their verdicts.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes.

    Args:
        claims: The claims, from `claims_named`.
        effort: How much to compute; its `workers` is used for claims about real execution only.
        jobs: The number of parallel processes.
        progress: Called after each task.
    """
    came: dict[str, tuple[Predicted | str, float]] = {}

    def keep(found: Came) -> None:
        came.update({name: (predicted, wall_s) for name, predicted, wall_s in found})
        if progress is not None:
            progress(f"{len(came)} of {len(claims)} claims", len(came) / max(1, len(claims)))

    tasks = _tasks([claim for claim in claims if not claim.measured], replace(effort, workers=1))
    for position, done in each(_computed, tasks, jobs=jobs, preload=[__name__, ENGINE]):
        names = tasks[position].names
        keep([(name, done.message, 0.0) for name in names] if isinstance(done, TaskFailure) else done.result)
    for claim in claims:
        if claim.measured:
            keep([_figure(claim, effort)])
    results = [_result(claim, *came[claim.name], effort.quick) for claim in claims]
    return Reproduction(
        results=tuple(one for one in results if isinstance(one, Result)),
        failed={claim.name: one for claim, one in zip(claims, results, strict=True) if isinstance(one, str)},
    )


def _tasks(claims: Sequence[Claim], effort: Effort) -> list[_Task]:
    """Groups claims that share runs; large groups first, because they take longest."""
    groups: dict[str, list[str]] = {}
    for claim in claims:
        groups.setdefault(claim.shares or claim.name, []).append(claim.name)
    return [_Task(tuple(names), effort) for names in sorted(groups.values(), key=len, reverse=True)]


def _computed(task: _Task) -> Came:
    """Computes the claims of a task in a worker process."""
    return [_figure(claim, task.effort) for claim in claims_named(task.names)]


def _figure(claim: Claim, effort: Effort) -> tuple[str, Predicted | str, float]:
    began_s = time.monotonic()
    try:
        predicted: Predicted | str = claim.predict(effort)
    except (PacelineError, ArithmeticError, ValueError, OSError) as error:
        predicted = f"{type(error).__name__}: {error}"
    return claim.name, predicted, time.monotonic() - began_s


def _result(claim: Claim, predicted: Predicted | str, wall_s: float, quick: bool) -> Result | str:
    """Returns the claim's result, or its error message."""
    if isinstance(predicted, str):
        return predicted
    inputs = tuple(input_named(claim.paper, name) for name in claim.inputs)
    found = verdict_of(claim.published, predicted, claim.holds_if, inputs_found=all(one.found for one in inputs))
    return Result(claim=claim, inputs=inputs, predicted=predicted, verdict=found, quick=quick, wall_s=wall_s)
