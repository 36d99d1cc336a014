"""`check`: searches for schedules under which methods break their guarantees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.algorithms import METHODS
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import Method
from paceline.algorithms.registry import built
from paceline.checking.cases import Effort, Violation, check_method
from paceline.checking.cases.all_orders import check_all_orders
from paceline.checking.defaults import (
    EVERY_ORDER_MOST,
    EVERY_ORDER_STEPS,
    EVERY_ORDER_WORKERS,
    SCHEDULES,
    STEPS,
    WORKERS,
)
from paceline.reports.results.check_result import CheckResult

ALL = "all"
Checkable = str | Method | type[Method]
"""a method: its name, ``path/to/file.py:Class``, its class, or an object with hyper-parameters"""


def check(
    methods: Checkable | Sequence[Checkable],
    *,
    schedules: int | None = None,
    seconds: float | None = None,
    workers: int | None = None,
    steps: int | None = None,
    seed: int = 1,
    exhaustive: bool = False,
    deaths: bool = False,
    same_as: Checkable | None = None,
    progress: Callable[[str, float], Any] = lambda *_: None,
    report: Callable[[Violation], Any] = lambda _: None,
) -> CheckResult:
    """Searches for schedules under which methods break a guarantee.

    Args:
        methods: one method or several: names, classes, or methods with their hyper-parameters; ``"all"``: all built-in
            ones.
        schedules: schedules to try for each method; default: 1000, or 100000 for each number of workers if exhaustive.
        seconds: time limit for each method, in seconds; None: none.
        workers: largest number of workers; default: 4, or 2 if exhaustive.
        steps: steps of a worker, at most; default: 6, or exactly 2 if exhaustive.
        seed: of the random schedules.
        exhaustive: whether every inequivalent order of a small cluster is tried instead of random schedules.
        deaths: if exhaustive: whether in each order a worker also dies at each of its operations.
        same_as: a method that is to end with the same weights; one that is not deterministic is compared with one
            worker only. None: none.
        progress: called with what is done and the completed share of one method.
        report: called with the first violation of each guarantee as soon as it is found.

    Returns:
        The verdicts; `CheckResult.save` writes the counterexamples.

    Raises:
        InputError: a method is not known or cannot be created; with all mistakes.

    >>> import paceline
    >>> paceline.check("agd", schedules=20).holds
    True
    """
    if deaths and not exhaustive:
        raise InputError("deaths: found it without exhaustive; random schedules contain deaths without this argument")
    effort = Effort(
        schedules=schedules or (EVERY_ORDER_MOST if exhaustive else SCHEDULES),
        seconds=seconds,
        workers=workers or (EVERY_ORDER_WORKERS if exhaustive else WORKERS),
        steps=steps or (EVERY_ORDER_STEPS if exhaustive else STEPS),
        seed=seed,
        same_as=None if same_as is None else methods_of(same_as)[0],
    )
    found = [
        check_all_orders(method, effort, progress, report, deaths=deaths)
        if exhaustive
        else check_method(method, effort, progress, report)
        for method in methods_of(methods)
    ]
    return CheckResult(found)


def methods_of(given: Checkable | Sequence[Checkable]) -> list[Method]:
    """Returns methods with their hyper-parameters; those given by name or class have the defaults.

    Args:
        given: one method or several.

    Raises:
        InputError: with all mistakes.

    >>> [method.name for method in methods_of(["agd", METHODS["ssp"]])]
    ['agd', 'ssp']
    """
    several = [given] if isinstance(given, str | Method | type) else list(given)
    every: list[Checkable] = [one for each in several for one in (METHODS if each == ALL else [each])]
    found: list[Method] = []
    said: list[str] = [] if every else ["methods: found none, expected the name of a method, a class, or all"]
    for one in every:
        try:
            found.append(_method(one))
        except InputError as error:
            said.append(str(error))
        except Exception as error:  # of any kind: the constructor of a user's method
            said.append(f"method {one!r} cannot be created with its defaults: {type(error).__name__}: {error}")
    if said:
        raise InputError("\n".join(said))
    return found


def _method(one: object) -> Method:
    if isinstance(one, Method):
        return one
    if isinstance(one, str):
        return built(one)
    if isinstance(one, type) and issubclass(one, Method):
        return one()
    raise InputError(f"methods: found {one!r:.60}, expected a name, a class derived from Method, or a method")
