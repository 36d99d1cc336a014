"""A chooser that uses Hypothesis: random orders that shrink towards the simplest one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from paceline.checking.moves import Chooser, Move


def drawn(data: st.DataObject) -> Chooser:
    """Returns a chooser that draws each move from `data`; a failure shrinks to the order of `moves.first`."""

    def choose(ready: Sequence[Move]) -> Move:
        if len(ready) == 1:
            return ready[0]
        named = {repr(move): move for move in ready}  # drawn by name, so that a failure prints short names
        return named[data.draw(st.sampled_from(list(named)), label="move")]

    return choose
