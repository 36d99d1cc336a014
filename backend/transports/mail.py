"""The messages of one rank: through shared memory to ranks of its host, by gloo to others.

The messages of a pair of ranks always use the same transport. Rules of this file, each due to a property of gloo:

* A gloo send is a rendezvous. One thread per rank always has a receive from any source posted and fills the inbox, so
  a `Send` completes whatever the receiver's program is doing.
* After a sender's death, a receive from any source may fail repeatedly, because gloo matches it with what the dead rank
  had announced. From then on a receive from each of the other ranks is posted.
* A receive buffer that is too small aborts the process, and one that is too large is filled in part without an error.
  So buffers have one agreed capacity, and a message contains its own length.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.mail import Envelope
from paceline.backend.transports import messages
from paceline.backend.transports.collectives import Groups
from paceline.backend.transports.mailbox import Mailbox
from paceline.backend.transports.messages import ThreadedInbox

END = "\0end"
"""the tag of a rank's last message, which ends the receiver's thread; no program uses it"""


class RankMail:
    """Sends the messages of one rank, by shared memory or gloo.

    Args:
        inbox: takes the messages that arrive.
        memory: the transport to other ranks of this host; None if they are reached by gloo or there are none.
        gloo: the transport to all other ranks; None if there are none.
        groups: names this rank and the dead ranks that the run survives.
    """

    def __init__(self, inbox: ThreadedInbox, memory: Mailbox | None, gloo: GlooMail | None, groups: Groups) -> None:
        self.rank, self.inbox = groups.rank, inbox
        self.used: set[str] = set()
        """the transports over which messages have been sent"""
        self._memory, self._gloo, self._groups = memory, gloo, groups

    def send(self, envelope: Envelope) -> None:
        """Hands a message over; the receiver's inbox thread takes it, whatever its program does."""
        to = envelope.to
        if to == self.rank:
            self.inbox.put(messages.decode(messages.encode(envelope).numpy()))
        elif self._memory is not None and to in self._memory:
            self.used.add("shared memory")
            try:
                self._memory.send(envelope)
            except PeerFailed:
                if not self._groups.without(to):  # messages to dead ranks that the run survives are dropped
                    raise
        else:
            assert self._gloo is not None, "a run of one rank has no other rank to send to"
            self.used.add("gloo")
            self._gloo.send(envelope)

    def flush(self) -> None:
        """Waits until all messages handed over have been sent; those in shared memory already have."""
        if self._gloo is not None:
            self._gloo.flush()

    def close(self) -> None:
        """Ends the receiving threads, if the process continues. All ranks must have flushed before."""
        if self._memory is not None:
            self._memory.close()
        if self._gloo is not None:
            self._gloo.close()


class GlooMail:
    """The messages of one rank by gloo.

    Args:
        groups: creates the process group for messages.
        everyone: all ranks that may send or receive.
        capacity: bytes per transfer; longer messages are split.
        deliver: takes the messages that arrive.
    """

    def __init__(self, groups: Groups, everyone: Group, *, capacity: int, deliver: Callable[[Envelope], None]) -> None:
        self._groups, self._everyone, self._capacity, self._deliver = groups, everyone, capacity, deliver
        self._coming: dict[int, messages.Assembly] = {}
        """messages that have arrived in part, by their senders"""
        self._sending: dict[Rank, list[tuple[Any, torch.Tensor]]] = {}
        self._sending_lock = threading.Lock()
        self._group = groups.make("mail", everyone)
        self._listener = threading.Thread(target=self._listen, daemon=True, name="inbox")
        self._listener.start()

    def send(self, envelope: Envelope) -> None:
        """Hands a message over, after the previous one to the same rank has been sent."""
        to, data = envelope.to, messages.encode(envelope)
        with self._sending_lock:
            self._settle(to)
            if self._groups.without(to):  # dropped
                return
            works = [(self._send(to, part), part) for part in messages.chunks(data, self._capacity)]
            self._sending[to] = works

    def _send(self, to: Rank, part: torch.Tensor) -> Any:
        """Starts a send; returns None if its receiver is dead."""
        try:
            return self._group.send([part], int(to), 0)
        except RuntimeError as error:
            self._missed(self._groups.failure(error, (to,)), to)
            return None

    def _missed(self, failure: PeerFailed, to: Rank) -> None:
        """Ignores the failure if the run survives the receiver's death, else raises it."""
        if not self._groups.without(to):
            raise failure

    def _settle(self, to: Rank) -> None:
        """Waits until the last message to `to` is sent: its buffer must live until then, and gloo cannot be polled."""
        for work, part in self._sending.pop(to, []):
            try:
                if work is not None:
                    self._groups.wait(work, (to,), part.nbytes)
            except PeerFailed as failure:
                self._missed(failure, to)
                return

    def flush(self) -> None:
        """Waits until all messages handed over have been sent."""
        with self._sending_lock:
            for to in list(self._sending):
                self._settle(to)

    def close(self) -> None:
        """Ends the receiving thread, if the process continues.

        A pending gloo receive cannot be cancelled, so each rank sends a last message to the next one. All ranks must
        have flushed before.
        """
        ranks, rank = self._everyone.ranks, self._groups.rank
        self.send(Envelope(rank, ranks[(ranks.index(rank) + 1) % len(ranks)], END, None, 0.0))
        self.flush()
        self._listener.join()

    def _listen(self) -> None:
        """Takes messages from any source until a peer dies.

        If the run survives the death, one thread for each other rank then receives from that rank.
        """
        buffer = torch.empty(self._capacity, dtype=torch.uint8)
        try:
            while True:
                work = self._group.recv_anysource([buffer], 0)
                work.wait()
                if self._take(int(work._source_rank()), buffer):
                    return
        except RuntimeError:  # the launcher notices the death and writes it on the board
            for source in self._everyone if self._groups.survives else ():
                if source != self._groups.rank:
                    threading.Thread(target=self._listen_to, args=(int(source),), daemon=True, name="inbox").start()

    def _listen_to(self, source: int) -> None:
        """Takes messages from one rank until it dies."""
        buffer = torch.empty(self._capacity, dtype=torch.uint8)
        try:
            while True:
                self._group.recv([buffer], source, 0).wait()
                self._take(source, buffer)
        except RuntimeError:
            return

    def _take(self, source: int, buffer: torch.Tensor) -> bool:
        """Takes a piece and delivers the message when it is whole. Returns True if it was the sender's last message."""
        assembly = self._coming.setdefault(source, messages.Assembly())
        assembly.take(buffer.numpy())
        if not assembly.whole:
            return False
        del self._coming[source]
        if assembly.value.tag == END:
            return True
        self._deliver(assembly.value)
        return False
