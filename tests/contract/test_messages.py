"""Send and Receive, in every interpreter."""

from __future__ import annotations

from paceline.testing.contract.messages import MessagesContract
from tests.contract.interpreters import InEveryInterpreter


class TestMessages(InEveryInterpreter, MessagesContract):
    """In every interpreter."""
