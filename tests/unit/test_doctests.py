"""Every example in a docstring runs, under the name by which users import its module."""

import doctest
import importlib
import pkgutil
from collections import defaultdict
from functools import partial

import pytest

import paceline
from tests.clusters import measured_briefly
from tests.folded import check_all


def modules_by_package() -> dict[str, list[str]]:
    """The modules of each package, and the package itself."""
    found = defaultdict(list, paceline=["paceline"])
    for info in pkgutil.walk_packages(paceline.__path__, "paceline."):
        found[info.name if info.ispkg else info.name.rpartition(".")[0]].append(info.name)
    return found


PACKAGES = modules_by_package()


def check(module: str) -> None:
    """Runs the examples; `doctest.testmod` takes 10 ms for every docstring, also for the many that have none."""
    runner = doctest.DocTestRunner()
    for docstring in doctest.DocTestFinder().find(importlib.import_module(module)):
        if docstring.examples:
            runner.run(docstring)
    assert runner.failures == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_examples(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_briefly(monkeypatch)
    check_all({module: partial(check, module) for module in PACKAGES[package]})


def test_modules_are_found_through_the_links() -> None:
    found = {module for modules in PACKAGES.values() for module in modules}
    assert {"paceline.algorithms.core.values", "paceline.workloads.sampling", "paceline.records.trace"} <= found
