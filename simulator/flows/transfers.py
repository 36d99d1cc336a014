"""Computes when each flow of a list ends, without SimPy.

* A transfer waits the latency of its route, then shares the links of the route max-min fairly.
* Long lists run as compiled code, short ones as plain Python. The source is the same; compiling takes some seconds,
  once per machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.simulator.flows.max_min import finish_times

MANY = 2000
"""number of transfers from which compiled code is used"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """One direction of a link, or a bus.

    Args:
        bytes_per_s: the capacity that all flows share, or with `per_flow`, the limit of each flow.
        latency_s: seconds.
        per_flow: whether flows do not share it.
    """

    bytes_per_s: float
    latency_s: float = 0.0
    per_flow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes that are sent along a route of pipes, which are given by name."""

    start_s: float
    nbytes: float
    route: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of `transfer_all`."""

    finish_s: list[float]
    """the end of each transfer, in the given order"""
    solved: int
    """how often rates were solved; simultaneous changes count once"""


def transfer_all(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer], *, compiled: bool | None = None) -> Outcome:
    """Computes the end of each transfer.

    finish = start + latencies of the route + the time until the integral of its max-min fair rate is its bytes

    Args:
        pipes: the links, by name.
        transfers: the flows.
        compiled: whether to run compiled code; by default, if there are many transfers.

    Returns:
        The ends, and the number of solutions.

    Raises:
        InputError: a route names an unknown pipe, or a number is negative or not finite.

    >>> one = Pipe(bytes_per_s=1000.0, latency_s=0.25)
    >>> both = [Transfer(start_s=0.0, nbytes=nbytes, route=("a",)) for nbytes in (200, 800)]
    >>> transfer_all({"a": one}, both).finish_s
    [0.65, 1.25]
    """
    _check(pipes, transfers)
    number = {name: at for at, name in enumerate(name for name in pipes if not pipes[name].per_flow)}
    finish_s = np.array([float(one.start_s) + sum(pipes[name].latency_s for name in one.route) for one in transfers])
    under_way = [at for at, one in enumerate(transfers) if one.nbytes > 0 and one.route]
    under_way.sort(key=finish_s.__getitem__)
    capacity, routes = [pipes[name].bytes_per_s for name in number], []
    for one in (transfers[at] for at in under_way):
        routes.append([number[name] for name in one.route if name in number])
        if limits := [pipes[name].bytes_per_s for name in one.route if pipes[name].per_flow]:
            routes[-1].append(len(capacity))
            capacity.append(min(limits))
    nbytes = np.array([float(transfers[at].nbytes) for at in under_way])
    compiled = len(transfers) >= MANY if compiled is None else compiled
    ends_s, solved = finish_times(capacity, routes, finish_s[under_way], nbytes, compiled=compiled)
    finish_s[under_way] = ends_s
    return Outcome(finish_s=finish_s.tolist(), solved=solved)


def _check(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer]) -> None:
    """Reports all errors together."""
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
            wrong.append(f"transfer {number}: found unknown pipes in its route: {', '.join(missing)}")
    if wrong:
        raise InputError("\n".join(wrong))
