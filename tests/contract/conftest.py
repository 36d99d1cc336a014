"""The interpreters that every contract test runs in.

A test asks for `interpreter` and gets a callable that runs a job and answers its trace; it may look at nothing else.
"""

from __future__ import annotations

import pytest

from tests.contract.cases import Interpreter
from tests.contract.interpreters import every_interpreter, named


@pytest.fixture(params=every_interpreter())
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    return named(request.param)
