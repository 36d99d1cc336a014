"""The recorded staleness, in every interpreter."""

from __future__ import annotations

from paceline.testing.contract.staleness import StalenessContract
from tests.contract.interpreters import InEveryInterpreter


class TestStaleness(InEveryInterpreter, StalenessContract):
    """In every interpreter."""
