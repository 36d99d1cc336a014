"""Stored files of every kind, damaged: reading one raises an `InputError` that names the file, or gives the same
values.

A JSON document may be damaged where it does not matter, in its white space. All other damage is found by the checksum.
`make test-all` tries 500 damaged versions of each file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from paceline.algorithms.core.checksums import checksum, checksum_of
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.backend.local import launch
from paceline.backend.rank.checkpoint import find_last
from paceline.backend.training import train
from paceline.cli.app import app
from paceline.cli.options import EXIT_INPUT
from paceline.records.store import read_run, save
from paceline.records.tables import SCHEMAS
from paceline.scenarios import load
from paceline.workloads.batches.drawing import read_part
from paceline.workloads.convert_dataset import convert, find_source
from paceline.workloads.reading import Piece
from paceline.workloads.reading.folder import recorded
from paceline.workloads.reading.reader import Opened
from tests.attacks.garbling import attack
from tests.stored import rewrite, seal_run
from tests.thorough import cases

pytestmark = [pytest.mark.backend, pytest.mark.timeout(600)]

COUNT = cases(18, 500)
SCENARIO: dict[str, Any] = {
    "name": "damaged",
    "algorithms": ["async-sgd"],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8},
    "cluster": {"nodes": [{"device": "p100", "workers_per_node": 2}], "network": {"link": "eth-10g"}},
    "train": {"pace": "none", "checkpoint": {"every": "10 updates"}},
    "stop": {"updates": 20},
}
TABLES = [f"{name}.parquet" for name in SCHEMAS]
PART = ["state.pickle", "vectors/.metadata", "vectors/__0_0.distcp"]
RECORDS = ["dataset.json", "train.npy", "train.checksums", "test.npy", "test.checksums"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured run with its checkpoints; the tests restore what they damage."""
    out = tmp_path_factory.mktemp("runs")
    (run,) = train(load(SCENARIO), keep=lambda run: save(run, out), out=out)
    assert run.path is not None
    return run.path


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    convert(find_source("digits", None, None), folder)
    return folder


def outcome(read: Callable[[], object]) -> object:
    """Returns the value that was read, or the `InputError`."""
    try:
        return read()
    except InputError as error:
        return error


def refused(name: str, file: Path, read: Callable[[], object]) -> None:
    """Reading raises an `InputError` about this file, and nothing else."""
    with pytest.raises(InputError) as caught:
        read()
    assert str(file) in str(caught.value), f"{name}: {caught.value}"
    assert "Traceback" not in str(caught.value)


def refused_or_same(name: str, file: Path, values: object, read: Callable[[], object]) -> None:
    """As `refused`, unless the damage made no difference."""
    found = outcome(read)
    assert str(file) in str(found) if isinstance(found, InputError) else found == values, f"{name}: {found}"


# --- files as they were damaged --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["weights.safetensors", *TABLES])
def test_a_damaged_file_of_a_run(file: str, stored: Path) -> None:
    if not (stored / file).exists():
        pytest.skip("this run has no such table")
    attack(stored / file, COUNT, lambda name: refused(name, stored / file, lambda: read_run(stored)))


def test_a_damaged_run_json(stored: Path) -> None:
    path, scenario = stored / "run.json", read_run(stored).scenario
    attack(path, COUNT, lambda name: refused_or_same(name, path, scenario, lambda: read_run(stored).scenario))


def test_a_damaged_run_json_as_a_scenario(stored: Path) -> None:
    """`InputError`, or the same scenario: never another one."""
    path = stored / "run.json"
    whole = load(path).dump()

    def read(name: str) -> None:
        found = outcome(lambda: load(path).dump())
        assert "run.json" in str(found) if isinstance(found, InputError) else found == whole, name

    attack(path, cases(12, 500), read)


@pytest.mark.parametrize("file", PART)
def test_a_damaged_part_of_a_checkpoint(file: str, stored: Path) -> None:
    last = find_last(stored)
    path = last.path / "rank0" / file
    attack(path, COUNT, lambda name: refused(name, path, last.check))


def test_a_damaged_manifest(stored: Path) -> None:
    last = find_last(stored)
    path, manifest = last.path / "manifest.json", dict(last.manifest)
    attack(path, COUNT, lambda name: refused_or_same(name, path, manifest, lambda: find_last(stored).manifest))


def test_a_damaged_record_of_a_checkpoint(stored: Path) -> None:
    """The record of the last checkpoint is the whole file; appended bytes are ignored."""
    last = find_last(stored)
    path, size = stored / "checkpoints/record/rank0.stream", last.manifest["record_bytes"][0]
    whole = path.read_bytes()

    def read(name: str) -> None:
        if path.read_bytes()[:size] == whole:
            last.check_record(Rank(0))
        else:
            refused(name, path, lambda: last.check_record(Rank(0)))

    attack(path, COUNT, read)


@pytest.mark.parametrize("file", RECORDS)
def test_a_damaged_file_of_records(file: str, records: Path) -> None:
    """Headers, the description and checksums are verified when the folder is opened; each record when it is read."""
    whole = recorded(records)

    def read() -> object:
        there = recorded(records)
        opened = Opened(there.train)
        try:
            there.train.verify(0, opened.read(Piece(0, there.train.num_samples)))
        finally:
            opened.close()
        read_part(there.test, there.test.num_samples, 10)
        return there.about

    named = records / Path(file).stem  # a header may be refused by the file or by its checksums
    attack(records / file, COUNT, lambda name: refused_or_same(name, named, whole.about, read))


# --- files whose checksums are right, and that cannot be read nevertheless --------------------------------------------


def read_or_refused(read: Callable[[], object]) -> None:
    """Both results are correct, because such bytes may be intended; every other error is a failure."""
    found = outcome(read)
    assert not isinstance(found, InputError) or "cannot be read" in str(found)


@pytest.mark.parametrize("file", PART)
def test_an_unreadable_part_with_a_right_checksum(file: str, stored: Path) -> None:
    path, manifest = find_last(stored).path / "rank0" / file, find_last(stored).path / "manifest.json"
    whole = manifest.read_bytes()

    def read(name: str) -> None:
        rewrite(manifest, lambda content: content["files"][0].update({file: checksum_of(path)}))
        read_or_refused(lambda: find_last(stored).read(Rank(0), placed=False))

    attack(path, COUNT, read)
    manifest.write_bytes(whole)


def test_an_unreadable_record_with_a_right_checksum(stored: Path) -> None:
    path, manifest = stored / "checkpoints/record/rank0.stream", find_last(stored).path / "manifest.json"
    whole = manifest.read_bytes()

    def read(name: str) -> None:
        content = path.read_bytes()

        def alter(document: dict[str, Any]) -> None:
            document["record_bytes"][0], document["record_checksums"][0] = len(content), checksum(content)

        rewrite(manifest, alter)
        read_or_refused(lambda: find_last(stored).check_record(Rank(0)))

    attack(path, COUNT, read)
    manifest.write_bytes(whole)


def test_unreadable_weights_with_a_right_checksum(stored: Path) -> None:
    whole = (stored / "run.json").read_bytes()

    def read(name: str) -> None:
        seal_run(stored)
        read_or_refused(lambda: read_run(stored))

    attack(stored / "weights.safetensors", COUNT, read)
    (stored / "run.json").write_bytes(whole)


# --- through the command ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("checkpoints/step-10/rank1/state.pickle", ["train", "--resume"]),
        ("checkpoints/step-10/rank1/vectors/__0_0.distcp", ["train", "--resume"]),
        ("checkpoints/step-10/manifest.json", ["train", "--resume"]),
        ("checkpoints/record/rank1.stream", ["train", "--resume"]),
        ("weights.safetensors", ["train", "--replay"]),
        ("heard.parquet", ["train", "--replay"]),
        ("updates.parquet", ["staleness"]),
        ("run.json", ["staleness"]),
        ("run.json", ["simulate"]),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
@pytest.mark.parametrize("how", ["cut", "flipped", "missing", "a folder"])
def test_the_command_names_the_file_before_any_rank_starts(
    file: str, arguments: list[str], how: str, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_rank() -> int:
        raise AssertionError("a rank was started")

    monkeypatch.setattr(launch, "fork", no_rank)
    folder = tmp_path / "run"
    shutil.copytree(stored, folder)
    path = folder / file
    content = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        path.write_bytes(content.replace(b"sync-sgd", b"sync-sge", 1) if b"sync-sgd" in content else content[::-1])
    elif how == "a folder":
        path.mkdir()
    place = str(folder / "run.json") if arguments == ["simulate"] else str(folder)
    out = ["--out", str(tmp_path / "out")] if arguments[0] != "staleness" else []
    result = CliRunner().invoke(app, [*arguments, place, *out])
    assert result.exit_code == EXIT_INPUT, (result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    assert path.name in result.stderr or (how == "missing" and "found no checkpoint" in result.stderr)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


def test_a_run_that_may_not_be_read_is_wrong_input(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the error of the system is simulated."""

    def forbidden(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(stored))

    monkeypatch.setattr(Path, "open", forbidden)
    monkeypatch.setattr(Path, "read_bytes", forbidden)
    monkeypatch.setattr(Path, "read_text", forbidden)
    for read in (lambda: read_run(stored), lambda: find_last(stored)):
        with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
            read()


def test_a_damaged_data_set_ends_the_command_with_its_place(records: Path, tmp_path: Path) -> None:
    """A damaged description or header is reported before anything runs; a damaged record when a rank reads it."""
    scenario = SCENARIO | {
        "workload": {"model": "digits-mlp", "dataset": "records", "data_dir": str(records), "batch_per_worker": 8},
        "train": {"pace": "none"},
    }
    (tmp_path / "records.yaml").write_text(yaml.safe_dump(scenario))

    def called() -> Any:
        return CliRunner().invoke(app, ["train", str(tmp_path / "records.yaml"), "--out", str(tmp_path / "out")])

    train_file, about = records / "train.npy", records / "dataset.json"
    whole, described = train_file.read_bytes(), about.read_text()
    try:
        about.write_text(described.replace('"classes": 10', '"classes": 11'))
        result = called()
        assert (result.exit_code, "dataset.json: is damaged" in result.stderr) == (EXIT_INPUT, True), result.stderr
        about.write_text(described)
        spoiled = np.frombuffer(whole, np.uint8).copy()
        spoiled[recorded(records).train.offset(100) :] ^= 1  # the launcher looks at the first few
        train_file.write_bytes(spoiled.tobytes())
        result = called()
        assert result.exit_code == 1 and "Traceback" not in result.stderr
        assert "is damaged: its checksum" in result.stderr and "train.npy, at offset" in result.stderr
    finally:
        train_file.write_bytes(whole)
        about.write_text(described)


def test_what_is_stored_is_json_with_a_checksum(stored: Path, records: Path) -> None:
    for path in (stored / "run.json", find_last(stored).path / "manifest.json", records / "dataset.json"):
        assert len(json.loads(path.read_text())["checksum"]) == 32
