"""One rank's messages: through memory to ranks of its host, by gloo to the others; a pair always goes one way.

Rules of this file, each a trap of gloo that was met:

* A gloo send is a rendezvous. One thread per rank keeps a receive from anyone posted at all times and feeds the inbox,
  so that a `Send` completes whatever the receiver's program is doing.
* A receive buffer that is too small aborts the process, one that is too large is filled in part without a word: buffers
  have one agreed capacity, and a message says itself how long it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from paceline.algorithms.values import Group, Rank
from paceline.backend import wire
from paceline.backend.groups import Groups
from paceline.backend.inbox import Envelope, Inbox
from paceline.backend.mailbox import Mailbox


class Mail:
    """One rank's messages, to whomever.

    Args:
        inbox: takes what comes.
        memory: the way to the other ranks of this host; None where they go by gloo too, or there are none.
        gloo: the way to all others; None where there are none.
    """

    def __init__(self, rank: Rank, inbox: Inbox, memory: Mailbox | None, gloo: GlooMail | None) -> None:
        self.rank, self.inbox = rank, inbox
        self._memory, self._gloo = memory, gloo

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the receiver's inbox thread takes it whatever its program does."""
        if to == self.rank:
            self.inbox.put(wire.decode(wire.encode(envelope).numpy()))
        elif self._memory is not None and to in self._memory:
            self._memory.send(to, envelope)
        else:
            assert self._gloo is not None, "a run of one rank has nobody else to send to"
            self._gloo.send(to, envelope)

    def flush(self) -> None:
        """Waits until everything handed over has gone; what is in memory has."""
        if self._gloo is not None:
            self._gloo.flush()


class GlooMail:
    """One rank's messages on gloo.

    Args:
        groups: makes the group that messages travel in.
        everyone: all ranks that may send or be sent to.
        capacity: bytes that travel at once; longer messages are cut.
        deliver: takes what comes.
    """

    def __init__(self, groups: Groups, everyone: Group, *, capacity: int, deliver: Callable[[Envelope], None]) -> None:
        self._groups, self._capacity, self._deliver = groups, capacity, deliver
        self._sending: dict[Rank, list[tuple[Any, torch.Tensor]]] = {}
        self._sending_lock = threading.Lock()
        self._group = groups.make("mail", everyone)
        threading.Thread(target=self._listen, daemon=True, name="inbox").start()

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over, once the one before it to the same rank has gone."""
        data = wire.encode(envelope)
        with self._sending_lock:
            self._settle(to)
            works = [(self._group.send([part], int(to), 0), part) for part in wire.chunks(data, self._capacity)]
            self._sending[to] = works

    def _settle(self, to: Rank) -> None:
        """Waits until the last message to `to` has gone: its buffer must live until then, and gloo cannot be asked."""
        for work, _ in self._sending.pop(to, []):
            self._groups.wait(work, (to,))

    def flush(self) -> None:
        """Waits until everything handed over has gone."""
        with self._sending_lock:
            for to in list(self._sending):
                self._settle(to)

    def _listen(self) -> None:
        buffer = torch.empty(self._capacity, dtype=torch.uint8)
        piece, coming = buffer.numpy(), dict[int, wire.Assembly]()
        while True:
            try:
                work = self._group.recv_anysource([buffer], 0)
                work.wait()
            except RuntimeError:  # the group broke: a peer is gone, which the launcher notices and says on the board
                return
            source = int(work._source_rank())
            assembly = coming.setdefault(source, wire.Assembly())
            assembly.take(piece)
            if assembly.whole:
                del coming[source]
                self._deliver(assembly.value)
