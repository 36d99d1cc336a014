"""Predicts and measures the settings that a folder does not have yet, one after the other.

* A finished setting is a file in `settings/`, written whole; another start skips it. Whatever an interrupted setting
  has left in `runs/` is removed when it is made again.
* `compare` does the work, as for a user: it calibrates, stores every prediction before its measurement, and repeats
  what was disturbed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.files import write_whole
from paceline.records import Run, store
from paceline.records.document import to_json
from paceline.records.machine import OtherLoad
from paceline.reports.comparison.compare import compare
from paceline.reports.comparison.comparison import ComparisonResult
from paceline.reports.words import duration
from paceline.validation.fidelity.rows import (
    Document,
    Measured,
    commit,
    plain,
    read_measured,
    row_of,
    this_machine,
    today,
)
from paceline.validation.fidelity.run_lengths import Finished, Times
from paceline.validation.fidelity.settings import Setting

OVERTIME = 1.5
"""so many times its minutes a study may take; then no further setting begins"""
LATE = 0.2
"""the part of its past time that a setting is expected to need still, once it has taken longer than expected; ours"""
Report = Callable[[str, float], None]
"""called with a text and the completed fraction, 0 … 1"""


@dataclass(kw_only=True)
class Study:
    """A folder of finished settings, and the way to those that are missing.

    Args:
        folder: holds `settings` and `runs`.
        settings: those that are wanted, the most important first.
        seeds: of each configuration.
        minutes: the time into which runs are fitted; None: as much as they need.
        cores: the cores of this machine.
        report: called with the progress.
        note: called with lines for the user.
        compare: predicts and measures a scenario.
        clock: seconds.
    """

    folder: Path
    settings: Sequence[Setting]
    seeds: int
    minutes: float | None
    cores: int
    report: Report = lambda _text, _done: None
    note: Callable[[str], None] = lambda _: None
    compare: Callable[..., ComparisonResult] = compare
    clock: Callable[[], float] = time.monotonic
    failures: list[str] = field(default_factory=list)
    """the names of settings that failed; another start tries them again"""

    def finished(self, setting: Setting) -> bool:
        """Returns whether the folder has a setting, with all its methods and at least as many seeds."""
        path = self._path(setting)
        if not path.exists():
            return False
        measured = read_measured(path)
        return {*setting.methods} <= {*measured.methods} and measured.seeds >= self.seeds

    def missing(self) -> list[Setting]:
        """Returns the wanted settings that the folder does not have."""
        return [setting for setting in self.settings if not self.finished(setting)]

    def run(self, *, again: bool = False) -> None:
        """Predicts and measures the missing settings.

        Args:
            again: whether finished ones are made again, too.
        """
        left = list(self.settings) if again else self.missing()
        begin_s, total = self.clock(), len(left)
        limit_s = None if self.minutes is None else 60 * self.minutes
        known = [] if again else [setting for setting in self.settings if setting not in left]
        finished = [_as_finished(setting, read_measured(self._path(setting))) for setting in known]
        try:
            while left:
                spent_s = self.clock() - begin_s
                if limit_s is not None and spent_s > OVERTIME * limit_s:
                    names = "; ".join(setting.name for setting in left)
                    self.note(f"note: the time is over; another start continues with {len(left)} settings: {names}")
                    return
                setting = left.pop(0)
                times = Times.of(finished, self.cores, self.seeds)
                run_s = times.affordable_s([setting, *left], None if limit_s is None else limit_s - spent_s)
                progress = _Progress(
                    self.report, self.clock, f"setting {total - len(left)} of {total}, {setting.name}", spent_s,
                    [times.seconds(each, run_s) for each in (setting, *left)],
                )  # fmt: skip
                measured = self._measured(setting, times.length(setting, run_s), progress)
                if measured is not None:
                    finished.append(_as_finished(setting, measured))
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"finished settings are stored in {self.folder}; the same command continues")
            raise

    def _measured(self, setting: Setting, length: int, progress: _Progress) -> Measured | None:
        """Predicts and measures a setting, and stores it; returns None if that failed."""
        runs = self.folder / "runs" / store.slug(setting.name)
        shutil.rmtree(runs, ignore_errors=True)
        runs.mkdir(parents=True)

        def keep(run: Run) -> Run:
            return store.save(run, runs)

        begin_s = self.clock()
        try:
            with OtherLoad() as other:
                scenario = setting.scenario(seeds=self.seeds, length=length)
                comparison = self.compare(scenario, stage=progress.stage, keep=keep)
        except PacelineError as error:
            self.failures.append(setting.name)
            self.note(f"failed: {setting.name}: {error}")
            return None
        names = {
            "setting": setting.name, "group": setting.group(self.cores), "model": setting.model,
            "workers": setting.workers, "batch": setting.batch, "seeds": self.seeds, "length": length,
        }  # fmt: skip
        measured = Measured(
            setting=setting.name,
            methods=setting.methods,
            seeds=self.seeds,
            seconds=self.clock() - begin_s,
            other_load=comparison.other_load,
            steal=other.stolen_share,
            date=today(),
            commit=commit(),
            machine=this_machine(),
            rows=tuple(row_of(line, {**names, "method": line.name}) for line in comparison.lines),
        )
        path = self._path(setting)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, to_json(plain(measured)) + "\n")
        return measured

    def _path(self, setting: Setting) -> Path:
        return self.folder / "settings" / f"{store.slug(setting.name)}.json"


def _as_finished(setting: Setting, measured: Measured) -> Finished:
    rows = measured.rows
    run_s = sum(row.run_s for row in rows) / len(rows)
    return Finished(setting, len(rows) * measured.seeds, rows[0].length, run_s, measured.seconds)


@dataclass(slots=True)
class _Progress:
    """Tells how far a study is: the stage of the current setting, and the time that is left.

    Args:
        report: called with a text and the completed fraction of the study.
        clock: seconds.
        name: of the setting.
        spent_s: the time of the study before the setting.
        expected_s: the time of this setting and of those after it.
    """

    report: Report
    clock: Callable[[], float]
    name: str
    spent_s: float
    expected_s: Sequence[float]
    begin_s: float = 0.0

    def __post_init__(self) -> None:
        self.begin_s = self.clock()

    def stage(self, name: str, *_more: Any) -> Callable[[str, float], None]:
        """Begins a stage of the setting, and returns its callback."""
        self.tell(name)
        return lambda now, _done: self.tell(f"{name}: {now}" if now else name)

    def tell(self, what: str) -> None:
        """Reports what is being done."""
        inside_s = self.clock() - self.begin_s
        current_s, *later_s = self.expected_s
        late = max(1.0, inside_s / current_s) if current_s else 1.0  # what takes longer here does so later, too
        left_s = max(current_s - inside_s, LATE * inside_s * (late > 1)) + late * sum(later_s)
        whole_s = self.spent_s + inside_s + left_s
        self.report(f"{self.name}: {what}; about {duration(left_s)} left", 1 - left_s / whole_s if whole_s else 0.0)


def stored(folder: Path) -> Document:
    """Returns the finished settings of a folder, in the order of their files' names.

    Raises:
        InputError: a file is no setting.
    """
    paths = sorted((folder / "settings").glob("*.json"))
    return Document(measured=tuple(read_measured(path) for path in paths))


def notes_on(document: Document) -> list[str]:
    """Returns notes on rows that another commit of the product, or another machine, has measured.

    Args:
        document: the finished settings.
    """
    here, ours = this_machine(), commit()
    others = {measured.machine.words for measured in document.measured} - {here.words}
    older = {measured.commit for measured in document.measured} - {ours}
    notes = []
    if others:
        notes.append(f"rows of another machine ({'; '.join(sorted(others))}) are in these tables; use another --out")
    if older:
        notes.append(f"rows of other commits ({', '.join(sorted(older))}; this is {ours}) are in these tables")
    return notes
