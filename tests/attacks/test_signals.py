"""Signals to the launcher and to ranks at random moments: no traceback, hang, orphan, leftover file or lost record."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from paceline.records.store import read_run
from tests.thorough import THOROUGH, cases

pytestmark = [pytest.mark.backend, pytest.mark.timeout(3600)]

SEED = 40
COMMAND = [sys.executable, "-c", "from paceline.cli import main; main()"]
SCENARIO = """
name: team
algorithms: [sync-sgd, async-sgd]
workload: {model: quadratic, learning: quadratic, batch_per_worker: 4}
cluster:
  nodes: [{device: {name: fast, overhead: 3 ms, per_sample: 0.1 ms}, workers_per_node: 2}]
train: {pace: none}
evaluate: {every: 50 updates}
stop: {seconds: 0.7 s}
"""
RUNS = 2
SENT = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
ENDS_S = 120.0
"""seconds after which everything has ended even on an overloaded machine"""


@dataclass
class Team:
    """A command that trains, in a separate session."""

    process: subprocess.Popen[str]
    out: Path
    temporary: Path

    @staticmethod
    def begin(folder: Path) -> Team:
        (folder / "team.yaml").write_text(SCENARIO)
        temporary = folder / "tmp"
        temporary.mkdir()
        process = subprocess.Popen(
            [*COMMAND, "train", str(folder / "team.yaml"), "--out", str(folder / "runs")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        return Team(process, folder / "runs", temporary)

    def descendants(self) -> list[psutil.Process]:
        """Returns all processes that it has started."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> list[psutil.Process]:
        """Returns the processes of its session; the guard of a run has a separate session."""
        return [one for one in self.descendants() if _session(one.pid) == self.process.pid]

    def folders(self) -> set[Path]:
        """Returns its folders in the host's memory."""
        found = set()
        for link in _links(Path(f"/proc/{self.process.pid}/fd")):
            if link.startswith("/dev/shm/paceline-run-"):
                found.add(Path("/dev/shm") / Path(link).parts[3])
        return found

    def catches(self) -> bool:
        """Whether Paceline's own signal handlers are installed: not while Python starts, nor after the command has
        ended.
        """
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return True
        (mask,) = re.findall(r"^SigCgt:\t(\w+)$", status, re.MULTILINE)
        return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)

    def phase(self, trained: bool) -> str:
        """Returns its phase."""
        if self.process.poll() is not None:
            return "ended"
        if not self.catches():
            return "ending" if trained else "interpreter"
        folders = self.folders()
        if not folders:
            return "storing" if trained else "imports"
        streams = [path.stat().st_size for folder in folders for path in folder.glob("rank*.stream") if path.exists()]
        return "running" if any(streams) else "launch"


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _links(folder: Path) -> list[str]:
    links = []
    try:
        for path in folder.iterdir():
            links.append(str(path.readlink()))
    except OSError:
        pass
    return links


@dataclass(frozen=True)
class Length:
    """Returns the duration of a whole command, and of its part from the first launch on."""

    whole_s: float
    launched_s: float


def attack(folder: Path, draw: random.Random, length: Length) -> tuple[str, str]:
    """Sends one signal and returns the phase that it hit, and what happened.

    A quarter of the moments are drawn from the whole duration, the others from the part after the launch, because
    imports take most of the time.
    """
    sent, to_rank, anywhere = draw.choice(SENT), draw.random() < 0.4, draw.random() < 0.25
    team = Team.begin(folder)
    try:
        if not anywhere:
            until_launched(team)
        moment_s = draw.uniform(0, length.whole_s if anywhere else length.launched_s)
        return _attacked(team, moment_s, sent, draw if to_rank else None, trained=not anywhere)
    finally:
        for one in team.descendants():
            one.kill()
        team.process.kill()
        team.process.communicate()


def until_launched(team: Team) -> None:
    """Waits until it has a folder in the host's memory."""
    until_s = time.monotonic() + ENDS_S
    while not team.folders() and team.process.poll() is None:
        assert time.monotonic() < until_s
        time.sleep(0.005)


def _attacked(
    team: Team, at_s: float, sent: signal.Signals, of_ranks: random.Random | None, *, trained: bool
) -> tuple[str, str]:
    began_s = time.monotonic()
    shared: set[Path] = set()
    while time.monotonic() - began_s < at_s and team.process.poll() is None:
        shared |= (now := team.folders())
        trained = trained or bool(now)
        time.sleep(0.01)
    everybody, ranks = team.descendants(), team.ranks()
    shared |= team.folders()
    phase = team.phase(trained)
    victim = of_ranks.choice(ranks) if of_ranks is not None and ranks else None
    try:
        (team.process if victim is None else victim).send_signal(sent)
    except (psutil.NoSuchProcess, ProcessLookupError):
        victim = None
        phase = "ended" if team.process.poll() is not None else phase
    everybody += team.descendants()
    _, said = team.process.communicate(timeout=ENDS_S)
    status = team.process.returncode
    where = f"{sent.name} to {'the launcher' if victim is None else 'a rank'} in {phase}: {status}\n{said}"
    if phase != "interpreter":
        assert "Traceback" not in said and "Exception ignored" not in said, where
    _, alive = psutil.wait_procs(everybody, timeout=20)
    assert not alive, where
    until_s = time.monotonic() + 20
    while left := [path for path in shared if path.exists()]:
        assert time.monotonic() < until_s, f"{left}: {where}"
        time.sleep(0.05)
    assert list(team.temporary.iterdir()) == [], where
    _check_status(status, said, phase, sent, to_rank=victim is not None, where=where)
    _check_records(team, status, said, sent, where)
    return phase, f"{sent.name} to {'launcher' if victim is None else 'rank'}: {status}"


def _check_status(status: int, said: str, phase: str, sent: signal.Signals, *, to_rank: bool, where: str) -> None:
    if phase in ("interpreter", "ending", "ended"):
        return
    if to_rank:
        assert status in ((0,) if sent == signal.SIGINT else (0, 1)), where  # 0: the rank had ended
        assert status == 0 or re.search(r"^error: .*rank \d+ .*died", said, re.MULTILINE), where
    elif sent == signal.SIGKILL:
        assert status in (0, -signal.SIGKILL), where
    else:
        assert status in (0, 130), where
        assert status == 0 or "interrupted" in said, where


def _check_records(team: Team, status: int, said: str, sent: signal.Signals, where: str) -> None:
    """Every visible folder is a complete run, and all runs that were reported as stored exist."""
    folders = sorted(team.out.iterdir()) if team.out.exists() else []
    visible = [folder for folder in folders if folder.name[0] != "."]
    for folder in visible:
        read_run(folder)
    if status != -signal.SIGKILL:
        assert folders == visible, where
    if status == 0:
        assert len(visible) == RUNS, where
    flat = said.replace("\n", "")
    assert all(str(folder) in flat for folder in visible) or status in (0, -signal.SIGKILL), where


@pytest.fixture(scope="module")
def length(tmp_path_factory: pytest.TempPathFactory) -> Length:
    """Measures a whole command; for the single signal of `make test`, an assumed length does."""
    if not THOROUGH:
        return Length(4.0, 1.0)
    began_s = time.monotonic()
    team = Team.begin(tmp_path_factory.mktemp("whole"))
    until_launched(team)
    launched_s = time.monotonic()
    _, said = team.process.communicate(timeout=ENDS_S)
    assert team.process.returncode == 0, said
    return Length(time.monotonic() - began_s, time.monotonic() - launched_s)


@pytest.mark.parametrize("part", range(cases(1, 4)))
def test_signals_to_a_running_team(
    part: int, length: Length, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, phases, outcomes = random.Random(f"{SEED}/{part}"), Counter[str](), Counter[str]()
    for number in range(cases(1, 10)):
        (folder := tmp_path / f"team{number}").mkdir()
        phase, what = attack(folder, draw, length)
        phases[phase] += 1
        outcomes[f"{phase}, {what}"] += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{sum(phases.values())} signals: {dict(phases)}\n")
        for what, times in sorted(outcomes.items()):
            sys.stdout.write(f"  {times} × {what}\n")
