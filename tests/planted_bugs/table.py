"""All planted bugs."""

from __future__ import annotations

from tests.planted_bugs import elastic, impure, in_flight, partial, replicas, rounds, servers, states, timing, weights
from tests.planted_bugs.bug import PlantedBug

BUGS: tuple[PlantedBug, ...] = (
    *elastic.BUGS,
    *servers.BUGS,
    *replicas.BUGS,
    *rounds.BUGS,
    *partial.BUGS,
    *states.BUGS,
    *impure.BUGS,
    *timing.BUGS,
    *in_flight.BUGS,
    *weights.BUGS,
)
