"""Several checks in one test, where each alone would cost more than it checks: all are run, and each is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def check_all(checks: Mapping[str, Callable[[], object]]) -> None:
    """Runs every check, also after one has failed.

    Args:
        checks: by name; each raises if it fails.

    Raises:
        ExceptionGroup: of all failures; its message has the names of the checks that failed.
    """
    failures: dict[str, Exception] = {}
    for name, check in checks.items():
        try:
            check()
        except Exception as error:
            error.add_note(f"this was the check: {name}")
            failures[name] = error
    if failures:
        raise ExceptionGroup(f"failed: {', '.join(failures)}", list(failures.values()))
