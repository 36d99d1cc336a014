"""`check` and its result: the verdicts on each method, and the counterexamples of violated guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from paceline.algorithms import METHODS, reference
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.method import Method
from paceline.algorithms.registry import built
from paceline.checking.cases import Checked, Effort, Verdict, Violation, check_method, to_json
from paceline.checking.cases.checking_methods import Progress, check_all_orders
from paceline.checking.counterexamples import save, story, svg_diagram
from paceline.checking.defaults import (
    EVERY_ORDER_MOST,
    EVERY_ORDER_STEPS,
    EVERY_ORDER_WORKERS,
    FOLDER,
    SCHEDULES,
    SEED,
    STEPS,
    WORKERS,
)
from paceline.reports.check_answer import Told, answer_of_check, verdicts_chart
from paceline.reports.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from paceline.checking.counterexamples import Story
    from paceline.reports.blocks import Answer

ALL = "all"
Checkable = str | Method | type[Method]
"""a method: its name, ``path/to/file.py:Class``, its class, or an object with hyper-parameters"""


class CheckResult(Result, Sequence[Checked]):
    """What `paceline.check` returns: the verdicts of each method, in a sequence.

    >>> import paceline
    >>> found = paceline.check("sync-sgd", schedules=5)
    >>> found.holds, found[0].verdicts["synchronous"].verdict
    (True, 'holds')
    """

    def __init__(self, checked: Sequence[Checked], stories: Sequence[Told] | None = None) -> None:
        self._checked = tuple(checked)
        self._stories = stories

    @overload
    def __getitem__(self, index: int) -> Checked: ...

    @overload
    def __getitem__(self, index: slice) -> CheckResult: ...

    def __getitem__(self, index: int | slice) -> Checked | CheckResult:
        return CheckResult(self._checked[index]) if isinstance(index, slice) else self._checked[index]

    def __len__(self) -> int:
        return len(self._checked)

    @property
    def holds(self) -> bool:
        """Whether no guarantee of any method was violated."""
        return not self.violated

    @property
    def violated(self) -> list[tuple[str, Verdict]]:
        """The violated guarantees, each with the name of its method."""
        return [(result.method.name, verdict) for result in self for verdict in result.violated]

    def frame(self) -> pd.DataFrame:
        """Returns a row for each method and guarantee: the verdict, the schedules, the worst value and its bound."""
        import pandas as pd

        return pd.DataFrame(
            {
                "method": result.method.name,
                "guarantee": verdict.guarantee,
                "verdict": verdict.verdict,
                "schedules": verdict.schedules,
                "checked_s": verdict.seconds,
                "quantity": None if verdict.worst is None else verdict.worst.quantity,
                "worst": None if verdict.worst is None else verdict.worst.value,
                "bound": None if verdict.worst is None else verdict.worst.bound,
                "violation": None if verdict.violation is None else verdict.violation.words,
            }
            for result in self
            for verdict in result.verdicts.values()
        )

    def plot(self) -> Figure:
        """Draws the verdict on each guarantee of each method."""
        from paceline.reports.png import figure_of

        return figure_of([verdicts_chart(self._documents())])

    @property
    def stories(self) -> Sequence[Told]:
        """The story of each violation, in the order of `violated`; each case is run once more for it."""
        if self._stories is None:
            self._stories = [Told(story(_violation(verdict))) for _, verdict in self.violated]
        return self._stories

    def save(self, folder: str | Path = FOLDER) -> list[Path]:
        """Writes each counterexample as ``METHOD-GUARANTEE.json``, for ``check --replay``, and its diagram as .svg.

        Args:
            folder: the folder, which is created; earlier files of the same names are replaced.

        Returns:
            The JSON files.
        """
        paths = [Path(folder) / f"{method}-{verdict.guarantee}.json" for method, verdict in self.violated]
        self._stories = [
            Told(save_with_diagram(_violation(verdict), path), path)
            for (_, verdict), path in zip(self.violated, paths, strict=True)
        ]
        return paths

    def answer(self) -> Answer:
        """Returns the answer of the command: tables for each method, and the story of each violation."""
        return answer_of_check(self._documents(), self.stories, [checked.method.name for checked in self])

    def _documents(self) -> list[dict[str, Any]]:
        """Returns the JSON document of each method."""
        paths = iter([story.path for story in self._stories or ()])
        return [
            _document(checked, {verdict.guarantee: next(paths, None) for verdict in checked.violated})
            for checked in self
        ]

    @property
    def _report_name(self) -> str:
        return f"{self[0].method.name}-check.html" if len(self) == 1 else "check.html"


def _violation(verdict: Verdict) -> Violation:
    assert verdict.violation is not None, "that is what violated means"
    return verdict.violation


def save_with_diagram(violation: Violation, path: Path) -> Story:
    """Writes a counterexample, and its diagram beside it as .svg; runs its case once, and returns the story.

    Args:
        violation: the violated guarantee and its case.
        path: the JSON file, whose folder is created.
    """
    saved = save(violation, path)
    write_whole(path.with_suffix(".svg"), svg_diagram(saved))
    return saved


def _document(checked: Checked, files: Mapping[str, Path | None]) -> dict[str, Any]:
    """Returns the JSON document for one method."""
    return {
        "algorithm": reference(type(checked.method)),
        "schedules": checked.schedules,
        "seconds": checked.seconds,
        "guarantees": [
            {
                "name": verdict.guarantee,
                "description": verdict.words,
                "verdict": verdict.verdict,
                "schedules": verdict.schedules,
                "seconds": verdict.seconds,
                "worst": None if verdict.worst is None else asdict(verdict.worst),
                "words": None if verdict.violation is None else verdict.violation.words,
                "counterexample": None if (path := files.get(verdict.guarantee)) is None else str(path),
            }
            for verdict in checked.verdicts.values()
        ],
        "hyper_parameters": {
            name: [str(value) for value in values] for name, values in checked.hyper_parameters.items()
        },
        "measured_with": checked.measured_with,
        "not_checked": [{"name": name, "needs": needs} for name, needs in checked.not_checked.items()],
        "extremes": [{**asdict(measured), "case": to_json(case)} for measured, case in checked.extremes.values()],
        "explored": [asdict(explored) for explored in getattr(checked, "explored", ())],
    }


def check(
    methods: Checkable | Sequence[Checkable],
    *,
    schedules: int | None = None,
    seconds: float | None = None,
    workers: int | None = None,
    steps: int | None = None,
    seed: int = SEED,
    exhaustive: bool = False,
    deaths: bool = False,
    same_as: Checkable | None = None,
    out: str | Path | None = None,
    stage: Callable[[str], Progress | None] = lambda _: None,
    report: Callable[[str, Violation], Any] = lambda *_: None,
    done: Callable[[CheckResult], Any] = lambda _: None,
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
        out: the folder to which counterexamples are written as soon as a method is checked; None: `CheckResult.save`
            writes them.
        stage: called with the name of each method; returns what is called with what is done and the completed share.
        report: called with the name of the method and the first violation of each guarantee as soon as it is found.
        done: called with the result of each method as soon as it is checked.

    Returns:
        The verdicts.

    Raises:
        InputError: a method is not known or cannot be created; with all mistakes.

    >>> import paceline
    >>> paceline.check("agd", schedules=5).holds
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
    results: list[CheckResult] = []
    for method in methods_of(methods):
        progress = stage(method.name) or (lambda *_: None)
        say = partial(report, method.name)
        results.append(
            CheckResult(
                [
                    check_all_orders(method, effort, progress, say, deaths=deaths)
                    if exhaustive
                    else check_method(method, effort, progress, say)
                ]
            )
        )
        if out is not None:
            results[-1].save(out)
        done(results[-1])
    stories = None if out is None else [story for result in results for story in result.stories]
    return CheckResult([checked for result in results for checked in result], stories)


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
    every: list[Checkable] = [given for each in several for given in (METHODS if each == ALL else [each])]
    methods: list[Method] = []
    said: list[str] = [] if every else ["methods: found none, expected the name of a method, a class, or all"]
    for item in every:
        try:
            methods.append(_method(item))
        except InputError as error:
            said.append(str(error))
        except Exception as error:  # of any kind: the constructor of a user's method
            said.append(f"method {item!r} cannot be created with its defaults: {type(error).__name__}: {error}")
    if said:
        raise InputError("\n".join(said))
    return methods


def _method(given: object) -> Method:
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        return built(given)
    if isinstance(given, type) and issubclass(given, Method):
        return given()
    raise InputError(f"methods: found {given!r:.60}, expected a name, a class derived from Method, or a method")
