"""What each link of a cluster graph carried during a simulated run: the table `links`, and its figures.

* A row is one direction of a link, or of several parallel links between two vertices. Messages between ranks of
  one vertex pass no link of the graph; the path out of a rank and the path into a rank are rows, too, if they carried
  something.
* utilisation = bytes / (bandwidth · wall_s), with the bandwidth that the link has without faults.
* Rows are sorted by utilisation, the busiest first, and equal ones by their order in the graph. The table keeps at most
  `MOST_LINKS` rows; the figures of the summary count all links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

MOST_LINKS = 1_000
"""rows of the table; provenance: ours, about 20 kB, and all links of clusters of up to some 400 hosts"""
DIGITS = 9
"""digits that count when links are ordered: sums of the same bytes in another order differ in later ones"""

Amounts = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The links of a cluster; the fields are columns.

    Args:
        source: the vertex or the rank at which each link begins.
        target: the vertex or the rank at which it ends.
        kind: the name of each kind of link, such as `eth-10g`.
        medium: memory, nvlink, pcie or network.
        nbytes: the bytes that each link carried.
        bandwidth: bytes per second.
    """

    source: Sequence[str]
    target: Sequence[str]
    kind: Sequence[str]
    medium: Sequence[str]
    nbytes: Amounts
    bandwidth: Amounts

    def utilisation(self, wall_s: float) -> Amounts:
        """Returns the share of each link's capacity that was used; 0 for a run of no length.

        Args:
            wall_s: the length of the run.
        """
        return self.nbytes / (self.bandwidth * wall_s) if wall_s > 0 else np.zeros(len(self.nbytes))

    def busiest(self, wall_s: float) -> list[int]:
        """Returns the places of all links, the busiest first.

        Args:
            wall_s: the length of the run.
        """
        used = self.utilisation(wall_s)
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.where(used > 0, used, 1.0))))
        indices: list[int] = np.argsort(-np.round(used * scale) / scale, kind="stable").tolist()
        return indices


BusyLink = TypedDict("BusyLink", {"from": str, "to": str, "kind": str, "bytes": int, "utilisation": float})
"""the link with the largest utilisation"""


class LinkKind(TypedDict):
    """All links of one kind."""

    kind: str
    medium: str
    links: int
    """number of links, each direction counted"""
    bytes: int
    """the sum over these links"""
    utilisation: float
    """bytes over the capacity of all of them together"""
    max_utilisation: float


class LinkFigures(TypedDict):
    """The figures of all links of a run."""

    links: int
    """number of links, each direction counted"""
    listed: int
    """rows of the table"""
    total_bytes: int
    """the sum over all links: a message counts on each link that it passes"""
    busiest: BusyLink | None
    """null if no link carried anything"""
    kinds: list[LinkKind]
    """by the kind of link, in the order of the graph"""


def link_rows(links: Links, wall_s: float) -> list[tuple[Any, ...]]:
    """Returns the rows of the table `links`.

    Args:
        links: the links.
        wall_s: the length of the run.
    """
    used, sizes = links.utilisation(wall_s).tolist(), np.rint(links.nbytes).astype(np.int64).tolist()
    columns = (links.source, links.target, links.kind, links.medium, sizes, links.bandwidth.tolist(), used)
    return [tuple([column[place] for column in columns]) for place in links.busiest(wall_s)[:MOST_LINKS]]


def link_figures(links: Links, wall_s: float) -> LinkFigures:
    """Returns the figures of the summary.

    Args:
        links: the links.
        wall_s: the length of the run.

    >>> some = Links(("a", "b"), ("b", "a"), ("eth",) * 2, ("network",) * 2, np.array([6.0, 2.0]), np.array([4.0, 4.0]))
    >>> found = link_figures(some, wall_s=3.0)
    >>> found["busiest"]["from"], found["busiest"]["utilisation"], found["total_bytes"]
    ('a', 0.5, 8)
    """
    used = links.utilisation(wall_s)
    return LinkFigures(
        links=len(links.source),
        listed=min(MOST_LINKS, len(links.source)),
        total_bytes=round(float(links.nbytes.sum())),
        busiest=_busiest(links, used, wall_s) if links.nbytes.any() else None,
        kinds=_kinds(links, used, wall_s),
    )


def _busiest(links: Links, used: Amounts, wall_s: float) -> BusyLink:
    place = links.busiest(wall_s)[0]
    return {
        "from": links.source[place],
        "to": links.target[place],
        "kind": links.kind[place],
        "bytes": round(float(links.nbytes[place])),
        "utilisation": float(used[place]),
    }


def _kinds(links: Links, used: Amounts, wall_s: float) -> list[LinkKind]:
    numbers: dict[tuple[str, str], int] = {}
    of = np.array([numbers.setdefault(kind, len(numbers)) for kind in zip(links.kind, links.medium, strict=True)], int)
    count, nbytes, bandwidth = (np.bincount(of, what, len(numbers)) for what in (None, links.nbytes, links.bandwidth))
    most = np.zeros(len(numbers))
    np.maximum.at(most, of, used)
    return [
        LinkKind(
            kind=kind,
            medium=medium,
            links=int(count[number]),
            bytes=round(float(nbytes[number])),
            utilisation=float(nbytes[number] / (bandwidth[number] * wall_s)) if wall_s > 0 else 0.0,
            max_utilisation=float(most[number]),
        )
        for (kind, medium), number in numbers.items()
    ]
