"""The processor time that messages and starts cost a rank; its program is blocked during this time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.algorithms.core.values import Group, Rank

OfMessage = Callable[[Rank, Rank, int], float]
"""seconds, given the sender, the receiver and the bytes"""


def _nothing(*_: object) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Handling:
    """Seconds of a rank's processor for messages and for starting operations.

    Args:
        send_s: handing a message to the network. The message is in flight during this time.
        receive_s: receiving a message that has already arrived. If the rank waits for the message, its own time
            includes this.
        start_s: starting a collective in the background, given its group and the bytes of the rank's value. The
            collective runs during this time.
        lane_s: starting anything else, which runs during this time.
    """

    send_s: OfMessage = _nothing
    receive_s: OfMessage = _nothing
    start_s: Callable[[Group, int], float] = _nothing
    lane_s: float = 0.0


NO_HANDLING = Handling()
