"""Selects stored runs by name, kind, age and figures."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.synonyms import meaning
from paceline.reports.stored_runs.find_runs import StoredRun

COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
CONDITION = re.compile(r"\s*(?P<path>[\w.]+)\s*(?P<sign><=|>=|!=|==|<|>|=)\s*(?P<value>\S.*?)\s*")
UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400, "week": 604800, "weeks": 604800}
AGE = re.compile(r"\s*(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a figure of the summary: its path, and the test of its value."""

    path: str
    sign: str
    value: float | str

    def holds(self, summary: Mapping[str, Any]) -> bool:
        """Returns whether a summary meets the condition; a missing figure meets none."""
        found = figure(summary, self.path)
        if found is None or isinstance(found, (Mapping, list)):
            return False
        if isinstance(self.value, float) != isinstance(found, (int, float)):
            return self.sign == "!="
        return COMPARED[self.sign](found, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions that all have to hold; an empty one always holds."""

    scenarios: Sequence[str] = ()
    algorithms: Sequence[str] = ()
    seeds: Sequence[int] = ()
    kind: str | None = None
    older_s: float | None = None
    conditions: Sequence[Condition] = ()

    def select(self, runs: Iterable[StoredRun], now: datetime | None = None) -> list[StoredRun]:
        """Returns the runs that meet all conditions.

        Args:
            runs: the runs.
            now: the time from which ages count; None: the present.
        """
        before = (datetime.now(UTC) if now is None else now) - timedelta(seconds=self.older_s or 0.0)
        return [run for run in runs if self._holds(run) and (self.older_s is None or run.written <= before)]

    def _holds(self, run: StoredRun) -> bool:
        return (
            (not self.scenarios or run.scenario in self.scenarios)
            and (not self.algorithms or any(_is_of(run, name) for name in self.algorithms))
            and (not self.seeds or run.seed in self.seeds)
            and self.kind in (None, run.kind)
            and all(one.holds(run.summary) for one in self.conditions)
        )


def _is_of(run: StoredRun, name: str) -> bool:
    """Whether a run has this label, or a method with this name, which may be an alias."""
    return name == run.algorithm or meaning(name).method == run.method


def figure(summary: Mapping[str, Any], path: str) -> Any:
    """Returns a figure of a summary; None if it is missing.

    Args:
        summary: the summary.
        path: the names of the figure, joined by dots.

    >>> figure({"step_s": {"mean": 0.5}}, "step_s.mean"), figure({"step_s": {"mean": 0.5}}, "step_s.p99")
    (0.5, None)
    """
    found: Any = summary
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def condition(text: str) -> Condition:
    """Returns the condition that a text such as ``step_s.mean<0.03`` states.

    Raises:
        InputError: the text is no condition.

    >>> condition("step_s.mean < 0.03")
    Condition(path='step_s.mean', sign='<', value=0.03)
    """
    found = CONDITION.fullmatch(text)
    if found is None:
        raise InputError(
            f"--where: found {text!r}; expected a figure of the summary, a sign and a value, such as 'step_s.mean<0.03'"
        )
    value: float | str = found["value"]
    try:
        value = float(value)
    except ValueError:
        if found["sign"] not in ("=", "==", "!="):
            raise InputError(
                f"--where: found {text!r}, which compares with {value!r}; expected a number after {found['sign']}"
            ) from None
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"--where: found {text!r}; expected a number that is not NaN")
    return Condition(found["path"], "=" if found["sign"] == "==" else found["sign"], value)


def seconds_of(text: str) -> float:
    """Returns the seconds of an age such as ``7 days``, ``12 h`` or ``30 min``.

    Raises:
        InputError: the text is no age.

    >>> seconds_of("7 days"), seconds_of("1.5h")
    (604800.0, 5400.0)
    """
    found = AGE.fullmatch(text)
    if found is None or found["unit"] not in UNITS_S:
        raise InputError(f"--older-than: found {text!r}; expected an age such as '7 days', '12 h' or '30 min'")
    return float(found["number"]) * UNITS_S[found["unit"]]
