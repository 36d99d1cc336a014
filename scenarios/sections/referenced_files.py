"""Files that a scenario refers to: graphs, data sets, sizes of transformers, custom methods and custom models.

A path in a scenario is relative to the scenario's folder, and a path on the command line or in a mapping to the current
folder. A loaded scenario has absolute paths, so that its dump can be loaded from any folder of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter, WithJsonSchema

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import whole
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import expected, wrong
from paceline.scenarios.values.section import Field, Given, Section
from paceline.topologies import importing
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LinkModel
from paceline.workloads.models.transformer_config import CONFIG, is_config_path


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise expected(f"the path of a file: {importing.FORMATS}")
    return value


File = Annotated[str, PlainValidator(_path), WithJsonSchema({"type": "string", "description": "the path of a file"})]


def _machine(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise expected("the path of a file that `paceline calibrate` wrote")
    if not Path(value).is_file():
        raise wrong(f"found {value!r}, which is no file; expected one that `paceline calibrate` wrote")
    return value


MachineFile = Annotated[
    str, PlainValidator(_machine), WithJsonSchema({"type": "string", "description": "the path of a machine file"})
]


class NodeFile(Section):
    """A node that a file describes."""

    file: Given[File, str | Path] = Field(description=f"the path of a file: {importing.FORMATS}")

    def __str__(self) -> str:
        return self.file


def any_node(value: object, _: object) -> object:
    """Validates the name of a node, or a mapping with a file."""
    if isinstance(value, dict | NodeFile):
        return NodeFile.model_validate(value)
    return None if value is None else TypeAdapter(fields.NodeName).validate_python(value)


def graph_of(file: str, settings: Mapping[str, Any] | None = None) -> Graph:
    """Returns the graph in a file.

    Args:
        file: the path of the file.
        settings: parameters for reading it.

    Raises:
        InputError: the file is wrong; with all mistakes.
    """
    path = Path(file)
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return _read(
        path,
        stamp,
        tuple((key, value if isinstance(value, LinkModel) else str(value)) for key, value in (settings or {}).items()),
    )


@lru_cache(maxsize=16)
def _read(path: Path, _: int, settings: tuple[tuple[str, str | LinkModel], ...]) -> Graph:
    if path.is_dir():
        raise InputError(f"{path}: is a folder, expected a file: {importing.FORMATS}")
    return importing.load(path, dict(settings))


def anchor(data: Any, folder: Path) -> None:
    """Makes the well-formed paths in a scenario's data absolute, in place.

    Args:
        data: a scenario as plain data.
        folder: the folder that paths are relative to.

    >>> data = {"cluster": {"network": {"file": "tree.json"}, "nodes": [{"node": {"file": "/box.txt"}}]}}
    >>> anchor(data, Path("/home"))
    >>> data["cluster"]
    {'network': {'file': '/home/tree.json'}, 'nodes': [{'node': {'file': '/box.txt'}}]}
    >>> data = {"algorithms": ["agd", "mine.py:Lazy", {"name": "mine.py:Lazy", "every": 4}]}
    >>> anchor(data, Path("/home"))
    >>> data["algorithms"]
    ['agd', '/home/mine.py:Lazy', {'name': '/home/mine.py:Lazy', 'every': 4}]
    """
    _anchor_names(_mapping(data), folder)
    workload = _mapping(_mapping(data).get("workload"))
    _anchor_path(workload, "data_dir", folder)
    _anchor_path(workload, "trace", folder)
    for part in (workload, _mapping(workload.get("stand_in"))):
        _anchor_size(part, folder)
    cluster = _mapping(_mapping(data).get("cluster"))
    inside = [_mapping(node).get("node") for node in _list(cluster.get("nodes"))]
    for part in map(_mapping, (cluster, cluster.get("network"), *inside)):
        _anchor_path(part, "file", folder)
    varying = [_mapping(part).get("step_time") for key in ("nodes", "step_times") for part in _list(cluster.get(key))]
    for part in map(_mapping, (cluster.get("step_time"), *varying)):
        _anchor_path(part, "trace", folder)
        _anchor_path(part, "file", folder)
    devices = [_mapping(node).get("device") for node in _list(cluster.get("nodes"))]
    for part in map(_mapping, (cluster, cluster.get("device"), *devices, *inside)):
        _anchor_path(part, "machine", folder)


def _anchor_path(part: dict[str, Any], key: str, folder: Path) -> None:
    if isinstance(part.get(key), str) and part[key].strip():
        part[key] = str(folder / part[key])


def _anchor_size(part: dict[str, Any], folder: Path) -> None:
    """Makes the path of a config.json absolute that is the model, or that has the size of the model."""
    _anchor_path(_mapping(part.get("model")), CONFIG, folder)
    if isinstance(part.get("model"), str) and is_config_path(part["model"]):
        _anchor_path(part, "model", folder)


def _anchor_names(data: dict[str, Any], folder: Path) -> None:
    """Makes ``path/to/file.py:name`` of methods and of the model absolute."""
    entries = _list(data.get("algorithms"))
    entries[:] = [whole(entry, folder) if isinstance(entry, str) else entry for entry in entries]
    for part, key in [(_mapping(data.get("workload")), "model"), *((_mapping(entry), "name") for entry in entries)]:
        if isinstance(part.get(key), str):
            part[key] = whole(part[key], folder)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
