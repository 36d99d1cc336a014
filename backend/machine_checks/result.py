"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "limited", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """What was found, what it is needed for, and how to get it.

    Args:
        name: what was looked for.
        status: whether it is usable, usable with a limit, or missing.
        found: what was found, in words.
        needed_for: the commands and options that use it.
        remedy: how to get it; empty if it is there.
        required: whether simulate, train and compare do not work without it.
    """

    name: str
    status: Status
    found: str
    needed_for: str
    remedy: str = ""
    required: bool = False
