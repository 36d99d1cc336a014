"""`MethodContract`: the tests of a method, to subclass in a test suite; and the exception with a counterexample."""

from __future__ import annotations

from typing import ClassVar

import pytest

from paceline.algorithms.core.method import Method
from paceline.checking.cases import Case, Checked, Effort, Violation, check_method, performed, violations
from paceline.checking.cases.checking_methods import verdicts_of


class GuaranteeViolated(AssertionError):
    """A method violates a guarantee. The pytest plugin prints the story of `violation`.

    Args:
        violation: the guarantee, what was found, and the case that shows it.
    """

    def __init__(self, violation: Violation) -> None:
        super().__init__(f"{violation.case.method.name} violates {violation.guarantee}: {violation.words}")
        self.violation = violation


def assert_keeps_guarantees(case: Case) -> None:
    """Runs a case and checks the guarantees of its method and the invariants of all methods.

    Args:
        case: the case, such as one that the strategy `cases` has drawn.

    Raises:
        GuaranteeViolated: the case violates one of them; if several, the first.

    >>> from paceline.algorithms import find
    >>> assert_keeps_guarantees(Case(method=find("easgd")(), nodes=(1, 1), steps=2))
    """
    outcome = performed(case)
    broken = violations(outcome, costly=False) or violations(outcome)  # so that failing cases are shrunk quickly
    if broken:
        raise GuaranteeViolated(broken[0])


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
