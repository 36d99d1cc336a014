"""Files that commands replace are written whole, or the old file stays as it was."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline import sweep
from paceline.algorithms.core.files import replacing
from paceline.cli.app import app
from paceline.reports.planning.search import JOURNAL, _repair
from paceline.reports.sweeps.sweep_table import tabulate

OSU = """# mpirun -np 2 --map-by node osu_allreduce
# OSU MPI Allreduce Latency Test
# Size       Avg Latency(us)
4                       1.5
1048576               500.0
"""
COMMANDS = {
    "topology": (["topology", "dgx1-v100", "--out", "dgx1.png"], "dgx1.png"),
    "calibrate": (
        ["calibrate", "quickstart", "--osu", "osu.txt", "--import-only", "--out", "machine.yaml"],
        "machine.yaml",
    ),
    "staleness": (["staleness", "runs/quickstart-async-sgd-1-simulated-1", "--out", "ages.svg"], "ages.svg"),
    "report": (["report", "runs/quickstart-async-sgd-1-simulated-1", "--out", "run.html"], "run.html"),
}


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Writing more than so many bytes to a file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_write_that_fails_leaves_the_old_file(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, name = COMMANDS[command]
    Path("osu.txt").write_text(OSU, encoding="utf-8")
    if command in ("staleness", "report"):
        small = ["--set", "stop.epochs=1", "--algorithms", "async-sgd", "--no-report"]
        assert CliRunner().invoke(app, ["simulate", "quickstart", *small]).exit_code == 0
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    before, files = Path(name).read_bytes(), sorted(Path().iterdir())
    with small_files(len(before) // 2):
        failed = CliRunner().invoke(app, arguments)
    assert failed.exit_code == 1
    assert failed.stderr.rstrip().endswith(f"error: {name}: File too large\n{name} is unchanged")
    assert Path(name).read_bytes() == before
    assert sorted(Path().iterdir()) == files


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("old", encoding="utf-8")

    def interrupted() -> None:
        with replacing(path) as hidden:
            hidden.write_text("ne", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    with replacing(link) as hidden:
        hidden.write_text("new", encoding="utf-8")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"


def test_a_new_file_that_fails_is_not_said_to_be_unchanged(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as failure, small_files(10), replacing(tmp_path / "new") as new:
        new.write_text("x" * 1000, encoding="utf-8")
    assert failure.value.filename == str(tmp_path / "new")
    assert not hasattr(failure.value, "__notes__")
    assert list(tmp_path.iterdir()) == []


def test_the_beginning_of_a_line_is_removed_from_a_journal_without_room_for_another(tmp_path: Path) -> None:
    journal = tmp_path / JOURNAL
    journal.write_bytes(b'{"whole": 1}\n' * 1000 + b'{"torn')
    with small_files(100):
        _repair(journal)
    assert journal.read_bytes() == b'{"whole": 1}\n' * 1000


def test_a_table_of_a_sweep_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    table = tabulate(
        sweep(
            "quickstart",
            ["workload.batch_per_worker=16,32"],
            overrides=["stop.epochs=1"],
            algorithms=["sync-sgd"],
            jobs=1,
        )
    )
    table.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with small_files(100), pytest.raises(OSError, match=r"sweep\.csv"):
        table.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
