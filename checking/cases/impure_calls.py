"""Finds what makes a program's result depend on more than its case: clocks, and random numbers without a seed.

Rules of this file:

* Python's profiler reports every function that is called, under whatever name it was imported. Only calls from outside
  of the interpreters and of installed packages are reported: those are the method's own.
* Global generators of random numbers are found by their state, which a draw changes, whoever has drawn.
"""

from __future__ import annotations

import gc
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from paceline.algorithms.core.program import ROOT, place
from paceline.checking.cases.case import Case

CLOCKS = frozenset(
    {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
        "process_time_ns",
        "thread_time",
        "sleep",
        "localtime",
        "gmtime",
    }
)
"""functions of the module `time`"""
DATES = frozenset({"now", "utcnow", "today"})
"""methods of the classes of `datetime`"""
ENTROPY = frozenset({"urandom", "getrandom"})
"""functions of the operating system, from which a generator without a seed gets one"""
INTERPRETERS = tuple(str(ROOT / name) for name in ("checking", "simulator", "records"))
INSTALLED = tuple({str(Path(sysconfig.get_paths()[name]).resolve()) for name in ("stdlib", "platstdlib", "purelib")})


def impure_calls(case: Case) -> Iterator[str]:
    """Yields a sentence for each clock and each source of random numbers that the programs of a case use.

    >>> from paceline.algorithms import find
    >>> list(impure_calls(Case(method=find("gossip")(), nodes=(1, 1), steps=2)))  # its generator has a seed
    []
    """
    from paceline.checking.cases.performing import performed

    before, calls = _states(), dict[str, str]()

    def report(frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and (words := _impure(what)) is not None and (where := own_line(frame)) is not None:
            calls.setdefault(f"{where}: {words}", where)

    earlier, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # a callback of the collector, such as Hypothesis's, would read a clock in the middle of any program
    sys.setprofile(report)
    try:
        performed(case)
    finally:
        sys.setprofile(earlier)
        if collects:
            gc.enable()
    yield from calls
    yield from (
        f"a program draws from the global generator of {name}; use np.random.default_rng with a seed that is a "
        "hyper-parameter, the rank and the step"
        for name, state in _states().items()
        if name in before and state != before[name]
    )


def _impure(called: Any) -> str | None:
    """Describes a built-in function that depends on the time or on the operating system's randomness."""
    name, module = getattr(called, "__name__", ""), getattr(called, "__module__", None)
    if module == "time" and name in CLOCKS:
        return f"calls time.{name}; use the operation Now, whose answer is part of the record of a run"
    owner = getattr(called, "__self__", None)
    if name in DATES and getattr(owner, "__module__", None) == "datetime":
        return f"calls datetime.{name}; use the operation Now, whose answer is part of the record of a run"
    if module in ("posix", "nt") and name in ENTROPY:
        return "creates a generator of random numbers without a seed"
    return None


def own_line(frame: FrameType | None) -> str | None:
    """Returns the innermost line of the method's own code; None if the interpreter itself called."""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith("<"):
            path = str(Path(name).resolve())
            if path.startswith(INTERPRETERS):
                return None
            if not path.startswith(INSTALLED):
                return place(name, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def _states() -> dict[str, bytes]:
    """Returns the states of the global generators."""
    states = {"random": repr(random.getstate()).encode(), "numpy.random": repr(np.random.get_state()).encode()}  # noqa: NPY002
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return states
