"""Reads and writes the file of a calibrated machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import yaml

from paceline.scenarios.sections.machine_file import MachinePart
from paceline.scenarios.sections.read_machine import read_machine

HEADING = "# A machine file of `paceline calibrate`. `paceline simulate` and `compare` take it as --machine.\n"
OPTIONAL = ("rates", "imported", "models")
"""sections that are left out if they are empty"""


def load_machine(path: str | Path) -> MachinePart:
    """Reads a machine file.

    Args:
        path: the file.

    Raises:
        InputError: it is missing or wrong; with the location, the value and the fix of every mistake.
    """
    return read_machine(path)


def save_machine(machine: MachinePart, path: Path) -> None:
    """Writes a machine file; an interrupted write leaves an existing file as it is.

    Args:
        machine: the machine.
        path: the file.
    """
    data = machine.model_dump(mode="json", exclude_none=True)
    for key in OPTIONAL:
        if not data.get(key):
            data.pop(key, None)
    text = HEADING + yaml.safe_dump(data, sort_keys=False, width=120)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".yaml", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
