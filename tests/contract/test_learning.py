"""Load, Gradient, LayerGradients, Charge, Now, RecordUpdate and NextStep, in every interpreter."""

from __future__ import annotations

from paceline.testing.contract.learning import LearningContract
from tests.contract.interpreters import InEveryInterpreter


class TestLearning(InEveryInterpreter, LearningContract):
    """In every interpreter."""
