"""The pages of the Python API: the public names of each package, which mkdocstrings documents from their docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType

PACKAGES = {
    "paceline": "what scripts and notebooks use",
    "paceline.algorithms": "what methods are made of",
    "paceline.scenarios": "scenario files",
    "paceline.simulator": "the interpreter in virtual time",
    "paceline.backend": "the interpreter on torch.distributed",
    "paceline.checking": "the interpreter without a clock, replay and checks of guarantees",
    "paceline.testing": "tests of methods and interpreters with pytest and Hypothesis",
    "paceline.topologies": "clusters, devices, links and graphs",
    "paceline.workloads": "models and data sets",
    "paceline.records": "stored runs",
}


def pages() -> dict[str, str]:
    """Returns a page for each package by its path, and the page that lists them."""
    rows = "".join(f"- [`{name}`](api/{name}.md): {words}\n" for name, words in PACKAGES.items())
    head = "# Python API\n\nThe public names of each package, from their docstrings.\n\n"
    found = {"reference/api.md": head + rows}
    shown: set[str] = set()
    for name in PACKAGES:
        found[f"reference/api/{name}.md"] = page(name, shown)
    return found


def page(name: str, shown: set[str]) -> str:
    """Returns the page of a package.

    Args:
        name: the name by which the package is imported.
        shown: what earlier pages have documented, which is linked instead; what this page documents is added.
    """
    package = import_module(name)
    text = inspect.cleandoc(package.__doc__ or "").split("\n>>>")[0].strip()
    places = {public: place_of(package, public) for public in package.__all__}
    lines = [f"# {name}\n", text, ""]
    if others := [f"`{public}`" for public, place in places.items() if place is None]:
        lines += [f"Constants and type aliases: {', '.join(others)}.\n"]
    if known := [f"[`{public}`][{place}]" for public, place in places.items() if place in shown]:
        lines += [f"The same as in another package: {', '.join(known)}.\n"]
    lines += [f"::: {place}\n" for place in places.values() if place and place not in shown]
    shown.update(place for place in places.values() if place)
    return "\n".join(lines)


def place_of(package: ModuleType, name: str) -> str | None:
    """Returns where a class or function is defined, as `module.name`; None for other objects.

    Args:
        package: a package that exports it.
        name: its name.

    >>> import paceline
    >>> place_of(paceline, "simulate")
    'paceline.reports.run_results.simulate'
    >>> place_of(import_module("paceline.algorithms"), "OPERATIONS")
    """
    found = inspect.unwrap(getattr(package, name)) if callable(getattr(package, name)) else None
    if not (inspect.isclass(found) or inspect.isfunction(found)) or found.__qualname__ != name:
        return None
    return f"{found.__module__}.{name}" if found.__module__.startswith("paceline") else None
