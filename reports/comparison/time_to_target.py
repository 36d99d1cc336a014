"""The target of runs: the accuracy or the loss that times are measured to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paceline.records import Run


@dataclass(frozen=True, slots=True)
class Aim:
    """A target.

    >>> Aim("accuracy", 0.93).words, Aim("loss", 0.1).words, Aim("loss", 0.1).path
    ('93 % accuracy', 'a loss of 0.1', 'time_to_loss_s')
    >>> Aim("accuracy", 0.93, "digits-mlp standing in for resnet50").words
    '93 % accuracy of digits-mlp standing in for resnet50'
    """

    kind: Literal["accuracy", "loss"]
    value: float
    learner: str = ""
    """what learned, if it is not the model whose time is simulated"""

    @property
    def words(self) -> str:
        figure = f"{100 * self.value:g} % accuracy" if self.kind == "accuracy" else f"a loss of {self.value:g}"
        return f"{figure} of {self.learner}" if self.learner else figure

    @property
    def path(self) -> str:
        """The key of the time to the target in a summary."""
        return f"time_to_{self.kind}_s"

    @property
    def resolution(self) -> str:
        """The key of the resolution of that time."""
        return f"time_to_{self.kind}_resolution_s"


def aim_of(summary: Mapping[str, Any], learner: str = "") -> Aim | None:
    """Returns the target accuracy of a run, or the target loss if it has no accuracy; None without a target.

    Args:
        summary: of the run.
        learner: what learned, if it was not the model whose time is simulated, as `stand_in_of` returns it.
    """
    accuracy, loss = summary.get("target_accuracy"), summary.get("target_loss")
    if accuracy is not None and (loss is None or summary.get("final_accuracy") is not None):
        return Aim("accuracy", accuracy, learner)
    return None if loss is None else Aim("loss", loss, learner)


def aim_of_run(run: Run) -> Aim | None:
    """Returns the target of a run, which says if a small problem stood in for the model."""
    return aim_of(run.summary, stand_in_of(run.scenario.get("workload", {}), run.machine.get("warnings", ())))


def stand_in_of(workload: Mapping[str, Any], warnings: Iterable[str]) -> str:
    """Returns the small problem that learned because the model's data set was missing; empty if the model learned.

    Args:
        workload: of the scenario.
        warnings: of a run, which say whether the data set was missing.

    >>> resnet = {"model": "resnet50", "stand_in": {"model": "digits-mlp"}}
    >>> stand_in_of(resnet, ["workload.stand_in: digits-mlp on digits stands in"]), stand_in_of(resnet, [])
    ('digits-mlp standing in for resnet50', '')
    """
    if not any(text.startswith("workload.stand_in") for text in warnings):
        return ""
    return f"{workload['stand_in']['model']} standing in for {workload['model']}"


def common_aim(summaries: Iterable[Mapping[str, Any]], learner: str = "") -> Aim | None:
    """Returns the target of runs if it is the same for all of them, else None.

    Args:
        summaries: of the runs.
        learner: see `aim_of`.

    >>> common_aim([{"target_loss": 0.8}, {"target_loss": 0.8}]), common_aim([{"target_loss": 0.8}, {}])
    (Aim(kind='loss', value=0.8, learner=''), None)
    """
    aims = {aim_of(summary, learner) for summary in summaries}
    return aims.pop() if len(aims) == 1 else None
