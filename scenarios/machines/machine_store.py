"""Reads and writes the file of a calibrated machine."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import ValidationError

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.scenarios.machines.machine_file import MachinePart
from paceline.scenarios.values.mistakes import problems_of, raise_all
from paceline.scenarios.values.text import read

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
    file = Path(path)
    if not file.is_file():
        raise InputError(
            f"--machine: found {str(path)!r}, which is no file; expected one that `paceline calibrate` wrote"
        )
    return _read(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, _: int) -> MachinePart:
    name, data, problems = read(path)
    try:
        machine = MachinePart.model_validate(data)
    except ValidationError as error:
        raise_all(name, [*problems, *problems_of(error, MachinePart)])
    if problems:
        raise_all(name, problems)
    if not machine.gradients and not machine.costs:
        raise InputError(
            f"{name}: gradients: found none, and no costs; expected at least one batch size; run `paceline calibrate`"
        )
    return machine


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
    write_whole(path, HEADING + yaml.safe_dump(data, sort_keys=False, width=120))
