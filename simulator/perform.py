"""How long a message pattern takes if nothing else uses the network: as quickly as can be said exactly.

Rules of this file:

* All at once: where every port is used by one sender only, or by one receiver only that no message comes to before it
  is ready, no two messages of the pattern ever share a port, as every rank goes through its rounds one after the other.
  Then every message takes the same time whenever it starts, and the times at which ranks are ready follow a max-plus
  recurrence.
* Shortened: otherwise it is carried out message by message, but rounds that repeat only a few times. Once all ranks
  enter a repetition by one and the same time later than the one before, twice in a row, whatever follows is the same
  once more, that much later: what happens depends on when ranks become ready and on nothing else. So the rest of the
  repetitions only shift what comes after.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import simpy

from paceline.simulator.fabric import Fabric
from paceline.simulator.flows import Flows, Port
from paceline.simulator.patterns import Amounts, Pattern, Round
from paceline.simulator.performance import Performance, Play

SHORT = 4
"""repetitions that are played at first; twice as many each time they turn out not to be enough"""
SAME = 1e-12
"""times this near to each other, relative to their size, are equal: sums differ in their last bits"""


def alone_s(play: Play, fabric: Fabric, entries_s: Amounts | None = None) -> Amounts:
    """When each rank is done, if nothing else uses the network.

    Args:
        entries_s: when each comes; all at 0 without.
    """
    ready = np.zeros(len(play.ranks)) if entries_s is None else np.asarray(entries_s, dtype=float)
    if not play.pattern.parts:
        return ready + play.base_s
    if len(play.pattern.parts) == 1 and (rows := _exclusive(play, fabric)) is not None:
        return _recurrence(play, rows, ready) + play.base_s
    return _shortened(play, fabric, ready) + play.base_s


# --- all at once -----------------------------------------------------------------------------------------------------


def _exclusive(play: Play, fabric: Fabric) -> list[tuple[Amounts, Amounts]] | None:
    """Of each message of each round, its time on the ports and its latency; None if any two could share a port."""
    senders: dict[Port, int] = {}
    receivers: dict[Port, int] = {}
    several_senders: set[Port] = set()
    several_receivers: set[Port] = set()
    """or one that messages come to unasked"""
    rows = []
    for one in play.pattern.parts[0]:
        if len(set(one.sources.tolist())) < len(one.sources) or len(set(one.targets.tolist())) < len(one.targets):
            return None
        paths = play.along(one)
        for source, target, path in zip(one.sources.tolist(), one.targets.tolist(), paths, strict=True):
            for port in path.ports:
                if senders.setdefault(port, source) != source:
                    several_senders.add(port)
                if one.buffered or receivers.setdefault(port, target) != target:
                    several_receivers.add(port)
        if several_senders & several_receivers:
            return None
        capacity = fabric.capacity
        rates = [min(path.limit_bytes_per_s, *(capacity[port] for port in path.ports)) for path in paths]
        rows.append((one.nbytes / np.array(rates), np.array([path.latency_s for path in paths])))
    return rows


def _recurrence(play: Play, rows: list[tuple[Amounts, Amounts]], ready: Amounts) -> Amounts:
    """Round by round: start = max(ready(source), ready(target)), or ready(source) alone; through = start + n/rate;
    arrival = through + latency; who sends and receives is ready when both are done with it."""
    for one, (passing, latency) in zip(play.pattern.parts[0], rows, strict=True):
        after = play.reduce_s_per_byte * one.nbytes if one.reduces else 0.0
        left = one.times
        while left:
            start = ready[one.sources] if one.buffered else np.maximum(ready[one.sources], ready[one.targets])
            through = start + passing
            arrival = through + latency
            later = ready.copy()
            later[one.sources] = arrival if one.blocking else through
            later[one.targets] = np.maximum(later[one.targets], np.maximum(arrival, ready[one.targets]) + after)
            left -= 1
            if left and (step := _shift(later[one.targets] - ready[one.targets])) is not None and _all_in(one, ready):
                later += left * step
                left = 0
            ready = later
    return ready


def _all_in(one: Round, ready: Amounts) -> bool:
    return len(one.sources) == len(ready) == len(one.targets)


def _shift(steps: Amounts) -> float | None:
    """The time by which all have moved, if it is one and the same."""
    low, high = float(steps.min()), float(steps.max())
    return high if high - low <= SAME * high else None


# --- message by message ----------------------------------------------------------------------------------------------


def played(play: Play, fabric: Fabric, entries_s: Amounts) -> Performance:
    """The whole pattern, message by message, on a network of its own."""
    env = simpy.Environment(0.0)
    flows = Flows(env, fabric.capacity)
    performance = Performance(
        env, lambda _one, _other, nbytes, path: flows.begin(path.ports, nbytes, path.limit_bytes_per_s), play, entries_s
    )
    env.run(performance.done)
    return performance


def _shortened(play: Play, fabric: Fabric, entries_s: Amounts) -> Amounts:
    times = SHORT
    while True:
        parts = tuple(tuple(replace(one, times=min(one.times, times)) for one in part) for part in play.pattern.parts)
        performance = played(replace(play, pattern=Pattern(parts)), fabric, entries_s)
        finish_s = np.array(performance.finish_s)
        if all(one.times <= times for part in play.pattern.parts for one in part):
            return finish_s
        if len(parts) == 1 and (left_out := _left_out(play, performance, times)) is not None:
            return finish_s + left_out
        times *= 2


def _left_out(play: Play, performance: Performance, times: int) -> float | None:
    """By how much everybody is later for the repetitions that were not played; None if that cannot be said yet."""
    (part,) = play.pattern.parts
    later_s = 0.0
    for number, one in enumerate(part):
        if one.times <= times:
            continue
        if not (_bound(part[: number + 1], play) and _bound((*part[:number:-1], one), play)):
            return None
        entries = [performance.entered(0, number, times - back) for back in (3, 2, 1)]
        steps = [_shift(after - before) for before, after in pairwise(entries)]
        if None in steps or _shift(np.array(steps, dtype=float)) is None:
            return None
        later_s += (one.times - times) * float(steps[-1] or 0.0)
    return later_s


def _bound(rounds: tuple[Round, ...], play: Play) -> bool:
    """Whether messages tie every rank, directly or by way of others, to those of the last of these rounds."""
    tied = {*rounds[-1].sources.tolist(), *rounds[-1].targets.tolist()}
    for one in reversed(rounds[:-1]):
        for source, target in zip(one.sources.tolist(), one.targets.tolist(), strict=True):
            if source in tied or target in tied:
                tied |= {source, target}
    return len(tied) == len(play.ranks)
