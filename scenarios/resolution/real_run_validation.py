"""Rejects the sections of a scenario that only simulations support, before a real run."""

from __future__ import annotations

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.resolution.schema import Scenario


def refuse_simulated_only(scenario: Scenario) -> None:
    """Raises `InputError` if a scenario for a real run has crashes, server threads, probes, drift, extrapolation
    or a stand-in."""
    found = []
    if scenario.cluster.crashes is not None:
        found.append(
            "cluster.crashes: found crashes, which only a simulation has; for a real run expected "
            "none (`--set cluster.crashes=null`; stragglers, slowdowns and step_time are supported)"
        )
    if scenario.cluster.server.threads > 1:
        found.append(
            f"cluster.server.threads: found {scenario.cluster.server.threads}, which only a simulation has; for a real "
            "run expected 1 (`--set cluster.server.threads=1`)"
        )
    for key in scenario.record.asked:
        found.append(
            f"record.{key}: found {getattr(scenario.record, key)}, which only a simulation measures, at no cost in "
            f"virtual time; for a real run expected none (`--set record.{key}=null`)"
        )
    if scenario.extrapolate is not None:
        found.append(
            "extrapolate: found a section that only a simulation has; for a real run expected none "
            "(`--set extrapolate=null`)"
        )
    if (stand_in := scenario.workload.stood_in) is not None:
        found.append(
            f"workload.stand_in: found {stand_in.words} in place of a data set whose folder is missing, which only a "
            "simulation can use; for a real run expected workload.data_dir, or a model whose data set is bundled"
        )
    if found:
        raise InputError("\n".join(f"{scenario.name}: {one}" for one in found))
