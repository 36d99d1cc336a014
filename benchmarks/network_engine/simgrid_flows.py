"""Runs the flows of `benchmarks/network.py` in SimGrid, in a separate process, because SimGrid has one engine per
process.

    python benchmarks/network_engine/simgrid_flows.py < platform.json

The input is {"links": {name: bytes/s}, "flows": [[start, bytes, route]]}. Prints {"version", "wall_s", "finish_s"}.
Only the run is timed. The model is CM02 without its corrections for TCP, so that both engines solve the same problem.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import simgrid

CONFIG = {
    "network/model": "CM02",
    "network/bandwidth-factor": "1",
    "network/latency-factor": "1",
    "network/weight-S": "0",
    "network/TCP-gamma": "0",
    "network/crosstraffic": "0",
}


def main() -> None:
    """Builds the platform, runs it and prints the result."""
    platform = json.load(sys.stdin)
    arguments = [f"--cfg={key}:{value}" for key, value in CONFIG.items()]
    engine = simgrid.Engine([sys.argv[0], *arguments, "--log=root.thresh:warning"])
    zone = simgrid.NetZone.create_full_zone("all")
    links = {name: zone.create_link(name, rate).set_latency(0.0).seal() for name, rate in platform["links"].items()}
    hosts: dict[str, Any] = {}
    routes = set()
    for _, _, route in platform["flows"]:
        ends = route[0], route[-1]
        for name in ends:
            if name not in hosts:
                hosts[name] = zone.create_host(name, 1e9)
        if ends not in routes:
            routes.add(ends)
            source, target = (hosts[name].netpoint for name in ends)
            zone.add_route(source, target, None, None, [simgrid.LinkInRoute(links[name]) for name in route], False)
    zone.seal()
    flows = sorted(enumerate(platform["flows"]), key=lambda flow: flow[1][0])
    finish_s = [0.0] * len(flows)

    def send() -> None:
        comms = []
        for number, (start_s, nbytes, route) in flows:
            simgrid.this_actor.sleep_until(start_s)
            comms.append((number, simgrid.Comm.sendto_async(hosts[route[0]], hosts[route[-1]], nbytes)))
        for number, comm in comms:
            comm.wait()
            finish_s[number] = comm.finish_time

    simgrid.Actor.create("sender", next(iter(hosts.values())), send)
    began = time.perf_counter()
    engine.run()
    wall_s = time.perf_counter() - began
    print(json.dumps({"version": simgrid.simgrid_version, "wall_s": wall_s, "finish_s": finish_s}))


if __name__ == "__main__":
    main()
