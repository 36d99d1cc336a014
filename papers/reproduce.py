"""The registry of claims, their computation, several at a time, and the stored results.

Rules of this file:

* Claims that share runs are one task of one process. Claims about real execution run afterwards, alone, so that
  nothing else uses the machine.
* A claim whose computation fails is reported with its error, and the others are kept.
* A run of some claims replaces their stored results and keeps the others, so the pages always show all papers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.naming import near_miss
from paceline.papers.claim import Claim, Effort, Input, Predicted, Verdict, input_named, verdict_of
from paceline.records.document import to_json
from paceline.reports.sweeps.parallel_tasks import TaskFailure, each

PAPERS = {
    "icmla17": "Cong and Bhardwaj, hierarchical bulk-synchronous SGD (ICMLA 2017)",
    "dbs": "Ji et al., DBS-SGD (Journal of Computer Research and Development, 2019)",
    "sc17": "You, Buluç and Demmel, EASGD on GPU and Knights Landing clusters (SC 2017)",
    "pnnl": "Daily et al., asynchronous layer-wise SGD (OpenReview rkFd2P5gl, 2016)",
    "hsgd": "Wang, Lu, Chen and Li, HSGD (IEICE Transactions E103-D, 2020)",
    "softsync": "Zhang, Gupta, Lian and Liu, staleness-aware asynchronous SGD (IJCAI 2016)",
    "digits": "Ten papers: accuracy and convergence, compared on the digits",
}
"""titles by short name, in the order of the pages; the module of a paper has its short name and holds `CLAIMS`"""
FILE = "papers.json"
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""
ENGINE = "paceline.simulator.runs.run"


def claims_of(paper: str) -> tuple[Claim, ...]:
    """Returns the claims of a paper.

    Args:
        paper: A key of `PAPERS`.
    """
    claims: tuple[Claim, ...] = import_module(f"paceline.papers.{paper}").CLAIMS
    return claims


def claims_named(names: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Returns the claims of some papers and claims, in the order of the pages and without repetition.

    Args:
        names: Short names of papers, names of claims, and beginnings of such names that end before a "-"; all claims if
            empty.

    Raises:
        InputError: If names are unknown; with all of them.

    >>> [claim.paper for claim in claims_named(["softsync-staleness-1"])]
    ['softsync']
    >>> [claim.name for claim in claims_named(["softsync-divergence"])]
    ['softsync-divergence-15', 'softsync-divergence-30']
    """
    every = {claim.name: claim for paper in PAPERS for claim in claims_of(paper)}
    chosen, unknown = set(), []
    for name in dict.fromkeys(names):
        several = [claim for claim in every if claim.startswith(f"{name}-")]
        if name not in every and name not in PAPERS and not several:
            unknown.append(name)
        chosen.update([name] if name in every else several)
    if unknown:
        known, papers = [*PAPERS, *every], f"expected a paper ({', '.join(PAPERS)}) or a claim"
        raise InputError("\n".join(f"unknown name {name!r}{near_miss(name, known)}; {papers}" for name in unknown))
    return tuple(claim for claim in every.values() if not names or claim.name in chosen)


# --- computation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A claim with our figure and the verdict."""

    claim: Claim
    inputs: tuple[Input, ...]
    predicted: Predicted
    verdict: Verdict
    quick: bool

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
            "inputs": [given.model_dump() for given in self.inputs],
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
            "curve": None if ours.curve is None else asdict(ours.curve),
            "quick": self.quick,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The results of claims in the order of the pages, and the errors of those that failed."""

    results: tuple[Result, ...]
    failed: dict[str, str]
    """error messages by the name of the claim"""

    def answer(self) -> dict[str, Any]:
        """Returns the JSON answer of ``paceline reproduce``."""
        document: dict[str, Any] = {"results": [result.answer() for result in self.results]}
        if self.failed:
            document["failed"] = [{"name": name, "error": error} for name, error in self.failed.items()]
        return document


@dataclass(frozen=True, slots=True)
class _Task:
    """Names of claims that one process computes, and the effort."""

    names: tuple[str, ...]
    effort: Effort


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
    figures: dict[str, Predicted | str] = {}

    def keep(done: dict[str, Predicted | str]) -> None:
        figures.update(done)
        if progress is not None:
            progress(f"{len(figures)} of {len(claims)} claims", len(figures) / max(1, len(claims)))

    tasks = _tasks([claim for claim in claims if not claim.measured], replace(effort, workers=1))
    for position, done in each(_computed, tasks, jobs=jobs, preload=[__name__, ENGINE]):
        names = tasks[position].names
        keep(dict.fromkeys(names, done.message) if isinstance(done, TaskFailure) else done.result)
    for claim in claims:
        if claim.measured:
            keep({claim.name: _figure(claim, effort)})
    results, failed = [], {}
    for claim in claims:
        figure = figures[claim.name]
        if isinstance(figure, str):
            failed[claim.name] = figure
        else:
            results.append(_result(claim, figure, effort.quick))
    return Reproduction(results=tuple(results), failed=failed)


def _tasks(claims: Sequence[Claim], effort: Effort) -> list[_Task]:
    """Groups claims that share runs; large groups first, because they take longest."""
    groups: dict[str, list[str]] = {}
    for claim in claims:
        groups.setdefault(claim.shares or claim.name, []).append(claim.name)
    return [_Task(tuple(names), effort) for names in sorted(groups.values(), key=len, reverse=True)]


def _computed(task: _Task) -> dict[str, Predicted | str]:
    """Computes the claims of a task in a worker process."""
    return {claim.name: _figure(claim, task.effort) for claim in claims_named(task.names)}


def _figure(claim: Claim, effort: Effort) -> Predicted | str:
    """Returns our figure of a claim, or an error message."""
    try:
        return claim.predict(effort)
    except (PacelineError, ArithmeticError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def _result(claim: Claim, predicted: Predicted, quick: bool) -> Result:
    inputs = tuple(input_named(claim.paper, name) for name in claim.inputs)
    all_found = all(given.found for given in inputs)
    verdict = verdict_of(claim.published, predicted, claim.holds_if, inputs_found=all_found)
    return Result(claim=claim, inputs=inputs, predicted=predicted, verdict=verdict, quick=quick)


# --- stored results ---------------------------------------------------------------------------------------------------


def merged(folder: Path, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the stored results of a folder with some of them replaced, in the order of the pages.

    Args:
        folder: The folder with `papers.json`, if there is one.
        results: The new results, as `Result.answer` returns them.

    Raises:
        InputError: If the stored file is no document of results.
    """
    path = folder / FILE
    stored: dict[str, dict[str, Any]] = {}
    if path.exists():
        try:
            stored = {result["name"]: result for result in json.loads(path.read_text(encoding="utf-8"))["results"]}
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path}: found no results; expected the JSON document of `paceline reproduce`") from None
    stored.update({result["name"]: result for result in results})
    return [stored[claim.name] for claim in claims_named() if claim.name in stored]


def write(folder: Path, results: Sequence[dict[str, Any]]) -> list[Path]:
    """Writes `papers.json`, the pages and their figures.

    Args:
        folder: The folder; created if it does not exist.
        results: All results, as `merged` returns them.

    Returns:
        The paths of the pages.
    """
    from paceline.papers.page import pages, save_charts

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, to_json({"results": list(results)}) + "\n")
    written = {folder / name: text for name, text in pages(results, save_charts(results, folder)).items()}
    for path, text in written.items():
        write_whole(path, text)
    return list(written)
