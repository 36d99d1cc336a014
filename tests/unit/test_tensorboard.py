"""Event files of runs: written during a run, stored with it, read back with the library's own messages."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.backend.status.progress_counters import Totals
from paceline.cli.app import app
from paceline.records.store import read_run, save
from paceline.reports.export import tensorboard as module
from paceline.reports.export.tensorboard import tensorboard
from paceline.scenarios import load
from tests.made_up import run

Points = dict[str, list[tuple[int, float, float]]]


def events(path: Path) -> Iterator[Any]:
    """Yields every event of a file and checks its checksum."""
    event, crc32c = import_module("tensorboardX.proto.event_pb2").Event, import_module("tensorboardX.crc32c").crc32c
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + size]
        plain = crc32c(body)
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == ((plain >> 15 | plain << 17) + 0xA282EAD8) % 2**32
        yield event.FromString(body)
        at += size + 16


def points(path: Path) -> Points:
    """The curves of a file: (step, wall time, value)."""
    found: Points = defaultdict(list)
    for event in events(path):
        for value in event.summary.value:
            found[value.tag].append((event.step, event.wall_time, value.simple_value))
    return found


def totals(elapsed_s: float, step: int) -> Totals:
    """Two workers, whose loss falls by a thousandth with every step; staleness is 3."""
    losses = sum(2 * (1 - 0.001 * done) for done in range(step))
    return Totals(elapsed_s, step, 2 * step, losses, inputs=2 * step, stalenesses=6 * step, samples=64 * step)


def test_a_run_is_shown_while_it_lasts_and_kept_at_its_end(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (plan,) = load("quickstart", ["seed=1"], algorithms=["async-sgd"]).plans(paced=True)
    measured = run("async-sgd", "measured", step_s=0.3, accuracies=(0.1, 0.5))  # lasts 1.2 s
    with tensorboard(tmp_path) as board:
        for look in range(1, 11):
            board.watch(plan, totals(0.1 * look, 10 * look))
        (live,) = tmp_path.iterdir()
        assert live.name == "quickstart-async-sgd-1-live-1"
        (file,) = live.iterdir()
        assert [step for step, _, _ in points(file)["train/loss"]] == [50, 100]
        board.watch(plan, totals(1.5, 120))
        kept = save(board.finish(measured), tmp_path)
        board.clear()
    assert kept.path is not None
    assert [path.name for path in tmp_path.iterdir()] == [kept.path.name]
    (file,) = (kept.path / "tensorboard").iterdir()
    assert "tfevents" in file.name
    found = points(file)
    assert set(found) == {*module.SCALARS, *module.SCORES}
    assert [step for step, _, _ in found["train/loss"]] == [50, 100, 120]
    workers = plan.job.workers
    for tag, wanted in (
        ("train/loss", [1 - 0.001 * 24.5, 1 - 0.001 * 74.5, 1 - 0.001 * 109.5]),
        ("train/samples_per_s", [6400.0, 6400.0, 64 * 20 / 0.5]),
        ("train/staleness", [3.0, 3.0, 3.0]),
        ("train/step_s", [0.5 * workers / 100, 0.5 * workers / 100, 0.5 * workers / 40]),
        ("evaluation/accuracy", [0.1, 0.5]),
    ):
        assert [value for _, _, value in found[tag]] == pytest.approx(wanted, rel=1e-5)
    walls = [wall for _, wall, _ in found["train/loss"]]
    assert walls[1] - walls[0] == pytest.approx(0.5)
    assert read_run(kept.path).summary == kept.summary


def test_what_was_not_kept_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (plan,) = load("quickstart", algorithms=["async-sgd"]).plans(paced=True)
    with tensorboard(tmp_path) as board:
        board.watch(plan, totals(1.0, 10))
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_there_are_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(module, "import_module", missing)
    with (
        pytest.raises(InputError, match=r"found no package tensorboardX.*pip install 'paceline\[tensorboard\]'"),
        tensorboard(tmp_path),
    ):
        pass
    arguments = ["train", "quickstart", "--algorithms", "async-sgd", "--out", str(tmp_path), "--tensorboard"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and "tensorboardX" in result.stderr and "Traceback" not in result.stderr
