"""Values as bytes: a header, followed by every vector as raw numbers.

Rules of this file:

* The format is a stream: a reader knows from the bytes so far what comes next. So a message may pass in pieces of any
  size, and its numbers are copied once when written and once when read.
* Encoding exposes the vectors' own memory without a copy. The sender copies it before a `Send` completes: this is the
  snapshot that `Send` promises.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paceline.algorithms.core.values import Null

HEAD = struct.Struct("<qq")
"""bytes of the skeleton, number of vectors"""
Bytes = npt.NDArray[np.uint8]
LENGTH = struct.Struct("<q")


class _Pickler(pickle.Pickler):
    """Pickles tensors as NumPy buffers, out of band; NumPy itself does the same with protocol 5.

    A `Null` is sent as zeros of the same size: a run that only measures times must send as many bytes.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _tensor, (value.detach().contiguous().numpy(),)
        if isinstance(value, Null):
            return _null, (value.count, value.item_bytes, np.zeros(value.nbytes, np.uint8))
        return NotImplemented


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(array)


def _null(count: int, item_bytes: int, _: Bytes) -> Null:
    return Null(count, item_bytes)


def parts(value: Any) -> list[Bytes]:
    """Returns the parts of a message in order: the header, and the vectors, which share the value's memory."""
    buffers: list[pickle.PickleBuffer] = []
    skeleton = io.BytesIO()
    _Pickler(skeleton, protocol=5, buffer_callback=buffers.append).dump(value)
    vectors = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    lengths = b"".join(LENGTH.pack(len(vector)) for vector in vectors)
    pickled = skeleton.getvalue()
    head = np.frombuffer(b"".join((HEAD.pack(len(pickled), len(vectors)), lengths, pickled)), np.uint8)
    return [head, *vectors]


def encode(value: Any) -> torch.Tensor:
    """Returns the whole message as a new byte tensor.

    >>> decode(encode(("hello", np.arange(3.0))).numpy())
    ('hello', array([0., 1., 2.]))
    """
    return torch.from_numpy(np.concatenate(parts(value)))


def chunks(data: torch.Tensor, capacity: int) -> list[torch.Tensor]:
    """Splits `data` into pieces that fit a receive buffer of `capacity` bytes: gloo aborts on a larger message."""
    return [data[i : i + capacity] for i in range(0, len(data), capacity)]


class Assembly:
    """A message that arrives in pieces.

    >>> assembly, data = Assembly(), encode("hello").numpy()
    >>> for at in range(0, len(data), 9):
    ...     assembly.take(data[at : at + 9])
    >>> assembly.whole, assembly.value
    (True, 'hello')
    """

    def __init__(self) -> None:
        self._steps = _assembled()
        self.wants: Bytes = next(self._steps)
        """memory for the bytes that come next"""
        self.whole = False
        self.value: Any = None

    def fill(self, size: int) -> None:
        """Records that `size` bytes of `wants` have been filled."""
        self.wants = self.wants[size:]
        if len(self.wants):
            return
        try:
            self.wants = next(self._steps)
        except StopIteration as stop:
            self.whole, self.value = True, stop.value

    def take(self, piece: Bytes) -> None:
        """Fills from the next piece and ignores bytes after the end of the message."""
        while len(piece) and not self.whole:
            size = min(len(self.wants), len(piece))
            self.wants[:size] = piece[:size]
            piece = piece[size:]
            self.fill(size)


def _assembled() -> Generator[Bytes, None, Any]:
    """Yields one buffer after another to be filled, in the order of `parts`; returns the value."""
    yield (head := np.empty(HEAD.size, np.uint8))
    skeleton, count = HEAD.unpack(head.data)
    yield (rest := np.empty(count * LENGTH.size + skeleton, np.uint8))
    buffers = [np.empty(LENGTH.unpack_from(rest.data, i * LENGTH.size)[0], np.uint8) for i in range(count)]
    yield from (buffer for buffer in buffers if len(buffer))
    return pickle.loads(rest[count * LENGTH.size :].data, buffers=buffers)


def decode(data: Bytes) -> Any:
    """Returns the value at the start of `data`, which may be longer than the message; vectors are writable copies."""
    assembly = Assembly()
    assembly.take(data)
    return assembly.value
