"""The nodes of a template: one operation, one decision, or a part that has not been derived.

Numbers are contents of symbols (`symbols.Sum`), that is, formulas in the registers of a rank. Register 0 holds the
rank, the next ones the integers of the state with which the step began, then come those of received messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paceline.algorithms.core.operations import Charge
from paceline.simulator.servers.shapes import Shape
from paceline.simulator.servers.symbols import Relation, Sum

UNKNOWN = -1
"""the number of a node that does not exist yet"""


class Given(NamedTuple):
    """The answers that a program got since it began: the last one, and those before. A decision is an answer too."""

    before: Given | None
    answer: bool | Shape


@dataclass(slots=True)
class Underived:
    """A part of a template that has not been derived; it is when a run gets there."""

    root: Shape
    """the shape of the state with which the step began"""
    given: Given | None
    """the answers up to here"""


@dataclass(slots=True)
class Loads:
    """Loads the batch of a step."""

    step: Sum
    samples: int
    then: int = UNKNOWN


@dataclass(slots=True)
class Computes:
    """Computes the gradient of a step."""

    step: Sum
    samples: int
    then: int = UNKNOWN


@dataclass(slots=True)
class Charges:
    """Charges the time of arithmetic."""

    op: Charge
    then: int = UNKNOWN


@dataclass(slots=True)
class Sends:
    """Sends a message of a shape with these integers."""

    to: Sum
    shape: Shape
    integers: tuple[Sum, ...]
    then: int = UNKNOWN


@dataclass(slots=True)
class Receives:
    """Receives the oldest message; its source and its integers get registers."""

    first: int
    """register of the source; the integers follow"""
    root: Shape
    given: Given | None
    children: dict[Shape, int] = field(default_factory=dict)
    """the node that follows, by the shape of the message"""


@dataclass(slots=True)
class Decides:
    """Goes on by the relation of a number to 0."""

    content: Sum
    relation: Relation
    yes: int = UNKNOWN
    no: int = UNKNOWN


class Input(NamedTuple):
    """An input of an update, see `Contribution`."""

    rank: Sum
    step: Sum
    version: Sum
    samples: Sum


@dataclass(slots=True)
class Updates:
    """Records an update that advances the version."""

    held: Sum
    """the version before"""
    inputs: tuple[Input, ...]
    then: int = UNKNOWN


@dataclass(slots=True)
class NextSteps:
    """Ends the step: requests the next one with a state of this shape, with which another template begins."""

    step: Sum
    """the number of completed steps"""
    shape: Shape
    integers: tuple[Sum, ...]
    then: int = UNKNOWN


@dataclass(slots=True)
class Ends:
    """Ends the program with this state."""

    shape: Shape
    integers: tuple[Sum, ...]


@dataclass(slots=True)
class Outside:
    """The program goes on outside of machine code."""


Node = Any
"""one of the classes above"""
