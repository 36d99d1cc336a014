"""Adds imported costs to a machine that was measured, or makes a machine file of imported costs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from paceline.records.machine import package_versions
from paceline.scenarios.machine_file import CurvePart, GradientPart, MachinePart, MadePart, OriginPart, OwnPart
from paceline.scenarios.resolution.schema import Scenario
from paceline.topologies.catalogue.machine_profile import Asked


@dataclass(frozen=True, slots=True)
class Imported:
    """Costs that were imported.

    Args:
        gradients: times of gradients, one for each batch.
        curves: messages and collectives.
        own: seconds of a rank's own work, by the names of `OwnPart`.
        origins: the files, tools and versions.
        processor, cores: of the host of a run; "" and 0 if they are not known.
    """

    gradients: tuple[GradientPart, ...] = ()
    curves: tuple[CurvePart, ...] = ()
    own: Mapping[str, float] = field(default_factory=dict)
    origins: tuple[OriginPart, ...] = ()
    processor: str = ""
    cores: int = 0

    def __add__(self, other: Imported) -> Imported:
        """Returns the costs of both; of equal ones, the later counts."""
        gradients = {one.batch: one for one in (*self.gradients, *other.gradients)}
        curves = {(one.operation, one.ranks, one.hosts): one for one in (*self.curves, *other.curves)}
        return Imported(
            tuple(gradients[batch] for batch in sorted(gradients)),
            tuple(curves.values()),
            {**self.own, **other.own},
            tuple(dict.fromkeys((*self.origins, *other.origins))),
            self.processor or other.processor,
            self.cores or other.cores,
        )

    def has(self, one: Asked) -> bool:
        """Whether a curve of this collective on one host contains its size."""
        return any(
            (curve.operation, curve.ranks, curve.hosts) == (one.operation, one.members, 1)
            and curve.points[0].bytes <= one.nbytes <= curve.points[-1].bytes
            for curve in self.curves
        )


NOTHING = Imported()


def with_imports(machine: MachinePart, imported: Imported) -> MachinePart:
    """Returns a machine with imported costs in the place of measured ones.

    Args:
        machine: the machine as it was measured.
        imported: the costs; own work that was imported replaces the measured one.
    """
    if not imported.origins:
        return machine
    gradients = {part.batch: part for part in (*machine.gradients, *imported.gradients)}
    taken = {(one.operation, one.ranks, one.hosts) for one in imported.curves}
    costs = [one for one in machine.costs if (one.operation, one.ranks, one.hosts) not in taken]
    made = machine.made.model_copy(
        update={"verdict": "; ".join([machine.made.verdict, f"imported: {told(imported.origins)}"])}
    )
    return machine.model_copy(
        update={
            "made": made,
            "gradients": tuple(gradients[batch] for batch in sorted(gradients)),
            "costs": (*costs, *imported.curves),
            "own": machine.own.model_copy(update=dict(imported.own)),
            "imported": imported.origins,
        }
    )


def only_imports(scenario: Scenario, imported: Imported) -> MachinePart:
    """Returns a machine of imported costs alone, which need not have been measured on this machine.

    Own work that was not imported takes no time. Unless a run tells the cores of its host, each rank is assumed to have
    a core or device of its own, since the imported gradients were measured with all of them busy.

    Args:
        scenario: the scenario with its model, ranks and threads.
        imported: the costs.
    """
    versions, most = package_versions(), max(len(ranks) for ranks in scenario.cluster.placement)
    return MachinePart.model_construct(
        format=1,
        made=MadePart.model_construct(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            processor=imported.processor,
            versions={name: versions[name] for name in ("paceline",) if name in versions},
            seconds=0.0,
            other_load=0.0,
            verdict=f"imported, nothing was measured here: {told(imported.origins)}",
        ),
        model=str(scenario.workload.model),
        ranks=scenario.cluster.workers,
        cores=imported.cores or most,
        torch_threads=scenario.train.torch_threads,
        own=OwnPart().model_copy(update=dict(imported.own)),
        gradients=imported.gradients,
        costs=imported.curves,
        imported=imported.origins,
    )


def told(origins: Sequence[OriginPart]) -> str:
    """Returns the imported files and tools as text.

    >>> told([OriginPart(file="log.txt", tool="nccl-tests all_reduce", version="2.17.4")])
    'log.txt (nccl-tests all_reduce 2.17.4)'
    """
    named = [f"{one.file} ({' '.join(filter(None, [one.tool, one.version]))})" for one in origins]
    return ", ".join(dict.fromkeys(named))
