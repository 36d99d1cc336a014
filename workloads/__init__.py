"""Workloads: models, data and learning problems. Read `sampling` first, then `learners.quadratic`, then `datasets`.

A learner provides the same four things to every interpreter: the initial weights, the samples of a step, the gradient
at given weights, and an evaluation of given weights. The seed determines all four. torch is imported only when a model
that needs it is built.
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
