"""`MethodContract`: the tests of a method, to subclass in a test suite."""

from __future__ import annotations

from typing import ClassVar

import pytest

from paceline.algorithms.core.method import Method
from paceline.checking.cases import Checked, Effort, check_method
from paceline.checking.cases.checking_methods import verdicts_of
from paceline.testing.counterexample_error import GuaranteeViolated


class MethodContract:
    """Checks a method as `paceline check` does, with one test for each guarantee.

    A subclass names the method, and may change how much is tried:

        class TestMyMethod(MethodContract):
            method = MyMethod(learning_rate=0.1)
            effort = Effort(schedules=2000, workers=6)

    All tests of a class share one exploration. A test is skipped if no schedule could check its guarantee.
    """

    method: ClassVar[Method]
    """the method with its hyper-parameters"""
    effort: ClassVar[Effort] = Effort(schedules=300)
    """how much is tried"""

    @pytest.fixture(scope="class")
    def checked(self) -> Checked:
        """The verdicts of the method."""
        return self.explored()

    def explored(self) -> Checked:
        """Checks the method on random cases, and returns a verdict for each guarantee."""
        return check_method(self.method, self.effort)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Makes one test of each guarantee."""
        if "guarantee" in metafunc.fixturenames:
            metafunc.parametrize("guarantee", list(verdicts_of(self.method)))

    def test_it_keeps(self, checked: Checked, guarantee: str) -> None:
        """No schedule violates this guarantee."""
        verdict = checked.verdicts[guarantee]
        if verdict.violation is not None:
            raise GuaranteeViolated(verdict.violation)
        if verdict.verdict == "not checked":
            pytest.skip(f"none of {checked.schedules} schedules could check it")
