"""The pytest plugin: prints the story of a counterexample when a test fails with one.

It is active wherever paceline is installed, so it imports nothing of paceline before such a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from paceline.checking.cases import Violation

CONTRACT = "paceline.testing.contract"
"""the modules whose failed assertions show their values"""

if CONTRACT not in sys.modules:  # pytest warns of modules that were imported before
    pytest.register_assert_rewrite(CONTRACT)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("paceline")
    group.addoption(
        "--counterexamples",
        metavar="DIR",
        type=Path,
        help="write the counterexample of each failed test to this folder, for `paceline check --replay FILE`",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the story to the report, in the place of the traceback of the test, which only raises what was found."""
    report = yield
    violation = getattr(call.excinfo.value, "violation", None) if call.excinfo is not None else None
    if report.failed and violation is not None and call.excinfo is not None:
        report.longrepr = str(call.excinfo.value)
        report.sections.append(("counterexample", told(violation)))
        folder: Path | None = item.config.getoption("--counterexamples")
        if folder is not None:
            report.sections.append(("replay", f"paceline check --replay {saved(violation, folder)}"))
    return report


def told(violation: Violation) -> str:
    """Returns the story of a violation and its sequence diagram as text."""
    from paceline.checking.counterexamples import story
    from paceline.reports.check_answer import blocks_of_run
    from paceline.reports.text import as_text

    return as_text(blocks_of_run(story(violation)))


def saved(violation: Violation, folder: Path) -> Path:
    """Writes the file of a violation, and returns its path."""
    from paceline.checking.counterexamples import save

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{violation.case.method.name}-{violation.guarantee}.json"
    save(violation, path)
    return path
