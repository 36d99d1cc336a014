"""Plants each mutant in a copy of the checkout, runs the tests that must find it, and prints which ones do.

    python -m tests.mutants.run [--names a,b] [--jobs 2] [--quick] [--all-tests] [-- arguments of pytest]

First the same tests run without a mutant, so that a test that fails anyway is not taken for a kill. With --quick they
do not; instead, each test that has failed runs once more without its mutant. The exit status is 0 if every mutant is
killed, 1 otherwise, and 130 after Ctrl-C, which leaves nothing behind.
"""

from __future__ import annotations

import argparse
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant
from tests.mutants.workshop import NotRun, Outcome, Workshop

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 3600.0
"""for tests without a mutant"""
SPARE_S, SPARE = 120.0, 3.0
"""seconds that tests have with a mutant, and times as long as without one"""
QUICK_S = 900.0
"""seconds that tests have with a mutant, where it is not known how long they take without one"""
EVERYTHING = ("tests", "--ignore=tests/unit/test_mutants.py")
"""the whole suite, except the test that would find any mutant by its text"""

Task = Callable[[Workshop], Outcome]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant; `word` is killed, survived, or not judged."""

    mutant: Mutant
    word: str
    seconds: float
    first: str


class Pool:
    """Copies of the checkout, and the tasks that share them.

    Args:
        folder: where the copies are made.
        jobs: how many there are.
        console: where progress is told.
    """

    def __init__(self, folder: Path, jobs: int, console: Console) -> None:
        self.size, self._console = jobs, console
        self._all = [Workshop(folder / str(number), ROOT) for number in range(jobs)]
        self._free: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
        for workshop in self._all:
            self._free.put(workshop)

    def run(self, tasks: Mapping[str, Task]) -> dict[str, Outcome]:
        """Runs named tasks, as many at a time as there are copies; answers their outcomes in their order.

        A task whose tests could not be run has no outcome.
        """
        outcomes: dict[str, Outcome] = {}
        with ThreadPoolExecutor(len(self._all)) as executor:
            futures = {executor.submit(self._with_copy, task): name for name, task in tasks.items()}
            try:
                for number, future in enumerate(as_completed(futures), 1):
                    name = futures[future]
                    try:
                        outcomes[name] = outcome = future.result()
                        said = f"{'passes' if outcome.passed else f'fails: {outcome.first}'} ({outcome.seconds:.0f} s)"
                    except NotRun as error:
                        said = str(error)
                    self._console.print(f"{number}/{len(tasks)} {name} {said}", markup=False, soft_wrap=True)
            except BaseException:
                for future in futures:
                    future.cancel()
                for workshop in self._all:
                    workshop.stop()
                raise
        return {name: outcomes[name] for name in tasks if name in outcomes}

    def _with_copy(self, task: Task) -> Outcome:
        workshop = self._free.get()
        try:
            return task(workshop)
        finally:
            self._free.put(workshop)


@dataclass(frozen=True, slots=True)
class Trial:
    """How mutants are judged.

    Args:
        pool: where tests run.
        all_tests: the whole suite instead of the tests that a mutant names.
        arguments: more arguments of pytest.
    """

    pool: Pool
    all_tests: bool = False
    arguments: Sequence[str] = ()

    def judge(self, mutants: Sequence[Mutant]) -> list[Verdict]:
        """Runs all tests without mutants, then those that pass with each mutant."""
        named = [EVERYTHING] if self.all_tests else [(path,) for path in _paths(mutants)]
        plain = self._without({" ".join(tests): tests for tests in named})
        right = {name: outcome.seconds for name, outcome in plain.items() if outcome.passed}
        limits: dict[Mutant, float] = {}
        for mutant in mutants:
            seconds = [right[name] for name in self._names(mutant) if name in right]
            if seconds:
                limits[mutant] = SPARE_S + SPARE * sum(seconds)
        outcomes = self._with(limits, right)
        return [verdict(mutant, outcomes.get(mutant.name)) for mutant in mutants]

    def judge_quickly(self, mutants: Sequence[Mutant]) -> list[Verdict]:
        """Runs the tests with each mutant, then those that failed without one."""
        every = {name for mutant in mutants for name in self._names(mutant)}
        outcomes = self._with(dict.fromkeys(mutants, QUICK_S), every)
        again = list(dict.fromkeys(test for outcome in outcomes.values() for test in outcome.failed))
        parts = {f"without mutants, {part}": again[part :: self.pool.size] for part in range(self.pool.size)}
        plain = self._without({name: tests for name, tests in parts.items() if tests}, "--maxfail=0")
        wrong = {test for outcome in plain.values() for test in outcome.failed}
        certain = {name: outcome for name, outcome in outcomes.items() if outcome.first not in wrong}
        return [verdict(mutant, certain.get(mutant.name)) for mutant in mutants]

    def _names(self, mutant: Mutant) -> list[str]:
        return [" ".join(EVERYTHING)] if self.all_tests else mutant.paths

    def _without(self, sets: Mapping[str, Sequence[str]], *more: str) -> dict[str, Outcome]:
        """Runs sets of tests in unchanged copies."""
        return self.pool.run({name: self._task(None, tests, LONGEST_S, *more) for name, tests in sets.items()})

    def _with(self, limits: Mapping[Mutant, float], right: Container[str]) -> dict[str, Outcome]:
        """Runs each mutant's tests, as far as they are right without it, for so many seconds at most."""
        tasks: dict[str, Task] = {}
        for mutant, timeout_s in limits.items():
            tests = [part for name in self._names(mutant) if name in right for part in name.split()]
            tasks[mutant.name] = self._task(mutant, tests, timeout_s)
        return self.pool.run(tasks)

    def _task(self, mutant: Mutant | None, tests: Sequence[str], timeout_s: float, *more: str) -> Task:
        def task(workshop: Workshop) -> Outcome:
            with nullcontext() if mutant is None else workshop.planted(mutant):
                return workshop.test(tests, timeout_s, [*more, *self.arguments])

        return task


def _paths(mutants: Sequence[Mutant]) -> list[str]:
    """The files of tests that these name, each once."""
    return list(dict.fromkeys(path for mutant in mutants for path in mutant.paths))


def verdict(mutant: Mutant, outcome: Outcome | None) -> Verdict:
    """What the outcome of its tests says of a mutant; None where they say nothing."""
    if outcome is None:
        return Verdict(mutant, "not judged", 0.0, "its tests fail without it, too, or could not be run")
    return Verdict(mutant, "survived" if outcome.passed else "killed", outcome.seconds, outcome.first)


def table_of(verdicts: Sequence[Verdict]) -> Table:
    """A row for each mutant."""
    killed = sum(row.word == "killed" for row in verdicts)
    table = Table(title=f"{killed} of {len(verdicts)} mutants killed")
    for header in ("mutant", "file", "verdict"):
        table.add_column(header, overflow="fold")
    table.add_column("s", justify="right")
    table.add_column("first failing test", overflow="fold")
    for row in verdicts:
        style = None if row.word == "killed" else "red"
        table.add_row(row.mutant.name, row.mutant.file, row.word, f"{row.seconds:.0f}", escape(row.first), style=style)
    return table


def selected(names: str | None) -> list[Mutant]:
    """The mutants of these names, separated by commas; all without names."""
    if names is None:
        return list(CATALOGUE)
    known = {mutant.name: mutant for mutant in CATALOGUE}
    asked = [name.strip() for name in names.split(",")]
    if unknown := [name for name in asked if name not in known]:
        sys.exit(f"no mutant is called {', '.join(unknown)}; see tests/mutants/catalogue.py")
    return [known[name] for name in asked]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", help="mutants to plant, separated by commas (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="copies that are used at the same time (default: 2)")
    parser.add_argument("--quick", action="store_true", help="check tests without mutants afterwards, if they failed")
    parser.add_argument("--all-tests", action="store_true", help="run the whole suite for each mutant")
    parser.add_argument("arguments", nargs="*", help="more arguments of pytest, after --")
    given = parser.parse_args()
    mutants, console = selected(given.names), Console(width=None if sys.stdout.isatty() else 160)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
            pool = Pool(Path(folder), max(1, given.jobs), console)
            trial = Trial(pool, all_tests=given.all_tests, arguments=given.arguments)
            verdicts = trial.judge_quickly(mutants) if given.quick else trial.judge(mutants)
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(table_of(verdicts))
    return 0 if all(row.word == "killed" for row in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
