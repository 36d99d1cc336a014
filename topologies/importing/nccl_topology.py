"""NCCL's topology XML: what `NCCL_TOPO_DUMP_FILE` writes and `NCCL_TOPO_FILE` reads, as the inside of a machine.

* A `cpu` is a NUMA node, here a host; a `pci` with elements inside is a PCIe switch; others are GPUs or NICs by their
  `gpu` or `nic` element or, in static files, by their PCI class (0x03…: GPU, 0x02…: NIC). The rest is left out.
* A static file without classes does not say which elements are NICs: the parameter `nics` names their bus ids.
* PCIe: NCCL's formula, lanes × GT/s, at the catalogue's rate of 16 lanes of that generation. NCCL takes a link without
  a speed for generation 3 and one without a width for 16 lanes (FOUND topo.cc), and so does this module.
* NVLinks: the rate of a link follows from the compute capability `sm` (FOUND NCCL's topo.h). Links to NVSwitches end at
  one switch, as in NCCL. Static files have none, since NCCL asks the driver: a graph then has none, which is stated.
* NVLinks to a processor (Power), and C2C links (Grace), whose rate the file gives, join a GPU and its NUMA node. If
  PCIe joins the two directly, too, the faster link takes its place.
* The bus between sockets follows from architecture, vendor, family and model as in NCCL at 069a3d4f (2026), which has
  rates for Zen 3 and later; NCCL before took every AMD for 16 GB/s. NCCL's family of AMD's processors was computed
  otherwise before (0x8F, 0xAF, 0xBF), and both are read.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.topologies.graphs.graph import Graph, Kind
from paceline.topologies.graphs.links import LinkModel, link_named
from paceline.topologies.importing.assembly import Element, Wire, assemble, parse, refuse
from paceline.topologies.importing.nvidia_smi import BUS_OF, bowed, places

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""the generation of PCIe by GT/s of a lane"""
SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s(?: PCIe)?")
NVLINK_OF = {60: "nvlink1", 70: "nvlink2", 80: "nvlink3", 90: "nvlink4", 100: "nvlink5"}
"""the generation of NVLink from a compute capability on: FOUND (NCCL's topo.h); 86 has its own rate"""
SM86_BYTES_PER_S = 12.0e9
"""of a link of compute capability 8.6: FOUND (SM86_NVLINK_BW in NCCL's topo.h)"""
DEVICES = {
    "0x15f9": "p100-sxm2", "0x1db1": "v100-sxm2", "0x1db5": "v100-sxm2-32", "0x20b0": "a100-sxm4-40",
    "0x20b2": "a100-sxm4-80", "0x20b5": "a100-pcie-80", "0x2330": "h100-sxm5", "0x2331": "h100-pcie",
    "0x2335": "h200",
}  # fmt: skip
"""devices of the catalogue by NVIDIA's PCI device ids: MEMORY high (pci.ids)"""
NVIDIA = "0x10de"
TO_SWITCH, TO_CPU = "0x068000", "0x068001"
"""classes of what an NVLink ends at: FOUND (kvDictPciClass in NCCL's topo.cc)"""
ZEN = {26: "xgmi-zen5", 0xBF: "xgmi-zen5", 25: "xgmi-zen3", 0xAF: "xgmi-zen3"}
"""the bus between AMD's sockets by family: FOUND (ncclTopoAddCpu in NCCL's topo.cc at 069a3d4f); others: xgmi"""
AFTER_EMERALD = frozenset({0xAD, 0xAE, 0xAF})
"""models of Granite Rapids and Sierra Forest, whose numbers are lower than that of Emerald Rapids: FOUND (there)"""


@dataclass(slots=True)
class Machine:
    """What was read of a machine so far; `problems` are the mistakes of its file."""

    nics: frozenset[str]
    pcie: int
    kinds: dict[str, Kind] = field(default_factory=dict)
    wires: list[Wire] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)
    gpus: dict[str, tuple[str, Element]] = field(default_factory=dict)
    """the name and the element of each GPU, by its bus id"""
    cpus: dict[str, str] = field(default_factory=dict)
    """the NUMA node of each GPU, by the GPU's name"""
    lines: dict[str, int] = field(default_factory=dict)
    assumed: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def name(self, kind: Kind, prefix: str) -> str:
        """Returns the name of a new vertex of a kind."""
        name = f"{prefix}{sum(name.startswith(prefix) for name in self.kinds)}"
        self.kinds[name] = kind
        return name


def machine(text: str, where: str, name: str, *, nics: str = "", pcie: int | None = None) -> Graph:
    """Returns the inside of the machine that a topology file of NCCL describes.

    Args:
        text: the XML text.
        where: the file, for messages.
        name: the name of the graph.
        nics: bus ids of NICs, with commas between them, in a static file without PCI classes.
        pcie: the generation of PCIe of links without a speed, 3 to 5; None: 3, as in NCCL.

    Raises:
        InputError: lists all errors of the file, each with its line.

    >>> gpu = '<pci busid="{}" class="0x030200" link_speed="16 GT/s" link_width="16"/>'
    >>> text = f'<system version="1"><cpu numaid="0">{gpu.format("a")}{gpu.format("b")}</cpu></system>'
    >>> [(hop.ends, hop.link.name) for hop in machine(text, "text", "pair").connections]
    [(('cpu0', 'gpu0'), 'pcie4-device'), (('cpu0', 'gpu1'), 'pcie4-device')]

    Source: NVIDIA/nccl, src/graph/topo.cc and topo.h.
    """
    said = f"NCCL topology XML ({where})"
    graph = of_elements(parse(text, where), where, name, said, nics=nics, pcie=pcie)
    if not graph.of_kind("device"):
        refuse(where, ["has no GPU; expected <gpu>, or <pci> of class 0x03… in <cpu>"])
    return graph


def of_elements(
    root: Element,
    where: str,
    name: str,
    said: str,
    *,
    nics: str = "",
    pcie: int | None = None,
    assumed: Sequence[str] = (),
    no_nvlinks: str = "static files leave them to NCCL, dumps list them",
) -> Graph:
    """Returns the machine in the elements of such a file, which need not have GPUs.

    Args:
        root: the element ``system``.
        where: as for `machine`.
        name: as for `machine`.
        said: what the file is, for the graph's provenance.
        nics: as for `machine`.
        pcie: as for `machine`.
        assumed: what was assumed before.
        no_nvlinks: why a file may have no NVLinks.

    Raises:
        InputError: lists all errors of the file, each with its line.
    """
    read = Machine(frozenset(nic.strip().lower() for nic in nics.split(",") if nic.strip()), pcie or 3)
    read.assumed.update(assumed)
    sockets = [child for child in root.children if child.local == "cpu"]
    hosts = {socket.attributes["host_hash"] for socket in sockets if "host_hash" in socket.attributes}
    if len(hosts) > 1:
        read.problems.append(f"describes {len(hosts)} hosts (host_hash), expected one machine")
    numbers = Counter(socket.attributes.get("numaid", "") for socket in sockets)
    read.problems += [
        f"{count} elements <cpu> with numaid {number!r}" for number, count in numbers.items() if count > 1
    ]
    for socket in sockets:
        cpu = read.name("host", "cpu")
        for child in socket.children:
            _below(read, child, cpu, cpu)
    unknown = sorted(read.nics - set(read.lines))
    read.problems += [f"nics: there is no pci {nic}" for nic in unknown]
    if not sockets and not read.problems:
        read.problems.append("has no GPU; expected <cpu> with <gpu>, or <pci> of class 0x03… in it")
    _nvlinks(read, no_nvlinks)
    _c2c(read)
    refuse(where, read.problems)
    bus, how = _bus(sockets[0], read)
    if len(sockets) > 1:
        read.assumed[how] += 1
    pairs = itertools.combinations(range(len(sockets)), 2)
    read.wires += [_wire(f"cpu{a}", f"cpu{b}", link_named(bus)) for a, b in pairs]
    notes = [words if count == 1 else f"{words} ({count} times)" for words, count in read.assumed.items()]
    at = places(read.kinds, read.wires, len(sockets))
    provenance = "; ".join([said, *notes])
    graph = assemble(name, where, read.kinds, bowed(read.wires, at), provenance, at=at, assumed=notes)
    vertices = (dataclasses.replace(part, device=read.devices.get(part.name)) for part in graph.vertices)
    return dataclasses.replace(graph, vertices=tuple(vertices))


def _below(read: Machine, element: Element, parent: str, cpu: str) -> None:
    """Adds an element of a NUMA node, and all inside it, to the vertex above it."""
    if element.local == "nic":
        _cards(read, element, parent, None)
        return
    if element.local != "pci":
        read.problems.append(f"line {element.line}: <{element.local}> in {parent}, expected <pci> or <nic>")
        return
    busid, code = element.attributes.get("busid", "").lower(), element.attributes.get("class", "")
    subject = f"line {element.line}: pci {busid}".rstrip()
    if not busid:
        read.problems.append(f"{subject}: busid: missing")
    elif busid in read.lines:
        read.problems.append(f"{subject}: is there already in line {read.lines[busid]}")
    read.lines.setdefault(busid, element.line)
    inside = {child.local for child in element.children}
    if "pci" in inside:
        link = _pcie(read, element, subject, "uplink")
        switch = read.name("switch", "pcie")
        read.wires.append(_wire(parent, switch, link))
        for child in element.children:
            _below(read, child, switch, cpu)
    elif "nic" in inside:
        nic = next(child for child in element.children if child.local == "nic")
        _cards(read, nic, parent, _pcie(read, element, subject, "device"))
    elif busid in read.nics or (not code.startswith("0x03") and code.startswith("0x02") and "gpu" not in inside):
        link = _pcie(read, element, subject, "device")
        read.wires.append(_wire(parent, read.name("nic", "nic"), link))
    elif "gpu" in inside or code.startswith("0x03") or (not code and read.nics):
        link = _pcie(read, element, subject, "device")
        gpu = read.name("device", "gpu")
        read.gpus[busid] = gpu, element
        read.cpus[gpu] = cpu
        read.wires.append(_wire(parent, gpu, link))
        device = element.attributes.get("device", "").lower()
        if element.attributes.get("vendor", "").lower() == NVIDIA and device in DEVICES:
            read.devices[gpu] = DEVICES[device]
    elif not code:
        read.problems.append(
            f"{subject}: class: missing, as in files that NCCL completes on the machine; expected it, or the parameter "
            "nics with the bus ids of the NICs, such as nics=0000:00:15.0: the others are GPUs then"
        )
    else:
        read.assumed[f"PCI class {code} left out"] += 1


def _cards(read: Machine, element: Element, parent: str, link: LinkModel | None) -> None:
    """Adds the ports of a NIC, which carry no more than their `speed`; without PCIe, of a virtual NIC, just that."""
    nets = [child for child in element.children if child.local == "net"]
    if not nets:
        read.problems.append(f"line {element.line}: <nic> has no <net>")
    for net in nets:
        given = net.attributes.get("speed", "")
        if not re.fullmatch(r"-?\d{1,9}", given):
            read.problems.append(f"line {net.line}: net: speed: found {given!r}, expected Mbit/s, such as 100000")
            continue
        if int(given) <= 0:
            given = "10000"
            read.assumed["speed of a NIC without one 10 Gbit/s, as in NCCL"] += 1
        bytes_per_s = int(given) * 1e6 / 8
        own = link
        if link is None or bytes_per_s < link.bytes_per_s:
            own = dataclasses.replace(
                link or link_named("pcie3-device"),
                name=f"nic-{int(given) / 1000:g}g",
                bytes_per_s=bytes_per_s,
                provenance="the NIC's nominal speed, as the file gives it; latency as of PCIe",
            )
        assert own is not None
        read.wires.append(_wire(parent, read.name("nic", "nic"), own))
        if net.attributes.get("gdr") == "0":
            read.assumed["a NIC has gdr=0, which a scenario says by cluster.staging.gpudirect: off"] += 1


def _pcie(read: Machine, element: Element, subject: str, end: str) -> LinkModel:
    """Returns the PCIe link above an element; adds its mistakes to the problems."""
    speed, width = element.attributes.get("link_speed", ""), element.attributes.get("link_width", "")
    generation, lanes = read.pcie, 16
    match = SPEED.fullmatch(speed.strip())
    if match and float(match[1]) in GENERATIONS:
        generation = GENERATIONS[float(match[1])]
    elif speed.strip() and not speed.startswith("Unknown"):
        expected = ", ".join(f"{rate:g}" for rate in GENERATIONS)
        read.problems.append(f"{subject}: link_speed: found {speed!r}, expected {expected} GT/s")
    else:
        read.assumed[f"PCIe {generation} where no link_speed is given"] += 1
    if not re.fullmatch(r"\d{0,2}", width) or int(width or 0) not in (0, 1, 2, 4, 8, 16):
        read.problems.append(f"{subject}: link_width: found {width!r}, expected 1, 2, 4, 8 or 16 lanes")
    elif int(width or 0):
        lanes = int(width)
    else:
        read.assumed["16 lanes where no link_width is given, as in NCCL"] += 1
    known = link_named(f"pcie{min(5, max(generation, 2) if end == 'device' else max(generation, 3))}-{end}")
    share = lanes / 16 * {1: 0.5, 6: 2.0}.get(generation, 1.0) * (0.5 if generation < 3 and end == "uplink" else 1.0)
    if share == 1.0:
        return known
    words = f"{known.provenance}; DERIVED: {share:g} of it, by lanes and GT/s"
    name = f"pcie{generation}-x{lanes}-{end}"
    return dataclasses.replace(known, name=name, bytes_per_s=known.bytes_per_s * share, provenance=words)


def _nvlinks(read: Machine, why_none: str) -> None:
    """Adds the NVLinks between GPUs, and those to NVSwitches, which are one vertex."""
    counts: dict[tuple[str, str], int] = {}
    links: dict[tuple[str, str], LinkModel] = {}
    for busid, (gpu, element) in read.gpus.items():
        for part in [part for part in element.walk() if part.local == "nvlink"]:
            target, given = part.attributes.get("target", "").lower(), part.attributes.get("count", "")
            subject = f"line {part.line}: nvlink of {busid}"
            if not re.fullmatch(r"[1-9]\d?", given):
                read.problems.append(f"{subject}: count: found {given!r}, expected 1 to 99")
                continue
            if part.attributes.get("tclass") == TO_CPU:
                _to_cpu(read, gpu, _nvlink(element), int(given))
                continue
            switch = part.attributes.get("tclass") == TO_SWITCH
            if not switch and target not in read.gpus:
                read.problems.append(f"{subject}: target: there is no GPU {target!r}")
                continue
            if target == busid:
                read.assumed[f"{given} NVLinks of a GPU to itself left out"] += 1
                continue
            if switch:
                read.kinds["nvswitch"] = "switch"
            ends = (gpu, "nvswitch" if switch else read.gpus[target][0])
            counts[ends] = counts.get(ends, 0) + int(given)
            links[ends] = _nvlink(element)
    for (start, end), count in counts.items():
        back = counts.get((end, start))
        if back is not None and back != count:
            read.problems.append(f"{count} NVLinks from {start} to {end} and {back} back, expected as many")
        if back is None or start < end:  # both ends list a link between GPUs
            read.wires.append(_wire(start, end, links[start, end], count))
    if not counts and len(read.gpus) > 1 and not any("to itself" in words for words in read.assumed):
        read.assumed[f"no NVLinks, as the file has none: {why_none}"] += 1


def _c2c(read: Machine) -> None:
    """Adds the C2C links of GPUs to their processors: Grace's."""
    for busid, (gpu, element) in read.gpus.items():
        for part in [part for part in element.walk() if part.local == "c2c"]:
            figures = [part.attributes.get(key, "") for key in ("bw", "count")]
            wrong = [value for value in figures if not re.fullmatch(r"[1-9]\d{0,6}", value)]
            if wrong:
                words = f"found {wrong[0]!r}, expected MB/s of a link as bw, and a count of links"
                read.problems.append(f"line {part.line}: c2c of {busid}: {words}")
                continue
            words = "bandwidth as the file gives it; latency as of nvlink4: INFERENCE"
            each = float(figures[0]) * 1e6
            link = dataclasses.replace(link_named("nvlink4"), name="nvlink-c2c", bytes_per_s=each, provenance=words)
            _to_cpu(read, gpu, link, int(figures[1]))


def _to_cpu(read: Machine, gpu: str, link: LinkModel, count: int) -> None:
    """Joins a GPU to its processor by links other than PCIe."""
    cpu = read.cpus[gpu]
    direct = next((wire for wire in read.wires if (wire.start, wire.end) == (cpu, gpu)), None)
    if direct is None:
        read.wires.append(_wire(gpu, cpu, link, count))
    elif count * link.bytes_per_s > direct.count * direct.bytes_per_s:
        read.wires[read.wires.index(direct)] = _wire(cpu, gpu, link, count)
        read.assumed[f"PCIe of a GPU left out beside {link.name} to the same processor"] += 1


def _nvlink(element: Element) -> LinkModel:
    """Returns the NVLink of a GPU's compute capability."""
    given = next((part.attributes.get("sm", "") for part in element.children if part.local == "gpu"), "")
    sm = int(given) if re.fullmatch(r"\d{2,3}", given) else 80
    known = link_named(NVLINK_OF[max((first for first in NVLINK_OF if first <= sm), default=80)])
    if sm != 86:
        return known
    words = "bandwidth FOUND (SM86_NVLINK_BW in NCCL's topo.h); latency as of nvlink3"
    return dataclasses.replace(known, name="nvlink3-sm86", bytes_per_s=SM86_BYTES_PER_S, provenance=words)


def _bus(socket: Element, read: Machine) -> tuple[str, str]:
    """Returns the bus between sockets and where it comes from."""
    given: Mapping[str, str] = socket.attributes
    family, model = (int(text) if (text := given.get(key, "")).isdigit() else 0 for key in ("familyid", "modelid"))
    bus = {"arm64": "arm-bus", "ppc64": "xbus-power9"}.get(given.get("arch", ""))
    if given.get("vendor") == "AuthenticAMD":
        bus = ZEN.get(family, "xgmi")
    elif given.get("vendor") == "GenuineIntel":
        steps = {0xCF: "upi-emerald-rapids", 0x8F: "upi", 0x55: "upi-skylake", 0: "qpi"}
        bus = steps[max(first for first in steps if first <= (model if family == 6 else 0))]
        bus = "upi-emerald-rapids" if family == 6 and model in AFTER_EMERALD else bus
    if bus is not None:
        return bus, f"bus between sockets {bus} by architecture, vendor, family and model, as in NCCL"
    bus = BUS_OF[read.pcie]
    return bus, f"bus between sockets {bus}: INFERENCE, as the file does not name the processors"


def _wire(start: str, end: str, link: LinkModel, count: int = 1) -> Wire:
    return Wire(start, end, link.bytes_per_s, link.latency_s, count, link.name, link.provenance, link=link)
