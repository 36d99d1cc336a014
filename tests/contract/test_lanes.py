"""Start, Wait, WaitFor and Cancel, sub-programs as lanes, and shared state of lanes, in every interpreter."""

from __future__ import annotations

from paceline.testing.contract.lanes import LanesContract
from tests.contract.interpreters import InEveryInterpreter


class TestLanes(InEveryInterpreter, LanesContract):
    """In every interpreter."""
