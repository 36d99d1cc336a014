"""hwloc's XML: what ``lstopo --of xml`` writes (hwloc 1.11 to 3), as the inside of a machine.

* The file is rewritten in the elements of NCCL's topology, so that rates, buses and names are those of `nccl_topology`.
* A package (socket) is a NUMA node there. PCI devices that hwloc puts at the machine, as their place is not known,
  belong to the first package.
* Kept are accelerators (PCI classes 0302, 0380 and 1200, and any display controller of NVIDIA) and network controllers
  (02…, 0c06); if some of these have OpenFabrics devices, only those. A bridge with several of them below is a switch.
* ``pci_link_speed`` is the speed in GB/s when lstopo ran, which may be lower in an idle device; it is read as that of
  16 lanes if a generation has it, else of 8, and so on.
* ``NVLinkBandwidth`` is a matrix in MB/s of devices, NVSwitches and packages, 20,000 a link of P100, 50,000 a link of
  Blackwell and 25,000 of others: FOUND (open-mpi/hwloc at 3b37b024, hwloc/topology-nvml.c). Links between AMD's GPUs
  are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paceline.topologies.graphs.graph import Graph
from paceline.topologies.importing import nccl_topology
from paceline.topologies.importing.assembly import Element, parse, refuse
from paceline.topologies.importing.nccl_topology import GENERATIONS, TO_CPU, TO_SWITCH

PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\].*")
"""class, vendor and device"""
NVIDIA = "10de"
ACCELERATORS = frozenset({"0302", "0380", "1200"})
NETWORKS = ("02", "0c06")
LANE_GBPS = {gt_s: gt_s / 8 * (0.8 if gt_s <= 5 else 128 / 130) for gt_s in GENERATIONS if gt_s < 64}
"""GB/s of a lane by GT/s, as hwloc computes it"""
SAME = 0.005
"""relative difference of rates that are the same; 4 lanes of generation 3 and 16 of generation 1 differ by 0.016"""
CHIPS = {"15f": 60, "1d8": 70, "1db": 70, "1df": 70, "20b": 80, "20f": 80, "23": 90, "29": 100}
"""the compute capability of NVIDIA's devices with NVLink, by the beginning of their id: MEMORY high (pci.ids)"""
LINK_MBPS = {60: 20_000, 70: 25_000, 80: 25_000, 90: 25_000, 100: 50_000}
BANDWIDTHS = frozenset({"distances2", "distances2hetero"})


@dataclass(slots=True)
class _DeviceFacts:
    """What the whole file says of its devices."""

    fabrics: frozenset[str]
    """the bus ids of PCI devices with an OpenFabrics device inside"""
    links: dict[str, dict[str, int]]
    """MB/s from each object to others, by their numbers"""
    pci: dict[str, Element]
    """the PCI device of each object that is one or inside of one, by the object's number"""
    problems: list[str] = field(default_factory=list)
    assumed: dict[str, None] = field(default_factory=dict)


def machine(text: str, where: str, name: str, *, pcie: int | None = None) -> Graph:
    """Returns the inside of the machine that a file of hwloc describes.

    Args:
        text: the XML text.
        where: the file, for messages.
        name: the name of the graph.
        pcie: the generation of PCIe of links without a speed, 3 to 5; None: 3.

    Raises:
        InputError: lists all errors of the file, each with its line.

    >>> gpu = '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330]" pci_link_speed="63.0"/>'
    >>> box = f'<object type="Machine"><object type="Package" os_index="0">{gpu}</object></object>'
    >>> [(hop.ends, hop.link.name) for hop in machine(f"<topology>{box}</topology>", "text", "box").connections]
    [(('cpu0', 'gpu0'), 'pcie5-device')]

    Source: open-mpi/hwloc, hwloc/topology-xml.c, pci-common.c and topology-nvml.c.
    """
    root = parse(text, where)
    objects = [part for part in root.walk() if part.local == "object"]
    devices = [part for part in objects if part.attributes.get("type") == "PCIDev"]
    bits = root.attributes.get("version", "").startswith("3")
    fabrics = {device.attributes.get("pci_busid", "") for device in devices if _has_fabric(device, bits)}
    read = _DeviceFacts(frozenset(fabrics), {}, {})
    for device in devices:
        read.pci |= {number: device for part in device.walk() if (number := part.attributes.get("gp_index"))}
    _bandwidths(read, root)
    packages = [part for part in objects if part.attributes.get("type") in ("Package", "Socket")]
    machines = [part for part in objects if part.attributes.get("type") == "Machine"]
    if len(machines) != 1:
        read.problems.append(f"has {len(machines)} objects of type Machine, expected one")
    refuse(where, read.problems)
    system = Element("system", {}, root.line)
    inside = {id(part) for package in packages for part in package.walk()}
    outside = Element("object", {}, root.line, [part for part in _tops(machines[0]) if id(part) not in inside])
    for index, package in enumerate(packages or machines):
        cpu = Element("cpu", _processor(package, root, index), package.line)
        cpu.children.extend(_below(read, package))
        if packages and index == 0 and (loose := list(_below(read, outside))):
            cpu.children.extend(loose)
            if len(packages) > 1:
                read.assumed["PCI devices at the machine belong to the first package"] = None
        system.children.append(cpu)
    refuse(where, read.problems)
    return nccl_topology.of_elements(
        system,
        where,
        name,
        f"hwloc XML ({where})",
        pcie=pcie,
        assumed=list(read.assumed),
        no_nvlinks="lstopo lists them if hwloc was built with NVML",
    )


def _tops(part: Element) -> Iterator[Element]:
    """Yields the PCI devices and bridges below an object that are below no others."""
    for child in part.children:
        if child.attributes.get("type") in ("Bridge", "PCIDev"):
            yield child
        else:
            yield from _tops(child)


def _processor(package: Element, root: Element, index: int) -> dict[str, str]:
    """Returns NCCL's attributes of a package."""
    infos = _infos(root) | _infos(package)
    arch = {"aarch64": "arm64", "ppc64le": "ppc64"}.get(infos.get("Architecture", ""), infos.get("Architecture", ""))
    given = {"arch": arch, "vendor": infos.get("CPUVendor", "")}
    given |= {"familyid": infos.get("CPUFamilyNumber", ""), "modelid": infos.get("CPUModelNumber", "")}
    return {
        "numaid": package.attributes.get("os_index", str(index)),
        **{key: text for key, text in given.items() if text},
    }


def _infos(part: Element) -> dict[str, str]:
    """Returns the infos of the whole file or, of an object, its own."""
    found = part.walk() if part.local == "topology" else part.children
    return {info.attributes.get("name", ""): info.attributes.get("value", "") for info in found if info.local == "info"}


def _below(read: _DeviceFacts, part: Element) -> Iterator[Element]:
    """Yields the PCI elements of NCCL below an object, without bridges that have only one below them."""
    for top in _tops(part):
        if top.attributes.get("type") == "PCIDev":
            yield from _device(read, top)
            continue
        inside = list(_below(read, top))
        if len(inside) < 2 or top.attributes.get("bridge_type", "").startswith("0"):
            yield from inside
        else:
            yield Element("pci", {**_pci(read, top), "class": "0x060400"}, top.line, inside)


def _device(read: _DeviceFacts, device: Element) -> Iterator[Element]:
    """Yields a PCI device that is kept, as NCCL's element."""
    kind, vendor, number = _ids(read, device)
    if kind in ACCELERATORS or (kind.startswith("03") and vendor == NVIDIA):
        sm = next((sm for start, sm in CHIPS.items() if number.startswith(start) and vendor == NVIDIA), None)
        gpu = Element("gpu", {"sm": str(sm)} if sm else {}, device.line)
        gpu.children.extend(_nvlinks(read, device, sm))
        yield Element("pci", {**_pci(read, device), "class": "0x030200"}, device.line, [gpu])
    elif kind.startswith(NETWORKS):
        if not read.fabrics or device.attributes.get("pci_busid") in read.fabrics:
            yield Element("pci", {**_pci(read, device), "class": "0x020000"}, device.line)
        else:
            read.assumed["network controllers without OpenFabrics left out beside those with it"] = None
    elif kind.startswith("03"):
        read.assumed[f"display controller {vendor}:{number} left out"] = None


def _pci(read: _DeviceFacts, part: Element) -> dict[str, str]:
    """Returns NCCL's attributes of a PCI device or bridge; adds its mistakes to the problems."""
    given = part.attributes
    busid, (kind, vendor, device) = given.get("pci_busid", ""), _ids(read, part)
    speed = given.get("pci_link_speed", "0")
    lanes: dict[str, str] = {}
    if not re.fullmatch(r"\d{1,4}(\.\d*)?", speed):
        subject = f"line {part.line}: {given.get('type')} {busid}".rstrip()
        read.problems.append(f"{subject}: pci_link_speed: found {speed!r}, expected GB/s, such as 15.753846")
    elif float(speed) > 0:
        gt_s, width, same = _lanes(float(speed))
        lanes = {"link_speed": f"{gt_s:g} GT/s", "link_width": str(width)}
        if gt_s < 8:
            read.assumed["PCIe below 8 GT/s when lstopo ran, as idle devices have it"] = None
        if not same:
            read.assumed[f"PCIe of {float(speed):g} GB/s as the nearest, {width} lanes of {gt_s:g} GT/s"] = None
    return {"busid": busid, "class": f"0x{kind}00", "vendor": f"0x{vendor}", "device": f"0x{device}", **lanes}


def _ids(read: _DeviceFacts, part: Element) -> tuple[str, str, str]:
    """Returns the class, vendor and device of a PCI device or bridge; adds a mistake to the problems."""
    given = part.attributes
    match = PCI_TYPE.fullmatch(found := given.get("pci_type", ""))
    if match is None:
        subject = f"line {part.line}: {given.get('type')} {given.get('pci_busid', '')}".rstrip()
        read.problems.append(
            f"{subject}: pci_type: found {found!r}, expected its class and ids, as in 0302 [10de:2330]"
        )
        return "0000", "0000", "0000"
    return match[1], match[2], match[3]


def _lanes(speed: float) -> tuple[float, int, bool]:
    """Returns GT/s and lanes that together have a speed in GB/s, as many lanes as possible, and whether exactly.

    >>> _lanes(15.753846), _lanes(3.938), _lanes(0.2)
    ((8.0, 16, True), (8.0, 4, True), (2.5, 1, False))
    """
    known = [(gt_s, width, width * lane) for width in (16, 8, 4, 2, 1) for gt_s, lane in LANE_GBPS.items()]
    gt_s, width, nearest = min(known, key=lambda entry: max(SAME, abs(math.log(entry[2] / speed))))
    return gt_s, width, abs(nearest / speed - 1) < SAME


def _has_fabric(device: Element, bits: bool) -> bool:
    """Whether a PCI device has an OpenFabrics device inside.

    Args:
        device: the device.
        bits: whether types are bits, as from hwloc 3 on, and not numbers.
    """
    types = [int(text) for part in device.children if (text := part.attributes.get("osdev_type", "")).isdecimal()]
    return any(number & 32 if bits else number == 3 for number in types)


# --- NVLinks ---------------------------------------------------------------------------------------------------------


def _bandwidths(read: _DeviceFacts, root: Element) -> None:
    """Reads the matrix of NVLinks; adds its mistakes to the problems."""
    for part in [part for part in root.children if part.local in BANDWIDTHS]:
        if part.attributes.get("name") == "XGMIBandwidth":
            read.assumed["links between AMD's GPUs (XGMIBandwidth) left out"] = None
        if part.attributes.get("name") != "NVLinkBandwidth":
            continue
        words = [[text for child in part.children if child.local == tag for text in child.text.split()]
                 for tag in ("indexes", "u64values")]  # fmt: skip
        numbers = [index.rpartition(":")[2] for index in words[0]]
        if len(words[1]) != len(numbers) ** 2 or not all(text.isdecimal() for text in words[1]):
            read.problems.append(
                f"line {part.line}: NVLinkBandwidth: found {len(words[1])} values for {len(numbers)} objects, expected "
                f"{len(numbers) ** 2} whole numbers of MB/s"
            )
            continue
        for row, number in enumerate(numbers):
            values = words[1][row * len(numbers) : (row + 1) * len(numbers)]
            read.links[number] = {
                other: int(text) for other, text in zip(numbers, values, strict=True) if other != number
            }


def _nvlinks(read: _DeviceFacts, device: Element, sm: int | None) -> Iterator[Element]:
    """Yields the NVLinks of a GPU as NCCL's elements."""
    links: Mapping[str, int] = next(
        (read.links[number] for number, pci in read.pci.items() if pci is device and number in read.links), {}
    )
    for number, speed in links.items():
        if speed:
            other = read.pci.get(number)
            target = "" if other is None else other.attributes.get("pci_busid", "")
            tclass = TO_CPU if other is None else "0x030200"
            if other is not None and other.attributes.get("subtype") == "NVSwitch":
                tclass = TO_SWITCH
            count = max(1, round(speed / LINK_MBPS[sm or 80]))
            yield Element("nvlink", {"target": target, "count": str(count), "tclass": tclass}, device.line)
