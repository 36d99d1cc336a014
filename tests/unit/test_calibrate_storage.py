"""Calibrating storage: known figures are found again; scratch files are on a disk and are removed afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.backend.calibration.storage_costs import (
    MEMORY,
    Kind,
    Readers,
    Requests,
    StorageProbe,
    calibrate,
    file_system,
    fitted,
    limits,
    scratch,
)
from paceline.scenarios.sections import reading
from paceline.topologies.catalogue.storage_devices import StorageModel
from tests.records import numbered

RECORD = 4096


def times(storage: StorageModel, pause_s: float) -> dict[Kind, list[float]]:
    """Bursts on storage that behaves exactly as the model: the second of three was disturbed."""
    found = {}
    for records in (1, 256):
        found[1, records] = storage.latency_s + records * RECORD / storage.reader_bytes_per_s + pause_s
    for readers in (2, 4):
        found[readers, 1] = max(found[1, 1], readers / storage.requests_per_s(readers))
        found[readers, 256] = storage.latency_s + readers * 256 * RECORD / storage.bytes_per_s + pause_s
    return {kind: [seconds, 10 * seconds, seconds] for kind, seconds in found.items()}


@pytest.mark.parametrize("pause_s", [0.0, 1e-5])
@pytest.mark.parametrize(
    "storage",
    [
        StorageModel(name="x", latency_s=8e-5, bytes_per_s=1e9, depth=1.6),
        StorageModel(name="x", latency_s=2e-4, bytes_per_s=5e8, depth=2.5),
        StorageModel(name="x", latency_s=1e-4, bytes_per_s=2e9, one_bytes_per_s=1.2e9, waiting=0.3),
    ],
)
def test_what_behaves_as_the_model_is_found_again(storage: StorageModel, pause_s: float) -> None:
    timed = times(storage, pause_s)
    found = fitted(timed, RECORD, pause_s=pause_s, name="x", past_cache="O_DIRECT", read_ahead_bytes=None)
    assert found.latency_s == pytest.approx(storage.latency_s, rel=1e-6)
    assert found.bytes_per_s == pytest.approx(storage.bytes_per_s, rel=1e-6)
    assert found.reader_bytes_per_s == pytest.approx(storage.reader_bytes_per_s, rel=1e-6)
    assert found.waiting == pytest.approx(storage.waiting, abs=0.011)
    assert (found.depth or 4) == pytest.approx(storage.depth or 4, abs=0.051)
    assert found.read_ahead_bytes is None
    assert set(found.provenance) == {"latency", "bandwidth", "reader", "depth", "waiting"}
    assert all(words.startswith("measured") and "O_DIRECT" in words for words in found.provenance.values())


def test_one_reader_alone_says_nothing_of_several() -> None:
    assert limits({1: 100.0}, latency_s=0.01) == (None, 0.0)


def test_large_requests_that_were_as_quick_as_small_ones_show_no_limit() -> None:
    """One reader, and disturbed bursts: bytes and latency cannot be separated."""
    found = fitted(
        {(1, 1): [0.002], (1, 256): [0.001]},
        RECORD,
        pause_s=0.0,
        name="x",
        past_cache="O_DIRECT",
        read_ahead_bytes=None,
    )
    assert found.latency_s == pytest.approx(0.002, rel=1e-6)
    assert found.bytes_per_s > 1e12 and found.depth is None


def on_disk(path: Path) -> Path:
    if file_system(path) in MEMORY:
        pytest.skip(f"{path} is in memory")
    return path


def test_a_scratch_file_is_as_large_as_asked_for_and_goes(tmp_path: Path) -> None:
    with scratch(on_disk(tmp_path), mebibytes=0.5, inputs=1000) as file:
        assert file.record_bytes == 1008
        assert file.path.stat().st_size == pytest.approx(0.5 * 2**20, rel=0.01)
        (own,) = tmp_path.iterdir()
    assert not own.exists()
    with pytest.raises(ZeroDivisionError), scratch(tmp_path, mebibytes=0.1, inputs=10):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(file_system(Path("/dev/shm")) not in MEMORY, reason="needs a file system in memory")
def test_memory_is_no_storage() -> None:
    with (
        pytest.raises(
            InputError, match=r"/dev/shm: found a file system in memory \(\w+\), expected a folder on a disk"
        ),
        scratch(Path("/dev/shm"), mebibytes=1, inputs=10),
    ):
        pass


@pytest.mark.backend
@pytest.mark.parametrize("direct", [True, False])
def test_bursts_are_timed_by_readers_and_size(tmp_path: Path, direct: bool) -> None:
    file = numbered(tmp_path / "data.npy", 400)
    with Readers(file, 3, direct=direct) as readers:
        assert readers.bypassed or (readers.past_cache != "" and "O_DIRECT" not in readers.past_cache)
        probe = StorageProbe(readers, pause_s=1e-6)
        assert probe.kinds == [(1, 1), (1, 100), (2, 1), (2, 100), (3, 1), (3, 100)]
        for _ in range(2):
            for kind in probe.kinds:
                probe.time(kind)
        assert all(len(times) == 2 and min(times) > 0 for times in probe.timed.values())
        assert probe.storage().latency_s >= 0 and probe.storage(1).bytes_per_s > 0


@pytest.mark.backend
def test_calibrating_answers_storage_that_a_scenario_takes(tmp_path: Path) -> None:
    found = calibrate(on_disk(tmp_path), mebibytes=0.5, inputs=504, readers=2, turns=2)
    assert found.bytes_per_s > 0 and found.title.startswith("measured")
    assert list(tmp_path.iterdir()) == []
    values = {"latency": f"{found.latency_s} s", "bandwidth": f"{found.bytes_per_s} B/s", "depth": found.depth}
    given = reading.Storage.model_validate(values | {"read_ahead": None, "waiting": found.waiting})
    assert given.build().depth == found.depth and given.build().waiting == found.waiting
    assert given.build().latency_s == pytest.approx(found.latency_s)


@pytest.mark.backend
def test_a_reader_that_fails_is_told(tmp_path: Path) -> None:
    file = numbered(tmp_path / "data.npy", 40)
    with Readers(file, 2) as readers, pytest.raises(RunFailed, match="a reader failed"):
        readers.seconds([Requests(41, 1, 1, 0.0), Requests(1, 1, 1, 0.0)])
