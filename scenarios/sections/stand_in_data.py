"""The part of a workload for data that may be missing: a small problem that is learned in place of the data set.

Rules of this file:

* If the folder of the data set is there, nothing of this part is used.
* Otherwise layers, bytes, batches and times are those of the model, and gradients and evaluations those of the stand-in
  (`workloads.learners.stand_in`). A note in the record names the stand-in (`resolution.fitted_ranges`).
* A real run cannot use it: its messages would have the size of the stand-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.sections.reading import Reading
from paceline.scenarios.values import fields
from paceline.scenarios.values.mistakes import Place, one_of, wrong
from paceline.scenarios.values.section import Field, Given, Section, Values
from paceline.workloads import MODELS, build, find_model, problems
from paceline.workloads.datasets import place_of
from paceline.workloads.learners.stand_in import StandIn
from paceline.workloads.models.zoo import known_model

if TYPE_CHECKING:
    from paceline.algorithms.core.job import Learner


class StandInData(Section):
    """A small problem to learn if there is no folder of the data set."""

    model: Given[fields.ModelName, str | Values] = Field(
        description=f"{one_of([*MODELS])}, or the size of a transformer"
    )
    dataset: str | None = Field(
        default=None, description="its data set, which must be bundled; default: that of the model"
    )
    batch_per_worker: fields.Count = Field(description="its samples in a batch of one worker of the model")

    @property
    def words(self) -> str:
        """The model and its data set.

        >>> StandInData(model="digits-cnn", batch_per_worker=16).words
        'digits-cnn on digits'
        """
        return f"{self.model} on {self.dataset or ((known := known_model(self.model)) and known.data)}"

    def learner(self, seed: int, *, model: str, batch: int, dtype: str) -> Learner:
        """Returns the learner with the numbers of this problem and the sizes of the model.

        Args:
            seed: the seed of initial weights and of the order of samples.
            model: the model whose layers and bytes it has.
            batch: samples of the model in a batch of one worker.
            dtype: type of weights and gradients of the model.
        """
        problem = build(self.model, dataset=self.dataset, seed=seed, dtype="float32")
        item_bytes = 4 if dtype == "float32" else 8
        return StandIn(problem, find_model(model).layout(), batch, self.batch_per_worker, item_bytes)

    def faults(self, reading: Reading | None) -> list[tuple[Place, PydanticCustomError]]:
        """Returns the mistakes of this part.

        Args:
            reading: how the samples of the model are read.
        """
        found: list[tuple[Place, PydanticCustomError]] = []
        for text in problems(self.model, dataset=self.dataset, learning="train"):
            key, _, rest = text.partition(": ")
            found.append((tuple(key.split(".")), wrong(rest)))
        if reading is not None:
            words = "found beside workload.reading; expected one of them: a stand-in is in memory"
            found.append(((), wrong(words)))
        return found


def folder_is_missing(model: str, dataset: str | None) -> bool:
    """Returns whether a data set has to be read from a folder that is not there.

    Args:
        model: the model, whose own data set is used if none is given.
        dataset: the data set.
    """
    name = dataset or (known.data if (known := known_model(model)) else None)
    if name is None:
        return True
    try:
        place_of(name, None)
    except (InputError, KeyError):
        return True
    return False
