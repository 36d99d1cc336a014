"""Explores every inequivalent order of a small job exactly once.

Read `exploration` first, then `events` (what an order is, and the interpreter) and `races` (which other orders a run
shows to be possible, and which of them are new).
"""

from paceline.checking.exhaustive.exploration import Orders, brute_force, explore

__all__ = ["Orders", "brute_force", "explore"]
