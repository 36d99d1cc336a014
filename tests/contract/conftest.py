"""The interpreters in which every contract test runs.

A test takes the fixture `interpreter`, a callable that runs a job and returns its trace, and examines nothing else.
"""

from __future__ import annotations

import pytest

from paceline.testing.contract.programs import Interpreter
from tests.contract.interpreters import every_interpreter, named


@pytest.fixture(params=every_interpreter())
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    return named(request.param)
