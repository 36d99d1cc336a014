"""Compiles the functions of `max_min` to machine code with numba.

numba caches the compiled code on disk, beside its source. So only the first run on a machine waits for the compiler,
some seconds per function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

from paceline.simulator.flows import indexed_heap, max_min

PARTS = (
    *(indexed_heap.put, indexed_heap.take, indexed_heap.least, indexed_heap.sift_up, indexed_heap.sift_down),
    *(max_min.enter, max_min.leave, max_min.change, max_min.free),
    *(
        max_min.account,
        max_min.solve,
        max_min.fill,
        max_min.recount,
        max_min.free_fastest,
        max_min.freeze,
        max_min.release_held,
        max_min.until,
    ),
    max_min.together,
)


class Code(NamedTuple):
    """The functions of `max_min` that a driver calls, as plain Python or compiled."""

    enter_anew: Callable[..., Any]
    leave: Callable[..., Any]
    change: Callable[..., Any]
    solve: Callable[..., Any]
    play: Callable[..., Any]


PLAIN_PYTHON = Code(max_min.enter_anew, max_min.leave, max_min.change, max_min.solve, max_min.play)
"""for tables that are lists; the compiled functions need tables that are arrays of records"""


@cache
def machine_code() -> Code:
    """Returns the compiled functions; numba compiles each one at its first call."""
    return Code._make(compiled(function, PARTS) for function in PLAIN_PYTHON)


def compiled(function: Callable[..., Any], parts: Iterable[Callable[..., Any]]) -> Callable[..., Any]:
    """Returns a function that numba compiles at its first call.

    Args:
        function: the function to compile.
        parts: all functions that it calls, directly or indirectly. They are inlined, and may be shared with others.
    """
    import numba

    for part in parts:
        _inlined(part)
    # each call of a part would pass all arrays and count references to them, which together would take most of the
    # time. So parts are inlined, and `_nrt` is off: references need not be counted, because nothing is allocated
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    return cast(Callable[..., Any], numba.njit(**options)(function))


@cache
def _inlined(part: Callable[..., Any]) -> None:
    """Registers a function, once per process, as one that numba inlines into compiled callers."""
    import numba.extending

    numba.extending.register_jitable(forceinline=True)(part)
