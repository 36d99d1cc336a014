"""Record files: NumPy's own `.npy` with one structured array, whose records are samples, each with inputs and a label.

* All records have the same length, so the position of a record is data offset + number × bytes of a record.
* A file is written in chunks under a hidden name, and renamed when it is complete and on the disk.
* Every record has a checksum (XXH3, 64 bits) in a separate file. A reader verifies each record that it has read: an
  order may request any piece, so a checksum of longer pieces would require more reading. It costs 0.4 µs for a record
  of 3 KB, which is little compared with reading it (docs/reading.md).
* The header is compared with the file's length before anything is read. Files are not memory-mapped: if a file is
  truncated, an access to a mapping kills the process, while a read returns an error.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from paceline.algorithms.core.checksums import checksum, reading, verified
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import replacing

Records = NDArray[np.void]
"""a structured array with the fields `inputs` and `label`"""
Checksums = NDArray[np.uint64]
"""checksums of records, in their order"""

LABEL = np.dtype("<i8")
INPUTS = ("uint8", "float32", "float64")
FORM = f"a .npy file of one array of records with the fields inputs ({', '.join(INPUTS)}) and label (whole numbers)"
MAGIC = npy.MAGIC_PREFIX


def record_dtype(inputs: DTypeLike, shape: Sequence[int]) -> np.dtype[np.void]:
    """Returns the type of a record: inputs of this type and shape, and a label of eight bytes.

    Args:
        inputs: type of the inputs.
        shape: shape of a sample's inputs.

    >>> record_dtype(np.uint8, (3, 32, 32)).itemsize
    3080
    """
    return np.dtype([("inputs", np.dtype(inputs).newbyteorder("<"), tuple(shape)), ("label", LABEL)])


def records_of(inputs: NDArray[Any], labels: NDArray[np.integer[Any]]) -> Records:
    """Converts samples to records.

    Args:
        inputs: inputs, shape (samples, …).
        labels: labels, shape (samples,).
    """
    made = np.empty(len(labels), record_dtype(inputs.dtype, inputs.shape[1:]))
    made["inputs"], made["label"] = inputs, labels
    return made


@dataclass(frozen=True, slots=True)
class RecordFile:
    """The description of a record file from its header.

    Args:
        path: path of the file.
        num_samples: number of records.
        data_offset: bytes before the first record.
        dtype: type of a record.
        checksums: checksums of the records, which readers verify; None: records are not verified.
    """

    path: Path
    num_samples: int
    data_offset: int
    dtype: np.dtype[np.void]
    checksums: Checksums | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def open(path: Path | str) -> RecordFile:
        """Opens the file at this path.

        Raises:
            InputError: there is no such file, it has no records, or its length does not match its header.
        """
        path = Path(path)
        try:
            with path.open("rb") as file:
                made = _described(path, file)
                length = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}; expected {FORM}") from error
        if length < made.end:
            raise made.cut_off(length)
        if length > made.end:
            more = f"{length - made.end:,} more than its header says, from offset {made.end:,}"
            raise InputError(f"found {length:,} bytes in {path}, expected {made.end:,}: {more}")
        return made

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return self.dtype.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample's inputs."""
        return self.dtype["inputs"].shape

    @property
    def end(self) -> int:
        """Bytes of the whole file."""
        return self.offset(self.num_samples)

    def offset(self, record: int) -> int:
        """Returns the position of a record, in bytes."""
        return self.data_offset + record * self.record_bytes

    def header_checksum(self) -> str:
        """Returns the checksum of the bytes before the first record."""
        with reading(self.path, FORM), self.path.open("rb") as file:
            return checksum(file.read(self.data_offset))

    def verify(self, first: int, records: Records) -> None:
        """Raises `InputError` for a record that has changed since it was written.

        Args:
            first: number of the first record in the file.
            records: consecutive records.
        """
        if self.checksums is None:
            return
        checksums = self.checksums[first : first + len(records)].tolist()
        for record, (actual, expected) in enumerate(zip(_digests(records), checksums, strict=True), first):
            if actual != expected:
                where = f"record {record:,} of {self.path}, at offset {self.offset(record):,}"
                wrong = "its checksum is not that of when it was written; convert it again"
                raise InputError(f"{where}, is damaged: {wrong}")

    def cut_off(self, length: int) -> InputError:
        """Returns the error for a file that is truncated to this length."""
        record, inside = divmod(length - self.data_offset, self.record_bytes)
        where = f"{'inside' if inside else 'before'} record {record:,} at offset {self.offset(record):,}"
        if record < 0:
            where = f"inside its header, before offset {self.data_offset:,}"
        return InputError(f"found {length:,} bytes in {self.path}, expected {self.end:,}: it ends {where}")


def _described(path: Path, file: IO[bytes]) -> RecordFile:
    """Describes a file by its header; raises `InputError` if it is not that of a record file."""
    start = file.read(len(MAGIC))
    if start != MAGIC:
        raise InputError(f"found {start!r} at offset 0 of {path}, expected {MAGIC!r}: {FORM}")
    file.seek(0)
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except Exception as error:  # NumPy evaluates the header as an expression
        at = f"the header of {path}, at offset {len(MAGIC)}"
        raise InputError(f"{at}, cannot be read: {error}; expected {FORM}") from error
    if len(shape) != 1 or not shape[0] or not _holds_samples(dtype):
        size = " × ".join(map(str, shape)) or "one"
        raise InputError(f"found {size} of {dtype} in {path}, expected {FORM}, and one record at least")
    return RecordFile(path, shape[0], file.tell(), dtype)


def _holds_samples(dtype: np.dtype[Any]) -> bool:
    if dtype.names != ("inputs", "label"):
        return False
    inputs, label = dtype["inputs"], dtype["label"]
    return inputs.base.isnative and inputs.base.name in INPUTS and label.kind in "iu" and label.isnative


def checksums_of(records: Records) -> Checksums:
    """Computes the checksum of each record.

    >>> checksums_of(records_of(np.zeros((2, 3), np.uint8), np.array([0, 0]))).dtype
    dtype('uint64')
    """
    return np.array(_digests(np.ascontiguousarray(records)), np.uint64)


def _digests(records: Records) -> list[int]:
    """Returns checksums as plain numbers: for single records, arrays would take longer than the checksums."""
    size, digest = records.dtype.itemsize, xxhash.xxh3_64_intdigest
    data = records.view(np.uint8).data
    return [digest(data[at : at + size]) for at in range(0, len(data), size)]


def read_checksums(path: Path, expected: str, count: int) -> Checksums:
    """Reads the checksums of a file's records.

    Args:
        path: the file of checksums.
        expected: the checksum of this file.
        count: number of records.

    Raises:
        InputError: the file cannot be read, or has changed since it was written.
    """
    content = verified(path, expected, "the checksums of records")
    if len(content) != count * 8:
        raise InputError(f"found {len(content):,} bytes in {path}, expected {count * 8:,}: eight for each record")
    return np.frombuffer(content, "<u8").astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class FileChecksums:
    """The checksums of a written record file.

    Args:
        sha256: checksum of the whole file, for other programs.
        header: checksum of the bytes before the first record.
        records: checksum of each record.
    """

    sha256: str
    header: str
    records: Checksums


def write_records(path: Path, chunks: Iterable[Records], *, count: int, dtype: np.dtype[np.void]) -> FileChecksums:
    """Writes a record file atomically, chunk after chunk.

    Args:
        path: path of the file; an existing file is replaced.
        chunks: the records.
        count: number of all records.
        dtype: type of a record.

    Returns:
        The checksums.

    Raises:
        InputError: the number of records is not `count`.
    """
    with replacing(path) as hidden, hidden.open("wb") as file:
        sums = _written(file, chunks, count, dtype, path)
        file.flush()
        os.fsync(file.fileno())
    return sums


def _written(
    file: IO[bytes], chunks: Iterable[Records], count: int, dtype: np.dtype[np.void], path: Path
) -> FileChecksums:
    header = io.BytesIO()
    said = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    npy.write_array_header_1_0(header, said)
    whole, written = hashlib.sha256(header.getvalue()), 0
    each = np.empty(count, np.uint64)
    file.write(header.getvalue())
    for chunk in chunks:
        records = np.ascontiguousarray(chunk, dtype)
        data = records.tobytes()
        file.write(data)
        whole.update(data)
        each[written : written + len(chunk)] = checksums_of(records)[: max(0, count - written)]
        written += len(chunk)
    if written != count:
        raise InputError(f"found {written:,} records for {path}, expected the {count:,} that its header says")
    return FileChecksums(whole.hexdigest(), checksum(header.getvalue()), each)
