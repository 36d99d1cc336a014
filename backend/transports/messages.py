"""Messages: values as bytes, and the inbox of those that have arrived and that the program has not received yet.

Rules of this file:

* The format is a stream: a reader knows from the bytes so far what comes next. So a message may pass in pieces of any
  size, and its numbers are copied once when written and once when read.
* Encoding exposes the vectors' own memory without a copy. The sender copies it before a `Send` completes: this is the
  snapshot that `Send` promises.
* A transport delivers messages with `put` from a thread of its own. A receive takes the matching message that was
  sent first. So a `Send` completes whatever the receiver's program is doing, and a timeout affects no other operation.
* Messages in shared memory are fetched by the receiving threads themselves, one at a time: waking another thread takes
  longer than copying a small message.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from paceline.algorithms.core.errors import PacelineError, PeerFailed, TimedOut
from paceline.algorithms.core.values import Null, Rank
from paceline.algorithms.runtime.mail import Envelope, Inbox
from paceline.backend.status.status_board import Lost

HEAD = struct.Struct("<qq")
"""bytes of the skeleton, number of vectors"""
Bytes = npt.NDArray[np.uint8]
LENGTH = struct.Struct("<q")


class _MessagePickler(pickle.Pickler):
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
    _MessagePickler(skeleton, protocol=5, buffer_callback=buffers.append).dump(value)
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


POLL_S = 0.05
"""how often a waiting thread checks whether a peer has died"""


class OperationCancelled(PacelineError):
    """The operation was cancelled by `Cancel`."""


@dataclass
class ReceiveClaim:
    """A pending receive. It is open until it has its message or is cancelled."""

    inbox: ThreadedInbox
    open: bool = True
    turn: int = 0
    """its position among the completed receives of this rank"""

    def give_up(self) -> bool:
        """Cancels the receive; returns False if it has its message already."""
        return self.inbox.close(self)


class Fetcher(Protocol):
    """Fetches messages on request."""

    def fetch(self, seconds: float) -> None:
        """Moves available messages into the inbox; if there are none, waits up to `seconds` for one."""
        ...

    def call(self) -> None:
        """Ends a `fetch` that waits or is about to wait."""
        ...


class ThreadedInbox:
    """The inbox of a rank whose lanes are threads.

    Args:
        lost: returns the dead rank for which a wait cannot end.
        everyone: all ranks of the run.
    """

    def __init__(self, lost: Lost, everyone: Iterable[Rank]) -> None:
        self.fetcher: Fetcher | None = None
        self._fetching = False
        self._messages, self._everyone = Inbox[Envelope](), tuple(everyone)
        self._gone = set[Rank]()
        """ranks whose death has been reported"""
        self._changed = threading.Condition()
        self._lost = lost
        self._ended = count()

    def put(self, envelope: Envelope) -> None:
        """Adds a message; messages of a rank whose death has been reported are dropped."""
        with self._changed:
            if envelope.source not in self._gone:
                self._messages.sort_in(envelope)
                self._notify()

    def _notify(self) -> None:
        """Wakes the waiting threads, so that they check again."""
        self._changed.notify_all()
        if self._fetching and self.fetcher is not None:
            self.fetcher.call()

    def _pause(self, seconds: float) -> None:
        """Waits until something may have changed; the first waiting thread fetches."""
        if self.fetcher is None or self._fetching:
            if seconds:
                self._changed.wait(seconds)
            return
        self._fetching = True
        self._changed.release()
        try:
            self.fetcher.fetch(seconds)
        finally:
            self._changed.acquire()
            self._fetching = False
            self._changed.notify_all()  # another thread may fetch now

    def drop(self, source: Rank, until_s: float) -> None:
        """Drops the messages that the rank sent up to a time of its clock."""
        with self._changed:
            self._messages.drop(source, until_s)

    def restart(self) -> None:
        """Prepares for a restart of the program with all ranks: every death is reported again."""
        with self._changed:
            self._messages.forget_reports()
            self._gone.clear()

    def close(self, claim: ReceiveClaim) -> bool:
        """Cancels a `get`; returns False if it has its message already."""
        with self._changed:
            claim.open, in_time = False, claim.open
            self._notify()
        return in_time

    def get(self, source: Rank | None, tag: str, timeout_s: float | None, claim: ReceiveClaim) -> Envelope:
        """Returns the matching message that was sent first.

        Args:
            source: the sender; None: any rank.
            tag: the tag of the message.
            timeout_s: the timeout in seconds; None: no timeout.
            claim: the pending receive, which may be cancelled.

        Raises:
            TimedOut: no message has arrived in time.
            PeerFailed: the source has died. A receive from any rank raises it once for each dead rank.
        """
        due = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._pause(0.0)  # messages in shared memory may be older than those in the inbox
            while True:
                if not claim.open:
                    raise OperationCancelled("a receive that was cancelled")
                dead = self._lost(self._messages.concerned(source, self._everyone))
                if dead is not None:
                    self._pause(0.0)  # deliver first what the dead rank had sent before
                if (envelope := self._messages.take(source, tag)) is not None:
                    claim.open, claim.turn = False, next(self._ended)
                    return envelope
                if dead is not None:
                    self._gone.add(dead)
                    self._messages.report(source, dead)
                    raise PeerFailed(f"rank {dead} died", dead)
                left = POLL_S if due is None else min(POLL_S, due - time.monotonic())
                if left <= 0:
                    claim.open, claim.turn = False, next(self._ended)
                    raise TimedOut(f"no message within {timeout_s} s")
                self._pause(left)
