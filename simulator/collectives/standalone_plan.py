"""A play carried out alone, message by message: its tables, the code that goes through them, and what comes out.

Rules of this file: plays with many messages run as machine code, others as they stand: the source is the same, and what
has been compiled once is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from paceline.simulator.collectives import standalone
from paceline.simulator.collectives.message_paths import Numbers
from paceline.simulator.collectives.pattern_tables import column, score
from paceline.simulator.collectives.performance import Play
from paceline.simulator.collectives.rounds import Amounts
from paceline.simulator.flows import compiled
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.indexed_heap import put

MANY = 5000
"""from so many messages on, machine code is worth loading"""
PARTS = (
    standalone.end_one,
    standalone.arrive,
    standalone.pass_on,
    standalone.come,
    standalone.go_on,
    standalone.happen,
)


def recital(play: Play, fabric: Fabric, entries_s: Amounts, *, compiled: bool | None = None) -> tuple[Amounts, Entered]:
    """The same without SimPy: when each rank is done, and when it came to the last repetitions of each round.

    Args:
        compiled: whether to run as machine code; by default, where there are many messages.
    """
    compiled = play.pattern.messages >= MANY if compiled is None else compiled
    tables, net = score(play, play.courses, fabric.capacity, lists=not compiled)
    p, count = len(play.ranks), len(tables.messages)
    for number in np.flatnonzero(np.array(column(tables.players, "last")) > np.array(column(tables.players, "next"))):
        put(tables.events, 3 * count + int(number), float(entries_s[number % p]))
    (machine_code() if compiled else standalone.perform)(tables, net)
    through_s = np.reshape(column(tables.players, "finish_s"), (-1, p)).max(axis=0)
    entered = Entered(np.array(column(tables.turns, "round")), np.reshape(tables.entered, (-1, 3)))
    return np.maximum(entries_s, through_s), entered


@dataclass(frozen=True, slots=True, eq=False)
class Entered:
    """Of each turn of each player: its round, counted over all parts, and when it came to the last repetitions."""

    round: Numbers
    times_s: Amounts

    def last(self, number: int, times: int) -> list[Amounts]:
        """When its players came to the last three repetitions, the first of them first."""
        rows = self.times_s[self.round == number]
        return [rows[:, (times - back) % 3] for back in (3, 2, 1)]


@cache
def machine_code() -> Callable[..., Any]:
    """`solo.perform`, to be compiled at its first call."""
    return compiled.compiled(standalone.perform, (*compiled.PARTS, *PARTS))
