"""The copies of batches from the host to devices, and their prefetching.

* With a depth of d ≥ 1, the copies of the next d batches run concurrently with the program, one after the other; the
  first begins when the program takes the batch before. Each batch is read from storage before it is copied.
* With a depth of 0, and from pageable memory, a batch is read and copied when the program requests it.
* A request for another batch than the predicted one drops the prefetched ones, after the current copy, and this batch
  is copied.
* When a program ends, its copies end. They are recorded up to then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import simpy

from paceline.algorithms.core.values import Rank, Samples
from paceline.records.trace import COPY_TO_DEVICE, Reads
from paceline.simulator.interpreter.device_copies import DeviceCopies
from paceline.simulator.interpreter.loading import Loading
from paceline.simulator.kernel.lanes import Mutex, SimulatedTask, Steps
from paceline.simulator.kernel.simpy_events import EagerProcess
from paceline.topologies.catalogue.host_memory import StagingModel
from paceline.workloads.reading import following


class BatchStaging:
    """The copies of batches of all ranks of a run.

    Args:
        env: the run's clock.
        staging: what is copied, and how.
        copies: performs the copies.
        loading: the storage that batches are read from before; None if reading takes no time.
    """

    def __init__(
        self, env: simpy.Environment, staging: StagingModel, copies: DeviceCopies, loading: Loading | None
    ) -> None:
        self._env, self._staging, self._copies, self._loading = env, staging, copies, loading
        self._stagers: dict[Rank, _Stager] = {}
        self._served: dict[Rank, bool] = {}

    def serves(self, rank: Rank) -> bool:
        """Returns whether the batches of a rank are copied."""
        if (serves := self._served.get(rank)) is None:
            staging = self._staging
            serves = staging.batches != "none" and staging.sample_bytes > 0 and self._copies.has(rank)
            self._served[rank] = serves
        return serves

    def take(self, task: SimulatedTask, samples: Samples) -> Steps:
        """Waits until a batch is on the device, and takes it."""
        if not self._staging.ahead:
            if self._loading is not None:
                yield from self._loading.take(task, samples)
            yield from self._copy(task.me.rank, samples)
            return
        if (rank := task.me.rank) not in self._stagers:
            self._stagers[rank] = _Stager(self._env, task, self._staging.ahead, self._carry)
        start_s = self._env.now
        reads = yield from self._stagers[rank].take(task, samples)
        if self._loading is not None and reads is not None:
            self._loading.taken(rank, reads, self._env.now - start_s)

    def end(self, rank: Rank) -> bool:
        """Ends the copies of a rank whose program has ended; returns whether there are any."""
        return rank in self._stagers and self._stagers[rank].end()

    def _carry(self, task: SimulatedTask, samples: Samples) -> Steps:
        """Reads and copies a batch; returns the statistics of the reader at its end, None without storage."""
        reads = None if self._loading is None else (yield from self._loading.read(task, samples))
        yield from self._copy(task.me.rank, samples)
        return reads

    def _copy(self, rank: Rank, samples: Samples) -> Steps:
        nbytes, pageable = samples.count * self._staging.sample_bytes, self._staging.batches == "pageable"
        return self._copies.copied(rank, "to device", samples.index, nbytes, "batch", pageable=pageable)


@dataclass(eq=False, slots=True)
class _Staged:
    """A batch that is on the device, or that is being copied."""

    samples: Samples
    done: simpy.Process = field(init=False)
    reads: Reads | None = None


class _Stager:
    """Copies up to `depth` batches of one rank ahead."""

    def __init__(
        self, env: simpy.Environment, task: SimulatedTask, depth: int, carry: Callable[[SimulatedTask, Samples], Steps]
    ) -> None:
        self._env, self._depth, self._carry = env, depth, carry
        self._task = replace(task, name=COPY_TO_DEVICE)
        """in whose name batches are read: the program waits for copies, not for the reader"""
        self._asking = Mutex(env)
        """lanes that load at the same time do so one after the other"""
        self._queue: deque[_Staged] = deque()
        self._last: simpy.Process | None = None
        """the last copy that was requested"""
        self._waited = False

    def take(self, task: SimulatedTask, samples: Samples) -> Steps:
        """Waits for a batch; returns the statistics of the reader at its end."""
        if not self._asking.take(task):
            yield from self._asking.acquire(task, "its batches")
        try:
            if self._queue and self._queue[0].samples != samples:
                self._queue.clear()
            if not self._queue:
                self._begin(samples)
            first, self._waited = self._queue[0], True
            if not first.done.processed:
                task.blocked = lambda: f"waits for the copy of batch {samples.index} to its device"
                yield first.done
            self._queue.popleft()
            following_one = following(self._queue[-1].samples if self._queue else samples)
            while len(self._queue) < self._depth:
                self._begin(following_one)
                following_one = following(following_one)
        finally:
            self._waited = False
            self._asking.release()
        return first.reads

    def end(self) -> bool:
        """Ends all copies that nothing waits for; returns whether there are any."""
        left = [] if self._waited else [copying.done for copying in self._queue if copying.done.is_alive]
        for done in left:
            done.interrupt()
        return bool(left)

    def _begin(self, samples: Samples) -> None:
        before = self._last
        staged = _Staged(samples)
        self._queue.append(staged)
        self._last = staged.done = EagerProcess(self._env, self._staging(staged, before))

    def _staging(self, staged: _Staged, before: simpy.Process | None) -> Steps:
        try:
            if before is not None and not before.processed:
                yield before
            if staged in self._queue:
                staged.reads = yield from self._carry(self._task, staged.samples)
        except simpy.Interrupt:
            return  # the program has ended
