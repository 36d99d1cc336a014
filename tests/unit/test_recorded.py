"""Data sets in record files: conversion, training with the same values as in memory, and reports of errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.scenarios import ScenarioError, load
from paceline.workloads import build, num_samples, problems
from paceline.workloads.batches import drawing as from_files
from paceline.workloads.batches.drawing import InMemoryExamples
from paceline.workloads.batches.examples import LabelledBatch, Standardised
from paceline.workloads.building import record_bytes
from paceline.workloads.convert_dataset import convert, convertible, find_source
from paceline.workloads.datasets import DATA, RECORDS, LoadedDataset, read
from paceline.workloads.reading import ReadingSettings, Strategy
from paceline.workloads.reading.file import RecordFile, records_of, write_records
from paceline.workloads.reading.folder import ABOUT, TEST, TRAIN, recorded
from tests import datasets
from tests.stored import flip, rewrite, seal_records

STRATEGIES: list[Strategy] = ["scattered", "strided", "contiguous"]


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Sixty pictures, converted."""
    return converted("mnist", tmp_path, tmp_path / "records")


def converted(name: str, folder: Path, out: Path, seed: int | None = 1, size: str | None = None) -> Path:
    given = datasets.WRITERS[name](folder / name) if name in datasets.WRITERS else None
    out.mkdir()
    convert(find_source(name, None if given is None else str(given), size), out, seed=seed)
    return out


def step(index: int, count: int = 4, worker: int = 0, workers: int = 3) -> Samples:
    return Samples(worker, workers, index, count)


# --- converting ------------------------------------------------------------------------------------------------------


def test_every_data_set_can_be_converted() -> None:
    assert convertible() == ["digits", *datasets.WRITERS]
    assert {*convertible(), RECORDS, "sentences"} == set(DATA)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100"])
def test_what_is_converted_is_what_was_there_in_another_order(name: str, tmp_path: Path) -> None:
    out = converted(name, tmp_path, tmp_path / "records")
    there = read(name, str(tmp_path / name), ())
    assert isinstance(there, LoadedDataset)
    train, test = (np.load(out / file, mmap_mode="r") for file in (TRAIN, TEST))
    order = np.lexsort(np.vstack([train["inputs"].reshape(len(train), -1).T, train["label"]]))
    wanted = records_of(*there.train)
    same = np.lexsort(np.vstack([wanted["inputs"].reshape(len(train), -1).T, wanted["label"]]))
    np.testing.assert_array_equal(train[order], wanted[same])
    assert (train != wanted).any(), "it is shuffled"
    np.testing.assert_array_equal(test, records_of(*there.test))


def test_digits_keep_their_numbers(tmp_path: Path) -> None:
    out = converted("digits", tmp_path, tmp_path / "records", seed=None)
    learner: Any = build("digits-mlp", seed=1, dtype="float64")
    records = np.load(out / TRAIN)
    np.testing.assert_array_equal(records["inputs"], learner.examples.train.inputs)
    np.testing.assert_array_equal(records["label"], learner.examples.train.labels)


def test_folders_of_pictures_are_brought_to_a_size_and_shuffled(tmp_path: Path) -> None:
    kept = converted("images", tmp_path, tmp_path / "kept", seed=None, size="1x12x16")
    assert np.load(kept / TRAIN)["label"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    mixed = converted("images", tmp_path, tmp_path / "mixed", size="16")
    records = np.load(mixed / TRAIN)
    assert records["inputs"].shape == (12, 3, 16, 16)
    assert records["label"].tolist() != sorted(records["label"])
    there = read("images", str(tmp_path / "images"), (3, 16, 16))
    assert isinstance(there, LoadedDataset)
    np.testing.assert_array_equal(np.load(mixed / TEST), records_of(*there.test))
    assert recorded(mixed).about.class_names == ("class0", "class1", "class2")


def test_equal_seeds_write_equal_files_and_others_others(tmp_path: Path) -> None:
    one, same, other = (
        converted("mnist", tmp_path, tmp_path / name, seed=seed) for name, seed in [("a", 3), ("b", 3), ("c", 4)]
    )
    for name in (TRAIN, TEST, ABOUT):
        assert (one / name).read_bytes() == (same / name).read_bytes()
    assert (one / TRAIN).read_bytes() != (other / TRAIN).read_bytes()
    assert (one / TEST).read_bytes() == (other / TEST).read_bytes()


def test_what_is_written_in_chunks_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = converted("mnist", tmp_path, tmp_path / "whole")
    monkeypatch.setattr("paceline.workloads.convert_dataset.CHUNK", 5000)
    parts = converted("mnist", tmp_path, tmp_path / "parts")
    assert (whole / TRAIN).read_bytes() == (parts / TRAIN).read_bytes()
    assert (whole / ABOUT).read_bytes() == (parts / ABOUT).read_bytes()


def test_the_normalisation_is_the_one_of_pictures_in_memory(mnist: Path, tmp_path: Path) -> None:
    in_memory: Any = build("lenet", data_dir=str(tmp_path / "mnist"), seed=1)
    in_files: Any = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    one, other = in_memory.examples.prepare, in_files.examples.prepare
    assert isinstance(one, Standardised)
    assert torch.equal(one.mean, other.mean) and torch.equal(one.deviation, other.deviation)
    assert in_memory.evaluate(in_memory.initial()) == in_files.evaluate(in_files.initial())


# --- learning --------------------------------------------------------------------------------------------------------


def both(folder: Path, strategy: Strategy, model: str, precision: str) -> tuple[Any, InMemoryExamples]:
    """A learner from files, and the sampling of the same records in memory."""
    reading = ReadingSettings(strategy=strategy, buffer=7)
    learner: Any = build(model, dataset="records", data_dir=str(folder), seed=5, reading=reading, dtype=precision)  # type: ignore[arg-type]
    records = np.load(folder / TRAIN)
    train = LabelledBatch(torch.tensor(records["inputs"]), torch.tensor(records["label"])).rounded(learner.dtype)
    return learner, InMemoryExamples(train, reading.order(len(records), 5).positions)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("name", "model", "precision"), [("mnist", "lenet", "float32"), ("digits", "digits-cnn", "float32")]
)
def test_batches_are_those_in_memory_bit_for_bit(
    name: str, model: str, precision: str, strategy: Strategy, tmp_path: Path
) -> None:
    learner, memory = both(converted(name, tmp_path, tmp_path / "records"), strategy, model, precision)
    cuts = [Samples(1, 3, 4, 2, before=5, together=11), Samples(0, 1, 2, 9)]
    for samples in [*(step(index, worker=index % 3) for index in (0, 1, 2, 1, 19, 3)), *cuts]:
        for mine, theirs in zip(learner.draw.batch(samples), memory.batch(samples), strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)
    block = [step(0), step(0, worker=1), step(2), step(2)]
    for mine, theirs in zip(learner.draw.batches(block), memory.batches(block), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_are_those_in_memory_bit_for_bit(strategy: Strategy, mnist: Path) -> None:
    learner, memory = both(mnist, strategy, "lenet", "float32")
    start = learner.initial()
    from_disk = [learner.gradient(start, learner.load(step(index)))[0] for index in range(3)]
    learner.draw = memory
    in_memory = [learner.gradient(start, learner.load(step(index)))[0] for index in range(3)]
    assert all(map(torch.equal, from_disk, in_memory))


def test_only_the_first_few_are_in_memory(mnist: Path) -> None:
    learner: Any = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    assert learner.num_samples == 60
    assert len(learner.examples.train.labels) == 32
    assert len(learner.examples.test.labels) == 20


def test_without_more_words_records_are_read_in_runs(mnist: Path) -> None:
    learner: Any = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    learner.load(step(0, worker=1))
    counts = learner.draw.reads(1)
    assert (counts.requests, counts.seeks, counts.bytes) == (1, 1, 20 * 792)
    assert learner.draw.reads(2).requests == 0


def test_a_forked_process_opens_and_counts_for_itself(mnist: Path) -> None:
    learner: Any = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    learner.load(step(0))
    before = os.fstat(learner.draw._opened._handle)
    child = os.fork()
    if not child:
        os._exit(0 if learner.draw.reads(0).requests == 0 and learner.draw.batch(step(1)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.fstat(learner.draw._opened._handle).st_ino == before.st_ino
    assert learner.draw.reads(0).requests == 1


def test_many_readers_free_what_has_not_been_asked_for_longest(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_files, "KEPT", 2 * 1024 * 792)
    learner: Any = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    for worker in (0, 1, 0, 2, 0, 1):
        learner.load(step(0, worker=worker))
    assert [learner.draw.reads(worker).requests for worker in range(3)] == [1, 2, 1]


OWN = """
from torch import nn


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def flat():
    return nn.Linear(784, 10), (784,)


def narrow():
    return nn.Linear(64, 10), (64,)


def regression():
    def off(outputs, labels):
        return (outputs[:, 0] - labels).abs().mean()

    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1)), None, off
"""


def test_a_module_of_ones_own_takes_records_by_name(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    asked: dict[str, Any] = {"dataset": "records", "data_dir": str(mnist)}
    for function in ("net", "flat", "regression"):
        assert problems(f"own.py:{function}", learning="train", **asked) == []
        learner = build(f"own.py:{function}", seed=1, **asked)
        gradient, _ = learner.gradient(learner.initial(), learner.load(step(0)))
        assert torch.isfinite(gradient).all()
    assert num_samples("own.py:net", learning="train", **asked) == 60
    assert record_bytes("own.py:net", learning="train", **asked) == 792
    (line,) = problems("own.py:narrow", learning="train", **asked)
    assert "found samples of 1 × 28 × 28 in" in line and "expected 64: what the model takes" in line


# --- figures of a workload -------------------------------------------------------------------------------------------


def test_a_record_has_the_bytes_that_converting_gives_it(mnist: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"dataset": "records", "data_dir": str(mnist)}
    for learning in ("train", "none"):
        assert record_bytes("lenet", learning=learning, **asked) == recorded(mnist).train.record_bytes
        assert num_samples("lenet", learning=learning, **asked) == 60
    told = {name: record_bytes(name, dataset=None, data_dir=None, learning="none") for name in ("lenet", "small-cnn")}
    assert told == {"lenet": 28 * 28 + 8, "small-cnn": 3 * 32 * 32 + 8}
    out = converted("digits", tmp_path, tmp_path / "digits")
    assert (
        record_bytes("digits-cnn", dataset=None, data_dir=None, learning="train")
        == recorded(out).train.record_bytes
        == RecordFile.open(out / TEST).record_bytes
    )
    assert record_bytes("resnet50", dataset=None, data_dir=None, learning="none") == 3 * 224 * 224 + 8
    assert record_bytes("transformer", dataset=None, data_dir=None, learning="none") is None


SCENARIO = """
name: tiny
algorithms: [sync-sgd]
workload: {model: lenet, dataset: records, data_dir: records, batch_per_worker: 5, reading: {strategy: strided}}
cluster: {nodes: [{device: {name: a, overhead: 4 ms, per_sample: 1 ms}, workers_per_node: 4}]}
stop: {epochs: 1}
"""


def test_a_scenario_says_how_records_are_read(mnist: Path) -> None:
    (mnist.parent / "tiny.yaml").write_text(SCENARIO, encoding="utf-8")
    scenario = load(mnist.parent / "tiny.yaml")
    assert scenario.workload.num_samples == 60
    draw = scenario.workload.learner(1).draw  # type: ignore[attr-defined]
    assert (draw.order.strategy, draw.file.path) == ("strided", mnist / TRAIN)
    assert load(scenario.dump()) == scenario
    with pytest.raises(ScenarioError, match="at most 15, so that 4"):
        load(mnist.parent / "tiny.yaml", ["workload.batch_per_worker=16"])


# --- what is wrong ---------------------------------------------------------------------------------------------------


def changed(key: str, value: Any) -> Callable[[Path], None]:
    """Writes dataset.json with another value at a key, such as train.records."""

    def change(folder: Path) -> None:
        *outer, last = key.split(".")

        def alter(about: dict[str, Any]) -> None:
            for name in outer:
                about = about[name]
            about[last] = value

        rewrite(folder / ABOUT, alter)

    return change


def shortened(folder: Path) -> None:
    os.truncate(folder / TRAIN, 192 + 17 * 792 + 1)  # the header is as long as three lines of 64 bytes


def mislabelled(folder: Path) -> None:
    records = np.load(folder / TEST)
    records["label"][3] = 10
    write_records(folder / TEST, [records], count=len(records), dtype=records.dtype)


def relabelled(folder: Path) -> None:
    """The header says another type of label, of as many bytes."""
    content = (folder / TRAIN).read_bytes()
    assert b"'<i8'" in content[:192]
    (folder / TRAIN).write_bytes(content.replace(b"'<i8'", b"'<u8'", 1))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / TEST).unlink(), "test.npy cannot be read: No such file"),
        (lambda folder: (folder / ABOUT).unlink(), "dataset.json: cannot be read (No such file"),
        (lambda folder: (folder / ABOUT).write_text("{"), "dataset.json: not valid JSON: line 1, column 2"),
        (lambda folder: (folder / ABOUT).write_text("{}"), "dataset.json: found no 'checksum'"),
        (lambda folder: (folder / "train.checksums").unlink(), "train.checksums: cannot be read (No such file"),
        (lambda folder: flip(folder / "train.checksums", 0), "train.checksums: is damaged: found checksum"),
        (relabelled, "train.npy is damaged: its checksum is not the one in dataset.json"),
        (changed("format", 2), "dataset.json: format is not as expected: Input should be 1"),
        (changed("labels", "numbers"), "dataset.json: labels is not as expected"),
        (changed("train.records", 59), "found 60 records of 1 × 28 × 28 in"),
        (changed("shape", [1, 14, 56]), "expected the 60 records of 1 × 14 × 56 that dataset.json says"),
        (changed("normalisation.mean", [1.0, 2.0]), "found 2 means and 1 deviations, expected one for each channel"),
        (changed("classes", 11), "found 11 classes in it, expected at most the 10"),
        (shortened, "expected 47,712: it ends inside record 17 at offset 13,656"),
    ],
)
def test_what_is_wrong_with_a_folder_is_told(damage: Callable[[Path], Any], words: str, mnist: Path) -> None:
    damage(mnist)
    for learning in ("train", "none"):
        (line,) = problems("lenet", dataset="records", data_dir=str(mnist), learning=learning)
        assert line.startswith("data_dir: ")
        assert words in line
        assert str(mnist) in line or "classes in it" in line


def test_a_missing_folder_and_another_shape_are_told(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    (line,) = problems("lenet", dataset="records", data_dir=None, learning="train")
    assert "missing; expected the folder of records" in line and "paceline convert" in line
    (line,) = problems("lenet", dataset="records", data_dir="/nowhere", learning="none")
    assert line.startswith("data_dir: found no folder /nowhere; expected in it train.npy, test.npy and dataset.json")
    (line,) = problems("small-cnn", dataset="records", data_dir=str(mnist), learning="train")
    assert line.startswith(f"data_dir: found samples of 1 × 28 × 28 in {mnist}, expected 3 × 32 × 32")


def test_labels_that_are_no_classes_are_told_by_their_place(mnist: Path) -> None:
    mislabelled(mnist)
    seal_records(mnist)
    with pytest.raises(InputError, match=r"found label 10 in record 3 of .*test.npy, at offset 2,568; expected 0 to 9"):
        build("lenet", dataset="records", data_dir=str(mnist), seed=1)


def test_a_damaged_record_is_told_when_it_is_read(mnist: Path) -> None:
    """One other bit in one record: the batches without it are read as before."""
    learner = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    file = recorded(mnist).train
    flip(file.path, file.offset(5) + 100)
    assert file.offset(5) == 4_152
    where = r"record 5 of .*train\.npy, at offset 4,152, is damaged: its checksum is not that"
    with pytest.raises(InputError, match=where):
        _ = [learner.load(step(index)) for index in range(3)]


def test_a_damaged_record_that_is_held_out_is_told_at_once(mnist: Path) -> None:
    flip(mnist / TEST, 1000)
    with pytest.raises(InputError, match=r"record 1 of .*test\.npy, at offset 984, is damaged"):
        build("lenet", dataset="records", data_dir=str(mnist), seed=1)


def test_a_file_that_is_cut_while_it_is_learned_from_is_told(mnist: Path) -> None:
    learner = build("lenet", dataset="records", data_dir=str(mnist), seed=1)
    shortened(mnist)
    with pytest.raises(InputError, match=r"found 13,657 bytes in .*train.npy, .* inside record 17 at offset 13,656"):
        learner.load(step(0))
