"""Wrong programs: the interpreter reports the rank, the place, the step, and the error, in every interpreter."""

from __future__ import annotations

from paceline.testing.contract.wrong_programs import WrongProgramsContract
from tests.contract.interpreters import InEveryInterpreter


class TestWrongPrograms(InEveryInterpreter, WrongProgramsContract):
    """In every interpreter."""
