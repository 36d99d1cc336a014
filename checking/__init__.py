"""The any-order interpreter: it has no clock, and a chooser selects the next move.

Read `anyorder` first, then `driver` (how a run goes on), `moves` (choosers), `check_guarantees` (checks of a run) and
`replay` (repeats a real run bit for bit). `hidden_state` enters programs again from their states. The functions
`replay.replay` and `hidden_state.hidden_state` stay in their modules, because a package cannot offer a name that is
also its submodule.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.checking.anyorder import AnyOrder
    from paceline.checking.check_guarantees import broken, conserved
    from paceline.checking.hidden_state import Reentered, run_in_parts
    from paceline.checking.moves import Adversary, Chooser, Move, Recorded, RoundRobin, Shuffled, drawn, first
    from paceline.checking.own_methods import check_own_methods
    from paceline.checking.replay import Recording, Replay, Replayed, ReplayError, replay_run
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "Adversary": "moves",
            "AnyOrder": "anyorder",
            "Chooser": "moves",
            "Move": "moves",
            "Recorded": "moves",
            "Recording": "replay",
            "Reentered": "hidden_state",
            "Replay": "replay",
            "ReplayError": "replay",
            "Replayed": "replay",
            "RoundRobin": "moves",
            "Shuffled": "moves",
            "broken": "check_guarantees",
            "check_own_methods": "own_methods",
            "conserved": "check_guarantees",
            "drawn": "moves",
            "first": "moves",
            "replay_run": "replay",
            "run_in_parts": "hidden_state",
        },
    )

__all__ = [
    "Adversary",
    "AnyOrder",
    "Chooser",
    "Move",
    "Recorded",
    "Recording",
    "Reentered",
    "Replay",
    "ReplayError",
    "Replayed",
    "RoundRobin",
    "Shuffled",
    "broken",
    "check_own_methods",
    "conserved",
    "drawn",
    "first",
    "replay_run",
    "run_in_parts",
]
