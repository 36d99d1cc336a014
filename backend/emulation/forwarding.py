"""The arithmetic of a user-space forwarder: packets cross one line after another, store and forward.

    departure = max(arrival, the line's last departure) + bytes / rate;   at the next line: departure + latency

Rules of this file:

* A line is a first-in-first-out queue with a limit in bytes. A packet that exceeds it is dropped and counted.
* Packets move in the order of their computed times, not of the process's progress: a delay of the process is seen and
  counted at the delivery, and does not accumulate from line to line.
* These functions are compiled by numba and are also plain Python (``.py_func``), which tests call. Nothing is allocated
  while packets move. The system calls are libc's own, found by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np

from paceline.topologies.packet_lines import PacketLine

FULL = -1.0
"""returned instead of a time: the queue is full"""
BATCH = 64
"""packets that are read from one host before it is the next host's turn"""
SLEEP_S = 0.05
"""the longest sleep between two checks"""
POLLIN, CLOCK_MONOTONIC = 1, 1
PACKETS, BYTES, DROPPED, LATE_S, LATEST_S, LOST, HISTOGRAM = range(7)
"""indices of the counters"""
BUCKETS = 40
"""buckets of lateness: the k-th counts delays below 2^k µs and of at least half of that"""
HOSTS = HISTOGRAM + BUCKETS
"""from this index on: bytes from each host, then bytes to each host"""
_TYPES: Any = numba.types
_read = _TYPES.ExternalFunction("read", _TYPES.intp(_TYPES.intc, _TYPES.uintp, _TYPES.uintp))
_write = _TYPES.ExternalFunction("write", _TYPES.intp(_TYPES.intc, _TYPES.uintp, _TYPES.uintp))
_ppoll = _TYPES.ExternalFunction("ppoll", _TYPES.intc(_TYPES.uintp, _TYPES.uintp, _TYPES.uintp, _TYPES.uintp))
_clock = _TYPES.ExternalFunction("clock_gettime", _TYPES.intc(_TYPES.intc, _TYPES.uintp))


class ForwardingTables(NamedTuple):
    """Lines, routes, and packets in flight; all arrays."""

    rate: Any
    """of each line, in bytes of whole packets per second"""
    latency_s: Any
    limit: Any
    """the queue limit of each line, in bytes"""
    free_s: Any
    """each line's last departure"""
    first: Any
    """of each pair of hosts: where its route begins in `hops`; −1 without a route"""
    after: Any
    """of each pair of hosts: the end of its route in `hops`"""
    hops: Any
    """lines, one route after another"""
    room: Any
    """the packets' bytes, one packet per row"""
    size: Any
    at: Any
    """the index in `hops` that a packet has reached"""
    end: Any
    """the index in `hops` at which it has arrived"""
    target: Any
    """the host of its destination"""
    late_s: Any
    """how late it may have been when it was read"""
    spare: Any
    """rows without a packet"""
    key: Any
    """a binary heap of events: when a packet is at its next line or at its destination"""
    order: Any
    item: Any
    counts: Any
    """the number of spare rows, of pending events, and of all events so far"""


def tables(
    lines: Sequence[PacketLine],
    routes: Mapping[tuple[int, int], tuple[int, ...]],
    hosts: int,
    *,
    packet: int,
    headers: int,
    queue: float,
    slots: int,
) -> ForwardingTables:
    """Returns tables for lines without packets: at most `slots` packets in flight, of at most `packet` bytes each.

    Of these bytes, `headers` are not part of a message and do not count towards a line's rate; `queue` bytes may wait
    at each line.

    Args:
        lines: the lines.
        routes: from host to host, the indices of the lines in order.
        hosts: the number of hosts.
        packet: the largest packet, in bytes.
        headers: header bytes of a packet.
        queue: the limit of each line's queue, in bytes.
        slots: the maximum number of packets in flight.
    """
    first, after, hops = np.full(hosts * hosts, -1), np.zeros(hosts * hosts, np.int64), list[int]()
    for (source, to), route in routes.items():
        first[source * hosts + to] = len(hops)
        hops.extend(route)
        after[source * hosts + to] = len(hops)
    whole, numbers = np.zeros(slots), np.zeros(slots, np.int64)
    return ForwardingTables(
        rate=np.array([line.bytes_per_s * packet / (packet - headers) for line in lines], np.float64),
        latency_s=np.array([line.latency_s for line in lines], np.float64),
        limit=np.full(len(lines), float(queue)),
        free_s=np.full(len(lines), -math.inf),
        first=first,
        after=after,
        hops=np.array(hops, np.int64),
        room=np.empty((slots, packet), np.uint8),  # pages are allocated when they are first written
        size=numbers.copy(), at=numbers.copy(), end=numbers.copy(), target=numbers.copy(),
        late_s=whole.copy(),
        spare=np.arange(slots)[::-1].copy(),
        key=whole.copy(), order=numbers.copy(), item=numbers.copy(),
        counts=np.array([slots, 0, 0]),
    )  # fmt: skip


compiled = numba.njit(cache=True)


@compiled
def cross(rate: Any, latency_s: Any, limit: Any, free_s: Any, line: int, size: int, now: float) -> float:
    """Returns when a packet that reaches a line now is at the line's other end; `FULL` if it is dropped.

    Args:
        rate: of each line, in bytes of whole packets per second.
        latency_s: of each line.
        limit: of each line's queue, in bytes.
        free_s: each line's last departure; updated.
        line: the index of the line.
        size: bytes of the packet.
        now: the time of its arrival.
    """
    start = max(now, free_s[line])
    if (start - now) * rate[line] + size > limit[line]:
        return FULL
    free_s[line] = start + size / rate[line]
    return float(free_s[line] + latency_s[line])


@compiled
def put(t: ForwardingTables, due_s: float, packet: int) -> None:
    """Adds an event."""
    at, turn = t.counts[1], t.counts[2]
    t.counts[1] += 1
    t.counts[2] += 1
    while at > 0:
        above = (at - 1) >> 1
        if t.key[above] <= due_s:  # events of the same time remain in order: this is the latest one
            break
        t.key[at], t.order[at], t.item[at] = t.key[above], t.order[above], t.item[above]
        at = above
    t.key[at], t.order[at], t.item[at] = due_s, turn, packet


@compiled
def take(t: ForwardingTables) -> int:
    """Removes the first event and returns its packet."""
    packet = t.item[0]
    t.counts[1] -= 1
    count = t.counts[1]
    due_s, turn, last = t.key[count], t.order[count], t.item[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (t.key[other], t.order[other]) < (t.key[below], t.order[below]):
            below = other
        if (due_s, turn) <= (t.key[below], t.order[below]):
            break
        t.key[at], t.order[at], t.item[at] = t.key[below], t.order[below], t.item[below]
        at = below
    t.key[at], t.order[at], t.item[at] = due_s, turn, last
    return int(packet)


@compiled
def let_go(t: ForwardingTables, packet: int) -> None:
    """Frees the packet's row."""
    t.spare[t.counts[0]] = packet
    t.counts[0] += 1


@compiled
def go_on(t: ForwardingTables, packet: int, now: float) -> bool:
    """Moves a packet to the next line of its route; returns False if it is dropped there."""
    there_s = cross(t.rate, t.latency_s, t.limit, t.free_s, t.hops[t.at[packet]], t.size[packet], now)
    if there_s == FULL:
        let_go(t, packet)
        return False
    t.at[packet] += 1
    put(t, there_s, packet)
    return True


@compiled
def enter(t: ForwardingTables, packet: int, size: int, hosts: int, source: int, seen_s: float, now: float) -> int:
    """Starts a packet that was read into this row: returns 1 if it departs, 0 if it is dropped, −1 if it has no route.

    It arrived at `seen_s` or later. Its delay is counted from then, or from when its first line was free if that is
    later.
    """
    header = t.room[packet]
    to = (header[18] << 8) + header[19] - 1 if size >= 20 and header[0] >> 4 == 4 else -1
    if not 0 <= to < hosts or t.first[source * hosts + to] < 0:
        let_go(t, packet)
        return -1
    t.size[packet], t.target[packet] = size, to
    t.at[packet], t.end[packet] = t.first[source * hosts + to], t.after[source * hosts + to]
    t.late_s[packet] = max(0.0, now - max(seen_s, t.free_s[t.hops[t.at[packet]]]))
    return 1 if go_on(t, packet, now) else 0


@compiled
def note_late(counters: Any, late_s: float) -> None:
    """Counts the delay of a delivered packet."""
    counters[LATE_S] += late_s
    counters[LATEST_S] = max(counters[LATEST_S], late_s)
    bucket = 0
    while bucket < BUCKETS - 1 and late_s * 1e6 >= 2.0**bucket:
        bucket += 1
    counters[HISTOGRAM + bucket] += 1


@compiled
def _now(stamp: Any) -> float:
    _clock(CLOCK_MONOTONIC, stamp.ctypes.data)
    return float(stamp[0] + 1e-9 * stamp[1])


@compiled
def _deliver(t: ForwardingTables, files: Any, counters: Any, stamp: Any, now: float) -> float:
    """Moves or delivers all packets that are due; returns the time afterwards."""
    hosts = len(files)
    while t.counts[1] > 0 and t.key[0] <= now:
        due_s = t.key[0]
        packet = take(t)
        if t.at[packet] < t.end[packet]:
            if not go_on(t, packet, due_s):
                counters[DROPPED] += 1
            continue
        size, to = t.size[packet], t.target[packet]
        if _write(files[to], t.room[packet].ctypes.data, size) == size:
            counters[PACKETS] += 1
            counters[BYTES] += size
            counters[HOSTS + hosts + to] += size
        else:
            counters[LOST] += 1
        let_go(t, packet)
        note_late(counters, t.late_s[packet] + max(0.0, now - due_s))
        now = _now(stamp)
    return now


@compiled
def _collect(t: ForwardingTables, files: Any, counters: Any, source: int, seen_s: Any, stamp: Any, now: float) -> float:
    """Reads packets that a host has sent; returns the time afterwards."""
    hosts = len(files)
    for _ in range(BATCH):
        if t.counts[0] == 0:  # no row is free: the packets wait in the device
            return now
        t.counts[0] -= 1
        packet = t.spare[t.counts[0]]
        size = _read(files[source], t.room[packet].ctypes.data, t.room.shape[1])
        now = _now(stamp)
        if size <= 0:
            let_go(t, packet)
            seen_s[source] = now
            return now
        outcome = enter(t, packet, size, hosts, source, seen_s[source], now)
        if outcome == 0:
            counters[DROPPED] += 1
        if outcome >= 0:
            counters[HOSTS + source] += size
    return now


@compiled
def forward(t: ForwardingTables, files: Any, counters: Any, polled: Any, seen_s: Any, until_s: float) -> float:
    """Moves packets between the hosts' devices until `until_s`; returns the time.

    `files` are their non-blocking descriptors, and `polled` the same in the form of `poll`; `seen_s` has, for each
    host, the last time when there was nothing to read.
    """
    stamp = np.zeros(2, np.int64)
    wait = np.zeros(2, np.int64)
    now = _now(stamp)
    while now < until_s:
        now = _deliver(t, files, counters, stamp, now)
        pause_s = min(SLEEP_S, max(0.0, until_s - now))
        if t.counts[1] > 0:
            pause_s = min(pause_s, max(0.0, t.key[0] - now))
        wait[1] = int(1e9 * pause_s)
        ready = _ppoll(polled.ctypes.data, len(files), wait.ctypes.data, 0)
        before, now = now, _now(stamp)
        if pause_s > 0.0:
            seen_s[:] = now
        for source in range(len(files)):
            if ready > 0 and polled[source, 1] >> 16 & POLLIN:
                now = _collect(t, files, counters, source, seen_s, stamp, now)
            elif pause_s <= 0.0:
                seen_s[source] = before
    return now
