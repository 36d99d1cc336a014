"""Shell completion of names of scenarios, methods, topologies and data sets; the shell adds files by itself."""

from __future__ import annotations


def scenarios(incomplete: str) -> list[str]:
    """Returns the names of shipped scenarios with this beginning."""
    from paceline.scenarios.values.text import SHIPPED

    return [name for name in SHIPPED if name.startswith(incomplete)]


def algorithms(incomplete: str) -> list[str]:
    """Completes the last name of a comma-separated list."""
    from paceline.algorithms import METHODS
    from paceline.algorithms.own import offers
    from paceline.algorithms.synonyms import ALIASES

    before, comma, last = incomplete.rpartition(",")
    known = dict.fromkeys([*METHODS, *offers(), *ALIASES])
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


def topologies(incomplete: str) -> list[str]:
    """Returns the names of cluster graphs with this beginning."""
    from paceline.topologies.graphs.graph_registry import TOPOLOGIES

    return [name for name in TOPOLOGIES if name.startswith(incomplete)]


def data(incomplete: str) -> list[str]:
    """Returns the names of data sets with this beginning."""
    from paceline.workloads.datasets import DATA

    return [name for name in DATA if name.startswith(incomplete)]


def papers(incomplete: str) -> list[str]:
    """Returns the short names of papers, and the names of claims, with this beginning."""
    from paceline.papers.core.registry import PAPERS, claims_named

    return [name for name in [*PAPERS, *(claim.name for claim in claims_named())] if name.startswith(incomplete)]


def stored_runs(incomplete: str) -> list[str]:
    """Returns the folders of runs with this beginning: in the given folder, or in runs/ if none is given."""
    from pathlib import Path

    given = Path(incomplete)
    folder = given if incomplete.endswith("/") else given.parent
    if folder == Path():
        folder = Path("runs")
    try:
        names = sorted(str(path.parent) for path in folder.glob("*/run.json"))
    except OSError:  # a folder that may not be read has no names to offer
        return []
    return [name for name in names if name.startswith(incomplete) or Path(name).name.startswith(incomplete)]
