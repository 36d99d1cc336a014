"""Values as bytes: a head, and behind it every vector as raw numbers.

Rules of this file:

* The format is a stream: whoever reads knows from what has come what comes next. So a message may pass in pieces of any
  size, and its numbers are copied once on the way in and once on the way out.
* Encoding shows the vectors as they are, without a copy. Whoever sends copies before a `Send` is over: that is the
  snapshot which it promises.
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
"""skeleton bytes, number of vectors"""
Bytes = npt.NDArray[np.uint8]
LENGTH = struct.Struct("<q")


class _Pickler(pickle.Pickler):
    """Takes tensors out of the pickle as NumPy buffers; NumPy itself already does so with protocol 5.

    A `Null` travels as so many zero bytes: a run that only asks how long things take must not send less.
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
    """What a message consists of, in order: the head, and the vectors, which still are the value's own memory."""
    buffers: list[pickle.PickleBuffer] = []
    skeleton = io.BytesIO()
    _Pickler(skeleton, protocol=5, buffer_callback=buffers.append).dump(value)
    vectors = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    lengths = b"".join(LENGTH.pack(len(vector)) for vector in vectors)
    pickled = skeleton.getvalue()
    head = np.frombuffer(b"".join((HEAD.pack(len(pickled), len(vectors)), lengths, pickled)), np.uint8)
    return [head, *vectors]


def encode(value: Any) -> torch.Tensor:
    """The whole message as one byte tensor of its own.

    >>> decode(encode(("hello", np.arange(3.0))).numpy())
    ('hello', array([0., 1., 2.]))
    """
    return torch.from_numpy(np.concatenate(parts(value)))


def chunks(data: torch.Tensor, capacity: int) -> list[torch.Tensor]:
    """`data` in pieces that fit a receive buffer of `capacity` bytes: gloo aborts the process on a larger message."""
    return [data[i : i + capacity] for i in range(0, len(data), capacity)]


class Assembly:
    """A message that comes in pieces.

    >>> assembly, data = Assembly(), encode("hello").numpy()
    >>> for at in range(0, len(data), 9):
    ...     assembly.take(data[at : at + 9])
    >>> assembly.whole, assembly.value
    (True, 'hello')
    """

    def __init__(self) -> None:
        self._steps = _assembled()
        self.wants: Bytes = next(self._steps)
        """room for what comes next"""
        self.whole = False
        self.value: Any = None

    def fill(self, size: int) -> None:
        """So many bytes of what it wanted have been filled."""
        self.wants = self.wants[size:]
        if len(self.wants):
            return
        try:
            self.wants = next(self._steps)
        except StopIteration as stop:
            self.whole, self.value = True, stop.value

    def take(self, piece: Bytes) -> None:
        """Fills from the next piece; what is behind the message's end is left alone."""
        while len(piece) and not self.whole:
            size = min(len(self.wants), len(piece))
            self.wants[:size] = piece[:size]
            piece = piece[size:]
            self.fill(size)


def _assembled() -> Generator[Bytes, None, Any]:
    """Asks for room after room to be filled, in the order of `parts`; returns the value."""
    yield (head := np.empty(HEAD.size, np.uint8))
    skeleton, count = HEAD.unpack(head.data)
    yield (rest := np.empty(count * LENGTH.size + skeleton, np.uint8))
    buffers = [np.empty(LENGTH.unpack_from(rest.data, i * LENGTH.size)[0], np.uint8) for i in range(count)]
    yield from (buffer for buffer in buffers if len(buffer))
    return pickle.loads(rest[count * LENGTH.size :].data, buffers=buffers)


def decode(data: Bytes) -> Any:
    """The value in front of `data`, which may be longer than the message. The vectors are copied out and writable."""
    assembly = Assembly()
    assembly.take(data)
    return assembly.value
