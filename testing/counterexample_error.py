"""The exception that carries a counterexample, and the check that raises it."""

from __future__ import annotations

from paceline.checking.cases import Case, Violation, performed, violations


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
    found = violations(performed(case))
    if found:
        raise GuaranteeViolated(found[0])
