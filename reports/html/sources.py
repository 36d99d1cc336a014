"""Reads what a report is made from, and finds out which kind of result it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paceline.algorithms.core.checksums import read_json
from paceline.algorithms.core.errors import InputError
from paceline.records import Run
from paceline.records.store import RUN_JSON, read_run

if TYPE_CHECKING:
    from paceline.checking.counterexamples import Counterexample
    from paceline.reports.sweeps.sweep_table import SweepTable

Kind = Literal["runs", "comparison", "sweep", "plan", "check"]
FILES: dict[str, Kind] = {RUN_JSON: "runs", "comparison.json": "comparison", "sweep.json": "sweep", "plan.json": "plan"}
"""the file by which each kind of folder is recognised"""
EXPECTED = (
    "expected the folder of a run, comparison, sweep or plan, a folder of runs of one scenario, or counterexamples of "
    "`paceline check`"
)


@dataclass(kw_only=True)
class Source:
    """What a report is made from; only the fields of its kind are set.

    Args:
        kind: the kind of result.
        runs: runs, or those of a comparison.
        answer: the JSON answer of a comparison, sweep or plan.
        table: the table of a sweep.
        request: request.json of a sweep or plan; empty for a sweep without it.
        trials: the rows of trials.csv of a plan.
        counterexamples: of a check.
        answers: the JSON answers of a check, one for each method.
        notes: sentences about what was left out.
    """

    kind: Kind
    runs: list[Run] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    table: SweepTable | None = None
    request: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    counterexamples: list[Counterexample] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_source(paths: Sequence[Path]) -> Source:
    """Reads results.

    Args:
        paths: folders of runs, or one comparison, sweep or plan, or counterexamples.

    Raises:
        InputError: with all mistakes: paths that are none of these, or kinds that do not go together.
    """
    if not paths:
        raise InputError(f"SOURCE: found none, {EXPECTED}")
    found: list[tuple[Kind, Path]] = []
    mistakes: list[str] = []
    for path in paths:
        try:
            found += kinds_of(path)
        except InputError as error:
            mistakes.append(str(error))
    kinds: list[Kind] = list(dict.fromkeys(kind for kind, _ in found))
    if not mistakes and len(kinds) > 1:
        mistakes.append(f"found a mixture of {', '.join(kinds)}; expected results of one kind for a report")
    if not mistakes and kinds[0] in ("comparison", "sweep", "plan") and len(found) > 1:
        mistakes.append(f"found {len(found)} results of the kind {kinds[0]}, expected one for a report")
    if mistakes:
        raise InputError("\n".join(mistakes))
    return READERS[kinds[0]]([path for _, path in found])


def kinds_of(path: Path) -> list[tuple[Kind, Path]]:
    """Returns the results at a path: their kinds, and their folders or files.

    Args:
        path: a folder or a file.

    Raises:
        InputError: there is none.
    """
    if path.is_file():
        if path.name in FILES:
            return [(FILES[path.name], path.parent)]
        if path.suffix == ".json":
            return [("check", path)]
        raise InputError(f"{path}: found a file {path.suffix or 'without ending'}, {EXPECTED}")
    if not path.is_dir():
        raise InputError(f"{path}: not found, {EXPECTED}")
    for name, kind in FILES.items():
        if (path / name).is_file():
            return [(kind, path)]
    if runs := sorted(one.parent for one in path.glob(f"*/{RUN_JSON}")):
        return [("runs", run) for run in runs]
    if files := sorted(one for one in path.glob("*.json") if _is_check(one)):
        return [("check", file) for file in files]
    raise InputError(f"{path}: found a folder without results, {EXPECTED}")


def _is_check(path: Path) -> bool:
    try:
        document = read_json(path, "a result")
    except InputError:
        return False
    return isinstance(document, dict) and (
        document.get("format") == "paceline counterexample" or "guarantees" in document
    )


def _document(path: Path, what: str) -> dict[str, Any]:
    found = read_json(path, what)
    if not isinstance(found, dict):
        raise InputError(f"{path}: found no JSON object, expected {what}")
    return found


def _runs(folders: Sequence[Path]) -> Source:
    """Reads runs; of repeated runs of the same algorithm, seed and kind the latest counts."""
    runs = [read_run(folder) for folder in dict.fromkeys(folders)]
    latest: dict[tuple[str, str, int, str], Run] = {}
    for run in sorted(runs, key=lambda run: _number(run.path)):
        latest[run.name, run.algorithm, run.seed, run.kind] = run
    kept = [run for run in runs if latest[run.name, run.algorithm, run.seed, run.kind] is run]
    left = len(runs) - len(kept)
    notes = [f"{left} earlier runs of the same methods and seeds were left out; the latest count."] if left else []
    return Source(kind="runs", runs=kept, notes=notes)


def _number(path: Path | None) -> int:
    """Returns the number at the end of the name of a folder."""
    digits = "" if path is None else path.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _comparison(folders: Sequence[Path]) -> Source:
    folder = folders[0]
    answer = _document(folder / "comparison.json", "the answer of `paceline compare`")
    places = [_place(Path(path), folder) for path in answer.get("runs", ())]
    return Source(kind="comparison", answer=answer, runs=[read_run(place) for place in places if place is not None])


def _place(path: Path, folder: Path) -> Path | None:
    """Returns where a run is: at its path, or beside the comparison, if both were moved; None if it is nowhere."""
    places = (path, folder.parent / path.name, folder / path.name)
    return next((place for place in places if (place / RUN_JSON).is_file()), None)


def _sweep(folders: Sequence[Path]) -> Source:
    from paceline.reports.sweeps.sweep_table import stored_table

    answer = _document(folders[0] / "sweep.json", "the answer of `paceline sweep`")
    path = folders[0] / "request.json"
    request = _document(path, "the request of `paceline sweep`") if path.is_file() else {}
    return Source(kind="sweep", answer=answer, request=request, table=stored_table(folders[0], answer, request))


def _plan(folders: Sequence[Path]) -> Source:
    from paceline.reports.planning.request import stored_trials

    folder = folders[0]
    return Source(
        kind="plan",
        answer=_document(folder / "plan.json", "the answer of `paceline plan`"),
        request=_document(folder / "request.json", "the request of `paceline plan`"),
        trials=stored_trials(folder),
    )


def _check(files: Sequence[Path]) -> Source:
    from paceline.checking.counterexamples import load_counterexample

    answers: list[dict[str, Any]] = []
    places: list[Path] = []
    for file in files:
        document = _document(file, "a counterexample or the answer of `paceline check --json`")
        if document.get("format") is not None or not {"guarantees", "results"} & set(document):
            places.append(file)
            continue
        mine: Sequence[Mapping[str, Any]] = document.get("results", [document])
        answers += [dict(one) for one in mine]
        named = [one["counterexample"] for answer in mine for one in answer["guarantees"] if one["counterexample"]]
        places += [path if path.is_file() else file.parent / path.name for path in map(Path, named)]
    found = [load_counterexample(place) for place in dict.fromkeys(places)]
    return Source(kind="check", counterexamples=found, answers=answers)


READERS: dict[Kind, Callable[[Sequence[Path]], Source]] = {
    "runs": _runs,
    "comparison": _comparison,
    "sweep": _sweep,
    "plan": _plan,
    "check": _check,
}
