"""List prices of devices in clouds, by the device's name in the catalogue; the values are in ``data/prices.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints

from paceline.topologies.catalogue.device_catalogue import DATA

FILE = "prices.yaml"
_WHENCE = r"^(FOUND|MEMORY (certain|high|medium|low))"


class _PriceEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    usd_per_hour: tuple[float, Annotated[str, StringConstraints(pattern=_WHENCE)]]
    date: Annotated[str, StringConstraints(pattern=r"^\d{4}(-\d{2})?$")]


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """The list price of a device, with its source and the date at which it was valid."""

    usd_per_hour: float
    provenance: str
    date: str


@cache
def device_prices() -> dict[str, DevicePrice]:
    """Returns the list price of each device that has one, in USD per device and hour.

    >>> device_prices()["v100-sxm2"].usd_per_hour
    3.06
    """
    raw = yaml.safe_load((DATA / FILE).read_text(encoding="utf-8"))
    entries = {name: _PriceEntry(**entry) for name, entry in raw.items()}
    return {name: DevicePrice(*entry.usd_per_hour, entry.date) for name, entry in entries.items()}
