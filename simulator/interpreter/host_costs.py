"""What the hosts of the ranks cost and share, apart from the network and from each rank's own work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.interpreter.loading import Supply
from paceline.simulator.network.interference import Processors
from paceline.simulator.network.node_memory import NodeMemory

OfMessage = Callable[[Rank, Rank, int], float]
"""seconds, given the sender, the receiver and the bytes"""


def _nothing(*_: object) -> float:
    return 0.0


def _unknown() -> None:
    return None


def _never(*_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Handling:
    """Seconds of a rank's processor for messages and for starting operations, and how servers receive messages.

    Args:
        send_s: handing a message to the network. The message is in flight during this time.
        receive_s: receiving a message that has already arrived. If the rank waits for the message, this runs from its
            send on, and the message's own time includes it.
        start_s: starting a collective in the background, given its group and the bytes of the rank's value. The
            collective runs during this time.
        lane_s: starting anything else, which runs during this time.
        wait_s: how long after the end of a started operation a program that waits for it goes on.
        copy_s: taking a message out of a library's buffer once it has arrived. The copy of a message that waits for its
            receive runs while the message arrives.
        waits: whether a message stays at its sender until a receive has matched it (rendezvous), given its receiver and
            bytes. Such messages flow to a rank one at a time.
        threads: how many messages a server handles at once.
        alike: returns a number for each worker, equal for workers whose messages to and from the server cost the same;
            None if it is not known which do.
    """

    send_s: OfMessage = _nothing
    receive_s: OfMessage = _nothing
    start_s: Callable[[Group, int], float] = _nothing
    lane_s: float = 0.0
    wait_s: float = 0.0
    copy_s: OfMessage = _nothing
    waits: Callable[[Rank, int], bool] = _never
    threads: int = 1
    alike: Callable[[], Sequence[int] | None] = _unknown


NO_HANDLING = Handling()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """The costs of hosts; by default there are none.

    Args:
        supply: the storage from which batches are read; None if reading takes no time.
        handling: the processor time of ranks for messages and starts, and the threads of a server.
        cells: the memories of the nodes, which accesses to cells share; None: `Timing` states the time of each.
        staging: the memories that are copied from and to, as the cluster's `staging` says; None: copies take no time.
        processors: what gradients share with communication; None: nothing.
        snapshot_s: seconds in which the weights' owner stores weights that will be evaluated, before its next step.
    """

    supply: Supply | None = None
    handling: Handling = NO_HANDLING
    cells: NodeMemory | None = None
    staging: NodeMemory | None = None
    processors: Processors | None = None
    snapshot_s: float = 0.0


NO_COSTS = HostCosts()
