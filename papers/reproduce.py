"""The registry of claims, their computation, several at a time, and the stored results.

Rules of this file:

* Claims that share runs are one task of one process. Claims about real execution run afterwards, alone, so that
  nothing else uses the machine.
* A computed claim is stored at once, with a digest of the program, its inputs and the effort. The same command
  continues where it was interrupted, and computes again what any of them has changed.
* A claim whose computation fails is reported with its error, and the others are kept.
* A run of some claims replaces their stored results and keeps the others, so the pages always show all papers.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.naming import near_miss
from paceline.papers.claim import FOLDER, Claim, Effort, Input, inputs_of
from paceline.papers.verdicts import Predicted, predicted
from paceline.records.document import to_json
from paceline.reports.sweeps.parallel_tasks import TaskFailure, each

PAPERS = {
    "icmla17": "Cong and Bhardwaj, hierarchical bulk-synchronous SGD (ICMLA 2017)",
    "dbs": "Ji et al., DBS-SGD (Journal of Computer Research and Development, 2019)",
    "sc17": "You, Buluç and Demmel, EASGD on GPU and Knights Landing clusters (SC 2017)",
    "pnnl": "Daily et al., asynchronous layer-wise SGD (OpenReview rkFd2P5gl, 2016)",
    "hsgd": "Wang, Lu, Chen and Li, HSGD (IEICE Transactions E103-D, 2020)",
    "softsync": "Zhang, Gupta, Lian and Liu, staleness-aware asynchronous SGD (IJCAI 2016)",
    "digits": "Eight papers: accuracy and convergence, compared on the digits",
}
"""titles by short name, in the order of the pages; the module of a paper has its short name and holds `CLAIMS`"""
BY_NAME_ONLY = ("digits",)
"""papers that are computed only if they are named: an hour"""
FILE = "papers.json"
STORE = Path("runs/reproduce")
"""where computed claims are stored until the command has ended, one file each"""
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""
Stored = dict[str, Any]
"""a result as in the JSON answer"""
ENGINE = "paceline.simulator.runs.run"


def claims_of(paper: str) -> tuple[Claim, ...]:
    """Returns the claims of a paper.

    Args:
        paper: A key of `PAPERS`.
    """
    claims: tuple[Claim, ...] = import_module(f"paceline.papers.{paper}").CLAIMS
    return claims


def every_claim() -> dict[str, Claim]:
    """Returns all claims by name, in the order of the pages."""
    return {claim.name: claim for paper in PAPERS for claim in claims_of(paper)}


def claims_named(names: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Returns the claims of some papers and claims, in the order of the pages and without repetition.

    Args:
        names: Short names of papers, names of claims, and beginnings of such names that end before a "-"; if empty, the
            claims of all papers except `BY_NAME_ONLY`.

    Raises:
        InputError: If names are unknown; with all of them.

    >>> [claim.paper for claim in claims_named(["softsync-staleness-1"])]
    ['softsync']
    >>> [claim.name for claim in claims_named(["softsync-divergence"])]
    ['softsync-divergence-15', 'softsync-divergence-30']
    """
    every = every_claim()
    chosen, unknown = set(), []
    for name in dict.fromkeys(names or [paper for paper in PAPERS if paper not in BY_NAME_ONLY]):
        several = [claim for claim in every if claim.startswith(f"{name}-")]
        if name not in every and name not in PAPERS and not several:
            unknown.append(name)
        chosen.update([name] if name in every else several)
    if unknown:
        known, papers = [*PAPERS, *every], f"expected a paper ({', '.join(PAPERS)}) or a claim"
        raise InputError("\n".join(f"unknown name {name!r}{near_miss(name, known)}; {papers}" for name in unknown))
    return tuple(claim for claim in every.values() if claim.name in chosen)


# --- computation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Computation:
    """How claims are computed: with which inputs and effort, and where results are kept until the command ends."""

    effort: Effort
    inputs: Path = FOLDER
    """the folder of the inputs files"""
    store: Path | None = None
    """the folder of results; None: nothing is stored"""

    def inputs_of(self, claim: Claim) -> Mapping[str, Input]:
        """Returns the inputs of a claim's paper; those of its file in `inputs`, if there is one."""
        folder = self.inputs if (self.inputs / f"{claim.paper}.yaml").exists() else FOLDER
        return inputs_of(claim.paper, folder) if claim.inputs else {}

    def result(self, claim: Claim, *, again: bool = False) -> Stored:
        """Returns the result of a claim: the stored one if nothing has changed since, or a computed one.

        Args:
            claim: The claim.
            again: Whether it is computed in any case.
        """
        if not again and (stored := self.stored(claim)) is not None:
            return stored
        inputs = self.inputs_of(claim)
        answer = document(claim, inputs, predicted(claim, inputs, self.effort), quick=self.effort.quick)
        if self.store is not None:
            self.store.mkdir(parents=True, exist_ok=True)
            write_whole(self.store / f"{claim.name}.json", to_json({**answer, "digest": self._digest(claim)}) + "\n")
        return answer

    def stored(self, claim: Claim) -> Stored | None:
        """Returns the stored result of a claim; None if there is none, or something has changed since."""
        path = None if self.store is None else self.store / f"{claim.name}.json"
        if path is None or not path.exists():
            return None
        result: Stored = json.loads(path.read_text(encoding="utf-8"))
        return result if result.pop("digest", "") == self._digest(claim) else None

    def _digest(self, claim: Claim) -> str:
        inputs = self.inputs_of(claim)
        given = [inputs[name].model_dump() for name in claim.inputs if name in inputs]
        key = json.dumps([claim.name, given, asdict(self.effort), _program(claim.paper)])
        return hashlib.sha256(key.encode()).hexdigest()


@cache
def _program(paper: str) -> str:
    """Returns a digest of all files of the program that can change a result of a paper."""
    digest, root = hashlib.sha256(), Path(__file__).parents[1]
    others = tuple(str(root / "papers" / other) for other in (*PAPERS, "inputs", "introductions") if other != paper)
    for folder in ("algorithms", "backend", "papers", "records", "scenarios", "simulator", "topologies", "workloads"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".py", ".yaml", ".csv") and not str(path).startswith(others):
                digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The results of claims in the order of the pages, and the errors of those that failed."""

    results: tuple[Stored, ...]
    failed: dict[str, str]
    """error messages by the name of the claim"""

    def answer(self) -> Stored:
        """Returns the JSON answer of ``paceline reproduce``."""
        found: Stored = {"results": list(self.results)}
        if self.failed:
            found["failed"] = [{"name": name, "error": error} for name, error in self.failed.items()]
        return found


def document(claim: Claim, inputs: Mapping[str, Input], ours: Predicted, *, quick: bool) -> Stored:
    """Returns a result for a JSON answer.

    Args:
        claim: The claim.
        inputs: The inputs of its paper.
        ours: Our figure.
        quick: Whether it was computed with `--quick`.
    """
    return {
        "name": claim.name,
        "paper": claim.paper,
        "claim": claim.sentence,
        "kind": claim.kind,
        "published": claim.published,
        "predicted": ours.value,
        "low": ours.low,
        "high": ours.high,
        "seeds_low": ours.seeds_low,
        "seeds_high": ours.seeds_high,
        "unit": claim.unit,
        "verdict": ours.verdict,
        "share": ours.share,
        "below": ours.below,
        "decides": ours.decides,
        "shares": {name: dict(by_value) for name, by_value in ours.shares.items()},
        "cases": [{"changed": dict(case.changed), "figures": list(case.figures)} for case in ours.cases],
        "inputs": [inputs[name].model_dump() for name in claim.inputs],
        "section": claim.section,
        "hardware": claim.hardware,
        "model": claim.model,
        "batch": claim.batch,
        "scenario": claim.scenario,
        "command": claim.command,
        "holds_if": claim.holds_if,
        "measured": claim.measured,
        "reason": ours.reason,
        "explained": list(ours.explained),
        "curve": None if ours.curve is None else asdict(ours.curve),
        "quick": quick,
    }


@dataclass(frozen=True, slots=True)
class _Task:
    """Names of claims that one process computes, and how."""

    names: tuple[str, ...]
    computation: Computation
    again: bool


def reproduce(
    claims: Sequence[Claim],
    computation: Computation,
    *,
    jobs: int = 1,
    again: bool = False,
    progress: Report | None = None,
) -> Reproduction:
    """Computes claims and their verdicts.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes.

    Args:
        claims: The claims, from `claims_named`.
        computation: How they are computed.
        jobs: The number of parallel processes.
        again: Whether stored claims are computed again.
        progress: Called after each task.
    """
    figures: dict[str, Stored | str] = {}

    def keep(done: Mapping[str, Stored | str]) -> None:
        figures.update(done)
        if progress is not None:
            progress(f"{len(figures)} of {len(claims)} claims", len(figures) / max(1, len(claims)))

    if not again:
        keep({claim.name: stored for claim in claims if (stored := computation.stored(claim)) is not None})
    simulated = [claim for claim in claims if not claim.measured and claim.name not in figures]
    tasks = _tasks(simulated, computation, again)
    for position, done in each(_computed, tasks, jobs=jobs, preload=[__name__, ENGINE]):
        names = tasks[position].names
        keep(dict.fromkeys(names, done.message) if isinstance(done, TaskFailure) else done.result)
    for claim in claims:
        if claim.name not in figures:
            keep({claim.name: _result(claim, computation, again)})
    kept = {claim.name: figures[claim.name] for claim in claims}
    return Reproduction(
        results=tuple(figure for figure in kept.values() if not isinstance(figure, str)),
        failed={name: figure for name, figure in kept.items() if isinstance(figure, str)},
    )


def _tasks(claims: Sequence[Claim], computation: Computation, again: bool) -> list[_Task]:
    """Groups claims that share runs; large groups first, because they take longest."""
    groups: dict[str, list[str]] = {}
    for claim in claims:
        groups.setdefault(claim.shares or claim.name, []).append(claim.name)
    return [_Task(tuple(names), computation, again) for names in sorted(groups.values(), key=len, reverse=True)]


def _computed(task: _Task) -> dict[str, Stored | str]:
    """Computes the claims of a task in a worker process."""
    return {claim.name: _result(claim, task.computation, task.again) for claim in claims_named(task.names)}


def _result(claim: Claim, computation: Computation, again: bool) -> Stored | str:
    """Returns the result of a claim, or an error message.

    Any error is caught, since claims that share runs are one task, and an error in the code of one must not lose the
    results of its siblings.
    """
    try:
        return computation.result(claim, again=again)
    except (PacelineError, ArithmeticError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # an error of the program
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} (at {Path(last.filename).name}, line {last.lineno})"


# --- stored results ---------------------------------------------------------------------------------------------------


def results_of_pages(folder: Path, claims: Sequence[Claim], computation: Computation) -> dict[str, Stored]:
    """Returns the results on the pages of a folder that were computed with the same inputs and effort, by claim.

    The program may have changed since: they are a start for `--infer`, which computes what it shows, and no verdicts.

    Args:
        folder: The folder with `papers.json`, if there is one.
        claims: The claims that are wanted.
        computation: How they would be computed.
    """
    stored = {result["name"]: result for result in merged(folder, ())["results"]}
    found = {}
    for claim in claims:
        rows, result = computation.inputs_of(claim), stored.get(claim.name)
        if result is None or computation.effort != Effort(quick=result["quick"]):
            continue
        if result["inputs"] == [rows[name].model_dump(mode="json") for name in claim.inputs if name in rows]:
            found[claim.name] = result
    return found


def merged(folder: Path, results: Sequence[Stored], inferred: Mapping[str, Stored] | None = None) -> Stored:
    """Returns the stored results of a folder with some of them replaced, in the order of the pages.

    Args:
        folder: The folder with `papers.json`, if there is one.
        results: The new results.
        inferred: New answers of `--infer`, by paper.

    Raises:
        InputError: If the stored file is no document of results.
    """
    path = folder / FILE
    stored: dict[str, Stored] = {}
    inferences: dict[str, Stored] = {}
    if path.exists():
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            stored = {result["name"]: result for result in read["results"]}
            inferences = dict(read.get("inferences", {}))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path}: found no results; expected the JSON document of `paceline reproduce`") from None
    stored.update({result["name"]: result for result in results})
    inferences.update(inferred or {})
    return {"results": [stored[name] for name in every_claim() if name in stored], "inferences": inferences}


def write(folder: Path, stored: Stored) -> list[Path]:
    """Writes `papers.json`, the pages and their figures.

    Args:
        folder: The folder; created if it does not exist.
        stored: All results, as `merged` returns them.

    Returns:
        The paths of the pages.
    """
    from paceline.papers.page import pages, save_charts

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, to_json(stored) + "\n")
    charts = save_charts(stored["results"], folder)
    texts = pages(stored["results"], charts, stored["inferences"])
    written = {folder / name: text for name, text in texts.items()}
    for path, text in written.items():
        write_whole(path, text)
    return list(written)
