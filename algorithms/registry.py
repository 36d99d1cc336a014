"""The methods by name."""

from __future__ import annotations

import difflib

from paceline.algorithms.baseline import SequentialSgd, SyncSgd
from paceline.algorithms.delayed import Agd
from paceline.algorithms.elastic import Easgd, SyncEasgd3
from paceline.algorithms.errors import InputError
from paceline.algorithms.hogwild import HogwildEasgd, HogwildSgd
from paceline.algorithms.layerwise import LayerwiseSgd
from paceline.algorithms.method import Method
from paceline.algorithms.periodic import HbsSgd
from paceline.algorithms.server import AsyncSgd

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        SequentialSgd,
        SyncSgd,
        AsyncSgd,
        HogwildSgd,
        Easgd,
        HogwildEasgd,
        SyncEasgd3,
        HbsSgd,
        LayerwiseSgd,
        Agd,
    )
}


def find(name: str) -> type[Method]:
    """The method of this name; raises `InputError` with a near miss.

    >>> find("sync-sgd").name
    'sync-sgd'
    >>> find("sync-sdg")
    Traceback (most recent call last):
    paceline.algorithms.errors.InputError: unknown method 'sync-sdg' (did you mean sync-sgd?)
    """
    if name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(METHODS)}"
    raise InputError(f"unknown method {name!r} ({hint})")
