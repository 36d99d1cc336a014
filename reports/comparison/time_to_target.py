"""The target of runs: the accuracy or the loss that times are measured to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paceline.records.figures import (
    TIME_TO_ACCURACY,
    TIME_TO_ACCURACY_RESOLUTION,
    TIME_TO_LOSS,
    TIME_TO_LOSS_RESOLUTION,
    Figure,
)
from paceline.reports.comparison.words import listed

FEW = 5
"""so many evaluations at least show when a target is reached: the start, the end and three between, of which a mean of
three is known; provenance: ours"""


@dataclass(frozen=True, slots=True)
class Aim:
    """A target.

    Args:
        kind: accuracy or loss.
        value: the accuracy, 0 … 1, or the loss.
        of: which problem has it, if that is a stand-in for the scenario's model; else "".

    >>> Aim("accuracy", 0.93, "digits-mlp on digits standing in for resnet50").words
    '93 % accuracy of digits-mlp on digits standing in for resnet50'
    >>> Aim("accuracy", 0.93).words, Aim("loss", 0.1).words, Aim("loss", 0.1).path
    ('93 % accuracy', 'a loss of 0.1', 'time_to_loss_s')
    """

    kind: Literal["accuracy", "loss"]
    value: float
    of: str = ""

    @property
    def words(self) -> str:
        said = f"{100 * self.value:g} % accuracy" if self.kind == "accuracy" else f"a loss of {self.value:g}"
        return f"{said} of {self.of}" if self.of and self.kind == "accuracy" else said + f" ({self.of})" * bool(self.of)

    @property
    def figure(self) -> Figure:
        """The time to the target."""
        return TIME_TO_ACCURACY if self.kind == "accuracy" else TIME_TO_LOSS

    @property
    def resolution(self) -> Figure:
        """The resolution of that time."""
        return TIME_TO_ACCURACY_RESOLUTION if self.kind == "accuracy" else TIME_TO_LOSS_RESOLUTION

    @property
    def path(self) -> str:
        """The key of the time to the target in a summary."""
        return self.figure.key


def aim_of(summary: Mapping[str, Any]) -> Aim | None:
    """Returns the target accuracy of a run, or the target loss if it has no accuracy; None without a target."""
    accuracy, loss = summary.get("target_accuracy"), summary.get("target_loss")
    of = summary.get("stand_in") or ""
    if accuracy is not None and (loss is None or summary.get("final_accuracy") is not None):
        return Aim("accuracy", accuracy, of)
    return None if loss is None else Aim("loss", loss, of)


def rarely_evaluated(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Describes which algorithms were evaluated too rarely to tell when they reach a target; "" if none.

    Args:
        rows: the name and the summary of each run; those that learn nothing, or that older versions stored,
            have no number.

    >>> rarely_evaluated([("sync-sgd", {"evaluations": 20}), ("diloco", {"evaluations": 3})])
    'diloco was evaluated only 3 times, so whether and when it reaches the target is uncertain; evaluate more often.'
    """
    few = [(name, int(count)) for name, row in rows if 0 < (count := row.get("evaluations") or 0) < FEW]
    if not few:
        return ""
    names, numbers = list(dict(few)), sorted({count for _, count in few})
    counts = " to ".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
    were, they = ("was", "it reaches") if len(names) == 1 else ("were", "they reach")
    return (
        f"{listed(names)} {were} evaluated only {counts} times, so whether and when {they} the target is uncertain; "
        "evaluate more often."
    )


def common_aim(summaries: Iterable[Mapping[str, Any]]) -> Aim | None:
    """Returns the target of runs if it is the same for all of them, else None.

    >>> common_aim([{"target_loss": 0.8}, {"target_loss": 0.8}]), common_aim([{"target_loss": 0.8}, {}])
    (Aim(kind='loss', value=0.8, of=''), None)
    """
    aims = {aim_of(summary) for summary in summaries}
    return aims.pop() if len(aims) == 1 else None
