"""What a shell completes: names of scenarios, methods, topologies and data sets; a shell adds files by itself."""

from __future__ import annotations


def scenarios(incomplete: str) -> list[str]:
    """The names of shipped scenarios that begin so."""
    from paceline.scenarios.resolution.text import SHIPPED

    return [name for name in SHIPPED if name.startswith(incomplete)]


def algorithms(incomplete: str) -> list[str]:
    """The last name of a list with commas, completed."""
    from paceline.algorithms import METHODS
    from paceline.algorithms.own import offers

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in [*METHODS, *offers()] if name.startswith(last)]


def topologies(incomplete: str) -> list[str]:
    """The names of cluster graphs that begin so."""
    from paceline.topologies.graphs.graph_registry import TOPOLOGIES

    return [name for name in TOPOLOGIES if name.startswith(incomplete)]


def data(incomplete: str) -> list[str]:
    """The names of data sets that begin so."""
    from paceline.workloads.datasets import DATA

    return [name for name in DATA if name.startswith(incomplete)]
