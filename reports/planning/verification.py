"""Trains the best plans for real, with the pace of their devices, and compares the times to the target.

With ``train.time_dilation`` of the scenario all steps take that many times as long, so that this machine holds the
pace; measured times are divided by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from paceline.backend.training.run import train
from paceline.records.figures import TIME_TO_TARGET, signed_percent
from paceline.records.pace import say_pace
from paceline.reports.planning.plan_answer import Candidate, PlanAnswer
from paceline.scenarios import load

LONGER = 1.5
"""a real run ends after this multiple of the samples that the slowest seed needs in the simulation; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A plan with its predicted and measured times."""

    candidate: Candidate
    measured_s: Sequence[float | None]
    """the time to the target with each seed, on the clock of the devices; None if it was not reached"""
    notes: Sequence[str] = ()
    """where the pace of the devices was not held"""

    @property
    def mean_s(self) -> float | None:
        """The mean measured time; None if a seed did not reach the target."""
        times_s = [time_s for time_s in self.measured_s if time_s is not None]
        return fmean(times_s) if times_s and len(times_s) == len(self.measured_s) else None

    @property
    def error(self) -> float | None:
        """The relative error of the prediction: predicted / measured − 1."""
        mean_s, predicted_s = self.mean_s, self.candidate.time_s
        return None if mean_s is None or predicted_s is None else predicted_s / mean_s - 1

    def document(self) -> dict[str, Any]:
        """Returns the plan for the JSON document."""
        return {
            "choice": self.candidate.choice.words,
            "predicted_s": self.candidate.time_s,
            "measured_s": self.mean_s,
            "error": self.error,
            "measured_by_seed_s": list(self.measured_s),
            "notes": list(self.notes),
        }


def verified(
    answer: PlanAnswer, folder: Path, *, progress: Callable[[str, float], None] | None = None
) -> list[Verified]:
    """Trains the best and the second-best plan with the reported seeds.

    Args:
        answer: the plan.
        folder: its folder.
        progress: called with what is running and the completed share of all runs.
    """
    chosen = [one for one in (answer.best, answer.second) if one is not None]
    aim = answer.request.target.aim
    found = []
    for place, one in enumerate(chosen):
        most = max(row["samples_to_target"] for row in one.rows)
        scenario = load(folder / one.path, [f"stop.samples={int(LONGER * most)}"])

        def report(now: str, done: float, place: int = place) -> None:
            if progress is not None:
                progress(now, (place + done) / len(chosen))

        runs = train(scenario, progress=report)
        by_seed = sorted(runs, key=lambda run: run.seed)
        times = [run.summary["time_to_accuracy_s" if aim == "accuracy" else "time_to_loss_s"] for run in by_seed]
        slower = scenario.train.time_dilation
        notes = [said for run in runs if "pace" in run.summary and (said := say_pace(run.summary["pace"], slower))]
        measured = [None if time_s is None else time_s / slower for time_s in times]
        found.append(Verified(candidate=one, measured_s=measured, notes=notes[:1]))
    return found


def verified_words(found: Sequence[Verified]) -> str:
    """Describes the measured times, their errors, and whether the order is the predicted one.

    Args:
        found: the verified plans, the best first.
    """
    lines = ["Trained for real, paced:"]
    for one in found:
        reached = sum(time is not None for time in one.measured_s)
        predicted_s = one.candidate.time_s
        if one.mean_s is None or one.error is None or predicted_s is None:
            lines.append(f"  {one.candidate.choice.words}: reached with {reached} of {len(one.measured_s)} seeds")
        else:
            lines.append(
                f"  {one.candidate.choice.words}: predicted {TIME_TO_TARGET.with_symbol(predicted_s)}, measured "
                f"{TIME_TO_TARGET.with_symbol(one.mean_s)} (error of the prediction {signed_percent(one.error)} %)"
            )
    lines += [f"  note: {text}" for text in dict.fromkeys(text for one in found for text in one.notes)]
    means = [one.mean_s for one in found]
    if len(found) == 2 and None not in means:
        kept = means[0] <= means[1]  # type: ignore[operator]
        lines.append(f"  The order is {'the predicted one' if kept else 'the opposite of the predicted one'}.")
    return "\n".join(lines)
