"""Rejects the sections of a scenario that only simulations support, before a real run."""

from __future__ import annotations

from paceline.algorithms.core.errors import InputError
from paceline.scenarios.resolution.schema import Scenario


def refuse_simulated_only(scenario: Scenario) -> None:
    """Raises `InputError` if a scenario for a real run has crashes, probes, drift or extrapolation."""
    found = []
    if scenario.cluster.crashes is not None:
        found.append(
            "cluster.crashes: found crashes, which only a simulation has; for a real run expected "
            "none (`--set cluster.crashes=null`; stragglers, slowdowns and step_time are supported)"
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
    if found:
        raise InputError("\n".join(f"{scenario.name}: {one}" for one in found))
