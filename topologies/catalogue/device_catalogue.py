"""The device catalogue: figures of chips by name, each value with its provenance.

Values are in `FILES` of `data/`, not here, and are read when first needed. A peak is the vendor's figure without
sparsity, at boost clock. FOUND means published by the named source; MEMORY means remembered, with the confidence that
follows; DERIVED is computed from such values; INFERENCE is our guess.

List prices of devices in clouds, by the device's name in the catalogue; the values are in ``data/prices.yaml``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints

from paceline.algorithms.core.errors import InputError

DATA = Path(__file__).parents[1] / "data"
FILES = ("cpus.yaml", "gpus.yaml", "manycores.yaml")
Kind = Literal["gpu", "manycore", "cpu"]
PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""bytes of a number in memory for each precision of arithmetic"""
ALIASES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "amp": "fp16", "mixed": "fp16", "bfloat16": "bf16"}
TILE = 2
"""cores of a tile of Knights Landing: FOUND (NERSC)"""
SUSTAINED = 0.8
"""sustained share of the memory's peak if no copy was measured: INFERENCE; 0.83 to 0.89 FOUND on A100, H100, H200"""
LAUNCH_S: dict[Kind, float] = {"gpu": 10e-6, "manycore": 20e-6, "cpu": 5e-6}
"""seconds to launch a kernel in a framework: INFERENCE"""
ASSUMED = {"memory_sustained_gb_per_s": f"INFERENCE: {SUSTAINED} of the peak", "launch_s": "INFERENCE: by kind"}

_WHENCE = r"^(FOUND|DERIVED|INFERENCE|MEMORY (certain|high|medium|low))"
_Figure = tuple[float, Annotated[str, StringConstraints(pattern=_WHENCE)]]


class _DeviceEntry(BaseModel):
    """A device as in its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    kind: Kind
    year: int
    architecture: str
    aliases: tuple[str, ...] = ()
    note: str = ""
    units: _Figure | None = None
    cores: _Figure | None = None
    ghz: _Figure | None = None
    fp64_tflops: _Figure | None = None
    fp32_tflops: _Figure
    tf32_tflops: _Figure | None = None
    fp16_tflops: _Figure | None = None
    bf16_tflops: _Figure | None = None
    fp8_tflops: _Figure | None = None
    gemm_fp32_tflops: _Figure | None = None
    gemm_fp16_tflops: _Figure | None = None
    gemm_fp8_tflops: _Figure | None = None
    memory_gb: _Figure | None = None
    memory_gb_per_s: _Figure
    memory_sustained_gb_per_s: _Figure | None = None
    far_memory_gb: _Figure | None = None
    far_memory_gb_per_s: _Figure | None = None
    power_w: _Figure | None = None
    host_gb_per_s: _Figure | None = None
    core_gb_per_s: _Figure | None = None
    core_cache_gb_per_s: _Figure | None = None
    cache_mb: _Figure | None = None

    def spec(self, name: str) -> Spec:
        """Returns the values in SI units."""
        given = {key: value for key, value in self if isinstance(value, tuple) and key != "aliases"}
        figures = {key: value[0] for key, value in given.items()}

        def giga(key: str) -> float | None:
            return figures[key] * 1e9 if key in figures else None

        peaks = {p: figures[f"{p}_tflops"] * 1e12 for p in PRECISIONS if f"{p}_tflops" in figures}
        gemms = {p: figures[f"gemm_{p}_tflops"] * 1e12 for p in PRECISIONS if f"gemm_{p}_tflops" in figures}
        bytes_per_s = figures["memory_gb_per_s"] * 1e9
        return Spec(
            name=name,
            title=self.title,
            kind=self.kind,
            year=self.year,
            architecture=self.architecture,
            aliases=self.aliases,
            note=self.note,
            peaks=peaks,
            gemms=gemms,
            memory_bytes=giga("memory_gb"),
            bytes_per_s=bytes_per_s,
            sustained_bytes_per_s=giga("memory_sustained_gb_per_s") or SUSTAINED * bytes_per_s,
            far_bytes=giga("far_memory_gb"),
            far_bytes_per_s=giga("far_memory_gb_per_s"),
            power_w=figures.get("power_w"),
            host_bytes_per_s=giga("host_gb_per_s"),
            cores=int(figures["cores"]) if "cores" in figures else None,
            hertz=giga("ghz"),
            core_bytes_per_s=giga("core_gb_per_s"),
            core_cache_bytes_per_s=giga("core_cache_gb_per_s"),
            cache_bytes=figures["cache_mb"] * 1e6 if "cache_mb" in figures else None,
            units=int(figures["units"]) if "units" in figures else None,
            launch_s=LAUNCH_S[self.kind],
            provenance=ASSUMED | {key: value[1] for key, value in given.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The figures of a device, in FLOP/s, bytes and bytes/s; None if not known.

    Args:
        peaks: FLOP/s by precision.
        gemms: the best measured matrix product, FLOP/s by precision.
        sustained_bytes_per_s: the rate of a copy in its own memory; `SUSTAINED` of the peak if not measured.
        far_bytes, far_bytes_per_s: a second, slower memory: the DDR of Knights Landing.
        host_bytes_per_s: the rate of a copy from the host.
        architecture: the design that the chip shares with others; "" if not known.
        units: multiprocessors of a GPU.
        sockets: number of sockets that work as one device.
        launch_s: the time to launch a kernel.
        hertz: the clock of its cores.
        core_bytes_per_s, core_cache_bytes_per_s: memory bandwidth of one core, outside and inside the last cache.
        cache_bytes: the last cache, as far as one core can use it.
        part_of: the chip of which this is a group of cores.
        provenance: of each value, by its name in the file.
    """

    name: str
    title: str
    kind: Kind
    year: int
    peaks: Mapping[str, float]
    bytes_per_s: float
    sustained_bytes_per_s: float
    launch_s: float
    provenance: Mapping[str, str]
    gemms: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: float | None = None
    far_bytes: float | None = None
    far_bytes_per_s: float | None = None
    power_w: float | None = None
    host_bytes_per_s: float | None = None
    cores: int | None = None
    hertz: float | None = None
    core_bytes_per_s: float | None = None
    core_cache_bytes_per_s: float | None = None
    cache_bytes: float | None = None
    units: int | None = None
    sockets: int = 1
    architecture: str = ""
    aliases: tuple[str, ...] = ()
    note: str = ""
    part_of: str | None = None

    def peak(self, precision: str) -> float:
        """Returns FLOP/s in this precision; if there is no unit for it, numbers are stored in it but computed in
        float32.

        >>> SPECS["v100-sxm2"].peak("fp16") / 1e12, SPECS["k80"].peak("fp16") / 1e12
        (125.0, 4.365)
        """
        precision = precision_named(precision)
        if precision in self.peaks:
            return self.peaks[precision]
        if precision == "fp64":
            raise InputError(f"{self.name}: its rate in fp64 is not known; expected one of {', '.join(self.peaks)}")
        return self.peaks["bf16" if precision == "fp16" and "bf16" in self.peaks else "fp32"]

    def times(self, sockets: int) -> Spec:
        """Returns several of them combined to one device: the sockets of a node.

        >>> SPECS["xeon-e5-2670"].times(2).peak("fp32") / 1e12
        0.6656
        """

        def more(value: float | None) -> float | None:
            return None if value is None else value * sockets

        return dataclasses.replace(
            self,
            name=f"{self.name}-x{sockets}",
            title=f"{sockets} × {self.title}",
            aliases=(),
            peaks={name: rate * sockets for name, rate in self.peaks.items()},
            gemms={name: rate * sockets for name, rate in self.gemms.items()},
            bytes_per_s=self.bytes_per_s * sockets,
            sustained_bytes_per_s=self.sustained_bytes_per_s * sockets,
            memory_bytes=more(self.memory_bytes),
            power_w=more(self.power_w),
            cores=None if self.cores is None else self.cores * sockets,
            sockets=sockets,
        )

    def part(self, groups: int) -> Spec:
        """Returns one of `groups` equal groups of cores, of whole tiles, with its share of the memories and their
        bandwidth.

        >>> SPECS["knl-7250"].part(4).cores, SPECS["knl-7250"].part(4).bytes_per_s / 1e9
        (16, 120.0)
        """
        tiles = (self.cores or 0) // TILE
        if self.kind != "manycore":
            raise InputError(f"{self.name}: found a {self.kind} to divide into groups; expected a many-core chip")
        if not 1 <= groups <= tiles:
            raise InputError(f"groups: found {groups}, expected 1 to {tiles}, the tiles of {self.name}")
        if groups == 1:
            return self
        cores = TILE * (tiles // groups)

        def share(value: float | None) -> float | None:
            return None if value is None else value / groups

        return dataclasses.replace(
            self,
            name=f"{self.name}/{groups}",
            title=f"one of {groups} groups of a {self.title}",
            aliases=(),
            cores=cores,
            peaks={name: rate * cores / (self.cores or cores) for name, rate in self.peaks.items()},
            gemms={name: rate * cores / (self.cores or cores) for name, rate in self.gemms.items()},
            bytes_per_s=self.bytes_per_s / groups,
            sustained_bytes_per_s=self.sustained_bytes_per_s / groups,
            memory_bytes=share(self.memory_bytes),
            far_bytes=share(self.far_bytes),
            far_bytes_per_s=share(self.far_bytes_per_s),
            power_w=share(self.power_w),
            part_of=self.name,
        )


def precision_named(name: str) -> str:
    """Returns the catalogue's name of a precision.

    >>> precision_named("float32"), precision_named("amp")
    ('fp32', 'fp16')
    """
    known = ALIASES.get(name, name)
    if known not in PRECISIONS:
        raise InputError(f"unknown precision {name!r}; there are {', '.join([*PRECISIONS, *ALIASES])}")
    return known


@cache
def _read() -> dict[str, Spec]:
    raw: dict[str, dict[str, Any]] = {}
    for file in FILES:
        raw |= yaml.safe_load((DATA / file).read_text(encoding="utf-8"))
    specs = {}
    for name, entry in raw.items():
        like = entry.pop("like", None)
        inherited = {key: value for key, value in raw[like].items() if key != "aliases"} if like else {}
        specs[name] = _DeviceEntry(**inherited | entry).spec(name)
    order = {kind: place for place, kind in enumerate(get_args(Kind))}
    return dict(sorted(specs.items(), key=lambda item: (order[item[1].kind], item[1].year)))


class _Specs(Mapping[str, Spec]):
    """Reads the files at the first access."""

    def __getitem__(self, name: str) -> Spec:
        return _read()[name]

    def __iter__(self) -> Any:
        return iter(_read())

    def __len__(self) -> int:
        return len(_read())


SPECS: Mapping[str, Spec] = _Specs()
"""the devices by name: accelerators first, then by year"""
THIS_MACHINE = "this-machine"


FILE = "prices.yaml"
_PRICED = r"^(FOUND|MEMORY (certain|high|medium|low))"


class _PriceEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    usd_per_hour: tuple[float, Annotated[str, StringConstraints(pattern=_PRICED)]]
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
