"""Explains the predicted step time of every algorithm of a scenario.

Read this first, then `recording`, `details`, `rows` and `what_if`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.algorithms.core.job import Death
from paceline.records.faults import NAMED, needs
from paceline.reports.comparison.words import listed
from paceline.reports.explanation.formulas import seconds
from paceline.reports.explanation.recording import record, windows
from paceline.reports.explanation.rows import Row, breakdown
from paceline.reports.explanation.what_if import Effect, conclusion, effects, shorter
from paceline.scenarios import Scenario
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.short_runs import Length, length_of

Report = Callable[[str, float], None]
"""called with the name of the algorithm, and the fraction of all that is done, 0 … 1"""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The parts of the mean step time of one algorithm, and the effects of changes."""

    name: str
    step_s: float
    steps: int
    """evaluated steps of all workers together"""
    rows: list[Row]
    effects: list[Effect]
    notes: list[str]

    @property
    def conclusion(self) -> str:
        """A sentence that says what would shorten a step most."""
        return conclusion(self.name, self.step_s, self.effects, seconds)

    def record(self) -> dict[str, Any]:
        """Returns the entry in the JSON answer."""
        return {
            "name": self.name,
            "step_s": self.step_s,
            "steps": self.steps,
            "rows": [row.record() for row in self.rows],
            "what_if": [effect.record() for effect in self.effects],
            "conclusion": self.conclusion,
            "notes": self.notes,
        }


def explain(scenario: Scenario, *, steps: int | None = None, progress: Report | None = None) -> list[Explanation]:
    """Explains the predicted step time of every algorithm, with the first seed of the scenario.

    Args:
        scenario: the scenario; its `workload.learning` is ignored, because times do not depend on it.
        steps: the number of evaluated steps of each worker; None: chosen by the number of workers and the longest
            period of the method.
        progress: called with the algorithm and the fraction of all that is done.

    >>> from paceline import load
    >>> quick = load("quickstart", ["cluster.step_time.sigma=1e-6"], algorithms=["sync-sgd"])
    >>> (found,) = explain(quick, steps=4)
    >>> found.conclusion
    'Devices twice as fast or every device as fast as the fastest (each about the same) would shorten a step of \
sync-sgd from 40.1 ms to 20.1 ms (−50 %); nothing else by 0.5 % or more.'
    """
    plans = timing_only(scenario).plans()
    found = []
    for number, plan in enumerate(plans):

        def tick(done: float, number: int = number, name: str = plan.name) -> None:
            if progress is not None:
                progress(name, (number + done) / len(plans))

        found.append(_explained(plan, steps, tick))
    return found


def timing_only(scenario: Scenario) -> Scenario:
    """Returns the scenario with one seed and without learning; a model of the user's own keeps its learner."""
    workload = scenario.workload
    if ":" not in workload.model:
        workload = workload.model_copy(update={"learning": "none", "options": {}})
    return scenario.model_copy(update={"workload": workload, "seeds": 1, "extrapolate": None})


def _explained(plan: Plan, steps: int | None, progress: Callable[[float], None]) -> Explanation:
    length = length_of(plan, steps)
    run = record(plan, length)
    step_s, rows = breakdown(run)
    progress(0.1)
    fewer = shorter(run) if steps is None else length
    changed = effects(run, step_s, lambda done: progress(0.1 + 0.9 * done), fewer)
    notes = [*filter(None, [length.note, _note(plan.name, length, fewer)]), *run.trace.notes.get("warnings", ())]
    notes += _after_deaths(plan, length, step_s)
    steps_of_all = sum(window.steps for window in windows(run).values())
    return Explanation(plan.name, step_s, steps_of_all, rows, changed, notes)


def _note(name: str, length: Length, fewer: Length) -> str:
    """Returns a note if changes were evaluated over fewer steps than the step itself."""
    if fewer.steps == length.steps:
        return ""
    steps = "1 step" if fewer.steps == 1 else f"{fewer.steps} steps"
    return (
        f"{name}: changes were evaluated over {steps} of each worker, because its steps have very many operations; "
        f"--steps {length.steps} evaluates all {length.steps}"
    )


def _after_deaths(plan: Plan, length: Length, before_s: float) -> list[str]:
    """Returns a sentence about the workers that the scenario lets die, which the parts of a step do not contain."""
    if not (deaths := plan.job.deaths):
        return []
    ranks = list(dict.fromkeys(death.rank for death in deaths))
    named = listed([str(rank) for rank in ranks]) if len(ranks) <= NAMED else f"{len(ranks)} of {plan.job.workers}"
    dies = f"workers {named} die" if len(ranks) > 1 else f"worker {named} dies"
    begun = f"{plan.name}: the parts are those of a step with all workers, before {dies} (cluster.deaths)"
    after = record(plan, length, deaths=tuple(Death(rank, step=0) for rank in ranks))
    if after.trace.ended is not None:
        return [f"{begun}; {needs(plan.job)}, so the run then ends"]
    return [f"{begun}; with the others, a step takes {seconds(breakdown(after)[0])} (with all, {seconds(before_s)})"]
