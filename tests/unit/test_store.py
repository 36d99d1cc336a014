"""Stored runs are read as written; incompletely written ones do not exist."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Evaluation
from paceline.algorithms.core.method import StalenessKind
from paceline.algorithms.core.values import Null, Rank
from paceline.algorithms.runtime.weights_owner import Update
from paceline.records import Run
from paceline.records import store as store_module
from paceline.records.document import to_json
from paceline.records.store import place, read_run, save, write_run
from paceline.records.summary import reduce_tables, summarise
from paceline.records.tables import assemble
from paceline.records.trace import Snapshot, Span, Trace
from tests.stored import flip, rewrite, seal_run


def a_run(weights: object = None) -> Run:
    trace = Trace(
        spans=[
            Span(Rank(0), "main", "compute", "layer 1", 0, 0.0, 1.0),
            Span(Rank(0), "main", "send", None, 0, 1.0, 1.0, 8),
        ],
        updates=[Update(1.5, Rank(0), 0, 0, 0, 0, 8)],
        snapshots=[Snapshot(0.0, 0, 0, None, Evaluation(2.0, None))],
        wall_s=2.0,
    )
    tables = assemble(trace, num_samples=8)
    summary = summarise(
        reduce_tables(tables, wall_s=2.0, workers=1, staleness_kind=StalenessKind.STEPS), kind="simulated"
    )
    return Run(
        scenario={"name": "tiny"},
        name="tiny",
        algorithm="sync-sgd",
        seed=3,
        summary=summary,
        tables=tables,
        weights=weights,
        machine={"cores": 2},
    )


@pytest.mark.parametrize("vector", [np.arange(3.0), torch.arange(3, dtype=torch.float32)], ids=["numpy", "torch"])
def test_round_trip(tmp_path: Path, vector: object) -> None:
    written = save(a_run(vector), tmp_path)
    assert written.path == tmp_path / "tiny-sync-sgd-3-simulated-1"
    found = read_run(tmp_path / "tiny-sync-sgd-3-simulated-1")
    for table in ("spans", "updates", "evaluations"):
        pd.testing.assert_frame_equal(getattr(found.tables, table), getattr(written.tables, table))
    np.testing.assert_array_equal(found.weights, np.asarray(vector))
    assert found.weights.dtype == np.asarray(vector).dtype
    assert found == dataclasses.replace(written, tables=found.tables, weights=found.weights)


@pytest.mark.parametrize("name", ["a:b", "s3:runs", "file:runs", "mit Länge", os.fsdecode(b"\xff")], ids=ascii)
def test_any_folder_name_will_do(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, because only then could it be taken for a URI; the last one is not UTF-8."""
    monkeypatch.chdir(tmp_path)
    written = save(a_run(np.arange(3.0)), Path(name))
    assert written.path is not None and written.path.parent == Path(name)
    assert len(read_run(written.path).tables.spans) == 2


def test_weights_without_numbers_leave_no_file(tmp_path: Path) -> None:
    folder = save(a_run(Null(10)), tmp_path).path
    assert folder is not None
    assert not (folder / "weights.safetensors").exists()
    assert read_run(folder).weights is None


def test_the_same_run_twice_is_two_folders_with_the_same_bytes(tmp_path: Path) -> None:
    one, other = save(a_run(np.ones(2)), tmp_path).path, save(a_run(np.ones(2)), tmp_path).path
    assert one is not None
    assert other is not None
    assert other.name.endswith("-2")
    for name in ("spans.parquet", "updates.parquet", "evaluations.parquet", "weights.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileExistsError, match="never overwritten"):
        write_run(tmp_path / "taken", a_run())
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]
    assert list((tmp_path / "taken").iterdir()) == []


def test_the_next_number_comes_after_all_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "x-1").mkdir()
    (tmp_path / "x-10").mkdir()
    (tmp_path / "x-y-30").mkdir()
    assert place(tmp_path, "x").name == "x-11"


def test_a_crash_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        assert any(tmp_path.iterdir()), "the crash must come in the middle of writing"
        raise OSError("no space left on device")

    monkeypatch.setattr(store_module, "to_safetensors", full_disk)
    with pytest.raises(OSError, match="no space"):
        save(a_run(np.ones(2)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_with_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write does not report its path."""

    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "to_safetensors", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*/tiny-sync-sgd-3-simulated-1'"):
        save(a_run(np.ones(2)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_run_json_holds_what_describes_the_run(tmp_path: Path) -> None:
    folder = save(a_run(), tmp_path).path
    assert folder is not None
    record = json.loads((folder / "run.json").read_text())
    assert record["schema_version"] == 1
    assert (record["kind"], record["seed"], record["scenario"]) == ("simulated", 3, {"name": "tiny"})
    assert {"versions", "machine", "summary"} <= record.keys()


def unreadable(folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"0" * 100)
    seal_run(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            lambda folder: (folder / "spans.parquet").unlink(), r"spans\.parquet: cannot be read", id="table missing"
        ),
        pytest.param(lambda folder: (folder / "run.json").write_text("{"), r"run\.json: not valid JSON", id="not JSON"),
        pytest.param(
            lambda folder: rewrite(folder / "run.json", lambda _: {"schema_version": 99}),
            "later Paceline",
            id="later version",
        ),
        pytest.param(
            lambda folder: (folder / "run.json").write_text('{"schema_version": 1}'), "no 'checksum'", id="no checksum"
        ),
        pytest.param(lambda folder: flip(folder / "spans.parquet", 9), r"spans\.parquet: is damaged", id="one bit"),
        pytest.param(
            lambda folder: flip(folder / "weights.safetensors", 90), r"weights\.safetensors: is damaged", id="a weight"
        ),
        pytest.param(
            lambda folder: os.truncate(folder / "weights.safetensors", 80),
            r"weights\.safetensors: is damaged",
            id="cut",
        ),
        pytest.param(
            lambda folder: (folder / "weights.safetensors").unlink(), r"weights\.safetensors: cannot", id="no weights"
        ),
        pytest.param(unreadable, r"weights\.safetensors: cannot be read \(SafetensorError", id="unreadable weights"),
        pytest.param(
            lambda folder: (folder / "run.json").write_text((folder / "run.json").read_text().replace("tiny", "tinz")),
            r"run\.json: is damaged",
            id="another name",
        ),
        pytest.param(
            lambda folder: rewrite(folder / "run.json", lambda record: record | {"files": 3}),
            r"run\.json: cannot be read \(TypeError",
            id="no list of files",
        ),
    ],
)
def test_what_is_no_run_is_an_input_error(tmp_path: Path, damage: object, message: str) -> None:
    folder = save(a_run(np.arange(3.0)), tmp_path).path
    assert callable(damage)
    damage(folder)
    with pytest.raises(InputError, match=message):
        read_run(folder)  # type: ignore[arg-type]


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"loss": float("nan")})
    assert json.loads(to_json({"count": np.int64(3)})) == {"count": 3}
