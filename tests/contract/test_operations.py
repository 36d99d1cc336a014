"""The parts of the contract of interpreters, in every interpreter; `test_methods` has the methods."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.testing.contract.collectives import CollectivesContract
from paceline.testing.contract.lanes import LanesContract
from paceline.testing.contract.learning import LearningContract, StalenessContract
from paceline.testing.contract.messages import MessagesContract
from paceline.testing.contract.programs import ContractProgram, Interpreter
from paceline.testing.contract.wrong_programs import (
    MISTAKES,
    ChangesTheSizeOfACell,
    StartsDifferentBarriers,
    UnlocksForAnother,
    WaitsForWhatItCancelled,
    WrongProgramsContract,
)
from tests.contract.interpreters import BY_DEFAULT, REAL, InEveryInterpreter, every_interpreter


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


OF_REAL_RUNS = (StartsDifferentBarriers, UnlocksForAnother, ChangesTheSizeOfACell, WaitsForWhatItCancelled)
"""mistakes that `make test` makes in real processes, too: those that several ranks or shared memory notice"""


def mistakes() -> list[Any]:
    """Returns each mistake in each interpreter; the sentences of most are those of code that all interpreters share."""
    return [
        value
        for program, sentence in MISTAKES
        for value in every_interpreter(
            (BY_DEFAULT - (set() if isinstance(program, OF_REAL_RUNS) else {REAL})).__contains__, program, sentence
        )
    ]


class TestWrongPrograms(InEveryInterpreter, WrongProgramsContract):
    """Mistakes of programs."""

    @pytest.mark.parametrize(
        ("interpreter", "case", "sentence"),
        mistakes(),
        indirect=["interpreter"],
        ids=lambda value: type(value).__name__ if isinstance(value, ContractProgram) else value.partition(",")[0],
    )
    def test_each_mistake_is_told_in_the_same_sentence_everywhere(
        self, interpreter: Interpreter, case: ContractProgram, sentence: str
    ) -> None:
        super().test_each_mistake_is_told_in_the_same_sentence_everywhere(interpreter, case, sentence)
