"""Explores every inequivalent order of a small job exactly once.

Read `exploration` first, then `events` (what an order is), `observed` (the interpreter), `races` (which other orders a
run shows to be possible), `wakeup` (which of them are new) and `sequences` (their number without reduction).
"""

from paceline.checking.exhaustive.exploration import Orders, explore
from paceline.checking.exhaustive.sequences import brute_force

__all__ = ["Orders", "brute_force", "explore"]
