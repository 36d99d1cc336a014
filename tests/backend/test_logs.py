"""The log of each rank: the output of its process, and its start and end; none of it appears on the terminal."""

from __future__ import annotations

import os
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.method import RankContext, Replica
from paceline.algorithms.core.operations import Barrier
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Step
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.local.worker import tell_warnings
from paceline.backend.status.recorder import FileRecorder, Tail
from paceline.cli.app import app
from paceline.records.trace import Schedule
from paceline.testing.contract.programs import ContractProgram
from tests.support import job_of

pytestmark = pytest.mark.backend


@dataclass(frozen=True, kw_only=True)
class Talks(ContractProgram):
    """Prints in every possible way."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[None]:
        print(f"printed by {me.rank}")  # noqa: T201  # that is what is tested
        sys.stderr.write(f"written by {me.rank}\n")
        os.write(2, f"past Python by {me.rank}\n".encode())
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"warned by {me.rank}", UserWarning, stacklevel=1)
        yield from Barrier(group=me.workers, key=f"step {step.number}")


def test_what_a_rank_says_stands_in_its_log_alone(capfd: pytest.CaptureFixture[str]) -> None:
    echoed: list[tuple[int, str]] = []
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        launch = Launch(
            job=job_of(Talks(), 2, steps=1),
            schedule=lambda: Schedule(every=1),
            echo=lambda rank, line: echoed.append((int(rank), line)),
        )
        trace = run_job(launch)
    for rank in (0, 1):
        log = trace.files[f"logs/rank{rank}.log"].decode()
        for words in ("printed", "written", "past Python"):
            assert f"\n{words} by {rank}\n" in log
        assert f"UserWarning: warned by {rank}" in log
        assert f"by {1 - rank}" not in log
        life = re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (\w+(?: step)?)", log, re.MULTILINE)
        assert life == ["started", "first step", "ended"]
        assert [line for source, line in echoed if source == rank] == log.splitlines()
    assert capfd.readouterr() == ("", "")


SCENARIO = """
name: talking
algorithms: ["{file}:Divides"]
workload: {{model: quadratic, learning: quadratic, batch_per_worker: 4}}
cluster:
  nodes: [{{device: {{name: fast, overhead: 3 ms, per_sample: 0.1 ms}}, count: 2}}]
  network: {{link: eth-10g}}
stop: {{updates: 5}}
"""
DIVIDES = '''
from dataclasses import dataclass

from paceline.algorithms.methods.baseline import SyncSgd


@dataclass(frozen=True, kw_only=True)
class Divides(SyncSgd):
    """Fails at once on rank 1."""

    name = "divides"
    source = "the tests"

    def begin(self, me, weights):
        print("hello from", me.rank)
        if me.rank == 1:
            raise ZeroDivisionError("by the user's own code")
        return super().begin(me, weights)
'''


@pytest.mark.parametrize("verbose", [False, True])
def test_the_error_names_the_log_in_which_the_traceback_stands(tmp_path: Path, verbose: bool) -> None:
    (tmp_path / "mine.py").write_text(DIVIDES)
    (tmp_path / "talking.yaml").write_text(SCENARIO.format(file=tmp_path / "mine.py"))
    arguments = ["train", str(tmp_path / "talking.yaml"), "--out", str(tmp_path / "runs"), *["--verbose"] * verbose]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "rank 1 (worker) failed: ZeroDivisionError: by the user's own code" in result.stderr
    log, *_ = re.findall(r"its log, with what the rank said last: (.*)$", result.stderr, re.MULTILINE)
    text = Path(log).read_text()
    assert re.search(r'^  File ".*mine\.py", line \d+, in begin$', text, re.MULTILINE)
    assert "hello from 1" in text
    assert ("Traceback" in result.stderr) == verbose
    assert ("rank 0: hello from 0" in result.stderr) == verbose


def test_warnings_of_a_rank_without_a_log_are_only_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process started by a launcher writes to the launcher's terminal; its warnings are only in the record."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    recorder = FileRecorder(Rank(1), tmp_path / "rank1.stream")
    tell_warnings(recorder, log=False)
    warnings.showwarning("look out", UserWarning, "here.py", 7)
    recorder.close()
    assert list(Tail(recorder.path).read()) == [("warning", ("look out", UserWarning, "here.py", 7))]
    assert capsys.readouterr().err == ""
