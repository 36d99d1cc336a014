"""The record of a run on several hosts: each host's part is sent to the first one, and merged there.

Rules of this file:

* Parts are the ranks' streams and the cells that they shared, as they lie in each host's folder; beside them go the
  readings of clocks and where the ranks were.
* After a failure a host that sends nothing is waited for no longer than `COLLECT_S`; the record says what is missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.algorithms.core.errors import PacelineError, RunFailed
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.backend.devices.gpus import Devices
from paceline.backend.local.launch import RankFailed
from paceline.backend.multihost.host_sync import loss
from paceline.backend.multihost.rank_mapping import Seats
from paceline.backend.multihost.store_transfer import receive, send
from paceline.backend.multihost.world import World
from paceline.backend.status.status_board import Board
from paceline.backend.supervision.clock_sync import Alignment, Reading
from paceline.backend.supervision.gather import Failure, gather, stream_of
from paceline.records.trace import Trace

COLLECT_S = 10.0
"""how long the record of another host is waited for after a failure"""
PATIENT_S = 600.0
"""and after a run that went well"""


@dataclass(frozen=True)
class JointRecord:
    """What a host's first process does with the record."""

    job: Job
    world: World
    seats: Seats
    folder: Path
    board: Board
    store: Store
    devices: Devices

    def send(self, placed: dict[str, Any], start: Reading | None, end: Reading | None, *, failed: bool) -> None:
        """Sends this host's part to the first host."""
        names = [stream_of(self.folder, rank).name for rank in self.seats.on(self.world.here)]
        names = [name for name in names if (self.folder / name).exists()]
        for kind in ("cell", "form"):
            names += [str(path.relative_to(self.folder)) for path in self.folder.glob(f"node*/*.{kind}")]
        clocks = {key: None if one is None else asdict(one) for key, one in (("start", start), ("end", end))}
        said = {**clocks, "start_s": self.board.start_s, "placement": placed}
        store, within_s = PrefixStore(f"host{self.world.here}", self.store), COLLECT_S if failed else PATIENT_S
        try:
            send(store, self.folder, names, said, within_s=within_s)
        except RuntimeError as error:
            raise RunFailed(f"the store is gone: {error}") from error

    def gathered(
        self, placed: dict[str, Any], *, failed: bool, known: PacelineError | None, gone: Collection[int]
    ) -> Trace:
        """The record of all hosts.

        Args:
            placed: where this host's ranks run.
            failed: whether the run has.
            known: why, where that is known already.
            gone: hosts that send nothing any more.

        Raises:
            RankFailed, DeadlockError, ProgramError: the run has failed; the record is its `trace`.
        """
        parts, missing = self._received(failed, gone)
        places = {0: placed} | {host: part["placement"] for host, part in parts.items()}
        by_host = {host: clock for host, part in parts.items() if (clock := _clock(part)) is not None}
        clocks = {rank: clock for host, clock in by_host.items() for rank in self.seats.on(host)}
        failure = (known or self._reason()) if failed else None
        trace = gather(self.job, self.folder, start_s=self.board.start_s, clocks=clocks)
        trace.stop_reason = "failure" if failed else self.board.why or self.job.budget.usual_end
        trace.notes["devices"] = self.devices.record(trace.notes.pop("devices", []))
        trace.notes |= {
            "launched_by": self.world.joined.launcher,
            "seats": self._seats(places),
            "placement": {**placed, "words": "; ".join(f"host {host}: {one['words']}" for host, one in places.items())},
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
        """What the other hosts have sent, and what they have not."""
        parts, missing = {}, []
        for host in range(1, len(self.seats.hosts)):
            if host in gone:
                missing.append(f"host {host}: it is gone")
                continue
            store, within_s = PrefixStore(f"host{host}", self.store), COLLECT_S if failed else PATIENT_S
            try:
                parts[host] = receive(store, self.folder, within_s=within_s)
            except RunFailed as error:
                if not failed:
                    raise
                missing.append(f"host {host}: {error}")
        return parts, missing

    def _seats(self, places: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
        """Who was where, with the cores of those that were pinned."""
        return [
            {**one, "cores": places.get(one["host"], {}).get("cores", {}).get(str(one["rank"]))}
            for one in self.seats.record()
        ]

    def _reason(self) -> PacelineError:
        """Why the run has failed: a rank's own last words, or what was seen of it."""
        said = Failure.first(self.folder, self.job.team)
        if said is not None and not said.follows:
            failure = said.error()
            return RankFailed(str(failure)) if isinstance(failure, RunFailed) else failure
        rank = self.board.lost() or Rank(0)
        me, words = self.job.team[rank], loss(self.board)
        return RankFailed(f"rank {rank} ({me.role}) was lost at step {int(self.board.rows['step'][rank])}: {words}")


def _clock(part: dict[str, Any]) -> Alignment | None:
    """How a host's clock is aligned; None where it was never read."""
    if part["start"] is None:
        return None
    end = None if part["end"] is None else Reading(**part["end"])
    return Alignment(Reading(**part["start"]), end, part["start_s"])
