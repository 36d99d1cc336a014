"""Why a run is not compiled: it is simulated event by event instead."""

from __future__ import annotations


class NotCompiled(Exception):
    """A run cannot be compiled; the text completes the sentence "not compiled, because …"."""
