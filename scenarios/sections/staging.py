"""The section of a scenario for the copies between hosts and devices: `cluster.staging`.

Rules of this file: what a system has follows from its graph and the catalogue, see `topologies.catalogue.staging`. The
size of a batch on the device is that of the model's input: it does not depend on how samples are stored.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.values import fields
from paceline.scenarios.values.section import Part
from paceline.topologies.catalogue.staging import Batches, GpuDirect, Staging
from paceline.workloads.models.layer_tables import find_model

if TYPE_CHECKING:
    from paceline.scenarios.sections.workload import WorkloadPart


class StagingPart(Part):
    batches: Annotated[Batches, *fields.choices("pinned", "pageable", "none")] = Field(
        default="pinned",
        description="the host memory that batches are copied from: pinned; pageable: a core copies them to pinned "
        "memory first, and nothing is prefetched; none: batches are on the devices already",
    )
    prefetch: fields.Prefetched = Field(
        default=1, description="batches copied ahead of the one that is computed; 0: a worker waits for every copy"
    )
    gpudirect: Annotated[GpuDirect, *fields.choices("auto", "on", "off"), fields.SWITCH] = Field(
        default="auto",
        description="whether NICs read and write the memory of devices; auto: of GPUs, on networks without TCP. "
        "Without it, nccl and mpi go through host memory; gloo always does, plain never",
    )

    def build(self, workload: WorkloadPart) -> Staging:
        """Returns the copies for the batches of a workload."""
        size = 0
        if workload.learning != "quadratic":
            with contextlib.suppress(InputError):  # of a model that cannot be traced, no input is known
                size = find_model(workload.model).sample_bytes
        return Staging(batches=self.batches, prefetch=self.prefetch, gpudirect=self.gpudirect, sample_bytes=float(size))
