"""Rules for every test: one name per module, the profile of Hypothesis, and the items of `make test-all` only."""

import os

# Arithmetic libraries read this when they are loaded. A thread that waits for others of its library keeps a core busy,
# which another process needs: with as many threads as cores, two processes of tests took up to ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import paceline
from tests.thorough import THOROUGH, leave_out

# Simulations, first imports and busy machines are slow at times, which is no failure: hence neither a deadline nor a
# limit to the time in which examples are made.
SLOW: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=25, derandomize=True, **SLOW)
settings.register_profile("thorough", max_examples=200, print_blob=True, **SLOW)
settings.load_profile("thorough" if THOROUGH else "fast")

# A shell that runs the tests in the background has them, and all that they start, ignore Ctrl-C; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Reports take a third of a second and 5 MB each; tests of reports ask for them.
os.environ.setdefault("PACELINE_REPORT", "0")

PACKAGE = Path(paceline.__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; look at the difference!"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)


def pytest_collection_finish() -> None:
    """Has Python look for cyclic garbage seldom, and never among the items and modules, which all stay alive.

    With the default thresholds, garbage collection takes a tenth of the time of the tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def folders() -> list[str]:
    """The folders that are imported as `paceline.<folder>`."""
    return sorted(entry.name for entry in PACKAGE.iterdir() if (entry / "__init__.py").exists())


@pytest.fixture(scope="session", autouse=True)
def _one_name_per_module(folders: list[str]) -> Iterator[None]:
    """Fails the run where a folder was imported without the prefix: its classes would exist twice."""
    yield
    twice = [name for name in folders if name in sys.modules]
    assert not twice, f"imported without the paceline. prefix: {', '.join(twice)}"
