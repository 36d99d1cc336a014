"""Carrying out a message pattern, message by message, on a network that may be shared with anybody.

Rules of this file:

* Every rank goes through its rounds in order. When a message begins, and how long it occupies its ends, is said in
  `rounds`. Where the round reduces, the receiver adds before it goes on.
* A performance that has begun on a network of its own can go on where others are: `move` takes all that is under way
  along, with what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import simpy

from paceline.algorithms.core.values import Rank
from paceline.simulator.collectives.message_paths import Courses, courses
from paceline.simulator.collectives.rounds import Amounts, Pattern, Rounds
from paceline.simulator.flows.fabric import Path
from paceline.simulator.flows.flow_engine import Flows, Port

Carry = Callable[[Rank, Rank, float, Path], simpy.Event]
"""moves so many bytes from one rank to another along a path; the event comes when they are through"""


@dataclass(frozen=True, eq=False)
class Play:
    """A pattern with everything that carrying it out needs: who takes part, and by which paths.

    Args:
        ranks: the member at each place of the group.
        paths: what a message from one rank to another of so many bytes goes along, whatever else is under way.
        reduce_s_per_byte: γ.
        base_s: what the collective takes beside its messages.
    """

    pattern: Pattern
    ranks: tuple[Rank, ...]
    paths: Callable[[Rank, Rank, float], Path]
    reduce_s_per_byte: float = 0.0
    base_s: float = 0.0

    @cached_property
    def courses(self) -> Courses:
        """The paths of its messages."""
        return courses(self.pattern, self.ranks, self.paths)

    def ports(self) -> frozenset[Port]:
        """All ports that its messages pass, as ways were when it was first asked."""
        return frozenset(self.courses.ports)

    def ways(self) -> list[tuple[Port, ...]]:
        """The ports of each of its paths, as ways are now."""
        now = courses(self.pattern, self.ranks, self.paths)
        return [tuple(now.ports[port] for port in now.passes[a:b]) for a, b in pairwise(now.first)]


@dataclass(frozen=True, slots=True)
class Moving:
    """Bytes on their way."""

    event: simpy.Event
    source: Rank
    target: Rank
    path: Path
    then: Callable[[], None]


class Performance:
    """A pattern being carried out.

    Args:
        env: the clock.
        carry: what moves bytes.
        play: what is carried out.
        entries_s: when each rank comes, not before now; all now without.
    """

    def __init__(self, env: simpy.Environment, carry: Carry, play: Play, entries_s: Amounts | None = None) -> None:
        self._env, self._carry, self._play = env, carry, play
        self.done: simpy.Event = env.event()
        """comes when every rank is through all its rounds"""
        self.finish_s = [env.now if entries_s is None else float(entry_s) for entry_s in _or(entries_s, play, env.now)]
        """of each rank: when it was through"""
        self._moving: dict[int, Moving] = {}
        self._timers: dict[int, tuple[float, Callable[[], None]]] = {}
        self._count = 0
        self._threads = [Thread(self, part) for part in play.pattern.parts]
        self._open = 0
        for place, entry_s in enumerate(list(self.finish_s)):
            for thread in self._threads:
                if thread.takes_part(place):
                    self._open += 1
                    self.after(entry_s - env.now, lambda thread=thread, place=place: thread.enter(place))  # type: ignore[misc]
        if not self._open:
            self.done.succeed()

    @property
    def now(self) -> float:
        return self._env.now

    def entered(self, part: int, number: int, repetition: int) -> Amounts:
        """When each of its ranks came to a repetition of a round."""
        times = self._threads[part].entered[number, repetition]
        return np.array([times[place] for place in sorted(times)])

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        """Goes on after so many seconds."""
        self._count += 1
        number, due_s = self._count, self._env.now + max(0.0, seconds)

        def ring() -> None:
            del self._timers[number]
            then()

        self._timers[number] = due_s, then
        _call(self._env.timeout(due_s - self._env.now), ring)

    def send(
        self, source: int, target: int, nbytes: float, through: Callable[[], None], arrived: Callable[[], None]
    ) -> None:
        """A message between two places: it says when its bytes are through the ports, and when it has arrived."""
        one, other = self._play.ranks[source], self._play.ranks[target]
        path = self._play.paths(one, other, nbytes)

        def passed() -> None:
            self.after(path.latency_s, arrived)
            through()

        self._move(one, other, nbytes, path, passed)

    def _move(self, one: Rank, other: Rank, nbytes: float, path: Path, then: Callable[[], None]) -> None:
        self._count += 1
        number = self._count
        event = self._carry(one, other, nbytes, path)

        def through() -> None:
            del self._moving[number]
            then()

        self._moving[number] = Moving(event, one, other, path, then)
        _call(event, through)

    def move(self, env: simpy.Environment, carry: Carry, remaining: Callable[[simpy.Event], float]) -> None:
        """From now on another clock and another network: what is under way goes on there, with what is left of it."""
        moving, timers, now_s = self._moving, self._timers, self._env.now
        self._env, self._carry, self._moving, self._timers = env, carry, {}, {}
        self.done = env.event()
        for one in moving.values():
            self._move(one.source, one.target, remaining(one.event), one.path, one.then)
        for due_s, then in timers.values():
            self.after(due_s - now_s, then)

    def reduce_s(self, nbytes: float) -> float:
        """What adding so many bytes takes."""
        return self._play.reduce_s_per_byte * nbytes

    def leave(self, place: int) -> None:
        """A rank is through all rounds of one part."""
        self.finish_s[place] = self._env.now
        self._open -= 1
        if not self._open:
            self.done.succeed()


def on_its_own(
    play: Play, capacity: Mapping[Port, float], entries_s: Amounts, begun_s: float = 0.0
) -> tuple[simpy.Environment, Flows, Performance]:
    """A performance on a network that nobody else uses, yet to be run, with its clock and its flows.

    Args:
        capacity: bytes per second of every port.
        entries_s: when each rank comes.
        begun_s: the time that the clock shows.
    """
    env = simpy.Environment(begun_s)
    flows = Flows(env, capacity)

    def carry(_one: Rank, _other: Rank, nbytes: float, path: Path) -> simpy.Event:
        return flows.begin(path.ports, nbytes, path.limit_bytes_per_s)

    return env, flows, Performance(env, carry, play, entries_s)


def _or(entries_s: Amounts | None, play: Play, now_s: float) -> Sequence[float]:
    return [now_s] * len(play.ranks) if entries_s is None else entries_s.tolist()


def _call(event: simpy.Event, then: Callable[[], None]) -> None:
    assert event.callbacks is not None, "who carries answers with an event that is still to come"
    event.callbacks.append(lambda _: then())


class Thread:
    """One part of a pattern: which round each rank has come to."""

    def __init__(self, performance: Performance, rounds: Rounds) -> None:
        self._performance, self._rounds = performance, rounds
        self._messages = [
            list(zip(one.sources.tolist(), one.targets.tolist(), one.nbytes.tolist(), strict=True)) for one in rounds
        ]
        self._of: list[dict[int, list[int]]] = []
        """of each round: the messages of each rank in it"""
        self._turns: dict[int, list[int]] = {}
        """of each rank: the rounds that it appears in"""
        for number, messages in enumerate(self._messages):
            mine: dict[int, list[int]] = {}
            for at, (source, target, _) in enumerate(messages):
                mine.setdefault(source, []).append(at)
                mine.setdefault(target, []).append(at)
            self._of.append(mine)
            for place in mine:
                self._turns.setdefault(place, []).append(number)
        self._waiting: set[tuple[int, int, int]] = set()
        """messages that one end has come to: round, repetition, message"""
        self._early: set[tuple[int, int, int]] = set()
        """messages that have arrived at a rank that has not come to their round"""
        self._at: dict[int, tuple[int, int]] = {}
        """of each rank: which of its turns, and which repetition"""
        self._pending: dict[int, int] = {}
        """of each rank: how many of its messages have not arrived"""
        self.entered: dict[tuple[int, int], dict[int, float]] = {}
        """of each round and repetition: when each rank came to it"""

    def takes_part(self, place: int) -> bool:
        return place in self._turns

    def enter(self, place: int, turn: int = 0, repetition: int = 0) -> None:
        """The rank is ready for a round: those of its messages begin whose other end is, too."""
        number = self._turns[place][turn]
        self.entered.setdefault((number, repetition), {})[place] = self._performance.now
        mine = self._of[number][place]
        self._at[place], self._pending[place] = (turn, repetition), len(mine)
        for at in mine:
            key = number, repetition, at
            source, target, nbytes = self._messages[number][at]
            if self._rounds[number].buffered:
                if place == source:
                    self._begin(key)
                elif key in self._early:
                    self._early.remove(key)
                    self._take(number, target, nbytes)
            elif key in self._waiting:
                self._waiting.remove(key)
                self._begin(key)
            else:
                self._waiting.add(key)

    def _begin(self, key: tuple[int, int, int]) -> None:
        number, repetition, at = key
        source, target, nbytes = self._messages[number][at]
        blocking = self._rounds[number].blocking

        def through() -> None:
            if not blocking:
                self._end_one(source)

        def arrived() -> None:
            if blocking:
                self._end_one(source)
            turn, at_repetition = self._at.get(target, (-1, 0))
            if turn >= 0 and (self._turns[target][turn], at_repetition) == (number, repetition):
                self._take(number, target, nbytes)
            else:
                self._early.add(key)

        self._performance.send(source, target, nbytes, through, arrived)

    def _take(self, number: int, target: int, nbytes: float) -> None:
        """A message that has arrived at a rank that is ready for it: it is added, if the round reduces."""
        added_s = self._performance.reduce_s(nbytes) if self._rounds[number].reduces else 0.0
        if added_s:
            self._performance.after(added_s, lambda: self._end_one(target))
        else:
            self._end_one(target)

    def _end_one(self, place: int) -> None:
        """One of the rank's messages has arrived; after the last, it goes on."""
        self._pending[place] -= 1
        if self._pending[place]:
            return
        turn, repetition = self._at[place]
        if repetition + 1 < self._rounds[self._turns[place][turn]].times:
            self.enter(place, turn, repetition + 1)
        elif turn + 1 < len(self._turns[place]):
            self.enter(place, turn + 1)
        else:
            self._performance.leave(place)
