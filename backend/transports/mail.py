"""One rank's messages: through memory to ranks of its host, by gloo to the others; a pair always goes one way.

Rules of this file, each a trap of gloo that was met:

* A gloo send is a rendezvous. One thread per rank keeps a receive from anyone posted at all times and feeds the inbox,
  so that a `Send` completes whatever the receiver's program is doing.
* A receive from anyone that fails by a sender's death may fail for ever: gloo gives it first what the dead had
  announced. From then on a receive from each of the others is posted.
* A receive buffer that is too small aborts the process, one that is too large is filled in part without a word: buffers
  have one agreed capacity, and a message says itself how long it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.values import Group, Rank
from paceline.backend.transports import serialization
from paceline.backend.transports.inbox import Envelope, Inbox
from paceline.backend.transports.mailbox import Mailbox
from paceline.backend.transports.process_groups import Groups

END = "\0end"
"""the tag of a rank's last message, which ends the thread of who receives it; no program has such a tag"""


class Mail:
    """One rank's messages, to whomever.

    Args:
        inbox: takes what comes.
        memory: the way to the other ranks of this host; None where they go by gloo too, or there are none.
        gloo: the way to all others; None where there are none.
        groups: know who is the rank, and whom the run goes on without.
    """

    def __init__(self, inbox: Inbox, memory: Mailbox | None, gloo: GlooMail | None, groups: Groups) -> None:
        self.rank, self.inbox = groups.rank, inbox
        self._memory, self._gloo, self._groups = memory, gloo, groups

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the receiver's inbox thread takes it whatever its program does."""
        if to == self.rank:
            self.inbox.put(serialization.decode(serialization.encode(envelope).numpy()))
        elif self._memory is not None and to in self._memory:
            try:
                self._memory.send(to, envelope)
            except PeerFailed:
                if not self._groups.without(to):  # else it is lost without a word
                    raise
        else:
            assert self._gloo is not None, "a run of one rank has nobody else to send to"
            self._gloo.send(to, envelope)

    def flush(self) -> None:
        """Waits until everything handed over has gone; what is in memory has."""
        if self._gloo is not None:
            self._gloo.flush()

    def close(self) -> None:
        """Ends the threads that receive, where this process goes on; all have flushed."""
        if self._memory is not None:
            self._memory.close()
        if self._gloo is not None:
            self._gloo.close()


class GlooMail:
    """One rank's messages on gloo.

    Args:
        groups: makes the group that messages travel in.
        everyone: all ranks that may send or be sent to.
        capacity: bytes that travel at once; longer messages are cut.
        deliver: takes what comes.
    """

    def __init__(self, groups: Groups, everyone: Group, *, capacity: int, deliver: Callable[[Envelope], None]) -> None:
        self._groups, self._everyone, self._capacity, self._deliver = groups, everyone, capacity, deliver
        self._coming: dict[int, serialization.Assembly] = {}
        """messages of which a part is here, by their senders"""
        self._sending: dict[Rank, list[tuple[Any, torch.Tensor]]] = {}
        self._sending_lock = threading.Lock()
        self._group = groups.make("mail", everyone)
        self._listener = threading.Thread(target=self._listen, daemon=True, name="inbox")
        self._listener.start()

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over, once the one before it to the same rank has gone."""
        data = serialization.encode(envelope)
        with self._sending_lock:
            self._settle(to)
            if self._groups.without(to):  # lost without a word
                return
            works = [(self._send(to, part), part) for part in serialization.chunks(data, self._capacity)]
            self._sending[to] = works

    def _send(self, to: Rank, part: torch.Tensor) -> Any:
        """Begins a send; None where its receiver is no longer there."""
        try:
            return self._group.send([part], int(to), 0)
        except RuntimeError as error:
            self._missed(self._groups.failure(error, (to,)), to)
            return None

    def _missed(self, failure: PeerFailed, to: Rank) -> None:
        """Lets a failure pass that is the death of a receiver whom the run goes on without."""
        if not self._groups.without(to):
            raise failure

    def _settle(self, to: Rank) -> None:
        """Waits until the last message to `to` has gone: its buffer must live until then, and gloo cannot be asked."""
        for work, part in self._sending.pop(to, []):
            try:
                if work is not None:
                    self._groups.wait(work, (to,), part.nbytes)
            except PeerFailed as failure:
                self._missed(failure, to)
                return

    def flush(self) -> None:
        """Waits until everything handed over has gone."""
        with self._sending_lock:
            for to in list(self._sending):
                self._settle(to)

    def close(self) -> None:
        """Ends the thread that receives, where this process goes on.

        Each rank tells the next one, as nobody can be told to stop receiving. All have flushed.
        """
        ranks, rank = self._everyone.ranks, self._groups.rank
        self.send(ranks[(ranks.index(rank) + 1) % len(ranks)], Envelope(rank, END, None, 0.0))
        self.flush()
        self._listener.join()

    def _listen(self) -> None:
        """Takes in what comes from anyone, until a peer dies.

        Where the run goes on without it, then from each of the others, by a thread for each.
        """
        buffer = torch.empty(self._capacity, dtype=torch.uint8)
        try:
            while True:
                work = self._group.recv_anysource([buffer], 0)
                work.wait()
                if self._take(int(work._source_rank()), buffer):
                    return
        except RuntimeError:  # which the launcher notices and says on the board
            for source in self._everyone if self._groups.survives else ():
                if source != self._groups.rank:
                    threading.Thread(target=self._listen_to, args=(int(source),), daemon=True, name="inbox").start()

    def _listen_to(self, source: int) -> None:
        """Takes in what comes from one rank, as long as it lives."""
        buffer = torch.empty(self._capacity, dtype=torch.uint8)
        try:
            while True:
                self._group.recv([buffer], source, 0).wait()
                self._take(source, buffer)
        except RuntimeError:
            return

    def _take(self, source: int, buffer: torch.Tensor) -> bool:
        """Takes in a piece; the message is delivered once it is whole. True if it says that nothing comes any more."""
        assembly = self._coming.setdefault(source, serialization.Assembly())
        assembly.take(buffer.numpy())
        if not assembly.whole:
            return False
        del self._coming[source]
        if assembly.value.tag == END:
            return True
        self._deliver(assembly.value)
        return False
