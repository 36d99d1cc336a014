"""Programs: generators that yield operations, and `Lane`, with which interpreters run them.

A program is a generator function decorated with `@program`. Calling it creates a `Routine`, which has no effect until
it is run: by another program with ``yield from``, by `Start`, or by an interpreter with a `Lane`. A routine that is
never run is reported by mypy (``unused-awaitable``) and, at run time, by a warning.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

from paceline.algorithms.core.errors import ProgramError
from paceline.algorithms.core.operations import Op

P = ParamSpec("P")
R = TypeVar("R")
Program = Generator[Op[Any], Any, R]
ROOT = Path(__file__).resolve().parents[2]


class Routine(Generic[R]):
    """A program bound to its arguments; run it with ``yield from`` or `Start`."""

    __slots__ = ("_driven", "_steps", "name")

    def __init__(self, name: str, steps: Program[R]) -> None:
        self.name, self._steps, self._driven = name, steps, False

    def __iter__(self) -> Program[R]:
        self._driven = True
        return self._steps

    __await__ = __iter__

    def watched(self, watch: Callable[[Program[R]], Program[R]]) -> None:
        """Replaces the generator of a routine that has not begun by a wrapper of it, such as one that records it."""
        self._steps = watch(self._steps)

    def __del__(self) -> None:
        if not self._driven:
            warnings.warn(
                f"{self.name}() was built but never run; did you forget `yield from`?", RuntimeWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"<program {self.name}>"


def program(make: Callable[P, Program[R]]) -> Callable[P, Routine[R]]:
    """Decorates a generator function: calls return a `Routine`.

    >>> from paceline.algorithms.core.operations import Now
    >>> @program
    ... def clock():
    ...     return (yield from Now())
    >>> lane = Lane(clock())
    >>> lane.advance()
    Now()
    >>> lane.advance(1.5), lane.done, lane.answer
    (None, True, 1.5)
    """

    @functools.wraps(make)
    def build(*args: P.args, **kwargs: P.kwargs) -> Routine[R]:
        return Routine(make.__name__, make(*args, **kwargs))

    return build


class Branches:
    """Names what the lanes of a rank start. The names are the same in every interpreter, regardless of timing.

    The main program is "", `a/2` is the second sub-program that lane `a` starts, `a.3` its third single operation.

    >>> from paceline.algorithms.core.operations import Now
    >>> branches = Branches()
    >>> branches.name("", Now()), branches.name("", Now()), branches.name("/1", Now())
    ('.1', '.2', '/1.1')
    """

    def __init__(self) -> None:
        self._started: Counter[str] = Counter()

    def name(self, starter: str, what: Op[Any] | Routine[Any]) -> str:
        """Returns the name of the operation or program that the lane `starter` starts now."""
        stem = f"{starter}{'/' if isinstance(what, Routine) else '.'}"
        self._started[stem] += 1
        return f"{stem}{self._started[stem]}"


class Lane:
    """Runs one routine, one operation at a time, and reports its current line."""

    def __init__(self, routine: Routine[Any]) -> None:
        self.name = routine.name
        self.steps = iter(routine)
        self.done = False
        self.answer: Any = None

    def advance(self, answer: Any = None, failure: BaseException | None = None) -> Op[Any] | None:
        """Sends the last answer or throws the failure; returns the next operation, or None at the end."""
        try:
            asked = self.steps.send(answer) if failure is None else self.steps.throw(failure)
        except StopIteration as stop:
            self.done, self.answer = True, stop.value
            return None
        if not isinstance(asked, Op):
            raise ProgramError(
                f"{self.where()}: yielded {asked!r}, which is no operation; hand operations over with `yield from`"
            )
        return asked

    def where(self) -> str:
        """Returns the innermost line of the method's own programs, as ``file:line in function``."""
        frame = innermost(self.steps)
        if frame is None:
            return f"{self.name} (ended)"
        return place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


@functools.cache  # called for every collective, and resolving the path takes most of the time
def place(filename: str, line: int, function: str) -> str:
    """Formats a line of a source file for messages, relative to the root of the repository if the file is inside it."""
    path = Path(filename).resolve()
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line} in {function}"


@functools.cache  # called for every collective
def _is_helper(filename: str) -> bool:
    """Tells whether a source file is one of this package."""
    return Path(filename).parent == Path(__file__).parent


def innermost(steps: Any) -> FrameType | None:
    """Returns the innermost frame of nested generators that belongs to a method.

    `Op.__iter__` and the helpers of this package, such as `average_gradient`, do not: a message names the line that
    called them. A helper that was itself started as a program is named.
    """
    innermost_frame: FrameType | None = None
    while steps is not None and (frame := getattr(steps, "gi_frame", None)) is not None:
        code = frame.f_code
        if code is not Op.__iter__.__code__ and (innermost_frame is None or not _is_helper(code.co_filename)):
            innermost_frame = frame
        steps = steps.gi_yieldfrom
    return innermost_frame
