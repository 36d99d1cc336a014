"""Inputs of the claims: one file per paper, written down before any prediction was looked at.

Rules of this file:

* Each input has a unit in its value, and a provenance whose first words are one of `KINDS`.
* An input that was neither found nor derived has a plausible range, over which the claim is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.papers.core.claim import Input

FOLDER = Path(__file__).parents[1] / "inputs"
CERTAIN = ("FOUND", "DERIVED", "MEMORY high")
"""kinds of provenance that need no range"""
KINDS = (*CERTAIN, "MEMORY medium", "MEMORY low", "INFERENCE", "ASSUMED")


class Row(BaseModel):
    """One input as the file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, str_min_length=1)

    value: str
    provenance: str
    low: str | None = None
    high: str | None = None

    @model_validator(mode="after")
    def _checked(self) -> Self:
        kind = next((kind for kind in KINDS if self.provenance.startswith(kind)), None)
        if kind is None:
            raise ValueError(
                f"provenance: found {self.provenance[:40]!r}, expected it to start with {', '.join(KINDS)}"
            )
        if (self.low is None) != (self.high is None):
            raise ValueError("low, high: found one of them, expected both or none")
        if kind not in CERTAIN and self.low is None:
            raise ValueError(f"low, high: missing; an input with provenance {kind} needs its plausible range")
        return self


class File(BaseModel):
    """The inputs file of a paper."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    """title, authors, venue"""
    inputs: dict[str, Row]


@cache
def file_of(paper: str) -> File:
    """Reads the inputs file of a paper.

    Args:
        paper: The paper's short name.

    Raises:
        InputError: If the file is missing or wrong; with all mistakes.
    """
    path = FOLDER / f"{paper}.yaml"
    try:
        return File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; expected the inputs of the claims of {paper}") from None
    except ValidationError as error:
        lines = [f"{path.name}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise InputError("\n".join(lines)) from None


def inputs_of(paper: str) -> Mapping[str, Input]:
    """Returns all inputs of a paper, by name.

    >>> inputs_of("softsync")["learners"].number
    30.0
    """
    return {
        name: Input(name=name, value=row.value, provenance=row.provenance, low=row.low, high=row.high)
        for name, row in file_of(paper).inputs.items()
    }


def input_named(paper: str, name: str) -> Input:
    """Returns one input.

    Args:
        paper: The paper's short name.
        name: The input's name in the paper's file.

    Raises:
        InputError: If there is none of this name.
    """
    known = inputs_of(paper)
    if name not in known:
        raise InputError(f"inputs/{paper}.yaml: no input {name!r}{near_miss(name, known)}")
    return known[name]


def number_named(paper: str, name: str) -> float:
    """Returns the number of one input, in the unit of its value; arguments and errors are those of `input_named`.

    Args:
        paper: The paper's short name.
        name: The input's name in the paper's file.

    >>> number_named("softsync", "learners")
    30.0
    """
    return input_named(paper, name).number
