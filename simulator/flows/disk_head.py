"""A device that does one thing at a time, and serves in turn those who want something of it.

Rules of this file: turns are short, so k who are served get on at a k-th of the pace each that they have while the arm
works for them; one who is alone has a pace of its own, as the arm need not come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import simpy

from paceline.simulator.flows.ports import FULL, Then
from paceline.simulator.kernel.simpy_events import after


@dataclass(eq=False, slots=True)
class _Turn:
    """Somebody whom an arm serves."""

    who: object
    alone_s: float
    beside_s: float
    then: Then
    left: float = 1.0
    """of all, as a share"""


@dataclass(eq=False, slots=True)
class Arm:
    """A device that does one thing at a time, and serves those who read in turn."""

    env: simpy.Environment
    last: object = None
    """whom it served last, and nobody else since"""
    _turns: list[_Turn] = field(default_factory=list)
    _since_s: float = 0.0
    """up to when what is left is known"""
    _timer: int = 0
    """counts the timers: an earlier one than the last means nothing"""

    def serve(self, who: object, alone_s: float, beside_s: float, then: Then) -> None:
        """Calls somebody once it has worked for so long.

        Args:
            who: for whom.
            alone_s: what that takes if nobody else comes.
            beside_s: how long it works for this one where it has others to serve in between.
            then: what is called.
        """
        self._go_on()
        self._turns.append(_Turn(who, alone_s, beside_s, then))
        self.last = who if len(self._turns) == 1 else None
        self._await()

    def _left_s(self, turn: _Turn) -> float:
        """Until it is done, if nobody comes or leaves."""
        return turn.left * (turn.alone_s if len(self._turns) == 1 else len(self._turns) * turn.beside_s)

    def _go_on(self) -> None:
        """Brings what is left up to date."""
        passed_s, self._since_s = self.env.now - self._since_s, self.env.now
        for turn in self._turns:
            left_s = self._left_s(turn)
            turn.left = max(0.0, turn.left * (1 - passed_s / left_s)) if left_s > 0 else 0.0

    def _await(self) -> None:
        """A timer for those that are done first."""
        self._timer += 1
        if self._turns:
            number, soonest_s = self._timer, min(map(self._left_s, self._turns))
            first = [turn for turn in self._turns if self._left_s(turn) <= soonest_s * FULL]
            after(self.env, soonest_s, lambda _: self._end(number, first))

    def _end(self, number: int, first: Sequence[_Turn]) -> None:
        if number != self._timer:
            return
        self._go_on()
        self._turns = [turn for turn in self._turns if turn not in first]
        if len(self._turns) == 1:
            self.last = self._turns[0].who
        self._await()
        for turn in first:
            turn.then()
