"""Stored runs: finds, filters, compares and deletes them by the ``run.json`` in their folders, without their tables.

A run is a folder with a ``run.json``, in one of the given folders or given itself. A damaged ``run.json`` is reported
with the reason, and the other runs are still found. Only a folder whose ``run.json`` was read as that of a run is
deleted. A link to a folder is not followed: deleting what it points to would surprise, and deleting the link would free
nothing. The folder is first renamed to a hidden name in the same parent folder, so that an interrupted deletion leaves
no folder that looks like a complete run.
"""

from __future__ import annotations

import math
import operator
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paceline.algorithms.core.checksums import read_sealed
from paceline.algorithms.core.errors import InputError, Mistakes
from paceline.algorithms.synonyms import meaning
from paceline.records.document import flat
from paceline.records.figures import at
from paceline.records.store import RUN_JSON, WHOLE


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A stored run, without its tables.

    Args:
        path: its folder.
        record: the content of its ``run.json``.
    """

    path: Path
    record: Mapping[str, Any] = field(repr=False)

    @property
    def scenario(self) -> str:
        """The name of its scenario."""
        return str(self.record["name"])

    @property
    def algorithm(self) -> str:
        """The label of its algorithm."""
        return str(self.record["algorithm"])

    @property
    def method(self) -> str | None:
        """The name of its method; None if the record has none."""
        algorithms = self.record["scenario"].get("algorithms") or [{}]
        return algorithms[0].get("name") if isinstance(algorithms[0], Mapping) else None

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.record["seed"])

    @property
    def kind(self) -> str:
        """Whether it is simulated or measured."""
        return str(self.record["kind"])

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its figures."""
        summary: Mapping[str, Any] = self.record["summary"]
        return summary

    @property
    def written(self) -> datetime:
        """When it was stored."""
        return datetime.fromisoformat(self.record["written"])

    def bytes(self) -> int:
        """Returns the size of its folder, with checkpoints and logs."""
        return sum(file.lstat().st_size for file in self.path.rglob("*") if not file.is_dir())

    def document(self) -> dict[str, Any]:
        """Returns the run for a JSON answer."""
        return {
            "path": str(self.path),
            "scenario": self.scenario,
            "algorithm": self.algorithm,
            "seed": self.seed,
            "kind": self.kind,
            "written": self.written.isoformat(),
            "bytes": self.bytes(),
            "summary": self.summary,
        }


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Stored runs, the earliest first, and folders whose ``run.json`` is damaged, each with the reason."""

    runs: list[StoredRun]
    damaged: list[tuple[Path, str]]

    @property
    def nothing_selected(self) -> str:
        """Says that no run is selected, and which scenarios and algorithms there are."""
        scenarios = ", ".join(sorted({run.scenario for run in self.runs}))
        algorithms = ", ".join(sorted({run.algorithm for run in self.runs}))
        return f"none of {len(self.runs)} runs is selected; scenarios there: {scenarios}; algorithms: {algorithms}"


KEYS = ("name", "algorithm", "seed", "kind", "summary", "scenario", "written", "versions", "machine")
"""the keys of ``run.json`` that every run has"""


def find_runs(places: Iterable[Path]) -> RunFolders:
    """Finds the stored runs in several places.

    Args:
        places: folders of runs, folders in which runs are stored, or ``run.json`` files.

    Raises:
        InputError: places that do not exist, all together.
    """
    folders: dict[Path, None] = {}
    missing = []
    for place in places:
        folder = place.parent if place.name == RUN_JSON else place
        if (folder / RUN_JSON).is_file():
            folders[folder] = None
        elif folder.is_dir():
            folders |= dict.fromkeys(sorted(file.parent for file in folder.glob(f"*/{RUN_JSON}")))
        else:
            missing.append(f"{place}: found no folder of this name; expected a stored run, or a folder of stored runs")
    if missing:
        raise InputError("\n".join(missing))
    runs, damaged = [], []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except InputError as error:
            damaged.append((folder, str(error)))
    return RunFolders(sorted(runs, key=lambda run: (run.written, str(run.path))), damaged)


def _read(folder: Path) -> StoredRun:
    record = read_sealed(folder / RUN_JSON, WHOLE)
    if lacking := [key for key in KEYS if key not in record]:
        raise InputError(f"{folder / RUN_JSON}: found no {', '.join(lacking)}; expected {WHOLE}")
    return StoredRun(folder, record)


COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
CONDITION = re.compile(r"\s*(?P<path>[\w.]+)\s*(?P<sign><=|>=|!=|==|<|>|=)\s*(?P<value>\S.*?)\s*")
UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400, "week": 604800, "weeks": 604800}
AGE = re.compile(r"\s*(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class FigureCondition:
    """A condition on a figure of the summary: its path, and the test of its value."""

    path: str
    sign: str
    value: float | str

    def holds(self, summary: Mapping[str, Any]) -> bool:
        """Returns whether a summary meets the condition; a missing figure meets none."""
        value = at(summary, self.path)
        if value is None or isinstance(value, (Mapping, list)):
            return False
        if isinstance(self.value, float) != isinstance(value, (int, float)):
            return self.sign == "!="
        return COMPARED[self.sign](value, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions that all have to hold; an empty one always holds."""

    scenarios: Sequence[str] = ()
    algorithms: Sequence[str] = ()
    seeds: Sequence[int] = ()
    kind: str | None = None
    older_s: float | None = None
    conditions: Sequence[FigureCondition] = ()

    def select(self, runs: Iterable[StoredRun], now: datetime | None = None) -> list[StoredRun]:
        """Returns the runs that meet all conditions.

        Args:
            runs: the runs.
            now: the time from which ages count; None: the present.
        """
        before = (datetime.now(UTC) if now is None else now) - timedelta(seconds=self.older_s or 0.0)
        return [run for run in runs if self._holds(run) and (self.older_s is None or run.written <= before)]

    def _holds(self, run: StoredRun) -> bool:
        return (
            (not self.scenarios or run.scenario in self.scenarios)
            and (not self.algorithms or any(_is_of(run, name) for name in self.algorithms))
            and (not self.seeds or run.seed in self.seeds)
            and self.kind in (None, run.kind)
            and all(condition.holds(run.summary) for condition in self.conditions)
        )


def _is_of(run: StoredRun, name: str) -> bool:
    """Whether a run has this label, or a method with this name, which may be an alias."""
    return name == run.algorithm or meaning(name).method == run.method


def condition(text: str) -> FigureCondition:
    """Returns the condition that a text such as ``step_s.mean<0.03`` states.

    Raises:
        InputError: the text is no condition.

    >>> condition("step_s.mean < 0.03")
    FigureCondition(path='step_s.mean', sign='<', value=0.03)
    """
    match = CONDITION.fullmatch(text)
    if match is None:
        raise InputError(
            f"--where: found {text!r}; expected a figure of the summary, a sign and a value, such as 'step_s.mean<0.03'"
        )
    value: float | str = match["value"]
    try:
        value = float(value)
    except ValueError:
        if match["sign"] not in ("=", "==", "!="):
            raise InputError(
                f"--where: found {text!r}, which compares with {value!r}; expected a number after {match['sign']}"
            ) from None
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"--where: found {text!r}; expected a number that is not NaN")
    return FigureCondition(match["path"], "=" if match["sign"] == "==" else match["sign"], value)


def seconds_of(text: str) -> float:
    """Returns the seconds of an age such as ``7 days``, ``12 h`` or ``30 min``.

    Raises:
        InputError: the text is no age.

    >>> seconds_of("7 days"), seconds_of("1.5h")
    (604800.0, 5400.0)
    """
    match = AGE.fullmatch(text)
    if match is None or match["unit"] not in UNITS_S:
        raise InputError(f"--older-than: found {text!r}; expected an age such as '7 days', '12 h' or '30 min'")
    return float(match["number"]) * UNITS_S[match["unit"]]


MACHINE = ("processor", "cores", "memory_bytes", "system", "release", "architecture")


def filter_of(
    scenarios: Sequence[str],
    algorithms: Sequence[str],
    seeds: Sequence[int],
    kind: str | None,
    older_than: str | None,
    where: Iterable[str],
) -> Filter:
    """Returns the filter for conditions in words.

    Args:
        scenarios: the names of scenarios; none: any.
        algorithms: the names of methods; none: any.
        seeds: the seeds; none: any.
        kind: simulated or measured; None: any.
        older_than: an age, as for `seconds_of`; None: any.
        where: conditions, as for `condition`.

    Raises:
        InputError: a condition or the age is wrong; with all mistakes.

    >>> filter_of([], ["agd"], [], None, "2 h", ["wall_s<3"]).older_s
    7200.0
    """
    conditions: list[FigureCondition] = []
    older_s = None
    with Mistakes() as mistakes:
        for text in where:
            with mistakes.noted():
                conditions.append(condition(text))
        with mistakes.noted():
            older_s = None if older_than is None else seconds_of(older_than)
    return Filter(
        scenarios=scenarios,
        algorithms=algorithms,
        seeds=seeds,
        kind=kind,
        older_s=older_s,
        conditions=conditions,
    )


def sorted_by(runs: Sequence[StoredRun], figure: str | None) -> list[StoredRun]:
    """Returns runs sorted by a figure; those without it are last.

    Args:
        runs: the runs.
        figure: the path of a figure in the summary; None: the runs stay in their order.

    Raises:
        InputError: no run has the figure.
    """
    if figure is None:
        return list(runs)
    values = [(at(run.summary, figure), run) for run in runs]
    known = [(value, run) for value, run in values if isinstance(value, (int, float))]
    if runs and not known:
        raise InputError(
            f"--sort: found {figure!r}, which is no number in these runs; expected a figure such as wall_s"
        )
    rest = [run for value, run in values if not isinstance(value, (int, float))]
    return [*(run for _, run in sorted(known, key=lambda pair: pair[0])), *rest]


def differences(runs: Sequence[StoredRun]) -> Iterator[tuple[str, list[Any]]]:
    """Yields the keys in which runs differ, with the value of each run: of the scenario, versions and the machine.

    Args:
        runs: the runs.
    """
    facts = [dict(_facts(run)) for run in runs]
    for key in dict.fromkeys(key for own in facts for key in own):
        values = [own.get(key) for own in facts]
        if any(value != values[0] for value in values):
            yield key, values


def _facts(run: StoredRun) -> Iterator[tuple[str, Any]]:
    yield "kind", run.kind
    yield "algorithm", run.algorithm
    yield "seed", run.seed
    own = ("algorithms", "seed", "seeds")
    yield from flat({key: value for key, value in run.record["scenario"].items() if key not in own})
    yield from ((f"algorithm.{key}", value) for key, value in flat(_hyperparameters(run)))
    yield from ((f"versions.{key}", value) for key, value in run.record["versions"].items())
    yield from ((f"machine.{key}", value) for key, value in run.record["machine"].items() if key in MACHINE)


def _hyperparameters(run: StoredRun) -> Mapping[str, Any]:
    """Returns the hyper-parameters of a run; its scenario holds its own algorithm only."""
    algorithms = run.record["scenario"].get("algorithms", ())
    return {
        key: value for algorithm in algorithms[:1] for key, value in algorithm.items() if key not in ("name", "label")
    }


def check_deletable(runs: Iterable[StoredRun]) -> None:
    """Raises `InputError` with all runs that are links."""
    links = [run.path for run in runs if run.path.is_symlink()]
    if links:
        said = "found a link; expected a folder: delete the run where it is"
        raise InputError("\n".join(f"{path}: {said}" for path in links))


def delete_runs(runs: Sequence[StoredRun]) -> int:
    """Deletes stored runs; returns the freed bytes.

    Args:
        runs: the runs.

    Raises:
        InputError: a run is a link to a folder; nothing is deleted then.
        OSError: a folder cannot be deleted; those before it are.
    """
    check_deletable(runs)
    freed = 0
    for run in runs:
        size = run.bytes()
        path = run.path.resolve()
        hidden = Path(tempfile.mkdtemp(prefix=f".{path.name}-deleted-", dir=path.parent))
        try:
            path.rename(hidden / path.name)
        except OSError:
            hidden.rmdir()
            raise
        shutil.rmtree(hidden)
        freed += size
    return freed
