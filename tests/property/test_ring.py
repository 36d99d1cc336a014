"""The ring and the mailbox: all data that is written comes out in its order, however it is cut."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.mail import Envelope
from paceline.backend.transports import messages
from paceline.backend.transports.mailbox import COUNTS_BYTES, Mailbox, Ring, mailbox_bytes
from paceline.backend.transports.messages import ReceiveClaim, ThreadedInbox
from tests.thorough import examples

MOVES = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60)
"""write or read, and so many bytes"""


def no_dead_rank(_: Any = ()) -> Rank | None:
    return None


@given(moves=MOVES, size=st.integers(1, 17), before=st.integers(0, 3 * 17))
def test_a_ring_is_a_stream(moves: list[tuple[bool, int]], size: int, before: int) -> None:
    """Two ends of it: data written by one is read by the other, never more than the ring holds at once."""
    memory = mmap.mmap(-1, 64 + COUNTS_BYTES + size)
    writer, reader = (Ring(memory, 64, size) for _ in range(2))
    for _ in range(before):  # so that it wraps around at any place
        assert writer.write(np.zeros(1, np.uint8)) == reader.read(np.empty(1, np.uint8)) == 1
    numbers, sent, got = count(), bytearray(), bytearray()
    for writes, amount in moves:
        under_way = len(sent) - len(got)
        assert reader.ready == under_way and writer.full == (under_way == size)
        if writes:
            data = np.fromiter((next(numbers) % 251 for _ in range(amount)), np.uint8, amount)
            written = writer.write(data)
            assert written == min(amount, size - under_way)
            sent += data[:written].tobytes()
        else:
            into = np.empty(amount, np.uint8)
            read = reader.read(into)
            assert read == min(amount, under_way)
            got += into[:read].tobytes()
    assert sent.startswith(got)
    assert bytes(memory[:64]) == bytes(64), "nothing is written outside of it"


@contextmanager
def host_of(members: int, ring_bytes: int) -> Iterator[list[tuple[Mailbox, ThreadedInbox]]]:
    """The mailboxes of a host, here all in one process."""
    host = Group(tuple(map(Rank, range(members))))
    memory = mmap.mmap(-1, mailbox_bytes(members, ring_bytes))
    with tempfile.TemporaryDirectory() as folder:
        inboxes = [ThreadedInbox(no_dead_rank, host) for _ in host]
        yield [
            (Mailbox(memory, host, rank, Path(folder), inbox, no_dead_rank, ring_bytes), inbox)
            for rank, inbox in zip(host, inboxes, strict=True)
        ]


SENT = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 150)), max_size=12)
"""source, destination, and number of values"""


@examples(15, 200)
@given(sent=SENT, ring_bytes=st.sampled_from([7, 64, 1000, 4096]))
def test_messages_of_any_size_arrive_whole_and_in_order(sent: list[tuple[int, int, int]], ring_bytes: int) -> None:
    """No rank receives before all messages are sent: a send never waits. Rings are smaller than most messages."""
    with host_of(3, ring_bytes) as boxes:
        expected: dict[tuple[int, int], list[list[float]]] = {}
        for number, (source, to, size) in enumerate(sent):
            if source != to:
                value = np.arange(size) * 1.0 + number
                boxes[source][0].send(Envelope(Rank(source), Rank(to), "", value, float(number)))
                expected.setdefault((source, to), []).append(value.tolist())
                value[:] = -1.0  # the sent vector is unchanged
        for (source, to), values in expected.items():
            inbox = boxes[to][1]
            got = [inbox.get(Rank(source), "", 5.0, ReceiveClaim(inbox)).value.tolist() for _ in values]
            assert got == values


@given(sizes=st.lists(st.integers(1, 60), min_size=1), message=st.lists(st.integers(0, 255), max_size=30))
def test_a_message_is_put_together_from_any_pieces(sizes: list[int], message: list[int]) -> None:
    data = messages.encode((np.array(message, np.uint8), "end")).numpy()
    assembly, at, turn = messages.Assembly(), 0, 0
    while at < len(data):
        assert not assembly.whole
        size = sizes[turn % len(sizes)]
        assembly.take(data[at : at + size])
        at, turn = at + size, turn + 1
    vector, end = assembly.value
    assert vector.tolist() == message and end == "end"
