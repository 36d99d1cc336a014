"""Malformed scenarios, `--set` and `--vary` values: accepted, failed with status 1, or refused with status 2."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.scenarios import Scenario, load
from paceline.scenarios.resolution.grid import grid
from paceline.scenarios.sections.runs import Stop
from paceline.simulator.runs.run import simulate
from tests.attacks.mutants import Mutant, mutants
from tests.thorough import cases

pytestmark = pytest.mark.timeout(3600)

SEED = 17
COMMAND = [sys.executable, "-c", "from paceline.cli import main; main()"]
HANGS_S = 120
"""seconds in which every mutant is refused or run even on an overloaded machine"""
MOST_BYTES = 6 << 30
"""bytes of address space that one mutant may add"""
SMALL = 16
"""workers of a cluster whose first steps are simulated"""


class Hang(BaseException):
    """A mutant took too long."""


@contextmanager
def limited() -> Iterator[None]:
    """Ends a mutant that hangs or fills the memory."""

    def end(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES, hard))
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def loaded(mutant: Mutant) -> list[Scenario]:
    if mutant.vary:
        return [point.scenario for point in grid(mutant.source, mutant.vary, mutant.changes)]
    return [load(mutant.source, mutant.changes)]


def outcome(mutant: Mutant) -> str:
    """Returns the outcome of the command as a word for its status; raises anything but a message of ours."""
    try:
        (scenario, *_) = loaded(mutant)
        if scenario.cluster.workers > SMALL or scenario.workload.learning == "none" or scenario.extrapolate is not None:
            return "accepted"
        brief = scenario.model_copy(update={"stop": Stop(updates=2), "seeds": 1, "algorithms": scenario.algorithms[:2]})
        simulate(brief)
    except PacelineError as error:
        if not str(error).strip():
            raise
        return "refused" if isinstance(error, InputError) else "failed"
    return "ran"


def test_mutants_in_this_process(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    found = Counter[str]()
    wrong: list[str] = []
    for mutant in mutants(cases(30, 1000), SEED):
        try:
            with limited():
                found[outcome(mutant)] += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            said = f"{type(error).__name__}: {error}"
            wrong.append(f"{replace(mutant, source=mutant.source[:200])}\n    {said[:300]}")
    with capsys.disabled():
        sys.stdout.write(f"\n{sum(found.values())} mutants: {dict(found)}, {len(wrong)} wrong\n")
    assert not wrong, "\n".join(wrong)
    assert found["refused"] > found["ran"] > 0


def test_mutants_in_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Counter[int]()
    for mutant in list(mutants(60, SEED + 1))[: cases(1, 30)]:
        source = mutant.source
        if "\n" in source or "{" in source:
            source = str(tmp_path / f"mutant{mutant.number}.yaml")
            Path(source).write_text(mutant.source, encoding="utf-8")
        if any("\x00" in text for text in (*mutant.changes, *mutant.vary)):  # a command line cannot contain it
            continue
        arguments = [f"--set={change}" for change in (*mutant.changes, "stop={updates: 2}", "algorithms=[sync-sgd]")]
        arguments += [f"--vary={axis}" for axis in mutant.vary]
        verb = "sweep" if mutant.vary else "simulate"
        done = subprocess.run(
            [*COMMAND, verb, source, *arguments, "--out", str(tmp_path / "runs")],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode in (0, 1, 2), (mutant, done.stderr[-2000:])
        assert "Traceback" not in done.stderr, (mutant, done.stderr[-2000:])
        assert done.returncode == 0 or "rror: " in done.stderr, (mutant, done.stderr[-2000:])
        found[done.returncode] += 1
    with capsys.disabled():
        sys.stdout.write(f"\nby status: {dict(found)}\n")
