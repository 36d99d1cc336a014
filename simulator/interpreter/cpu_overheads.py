"""What messages and starts cost the processor of a rank itself: meanwhile its program does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.algorithms.core.values import Group, Rank

OfMessage = Callable[[Rank, Rank, int], float]
"""seconds, from the source, the receiver and the bytes"""


def _nothing(*_: object) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Handling:
    """Seconds of a rank's own processor for messages and for what it starts.

    Args:
        send_s: handing a message over. The message is on its way meanwhile.
        receive_s: taking a message that has already come; one that is waited for includes it.
        start_s: starting a collective to be waited for later, from its group and the bytes of the rank's own value. The
            collective has begun meanwhile.
        lane_s: starting anything else. It has begun meanwhile.
    """

    send_s: OfMessage = _nothing
    receive_s: OfMessage = _nothing
    start_s: Callable[[Group, int], float] = _nothing
    lane_s: float = 0.0


NO_HANDLING = Handling()
