"""A sweep that is killed at any moment and started again has the table of one that was not; on Dask it has the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.reports.sweeps import sweep as sweeps
from paceline.reports.sweeps.parallel_tasks import DIED, each_on_dask
from tests.thorough import cases
from tests.unit.test_sweep import SCENARIO, in_turn

COMMAND = "from paceline.cli import main; main()"
FILES = ["request.json", "sweep.csv", "sweep.json", "sweep.parquet", "sweep.png"]
RUNS = 16


def arguments(scenario: Path, out: Path, *more: str) -> list[str]:
    return ["sweep", str(scenario), "--gpus", "1..8x2", "--seeds", "2", "--jobs", "2", "--out", str(out), *more]


def start(scenario: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments(scenario, out, *more)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finished(scenario: Path, out: Path, *more: str) -> dict[str, bytes]:
    """The files of a sweep that runs to its end."""
    process = start(scenario, out, *more)
    _, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    return files_in(out)


def files_in(out: Path) -> dict[str, bytes]:
    (folder,) = out.glob("tiny-sweep-*")
    assert sorted(path.name for path in folder.iterdir()) == FILES
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def whole(scenario: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the sweep with one run after the other in this process."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "each", in_turn)
        result = CliRunner().invoke(app, arguments(scenario, out), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return files_in(out)


def stored(out: Path) -> int:
    return len(list((out / "sweep-points").glob("*/[!.]*.json")))


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kills the command with all its processes, and waits until they have ended."""
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []


@pytest.mark.slow
def test_a_sweep_killed_at_random_moments_gives_the_same_bytes(
    scenario: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Each kill comes after a random number of results and a random time; the last command ends by itself."""
    rng = random.Random(23)
    kills, before = cases(1, 20), 0
    for number in range(kills):
        process = start(scenario, tmp_path)
        least = before + rng.choice([0, 1]) if number else 1
        while stored(tmp_path) < min(least, RUNS) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.3))
        if process.poll() is not None:  # it was faster than the kill
            process.communicate()
            break
        kill_group(process)
        assert stored(tmp_path) >= before
        before = stored(tmp_path)
        assert len(list(tmp_path.glob("tiny-sweep-unfinished-*"))) <= 1
    if not list(tmp_path.glob("tiny-sweep-[0-9]*")):
        finished(scenario, tmp_path)
    assert files_in(tmp_path) == whole


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_bytes(scenario: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    """The cluster exists already; its worker is a thread, as starting processes takes three times as long."""
    pytest.importorskip("distributed")
    words = arguments(scenario, tmp_path, "--engine", "dask")
    at = words.index("--jobs")
    del words[at : at + 2]
    in_a_process(
        f"""
import sys
from distributed import LocalCluster
from paceline.cli import main
with LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
) as cluster:
    sys.argv = ["paceline", *{words}, "--scheduler", cluster.scheduler_address]
    main()
"""
    )
    assert files_in(tmp_path) == whole


def in_a_process(code: str, **environment: str) -> str:
    """Returns what a program prints; in this process, the warnings of Dask would be errors."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=280, check=False, env=os.environ | environment,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


MOMENT = """
import os, signal
def moment(piece):
    if piece < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if piece == 0:
        raise ValueError("nothing to do")
    return piece
"""


@pytest.mark.slow
def test_failures_on_dask_do_not_affect_other_tasks(tmp_path: Path) -> None:
    """One task raises, and one kills every process that tries it."""
    pytest.importorskip("distributed")
    (tmp_path / "moment.py").write_text(MOMENT)
    code = """
import json
import dask
from moment import moment
from paceline.reports.sweeps.parallel_tasks import each_on_dask
from paceline.reports.sweeps.parallel_tasks import Done
if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 1})
    answers = dict(each_on_dask(moment, [1.0, -1.0, 0.0, *map(float, range(2, 10))], jobs=1))
    print(json.dumps([[at, one.result if isinstance(one, Done) else one.message] for at, one in answers.items()]))
"""
    answers = dict(json.loads(in_a_process(code, PYTHONPATH=str(tmp_path))))
    assert answers.pop(1) == DIED
    assert answers.pop(2) == "ValueError: nothing to do"
    assert answers == {0: 1.0, **{position: float(position - 1) for position in range(3, 11)}}


def test_no_tasks_need_no_cluster() -> None:
    assert list(each_on_dask(str, [], jobs=2)) == []
