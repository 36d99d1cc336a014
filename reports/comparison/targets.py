"""What runs were to reach: the accuracy or the loss that their times are measured to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Aim:
    """A target.

    >>> Aim("accuracy", 0.93).words, Aim("loss", 0.1).words, Aim("loss", 0.1).path
    ('93 % accuracy', 'a loss of 0.1', 'time_to_loss_s')
    """

    kind: Literal["accuracy", "loss"]
    value: float

    @property
    def words(self) -> str:
        return f"{100 * self.value:g} % accuracy" if self.kind == "accuracy" else f"a loss of {self.value:g}"

    @property
    def path(self) -> str:
        """Where the time to it stands in a summary."""
        return f"time_to_{self.kind}_s"

    @property
    def resolution(self) -> str:
        """Where it stands how finely that time can be told."""
        return f"time_to_{self.kind}_resolution_s"


def aim_of(summary: Mapping[str, Any]) -> Aim | None:
    """What a run is judged by: its target accuracy, or its target loss where it has no accuracy; None without any."""
    accuracy, loss = summary["target_accuracy"], summary["target_loss"]
    if accuracy is not None and (loss is None or summary["final_accuracy"] is not None):
        return Aim("accuracy", accuracy)
    return None if loss is None else Aim("loss", loss)
