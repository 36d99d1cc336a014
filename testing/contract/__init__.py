"""`InterpreterContract`: what every interpreter must do, to subclass in a test suite.

Read `programs` first, then `messages`.
"""

from __future__ import annotations

from paceline.testing.contract.collectives import CollectivesContract
from paceline.testing.contract.lanes import LanesContract
from paceline.testing.contract.learning import LearningContract, StalenessContract
from paceline.testing.contract.messages import MessagesContract
from paceline.testing.contract.methods import MethodsContract
from paceline.testing.contract.wrong_programs import WrongProgramsContract


class InterpreterContract(
    MessagesContract,
    CollectivesContract,
    LanesContract,
    LearningContract,
    StalenessContract,
    WrongProgramsContract,
    MethodsContract,
):
    """Tests that an interpreter does what programs rely on: some hundred small runs.

    A subclass runs a job and returns its trace:

        class TestMyInterpreter(InterpreterContract):
            def run(self, job):
                return MyInterpreter(job).run()

    The parts can be used alone: messages, collectives, lanes, learning, staleness, wrong programs, methods.
    """
