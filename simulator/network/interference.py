"""Communication takes processors from gradients that are computed at the same time, and both take longer.

* A collective of NCCL occupies multiprocessors of each GPU; one of MPI or gloo, or a message of theirs, occupies a core
  of the processor that computes. `Demand` says how much; `SharedProcessor` slows all activities of a processor alike.
* A collective takes as long as its slowest member: it is done when the network has moved its bytes and every member's
  processor has given it, at its reduced speed, the time that it would have taken alone.
* A rank that only waits for a collective computes nothing, so collectives that overlap with nothing keep their time.
* A collective counts from its last entry. Kernels and threads that wait for late members are not counted before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import simpy

from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.simulator.kernel.lanes import Steps
from paceline.simulator.kernel.shared_processor import Kind, Law, SharedProcessor, fair_share
from paceline.simulator.network.network import ByMember, NetworkModel

WHOLE = fair_share(1.0)
"""the law of a device of which demands are shares"""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the activities of a rank demand of its processor.

    Args:
        processor: identifies the processor; ranks with equal ones share it.
        compute: by a gradient.
        communicate: by a collective in flight.
        message: by a message in flight; 0 if messages take nothing.
        messages_on: identifies the host on which messages have their own speed, which depends on what computes there.
        charge: by an update or another charge; 0 if charges use nothing that is shared.
        charge_beside: the speed of a charge that begins while a collective is in flight.
        law: the speeds of all activities, given the sums of their demands.
    """

    processor: Hashable
    compute: float
    communicate: float
    message: float = 0.0
    messages_on: Hashable = None
    charge: float = 0.0
    charge_beside: float = 1.0
    law: Law = WHOLE


NO_DEMAND = Demand(None, 0.0, 0.0)


class Processors:
    """The processors of a run that several activities share.

    Args:
        demand: what each rank demands; `NO_DEMAND` for ranks that share nothing. None: no rank shares anything.
    """

    def __init__(self, demand: Callable[[Rank], Demand] | None = None) -> None:
        self.used = demand is not None
        self.demand = demand or (lambda _: NO_DEMAND)
        self._known: dict[Hashable, SharedProcessor] = {}

    def attach(self, env: simpy.Environment) -> None:
        """Sets the clock of the run."""
        self._env = env

    def processor(self, rank: Rank) -> SharedProcessor | None:
        """Returns the processor of a rank; None if its activities do not slow each other down."""
        demand = self.demand(rank)
        if demand.processor is None:
            return None
        if demand.processor not in self._known:
            self._known[demand.processor] = SharedProcessor(self._env, demand.law)
        return self._known[demand.processor]

    def own_work(self, rank: Rank) -> AbstractContextManager[None]:
        """Returns a context in which a rank's own work, such as loading, occupies its processor as a charge does.

        Args:
            rank: the rank.
        """
        processor, demand = self.processor(rank), self.demand(rank).charge
        return nullcontext() if processor is None or not demand else processor.activity("compute", demand)


class InterferingNetwork:
    """A network whose messages and collectives share the processors of their ranks with gradients.

    If members of a collective enter and leave one by one, the network takes its own time for it, and only the gradients
    are slowed, from its last entry to its last exit.

    Args:
        network: the network.
        processors: the processors of the ranks.
    """

    def __init__(self, network: NetworkModel, processors: Processors) -> None:
        self._network, self._processors = network, processors
        self._by_member = network if isinstance(network, ByMember) else None
        self._turns: Counter[tuple[Rank, Group, str]] = Counter()
        self._exits: dict[tuple[Group, str, int], list[simpy.Event]] = {}
        """the exits of members of each collective that some have not entered yet"""

    def attach(self, env: simpy.Environment) -> None:
        self._env = env
        self._network.attach(env)
        self._queues: dict[tuple[Group, str], simpy.Event] = {}
        """the last collective of each group and stream"""

    def message(self, source: Rank, to: Rank, nbytes: int) -> simpy.Event:
        moving = self._network.message(source, to, nbytes)
        demands = {rank: self._processors.demand(rank) for rank in (source, to)}
        places = {demand.messages_on for demand in demands.values()}
        if len(places) == 1 and None not in places:
            return self._env.process(self._slowed(moving, {source: 0.0}, "message"))
        taken = {rank: demand.message for rank, demand in demands.items() if demand.message}
        return self._env.process(self._slowed(moving, taken, "communicate")) if nbytes and taken else moving

    def enter(self, rank: Rank, op: Collective, stream: str) -> simpy.Event | None:
        leave = None if self._by_member is None else self._by_member.enter(rank, op, stream)
        if leave is None:
            return None
        turn = self._turns[rank, op.group, stream]
        self._turns[rank, op.group, stream] += 1
        exits = self._exits.setdefault((op.group, stream, turn), [])
        exits.append(leave)
        if len(exits) == len(op.group):
            self._env.process(self._in_flight(op.group, self._exits.pop((op.group, stream, turn))))
        return leave

    def collective(self, op: Collective, nbytes: int, stream: str) -> simpy.Event:
        before = self._queues.get((op.group, stream))
        done = self._queues[op.group, stream] = self._env.process(self._performed(before, op, nbytes, stream))
        return done

    def standing(self) -> list[str]:
        return self._network.standing()

    def _in_flight(self, group: Group, exits: Sequence[simpy.Event]) -> Steps:
        """Takes a part of the members' processors until all have left."""
        with self._active(self._demands(group), "communicate"):
            for leave in exits:
                if not leave.processed:
                    yield leave

    def _performed(self, before: simpy.Event | None, op: Collective, nbytes: int, stream: str) -> Steps:
        """Performs a collective, after the one before it in its stream."""
        if before is not None and not before.processed:
            yield before
        yield from self._slowed(self._network.collective(op, nbytes, stream), self._demands(op.group), "communicate")

    def _demands(self, group: Group) -> dict[Rank, float]:
        """Returns what a collective demands of the processors of its members."""
        demands = {rank: self._processors.demand(rank).communicate for rank in group.ranks}
        return {rank: demand for rank, demand in demands.items() if demand}

    @contextmanager
    def _active(self, demands: Mapping[Rank, float], kind: Kind) -> Iterator[list[SharedProcessor]]:
        """Takes a part of the processors of ranks while the block runs; yields these processors."""
        with ExitStack() as activities:
            shared = []
            for rank, demand in demands.items():
                if (processor := self._processors.processor(rank)) is not None:
                    activities.enter_context(processor.activity(kind, demand))
                    shared.append(processor)
            yield shared

    def _slowed(self, moving: simpy.Event, demands: Mapping[Rank, float], kind: Kind) -> Steps:
        """Waits for the end of a transfer on processors that its ranks share with other activities."""
        begun_s = self._env.now
        with self._active(demands, kind) as shared:
            since = [(processor, processor.progress_s(kind)) for processor in shared]
            yield moving
            alone_s = self._env.now - begun_s
            for processor, since_s in since:
                yield from processor.work(kind, alone_s, since_s)
