"""The busiest links of a run, in words and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.records import Run
from paceline.records.figures import BYTES, GIGABYTES_PER_SECOND, LINK_UTILISATION
from paceline.records.links import LinkFigures
from paceline.reports.blocks import Column, Table
from paceline.reports.words import listed

MOST_ROWS = 8
"""rows of the table of links; INFERENCE: more hide the rest of a screen"""
IDLE = 0.01
"""utilisation below which links are listed together; provenance: ours"""


def name_of(link: Mapping[Any, Any]) -> str:
    """Returns the name of a link, given a row of the table or the entry of a summary.

    >>> name_of({"from": "host3", "to": "switch"})
    'host3 -> switch'
    """
    return f"{link['from']} -> {link['to']}"


def link_sentences(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields what there is to say about the links of a run; nothing if they were not counted.

    Args:
        summary: the summary of the run.

    >>> busiest = {"from": "host3", "to": "switch", "kind": "eth-10g", "bytes": 12_400_000_000, "utilisation": 0.63}
    >>> kinds = [{"kind": "eth-10g", "max_utilisation": 0.63}, {"kind": "pcie4-x16", "max_utilisation": 0.002}]
    >>> for sentence in link_sentences({"links": {"busiest": busiest, "kinds": kinds}}):
    ...     print(sentence)
    The busiest link is host3 -> switch (eth-10g): 12.4 GB, 63 % of its capacity.
    Below 1 %: all links of pcie4-x16.
    """
    if (links := summary.get("links")) is None:
        return
    if (busiest := links["busiest"]) is None:
        yield "No link carried anything."
        return
    carried = f"{BYTES.text(busiest['bytes'])}, {LINK_UTILISATION.with_symbol(busiest['utilisation'])} of its capacity"
    yield f"The busiest link is {name_of(busiest)} ({busiest['kind']}): {carried}."
    idle = [link["kind"] for link in links["kinds"] if link["max_utilisation"] < IDLE]
    if len(idle) == len(links["kinds"]):
        yield "All links are used below 1 %."
    elif idle:
        yield f"Below 1 %: all links of {listed(idle)}."


def figures_of(run: Run) -> LinkFigures:
    """Returns the figures of the links of a run that counted them."""
    figures = run.summary.get("links")
    assert figures is not None, "its links were counted"
    return figures


def links_table(run: Run, *, named: bool = False) -> Table:
    """Returns a table of the busiest links, at most `MOST_ROWS` of them.

    Args:
        run: a run whose links were counted.
        named: whether the title names the algorithm and the seed.
    """
    rows, every = run.tables.links.head(MOST_ROWS).to_dict("records"), figures_of(run)["links"]
    of = f" of {run.algorithm}, seed {run.seed}" if named else ""
    columns = [
        Column("link"), Column("kind"), Column("carried", BYTES, code="bytes"),
        Column("capacity", GIGABYTES_PER_SECOND, code="bytes_per_s"), Column.of(LINK_UTILISATION),
    ]  # fmt: skip
    cells = [(name_of(row), row["kind"], row["bytes"], row["bandwidth"], row["utilisation"]) for row in rows]
    return Table(f"Busiest links{of}, {len(rows)} of {every}", columns, cells)
