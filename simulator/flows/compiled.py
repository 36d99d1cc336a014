"""The network engine as machine code: the functions of `max_min`, compiled by numba from the same source.

Rules of this file: nothing is computed here. What is compiled is kept on disk beside its source, so that only the first
run on a machine waits for it, some seconds a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

from paceline.simulator.flows import indexed_heap, max_min

PARTS = (
    *(indexed_heap.put, indexed_heap.take, indexed_heap.least, indexed_heap.rise, indexed_heap.sink),
    *(max_min.enter, max_min.leave, max_min.change, max_min.free),
    *(
        max_min.account,
        max_min.solve,
        max_min.fill,
        max_min.survey,
        max_min.squeeze,
        max_min.stop,
        max_min.let_go,
        max_min.until,
    ),
    max_min.together,
)


class Code(NamedTuple):
    """Functions of `max_min`, on tables that are arrays of records."""

    enter_anew: Callable[..., Any]
    leave: Callable[..., Any]
    change: Callable[..., Any]
    solve: Callable[..., Any]
    play: Callable[..., Any]


AS_IT_STANDS = Code(max_min.enter_anew, max_min.leave, max_min.change, max_min.solve, max_min.play)
"""the same, on tables that are lists"""


@cache
def machine_code() -> Code:
    """Each function is compiled at its first call."""
    return Code._make(compiled(function, PARTS) for function in AS_IT_STANDS)


def compiled(function: Callable[..., Any], parts: Iterable[Callable[..., Any]]) -> Callable[..., Any]:
    """The function as machine code, with the parts that it calls; they may have been parts of others before."""
    import numba

    for part in parts:
        _inlined(part)
    # a call hands over all arrays, and everybody who has one counts that he has: neither is needed here, as nothing
    # is allocated, and together they would take most of the time
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    return cast(Callable[..., Any], numba.njit(**options)(function))


@cache
def _inlined(part: Callable[..., Any]) -> None:
    """Machine code that calls the part has it inside, known as such once in a process."""
    import numba.extending

    numba.extending.register_jitable(forceinline=True)(part)
