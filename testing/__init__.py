"""The testing kit: checks of methods and of interpreters for other test suites, with Hypothesis and pytest.

Read `method_contract` first, then `strategies` and `contract`. It needs the extra `checking`.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.checking.cases import Case, Effort, Times
    from paceline.testing.contract import InterpreterContract
    from paceline.testing.contract.programs import Contract, ContractProgram
    from paceline.testing.method_contract import GuaranteeViolated, MethodContract, assert_keeps_guarantees
    from paceline.testing.strategies import cases, clusters, gradients, learning_problems, scenarios, schedules, times
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Case": "strategies",
            "Contract": "contract.programs",
            "ContractProgram": "contract.programs",
            "Effort": "method_contract",
            "GuaranteeViolated": "method_contract",
            "InterpreterContract": "contract",
            "MethodContract": "method_contract",
            "Times": "strategies",
            "assert_keeps_guarantees": "method_contract",
            "cases": "strategies",
            "clusters": "strategies",
            "gradients": "strategies",
            "learning_problems": "strategies",
            "scenarios": "strategies",
            "schedules": "strategies",
            "times": "strategies",
        },
    )

__all__ = [
    "Case",
    "Contract",
    "ContractProgram",
    "Effort",
    "GuaranteeViolated",
    "InterpreterContract",
    "MethodContract",
    "Times",
    "assert_keeps_guarantees",
    "cases",
    "clusters",
    "gradients",
    "learning_problems",
    "scenarios",
    "schedules",
    "times",
]
