"""The parts of the contract of interpreters, in every interpreter; `test_methods` has the methods."""

from __future__ import annotations

from paceline.testing.contract.collectives import CollectivesContract
from paceline.testing.contract.lanes import LanesContract
from paceline.testing.contract.learning import LearningContract, StalenessContract
from paceline.testing.contract.messages import MessagesContract
from paceline.testing.contract.wrong_programs import WrongProgramsContract
from tests.contract.interpreters import InEveryInterpreter


class TestMessages(InEveryInterpreter, MessagesContract):
    """Send and Receive."""


class TestCollectives(InEveryInterpreter, CollectivesContract):
    """Collectives, and the check of their order."""


class TestLanes(InEveryInterpreter, LanesContract):
    """Start, Wait, WaitFor and Cancel."""


class TestLearning(InEveryInterpreter, LearningContract):
    """Load, Gradient, LayerGradients, Charge, Now, RecordUpdate and NextStep."""


class TestStaleness(InEveryInterpreter, StalenessContract):
    """The recorded staleness."""


class TestWrongPrograms(InEveryInterpreter, WrongProgramsContract):
    """Mistakes of programs."""
