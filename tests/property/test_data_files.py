"""Data sets in files: data written in the true format is read unchanged; truncated files are refused."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paceline.algorithms.core.errors import InputError
from paceline.workloads.datasets.dataset_files import CIFAR100, LABELS, NAMES, PICTURES, read_idx, read_idx_files
from tests import datasets

BYTES = arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4)))
COUNTS = st.integers(1, 6)


@given(data=BYTES, packed=st.booleans())
def test_idx_round_trip(data: np.ndarray, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pictures.gz" if packed else "pictures")
        datasets.write_idx(path, data)
        np.testing.assert_array_equal(read_idx(path, PICTURES), data)
        datasets.write_idx(path, data[:, 0, 0])
        np.testing.assert_array_equal(read_idx(path, LABELS), data[:, 0, 0])


@given(data=BYTES, cut=st.integers(1, 10**6), packed=st.booleans())
def test_a_cut_or_a_longer_idx_file_is_refused(data: np.ndarray, cut: int, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pictures.gz" if packed else "pictures")
        datasets.write_idx(path, data)
        whole = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        for wrong in (whole[: len(whole) - 1 - cut % len(whole)], whole + b"x"):
            path.write_bytes(gzip.compress(wrong) if packed else wrong)
            with pytest.raises(InputError, match="pictures"):
                read_idx(path, PICTURES)


@given(train=COUNTS, test=COUNTS, data=st.data())
def test_the_four_files_are_read_as_they_were_written(train: int, test: int, data: st.DataObject) -> None:
    wanted = []
    with tempfile.TemporaryDirectory() as folder:
        for names, count in ((NAMES[:2], train), (NAMES[2:], test)):
            pictures = data.draw(arrays(np.uint8, (count, 28, 28), fill=st.integers(0, 255)))
            labels = data.draw(arrays(np.uint8, count, elements=st.integers(0, 9)))
            datasets.write_idx(Path(folder, names[0]), pictures)
            datasets.write_idx(Path(folder, names[1] + ".gz"), labels)
            wanted.append((pictures, labels))
        loaded = read_idx_files(Path(folder))
    for half, (pictures, labels) in zip((loaded.train, loaded.test), wanted, strict=True):
        np.testing.assert_array_equal(half.pictures[:, 0], pictures)
        np.testing.assert_array_equal(half.labels, labels)


@given(rows=st.lists(st.tuples(st.integers(0, 255), st.integers(0, 99)), min_size=1, max_size=6))
def test_batches_are_read_as_they_were_written(rows: list[tuple[int, int]]) -> None:
    shades, labels = np.array(rows).T
    pictures = np.broadcast_to(shades[:, None], (len(rows), 3072)).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("train", "test"):
            datasets.write_batch(Path(folder, name), {b"data": pictures, b"fine_labels": labels.tolist()})
        loaded = CIFAR100.read(Path(folder))
    for half in (loaded.train, loaded.test):
        np.testing.assert_array_equal(half.pictures.reshape(len(rows), -1), pictures)
        np.testing.assert_array_equal(half.labels, labels)
