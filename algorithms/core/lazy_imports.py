"""Package attributes that are imported at their first use (PEP 562).

`import paceline.algorithms.core.errors` also runs ``paceline/algorithms/__init__.py``. If that imported every method,
each command would wait for numpy, even one that only prints an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def deferred(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: the package's ``__name__``.
        homes: the submodule that defines each attribute. No attribute may have the name of a submodule: importing the
            submodule would replace it.

    >>> find, names = deferred("paceline.algorithms", {"METHODS": "registry", "find": "registry"})
    >>> find("METHODS")["agd"].name, names()
    ('agd', ['METHODS', 'find'])
    >>> find("MEHTODS")
    Traceback (most recent call last):
    AttributeError: module 'paceline.algorithms' has no attribute 'MEHTODS'
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return attribute, lambda: sorted(homes)
