"""The page of all links and storage of the catalogue, with their sources."""

from __future__ import annotations

from collections.abc import Iterator

from docs.site_build.tables import table
from paceline.topologies import LINKS, STORAGE, LinkModel

MEDIA = {"network": "Networks", "nvlink": "NVLink", "pcie": "PCIe and sockets", "memory": "Memory"}
HEAD = """# Links and storage with their sources

Every link and every storage of the catalogue, generated from the code. A message of n bytes takes
latency + n / bandwidth when it is alone. Bandwidths are those that messages sustain in one direction, not the nominal
ones. [Devices](devices.md) explains the words of the sources.
"""


def page() -> str:
    """Returns the page."""
    return HEAD + "".join(_media()) + _storage()


def _media() -> Iterator[str]:
    for medium, title in MEDIA.items():
        rows = [_row(name, link) for name, link in LINKS.items() if link.medium == medium]
        yield f"\n## {title}\n\n" + table(["name", "latency, µs", "bandwidth, GB/s", "pieces", "source"], rows)


def _row(name: str, link: LinkModel) -> list[object]:
    pieces = len(link.pieces) + 1 if link.pieces else ""
    return [f"`{name}`", f"{link.latency_s * 1e6:.4g}", f"{link.bytes_per_s / 1e9:.4g}", pieces, link.provenance]


def _storage() -> str:
    rows = [[f"`{name}`", f"{one.latency_s * 1e3:.4g}", f"{one.bytes_per_s / 1e9:.4g}", one.provenance]
            for name, one in STORAGE.items()]  # fmt: skip
    return "\n## Storage\n\n" + table(["name", "latency of a request, ms", "bandwidth, GB/s", "source"], rows)
