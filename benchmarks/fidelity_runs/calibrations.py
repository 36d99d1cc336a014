"""Calibrations: one for each cell, stored beside the results, so that a later start and a later model use the same.

* Unpaced runs are predicted from a machine file of `paceline calibrate`.
* Paced runs are predicted from the probe of `paceline compare`, which is paced by the devices of the cell.
* Paced runs on an emulated network are predicted from the probe of `paceline compare --network emulated`, unpaced ones
  from a machine file with the emulated network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import yaml

from fidelity_runs.settings import CALIBRATED, Cell, Setting, calibration_scenario
from paceline.backend.calibration.calibrate import calibrate
from paceline.backend.calibration.emulation_costs import emulation_task
from paceline.records.machine import OtherLoad, machine_facts
from paceline.reports.comparison.compare import probed
from paceline.scenarios import Scenario
from paceline.scenarios.machine_file import MachinePart, MadePart, costs_of, own_of, save_machine
from paceline.scenarios.resolution.machine_costs import emulated_costs, emulated_part
from paceline.simulator.runs.dry_run import dry_run
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile

NOTABLE_LOAD = 0.05
"""share of other programs in the processor time from which on a calibration is reported as disturbed; as in
`paceline compare`"""
Measure = Callable[[Cell, Scenario, float], MachinePart]


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """The costs for a cell.

    Args:
        costs: the costs.
        other_load: the fraction of all cores that other programs used while they were measured.
    """

    costs: MeasuredCosts
    other_load: float


@dataclasses.dataclass
class Calibrations:
    """The calibrations of a folder, made when they are first asked for.

    Args:
        folder: the folder.
        seconds: the time after which `paceline calibrate` begins no further round.
        say: called with a line about each calibration that is made.
        measure: makes a calibration.
    """

    folder: Path
    seconds: float
    say: Callable[[str], None]
    measure: Measure = dataclasses.field(default_factory=lambda: measure)
    _known: dict[Cell, Calibration] = dataclasses.field(default_factory=dict)

    def of(self, cell: Cell, settings: tuple[Setting, ...]) -> Calibration:
        """Returns the calibration of a cell.

        Args:
            cell: the cell.
            settings: all its settings.
        """
        if cell not in self._known:
            path = self.folder / f"{cell.name}.yaml"
            if not path.exists():
                self.say(f"calibrating {cell.name}")
                self.folder.mkdir(parents=True, exist_ok=True)
                save_machine(self.measure(cell, calibration_scenario(settings), self.seconds), path)
            self._known[cell] = made = read(path)
            if made.other_load > NOTABLE_LOAD:
                self.say(
                    f"note: other programs used {100 * made.other_load:.0f} % of the machine during the calibration "
                    f"{path}; remove the file to repeat it"
                )
        return self._known[cell]


def measure(cell: Cell, scenario: Scenario, seconds: float) -> MachinePart:
    """Measures the costs for a cell.

    Args:
        cell: the cell.
        scenario: the scenario of its calibration.
        seconds: the time after which `paceline calibrate` begins no further round.
    """
    if not cell.paced:
        return calibrate(scenario, dry_run(scenario.plans()), batches=CALIBRATED, seconds=seconds)
    with OtherLoad() as other:
        costs = probed(scenario)
    part = _part(cell, costs.host, other.share)
    if costs.emulation is None:
        return part
    network = emulated_part(emulation_task(scenario).plan, costs.emulation)
    return part.model_copy(update={"emulated": network})


def _part(cell: Cell, profile: Profile, load: float) -> MachinePart:
    """Returns a probe as the section of a file; without gradients, which are those of the paced devices."""
    return MachinePart.model_construct(
        format=1,
        made=MadePart.model_construct(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            processor=str(machine_facts()["processor"]),
            other_load=load,
        ),
        model=cell.model,
        ranks=sum(cell.nodes),
        cores=int(machine_facts()["cores"]),
        torch_threads=1,
        own=own_of(profile),
        gradients=(),
        costs=costs_of(profile),
    )


def read(path: Path) -> Calibration:
    """Returns the calibration in a file."""
    machine = MachinePart.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    costs = MeasuredCosts(machine.profile()) if machine.emulated is None else emulated_costs(machine)
    return Calibration(costs, machine.made.other_load)
