"""The path of every key of a scenario, for suggestions where a key is given in the wrong place or as an option."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from paceline.algorithms.registry import METHODS
from paceline.scenarios.values.hyperparameters import types_of
from paceline.scenarios.values.key_hints import meanings
from paceline.scenarios.values.mistakes import key_of

PREFERRED = {"device": "train.device", "nodes": "cluster.nodes[0].count"}
"""paths of keys for which the path nearest to the top is not what an option of this name means"""
LEFT_OUT = frozenset({"extrapolate", "plan"})
"""sections whose keys are not suggested: they describe other runs than the scenario's own"""


def key_paths(root: type[BaseModel]) -> dict[str, str]:
    """Returns the path of each key: the one nearest to the top where several sections have the key.

    Elements of lists have the position 0, and hyper-parameters are under `hyperparameters`.

    Args:
        root: the class of a whole scenario.

    Returns:
        Paths by key, as options such as ``--set`` take them.

    >>> from paceline.scenarios.resolution.schema import Scenario
    >>> paths = key_paths(Scenario)
    >>> paths["epochs"], paths["workers_per_node"], paths["momentum"]
    ('stop.epochs', 'cluster.nodes[0].workers_per_node', 'hyperparameters.momentum')
    """
    paths = dict(PREFERRED)
    level: list[tuple[type[BaseModel], str]] = [(root, "")]
    while level:
        below = []
        for section, prefix in level:
            for name, field in section.model_fields.items():
                key = key_of(name, field)
                if key in LEFT_OUT:
                    continue
                paths.setdefault(key, f"{prefix}{key}")
                below += [(part, f"{prefix}{key}{at}.") for part, at in _sections(field.annotation)]
        level = below
    for method in METHODS.values():
        _add_hyperparameters(paths, types_of(method), "hyperparameters.")
    return paths


def suggestion(key: str, paths: Mapping[str, str]) -> str | None:
    """Returns the path of a key that was given in another place, or by another name; None if there is none.

    Args:
        key: as it was given, with dashes or underscores.
        paths: the path of each key, from `key_paths`.

    >>> suggestion("lr", {"learning_rate": "hyperparameters.learning_rate"})
    'hyperparameters.learning_rate'
    """
    return next((paths[name] for name in meanings(key) if name in paths), None)


def _add_hyperparameters(paths: dict[str, str], types: dict[str, Any], prefix: str) -> None:
    for name, kind in types.items():
        paths.setdefault(name, f"{prefix}{name}")
        for group in filter(dataclasses.is_dataclass, get_args(kind)):
            assert isinstance(group, type), "a type holds classes, never instances"
            _add_hyperparameters(paths, types_of(group), f"{prefix}{name}.")


def _sections(annotation: Any, at: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    """Yields the sections that a value may be, each with [0] for every list around it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, at
    inside = f"{at}[0]" if get_origin(annotation) is tuple else at
    for inner in get_args(annotation):
        yield from _sections(inner, inside)
