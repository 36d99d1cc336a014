"""Max-min fair sharing the plain way: everything is solved again at every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.simulator.transfers import Pipe, Transfer


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


def finish_times(pipes: Mapping[str, Pipe], transfers: Sequence[Transfer]) -> list[float]:
    """When each transfer is through, by solving for all that are under way whenever one starts or ends."""
    capacity = {name: pipe.bytes_per_s for name, pipe in pipes.items() if not pipe.per_flow}
    ready, routes, left = [], [], [one.nbytes for one in transfers]
    for number, one in enumerate(transfers):
        limits = [pipes[name].bytes_per_s for name in one.route if pipes[name].per_flow]
        own = (f"limit of {number}",) if limits else ()
        capacity.update(dict.fromkeys(own, min(limits, default=0.0)))
        routes.append(tuple(name for name in one.route if not pipes[name].per_flow) + own)
        ready.append(one.start_s + sum(pipes[name].latency_s for name in one.route))
    finish = list(ready)
    to_come = sorted((number for number in range(len(ready)) if left[number] and routes[number]), key=ready.__getitem__)
    active: list[int] = []
    now = 0.0
    while to_come or active:
        rates = filled([routes[number] for number in active], capacity)
        ends = [now + left[number] / rate for number, rate in zip(active, rates, strict=True)]
        then = min([*ends, *(ready[number] for number in to_come[:1])])
        for number, rate, end in zip(tuple(active), rates, ends, strict=True):
            left[number] -= rate * (then - now)
            if end == then:
                finish[number] = end
                active.remove(number)
        now = then
        while to_come and ready[to_come[0]] <= now:
            active.append(to_come.pop(0))
    return finish
