"""Takes the value of one rank out of a value of a class."""

from __future__ import annotations

import dataclasses
from typing import Any

from paceline.algorithms.core.operations import Handle
from paceline.algorithms.core.values import Group, Rank
from paceline.simulator.cohort.stacked import Stacked
from paceline.simulator.cohort.varying import Varying, VaryingRanks


def of_one(value: Any, place: int) -> Any:
    """Returns the value of one rank; values that are the same for all ranks are not copied.

    Args:
        value: a value of the class, at any depth of tuples, lists, dictionaries and dataclasses.
        place: the place of the rank in the class.
    """
    if isinstance(value, Varying):
        return value.values[place].item()
    if isinstance(value, Stacked):
        return value.rows[place].copy()  # a part of the matrix would keep all of it
    if isinstance(value, Group):
        ranks: Any = value.ranks
        return Group(ranks.parts[ranks.part_of[place]]) if isinstance(ranks, VaryingRanks) else value
    if isinstance(value, Handle):
        rank: Any = value.rank
        return Handle(Rank(of_one(rank, place)), value.number)
    if isinstance(value, tuple | list):
        parts = [of_one(part, place) for part in value]
        if all(part is own for part, own in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_make") else type(value)(parts)
    if isinstance(value, dict):
        return {key: of_one(part, place) for key, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        found = {name: of_one(getattr(value, name), place) for name in names}
        changed = {name: part for name, part in found.items() if part is not getattr(value, name)}
        return dataclasses.replace(value, **changed) if changed else value
    return value
