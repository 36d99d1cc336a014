"""The part of a node that divides a many-core chip into groups of cores: `cluster.nodes[].groups`.

Rules of this file:

* Every group is a worker with its own weights and its own copy of the data. All groups share the memory of the chip, so
  the bandwidth depends on what they need together.
* `workload.batch_per_worker` is the batch of the chip, as in chip-partitioned-sgd: each group computes its part. A
  method that gives every worker a whole batch needs more memory for activations than is counted here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Part
from paceline.topologies import Device
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.chip_groups import group_device
from paceline.topologies.compute.memory import Mode
from paceline.topologies.graphs.cpu_machines import knl_node
from paceline.topologies.graphs.graph import Graph
from paceline.workloads.models.layer_tables import find_model

if TYPE_CHECKING:
    from paceline.scenarios.sections.workload import WorkloadPart


class GroupsPart(Part):
    count: fields.Count = Field(description="number of groups of whole tiles of cores, each a worker")
    data: fields.Size = Field(default=0.0, description="the data that every group keeps in memory: '687 MB'")
    memory_mode: Annotated[Mode, *fields.choices("flat", "cache")] = Field(
        default="flat", description="mode of the near memory: flat, or cache of the far memory"
    )

    def check(self, device: str) -> None:
        """Raises `InputError` if the chip cannot be divided into so many groups."""
        spec = named(device)
        spec.part(self.count)
        if spec.far_bytes is None:
            raise InputError(f"found a {spec.name}, which has no near and far memory; expected a chip such as knl-7250")

    def graph(self) -> Graph:
        """The groups on the mesh of the chip."""
        return knl_node(parts=self.count)

    def device(self, name: str, workload: WorkloadPart, optimizer_copies: int = 1) -> Device:
        """Returns one group of a chip.

        Args:
            name: the chip.
            workload: the model, and the batch of the chip.
            optimizer_copies: numbers of optimizer state per weight.
        """
        batch = workload.batch_per_worker
        return _group(name, workload.model, self.count, batch, self.data, self.memory_mode, optimizer_copies)


@lru_cache(maxsize=64)
def _group(name: str, model: str, groups: int, batch: int, data_bytes: float, mode: Mode, copies: int) -> Device:
    work = find_model(model)
    return group_device(
        named(name), work, groups, samples=batch, data_bytes=data_bytes, optimizer_copies=copies, mode=mode
    )
