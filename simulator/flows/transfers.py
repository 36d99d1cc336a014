"""A whole list of flows at once, without SimPy: when each is through.

Rules of this file:

* A transfer waits the latency of its route, then shares the route's links max-min fairly until its bytes are through.
* Long lists run as machine code, short ones as they stand: the source is the same, compiling takes seconds once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.simulator.flows import max_min
from paceline.simulator.flows.compiled import machine_code
from paceline.simulator.flows.network_state import Net, add_flow, add_link, as_arrays, network

MANY = 2000
"""from so many transfers on, machine code is worth loading"""


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
    finish_s = [float(one.start_s) + sum(pipes[name].latency_s for name in one.route) for one in transfers]
    under_way = [number for number, one in enumerate(transfers) if one.nbytes > 0 and one.route]
    under_way.sort(key=finish_s.__getitem__)  # what is under way together is near each other in memory
    net = network(pipes[name].bytes_per_s for name in shared)
    for one in (transfers[number] for number in under_way):
        limits = [pipes[name].bytes_per_s for name in one.route if pipes[name].per_flow]
        own = [add_link(net, min(limits))] if limits else []
        add_flow(net, [shared[name] for name in one.route if name in shared] + own, one.nbytes)
    times_s = [finish_s[number] for number in under_way]
    solved, net = _play(net, times_s, len(transfers) >= MANY if compiled is None else compiled)
    for number, time_s in zip(under_way, times_s, strict=True):
        finish_s[number] = time_s
    carried = {name: float(net.links[number].carried) for name, number in shared.items()}
    return Outcome(finish_s=finish_s, carried_bytes=carried, solved=solved)


def _play(net: Net, times_s: list[float], compiled: bool) -> tuple[int, Net]:
    """Flows that start in the order of their numbers; their ends take the place of their starts."""
    if not compiled or not times_s:
        return max_min.play(net, times_s), net
    net, times = as_arrays(net), np.array(times_s)
    solved = machine_code().play(net, times)
    times_s[:] = times.tolist()
    return int(solved), net


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
