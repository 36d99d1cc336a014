"""Transfers between pipes that are given by name, as in the case files, with the product's solver of flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.simulator.flows.max_min import finish_times


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


def transfer_all(
    pipes: Mapping[str, Pipe], transfers: Sequence[Transfer], *, compiled: bool = False
) -> tuple[list[float], int]:
    """Returns when each transfer ends, by the solver, and how often it solved rates.

    finish = start + latencies of the route + the time until the integral of its max-min fair rate is its bytes

    Raises:
        InputError: a route names an unknown pipe, or a number is negative or not finite.
    """
    check(pipes, transfers)
    number = {name: at for at, name in enumerate(name for name in pipes if not pipes[name].per_flow)}
    finish_s = np.array(
        [float(transfer.start_s) + sum(pipes[name].latency_s for name in transfer.route) for transfer in transfers]
    )
    under_way = [at for at, transfer in enumerate(transfers) if transfer.nbytes > 0 and transfer.route]
    under_way.sort(key=finish_s.__getitem__)
    capacity, routes = [pipes[name].bytes_per_s for name in number], []
    for transfer in (transfers[at] for at in under_way):
        routes.append([number[name] for name in transfer.route if name in number])
        if limits := [pipes[name].bytes_per_s for name in transfer.route if pipes[name].per_flow]:
            routes[-1].append(len(capacity))
            capacity.append(min(limits))
    nbytes = np.array([float(transfers[at].nbytes) for at in under_way])
    ends_s, solved = finish_times(capacity, routes, finish_s[under_way], nbytes, compiled=compiled)
    finish_s[under_way] = ends_s
    return finish_s.tolist(), solved


def check(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer]) -> None:
    """Reports all errors of a case together."""
    wrong = [
        f"pipe {name!r}: found {pipe.bytes_per_s} bytes/s and a latency of {pipe.latency_s} s, expected more "
        "than 0 bytes/s and 0 s or more, both finite"
        for name, pipe in pipes.items()
        if not (0.0 < pipe.bytes_per_s < np.inf and 0.0 <= pipe.latency_s < np.inf)
    ]
    for number, transfer in enumerate(transfers):
        if not (0.0 <= transfer.start_s < np.inf and 0.0 <= transfer.nbytes < np.inf):
            wrong.append(
                f"transfer {number}: found {transfer.nbytes} bytes at {transfer.start_s} s, expected 0 or more of each"
            )
        if missing := [name for name in transfer.route if name not in pipes]:
            wrong.append(f"transfer {number}: found unknown pipes in its route: {', '.join(missing)}")
    if wrong:
        raise InputError("\n".join(wrong))
