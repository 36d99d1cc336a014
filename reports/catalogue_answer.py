"""Answers about what Paceline knows: lists of the catalogues, and a cluster graph."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.records.figures import (
    BITS_PER_SECOND,
    BYTES_PER_SECOND,
    COUNT,
    DURATION,
    PERCENT,
    significant,
)
from paceline.reports.blocks import Answer, Block, Claim, Column, Table, TableCell

if TYPE_CHECKING:
    from pathlib import Path

    from paceline.topologies.catalogue.device_catalogue import Spec
    from paceline.topologies.catalogue.storage_devices import StorageModel
    from paceline.topologies.graphs.graph import Description, Graph
    from paceline.topologies.graphs.links import LinkModel
    from paceline.workloads.reading.folder import RecordedDataset

Item = dict[str, Any]


def listing(kind: str, names: Sequence[str] = ()) -> Answer:
    """Returns the answer of `paceline list`; its document is ``{"kind", "items": [{"name", …}]}``.

    Args:
        kind: a kind of `LISTINGS`.
        names: the items to list, by their names or aliases; none for all.

    Raises:
        InputError: no item has one of the names.

    >>> listing("links", ["ib-edr"]).data()["items"][0]["bytes_per_s"]
    11900000000.0
    """
    items = list(LISTINGS[kind]())
    if names:
        known = {name: item for item in items for name in (*item.get("aliases", ()), *item.get("common_names", ()))}
        known |= {item["name"]: item for item in items}
        hint = f"paceline list {kind} shows all"
        if mistakes := [f"found {name!r}{near_miss(name, known, hint)}" for name in names if name not in known]:
            raise InputError("\n".join(f"list {kind}: {text}" for text in mistakes))
        items = list({known[name]["name"]: known[name] for name in names}.values())
    notes: Sequence[str] = ()
    if kind == "algorithms":
        from paceline.scenarios.sections.methods import unusable

        notes = list(unusable())
    blocks = described(items) if kind == "algorithms" and names else [table_of(kind, items)]
    return Answer(kind, blocks, lambda: {"kind": kind, "items": items}, notes=notes)


def described(items: Iterable[Item]) -> list[Block]:
    """Returns what is known of algorithms: description, staleness, guarantees, and a table of hyper-parameters."""
    from paceline.scenarios.sections.methods import find_method

    blocks: list[Block] = []
    for item in items:
        name, method = item["name"], find_method(item["name"])
        facts = [f"{name}: {item['description']}"]
        facts += [f"known as {', '.join(item['common_names'])}"] if item["common_names"] else []
        facts += [f"source: {item['source']}", f"staleness: {item['staleness']}", ""]
        promised = sorted((guarantee.slug, guarantee.value) for guarantee in method.guarantees)
        ranges = method.every_range()
        settings = [
            (setting, json.dumps(default), ranges[setting][1] if setting in ranges else "")
            for setting, default in item["hyperparameters"].items()
        ]
        columns = [Column("name"), Column("default"), Column("must be")]
        blocks.append(Claim("\n".join(facts)))
        blocks.append(Table(f"guarantees of {name}", [Column("name"), Column("what it promises")], promised))
        blocks.append(Table(f"hyper-parameters of {name}", columns, settings))
    return blocks


def table_of(kind: str, items: list[Item]) -> Table:
    """Returns a table with name, description and the main properties of each item."""
    if kind == "devices":
        return _device_table(items)
    rows = []
    for item in items:
        known = item.get("parameters")
        settings = [f"{name}={default}" for name, default in known.items()] if isinstance(known, dict) else []
        settings += [", ".join(item["algorithms"])] if "algorithms" in item else []
        common = [f"known as {', '.join(names)}"] if (names := item.get("common_names")) else []
        origin = [f"from {item['from']}"] if item.get("from", "built in") != "built in" else []
        more = [" ".join(part) for part in (common, settings, origin) if part]
        rows.append((item["name"], "\n".join([item["description"], *more])))
    return Table(f"{len(items)} {kind}", [Column("name"), Column("description")], rows)


def _algorithms() -> Iterable[Item]:
    from paceline.scenarios.sections.methods import catalogue

    return catalogue()


def models() -> Iterable[Item]:
    """Yields the models with their layers, and the data sets that each can learn."""
    from paceline.workloads import MODELS
    from paceline.workloads.datasets import fitting
    from paceline.workloads.models.zoo import ZOO

    for name, model in MODELS.items():
        learns = fitting(ZOO[name].shape, ZOO[name].classes) if name in ZOO else []
        words = _asked_for(model.parameters, len(model.layers), model.forward_flops)
        yield {
            "name": name,
            "description": f"{words}; learns {', '.join(learns)}" if learns else words,
            "data": learns,
            "parameters": model.parameters,
            "forward_flops": model.forward_flops,
            "training_flops": model.training_flops,
            "samples_per_epoch": model.num_samples,
            "layers": [{"name": layer.name, "parameters": layer.parameters} for layer in model.layers],
            "provenance": model.provenance,
        }


def _asked_for(parameters: int, layers: int, forward_flops: int) -> str:
    size = f"{parameters:,} parameters in {layers} layers".replace(",", " ")
    return f"{size}, {significant(forward_flops / 1e9)} GFLOP forward a sample" if forward_flops else size


def datasets() -> Iterable[Item]:
    """Yields the data sets with the form and number of samples and the content of the folder."""
    from paceline.workloads.datasets import DATA

    for name, dataset in DATA.items():
        words = dataset.words if dataset.train is None else f"{dataset.train} + {dataset.test} of {dataset.words}"
        yield {
            "name": name,
            "description": "\n".join(
                [
                    words,
                    *([f"folder: {dataset.holds}"] if dataset.holds else []),
                    *([f"installed by: apt-get install {dataset.package}"] if dataset.package else []),
                    f"from: {dataset.source}",
                ]
            ),
            "shape": dataset.shape,
            "classes": dataset.classes,
            "train": dataset.train,
            "test": dataset.test,
            "holds": dataset.holds,
            "source": dataset.source,
            "package": dataset.package,
        }


def scenarios() -> Iterable[Item]:
    """Yields the shipped scenarios."""
    from paceline.scenarios.values.text import shipped

    for scenario in shipped():
        yield {
            "name": scenario.name,
            "description": scenario.description,
            "algorithms": list(scenario.algorithms),
            "path": str(scenario.path),
        }


def devices() -> Iterable[Item]:
    """Yields the devices of the catalogue with their figures in SI units, each with its provenance."""
    from paceline.topologies.catalogue.device_catalogue import SPECS, THIS_MACHINE
    from paceline.topologies.compute.prediction_errors import basis, chip_error

    for name, spec in SPECS.items():
        known = chip_error(spec)
        yield {
            **dataclasses.asdict(spec),
            "name": name,
            "description": f"{_device_line(spec)}; {basis(spec)}",
            "published_rows": known.rows if known else 0,
            "left_out_error": known.error if known else None,
            "aliases": list(spec.aliases),
        }
    words = "this machine: measured when a scenario names it, which takes a second or two"
    yield {"name": THIS_MACHINE, "description": words, "kind": "cpu", "provenance": {}}


def _device_line(spec: Spec) -> str:
    also = f"; also {', '.join(spec.aliases)}" if spec.aliases else ""
    return f"{spec.title}, {spec.year}{also}"


def _device_table(items: list[Item]) -> Table:
    """Returns a table with a row per device: peaks by precision, memory and bandwidth, those of far memory below; the
    published rows of its chip, and how far off they are predicted without them."""
    columns = [
        Column("name"), *map(Column, ("kind", "TFLOP/s", "GB", "GB/s")), Column("rows", COUNT), Column("off", PERCENT),
        Column("description"),
    ]  # fmt: skip
    rows = []
    for item in items:
        peaks = " ".join(
            f"{precision} {significant(rate / 1e12, 4)}" for precision, rate in item.get("peaks", {}).items()
        )
        memory, speed = (
            "\n".join(f"{item[key] / 1e9:g}" for key in keys if item.get(key))
            for keys in (("memory_bytes", "far_bytes"), ("bytes_per_s", "far_bytes_per_s"))
        )
        known = (item.get("published_rows"), item.get("left_out_error"))
        rows.append(
            (item["name"], item["kind"], peaks, memory, speed,
             *(TableCell("" if value is None else value) for value in known), item["description"])
        )  # fmt: skip
    return Table(f"{len(items)} devices", columns, rows)


def topologies() -> Iterable[Item]:
    """Yields the cluster graphs with their parameters."""
    from paceline.topologies.graphs.graph_registry import TOPOLOGIES, parameters

    for name, builder in TOPOLOGIES.items():
        yield {"name": name, "description": first_line(builder), "parameters": parameters(name)}


def links() -> Iterable[Item]:
    """Yields the known links with their figures in SI units and their provenance."""
    from paceline.topologies import LINKS

    for link in LINKS.values():
        yield {**dataclasses.asdict(link), "description": f"{_link_line(link)}; {link.provenance}"}


def _link_line(link: LinkModel) -> str:
    """Describes the figures of a link in one line."""
    down, variation = link.download_bytes_per_s, link.variation
    parts = [
        DURATION.text(link.latency_s, 4),
        BITS_PER_SECOND.text(8 * link.bytes_per_s, 4) + ("" if down is None else " up"),
        *([] if down is None else [f"{BITS_PER_SECOND.text(8 * down, 4)} down"]),
        *([] if variation is None else [f"cv {variation.cv:g} over time"]),
    ]
    return ", ".join(parts)


def storage() -> Iterable[Item]:
    """Yields the known storage with its figures in SI units, each with its provenance."""
    from paceline.topologies import STORAGE

    for storage in STORAGE.values():
        yield {**dataclasses.asdict(storage), "description": f"{storage.title}: {_storage_line(storage)}"}


def _storage_line(storage: StorageModel) -> str:
    """Describes the figures of a storage in one line."""
    client, servers = storage.client_bytes_per_s, f" from {storage.stripes} servers" if storage.stripes > 1 else ""
    parts = [
        f"{storage.latency_s * 1e3:g} ms",
        f"{storage.bytes_per_s / 1e9:g} GB/s{servers}",
        *([] if client is None else [f"{client / 1e9:g} GB/s a node"]),
        *([] if storage.depth is None else [f"{storage.depth} at once"]),
    ]
    return ", ".join(parts)


def systems() -> Iterable[Item]:
    """Yields chips and networks with the number of published step times that test predictions on them, most first."""
    from paceline.records.step_errors import sentence, table

    for errors in sorted(table().values(), key=lambda errors: -errors["rows"]):
        name = f"{errors['chip']}, {errors['network']}"
        yield {"name": name, **errors, "description": f"{errors['rows']} rows. {sentence(errors)}"}


LISTINGS: dict[str, Callable[[], Iterable[Item]]] = {
    "algorithms": _algorithms,
    "devices": devices,
    "links": links,
    "topologies": topologies,
    "models": models,
    "datasets": datasets,
    "scenarios": scenarios,
    "storage": storage,
    "systems": systems,
}


def first_line(thing: Any) -> str:
    """Returns the first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def topology_answer(graph: Graph, figures: Description) -> Answer:
    """Returns the answer of `paceline topology`.

    Args:
        graph: the cluster graph.
        figures: what it says of itself.

    >>> from paceline.topologies.graphs.graph_registry import build
    >>> dgx1 = build("dgx1-v100", {})
    >>> topology_answer(dgx1, dgx1.describe()).data()["diameter_hops"]
    5
    """
    across = figures.bisection.bytes_per_s
    kinds = {kind: len(graph.of_kind(kind)) for kind in ("device", "host", "switch", "nic", "memory")}
    rows = [
        ("nodes", f"{figures.nodes}: " + ", ".join(f"{kind} {n}" for kind, n in kinds.items() if n)),
        ("links", str(figures.links)),
        ("diameter", f"{figures.diameter_hops} hops"),
        ("bisection", "none" if across is None else f"{BYTES_PER_SECOND.text(across)} one way"),
        ("  how found", figures.bisection.method),
        ("shape", graph.provenance),
        *(("  assumed", words) for words in graph.assumed),
    ]
    for name, link in {connection.link.name: connection.link for connection in graph.connections}.items():
        rate = BYTES_PER_SECOND.text(link.piece(float("inf")).bytes_per_s)
        rows.append((name, f"{rate}, {DURATION.text(link.latency_s)}; {link.provenance}"))
    document = {
        "name": figures.name,
        "nodes": figures.nodes,
        "links": figures.links,
        "diameter_hops": figures.diameter_hops,
        "bisection_Bps": across,
        "kinds": kinds,
        "assumed": list(graph.assumed),
    }
    return Answer(figures.name, [Table(figures.name, [Column(""), Column("")], rows)], lambda: document)


def data_set_answer(there: RecordedDataset, folder: Path) -> Answer:
    """Returns the answer of `paceline convert`.

    Args:
        there: the data set.
        folder: its folder.
    """
    about, each = there.about, there.train.record_bytes
    columns = [Column("file"), *(Column(name, COUNT) for name in ("samples", "bytes", "bytes each")), Column("order")]
    order = "as it was" if about.shuffled is None else f"shuffled with seed {about.shuffled}"
    rows = [
        (name, file.records, file.bytes, each, words)
        for name, file, words in (("train.npy", about.train, order), ("test.npy", about.test, "as it was"))
    ]
    title = f"{about.name}: {' × '.join(map(str, about.shape))}, {about.classes} classes"
    document = {"folder": str(folder), "record_bytes": each, **dataclasses.asdict(about)}
    return Answer(about.name, [Table(title, columns, rows)], lambda: document)
