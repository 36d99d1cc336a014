"""Answers about stored results: finds out which kind of result is at a path, and reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from paceline.algorithms.core.checksums import read_json
from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.records import Run
from paceline.records.store import RUN_JSON, read_run
from paceline.reports.blocks import Answer

Kind = Literal["runs", "comparison", "sweep", "plan", "check"]
FILES: dict[str, Kind] = {RUN_JSON: "runs", "comparison.json": "comparison", "sweep.json": "sweep", "plan.json": "plan"}
"""the file by which each kind of folder is recognised"""
EXPECTED = (
    "expected the folder of a run, comparison, sweep or plan, a folder of runs of one scenario, or counterexamples of "
    "`paceline check`"
)


def stored_answer(paths: Sequence[Path]) -> Answer:
    """Returns the answer about stored results.

    Args:
        paths: folders of runs, or one comparison, sweep or plan, or counterexamples.

    Raises:
        InputError: with all mistakes: paths that are none of these, or kinds that do not go together.
    """
    if not paths:
        raise InputError(f"SOURCE: found none, {EXPECTED}")
    results: list[tuple[Kind, Path]] = []
    with Mistakes() as mistakes:
        for path in paths:
            with mistakes.noted():
                results += kinds_of(path)
    kinds: list[Kind] = list(dict.fromkeys(kind for kind, _ in results))
    if len(kinds) > 1:
        raise InputError(f"found a mixture of {', '.join(kinds)}; expected results of one kind for a report")
    if kinds[0] in ("comparison", "sweep", "plan") and len(results) > 1:
        raise InputError(f"found {len(results)} results of the kind {kinds[0]}, expected one for a report")
    return READERS[kinds[0]]([path for _, path in results])


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
    if runs := sorted(file.parent for file in path.glob(f"*/{RUN_JSON}")):
        return [("runs", run) for run in runs]
    if files := sorted(file for file in path.glob("*.json") if _is_check(file)):
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
    document = read_json(path, what)
    if not isinstance(document, dict):
        raise InputError(f"{path}: found no JSON object, expected {what}")
    return document


def _runs(folders: Sequence[Path]) -> Answer:
    """Of repeated runs of the same algorithm, seed and kind the latest counts."""
    from paceline.reports.run_answer import answer_of_runs

    runs = [read_run(folder) for folder in dict.fromkeys(folders)]
    latest: dict[tuple[str, str, int, str], Run] = {}
    for run in sorted(runs, key=lambda run: _number(run.path)):
        latest[run.name, run.algorithm, run.seed, run.kind] = run
    kept = [run for run in runs if latest[run.name, run.algorithm, run.seed, run.kind] is run]
    left = len(runs) - len(kept)
    notes = [f"{left} earlier runs of the same methods and seeds were left out; the latest count."] if left else []
    answer = answer_of_runs(kept)
    return replace(answer, notes=[*notes, *answer.notes])


def _number(path: Path | None) -> int:
    """Returns the number at the end of the name of a folder."""
    digits = "" if path is None else path.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _comparison(folders: Sequence[Path]) -> Answer:
    from paceline.reports.comparison_answer import answer_of_comparison, stored_comparison

    folder = folders[0]
    document = _document(folder / "comparison.json", "the answer of `paceline compare`")
    places = [_place(Path(path), folder) for path in document.get("runs", ())]
    runs = [read_run(place) for place in places if place is not None]
    return answer_of_comparison(stored_comparison(document), runs, missing=places.count(None))


def _place(path: Path, folder: Path) -> Path | None:
    """Returns where a run is: at its path, or beside the comparison, if both were moved; None if it is nowhere."""
    places = (path, folder.parent / path.name, folder / path.name)
    return next((place for place in places if (place / RUN_JSON).is_file()), None)


def _sweep(folders: Sequence[Path]) -> Answer:
    from paceline.reports.provenance import with_provenance
    from paceline.reports.sweeps.sweep_answer import sweep_answer
    from paceline.reports.sweeps.sweep_table import stored_table

    answer = _document(folders[0] / "sweep.json", "the answer of `paceline sweep`")
    path = folders[0] / "request.json"
    request = _document(path, "the request of `paceline sweep`") if path.is_file() else {}
    return with_provenance(sweep_answer(stored_table(folders[0], answer, request)), request.get("scenario"))


def _plan(folders: Sequence[Path]) -> Answer:
    from paceline.reports.planning.plan_blocks import answer_of_plan
    from paceline.reports.planning.request import stored_trials
    from paceline.reports.provenance import with_provenance

    folder = folders[0]
    document = _document(folder / "plan.json", "the answer of `paceline plan`")
    scenario = _document(folder / "request.json", "the request of `paceline plan`")["scenario"]
    return with_provenance(answer_of_plan(document, scenario["name"], stored_trials(folder)), scenario)


def _check(files: Sequence[Path]) -> Answer:
    from paceline.checking.counterexamples import load_counterexample
    from paceline.reports.check_answer import Told, answer_of_check

    answers: list[dict[str, Any]] = []
    places: list[Path] = []
    for file in files:
        document = _document(file, "a counterexample or the answer of `paceline check --json`")
        if document.get("format") is not None or not {"guarantees", "results"} & set(document):
            places.append(file)
            continue
        results: Sequence[Mapping[str, Any]] = document.get("results", [document])
        answers += [dict(result) for result in results]
        named = [
            guarantee["counterexample"]
            for answer in results
            for guarantee in answer["guarantees"]
            if guarantee["counterexample"]
        ]
        places += [path if path.is_file() else file.parent / path.name for path in map(Path, named)]
    return answer_of_check(answers, [Told.of(load_counterexample(place)) for place in dict.fromkeys(places)])


READERS: dict[Kind, Callable[[Sequence[Path]], Answer]] = {
    "runs": _runs,
    "comparison": _comparison,
    "sweep": _sweep,
    "plan": _plan,
    "check": _check,
}
