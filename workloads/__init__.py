"""What is trained: models, data and learning problems. Read `sampling` first, then `quadratic`, then `data`.

A learner answers four questions for every interpreter alike: the initial weights, the samples of a step, the gradient
at given weights, and how good given weights are. The seed fixes all four. torch is imported only when a model that
needs it is built.
"""

from typing import TYPE_CHECKING

from paceline.algorithms.core.lazy_imports import deferred

if TYPE_CHECKING:
    from paceline.workloads.building import OWN, build, num_samples, problems, record_bytes
    from paceline.workloads.models.layer_tables import MODELS, ModelInfo, find_model
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "MODELS": "models.layer_tables",
            "ModelInfo": "models.layer_tables",
            "OWN": "building",
            "build": "building",
            "find_model": "models.layer_tables",
            "num_samples": "building",
            "problems": "building",
            "record_bytes": "building",
        },
    )

__all__ = ["MODELS", "OWN", "ModelInfo", "build", "find_model", "num_samples", "problems", "record_bytes"]
