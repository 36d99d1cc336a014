"""A plugin of pytest: Hypothesis stops at the first example that fails, and does not look for a smaller one.

A mutant need only be found. Looking for the smallest example took up to five minutes a test.
"""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """Changes the profile that the conftest has loaded, before tests are collected."""
    settings.register_profile("no-shrinking", settings(), phases=[Phase.explicit, Phase.reuse, Phase.generate])
    settings.load_profile("no-shrinking")
