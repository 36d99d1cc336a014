"""The record of a run on several hosts: each host sends its part to host 0, which merges them.

Rules of this file:

* A part consists of the ranks' streams and the cells that they shared, as files of the host's folder, with the clock
  readings and the placement of ranks.
* After a failure host 0 waits for another host's part for at most `COLLECT_S`; the record lists the missing parts.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.devices.accelerator import Devices
from paceline.backend.local.launch import RankFailed
from paceline.backend.multihost.rank_mapping import RankMapping
from paceline.backend.multihost.world import World
from paceline.backend.posix.waits import wait_until
from paceline.backend.status.status_board import StatusBoard
from paceline.backend.supervision.clock_sync import Alignment, ClockReading
from paceline.backend.supervision.gather import Failure, gather, stream_of
from paceline.records.trace import Trace

COLLECT_S = 10.0
"""how long host 0 waits for another host's part after a failure"""
COLLECT_ALL_S = 600.0
"""how long host 0 waits for it after a run that has succeeded"""


@dataclass(frozen=True)
class ExternalRecord:
    """A host's part of the record, in the host's first process."""

    job: Job
    world: World
    mapping: RankMapping
    folder: Path
    board: StatusBoard
    store: Store
    devices: Devices

    def send(
        self, placed: dict[str, Any], start: ClockReading | None, end: ClockReading | None, *, failed: bool
    ) -> None:
        """Sends this host's part to host 0."""
        names = [stream_of(self.folder, rank).name for rank in self.mapping.on(self.world.here)]
        names = [name for name in names if (self.folder / name).exists()]
        for kind in ("cell", "form"):
            names += [str(path.relative_to(self.folder)) for path in self.folder.glob(f"node*/*.{kind}")]
        clocks = {
            key: None if reading is None else asdict(reading) for key, reading in (("start", start), ("end", end))
        }
        said = {**clocks, "start_s": self.board.start_s, "placement": placed}
        store, within_s = PrefixStore(f"host{self.world.here}", self.store), COLLECT_S if failed else COLLECT_ALL_S
        try:
            send(store, self.folder, names, said, within_s=within_s)
        except RuntimeError as error:
            raise RunFailed(f"the store is gone: {error}") from error

    def gathered(
        self, placed: dict[str, Any], *, failed: bool, known: PacelineError | None, gone: Collection[int]
    ) -> Trace:
        """Receives the other hosts' parts and merges them.

        Args:
            placed: the placement of this host's ranks.
            failed: whether the run has failed.
            known: the failure, if it is known already.
            gone: hosts that have been declared failed.

        Raises:
            RankFailed, DeadlockError, ProgramError: the run has failed; the error has the record as its `trace`.
        """
        parts, missing = self._received(failed, gone)
        places = {0: placed} | {host: part["placement"] for host, part in parts.items()}
        by_host = {host: clock for host, part in parts.items() if (clock := _clock(part)) is not None}
        clocks = {rank: clock for host, clock in by_host.items() for rank in self.mapping.on(host)}
        failure = (known or self._reason()) if failed else None
        trace = gather(self.job, self.folder, start_s=self.board.start_s, clocks=clocks)
        trace.stop_reason = "failure" if failed else self.board.stop_reason or self.job.budget.usual_end
        trace.notes["devices"] = self.devices.record(trace.notes.pop("devices", []))
        trace.notes |= {
            "launched_by": self.world.joined.launcher,
            "seats": self._mapping(places),
            "placement": {
                **placed,
                "words": "; ".join(f"host {host}: {place['words']}" for host, place in places.items()),
            },
            "clocks": [{"host": host, **clock.record()} for host, clock in by_host.items()],
        }
        if missing:
            trace.notes["missing"] = missing
        for warning in trace.notes.pop("warnings", []):
            warnings.warn_explicit(*warning)
        if failure is None:
            return trace
        failure.trace = trace
        raise failure

    def _received(self, failed: bool, gone: Collection[int]) -> tuple[dict[int, dict[str, Any]], list[str]]:
        """Returns the other hosts' parts, and a message for each that is missing."""
        parts, missing = {}, []
        for host in range(1, len(self.mapping.hosts)):
            if host in gone:
                missing.append(f"host {host}: it is gone")
                continue
            store, within_s = PrefixStore(f"host{host}", self.store), COLLECT_S if failed else COLLECT_ALL_S
            try:
                parts[host] = receive(store, self.folder, within_s=within_s)
            except RunFailed as error:
                if not failed:
                    raise
                missing.append(f"host {host}: {error}")
        return parts, missing

    def _mapping(self, places: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns process, host and role of each rank, and its cores if it was pinned."""
        return [
            {**entry, "cores": places.get(entry["host"], {}).get("cores", {}).get(str(entry["rank"]))}
            for entry in self.mapping.record()
        ]

    def _reason(self) -> PacelineError:
        """Returns why the run has failed: the error that a rank has recorded, or the reason of its supervisor."""
        said = Failure.first(self.folder, self.job.team)
        if said is not None and not said.follows:
            failure = said.error()
            return RankFailed(str(failure)) if isinstance(failure, RunFailed) else failure
        rank = self.board.lost() or Rank(0)
        me, words = self.job.team[rank], self.board.loss_text
        return RankFailed(f"rank {rank} ({me.role}) was lost at step {self.board.ranks[rank].step}: {words}")


def _clock(part: dict[str, Any]) -> Alignment | None:
    """Returns the alignment of a host's clock; None if the clock was never read."""
    if part["start"] is None:
        return None
    end = None if part["end"] is None else ClockReading(**part["end"])
    return Alignment(ClockReading(**part["start"]), end, part["start_s"])


PIECE_BYTES = 4 << 20
ON_THE_WAY = 4
"""the maximum number of pieces in the store, because it holds them in memory"""
CHECK_S = 0.002


def send(store: Any, folder: Path, names: Sequence[str], more: dict[str, Any], *, within_s: float) -> None:
    """Sends files of a folder, with a message.

    Args:
        store: the store that the receiver reads.
        folder: contains the files.
        names: the files, relative to the folder.
        more: the message, for JSON.
        within_s: timeout in seconds for the receiver to read a piece.

    Raises:
        RunFailed: the receiver has not read a piece in time.
    """
    sizes = [(folder / name).stat().st_size for name in names]  # a file that still grows is sent up to its current size
    store.set("transfer", json.dumps({"files": list(zip(names, sizes, strict=True)), "more": more}))
    number = 0
    for name, size in zip(names, sizes, strict=True):
        with (folder / name).open("rb") as file:
            for at in range(0, size, PIECE_BYTES):
                _wait_until_read(store, number - ON_THE_WAY, within_s)
                store.set(f"piece{number}", file.read(min(PIECE_BYTES, size - at)))
                number += 1
    for last in range(max(number - ON_THE_WAY, 0), number):
        _wait_until_read(store, last, within_s)


def _wait_until_read(store: Any, number: int, within_s: float) -> None:
    """Waits until the receiver has deleted a piece."""
    if number >= 0 and not wait_until(lambda: not store.check([f"piece{number}"]), within_s=within_s, every_s=CHECK_S):
        raise RunFailed(f"another host has not read this host's record within {within_s:g} s")


def receive(store: Any, folder: Path, *, within_s: float) -> dict[str, Any]:
    """Receives files of another host into a folder.

    Args:
        store: the store to which the sender writes.
        folder: receives the files.
        within_s: timeout in seconds for the sender to write a piece.

    Returns:
        The sender's message.

    Raises:
        RunFailed: a piece has not arrived in time.
    """
    wait = timedelta(seconds=within_s)
    try:
        store.wait(["transfer"], wait)
        said = json.loads(store.get("transfer"))
        number = 0
        for name, size in said["files"]:
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / name).open("wb") as file:
                while file.tell() < size:
                    key = f"piece{number}"
                    store.wait([key], wait)
                    file.write(store.get(key))
                    store.delete_key(key)
                    number += 1
    except RuntimeError as error:
        raise RunFailed(f"the record of another host has not arrived within {within_s:g} s") from error
    more: dict[str, Any] = said["more"]
    return more
