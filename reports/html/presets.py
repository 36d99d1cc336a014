"""The presets that a scenario uses, each with its values and the source of these values.

The cluster is built as a run builds it, because the scenario names only what its user has chosen: the links of a named
system, for example, are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from paceline.algorithms.core.errors import PacelineError
from paceline.records.figures import significant
from paceline.topologies.cluster import Cluster

LARGEST = 10_000
"""workers of the largest cluster that is built for this list; larger ones take seconds; provenance: ours"""


class Preset(NamedTuple):
    """A preset, or one value of it."""

    name: str
    values: str
    source: str


def presets_of(scenario: Mapping[str, Any], workers: int) -> tuple[list[Preset], list[Preset]]:
    """Returns the presets of a scenario, and the figures of the catalogue's devices in it.

    Args:
        scenario: the resolved scenario.
        workers: number of workers of the cluster.
    """
    cluster = _cluster(scenario) if workers <= LARGEST else None
    if cluster is None:
        found = [*_given(scenario.get("cluster", {}))]
        names = set(_texts(scenario.get("cluster", {})))
    else:
        found = [*_built(cluster), *_library(scenario)]
        names = {node.device.name for node in cluster.nodes}
    found += _model(scenario.get("workload", {}).get("model"))
    return list(dict.fromkeys(found)), [*_devices(names)]


def _cluster(scenario: Mapping[str, Any]) -> Cluster | None:
    """Returns the cluster; None if it cannot be built here, for example because a file that it names is elsewhere."""
    from paceline.scenarios import load

    try:
        loaded = load(dict(scenario))
        return loaded.cluster.build(loaded.workload)
    except (PacelineError, OSError, ImportError):
        return None


def _built(cluster: Cluster) -> Iterator[Preset]:
    """Yields the links, the shape of the graph, devices, hosts and storage of a cluster."""
    links = {one.link.name: (one.link, "each hop: ") for one in cluster.graph.connections}
    shared = [node.intra_node_link for node in cluster.nodes if len(set(node.seats)) < node.workers]
    links |= {link.name: (link, "") for link in shared}
    for name, (link, part) in links.items():
        values = f"{part}latency {quantity(link.latency_s, 's')}, bandwidth {quantity(link.bytes_per_s, 'B/s')}"
        if (down := link.download_bytes_per_s) is not None:
            values += f", download {quantity(down, 'B/s')}"
        yield Preset(f"link {name}", values, link.provenance)
        if (variation := link.variation) is not None:
            values = f"bandwidth varies over time: cv {variation.cv:g}, every {quantity(variation.every_s, 's')}"
            yield Preset(f"link {name}", values, variation.provenance)
    graph = cluster.graph
    yield Preset(f"topology {graph.name}", f"{len(graph.vertices):,} vertices", graph.provenance)
    for device in {node.device.name: node.device for node in cluster.nodes}.values():
        yield Preset(f"device {device.name}", "time of a gradient", device.provenance)
        if device.rates is not None:
            yield Preset(f"device {device.name}", "time of updates and copies", device.rates.provenance)
    for node in {node.device.name: node for node in cluster.nodes}.values():
        yield Preset(f"host of {node.device.name}", "bandwidth of main memory", node.memory.provenance)
        if node.host_rates is not None:
            yield Preset(f"host of {node.device.name}", "time of updates and copies", node.host_rates.provenance)
    if cluster.storage is not None:
        for name, source in cluster.storage.provenance.items():
            yield Preset(f"storage {cluster.storage.name}", name.replace("_", " "), source)


def _library(scenario: Mapping[str, Any]) -> Iterator[Preset]:
    from paceline.topologies.catalogue.libraries import LIBRARIES

    name = scenario.get("cluster", {}).get("network", {}).get("library")
    if name in LIBRARIES:
        yield Preset(f"library {name}", "algorithms and protocols of collectives", LIBRARIES[name].provenance)


def _given(value: Any) -> Iterator[Preset]:
    """Yields the parts of a scenario that carry a provenance of their own."""
    if isinstance(value, Mapping):
        if isinstance(source := value.get("provenance"), str):
            yield Preset(str(value.get("name") or "unnamed"), "", source)
        for one in value.values():
            yield from _given(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _given(one)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def _devices(names: set[str]) -> Iterator[Preset]:
    """Yields the figures of the catalogue's devices among some names."""
    from paceline.topologies.catalogue.device_catalogue import SPECS

    for name in sorted(names & set(SPECS)):
        spec = SPECS[name]
        for figure, source in spec.provenance.items():
            value = getattr(spec, figure, None)
            text = f" {value:g}" if isinstance(value, int | float) else ""
            yield Preset(spec.title, figure.replace("_", " ") + text, source)


def _model(name: Any) -> Iterator[Preset]:
    from paceline.workloads import MODELS

    if isinstance(name, str) and name in MODELS:
        model = MODELS[name]
        yield Preset(f"model {name}", f"{model.parameters:,} parameters", model.provenance)


def quantity(value: float, unit: str) -> str:
    """Formats a time or a bandwidth with few digits.

    >>> quantity(2e-05, "s"), quantity(1150000000.0, "B/s"), quantity(0.0, "s")
    ('20 µs', '1.15 GB/s', '0 s')
    """
    prefixes = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
    for factor, prefix in prefixes if unit != "s" else prefixes[3:]:
        if value >= factor * (1 - 1e-9):
            return f"{significant(value / factor, 4)} {prefix}{unit}"
    return f"{value:g} {unit}"
