"""Collectives on a network that others use, too.

Rules of this file:

* A collective that shares no port with anything under way is not carried out: when it will be done is known, and a
  timer waits for that. As soon as a message or another collective comes to one of its ports, it is carried out up to
  that moment on a network of its own, and goes on from there on the common one, message by message.
* So whether it is carried out or not makes no difference to when it is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import inf

import numpy as np
import simpy

from paceline.simulator.collectives.pattern_time import alone_s
from paceline.simulator.collectives.performance import Carry, Performance, Play, on_its_own
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.flow_engine import Port
from paceline.simulator.kernel.clock import after


@dataclass(eq=False, slots=True)
class Turn:
    """A collective under way."""

    play: Play
    ports: frozenset[Port]
    begun_s: float
    done: simpy.Event
    alone: bool


class Concert:
    """All collectives of a run.

    Args:
        env: the run's clock.
        fabric: what messages cross.
        carry: moves bytes on the common network.
    """

    def __init__(self, env: simpy.Environment, fabric: Fabric, carry: Carry) -> None:
        self._env, self._fabric, self._carry = env, fabric, carry
        self._users: dict[Port, list[Turn]] = {}
        """the collectives that may use each port"""
        self._messages: dict[simpy.Event, tuple[Port, ...]] = {}
        """the ports of each message beside collectives"""
        self._known: dict[Play, tuple[frozenset[Port], float]] = {}
        """of each play: its ports, and what it takes alone"""

    def perform(self, play: Play) -> simpy.Event:
        """Comes when every rank is done, all beginning now."""
        if play not in self._known:
            self._known[play] = self._alone(play)
        ports, seconds = self._known[play]
        others = self._turns_on(ports)
        quiet = not others and seconds < inf and all(map(ports.isdisjoint, self._messages.values()))
        turn = Turn(play, ports, self._env.now, self._env.event(), alone=quiet)
        for port in ports:
            self._users.setdefault(port, []).append(turn)
        if quiet:
            self._after(seconds, turn)
        else:
            for other in others:
                self.carry_out(other)
            self._begin(turn)
        return turn.done

    def _alone(self, play: Play) -> tuple[frozenset[Port], float]:
        """A play's ports, and what it takes alone: for ever where one is broken, as nobody can say until when."""
        ports, capacity = play.ports(), self._fabric.capacity
        if not all(capacity[port] for port in ports):
            return ports, inf
        return ports, float(alone_s(play, self._fabric).max(initial=0.0))

    def message(self, message: simpy.Event, ports: tuple[Port, ...]) -> None:
        """A message, which the event stands for, is about to pass these ports."""
        self._messages[message] = ports
        if self._users:
            for turn in self._turns_on(ports):
                self.carry_out(turn)

    def passed(self, message: simpy.Event) -> None:
        """It is through."""
        del self._messages[message]

    def moved(self, message: simpy.Event, ports: tuple[Port, ...]) -> None:
        """It goes on along other ports; a message of a collective is none of these."""
        if message in self._messages:
            self.message(message, ports)

    def disturb(self, ports: Iterable[Port]) -> None:
        """Ports change: who counts on them is carried out from now on, and what was known of them holds no more."""
        for turn in self._turns_on(ports):
            self.carry_out(turn)
        self._known.clear()

    def rerouted(self) -> None:
        """Messages go other ways: whoever is on the new ones counts on them alone no more."""
        for turn in self._turns():
            if turn.alone:
                continue
            more = frozenset(chain.from_iterable(turn.play.ways())) - turn.ports
            for other in self._turns_on(more):
                self.carry_out(other)
            for port in more:
                self._users.setdefault(port, []).append(turn)
            turn.ports |= more

    def alone(self) -> list[Turn]:
        """The collectives under way that are not carried out."""
        return [turn for turn in self._turns() if turn.alone]

    def _turns(self) -> list[Turn]:
        return list(dict.fromkeys(turn for turns in self._users.values() for turn in turns))

    def _turns_on(self, ports: Iterable[Port]) -> list[Turn]:
        return list(dict.fromkeys(turn for port in ports for turn in self._users.get(port, ())))

    def _after(self, seconds: float, turn: Turn) -> None:
        after(self._env, seconds, lambda _: self._end(turn) if turn.alone else None)

    def _end(self, turn: Turn) -> None:
        for port in turn.ports:
            users = self._users[port]
            users.remove(turn)
            if not users:
                del self._users[port]
        turn.done.succeed()

    def _begin(self, turn: Turn) -> None:
        """Message by message on the common network, after what it takes beside its messages."""

        def play(_: object = None) -> None:
            self._follow(Performance(self._env, self._carry, turn.play), turn)

        after(self._env, turn.play.base_s, play)

    def _follow(self, performance: Performance, turn: Turn) -> None:
        if performance.done.triggered:
            self._end(turn)
            return
        assert performance.done.callbacks is not None, "what has not come yet has callbacks"
        performance.done.callbacks.append(lambda _: self._end(turn))

    def carry_out(self, turn: Turn) -> None:
        """Turns a collective that was alone into messages, as far on as they are now."""
        if not turn.alone:
            return
        elapsed_s = self._env.now - turn.begun_s
        entries_s = np.zeros(len(turn.play.ranks))
        env, flows, performance = on_its_own(turn.play, self._fabric.capacity, entries_s, -turn.play.base_s)
        if elapsed_s > 0.0:
            env.run(elapsed_s - turn.play.base_s)
        if performance.done.triggered:
            return  # its timer comes at this very moment
        turn.alone = False
        performance.move(self._env, self._carry, flows.remaining)
        self._follow(performance, turn)
