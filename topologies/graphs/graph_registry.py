"""Every graph by its name, and the conversion of text to its parameters."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.graphs import machines, network_graphs, systems
from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.network_graphs import dragonfly

Builder = Callable[..., Graph]


def _named(*builders: Builder) -> dict[str, Builder]:
    return {builder.__name__.replace("_", "-"): builder for builder in builders}


NETWORKS = _named(
    network_graphs.star,
    network_graphs.ring,
    network_graphs.torus,
    network_graphs.hypercube,
    network_graphs.leaf_spine,
    network_graphs.fat_tree,
    dragonfly,
    network_graphs.containers,
)
"""networks of hosts"""

NODES = _named(
    machines.pcie_tree, machines.dual_root_pcie, machines.dgx1, machines.nvswitch_node,
    machines.minsky_node, machines.ac922_node, machines.xeon_node, machines.knl_node,
    machines.tianhe2_node,
)  # fmt: skip
"""graphs of the insides of machines"""

SYSTEMS = _named(
    systems.cori_knl, systems.summit, systems.dgx1_p100, systems.dgx1_v100, systems.dgx_a100, systems.dgx_h100,
    systems.minsky, systems.tianhe2, systems.k80_cluster, systems.sandy_bridge_ib,
)  # fmt: skip
"""named machines"""

TOPOLOGIES = NETWORKS | NODES | SYSTEMS


def build(name: str, settings: Mapping[str, object] | None = None) -> Graph:
    """Returns the graph of this name; raises `InputError` with a suggestion if there is none.

    Parameters may be text or values. A network also takes ``node``: the name of a node that replaces each of its hosts.

    Args:
        name: the name of the topology.
        settings: its parameters; others have their defaults.

    >>> build("torus", {"sides": "3x4"}).describe().nodes
    12
    >>> len(build("fat-tree", {"k": "4", "node": "minsky-node"}).endpoints)
    64
    >>> build("fat-tre")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: unknown topology 'fat-tre' (did you mean fat-tree?)
    """
    if name not in TOPOLOGIES:
        raise InputError(f"unknown topology {name!r}{_hint(name, list(TOPOLOGIES))}")
    given = dict(settings or {})
    node = given.pop("node", None) if name in NETWORKS else None
    graph = TOPOLOGIES[name](**_values(name, given))
    if node is None:
        return graph
    if node not in NODES:
        raise InputError(f"node: unknown node {node!r}{_hint(str(node), list(NODES))}")
    inside = NODES[str(node)]()
    return compose(f"{name}-of-{node}", graph, inside, f"{graph.provenance}; {inside.provenance}")


def sized(name: str, hosts: int, given: Mapping[str, object]) -> dict[str, object]:
    """Returns the parameters of a network for at least `hosts` hosts; given parameters are not changed.

    Args:
        name: the name of the network.
        hosts: the smallest number of hosts.
        given: parameters that are set already.

    >>> sized("fat-tree", 1000, {}), sized("torus", 12, {"link": "ib-hdr"})
    ({'k': 16}, {'sides': '4x3', 'link': 'ib-hdr'})
    >>> sized("star", 5, {"hosts": 9})
    {'hosts': 9}
    """
    known = parameters(name) | dict(given)
    match name:
        case "star" | "ring":
            size: dict[str, object] = {"hosts": max(hosts, 3 if name == "ring" else 1)}
        case "containers":
            size = {"per_machine": "x".join(["1"] * hosts)}
        case "torus":
            longer = max(2, math.ceil(math.sqrt(hosts)))
            size = {"sides": f"{longer}x{max(2, -(-hosts // longer))}"}
        case "hypercube":
            size = {"dimensions": max(1, math.ceil(math.log2(hosts)))}
        case "leaf-spine":
            size = {"leaves": max(2, -(-hosts // _whole(known["hosts_per_leaf"])))}
        case "fat-tree":
            size = {"k": next(k for k in range(2, 10**6, 2) if k**3 // 4 >= hosts)}
        case _:
            routers = _whole(known["rows"]) * _whole(known["columns"]) * _whole(known["hosts_per_router"])
            size = {"groups": max(1, -(-hosts // routers)), "hosts": hosts}
    return size | dict(given)


def _whole(value: object) -> int:
    """Returns the number, or 1 if it is not valid, which `build` reports."""
    return int(value) if re.fullmatch(r"[1-9]\d{0,8}", str(value)) else 1  # type: ignore[call-overload]


def parameters(name: str) -> dict[str, int | str]:
    """Returns the parameters of a topology with their defaults, as a user would write them.

    >>> parameters("torus")
    {'sides': '4x4', 'link': 'eth-10g'}
    """
    return {
        parameter.name: "x".join(map(str, parameter.default)) if parameter.name == "sides" else parameter.default
        for parameter in inspect.signature(TOPOLOGIES[name]).parameters.values()
    }


def _values(name: str, given: Mapping[str, object]) -> dict[str, Any]:
    known = parameters(name)
    choices = [*known, "node"] if name in NETWORKS else list(known)
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in given.items():
        text = "x".join(map(str, value)) if key == "sides" and isinstance(value, list | tuple) else str(value)
        if key not in known:
            problems.append(f"{name}: unknown parameter {key!r}{_hint(key, choices)}")
        elif key == "sides":
            if not re.fullmatch(r"\d{1,6}(x\d{1,6})+", text):
                problems.append(f"sides: found {text!r}, expected two or three numbers such as 4x4 or 4x4x4")
            values[key] = tuple(int(side) for side in re.findall(r"\d{1,6}", text))
        elif isinstance(known[key], int):
            if not re.fullmatch(r"-?\d{1,9}", text):
                problems.append(f"{key}: found {text!r}, expected a whole number")
                continue
            values[key] = int(text)
        elif value is None and known[key] == "":
            continue  # as if it was not given
        elif not isinstance(value, str | LinkModel):
            problems.append(f"{key}: found {value!r}, expected a name, such as {known[key] or 'v100'!r}")
        else:
            values[key] = value
    if problems:
        raise InputError("\n".join(problems))
    return values


def _hint(name: str, known: list[str]) -> str:
    return near_miss(name, known, f"there are {', '.join(known)}")
