"""What the simulator does with SimPy's events beyond SimPy's public methods, all of it in this file.

Rules of this file:

* SimPy marks an event by private attributes: `_ok` and `_value` say that its outcome is settled, and `callbacks` is
  None once it has been processed. Nothing else in the simulator touches `_ok` and `_value` or sets `callbacks`.
* The public way, `event.succeed()`, puts the event into the queue at the present time. A large collective has hundreds
  of thousands of messages; an event that needs no place in the queue (`happen`), or whose time is known when it is made
  (`come`), spares each of them one or two entries there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

AFTERWARDS = EventPriority(2)
"""of what comes after all else at the same time; SimPy's own priorities are 0 and 1"""


def upon(event: simpy.Event, then: Callable[[simpy.Event], Any]) -> None:
    """Calls `then` with the event when it comes; it must be still to come."""
    assert event.callbacks is not None, "an event that has come calls back no more"
    event.callbacks.append(then)


def after(env: simpy.Environment, seconds: float, then: Callable[[simpy.Event], Any]) -> None:
    """Calls `then` after so many seconds, with the event that this is."""
    upon(env.timeout(seconds), then)


def afterwards(env: simpy.Environment, then: Callable[[], object]) -> None:
    """Calls `then` at this instant, after all else that happens at it."""
    event = simpy.Event(env)
    upon(event, lambda _: then())
    come(event, 0.0, AFTERWARDS)


def come(event: simpy.Event, seconds: float, priority: EventPriority = NORMAL) -> None:
    """Settles that the event comes after so many seconds; it needs no timer beside it."""
    event._ok, event._value = True, None
    event.env.schedule(event, priority, seconds)


def happen(event: simpy.Event) -> None:
    """The event comes at this very moment, before anything else that does, without a place in the queue."""
    event._ok, event._value = True, None
    callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]  # SimPy's mark of what has come
    for callback in callbacks:
        callback(event)
