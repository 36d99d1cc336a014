"""Max-min fair sharing by the simplest algorithm: everything is solved again at every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from benchmarks.network_engine.transfers import Pipe, Transfer


def filled(flows: Sequence[tuple[str, ...]], capacity: Mapping[str, float]) -> list[float]:
    """Progressive filling: all rates rise together until a link is full; the flows through it stop there."""
    rates = [0.0] * len(flows)
    free = {link: capacity[link] for flow in flows for link in flow}
    rising = dict.fromkeys(range(len(flows)))
    while rising:
        count = {link: sum(flows[index].count(link) for index in rising) for link in free}
        full = min((link for link in free if count[link]), key=lambda link: free[link] / count[link])
        rate = free[full] / count[full]
        for index in [index for index in rising if full in flows[index]]:
            rates[index] = rate
            del rising[index]
            for link in flows[index]:
                free[link] -= rate
        del free[full]
    return rates


@dataclass(frozen=True)
class Flow:
    """A flow of this many bytes along links, from a time on, with a maximum rate."""

    ready_s: float
    nbytes: float
    links: tuple[str, ...]
    limit: float = inf


@dataclass(frozen=True)
class Change:
    """From a time on a link has another bandwidth."""

    at_s: float
    link: str
    bytes_per_s: float


@dataclass(frozen=True)
class Move:
    """From a time on the rest of a flow takes other links."""

    at_s: float
    number: int
    links: tuple[str, ...]


def replayed(capacity: Mapping[str, float], flows: Sequence[Flow], acts: Sequence[Change | Move]) -> list[float]:
    """Returns when each flow ends, infinite if never, by solving for all at every start, end, change and reroute."""
    limits = {f"limit of {number}": flow.limit for number, flow in enumerate(flows) if flow.limit < inf}
    capacity = dict(capacity) | limits
    links = [flow.links for flow in flows]
    left = [flow.nbytes for flow in flows]
    finish = [flow.ready_s if flow.nbytes == 0 or not (flow.links or flow.limit < inf) else inf for flow in flows]
    to_come = sorted((number for number, end in enumerate(finish) if end == inf), key=lambda one: flows[one].ready_s)
    to_do = sorted(acts, key=lambda act: act.at_s)
    active: list[int] = []
    now = 0.0
    while True:
        ways = [links[number] + (f"limit of {number}",) * (flows[number].limit < inf) for number in active]
        rates = filled(ways, capacity)
        ends = [now + left[one] / rate if rate else inf for one, rate in zip(active, rates, strict=True)]
        then = min([*ends, *(flows[one].ready_s for one in to_come[:1]), *(act.at_s for act in to_do[:1])], default=inf)
        if then == inf:
            return finish
        for number, rate, end in zip(tuple(active), rates, ends, strict=True):
            left[number] -= rate * (then - now)
            if end == then:
                finish[number] = end
                active.remove(number)
        now = then
        while to_do and to_do[0].at_s <= now:
            match to_do.pop(0):
                case Change(link=link, bytes_per_s=bytes_per_s):
                    capacity[link] = bytes_per_s
                case Move(number=number, links=others):
                    links[number] = others
        while to_come and flows[to_come[0]].ready_s <= now:
            active.append(to_come.pop(0))


def finish_times(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer]) -> list[float]:
    """Returns when each transfer ends."""
    flows = []
    for one in transfers:
        ways = [pipes[name] for name in one.route]
        links = tuple(name for name in one.route if not pipes[name].per_flow)
        limit = min((pipe.bytes_per_s for pipe in ways if pipe.per_flow), default=inf)
        flows.append(Flow(one.start_s + sum(pipe.latency_s for pipe in ways), one.nbytes, links, limit))
    return replayed({name: pipe.bytes_per_s for name, pipe in pipes.items() if not pipe.per_flow}, flows, [])
