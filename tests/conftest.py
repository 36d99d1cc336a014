"""What holds for every test: one name per module, and how hard Hypothesis looks."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import paceline

# Simulations and first imports are slow at times, which is no failure: hence no deadline.
settings.register_profile("fast", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

PACKAGE = Path(paceline.__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; look at the difference!"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real runs go one at a time, where tests are shared out among processes: each has four or five ranks already."""
    for item in items:
        if item.get_closest_marker("backend"):
            item.add_marker(pytest.mark.xdist_group("real"))


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
