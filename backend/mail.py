"""Messages from rank to rank on gloo.

Rules of this file, each a trap of gloo that was met:

* A gloo send is a rendezvous. One thread per rank keeps a receive from anyone posted at all times and feeds the inbox,
  so that a `Send` completes whatever the receiver's program is doing.
* A receive from anyone that fails by a sender's death may fail for ever: gloo gives it first what the dead had
  announced. From then on a receive from each of the others is posted.
* A receive buffer that is too small aborts the process, one that is too large is filled in part without a word: buffers
  have one agreed capacity and messages carry their length.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from paceline.algorithms.errors import PeerFailed
from paceline.algorithms.values import Group, Rank
from paceline.backend import wire
from paceline.backend.groups import Groups
from paceline.backend.inbox import Envelope, Inbox


class Mail:
    """One rank's messages.

    Args:
        groups: makes the group that messages travel in.
        everyone: all ranks that may send or be sent to.
        capacity: bytes that travel at once; longer messages are cut.
    """

    def __init__(self, groups: Groups, everyone: Group, *, capacity: int) -> None:
        self.rank, self.capacity = groups.rank, capacity
        self.inbox = Inbox(groups.lost, everyone)
        self._groups, self._everyone = groups, everyone
        self._partial: dict[int, list[Any]] = {}
        """pieces of messages that are not whole yet, by their senders"""
        self._sending: dict[Rank, list[tuple[Any, torch.Tensor]]] = {}
        self._sending_lock = threading.Lock()
        self._group = groups.make("mail", everyone) if len(everyone) > 1 else None
        if self._group is not None:
            threading.Thread(target=self._listen, daemon=True, name="inbox").start()

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the receiver's inbox thread takes it whatever its program does."""
        data = wire.encode(envelope)
        if to == self.rank:
            self.inbox.put(wire.decode(data.numpy()))
            return
        assert self._group is not None, "a run of one rank has nobody else to send to"
        with self._sending_lock:
            self._settle(to)
            if self._groups.without(to):  # lost without a word
                return
            works = [(self._send(to, part), part) for part in wire.chunks(data, self.capacity)]
            self._sending[to] = works

    def _send(self, to: Rank, part: torch.Tensor) -> Any:
        """Begins a send; None where its receiver is no longer there."""
        assert self._group is not None
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

    def _listen(self) -> None:
        """Takes in what comes from anyone, until a peer dies; then from each of the others, by a thread for each."""
        assert self._group is not None
        buffer = torch.empty(self.capacity, dtype=torch.uint8)
        try:
            while True:
                work = self._group.recv_anysource([buffer], 0)
                work.wait()
                self._take(int(work._source_rank()), buffer)
        except RuntimeError:  # which the launcher notices and says on the board
            for source in self._everyone:
                if source != self.rank:
                    threading.Thread(target=self._listen_to, args=(int(source),), daemon=True, name="inbox").start()

    def _listen_to(self, source: int) -> None:
        """Takes in what comes from one rank, as long as it lives."""
        assert self._group is not None
        buffer = torch.empty(self.capacity, dtype=torch.uint8)
        try:
            while True:
                self._group.recv([buffer], source, 0).wait()
                self._take(source, buffer)
        except RuntimeError:
            return

    def _take(self, source: int, buffer: torch.Tensor) -> None:
        """Takes in a piece; the message goes to the inbox once it is whole."""
        data = buffer.numpy()
        parts = self._partial.setdefault(source, [])
        parts.append(data if not parts and wire.total_bytes(data) <= self.capacity else data.copy())
        if len(parts) * self.capacity >= wire.total_bytes(parts[0]):
            whole = parts[0] if len(parts) == 1 else torch.cat([torch.from_numpy(p) for p in parts]).numpy()
            self.inbox.put(wire.decode(whole))
            del self._partial[source]
