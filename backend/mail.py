"""Messages from rank to rank on gloo.

Rules of this file, each a trap of gloo that was met:

* A gloo send is a rendezvous. One thread per rank keeps a receive from anyone posted at all times and feeds the inbox,
  so that a `Send` completes whatever the receiver's program is doing.
* A receive buffer that is too small aborts the process, one that is too large is filled in part without a word: buffers
  have one agreed capacity and messages carry their length.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from paceline.algorithms.values import Group, Rank
from paceline.backend import wire
from paceline.backend.groups import Groups
from paceline.backend.inbox import Envelope, Inbox

END = "\0end"
"""the tag of a rank's last message, which ends the thread of who receives it; no program has such a tag"""


class Mail:
    """One rank's messages.

    Args:
        groups: makes the group that messages travel in.
        everyone: all ranks that may send or be sent to.
        capacity: bytes that travel at once; longer messages are cut.
    """

    def __init__(self, groups: Groups, everyone: Group, *, capacity: int) -> None:
        self.rank, self.capacity, self._everyone = groups.rank, capacity, everyone
        self.inbox = Inbox(groups.lost)
        self._groups = groups
        self._sending: dict[Rank, list[tuple[Any, torch.Tensor]]] = {}
        self._sending_lock = threading.Lock()
        self._group = groups.make("mail", everyone) if len(everyone) > 1 else None
        self._listener = threading.Thread(target=self._listen, daemon=True, name="inbox")
        if self._group is not None:
            self._listener.start()

    def send(self, to: Rank, envelope: Envelope) -> None:
        """Hands a message over; the receiver's inbox thread takes it whatever its program does."""
        data = wire.encode(envelope)
        if to == self.rank:
            self.inbox.put(wire.decode(data.numpy()))
            return
        assert self._group is not None, "a run of one rank has nobody else to send to"
        with self._sending_lock:
            self._settle(to)
            works = [(self._group.send([part], int(to), 0), part) for part in wire.chunks(data, self.capacity)]
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

    def close(self) -> None:
        """Ends the thread that receives, where this process goes on: each rank tells the next one, as nobody can be
        told to stop receiving. All have flushed."""
        if self._group is not None:
            ranks = self._everyone.ranks
            self.send(ranks[(ranks.index(self.rank) + 1) % len(ranks)], Envelope(self.rank, END, None, 0.0))
            self.flush()
            self._listener.join()

    def _listen(self) -> None:
        buffer = torch.empty(self.capacity, dtype=torch.uint8)
        partial: dict[int, list[Any]] = {}
        assert self._group is not None
        while True:
            try:
                work = self._group.recv_anysource([buffer], 0)
                work.wait()
            except RuntimeError:  # the group broke: a peer is gone, which the launcher notices and says on the board
                return
            source = int(work._source_rank())
            data = buffer.numpy()
            parts = partial.setdefault(source, [])
            parts.append(data if not parts and wire.total_bytes(data) <= self.capacity else data.copy())
            length = wire.total_bytes(parts[0])
            if len(parts) * self.capacity >= length:
                whole = parts[0] if len(parts) == 1 else torch.cat([torch.from_numpy(p) for p in parts]).numpy()
                envelope = wire.decode(whole)
                if envelope.tag == END:
                    return
                self.inbox.put(envelope)
                del partial[source]
