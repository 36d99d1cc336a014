"""Values as bytes: one flat buffer per message, vectors in it as raw numbers.

Rules of this file: a message is one buffer, because each gloo message costs a rendezvous; its own length stands in
front, because gloo does not tell the receiver how much has come. Encoding copies: that is the snapshot `Send` promises.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paceline.algorithms.values import Null

HEAD = struct.Struct("<qqq")
"""total bytes, skeleton bytes, number of vectors"""
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


def encode(value: Any) -> torch.Tensor:
    """A byte tensor that `decode` turns into an equal value.

    >>> decode(encode(("hello", np.arange(3.0))).numpy())
    ('hello', array([0., 1., 2.]))
    """
    buffers: list[pickle.PickleBuffer] = []
    skeleton = io.BytesIO()
    _Pickler(skeleton, protocol=5, buffer_callback=buffers.append).dump(value)
    parts: list[bytes | memoryview] = [skeleton.getvalue(), *(buffer.raw() for buffer in buffers)]
    lengths = b"".join(LENGTH.pack(len(part)) for part in parts[1:])
    total = HEAD.size + len(lengths) + sum(map(len, parts))
    return torch.frombuffer(
        bytearray(b"".join([HEAD.pack(total, len(parts[0]), len(buffers)), lengths, *parts])), dtype=torch.uint8
    )


def decode(data: Bytes) -> Any:
    """The value in front of `data`, which may be longer than the message. The vectors are copied out and writable."""
    view = memoryview(data.data)
    _, skeleton, count = HEAD.unpack_from(view)
    lengths = [LENGTH.unpack_from(view, HEAD.size + i * LENGTH.size)[0] for i in range(count)]
    at = HEAD.size + count * LENGTH.size
    pickled, at = view[at : at + skeleton], at + skeleton
    buffers = []
    for length in lengths:
        buffers.append(bytearray(view[at : at + length]))
        at += length
    return pickle.loads(pickled, buffers=buffers)


def chunks(data: torch.Tensor, capacity: int) -> list[torch.Tensor]:
    """`data` in pieces that fit a receive buffer of `capacity` bytes: gloo aborts the process on a larger message."""
    return [data[i : i + capacity] for i in range(0, len(data), capacity)]


def total_bytes(data: Bytes) -> int:
    """The length of the whole message that begins in `data`."""
    return int(HEAD.unpack_from(memoryview(data.data))[0])
