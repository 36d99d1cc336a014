"""The output of ``nvidia-smi topo -m``: a machine's GPUs and NICs, and the connection of each pair.

* For each pair the table has the farthest component on its PCIe path, or the number of its NVLinks. PIX means one
  shared PCIe switch, PXB several PCIe switches, PHB a host bridge; NODE and SYS paths cross sockets. A host bridge is a
  vertex of its own only if its socket has several.
* SYS is a path over the bus between sockets, so its two ends are on different sockets, also if their CPU affinities are
  equal, as in containers. Otherwise sockets are identified by CPU affinity. Only if all pairs of GPUs are SYS, as
  hypervisors report, and affinities distinguish several groups, affinities are believed instead. NICs, which have none,
  belong to the socket of a GPU to which they are not SYS, or to a socket of their own.
* If the NVLinks of all pairs of a group of GPUs are those of the one with fewer, and together more than any GPU has,
  the group uses NVSwitches, which are one switch here, as hardware spreads traffic over all of them equally. A GPU
  whose NVLinks are down has PCIe only.
* Columns are known by the names of the rows, so any name is accepted (mlx5_0, NIC0, ibp24s0, bond0), and names that
  were glued together by copying are separated.
* The table does not contain generations. By default, that of the NVLinks is the oldest since Volta with so many per
  GPU, and PCIe is that of machines with such GPUs; the graph's provenance states the choice.

The picture of an imported machine: sockets above, PCIe below them, GPUs in a row; NVLinks bend where needed.

If NVLinks join two sockets directly, the second socket is placed upside down below the first, so that these NVLinks are
short; otherwise all are placed side by side.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.algorithms.core.errors import InputError
from paceline.topologies.graphs.graph import Graph, Kind, Place
from paceline.topologies.graphs.links import link_named
from paceline.topologies.importing.assembly import Wire, assemble, refuse

SLOT = 1.3
"""distance between neighbours in the row of GPUs"""

BUSES = ("qpi", "xgmi", "upi", "xbus", "arm")
"""beginnings of the names of buses between sockets"""

RISE = 1.5
"""distance between two rows of switches"""


def places(kinds: Mapping[str, Kind], wires: Sequence[Wire], sockets: int) -> dict[str, Place]:
    """Returns a place for every vertex of a machine with so many sockets."""
    below: dict[str, list[str]] = {}
    for wire in wires:
        if kinds[wire.start] != "device" and kinds[wire.end] != "host":
            below.setdefault(wire.start, []).append(wire.end)
    trees = [_tree(f"cpu{number}", below) for number in range(sockets)]
    across = any(
        kinds[wire.start] == kinds[wire.end] == "device" and _at(trees, wire.start) != _at(trees, wire.end)
        for wire in wires
    )
    facing = across and sockets == 2
    at: dict[str, Place] = {}
    left, tall = 0.0, max(_height(f"cpu{number}", below) for number in range(sockets))
    for number, tree in enumerate(trees):
        row = [name for name in tree if name not in below and not (facing and kinds[name] == "nic")]
        start = 0.0 if facing else left
        x = {name: start + SLOT * slot for slot, name in enumerate(row)}
        for name in reversed(tree):
            if name in below:
                inside = [x[child] for child in below[name] if child in x]
                x[name] = sum(inside) / len(inside) if inside else start
        side = -1.0 if facing and number == 1 else 1.0
        for name in tree:
            if name in x:
                high = RISE * (tall if name.startswith("cpu") else _height(name, below)) + (kinds[name] == "nic") * 0.75
                at[name] = (x[name], side * (high + facing))
        if facing:
            at |= _beside(kinds, below, at, tree)
        left += SLOT * max(1, len(row)) + 0.6
    for switch in (name for name in kinds if name.startswith("nvswitch")):
        gpus = [at[wire.start][0] for wire in wires if wire.end == switch]
        at[switch] = ((min(gpus) + max(gpus)) / 2, -2.2)
    return at


def _beside(
    kinds: Mapping[str, Kind], below: Mapping[str, Sequence[str]], at: Mapping[str, Place], tree: Sequence[str]
) -> dict[str, Place]:
    """Returns the places of a socket's NICs, each to the side of its parent."""
    beside: dict[str, Place] = {}
    for parent in tree:
        cards = [child for child in below.get(parent, ()) if kinds[child] == "nic"]
        for number, card in enumerate(cards, 1):
            x, y = at[parent]
            beside[card] = (x + (-SLOT if x < at[tree[0]][0] else SLOT) * number, y)
    return beside


def bowed(wires: Sequence[Wire], at: Mapping[str, Place]) -> list[Wire]:
    """Returns the same wires, in which those that would cross other vertices of their row bend away from it."""
    return [dataclasses.replace(wire, bend=_bend(at[wire.start], at[wire.end], wire.name or "", at)) for wire in wires]


def _bend(start: Place, end: Place, name: str, at: Mapping[str, Place]) -> float:
    if start[1] != end[1]:
        if not name.startswith(BUSES) or abs(start[0] - end[0]) > SLOT:
            return 0.0
        beyond = max(x for x, _ in at.values()) - start[0] + SLOT / 2
        return -2 * beyond / (start[1] - end[1])  # the bus of two opposite sockets is drawn beside everything else
    low, high = sorted((start[0], end[0]))
    between = sum(low < x < high and y == start[1] for x, y in at.values())
    away = -1 if start[1] >= 1 else 1  # up from a first socket opposite the second, down otherwise
    return away * min(0.45, 0.2 + 0.08 * between) * (1 if start[0] < end[0] else -1) if between else 0.0


def _tree(root: str, below: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the root and all below it, each before its children, GPUs before NICs."""
    members = [root]
    for child in below.get(root, ()):
        members += _tree(child, below)
    return members


def _at(trees: Sequence[Sequence[str]], name: str) -> int:
    return next(number for number, tree in enumerate(trees) if name in tree)


def _height(name: str, below: Mapping[str, Sequence[str]]) -> int:
    return 1 + max(_height(child, below) for child in below[name]) if below.get(name) else 0


CODES = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
"""from near to far; drivers before 384 print SOC for SYS"""

NVLINK = re.compile(r"NV(\d{1,2})")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BEYOND = re.compile(r"(?:CPU|NUMA)(?:\s+Affinity)?\b|GPU NUMA ID")
"""the headings after the names"""

LINKS_PER_GPU = {"nvlink1": 4, "nvlink2": 6, "nvlink3": 12, "nvlink4": 18, "nvlink5": 18}
"""of P100, V100, A100, H100: MEMORY certain"""

PCIE_OF = {"nvlink1": 3, "nvlink2": 3, "nvlink3": 4, "nvlink4": 5, "nvlink5": 5}
BUS_OF = {3: "qpi", 4: "xgmi", 5: "upi"}
"""the bus between the sockets of machines with this PCIe: INFERENCE from DGX-1, DGX A100, DGX H100"""


@dataclass(frozen=True, slots=True)
class TopologyTable:
    """The table: its GPUs and NICs, the connections of pairs, and the near CPUs."""

    names: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    affinity: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name.startswith("GPU"))

    @property
    def all_far(self) -> bool:
        """Whether all pairs of GPUs are SYS, while CPU affinities distinguish several groups."""
        pairs = itertools.combinations(self.gpus, 2)
        return len(set(self.affinity.values())) > 1 and all(self.cells[pair] == "SYS" for pair in pairs)

    def joined(self, codes: Iterable[str]) -> list[tuple[str, str]]:
        """Returns the pairs with one of these codes."""
        wanted = set(codes)
        return [pair for pair in itertools.combinations(self.names, 2) if self.cells[pair] in wanted]

    def nvlinks(self) -> dict[tuple[str, str], int]:
        """Returns the number of NVLinks of each pair of GPUs that has any."""
        matches = {pair: NVLINK.fullmatch(self.cells[pair]) for pair in itertools.combinations(self.gpus, 2)}
        return {pair: int(match[1]) for pair, match in matches.items() if match}


def machine(text: str, where: str, name: str, *, link: str | None = None, pcie: int | None = None) -> Graph:
    """Returns the inside of the machine that printed this table.

    Args:
        text: the output; a prompt before it and the legend after it are ignored.
        where: the file, for messages.
        name: the name of the graph.
        link: the NVLink: nvlink1 (P100), nvlink2 (V100), nvlink3 (A100), nvlink4 (H100) or nvlink5 (B200).
        pcie: the generation of PCIe, 3 to 5.

    Raises:
        InputError: lists every line that is wrong.

    >>> table = "GPU0 GPU1 CPU Affinity\\nGPU0 X NV2 0-9\\nGPU1 NV2 X 0-9"
    >>> [(one.link.name, one.count) for one in machine(table, "text", "pair").connections]
    [('pcie3-device', 1), ('pcie3-device', 1), ('nvlink2', 2)]
    """
    table = read(text, where)
    nvlinks = table.nvlinks()
    if link is not None and link not in LINKS_PER_GPU:
        raise InputError(f"link: found {link!r}, expected {', '.join(LINKS_PER_GPU)}")
    if pcie is not None and pcie not in BUS_OF:
        raise InputError(f"pcie: found {pcie!r}, expected 3, 4 or 5")
    switches = _nvswitches(nvlinks, table, LINKS_PER_GPU[link] if link else max(LINKS_PER_GPU.values()))
    behind = {gpu: count for members in switches for gpu, count in members.items()}
    direct = Counter(end for pair, count in nvlinks.items() if pair[0] not in behind for end in [*pair] * count)
    real = max([*behind.values(), *direct.values()], default=0)
    nvlink = link or next(
        (generation for generation, most in LINKS_PER_GPU.items() if real <= most and generation != "nvlink1"),
        "nvlink4",
    )
    generation = pcie or (PCIE_OF[nvlink] if nvlinks else 3)
    sockets = _sockets(table)
    kinds, wires = _pcie(table, sockets, generation)
    names = ["nvswitch"] if len(switches) == 1 else [f"nvswitch{number}" for number in range(len(switches))]
    kinds |= dict.fromkeys(names, "switch")
    for own, members in zip(names, switches, strict=True):
        wires += [_wire(gpu.lower(), own, nvlink, count) for gpu, count in members.items()]
    wires += [
        _wire(pair[0].lower(), pair[1].lower(), nvlink, count)
        for pair, count in nvlinks.items()
        if pair[0] not in behind
    ]
    assumed = [
        *_assumed_links(table, nvlink if nvlinks and not link else None, real, switches, behind),
        *_assumed_sockets(table, sockets, generation, given=pcie is not None),
    ]
    given = [f"{nvlink} as given"] if nvlinks and link else []
    given += [f"PCIe {pcie} as given"] if pcie else []
    said = [f"nvidia-smi topo -m ({where}); bandwidths are the catalogue's", *given, *assumed]
    at = places(kinds, wires, len(sockets))
    return assemble(name, where, kinds, bowed(wires, at), "; ".join(said), at=at, assumed=assumed)


def _assumed_links(
    table: TopologyTable,
    nvlink: str | None,
    real: int,
    switches: Sequence[Mapping[str, int]],
    behind: Mapping[str, int],
) -> Iterator[str]:
    """Yields what is assumed about NVLinks (of an inferred kind; `real` is the most that a GPU has) and NVSwitches."""
    if nvlink:
        yield f"{nvlink} INFERENCE from {real} NVLinks a GPU"
    if switches:
        number = "one" if len(switches) == 1 else len(switches)
        yield f"NVSwitches as {number} INFERENCE from NVLinks between all GPUs"
    linked = {gpu for pair in table.nvlinks() for gpu in pair}
    if linked and (without := [gpu for gpu in table.gpus if gpu not in linked]):
        yield f"{', '.join(without)} without NVLink"
    if fewer := [gpu for gpu, count in behind.items() if count < real]:
        yield f"{', '.join(fewer)} with fewer NVLinks than others"


def _assumed_sockets(table: TopologyTable, sockets: list[list[str]], generation: int, *, given: bool) -> Iterator[str]:
    """Yields what is assumed about names, sockets and PCIe, whose generation may be given."""
    yield from table.notes
    alike = [
        pair for pair in itertools.combinations(table.affinity, 2) if len({table.affinity[gpu] for gpu in pair}) == 1
    ]
    if table.all_far and alike:
        yield "sockets by CPU affinity, as all pairs of GPUs are SYS"
    elif any(sum(not socket.isdisjoint(pair) for socket in map(set, sockets)) > 1 for pair in alike):
        yield "sockets by SYS, whose two ends are on different ones, against equal CPU affinities"
    pcie = "PCIe x16 throughout" if given else f"PCIe {generation} INFERENCE, x16 throughout"
    yield pcie if len(sockets) == 1 else f"{pcie}; bus between sockets INFERENCE"


# --- reading the table -----------------------------------------------------------------------------------------------


def read(text: str, where: str) -> TopologyTable:
    """Returns the table in the text; raises `InputError` with every line that is wrong."""
    lines = [COLOUR.sub("", line) for line in text.splitlines()]
    start = next((number for number, line in enumerate(lines) if "GPU0" in _heads(line)), None)
    if start is None:
        raise InputError(f"{where}: has no table; expected a line of GPU0, GPU1, … as nvidia-smi topo -m prints")
    rows = _rows(lines, start)
    heads = _heads(lines[start])
    names = tuple(part for head in heads for part in _separated(head, [words[0] for _, words in rows]))
    glued = [head for head in heads if head not in names]
    problems = [f"line {start + 1}: {name} heads two columns" for name, count in Counter(names).items() if count > 1]
    cells: dict[tuple[str, str], str] = {}
    affinity: dict[str, str] = {}
    for number, words in rows:
        row, row_cells, beyond = words[0], words[1 : 1 + len(names)], words[1 + len(names) :]
        if row not in names:
            problems.append(f"line {number}: a row {row}, which is no column of line {start + 1}: {' '.join(heads)}")
            continue
        if (row, row) in cells:
            problems.append(f"line {number}: a second row {row}")
        problems += _wrong(row, row_cells, names, number)
        if beyond and (beyond[0] == "X" or beyond[0] in CODES or NVLINK.fullmatch(beyond[0])):
            problems.append(f"line {number}: {row} has more than {len(names)} cells, one for each of {' '.join(names)}")
        cells |= {(row, other): cell.replace("SOC", "SYS") for other, cell in zip(names, row_cells, strict=False)}
        if beyond:
            affinity[row] = beyond[0]
    problems += [f"has a column {name} and no such row" for name in names if (name, name) not in cells]
    if not problems:
        problems += [
            f"{first} is {cells[first, second]} to {second}, and {second} is {cells[second, first]} to {first}"
            for first, second in itertools.combinations(names, 2)
            if cells[first, second] != cells[second, first]
        ]
    refuse(where, problems)
    notes = tuple(f"the heading {head} separated by the names of the rows" for head in glued)
    return TopologyTable(names, cells, {name: cpus for name, cpus in affinity.items() if re.match(r"\d", cpus)}, notes)


def _heads(line: str) -> list[str]:
    """Returns the names of the columns, as far as blanks separate them; none if the line is a row."""
    beyond = BEYOND.search(line)
    words = (line[: beyond.start()] if beyond else line).split()
    return words if words and words[0].startswith("GPU0") and "X" not in words else []


def _rows(lines: Sequence[str], start: int) -> list[tuple[int, list[str]]]:
    """Returns the number and the words of each row: of lines that begin with a name and have cells."""
    rows = []
    heads = set(_heads(lines[start]))
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if words and words[0].startswith("Legend"):
            break
        if len(words) > 1 and (words[0] in heads or ("X" in words[1:] and "=" not in words)):
            rows.append((number, words))
    return rows


def _separated(head: str, rows: Sequence[str]) -> list[str]:
    """Returns the names of rows of which a heading consists, or itself.

    >>> _separated("NIC1NIC2", ["GPU0", "NIC0", "NIC1", "NIC2"]), _separated("mlx5_10mlx5_1", ["mlx5_1", "mlx5_10"])
    (['NIC1', 'NIC2'], ['mlx5_10', 'mlx5_1'])
    """
    if head in rows:
        return [head]
    for name in sorted(set(rows), key=len, reverse=True):
        if head.startswith(name):
            rest = _separated(head[len(name) :], rows)
            if all(part in rows for part in rest):
                return [name, *rest]
    return [head]


def _wrong(row: str, row_cells: Sequence[str], names: Sequence[str], number: int) -> list[str]:
    if len(row_cells) < len(names):
        return [f"line {number}: {row} has {len(row_cells)} cells, expected {len(names)}"]
    others = f"NV1, NV2, …, {', '.join(CODES)}"
    return [
        f"line {number}: {row} is {cell!r} to {other}, expected {'X' if other == row else others}"
        for other, cell in zip(names, row_cells, strict=True)
        if (cell != "X" if other == row else cell not in CODES and not NVLINK.fullmatch(cell))
    ]


# --- what it says ----------------------------------------------------------------------------------------------------


def _sets(members: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Returns the connected components of the members under these pairs, in order."""
    of = {name: [name] for name in members}
    for first, second in pairs:
        if first in of and second in of and of[first] is not of[second]:
            merged = of[first] + of[second]
            of |= dict.fromkeys(merged, merged)
    order = {name: number for number, name in enumerate(of)}
    sets = {id(group): sorted(group, key=order.__getitem__) for group in of.values()}
    return sorted(sets.values(), key=lambda group: order[group[0]])


def _sockets(table: TopologyTable) -> list[list[str]]:
    """Groups what is not SYS to each other, GPUs also by CPU affinity; NICs join the nearest GPU."""
    near = table.joined(CODES[:4])
    known = table.affinity
    pairs = [(first, second) for first, second in near if known.get(first, first) == known.get(second, second)]
    for code in CODES[:4]:  # nearest first; a member without an affinity joins one that has it
        for member, peer in near:
            if table.cells[member, peer] == code and (member in known) != (peer in known):
                loose = peer if member in known else member
                if not any(loose in pair and set(pair) & set(known) for pair in pairs):
                    pairs.append((member, peer))
    if not known:
        pairs += near
    pairs += [(first, second) for first, second in near if first not in known and second not in known]
    alike = [pair for pair in itertools.combinations(known, 2) if known[pair[0]] == known[pair[1]]]
    alike += [pair for pair in table.nvlinks() if not known]  # unless affinities say otherwise
    for pair in alike:
        groups = _sets(table.names, pairs)
        first, second = (next(group for group in groups if name in group) for name in pair)
        apart = any(table.cells[a, b] == "SYS" for a in first for b in second if a != b)
        if first is not second and (table.all_far or not apart):
            pairs.append(pair)
    return _sets(table.names, pairs)


def _pcie(table: TopologyTable, sockets: list[list[str]], generation: int) -> tuple[dict[str, Kind], list[Wire]]:
    device, up = f"pcie{generation}-device", f"pcie{generation}-uplink"
    kinds: dict[str, Kind] = {name.lower(): "device" if name in table.gpus else "nic" for name in table.names}
    wires: list[Wire] = []
    switches, roots = itertools.count(), itertools.count()

    def below(members: list[str], level: int, parent: str) -> None:
        """Connects the members to the parent; members joined by a code of this level get a common vertex."""
        for group in _sets(members, table.joined(CODES[: level + 1])):
            if len(group) == 1:
                wires.append(_wire(parent, group[0].lower(), device))
                continue
            if level and len(_sets(group, table.joined(CODES[:level]))) == 1:
                below(group, level - 1, parent)
                continue
            own = f"root{next(roots)}" if CODES[level] == "PHB" else f"pcie{next(switches)}"
            kinds[own] = "switch"
            wires.append(_wire(parent, own, up))
            if level:
                below(group, level - 1, own)
            else:
                wires.extend(_wire(own, name.lower(), device) for name in group)

    for number, socket in enumerate(sockets):
        cpu = f"cpu{number}"
        kinds[cpu] = "host"
        bridges = _sets(socket, table.joined(CODES[:3]))
        below(socket, 1 if len(bridges) == 1 else 2, cpu)  # a single host bridge is represented by its socket
    bus = BUS_OF[generation]
    wires += [_wire(f"cpu{a}", f"cpu{b}", bus) for a, b in itertools.combinations(range(len(sockets)), 2)]
    return kinds, wires


def _nvswitches(nvlinks: dict[tuple[str, str], int], table: TopologyTable, most: int) -> list[dict[str, int]]:
    """Returns the GPUs of each group behind NVSwitches, with the NVLinks of each."""
    wires = []
    for group in _sets(table.gpus, nvlinks):
        pairs = list(itertools.combinations(group, 2))
        own = {gpu: max((nvlinks.get(pair, 0) for pair in pairs if gpu in pair), default=0) for gpu in group}
        total = max((sum(nvlinks.get(pair, 0) for pair in pairs if gpu in pair) for gpu in group), default=0)
        if total > most and all(nvlinks.get(pair, 0) == min(own[pair[0]], own[pair[1]]) for pair in pairs):
            wires.append(own)
    return wires


def _wire(start: str, end: str, link: str, count: int = 1) -> Wire:
    known = link_named(link)
    return Wire(start, end, known.bytes_per_s, known.latency_s, count, link, known.provenance)
