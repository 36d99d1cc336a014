"""The command `paceline convert`: its output, the inputs that it refuses, and the files that it leaves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from typer.testing import CliRunner

from paceline.algorithms.core.checksums import checksum
from paceline.cli.app import app
from paceline.scenarios import load
from paceline.workloads import convert_dataset as converting
from paceline.workloads.convert_dataset import SIZES
from paceline.workloads.datasets.dataset_files import NAMES
from paceline.workloads.reading.file import FileChecksums, write_records
from tests import datasets


def call(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_answers_what_is_written(here: Path) -> None:
    datasets.mnist(here / "mnist")
    result = call("mnist", "--data-dir", "mnist", "--out", "new/records", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    about = json.loads((here / "new/records/dataset.json").read_text())
    assert about.pop("checksum")
    assert answer == {"folder": "new/records", "record_bytes": 792, **about}
    assert (answer["train"]["records"], answer["test"]["records"], answer["shuffled"]) == (60, 20, 1)
    for name in ("train", "test"):
        content, records = (here / f"new/records/{name}.npy").read_bytes(), np.load(here / f"new/records/{name}.npy")
        each = (here / f"new/records/{name}.checksums").read_bytes()
        assert about[name] == {
            "records": len(records),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "header": checksum(content[: -records.nbytes]),
            "checksums": checksum(each),
        }
        digests = [xxhash.xxh3_64_intdigest(record.tobytes()) for record in records]
        assert np.frombuffer(each, "<u8").tolist() == digests


def test_it_tells_a_person_and_what_it_writes_is_a_scenarios(here: Path) -> None:
    result = call("digits")
    assert result.exit_code == 0
    assert f"1,437  {(here / 'digits-records/train.npy').stat().st_size:,}  " in result.stdout
    assert "shuffled with seed 1" in result.stdout
    assert f"to use it: workload: {{dataset: records, data_dir: {here}/digits-records}}" in result.stderr
    assert call("digits", "--out", "other", "--quiet").stderr == ""
    changes = ["workload.model=digits-cnn", "workload.dataset=records", "workload.data_dir=digits-records"]
    assert load("quickstart", changes).workload.num_samples == 1437


def test_the_order_may_be_kept_or_be_another(here: Path) -> None:
    datasets.images(here / "flowers", each=10)
    labels = {}
    for name, options in {"kept": ["--keep-order"], "one": [], "two": ["--seed", "2"]}.items():
        assert call("images", "--data-dir", "flowers", "--size", "8", "--out", name, *options).exit_code == 0
        labels[name] = np.load(here / name / "train.npy")["label"].tolist()
    assert labels["kept"] == sorted(labels["kept"])
    assert len({tuple(order) for order in labels.values()}) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["minst"], "error: DATA: found 'minst', expected one of digits, mnist,"),
        (["records"], "error: DATA: found 'records', expected one of digits, mnist,"),
        (["mnist"], "error: --data-dir: missing; expected the folder of mnist, or PACELINE_DATA set to its parent"),
        (["mnist", "--data-dir", "nowhere"], "error: --data-dir: found no folder nowhere; expected in it train-im"),
        (["images", "--data-dir", "nowhere"], "error: --data-dir: found no folder nowhere; expected in it train and"),
        (["digits", "--data-dir", "nowhere"], "error: --data-dir: found 'nowhere', expected none: digits is bundled"),
        (["mnist", "--size", "32"], "error: --size: found '32' for mnist, expected none: its samples have a size"),
        (["images", "--size", "2x2x2"], f"error: --size: found '2x2x2', expected {SIZES}"),
        (["images", "--size", "0"], "error: --size: found '0', expected"),
        (["images", "--size", "large"], "error: --size: found 'large', expected"),
        (["images", "--size", "1x2x3x4"], "error: --size: found '1x2x3x4', expected"),
        (["digits", "--out", "file"], "error: --out: found 'file' there already, expected the name of a new folder"),
        (["digits", "--out", "file/inner"], "error: --out: found 'file/inner', which cannot be made ("),
        (["digits", "--seed", "-1"], "--seed"),
    ],
)
def test_wrong_input_exits_with_2_and_leaves_nothing(arguments: list[str], words: str, here: Path) -> None:
    (here / "file").touch()
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
    assert [entry.name for entry in here.iterdir()] == ["file"]


def test_what_is_there_is_not_overwritten(here: Path) -> None:
    assert call("digits").exit_code == 0
    before = {path: path.read_bytes() for path in (here / "digits-records").iterdir()}
    assert call("digits", "--seed", "2").exit_code == 2
    assert {path: path.read_bytes() for path in (here / "digits-records").iterdir()} == before


def test_files_that_are_wrong_are_told_as_elsewhere(here: Path) -> None:
    datasets.mnist(here / "mnist")
    (here / "mnist" / NAMES[0]).write_bytes(b"wrong")
    result = call("mnist", "--data-dir", "mnist")
    assert result.exit_code == 2
    assert "found 5 bytes that begin with" in result.stderr
    assert not (here / "mnist-records").exists()


def test_a_picture_that_cannot_be_read_leaves_nothing(here: Path) -> None:
    datasets.images(here / "flowers")
    (here / "flowers/class1/picture004.png").write_bytes(b"no picture")
    result = call("images", "--data-dir", "flowers", "--size", "8")
    assert result.exit_code == 2
    assert "picture004.png cannot be read as a picture" in result.stderr
    assert [entry.name for entry in here.iterdir()] == ["flowers"]


def test_an_interruption_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_records

    def interrupted(path: Path, *given: Any, **named: Any) -> FileChecksums:
        if path.name == "test.npy":
            raise KeyboardInterrupt
        return whole(path, *given, **named)

    monkeypatch.setattr(converting, "write_records", interrupted)
    result = call("digits")
    assert result.exit_code == 130
    assert list(here.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(converting, "write_records", full)
    result = call("digits")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert list(here.iterdir()) == []


def test_progress_is_told_file_by_file(here: Path) -> None:
    told: list[tuple[str, float]] = []
    (here / "out").mkdir()
    source = converting.find_source("digits", None, None)
    converting.convert(source, here / "out", progress=lambda file, done: told.append((file, done)))
    assert told == [("train.npy", 0.0), ("train.npy", 1.0), ("test.npy", 0.0), ("test.npy", 1.0)]
