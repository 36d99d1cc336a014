"""Finds what makes a result depend on more than its case: clocks, unseeded random numbers, and shared Python objects.

All ranks of a small run share one process, and so do the runs of a sweep; in a real run every rank has a process of its
own. So a method that keeps something in a class-level dictionary works here and fails there.

Rules of this file:

* Python's profiler reports every function that is called, under whatever name it was imported. Only calls from outside
  of the interpreters and of installed packages are reported: those are the method's own.
* Global generators of random numbers are found by their state, which a draw changes, whoever has drawn.
* What a method's classes, their modules and their functions hold is noted before the first run of the class.
* If a run changes nothing of it, the result cannot depend on it. If it does, the run is repeated in two ways: with
  objects of its own for every rank and from the start after every stop, as in processes of their own; and after
  another run, with what that has left. Both have to end with the same weights. A cache that only saves time passes.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from operator import is_
from pathlib import Path
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method, RankContext
from paceline.algorithms.core.program import ROOT, place
from paceline.algorithms.core.values import Rank
from paceline.checking.cases.case import Case
from paceline.checking.cases.observed import Observed
from paceline.checking.driver import LaneTask, StoppedRun
from paceline.records.figures import significant

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

    earlier: Any = sys.getprofile()
    collects = gc.isenabled()
    gc.disable()  # a callback of the collector, such as Hypothesis's, would read a clock in the middle of any program
    sys.setprofile(report)
    try:
        performed(case)
    finally:
        sys.setprofile(earlier if callable(earlier) else None)
        if hasattr(earlier, "enable"):  # cProfile's profiler is an object, which only itself can install again
            earlier.enable()
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
    states = {"random": repr(random.getstate()).encode(), "numpy.random": pickle.dumps(np.random.get_state())}  # noqa: NPY002
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return states


CONTAINERS = (dict, list, set, deque, bytearray)
PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))
UNCHANGING = frozenset({bool, int, str, bytes, type(None)})
NO_STATE = (type, ModuleType, Enum, classmethod, staticmethod, property, cached_property, TypeVar)
"""what has attributes and holds no results"""
ITSELF = "the method's "
"""begins the words for what a method keeps in itself"""
Key = tuple[int, str]
"""an owner of names, by its index, and a name in it"""
Note = tuple[Any, Any]
"""an object, and its content"""
Notes = dict[Key, Note]
Stateful = list[tuple[Key, Any, Note | None]]
"""objects by their places, each with its note if its content cannot change"""


@dataclass(frozen=True)
class Owner:
    """Something with names whose values outlive a run.

    Args:
        words: what it is, for a message.
        names: returns its names and values.
        put: sets a name; None: only what is in its objects can be restored.
        drop: removes a name.
    """

    words: str
    names: Callable[[], Mapping[str, Any]]
    put: Callable[[str, Any], None] | None = None
    drop: Callable[[str], None] | None = None

    def stateful(self, index: int) -> Stateful:
        """Returns the values that may hold state, with their contents if these cannot change."""
        return [
            ((index, name), value, (value, _content(value)) if _is_unchanging(value) else None)
            for name, value in self.names().items()
            if not name.startswith("__")
            and _holds_state(type(value))
            and not (self.put is None and isinstance(value, PLAIN))
        ]


class Outside:
    """What the given owners of names hold, as it was when this was created."""

    def __init__(self, owners: Sequence[Owner]) -> None:
        self._owners = owners
        self._seen: list[tuple[list[str], list[Any], Stateful]] = [([], [], []) for _ in owners]
        """of each owner its names and values at the last look, and those of them that may hold state"""
        self._first = self.noted()

    def beside(self, method: Method) -> Outside:
        """Returns the same with what a method holds itself, which has not been used before."""
        both = Outside([*self._owners, _of_object(ITSELF, method)])
        both._first |= self._first
        return both

    def noted(self) -> Notes:
        """Returns the present values and their contents, by their places."""
        notes: Notes = {}
        for index, owner in enumerate(self._owners):
            held, (names, values, stateful) = owner.names(), self._seen[index]
            if not held and not names:
                continue
            if len(held) != len(names) or not all(map(is_, held.values(), values)) or list(held) != names:
                stateful = owner.stateful(index)
                self._seen[index] = list(held), list(held.values()), stateful
            for key, value, known in stateful:
                notes[key] = (value, _content(value)) if known is None else known
        return notes

    def changed(self, now: Notes | None = None) -> list[str]:
        """Returns the words for the places whose values differ from the first ones.

        Args:
            now: the present values, if they have been noted.
        """
        first, now = self._first, self.noted() if now is None else now
        return [
            f"{self._owners[index].words}{name}"
            for index, name in dict.fromkeys([*first, *now])
            if (index, name) not in now or (index, name) not in first or now[index, name][1] != first[index, name][1]
        ]

    def restore(self, to: Notes | None = None, now: Notes | None = None) -> None:
        """Restores noted values, in the objects that held them.

        Args:
            to: the values to restore; None: the first ones.
            now: the present values, if they have been noted.
        """
        values, now = self._first if to is None else to, self.noted() if now is None else now
        for key, (value, content) in values.items():
            index, name = key
            held, present = now.get(key, (None, None))
            if key not in now or held is not value:
                if (put := self._owners[index].put) is not None:
                    put(name, value)
                present = _content(value)
            if present != content:
                _fill(value, content)
        for index, name in now.keys() - values.keys():
            if (drop := self._owners[index].drop) is not None:
                drop(name)


_HOLDS: dict[type, bool] = {}


def _holds_state(kind: type) -> bool:
    """Whether objects of this class may hold results of a run; kept, because every value of a module is asked for."""
    if kind not in _HOLDS:
        names = {name for base in kind.__mro__ for name in vars(base)}
        simple = "__dict__" in names and "__call__" not in names and not issubclass(kind, NO_STATE)
        _HOLDS[kind] = (
            issubclass(kind, (*CONTAINERS, *PLAIN))
            or "__array__" in names
            or (simple and not dataclasses.is_dataclass(kind))
        )
    return _HOLDS[kind]


@dataclass(frozen=True)
class _Copied:
    """The content of an object that cannot be pickled: a copy, compared by its text; None if it cannot be copied."""

    text: str
    value: Any = dataclasses.field(compare=False)

    @staticmethod
    def of(value: Any) -> _Copied:
        try:
            return _Copied(repr(value), copy.deepcopy(value))
        except Exception:  # of any kind: such an object is left alone
            return _Copied(repr(value), None)


@dataclass(frozen=True, eq=False)
class _Parts:
    """The content of a container whose parts cannot change: a copy of it."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Parts):
            return False
        own, parts = _parts(self.value), _parts(other.value)
        if len(own) == len(parts) and all(map(is_, own, parts)):
            return True
        return _picture(self.value) == _picture(other.value)


def _content(value: Any) -> Any:
    """Returns what is in an object, to be compared and restored; the object itself if it cannot change."""
    if type(value) in UNCHANGING:
        return value
    if type(value) in CONTAINERS and all(map(_is_unchanging, _parts(value))):
        return _Parts(copy.copy(value))
    return _picture(value)


def _picture(value: Any) -> bytes | _Copied:
    try:
        return pickle.dumps(value)
    except Exception:  # of any kind
        return _Copied.of(value)


def _is_unchanging(value: Any) -> bool:
    """Whether neither an object nor anything in it can change."""
    if type(value) in (tuple, frozenset):
        return all(map(_is_unchanging, value))
    return type(value) in UNCHANGING or isinstance(value, float | Enum | FunctionType | type)


def _parts(value: Any) -> tuple[Any, ...]:
    """Returns what is in a container."""
    return (*value, *value.values()) if isinstance(value, dict) else tuple(value)


def _fill(value: Any, content: Any) -> None:
    """Gives an object the content that was noted; an immutable one, or one that cannot be copied, stays."""
    if isinstance(value, PLAIN):
        return
    fresh = copy.deepcopy(content.value) if isinstance(content, _Copied | _Parts) else pickle.loads(content)
    if fresh is None:
        return
    if isinstance(value, dict | set):
        value.clear()
        value.update(fresh)
    elif isinstance(value, list | bytearray):
        value[:] = fresh
    elif isinstance(value, deque):
        value.clear()
        value.extend(fresh)
    elif hasattr(value, "__array__"):
        value[...] = fresh
    elif hasattr(value, "__dict__"):
        vars(value).clear()
        vars(value).update(vars(fresh))


def _owners(kind: type[Method]) -> Iterator[Owner]:
    """Yields the classes of a method, their modules, and all functions in these."""
    modules = {name: module for name in (base.__module__ for base in kind.__mro__) if (module := sys.modules.get(name))}
    own = {name: module for name, module in modules.items() if name not in ("abc", "builtins")}
    classes = [*kind.__mro__, *(value for module in own.values() for value in vars(module).values())]
    functions: dict[int, FunctionType] = {}
    for owner in dict.fromkeys(value for value in classes if isinstance(value, type) and value.__module__ in own):
        yield Owner(f"{owner.__name__}.", partial(vars, owner), partial(setattr, owner), partial(delattr, owner))
        functions |= {
            id(function): function for function in map(_function, vars(owner).values()) if function is not None
        }
    for name, module in own.items():
        yield Owner(f"{name}.", partial(vars, module), partial(setattr, module), partial(delattr, module))
        functions |= {
            id(function): function
            for function in map(_function, vars(module).values())
            if function and function.__module__ == name
        }
    for function in functions.values():
        yield _of_object(f"{function.__qualname__}.", function)
        defaults, cells = _defaults(function), function.__closure__ or ()
        if cells or not all(isinstance(default, PLAIN) for default in defaults.values()):
            closure = dict(zip(function.__code__.co_freevars, cells, strict=True))
            yield Owner(f"a default of {function.__qualname__}: ", partial(_kept, defaults, closure))


def _of_object(words: str, owner: Any) -> Owner:
    return Owner(words, partial(vars, owner), vars(owner).__setitem__, lambda name: vars(owner).pop(name, None))


def _function(value: Any) -> FunctionType | None:
    """Returns the Python function behind a method, a property or a decorated program."""
    value = getattr(value, "__func__", getattr(value, "fget", value))
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value if isinstance(value, FunctionType) else None


def _defaults(function: FunctionType) -> dict[str, Any]:
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    return dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)) | (
        function.__kwdefaults__ or {}
    )


def _kept(defaults: dict[str, Any], closure: dict[str, CellType]) -> dict[str, Any]:
    """Returns the defaults of a function's arguments, and the objects in its closure."""
    return defaults | {name: _in_cell(cell) for name, cell in closure.items()} if closure else defaults


def _in_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


_OUTSIDE: dict[type[Method], Outside] = {}


def outside_of(kind: type[Method]) -> Outside:
    """Returns what a class of methods holds outside of its programs, as it was before its first run here."""
    if kind not in _OUTSIDE:
        _OUTSIDE[kind] = Outside(list(_owners(kind)))
    return _OUTSIDE[kind]


def _unused(method: Method) -> Method:
    """Returns a copy of a method without what runs have kept in it."""
    fresh, fields = copy.copy(method), {field.name for field in dataclasses.fields(method)}
    for name in vars(fresh).keys() - fields:
        del vars(fresh)[name]
    return fresh


def _own(method: Method, places: Iterable[str]) -> list[str]:
    """Leaves out what classes of this package keep in a method, such as charges, if there is anything else."""
    ours = {name for kind in type(method).__mro__ if kind.__module__.startswith("paceline.") for name in vars(kind)}
    return [place for place in places if place.removeprefix(ITSELF) not in ours] or list(places)


class OwnProcesses(Observed):
    """One run of one job in which every rank has its own copies of what is outside of its program."""

    def __init__(
        self,
        job: Job,
        deaths: Sequence[tuple[int, int]],
        start: StoppedRun | None,
        outside: Outside,
        places: dict[str, None],
    ) -> None:
        super().__init__(job, deaths, start)
        self._outside, self._places = outside, places
        self._own: dict[Rank, Notes] = {}
        self._now: Rank | None = None

    def _become(self, rank: Rank) -> None:
        if rank == self._now:
            return
        now = self._outside.noted()
        if self._now is not None:
            self._own[self._now] = now
            self._places.update(dict.fromkeys(self._outside.changed(now)))
        self._outside.restore(self._own.get(rank), now)
        self._now = rank

    def _enter(self, me: RankContext, vector: Any) -> None:
        self._become(me.rank)
        super()._enter(me, vector)

    def _advance(self, task: LaneTask, answer: Any = None, failure: BaseException | None = None) -> None:
        self._become(task.me.rank)
        super()._advance(task, answer, failure)


def dependence_on_shared_state(case: Case) -> Iterator[str]:
    """Yields a sentence if the result of a case depends on what ranks, or runs, share outside of their programs.

    >>> from paceline.algorithms import find
    >>> list(dependence_on_shared_state(Case(method=find("ssp")(), nodes=(1, 1), steps=2)))
    []
    """
    from paceline.checking.cases.performing import performed, unlike

    if case.times is not None or case.deaths or not case.gradients:
        return
    case = dataclasses.replace(case, method=_unused(case.method))
    outside, places = outside_of(type(case.method)).beside(case.method), dict[str, None]()
    outside.restore()
    apart = performed(case, kind=partial(OwnProcesses, outside=outside, places=places))
    outside.restore()
    places.update(dict.fromkeys(outside.changed()))
    performed(dataclasses.replace(case, seed=case.seed + 1))
    if not places and not (places := dict.fromkeys(outside.changed())):
        return
    together = performed(case)
    outside.restore()
    named = ", ".join(_own(case.method, places))
    if repr(apart.error) != repr(together.error):
        error = apart.error if together.error is None else together.error
        yield f"the result depends on {named}, which ranks and runs share in one process: {error!r:.200}"
    elif (away := unlike(apart, together)) is not None:
        yield (
            f"the result depends on {named}, which ranks and runs share in one process: the weights differ by "
            f"{significant(away)} if each rank has its own, as in a real run"
        )
