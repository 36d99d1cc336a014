"""Slurm's topology.conf and the output of ``scontrol show topology``: a tree of switches, or blocks of nodes.

* Trees: a switch has nodes or switches. ``scontrol`` also lists the nodes below higher switches, at a Level above 0.
* Blocks: each is a switch; with larger BlockSizes successive blocks are below a switch for each size, as Slurm pairs
  contiguous blocks; the topmost are below one switch `core`, which is an INFERENCE.
* Slurm does not say what links are: LinkSpeed is without a unit and not used (FOUND topology.conf(5)). `link` names a
  link of the catalogue, by default eth-10g, the default of scenarios. `cables` of each node: 1. Between switches there
  are as many cables as nodes below have, divided by `oversubscription`: 1, so that nothing blocks (INFERENCE).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.graphs.graph import Graph, Kind
from paceline.topologies.graphs.links import LinkModel, host_end, link_named, switch_hop
from paceline.topologies.importing.assembly import MOST, Wire, assemble, refuse

TOPOLOGY = re.compile(r"^\s*(?:SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)
SETTINGS = ("link", "cables", "oversubscription")
KEYS = {"switchname", "switches", "nodes", "linkspeed", "level", "blockname", "blocksizes", "blockindex", "blocksize"}
PART = re.compile(r"((?:[^,\[\]]|\[[^\[\]]*\])+)(?:,|$)")
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(slots=True)
class Switch:
    """A switch or block: its children, as in the file."""

    line: int
    nodes: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)


def hosts(text: str) -> list[str]:
    """Returns the names of a host list; raises `ValueError` with the expected form.

    >>> hosts("node[08-10,20],login"), hosts("r[1-2]n[1-2]")
    (['node08', 'node09', 'node10', 'node20', 'login'], ['r1n1', 'r1n2', 'r2n1', 'r2n2'])

    Source: Slurm's hostlist expressions; leading zeros are kept.
    """
    names: list[str] = []
    at = 0
    while at < len(text):
        match = PART.match(text, at)
        if match is None or (match.end() == len(text) and text.endswith(",")):
            raise ValueError(f"found {text!r}, expected a host list such as node[01-16,20],login")
        pieces = re.split(r"\[([^\]]*)\]", match[1])
        choices = [[piece] if number % 2 == 0 else _numbers(piece) for number, piece in enumerate(pieces)]
        if len(names) + math.prod(map(len, choices)) > MOST:
            raise ValueError(f"found {match[1]!r}, expected at most {MOST} names")
        names += map("".join, itertools.product(*choices))
        at = match.end()
    return names


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or last < first or last - first >= MOST:
            raise ValueError(f"found [{text}], expected rising numbers such as [01-16,20]")
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers


def network(text: str, where: str, name: str, settings: Mapping[str, str | LinkModel] | None = None) -> Graph:
    """Returns the network of hosts that Slurm's configuration describes.

    Args:
        text: topology.conf, or the output of ``scontrol show topology``.
        where: the file, for messages.
        name: the name of the graph.
        settings: ``link``, ``cables`` and ``oversubscription``.

    Raises:
        InputError: lists all errors, each with its line.

    >>> graph = network("SwitchName=s0 Nodes=a[0-1]\\nSwitchName=s1 Nodes=b\\nSwitchName=t Switches=s[0-1]", "", "t")
    >>> [(*hop.ends, hop.count) for hop in graph.connections]
    [('s0', 'a0', 1), ('s0', 'a1', 1), ('s1', 'b', 1), ('t', 's0', 2), ('t', 's1', 1)]

    Source: topology.conf(5) of Slurm.
    """
    given = dict(settings or {})
    problems: list[str] = []
    link = link_named(given.get("link", "eth-10g"))
    cables = _amount("cables", given.get("cables", "1"))
    oversubscription = _amount("oversubscription", given.get("oversubscription", "1"))
    switches, sizes = _read(text, problems)
    refuse(where, problems)
    if sizes is not None:
        _pair(switches, sizes)
    parents: dict[str, str] = {}
    for own, switch in switches.items():
        for child in [*switch.nodes, *switch.switches]:
            if child in parents:
                problems.append(f"line {switch.line}: {own}: {child} is below {parents[child]} already")
            elif child in switch.switches and child not in switches:
                problems.append(f"line {switch.line}: {own}: no switch {child!r}{near_miss(child, switches)}")
            elif child in switch.nodes and child in switches:
                problems.append(f"line {switch.line}: {own}: {child!r} is the name of a switch and a node")
            parents.setdefault(child, own)
        if not switch.nodes and not switch.switches:
            problems.append(f"line {switch.line}: {own}: has neither Nodes nor Switches")
    problems += [f"line {switches[own].line}: {own}: is below itself" for own in switches if _cyclic(own, parents)]
    refuse(where, problems)
    below: dict[str, int] = {}

    def cables_below(own: str) -> int:
        part = switches[own]
        below[own] = cables * len(part.nodes) + sum(map(cables_below, part.switches))
        return below[own]

    for own in switches:
        if own not in parents:
            cables_below(own)
    kinds: dict[str, Kind] = dict.fromkeys(switches, "switch")
    kinds |= {node: "host" for part in switches.values() for node in part.nodes}
    end, hop = host_end(link), switch_hop(link)
    wires = []
    for own, part in switches.items():
        wires += [_wire(own, node, end, cables) for node in part.nodes]
        wires += [_wire(own, child, hop, -(-below[child] // oversubscription)) for child in part.switches]
    assumed = [] if "link" in given else [f"links {link.name}: Slurm does not say what they are"]
    assumed += [] if "cables" in given else ["one cable a node"]
    if any(part.switches for part in switches.values()):
        assumed.append(f"cables between switches for an oversubscription of {oversubscription}")
    if sizes is not None:
        assumed.append("blocks as switches, joined as BlockSizes pairs them and then by a switch core")
    said = "; ".join([f"Slurm topology ({where})", *assumed])
    return assemble(name, where, kinds, wires, said, assumed=assumed)


def _wire(start: str, end: str, link: LinkModel, count: int) -> Wire:
    return Wire(start, end, link.bytes_per_s, link.latency_s, count, link.name, link.provenance, link=link)


def _amount(key: str, given: object) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", str(given)):
        raise InputError(f"{key}: found {given!r}, expected a whole number from 1")
    return int(str(given))


def _cyclic(start: str, parents: Mapping[str, str]) -> bool:
    seen, here = {start}, parents.get(start)
    while here is not None and here not in seen:
        seen.add(here)
        here = parents.get(here)
    return here == start


def _read(text: str, problems: list[str]) -> tuple[dict[str, Switch], list[int] | None]:
    """Returns the switches or blocks by name, and the sizes of blocks, of which None means a tree."""
    switches: dict[str, Switch] = {}
    sizes: list[int] = []
    kinds: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        wrong = [word for word in words if "=" not in word or word.split("=")[0].lower() not in KEYS]
        if wrong and not any(word.lower().startswith("aggregatedblock=") for word in words):
            expected = "SwitchName, Switches, Nodes, LinkSpeed, BlockName or BlockSizes"
            problems.append(f"line {number}: found {wrong[0]!r}, expected KEY=VALUE with {expected}")
        if wrong or not words:
            continue
        given = {key.lower(): value for key, _, value in (word.partition("=") for word in words)}
        if "blocksizes" in given:
            kinds.add("blocks")
            parts = given["blocksizes"].split(",")
            sizes = [int(part) for part in parts if re.fullmatch(r"[1-9]\d{0,8}", part)]
            ratios = [after / size for size, after in itertools.pairwise(sizes)]
            if len(sizes) < len(parts) or any(ratio < 2 or math.log2(ratio) % 1 for ratio in ratios):
                words_ = "sizes that are each a power of two times the one before"
                problems.append(f"line {number}: BlockSizes: found {given['blocksizes']!r}, expected {words_}")
        own = given.get("switchname") or given.get("blockname")
        if own is None:
            if "blocksizes" not in given:
                problems.append(f"line {number}: has neither SwitchName nor BlockName")
            continue
        kinds.add("switches" if "switchname" in given else "blocks")
        if not re.fullmatch(r"\d+|", given.get("linkspeed", "")):
            problems.append(f"line {number}: {own}: LinkSpeed: found {given['linkspeed']!r}, expected a whole number")
        if own in switches:
            problems.append(f"line {number}: {own}: is there already in line {switches[own].line}")
            continue
        implied = given.get("level", "0") != "0"
        switches[own] = Switch(
            number,
            [] if implied else _names(given.get("nodes", ""), f"line {number}: {own}: Nodes", problems),
            _names(given.get("switches", ""), f"line {number}: {own}: Switches", problems),
        )
    if len(kinds) > 1:
        problems.append("has both switches and blocks, expected one of them")
    return switches, sizes if "blocks" in kinds else None


def _names(text: str, subject: str, problems: list[str]) -> list[str]:
    try:
        return hosts(text)
    except ValueError as error:
        problems.append(f"{subject}: {error}")
        return []


def _pair(blocks: dict[str, Switch], sizes: Sequence[int]) -> None:
    """Adds the switches above blocks: for each larger size, over as many successive blocks as it has."""
    level = list(blocks)
    for size, after in itertools.pairwise(sizes):
        ratio, groups = after // size, []
        for first in range(0, len(level), ratio):
            groups.append(f"blocks-of-{after}.{first // ratio}")
            blocks[groups[-1]] = Switch(0, [], level[first : first + ratio])
        level = groups
    if len(level) > 1:
        blocks["core"] = Switch(0, [], level)
