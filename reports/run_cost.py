"""What a run costs: the price and the energy of its nodes.

* The price of a node is that of the scenario (``cluster.nodes[].price_per_hour``, else ``cluster.price_per_hour``), or
  the list price of its devices in the catalogue. The power is that of the scenario (``power``), or the thermal design
  power of its devices; hosts, network and cooling are then not included.
* A node is paid for as a whole, from the start of the run to its end. There is no figure if one node has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.scenarios import Plan, Scenario
from paceline.scenarios.sections.clusters import Nodes
from paceline.topologies import DeviceModel
from paceline.topologies.catalogue.device_catalogue import SPECS, device_prices

HOUR_S = 3600.0
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of a run in US dollars and kilowatt hours; None if a price or a power is not known."""

    usd: float | None
    kwh: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRates:
    """The price and the power of all nodes of a run together, with their sources in words."""

    usd_per_hour: float | None
    watts: float | None
    sources: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """the keys of the scenario that would make a missing figure known"""

    def cost(self, wall_s: float) -> RunCost:
        """Returns the cost of so many seconds.

        >>> PriceRates(usd_per_hour=7.2, watts=3000.0).cost(600.0)
        RunCost(usd=1.2, kwh=0.5)
        """
        return RunCost(
            usd=None if self.usd_per_hour is None else self.usd_per_hour * wall_s / HOUR_S,
            kwh=None if self.watts is None else self.watts * wall_s / JOULES_PER_KWH,
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of node of a scenario, and the number of nodes and devices of a node that a run uses."""

    place: str
    part: Nodes | None
    device: DeviceModel
    devices: int
    count: int


def run_cost(plan: Plan, wall_s: float) -> RunCost:
    """Returns the cost of a run.

    usd = Σ_nodes price · wall_s / 3600, kwh = Σ_nodes power · wall_s / 3.6e6

    Args:
        plan: the run.
        wall_s: its duration, or the time to its target.

    >>> from paceline.scenarios import load
    >>> priced = load("quickstart", ["cluster.price_per_hour=1.8 USD/h", "cluster.power=500 W"])
    >>> run_cost(priced.plans()[0], 3600.0)
    RunCost(usd=3.6, kwh=1.0)
    """
    return rates_of(plan.scenario, alone=plan.job.method.alone).cost(wall_s)


def rates_of(scenario: Scenario, *, alone: bool = False) -> PriceRates:
    """Returns the price and the power of a scenario's nodes.

    Args:
        scenario: the scenario.
        alone: whether the run has only one worker, on the first node.
    """
    usd: float | None = 0.0
    watts: float | None = 0.0
    sources: dict[str, None] = {}
    missing: dict[str, None] = {}
    for kind in _kinds(scenario, alone=alone):
        price, price_source = _price(scenario, kind)
        power, power_source = _power(scenario, kind)
        usd = None if usd is None or price is None else usd + kind.count * price
        watts = None if watts is None or power is None else watts + kind.count * power
        sources |= dict.fromkeys(source for source in (price_source, power_source) if source)
        missing |= dict.fromkeys([f"{kind.place}.price_per_hour"] if price is None else [])
        missing |= dict.fromkeys([f"{kind.place}.power"] if power is None else [])
    return PriceRates(usd_per_hour=usd, watts=watts, sources=tuple(sources), missing=tuple(missing))


def _kinds(scenario: Scenario, *, alone: bool) -> Iterator[_Kind]:
    cluster = scenario.cluster
    devices = [device for _, device in cluster.devices(scenario.workload)]
    if not isinstance(cluster.nodes, tuple):
        sites = cluster.layout.sites
        yield _Kind("cluster", None, devices[0], len(sites[0].seats), 1 if alone else len(sites))
        return
    for index, (part, device) in enumerate(zip(cluster.nodes, devices, strict=True)):
        yield _Kind(f"cluster.nodes[{index}]", part, device, part.workers, 1 if alone else part.count)
        if alone:
            return


def _price(scenario: Scenario, kind: _Kind) -> tuple[float | None, str]:
    own = None if kind.part is None else kind.part.price_per_hour
    if own is not None:
        return own, f"price of a node with {kind.device.name}: {own:g} USD/h, given in the scenario"
    if scenario.cluster.price_per_hour is not None:
        return scenario.cluster.price_per_hour, "price of a node: given in the scenario"
    known = device_prices().get(kind.device.name) if kind.device.kind is not None else None
    if known is None:
        return None, ""
    said = f"price of {kind.device.name}: {known.usd_per_hour:g} USD/h each, list price of {known.date}"
    return kind.devices * known.usd_per_hour, f"{said} ({known.provenance})"


def _power(scenario: Scenario, kind: _Kind) -> tuple[float | None, str]:
    own = None if kind.part is None else kind.part.power
    if own is not None:
        return own, f"power of a node with {kind.device.name}: {own:g} W, given in the scenario"
    if scenario.cluster.power is not None:
        return scenario.cluster.power, "power of a node: given in the scenario"
    spec = SPECS.get(kind.device.name) if kind.device.kind is not None else None
    if spec is None or spec.power_w is None:
        return None, ""
    said = f"power of {spec.name}: {spec.power_w:g} W each, its thermal design power"
    return kind.devices * spec.power_w, f"{said} ({spec.provenance['power_w']}); hosts and network not included"
