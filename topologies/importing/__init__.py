"""Cluster graphs and measurements from files of other programs.

Start at `load` for graphs, whose formats share `assembly`. Measurements have one module for each tool: `nccl_tests` and
`osu` return the curves of `measured`. `training_trace` returns the costs of a training step from a trace of any format.

The format of a graph is detected from the content of its file, not from the name, so any name is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.graph_registry import TOPOLOGIES, build
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.importing import assembly, attributed, hwloc, nccl_topology, nvidia_smi, simgrid, slurm

FORMATS = (
    "the text of nvidia-smi topo -m, NCCL topology XML, hwloc XML (lstopo --of xml), Slurm's topology.conf or scontrol "
    "show topology, NetworkX node-link JSON, GraphML or SimGrid platform XML"
)

LARGEST = 64 * 1024 * 1024
"""the maximum size of a file, in bytes"""


def named_graph(name: str, settings: Mapping[str, str | LinkModel] | None = None) -> Graph:
    """Returns the graph of the catalogue with this name, or the graph in the file of this name.

    Args:
        name: a name, or a path.
        settings: the parameters of the graph, or as for `load`.

    Raises:
        InputError: there is no such graph or file, or a parameter is wrong; or as for `load`.

    >>> named_graph("dgx1-v100").name
    'dgx1-v100'
    """
    path = Path(name)
    if name in TOPOLOGIES or not (path.suffix or path.is_file() or "/" in name):
        return build(name, settings)
    return load(path, settings)


def load(path: Path, settings: Mapping[str, str | LinkModel] | None = None) -> Graph:
    """Returns the graph in a file; its name is the file's without the suffix.

    Args:
        path: a file in one of `FORMATS`.
        settings: what the format does not contain. For nvidia-smi's text, ``link`` (nvlink1 to nvlink5) and ``pcie`` (3
            to 5); for NCCL's, ``pcie`` and ``nics``; for hwloc's, ``pcie``; for Slurm's, ``link``, ``cables`` and
            ``oversubscription``.

    Raises:
        InputError: lists all errors of the file, each with its line or element.
    """
    given = dict(settings or {})
    text = _read(path)
    start = text.lstrip()
    if start.startswith("<"):
        root = assembly.parse(start, str(path)).local
        if root == "system":
            nics = str(given.pop("nics", ""))
            generation = _pcie(given)
            _no_settings(given, path)
            return nccl_topology.machine(start, str(path), path.stem, nics=nics, pcie=generation)
        if root == "topology":
            generation = _pcie(given)
            _no_settings(given, path)
            return hwloc.machine(start, str(path), path.stem, pcie=generation)
        _no_settings(given, path)
        if root == "platform":
            return simgrid.platform(start, str(path), path.stem)
        if root == "graphml":
            return attributed.graphml(start, str(path), path.stem)
        raise InputError(
            f"{path}: found XML of <{root}>, expected <system> (NCCL), <topology> (hwloc), <platform> (SimGrid) or "
            "<graphml>"
        )
    if start.startswith(("{", "[")):
        _no_settings(given, path)
        return attributed.node_link(start, str(path), path.stem)
    if "GPU0" in text:
        generation = _pcie(given)
        link = given.pop("link", None)
        _no_settings(given, path)
        return nvidia_smi.machine(text, str(path), path.stem, link=None if link is None else str(link), pcie=generation)
    if slurm.TOPOLOGY.search(text):
        known = {key: given.pop(key) for key in slurm.SETTINGS if key in given}
        _no_settings(given, path)
        return slurm.network(text, str(path), path.stem, known)
    raise InputError(f"{path}: is not a graph in a known format; expected {FORMATS}")


def takes_links(file: object) -> bool:
    """Returns whether a file, such as Slurm's, names switches and hosts without saying what links are."""
    try:
        text = _read(Path(str(file)))
    except (InputError, ValueError):
        return False
    return not text.lstrip().startswith(("<", "{", "[")) and slurm.TOPOLOGY.search(text) is not None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: found {path.stat().st_size} bytes, expected at most {LARGEST}")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not text; expected {FORMATS}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _pcie(given: dict[str, str | LinkModel]) -> int | None:
    """Returns the generation of PCIe among the settings, and removes it."""
    pcie = given.pop("pcie", None)
    if pcie not in (None, "3", "4", "5"):
        raise InputError(f"pcie: found {pcie!r}, expected 3, 4 or 5")
    return None if pcie is None else int(str(pcie))


def _no_settings(given: Mapping[str, str | LinkModel], path: Path) -> None:
    if given:
        raise InputError(
            f"{path}: unknown parameter {next(iter(given))!r}; nvidia-smi's text takes link and pcie, "
            "NCCL's pcie and nics, hwloc's pcie, Slurm's link, cables and oversubscription"
        )
