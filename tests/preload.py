"""Imports what a training command needs, early or late: `tests.warm` has this done once, before it forks."""

import importlib
import pkgutil

import pyarrow.parquet  # noqa: F401
import safetensors.numpy  # noqa: F401
import torch.distributed  # noqa: F401

import paceline.backend
import paceline.cli.train_command
import paceline.records
import paceline.scenarios
import paceline.workloads.learners
from paceline.workloads.batches import examples  # noqa: F401
from paceline.workloads.learners import torch_learner  # noqa: F401

for package in (paceline.backend, paceline.records, paceline.scenarios):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
