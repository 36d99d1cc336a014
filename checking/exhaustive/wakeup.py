"""Wakeup trees: the sequences of events that are still to be explored after a prefix of a run.

Source: Abdulla, Aronis, Jonsson, Sagonas, "Optimal Dynamic Partial Order Reduction", POPL 2014, definitions 3.2 to 3.5
and section 5.1; "Source Sets: A Foundation for Optimal Dynamic Partial Order Reduction", JACM 2017.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from paceline.checking.exhaustive.events import Key, Marks


class Item(NamedTuple):
    """One event of a sequence."""

    key: Key
    marks: Marks
    grant: bool
    """whether it takes one of the steps that several ranks share"""
    number: int
    """the index of the event in the run; the last item of a sequence is no event of it"""
    before: int
    """the indices of the events that happen before it"""


Sequence = tuple[Item, ...]
PLENTY = 2**62
"""the number of steps left if ranks do not share them"""


@dataclass(slots=True, eq=False)
class Branch:
    """A node of a wakeup tree; its children are in the order of their exploration."""

    key: Key
    marks: Marks
    grant: bool
    following: list[Branch] = field(default_factory=list)


def without(key: Key, marks: Marks, grant: bool, sequence: Sequence, spare: int) -> Sequence | None:
    """Returns what is left of a sequence if this event comes first; None if that would give other orders.

    This is "a weak initial of the sequence" of the paper: the event is one of the sequence, and none of the sequence
    happens before it, or it is none of the sequence and conflicts with none.

    Args:
        key: the event.
        marks: its marks.
        grant: whether it takes a shared step.
        sequence: events that can follow the same prefix.
        spare: the number of shared steps that are left after the sequence.
    """
    passed = 0
    for position, item in enumerate(sequence):
        if item.key.lane == key.lane:
            same = item.key == key and not item.before & passed
            return sequence[:position] + sequence[position + 1 :] if same else None
        passed |= 1 << item.number
    if (grant and spare < 1) or any(marks.conflicts(item.marks) for item in sequence):
        return None
    return sequence


def insert(branches: list[Branch], sequence: Sequence, spare: int) -> bool:
    """Adds a sequence to a wakeup tree, unless the tree leads to all of its orders already.

    Args:
        branches: the children of the tree's root.
        sequence: the events to add.
        spare: the number of shared steps that are left after the sequence.

    Returns:
        Whether it was added.
    """
    while sequence:
        for branch in branches:
            rest = without(branch.key, branch.marks, branch.grant, sequence, spare)
            if rest is not None:
                if not branch.following:
                    return False
                if branch.grant and len(rest) == len(sequence):
                    spare -= 1
                sequence, branches = rest, branch.following
                break
        else:
            for item in sequence:
                branch = Branch(item.key, item.marks, item.grant)
                branches.append(branch)
                branches = branch.following
            return True
    return False
