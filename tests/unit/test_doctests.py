"""Every example in a docstring runs, under the name by which users import its module."""

import doctest
import importlib
import pkgutil

import pytest

import paceline

MODULES = ["paceline", *(info.name for info in pkgutil.walk_packages(paceline.__path__, "paceline."))]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_modules_are_found_through_the_links() -> None:
    assert {"paceline.algorithms.core.values", "paceline.workloads.sampling", "paceline.records.trace"} <= set(MODULES)
