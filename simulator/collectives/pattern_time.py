"""Computes how long a message pattern takes alone on the network, exactly and by the fastest method that applies.

* Recurrence: if no two messages of the pattern can share a port, the duration of a message does not depend on when it
  starts, and the times at which ranks are done follow a max-plus recurrence. This is the case if every port is used by
  one sender only, or by one receiver only to which no buffered message is sent, because a rank goes through its rounds
  one after the other. The many repetitions of a ring have a closed form (`repeated`).
* Separate parts: parts that share no port do not influence each other and are computed separately.
* Shortened repetitions: otherwise the pattern is simulated message by message, but repeated rounds only a few times. If
  all ranks enter a repetition later than the one before by the same time, twice in a row, the remaining repetitions
  follow at this distance, because everything depends only on when ranks enter. So leaving them out only shifts the
  times of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from paceline.simulator.collectives.execution import Progress, begun, simulate_alone
from paceline.simulator.collectives.patterns import Amounts, Pattern, Places, Round, Rounds
from paceline.simulator.collectives.plans import CollectivePlan, MessagePaths
from paceline.simulator.flows.fabric import Fabric
from paceline.simulator.flows.path_tables import Numbers

SHORT = 4
"""repetitions that are simulated at first; doubled until the distance is constant"""
ENOUGH = 32
"""repetitions after which the distance is usually constant"""
MANY_STEPS = 2**16
"""ranks × repetitions of a round from which its closed form is used: below, repetitions take less than 10 ms"""
SOME, SEVERAL = 1000, 100_000
"""messages of each round in which a shared port is looked for first, in patterns of more than `SEVERAL` messages"""
SAME = 1e-12
"""relative tolerance for equal times, because sums differ in their last bits"""
MOST_VALUES = 64
"""different values of s up to which the closed form is used; with more, repetitions are computed one by one"""
AT_ONCE = 2**20
"""numbers in temporary arrays"""


def alone_s(
    plan: CollectivePlan, fabric: Fabric, entries_s: Amounts | None = None, *, compiled: bool | None = None
) -> Amounts:
    """Returns when each rank is done if nothing else uses the network, in seconds.

    Args:
        plan: the collective.
        fabric: the network's capacities.
        entries_s: when each rank enters, seconds; all at 0 by default.
        compiled: whether messages are simulated by compiled code, as who prices many collectives wants; by default,
            if there are many messages.
    """
    ready = np.zeros(len(plan.ranks)) if entries_s is None else np.asarray(entries_s, dtype=float)
    if not plan.pattern.parts:
        return ready + plan.base_s
    through_s: Amounts = np.max([_group_s(group, fabric, ready, compiled) for group in _apart(plan)], axis=0)
    return through_s + plan.base_s


def steps_s(plan: CollectivePlan) -> float:
    """Returns the seconds of all steps of a plan without its bytes: what it takes if links and sums take no time.

    Args:
        plan: the collective.
    """
    paths, none = plan.message_paths, np.zeros(len(plan.ranks))
    ready = [
        recurrence(part, [(np.zeros(len(path)), paths.latency_s[path]) for path in of], none, 0.0)
        for part, of in zip(plan.pattern.parts, paths.of, strict=True)
    ]
    return float(np.max(ready, initial=0.0)) + plan.base_s


def messages_needed(plan: CollectivePlan) -> int:
    """Returns about how many messages `alone_s` simulates: 0 for a recurrence, otherwise without most repetitions.

    If some messages share a port, all do not have to be looked up.
    """
    if len(plan.pattern.parts) == 1 and sum(len(round_.sources) for round_ in plan.pattern.parts[0]) > SEVERAL:
        some = tuple(
            replace(round_, sources=round_.sources[:SOME], targets=round_.targets[:SOME], nbytes=round_.nbytes[:SOME])
            for round_ in plan.pattern.parts[0]
        )
        sample = replace(plan, pattern=Pattern((some,)))
        if not _exclusive(sample.pattern, sample.message_paths):
            return sum(len(round_.sources) * min(round_.times, ENOUGH) for round_ in plan.pattern.parts[0])
    return sum(
        len(round_.sources) * min(round_.times, ENOUGH)
        for group in _apart(plan)
        if len(group.pattern.parts) > 1 or not _exclusive(group.pattern, group.message_paths)
        for part in group.pattern.parts
        for round_ in part
    )


def settles(rounds: Rounds, rows: Sequence[tuple[Amounts, Amounts]], reduce_s_per_byte: float) -> bool:
    """Returns whether all long repetitions of rounds reach a constant distance within `ENOUGH` of them.

    In a ring whose messages have different latencies, ranks do not reach one until the first message has gone around.

    Args:
        rounds: the rounds of one part.
        rows: for each round, the seconds that its messages need on the ports, and their latencies.
        reduce_s_per_byte: the seconds to add a byte.
    """
    ready = np.zeros(max(int(max(round_.sources.max(), round_.targets.max())) for round_ in rounds) + 1)
    for round_, row in zip(rounds, rows, strict=True):
        before = recurrence((replace(round_, times=min(round_.times, ENOUGH)),), (row,), ready, reduce_s_per_byte)
        if round_.times > ENOUGH:
            ready = recurrence((replace(round_, times=1),), (row,), before, reduce_s_per_byte)
            members = np.union1d(round_.sources, round_.targets)
            if _shift((ready - before)[members]) is None:
                return False
        else:
            ready = before
    return True


def _group_s(plan: CollectivePlan, fabric: Fabric, ready: Amounts, compiled: bool | None) -> Amounts:
    paths = plan.message_paths
    if len(plan.pattern.parts) == 1 and _exclusive(plan.pattern, paths):
        with np.errstate(divide="ignore"):  # without ports, only the limit counts
            rates = np.minimum(paths.limit_bytes_per_s, 1.0 / paths.most(1.0 / paths.capacities(fabric.capacity)))
        rows = [
            (round_.nbytes / rates[path], paths.latency_s[path])
            for round_, path in zip(plan.pattern.parts[0], paths.of[0], strict=True)
        ]
        return recurrence(plan.pattern.parts[0], rows, ready, plan.reduce_s_per_byte)
    return _shortened(plan, fabric, ready, compiled)


def _apart(plan: CollectivePlan) -> list[CollectivePlan]:
    """Returns a plan for each group of parts that share ports."""
    parts, paths = plan.pattern.parts, plan.message_paths
    if len(parts) == 1:
        return [plan]
    on = [
        set(
            np.concatenate(
                [paths.passes[paths.first[at] : paths.first[at + 1]] for at in set(np.concatenate(own).tolist())]
            )
        )
        for own in paths.of
    ]
    groups: list[tuple[set[int], list[int]]] = []
    for number, ports in enumerate(on):
        near = [group for group in groups if group[0] & ports]
        groups = [group for group in groups if not group[0] & ports]
        groups.append((ports.union(*(group[0] for group in near)), sorted(sum((group[1] for group in near), [number]))))
    return [replace(plan, pattern=Pattern(tuple(parts[at] for at in members))) for _, members in groups]


# --- recurrence ------------------------------------------------------------------------------------------------------


def _exclusive(pattern: Pattern, paths: MessagePaths) -> bool:
    """Returns whether no two messages can share a port."""
    for round_ in pattern.parts[0]:
        if not (_once(round_.sources) and _once(round_.targets)):
            return False
    path = np.repeat(np.arange(len(paths.source)), paths.hops)
    buffered = np.zeros(len(paths.source), dtype=bool)
    for round_, numbers in zip(pattern.parts[0], paths.of[0], strict=True):
        buffered[numbers] |= round_.buffered
    several_receivers = _several(paths.passes, paths.target[path], len(paths.ports))
    several_receivers[paths.passes[buffered[path]]] = True
    return not (several_receivers & _several(paths.passes, paths.source[path], len(paths.ports))).any()


def _several(ports: Numbers, places: Numbers, number: int) -> NDArray[np.bool_]:
    """Returns for each port whether more than one place uses it."""
    known = np.zeros(number, dtype=np.int64)
    known[ports] = places
    shared = np.zeros(number, dtype=bool)
    shared[ports[known[ports] != places]] = True
    return shared


def recurrence(
    rounds: Rounds, rows: Sequence[tuple[Amounts, Amounts]], ready: Amounts, reduce_s_per_byte: float
) -> Amounts:
    """Returns when each rank is done with the rounds of one part, in seconds.

    In each round: start = max(ready(source), ready(target)), or ready(source) if buffered; through = start + n/rate;
    arrival = through + latency. A rank that sends and receives is ready when both are done.

    Args:
        rounds: the rounds of the part.
        rows: for each round, the seconds that its messages need on the ports, and their latencies.
        ready: when each rank enters, seconds.
        reduce_s_per_byte: γ, the seconds to add a byte.
    """
    for round_, (passing, latency) in zip(rounds, rows, strict=True):
        after = reduce_s_per_byte * round_.nbytes if round_.reduces else 0.0
        once = _once(round_.sources) and _once(round_.targets)
        all_in = once and len(round_.sources) == len(ready)
        left = round_.times
        if round_.buffered and all_in and left * len(ready) > MANY_STEPS:
            later_s = _in_closed_form(round_, passing, latency, after, ready)
            ready, left = (ready, left) if later_s is None else (later_s, 0)
        while left:
            start = (
                ready[round_.sources] if round_.buffered else np.maximum(ready[round_.sources], ready[round_.targets])
            )
            through = start + passing
            arrival = through + latency
            taken = np.maximum(arrival, ready[round_.targets]) + after
            later = ready.copy()
            if once:  # a rank is done when it has sent and received
                later[round_.sources] = arrival if round_.blocking else through
                later[round_.targets] = np.maximum(later[round_.targets], taken)
            else:
                np.maximum.at(later, round_.sources, arrival if round_.blocking else through)
                np.maximum.at(later, round_.targets, taken)
            left -= 1
            if left and all_in and (step := _shift(later - ready)) is not None:
                later += left * step
                left = 0
            ready = later
    return ready


def _in_closed_form(
    round_: Round, passing: Amounts, latency: Amounts, after: Amounts | float, ready: Amounts
) -> Amounts | None:
    """Returns when each rank is done with all repetitions of a buffered round, see `repeated`."""
    stay, step, following = np.empty_like(ready), np.empty_like(ready), np.empty_like(round_.sources)
    stay[round_.sources] = passing + latency if round_.blocking else passing
    stay[round_.targets] = np.maximum(stay[round_.targets], after)
    step[round_.sources], following[round_.sources] = passing + latency + after, round_.targets
    return repeated(following, ready, stay, step, round_.times)


def _once(places: Places) -> bool:
    return len(np.unique(places)) == len(places)


def _shift(steps: Amounts) -> float | None:
    """Returns the common value of all steps, or None if they differ."""
    low, high = float(steps.min()), float(steps.max())
    return high if high - low <= SAME * high else None


# --- many repetitions of a ring's round -------------------------------------------------------------------------------

# In one repetition of a round in which every rank sends to one other and receives from one, a rank i that was ready at
# R(i) is ready at max(R(i) + s(i), R(p) + t(p)): it has sent its own message, or added what it received, after s(i),
# and the message of the rank p before it needs t(p). So K repetitions are walks of K steps that go forward over j
# messages and wait K - j times, at any of the ranks that they pass:
#
#     R_K(i) = max over 0 ≤ j ≤ K, and ranks m from i - j to i, of  R(i - j) + Σ t over these messages + (K - j) s(m)
#
# A ring has K = ranks - 1 repetitions, so no walk passes a message twice. For each different value of s, this is a
# maximum over windows whose ends move forward with i, so that the cost is ranks × different values, not ranks × K.


def repeated(next_place: Places, ready: Amounts, stay: Amounts, step: Amounts, times: int) -> Amounts | None:
    """Returns when each rank is ready after repetitions of a round; None if the closed form does not apply.

    Args:
        next_place: the receiver of each place's message.
        ready: when each place enters, seconds.
        stay: s, the seconds of a place's own part.
        step: t, the seconds from when a place is ready until its receiver is done with its message.
        times: K, the number of repetitions.

    >>> import numpy as np
    >>> repeated(np.array([1, 2, 0]), np.zeros(3), np.array([1.0, 1.0, 5.0]), np.array([2.0, 2.0, 6.0]), 2)
    array([11.,  8., 10.])
    """
    values = np.unique(stay)
    rings = _rings(next_place)
    if len(values) > MOST_VALUES or rings is None or times != rings.shape[1] - 1:
        return None
    after = ready.copy()
    together = max(1, AT_ONCE // rings.shape[1])
    for low in range(0, len(rings), together):
        own = rings[low : low + together]
        after[own] = _around(ready[own], stay[own], step[own])
    return after


def _rings(next_place: Places) -> Places | None:
    """Returns the places of each ring in order, one row per ring; None if rings differ in length.

    The order of a ring is found by doubling: with the place 2^k further on known for all, so is that 2^(k + 1) on.
    """
    count = len(next_place)
    lowest, further, reached = np.arange(count), next_place, 1
    while reached < count:
        lowest, further, reached = np.minimum(lowest, lowest[further]), further[further], 2 * reached
    heads, sizes = np.unique(lowest, return_counts=True)
    length = int(sizes[0])
    if (sizes != length).any():
        return None
    rows = np.empty((len(heads), length), dtype=np.int64)
    rows[:, 0], filled, further = heads, 1, next_place
    while filled < length:
        more = min(filled, length - filled)
        rows[:, filled : filled + more] = further[rows[:, :more]]
        filled, further = 2 * filled, further[further]
    return rows


def _around(ready: Amounts, stay: Amounts, step: Amounts) -> Amounts:
    """Returns the result for rings whose places are in order, one row per ring.

    Places are unrolled to two rounds of the ring of L places. A walk to place L + i begins at i + 1 or later, because
    it has L − 1 steps. So its window begins in the first round or at the first place of the second one.
    """
    length = ready.shape[1]
    passed = np.cumsum(np.concatenate((np.zeros((len(ready), 1)), step, step[:, :-1]), axis=1), axis=1)
    twice = np.concatenate((ready, ready), axis=1)
    at = np.arange(2 * length)
    best = np.full(ready.shape, -np.inf)
    for value in np.unique(stay):
        waits = np.concatenate((stay == value, stay == value), axis=1)
        last = np.maximum.accumulate(np.where(waits, at, -1), axis=1)  # where the walk may have waited so long
        start = twice - passed + value * at
        early = last[:, length - 1 : length]
        # walks that begin in the first round and wait in it, or wait later
        from_first = _suffix(np.where(at[:length] <= early, start[:, :length], -np.inf))
        from_any = _suffix(start[:, :length])
        second = np.maximum.accumulate(start[:, length:], axis=1)
        place = last[:, length:] - length
        rows = np.arange(len(ready))[:, None]
        inside = np.where(place >= 0, second[rows, np.maximum(place, 0)], -np.inf)
        before = np.where(place >= 0, from_any[:, 1:], from_first[:, 1:])
        best = np.maximum(best, np.maximum(inside, before) + passed[:, length:] + value * (length - 1 - at[length:]))
    return best


def _suffix(values: Amounts) -> Amounts:
    """Returns the maximum from each column to the last one; −∞ for one more column."""
    highest = np.maximum.accumulate(values[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate((highest, np.full((len(values), 1), -np.inf)), axis=1)


# --- message by message ----------------------------------------------------------------------------------------------


def _shortened(plan: CollectivePlan, fabric: Fabric, entries_s: Amounts, compiled: bool | None) -> Amounts:
    times = SHORT
    while True:
        parts = tuple(
            tuple(replace(round_, times=min(round_.times, times)) for round_ in part) for part in plan.pattern.parts
        )
        shorter = replace(plan, pattern=Pattern(parts))
        end = simulate_alone(shorter, fabric, begun(shorter, entries_s), compiled=compiled)
        if all(round_.times <= times for part in plan.pattern.parts for round_ in part):
            return end.finish_s(entries_s)
        if (left_out := _left_out(plan, end, times)) is not None:
            return end.finish_s(entries_s) + left_out
        times *= 2


def _left_out(plan: CollectivePlan, end: Progress, times: int) -> float | None:
    """Returns the seconds that the omitted repetitions add for every rank; None if they are not known yet."""
    shapes = {tuple(round_.times for round_ in part) for part in plan.pattern.parts}
    if len(shapes) > 1:
        return None
    length, later_s = len(plan.pattern.parts[0]), 0.0
    for number, often in enumerate(shapes.pop()):
        if often <= times:
            continue
        steps = []
        for index, part in enumerate(plan.pattern.parts):
            if not (_bound(part[: number + 1], plan) and _bound((*part[:number:-1], part[number]), plan)):
                return None
            entries = end.last_entries(index * length + number, times)
            steps += [_shift(after - before) for before, after in pairwise(entries)]
        if None in steps or _shift(np.array(steps, dtype=float)) is None:
            return None
        later_s += (often - times) * float(steps[-1] or 0.0)
    return later_s


def _bound(rounds: Rounds, plan: CollectivePlan) -> bool:
    """Returns whether messages connect every rank, directly or indirectly, to the ranks of the last of these rounds."""
    tied = {*rounds[-1].sources.tolist(), *rounds[-1].targets.tolist()}
    for round_ in reversed(rounds[:-1]):
        if len(tied) == len(plan.ranks):
            return True
        for source, target in zip(round_.sources.tolist(), round_.targets.tolist(), strict=True):
            if source in tied or target in tied:
                tied |= {source, target}
    return len(tied) == len(plan.ranks)
