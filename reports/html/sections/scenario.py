"""The scenario, and the provenance of every preset in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from paceline.reports.html.grids import facts
from paceline.reports.html.presets import presets_of
from paceline.reports.html.report_parts import Grid, Section, Verbatim


def scenario_section(scenario: Mapping[str, Any], assumptions: Sequence[str] = (), workers: int = 0) -> Section:
    """Returns the section.

    Args:
        scenario: the resolved scenario, as it can be run again.
        assumptions: what a simulation assumed, in sentences.
        workers: number of workers of the cluster, if it is known.
    """
    presets, devices = presets_of(scenario, workers)
    text = yaml.safe_dump(without_empty(scenario), sort_keys=False, allow_unicode=True, width=100)
    parts: list[Grid | Verbatim] = []
    if presets:
        parts.append(
            Grid(
                title="Where the values of presets come from",
                columns=["preset", "values", "source"],
                rows=presets,
                words="FOUND: in the named source. DERIVED: computed from others. MEMORY: known, but no text was "
                "found. INFERENCE: estimated from similar cases.",
            )
        )
    if devices:
        columns = ["device", "figure", "source"]
        parts.append(Grid(title="Figures of devices in the catalogue", columns=columns, rows=devices, folded=True))
    if assumptions:
        parts.append(facts("What the simulation assumes", {str(at): one for at, one in enumerate(assumptions, 1)}))
    parts.append(Verbatim(title="The scenario, without empty keys", text=text))
    return Section(
        id="scenario",
        title="Scenario",
        words=[
            (
                "The scenario describes the cluster, the workload and the methods. Saved as a file, it can be run "
                "again with `paceline simulate FILE`."
            ),
        ],
        parts=parts,
    )


def without_empty(value: Any) -> Any:
    """Returns a scenario without keys that are null or empty.

    >>> without_empty({"a": None, "b": {"c": []}, "d": [{"e": 1, "f": None}], "g": False})
    {'d': [{'e': 1}], 'g': False}
    """
    if isinstance(value, Mapping):
        cleaned = {str(name): without_empty(one) for name, one in value.items()}
        return {name: one for name, one in cleaned.items() if one is not None and one not in ([], {})}
    if isinstance(value, list | tuple):
        return [without_empty(one) for one in value]
    return value
