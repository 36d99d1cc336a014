"""A whole list of flows at once, without SimPy: when each is through.

Rules of this file:

* A transfer waits the latency of its route, then shares the route's links max-min fairly until its bytes are through.
* Long lists run as machine code, short ones as they stand: the source is the same, compiling takes seconds once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from paceline.algorithms.errors import InputError
from paceline.simulator import fluid
from paceline.simulator.net import Net, add_flow, add_link, as_arrays, network

MANY = 2000
"""from so many transfers on, machine code is worth loading"""
PARTS = (
    *(fluid.put, fluid.take, fluid.rise, fluid.sink, fluid.enter, fluid.leave, fluid.wake, fluid.disturb),
    *(fluid.free, fluid.account, fluid.solve, fluid.until, fluid.fill, fluid.survey, fluid.stop, fluid.widen),
    *(fluid.next_end, fluid.together),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """One direction of a link, or a bus.

    Args:
        bytes_per_s: what all flows on it have together, or, where it is `per_flow`, each of them by itself.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    per_flow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """So many bytes along a route of pipes, by name."""

    start_s: float
    nbytes: float
    route: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What has become of a list of transfers."""

    finish_s: list[float]
    """of each transfer, in the order given"""
    carried_bytes: dict[str, float]
    """through each pipe that flows share, as rates times durations"""
    solved: int
    """times at which rates were set: simultaneous changes count once"""


def transfer_all(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer], *, compiled: bool | None = None) -> Outcome:
    """When each transfer is through.

    finish = start + latencies of the route + the time in which its max-min fair rate adds up to its bytes

    Args:
        compiled: whether to run as machine code; by default, where there are many transfers.

    Raises:
        InputError: a route names a pipe that there is not, or a number is not finite or below nought.

    >>> one = Pipe(bytes_per_s=1000.0, latency_s=0.25)
    >>> both = [Transfer(start_s=0.0, nbytes=nbytes, route=("a",)) for nbytes in (200, 800)]
    >>> transfer_all({"a": one}, both).finish_s
    [0.65, 1.25]
    """
    _check(pipes, transfers)
    shared = {name: number for number, name in enumerate(name for name in pipes if not pipes[name].per_flow)}
    net = network(pipes[name].bytes_per_s for name in shared)
    for transfer in transfers:
        limits = [pipes[name].bytes_per_s for name in transfer.route if pipes[name].per_flow]
        own = [add_link(net, min(limits))] if limits else []
        add_flow(net, [shared[name] for name in transfer.route if name in shared] + own, transfer.nbytes)
    ready = [float(one.start_s) + sum(pipes[name].latency_s for name in one.route) for one in transfers]
    finish, solved, net = _play(net, ready, len(transfers) >= MANY if compiled is None else compiled)
    carried = {name: float(net.carried[number]) for name, number in shared.items()}
    return Outcome(finish_s=finish, carried_bytes=carried, solved=solved)


def _play(net: Net, ready: list[float], compiled: bool) -> tuple[list[float], int, Net]:
    flows = [flow for flow in range(len(ready)) if net.remaining[flow] > 0.0 and net.hops[flow] > 0]
    order = sorted(flows, key=ready.__getitem__)
    finish, leaving = list(ready), [0] * len(ready)
    if not compiled or not flows:
        return finish, fluid.play(net, order, ready, finish, leaving), net
    net, finishes = as_arrays(net), np.array(finish)
    solved = machine_code()(net, np.array(order), np.array(ready), finishes, np.array(leaving))
    return [float(finish_s) for finish_s in finishes], int(solved), net


@cache
def machine_code() -> Callable[..., Any]:
    """`fluid.play`, to be compiled at its first call; what has been compiled is kept on disk beside its source."""
    import numba
    import numba.extending

    for part in PARTS:
        numba.extending.register_jitable(part)
    return numba.njit(cache=True)(fluid.play)


def _check(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer]) -> None:
    """All mistakes at once."""
    wrong = [
        f"pipe {name!r}: found {pipe.bytes_per_s} bytes/s and a latency of {pipe.latency_s} s, expected more "
        "than 0 bytes/s and 0 s or more, both finite"
        for name, pipe in pipes.items()
        if not (0.0 < pipe.bytes_per_s < np.inf and 0.0 <= pipe.latency_s < np.inf)
    ]
    for number, one in enumerate(transfers):
        if not (0.0 <= one.start_s < np.inf and 0.0 <= one.nbytes < np.inf):
            wrong.append(f"transfer {number}: found {one.nbytes} bytes at {one.start_s} s, expected 0 or more of each")
        if missing := [name for name in one.route if name not in pipes]:
            wrong.append(f"transfer {number}: its route names {', '.join(missing)}, which the pipes do not")
    if wrong:
        raise InputError("\n".join(wrong))
