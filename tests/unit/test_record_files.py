"""Record files and their readers: they are read as written, and truncated or wrong files are reported."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Samples
from paceline.workloads.reading import Order, Piece, Strategy
from paceline.workloads.reading.file import RecordFile, checksums_of, record_dtype, records_of, write_records
from paceline.workloads.reading.reader import BLOCK, Counts, Opened, Reader
from tests.records import numbered


def order_of(file: RecordFile, strategy: Strategy = "contiguous", buffer: int = 4) -> Order:
    return Order(strategy=strategy, num_samples=file.num_samples, seed=1, buffer=buffer)


def step(index: int, count: int = 3, worker: int = 0, workers: int = 2) -> Samples:
    return Samples(worker, workers, index, count)


# --- the file --------------------------------------------------------------------------------------------------------


def test_numpy_opens_a_record_file_in_one_line(tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 20, shape=(3, 2, 2))
    mapped = np.load(tmp_path / "train.npy", mmap_mode="r")
    assert mapped["label"].tolist() == list(range(20))
    assert mapped["inputs"].shape == (20, 3, 2, 2)
    assert (file.num_samples, file.record_bytes, file.shape) == (20, 3 * 4 + 8, (3, 2, 2))
    assert file.data_offset == mapped.offset
    assert file.end == (tmp_path / "train.npy").stat().st_size


def test_what_numpy_saves_is_a_record_file(tmp_path: Path) -> None:
    made = np.zeros(5, np.dtype([("inputs", "f8", (4,)), ("label", "i4")], align=True))
    np.save(tmp_path / "mine.npy", made)
    file = RecordFile.open(tmp_path / "mine.npy")
    assert (file.num_samples, file.shape, file.dtype) == (5, (4,), made.dtype)


def test_the_checksum_is_the_files(tmp_path: Path) -> None:
    records = records_of(np.zeros((9, 2), np.float32), np.arange(9))
    sums = write_records(tmp_path / "x.npy", [records[:4], records[4:]], count=9, dtype=records.dtype)
    assert sums.sha256 == hashlib.sha256((tmp_path / "x.npy").read_bytes()).hexdigest()
    file = RecordFile.open(tmp_path / "x.npy")
    assert sums.header == file.header_checksum()
    assert sums.records.tolist() == checksums_of(records).tolist()
    assert len(set(sums.records.tolist())) == 9


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_a_file_appears_whole_or_not_at_all(error: type[BaseException], tmp_path: Path) -> None:
    def chunks() -> Iterator[Any]:
        yield np.zeros(3, record_dtype(np.uint8, (2,)))
        assert not (tmp_path / "x.npy").exists()
        raise error

    with pytest.raises(error):
        write_records(tmp_path / "x.npy", chunks(), count=6, dtype=record_dtype(np.uint8, (2,)))
    assert list(tmp_path.iterdir()) == []


def test_fewer_records_than_said_are_no_file(tmp_path: Path) -> None:
    records = np.zeros(3, record_dtype(np.uint8, (2,)))
    with pytest.raises(InputError, match=r"found 3 records for .*x.npy, expected the 4 that its header says"):
        write_records(tmp_path / "x.npy", [records], count=4, dtype=records.dtype)
    assert list(tmp_path.iterdir()) == []


def cut(file: RecordFile, length: int) -> None:
    os.truncate(file.path, length)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda file: cut(file, 0), "found b'' at offset 0 of {path}, expected b'\\x93NUMPY'"),
        (lambda file: cut(file, 40), "the header of {path}, at offset 6, cannot be read: EOF"),
        (lambda file: cut(file, file.data_offset), "expected {end}: it ends before record 0 at offset {first}"),
        (lambda file: cut(file, file.offset(17)), "it ends before record 17 at offset {seventeenth}"),
        (lambda file: cut(file, file.offset(17) + 1), "it ends inside record 17 at offset {seventeenth}"),
        (lambda file: cut(file, file.end + 5), "expected {end}: 5 more than its header says, from offset {end}"),
        (lambda file: file.path.write_bytes(b"PK\x03\x04 and so on"), "found b'PK\\x03\\x04 a' at offset 0 of {path}"),
        (lambda file: file.path.unlink(), "{path} cannot be read: No such file or directory; expected a .npy file"),
        (lambda file: np.save(file.path, np.zeros(3)), "found 3 of float64 in {path}, expected a .npy file"),
        (lambda file: np.save(file.path, np.zeros(0, file.dtype)), "found 0 of"),
        (lambda file: np.save(file.path, np.zeros((2, 2), file.dtype)), "found 2 × 2 of"),
        (lambda file: np.save(file.path, np.zeros(2, [("inputs", ">f4", 3), ("label", "i8")])), "found 2 of"),
        (lambda file: np.save(file.path, np.zeros(2, [("inputs", "u1", 3), ("label", "f8")])), "found 2 of"),
        (lambda file: np.save(file.path, np.array([None]), allow_pickle=True), "found 1 of object in {path}"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(damage: Callable[[RecordFile], Any], words: str, tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    damage(file)
    with pytest.raises(InputError) as caught:
        RecordFile.open(file.path)
    told = words.format(path=file.path, end=file.end, first=file.offset(0), seventeenth=file.offset(17))
    assert told in str(caught.value)


# --- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True], ids=["cached", "direct"])
@pytest.mark.parametrize("strategy", ["scattered", "strided", "contiguous"])
def test_a_reader_answers_the_records_that_the_order_says(strategy: Strategy, direct: bool, tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 23, shape=(3, 50, 40))
    order, whole = order_of(file, strategy), np.load(file.path)
    reader = Reader(file, order, direct=direct)
    for index in [0, 1, 2, 2, 9, 3, 40]:
        wanted = whole[order.positions(step(index))]
        np.testing.assert_array_equal(reader.records(step(index)), wanted)
    reader.close()


def test_requests_seeks_and_bytes_are_counted(tmp_path: Path) -> None:
    """Windows of 4 records of a run of 10, three a step; then the other half of the file, which needs a seek back."""
    file = numbered(tmp_path / "train.npy", 20)
    reader = Reader(file, order_of(file))
    counts = []
    for index in range(4):
        reader.records(step(index, worker=1))
        counts.append(reader.counts)
    size = file.record_bytes
    assert counts == [
        Counts(1, 1, 4 * size),
        Counts(2, 1, 8 * size),
        Counts(3, 1, 10 * size),
        Counts(4, 2, 14 * size),
    ]


def test_scattered_records_are_a_request_each(tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    reader = Reader(file, order_of(file, "scattered"))
    places = order_of(file, "scattered").positions(step(0))
    reader.records(step(0))
    jumps = 1 + int((np.diff(places) != 1).sum())
    assert reader.counts == Counts(3, jumps, 3 * file.record_bytes)


def test_what_is_forgotten_is_read_anew(tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    reader = Reader(file, order_of(file, buffer=10))
    reader.records(step(0))
    reader.records(step(1))
    assert reader.counts.requests == 1
    reader.forget()
    reader.records(step(2))
    assert reader.counts.requests == 2


@pytest.mark.parametrize("direct", [False, True], ids=["cached", "direct"])
@pytest.mark.parametrize(("left", "words"), [(17, "inside record 17"), (1, "inside record 1 "), (-1, "its header")])
def test_a_file_that_is_cut_while_it_is_read_is_told(left: int, words: str, direct: bool, tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 20, shape=(300, 40))
    reader = Reader(file, order_of(file), direct=direct)
    reader.records(step(0, worker=1))
    cut(file, max(file.offset(left) + 5, 5))
    with pytest.raises(InputError) as caught:
        [reader.records(step(index, worker=1)) for index in range(1, 4)]
    assert f"bytes in {file.path}, expected {file.end:,}: it ends inside" in str(caught.value)
    assert words in str(caught.value)


def test_a_reader_goes_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    reader = Reader(file, order_of(file))
    reader.records(step(0))

    def fails(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "preadv", fails)
        with pytest.raises(OSError, match="Input/output"):
            reader.records(step(1))
    assert reader.records(step(1))["label"].tolist() == order_of(file).positions(step(1)).tolist()


def test_what_is_read_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda handle, parts, at: preadv(handle, [parts[0][:13]], at))
    reader = Reader(file, order_of(file))
    assert reader.records(step(1))["label"].tolist() == order_of(file).positions(step(1)).tolist()
    assert reader.counts.requests == 2


@pytest.mark.parametrize("when", ["opened", "read"])
def test_where_direct_reading_is_refused_the_page_cache_serves_and_it_is_noted(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    plain_open, plain_read, direct = os.open, os.preadv, set[int]()

    def opening(path: Path, flags: int) -> int:
        if flags & os.O_DIRECT and when == "opened":
            raise OSError(errno.EINVAL, "Invalid argument")
        handle = plain_open(path, flags & ~os.O_DIRECT)
        direct.discard(handle)
        if flags & os.O_DIRECT:
            direct.add(handle)
        return handle

    def reading(handle: int, *more: Any) -> int:
        if handle in direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_read(handle, *more)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "preadv", reading)
    reader = Reader(file, order_of(file), direct=True)
    assert reader.records(step(1))["label"].tolist() == order_of(file).positions(step(1)).tolist()
    assert reader.note is not None
    assert "through the page cache, as the file system refuses O_DIRECT" in reader.note
    assert str(file.path) in reader.note
    reader.close()


def test_direct_reading_asks_for_whole_blocks_in_aligned_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = numbered(tmp_path / "train.npy", 200, shape=(300,))
    plain, seen = os.preadv, []

    def watched(handle: int, parts: list[Any], at: int) -> int:
        seen.append((np.frombuffer(parts[0], np.uint8).ctypes.data % BLOCK, len(parts[0]) % BLOCK, at % BLOCK))
        return plain(handle, parts, at)

    monkeypatch.setattr(os, "preadv", watched)
    opened = Opened(file, direct=True)
    for piece in (Piece(0, 1), Piece(13, 27), Piece(190, 10)):
        opened.read(piece)
    opened.close()
    if opened.note is None:  # some file systems refuse; then there is nothing to align
        assert set(seen) == {(0, 0, 0)}


def test_a_reader_may_be_shared_by_threads(tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 60)
    reader, wrong = Reader(file, order_of(file)), list[int]()

    def body() -> None:
        for index in range(50):
            got = reader.records(step(index))["label"].tolist()
            if got != order_of(file).positions(step(index)).tolist():
                wrong.append(index)

    threads = [threading.Thread(target=body) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    reader.close()


def test_a_file_without_readers_is_closed(tmp_path: Path) -> None:
    file = numbered(tmp_path / "train.npy", 20)
    before, reader = files_open(), Reader(file, order_of(file))
    assert files_open() == before + 1
    del reader
    assert files_open() == before
    closed = Reader(file, order_of(file))
    closed.close()
    closed.close()
    assert files_open() == before


def files_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
