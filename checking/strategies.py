"""Hypothesis as the chooser: random orders that shrink towards the simplest one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from paceline.checking.moves import Chooser, Move


def drawn(data: st.DataObject) -> Chooser:
    """A chooser that draws each move from `data`; a failure shrinks to the order of `moves.first`."""

    def choose(ready: Sequence[Move]) -> Move:
        return ready[0] if len(ready) == 1 else data.draw(st.sampled_from(ready), label="move")

    return choose
