"""Full file systems, for tests that are not root and cannot mount one."""

from __future__ import annotations

import errno
import os

import pytest


def fill_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every further allocation fail."""

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
