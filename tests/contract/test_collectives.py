"""AllReduce, Reduce, Broadcast, AllGather and Barrier, and the check of their order, in every interpreter."""

from __future__ import annotations

from paceline.testing.contract.collectives import CollectivesContract
from tests.contract.interpreters import InEveryInterpreter


class TestCollectives(InEveryInterpreter, CollectivesContract):
    """In every interpreter."""
