"""Where everything of a report comes from: terms, the scenario with the sources of its presets, and versions.

The cluster is built as a run builds it, because the scenario names only what its user has chosen: the links of a named
system, for example, are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import yaml

from paceline.algorithms.core.errors import PacelineError
from paceline.records import Run
from paceline.records.document import flat as leaves
from paceline.records.figures import BYTES_PER_SECOND, COUNT, DURATION
from paceline.records.machine import package_versions
from paceline.reports.blocks import Answer, Block, Claim, Column, ReportSection, Table
from paceline.reports.timeline_data import label_of
from paceline.topologies.cluster import ClusterModel

TERMS = (
    ("worker", "a process that computes gradients; each process of a run has a number, its rank"),
    ("step", "one gradient of one worker, to the start of its next one; the last step lasts to its last activity"),
    ("update", "one change of the weights that are being learned"),
    ("staleness", "how old the weights are on which a gradient was computed, when the gradient is applied; 0 is fresh"),
    ("simulated", "computed in virtual time by a model of the cluster; training itself may be real arithmetic"),
    ("measured", "run for real, by processes that communicate through torch.distributed"),
    ("seed", "the number that determines all random choices; several seeds show how much is chance"),
)
"""terms for readers who have not seen Paceline"""
HIDDEN = ("warnings", "assumptions", "gradient_times", "collectives", "events")
"""facts about a run that have other places in a report, or are long"""
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
        values = dict(leaves(scenario.get("cluster", {})))
        sources = [path for path in values if path.rpartition(".")[2] == "provenance"]
        notes = [
            Preset(str(values.get(f"{path.removesuffix('provenance')}name") or "unnamed"), "", values[path])
            for path in sources
        ]
        names = {value for value in values.values() if isinstance(value, str)}
    else:
        notes = [*_built(cluster), *_library(scenario)]
        names = {node.device.name for node in cluster.nodes}
    notes += _model(scenario.get("workload", {}).get("model"))
    return list(dict.fromkeys(notes)), [*_devices(names)]


def _cluster(scenario: Mapping[str, Any]) -> ClusterModel | None:
    """Returns the cluster; None if it cannot be built here, for example because a file that it names is elsewhere."""
    from paceline.scenarios import load

    try:
        loaded = load(dict(scenario))
        return loaded.cluster.build(loaded.workload)
    except (PacelineError, OSError, ImportError):
        return None


def _built(cluster: ClusterModel) -> Iterator[Preset]:
    """Yields the links, the shape of the graph, devices, hosts and storage of a cluster."""
    links = {connection.link.name: (connection.link, "each hop: ") for connection in cluster.graph.connections}
    shared = [node.intra_node_link for node in cluster.nodes if len(set(node.seats)) < node.workers]
    links |= {link.name: (link, "") for link in shared}
    for name, (link, part) in links.items():
        values = (
            f"{part}latency {DURATION.text(link.latency_s, 4)}, bandwidth {BYTES_PER_SECOND.text(link.bytes_per_s, 4)}"
        )
        if (down := link.download_bytes_per_s) is not None:
            values += f", download {BYTES_PER_SECOND.text(down, 4)}"
        yield Preset(f"link {name}", values, link.provenance)
        if (variation := link.variation) is not None:
            values = f"bandwidth varies over time: cv {variation.cv:g}, every {DURATION.text(variation.every_s, 4)}"
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


def scenario_section(scenario: Mapping[str, Any], assumptions: Sequence[str] = (), workers: int = 0) -> ReportSection:
    """Returns the section of the scenario, and of the source of every preset in it.

    Args:
        scenario: the resolved scenario, as it can be run again.
        assumptions: what a simulation assumed, in sentences.
        workers: number of workers of the cluster, if it is known.
    """
    presets, devices = presets_of(scenario, workers)
    text = yaml.safe_dump(without_empty(scenario), sort_keys=False, allow_unicode=True, width=100)
    words = Claim(
        "The scenario describes the cluster, the workload and the methods. Saved as a file, it can be run again with "
        "`paceline simulate FILE`."
    )
    blocks: list[Block] = [words]
    if presets:
        columns = [Column("preset"), Column("values"), Column("source")]
        sources = (
            "FOUND: in the named source. DERIVED: computed from others. MEMORY: known, but no text was found. "
            "INFERENCE: estimated from similar cases."
        )
        blocks.append(Table("Where the values of presets come from", columns, presets, words=sources))
    if devices:
        columns = [Column("device"), Column("figure"), Column("source")]
        blocks.append(Table("Figures of devices in the catalogue", columns, devices, folded=True))
    if assumptions:
        columns = [Column("", COUNT), Column("assumption")]
        blocks.append(Table("What the simulation assumes", columns, list(enumerate(assumptions, 1))))
    blocks.append(Claim(text, "The scenario, without empty keys", verbatim=True))
    return ReportSection("scenario", "Scenario", blocks)


def without_empty(value: Any) -> Any:
    """Returns a scenario without keys that are null or empty.

    >>> without_empty({"a": None, "b": {"c": []}, "d": [{"e": 1, "f": None}], "g": False})
    {'d': [{'e': 1}], 'g': False}
    """
    if isinstance(value, Mapping):
        cleaned = {str(name): without_empty(part) for name, part in value.items()}
        return {name: part for name, part in cleaned.items() if part is not None and part not in ([], {})}
    if isinstance(value, list | tuple):
        return [without_empty(part) for part in value]
    return value


def versions_section(runs: Sequence[Run] = ()) -> ReportSection:
    """Returns the section of versions, machines and the folders of runs.

    Args:
        runs: all runs of the report.
    """
    tables = _compared("Versions", {label_of(run): dict(run.versions) for run in runs}, folded=False)
    tables += _compared("Machine and engine", {label_of(run): _machine(run) for run in runs}, folded=True)
    if any(run.path for run in runs):
        rows = [(label_of(run), run.path.name if run.path else None) for run in runs]
        tables.append(Table("Folders of the runs", [Column("run"), Column("folder")], rows, folded=True))
    written = {"written": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", **package_versions()}
    tables.append(_facts("This report", written, folded=bool(runs)))
    return ReportSection("versions", "Versions", tables)


def _facts(title: str, values: Mapping[str, Any], *, folded: bool) -> Table:
    rows = [(name, str(value)) for name, value in values.items()]
    return Table(title, [Column(""), Column("")], rows, folded=folded)


def _machine(run: Run) -> dict[str, str]:
    shown = {name: value for name, value in run.machine.items() if name not in HIDDEN}
    return {name: text for name, text in flat(shown).items() if name != "operations"}


def flat(mapping: Mapping[str, Any]) -> dict[str, str]:
    """Returns the leaves of nested mappings by path; empty values, and lists of mappings, are left out.

    >>> flat({"a": {"b": 1, "c": None}, "d": [1, 2]})
    {'a.b': '1', 'd': '1, 2'}
    """
    lists: dict[str, list[str]] = {}
    for path, value in leaves(mapping):
        name, bracket, index = path.partition("[")
        if value not in (None, "") and (not bracket or index.rstrip("]").isdigit()):
            lists.setdefault(name, []).append(str(value))
    return {name: ", ".join(values) for name, values in lists.items()}


def _compared(title: str, values: Mapping[str, Mapping[str, str]], *, folded: bool) -> list[Table]:
    """Returns the facts that all runs have in common, and a table of those that differ."""
    if not values:
        return []
    names = dict.fromkeys(name for facts in values.values() for name in facts)
    same = {name for name in names if len({facts.get(name) for facts in values.values()}) == 1}
    common = {name: next(iter(values.values()))[name] for name in names if name in same}
    tables = [_facts(f"{title} of all runs", common, folded=folded)] if common else []
    if other := [name for name in names if name not in same]:
        rows = [(label, *(facts.get(name) for name in other)) for label, facts in values.items()]
        columns = [Column("run"), *map(Column, other)]
        tables.append(Table(f"{title}: what differs between runs", columns, rows, folded=True))
    return tables


def terms() -> Table:
    """Returns the table of terms."""
    return Table("Terms", [Column("term"), Column("meaning")], TERMS, folded=True)


def with_provenance(answer: Answer, scenario: Mapping[str, Any] | None) -> Answer:
    """Returns an answer with what every report has: terms, the scenario, if it is known, and the versions.

    Args:
        answer: the answer.
        scenario: the resolved scenario.
    """
    known = [] if scenario is None else [scenario_section(scenario)]
    return replace(
        answer,
        summary=lambda: [*answer.summary(), terms()],
        sections=lambda: [*answer.sections(), *known, versions_section()],
    )
