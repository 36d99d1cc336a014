"""The request of a plan, as it is stored with the study: everything that decides which trials are made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.algorithms.core.checksums import parsed
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.records.document import to_json
from paceline.reports.planning.objectives import Limits, Objective, Target
from paceline.scenarios import Scenario, load

REQUEST = "request.json"
BATCH = 8
"""choices that are drawn at a time: enough for the cores of a small machine, few enough that the sampler learns soon;
provenance: ours"""
TRIALS_PER_METHOD = 15
"""default number of trials for each method; provenance: ours"""
TUNING_SEEDS, REPORTED_SEEDS = 2, 5
"""default numbers of seeds of a trial and of a reported plan; provenance: ours"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is planned."""

    scenario: Mapping[str, Any]
    """the resolved scenario, with an entry for each method that is considered"""
    part: Mapping[str, Any]
    """its section `plan`"""
    target: Target
    objectives: tuple[Objective, ...]
    limits: Limits = field(default_factory=Limits)
    trials: int
    tuning_seeds: int = TUNING_SEEDS
    reported_seeds: int = REPORTED_SEEDS
    batch: int = BATCH

    def load(self) -> Scenario:
        """Returns the scenario with its section `plan`."""
        return load({**self.scenario, "plan": self.part})

    def document(self) -> dict[str, Any]:
        """Returns the content of the stored request, without limits that do not limit."""
        document = dataclasses.asdict(self)
        document["limits"] = {key: value for key, value in document["limits"].items() if math.isfinite(value)}
        return document

    def store(self, folder: Path) -> None:
        """Writes the request to a folder."""
        write_whole(folder / REQUEST, to_json(self.document()) + "\n")


def stored_request(folder: Path) -> Request:
    """Reads the request of a study.

    Args:
        folder: the folder of the study.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    right = "expected the folder of an unfinished plan, such as runs/quickstart-plan-unfinished-1"
    try:
        document = parsed((folder / REQUEST).read_text(encoding="utf-8"), REQUEST, "the request of a plan")
        return Request(
            **{
                **document,
                "target": Target(**document["target"]),
                "objectives": tuple(document["objectives"]),
                "limits": Limits(**document["limits"]),
            }
        )
    except OSError as error:
        raise InputError(f"--resume: found {str(folder)!r} ({error.strerror}), {right}") from error
    except (InputError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"--resume: found a damaged {REQUEST} in {str(folder)!r}, {right}") from error
