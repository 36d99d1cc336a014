"""The only module that uses private attributes of SimPy's events.

* SimPy stores the state of an event in private attributes: `_ok` and `_value` hold its outcome once it is triggered,
  and `callbacks` is None once it has been processed. No other module of the simulator uses `_ok` and `_value` or sets
  `callbacks`, except for the loop of `clock`.
* The public method, `event.succeed()`, puts the event into the queue at the present time. A large collective has
  hundreds of thousands of messages. Processing an event without the queue (`happen`), or scheduling it directly for a
  known time (`come`), saves one or two queue entries per message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

AFTERWARDS = EventPriority(2)
"""priority of callbacks that run after all other events of the same time; SimPy's own priorities are 0 and 1"""


def upon(event: simpy.Event, then: Callable[[simpy.Event], Any]) -> None:
    """Calls `then` with the event when it is processed; it must not have been processed before."""
    assert event.callbacks is not None, "an event that has been processed calls back no more"
    event.callbacks.append(then)


def after(env: simpy.Environment, seconds: float, then: Callable[[simpy.Event], Any]) -> None:
    """Calls `then` after a delay, with the event of the timeout.

    Args:
        env: the clock.
        seconds: the delay.
        then: the callback.
    """
    upon(env.timeout(seconds), then)


def afterwards(env: simpy.Environment, then: Callable[[], object]) -> None:
    """Calls `then` at the present time, after all other events of this time."""
    event = simpy.Event(env)
    upon(event, lambda _: then())
    come(event, 0.0, AFTERWARDS)


def come(event: simpy.Event, seconds: float, priority: EventPriority = NORMAL) -> None:
    """Triggers an event after a delay, without a separate timeout.

    Args:
        event: the event, which has not been triggered.
        seconds: the delay.
        priority: its order among the events of the same time.
    """
    event._ok, event._value = True, None
    event.env.schedule(event, priority, seconds)


def happen(event: simpy.Event) -> None:
    """Triggers and processes an event immediately, without the queue."""
    event._ok, event._value = True, None
    callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]  # SimPy's mark of a processed event
    for callback in callbacks:
        callback(event)


class EagerProcess(simpy.Process):
    """A process that begins at once, and whose end is an event only if something waits for it.

    A SimPy process takes two entries of the queue besides its own events: one before it begins, and one at its end.
    Without them, a run of `layerwise-sgd`, which starts an operation for each layer, has 43,279 events instead of
    71,437 (64 workers, two steps each). A failure of the generator is raised immediately, by the loop of the run.

    Args:
        env: the clock.
        generator: the steps of the process.
        target: the event for which the generator already waits; None if it has not begun.
    """

    def __init__(
        self, env: simpy.Environment, generator: Generator[simpy.Event, Any, Any], target: simpy.Event | None = None
    ) -> None:
        self.env, self.callbacks, self._generator = env, [], generator
        if target is None or target.callbacks is None:
            self._resume(target or _begun(env))
        else:
            target.callbacks.append(self._resume)
            self._target = target

    def _resume(self, event: simpy.Event) -> None:
        """Continues the generator; SimPy calls it with the event, or with that of an interrupt."""
        try:
            while True:
                event = self._generator.send(event._value) if event._ok else self._generator.throw(event._value)
                if event.callbacks is not None:
                    event.callbacks.append(self._resume)
                    self._target = event
                    return
        except StopIteration as end:
            self._ok, self._value = True, end.value
        if self.callbacks:
            self.env.schedule(self)
        else:
            self.callbacks = None  # type: ignore[assignment]  # processed


def _begun(env: simpy.Environment) -> simpy.Event:
    """Returns an event without a value that has been processed."""
    event = simpy.Event(env)
    happen(event)
    return event


def raise_unheard(event: simpy.Event) -> None:
    """Raises the failure of an event that no process has received, as SimPy's `step` does."""
    if not hasattr(event, "_defused"):
        failure: BaseException = event._value
        raise failure
