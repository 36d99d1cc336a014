"""Stars whose links vary over time, and the bandwidth that a link has at each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from paceline.topologies.cluster import ClusterModel
from paceline.topologies.graphs.graph import Ends
from paceline.topologies.graphs.links import VariationModel
from tests.clusters import star

RATE = 1000.0
"""mean bytes per second of the links"""


def varying_star(*hosts: int, latency_s: float = 0.0, **variations: VariationModel) -> ClusterModel:
    """Returns a star of hosts with these numbers of workers, of which the named links vary: host0=Variation(cv=0.3)."""
    cluster = star(*hosts, latency_s=latency_s, bytes_per_s=RATE)
    return varied(cluster, {("switch", host): variation for host, variation in variations.items()})


def varied(cluster: ClusterModel, variations: Mapping[Ends, VariationModel]) -> ClusterModel:
    wires = (
        replace(wire, link=replace(wire.link, variation=variations.get(wire.ends)))
        for wire in cluster.graph.connections
    )
    return replace(cluster, graph=replace(cluster.graph, connections=tuple(wires)))


def end_of(nbytes: float, *variations: VariationModel | None, names: tuple[str, ...], seed: int = 0) -> float:
    """Returns when so many bytes have passed links one after the other, by integrating the smallest of their factors.

    The variations have the same interval.
    """
    paths = [
        variation.factors(seed, name)
        for variation, name in zip(variations, names, strict=True)
        if variation is not None
    ]
    every_s = next(one.every_s for one in variations if one is not None)
    for number in count():
        rate = RATE * min(1.0 if None in variations else float("inf"), *(next(path) for path in paths))
        if nbytes <= rate * every_s:
            return number * every_s + nbytes / rate
        nbytes -= rate * every_s
    raise AssertionError
