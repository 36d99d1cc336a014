"""What part of its peak a device reaches in each kind of layer: an additive model in logarithms.

    ln e = kind + class + architecture + library + framework + tensor units + chip + mixtures with the kind

A parameter without published rows has its prior mean, so a chip, a library or an architecture that is not in the data
is predicted from all others. No value depends on the name of a chip or a system; names are keys.

Generations of software, read from the words that tables use for it.

Words decide, never the name of a system. Where a library's version is not given, the year stands for it. Generations
are those in which convolutions changed: own code (a framework's loops over a matrix product), cuDNN before R3, R3 and
R4, 5.0 with the first Winograd convolutions, 5.1 and 6, 7, and 8 or later; hand-written kernels; on processors a
vendor's library or own code.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from paceline.topologies.catalogue.device_catalogue import DATA, ITEM_BYTES, SPECS, Kind, Spec, precision_named
from paceline.topologies.compute.layer_times import KINDS, Filling, LayerKind, Rates
from paceline.topologies.compute.model_work import sustained_bytes_per_s

Library = Literal["own", "early", "r4", "five", "six", "seven", "eight", "assembler", "vendor"]
OWN = r"\bnative\b|\bno[nt]? (mkl|cudnn)|without (mkl|cudnn)|slow cpu|torch-?7"
DIRECT = r"convnet2?\b"
"""hand-written direct convolutions of the years before cuDNN R3"""
ASSEMBLER = r"\bneon\b|nervana|assembl"
VERSION = r"cudnn ?[rv]?(\d+(?:\.\d+)?)"
FRAMEWORKS = (
    ("tensorflow", r"tensorflow|\btf ?\d|\btf\b"),
    ("torch", r"torch"),
    ("caffe", r"caffe"),
    ("mxnet", r"mxnet"),
)
PLANES = r"\bnchw\b"
CHANNELS_LAST = r"channels.last|\bnhwc\b"
"""PyTorch has planes where nothing is said; NVIDIA's recipes with DALI have channels last: FOUND (configs.yml)"""
COMPILED = r"\bxla\b|\bjax\b|torch\.compile|compiled"
FUSED = r"fused norm"
CAPTURED = r"cuda ?graphs?\b|mxnet (nvidia release )?2\d\.\d\d|mxnet 20\d{6}|mxnet 1\.[89]"
"""FOUND: graphs of CUDA are an option of MXNet 1.8, "for cluster-scale training jobs" (events@mxnet.apache.org); that
NVIDIA's releases since 2020 use them: INFERENCE"""
SINCE: tuple[tuple[int, Library], ...] = ((2020, "eight"), (2018, "seven"), (2017, "six"), (2015, "r4"), (0, "early"))
"""the generation in common use since a year: INFERENCE from the releases of cuDNN"""
VERSIONS: tuple[tuple[float, Library], ...] = (
    (8, "eight"), (7, "seven"), (5.1, "six"), (5, "five"), (3, "r4"), (0, "early"),
)  # fmt: skip


LATE_SEVEN = 2020
"""cuDNN 7 is 7.6 from then on, with the products in half precision of cuDNN 8: INFERENCE from its release notes"""


@dataclass(frozen=True, slots=True)
class Software:
    """A library's generation and a framework; "" for a framework that is not known.

    Args:
        planes: whether pictures lie plane by plane (NCHW), although products in half precision need channels last.
        compiled: whether a compiler joins small kernels.
        fused: whether normalisations and activations are joined with convolutions by hand.
        captured: whether the kernels of a step are launched as a captured graph: by the device, one after the other,
            without the framework's own work.
    """

    library: Library
    framework: str = ""
    planes: bool = False
    compiled: bool = False
    fused: bool = False
    captured: bool = False


MIDDLE = 3
"""years after a chip came out: INFERENCE"""


def read_software(words: str, kind: Kind, year: int | None = None) -> Software:
    """Returns the software that a table means.

    Args:
        words: the framework, its libraries, and remarks.
        kind: of the device.
        year: of the measurement; the present generation where neither it nor a version is given.

    >>> found = read_software("Torch and cuDNN 5, channels last", "gpu")
    >>> found.library, found.framework, found.planes, read_software("Caffe native", "gpu", 2016).library
    ('five', 'torch', False, 'own')
    """
    text = words.lower()
    framework = next((name for name, pattern in FRAMEWORKS if re.search(pattern, text)), "")
    return Software(
        _library(text, kind, year),
        framework,
        planes=bool(re.search(PLANES, text) or (framework == "torch" and not re.search(CHANNELS_LAST, text))),
        compiled=bool(re.search(COMPILED, text)),
        fused=bool(re.search(FUSED, text)),
        captured=bool(re.search(CAPTURED, text)),
    )


def _library(text: str, kind: Kind, year: int | None) -> Library:
    if re.search(OWN, text):
        return "own"
    if kind != "gpu":
        return "vendor"
    if re.search(ASSEMBLER, text):
        return "assembler"
    if re.search(DIRECT, text):
        return "early"
    if match := re.search(VERSION, text):
        known: Library = next(name for version, name in VERSIONS if float(match[1]) >= version)
        return "eight" if known == "seven" and (year or 0) >= LATE_SEVEN else known
    return library_of_year(year or SINCE[0][0])


def library_of_year(year: int) -> Library:
    """Returns the generation in common use in a year."""
    return next(name for since, name in SINCE if year >= since)


def usual_software(spec: Spec) -> Software:
    """Returns the software of a device where none is given: the generation in common use in the middle of its life.

    >>> from paceline.topologies.catalogue.device_catalogue import SPECS
    >>> usual_software(SPECS["p100-sxm2"]).library, usual_software(SPECS["a100-sxm4-80"]).library
    ('seven', 'eight')
    """
    return Software("vendor" if spec.kind != "gpu" else library_of_year(spec.year + MIDDLE))


TENSOR = 3.9
"""peaks so many times float32's belong to units for matrix products, which are harder to keep busy"""
LIMITED = 0.8
"""of the power of the card with the same chip that may draw most: INFERENCE"""
CONVOLUTIONS: frozenset[LayerKind] = frozenset(("1x1", "3x3", "large", "strided", "first", "depthwise"))
KIND_PRIORS: dict[LayerKind, float] = {
    "1x1": 0.4, "3x3": 0.6, "large": 0.5, "strided": 0.45, "first": 0.5, "depthwise": 0.05, "dense": 0.55,
    "attention": 0.4, "other": 0.5,
}  # fmt: skip
"""prior medians of e: INFERENCE; no published row has depthwise convolutions or products of activations"""
PRIORS: tuple[tuple[str, float, float], ...] = (
    ("kind ", 0.0, 0.3),
    ("class cpu", math.log(0.67), 0.3),
    ("class manycore", math.log(0.67), 0.3),
    ("architecture ", 0.0, 0.3),
    ("library own", math.log(0.4), 0.3),
    ("library early", math.log(0.6), 0.3),
    ("library ", 0.0, 0.3),
    ("framework ", 0.0, 0.15),
    ("mix ", 0.0, 0.15),
    ("tensor units", math.log(0.6), 0.3),
    ("tensor seven", math.log(0.6), 0.2),
    ("tensor ", 0.0, 0.2),
    ("half", 0.0, 0.2),
    ("limited power", math.log(0.9), 0.1),
    ("planes", math.log(0.75), 0.2),
    ("chip ", 0.0, 0.15),
    ("memory compiled", math.log(1.2), 0.15),
    ("memory fused", math.log(1.5), 0.2),
    ("memory ", 0.0, 0.15),
    ("memory", math.log(0.95), 0.1),
    ("launch compiled", math.log(0.5), 0.3),
    ("launch ", 0.0, 0.3),
    ("launch", math.log(4.0), 0.3),
)
"""the first prefix that fits, with the mean and the standard deviation of the logarithm: INFERENCE; a launch stands for
all that a framework's host does for a kernel, its part of the update of a published step included"""


def prior(name: str) -> tuple[float, float]:
    """Returns the mean and the standard deviation of a parameter before any published row is seen."""
    mean, sd = next((mean, sd) for prefix, mean, sd in PRIORS if name.startswith(prefix))
    if name.startswith("kind "):
        mean = math.log(KIND_PRIORS[name.removeprefix("kind ")])  # type: ignore[index]
    return mean, sd


def chip_key(spec: Spec) -> str:
    """Returns a key that devices with the same arithmetic share, such as a chip with more memory, or two sockets."""
    spec = spec if spec.part_of is None else SPECS[spec.part_of]
    per = spec.peaks["fp32"] / (spec.sockets if spec.kind == "cpu" else 1)
    return f"{spec.architecture or spec.kind} {per / 1e12:.4g}"


@cache
def _highest_power() -> dict[str, float]:
    highest: dict[str, float] = {}
    for spec in SPECS.values():
        highest[chip_key(spec)] = max(highest.get(chip_key(spec), 0.0), spec.power_w or 0.0)
    return highest


def limited_power(spec: Spec) -> bool:
    """Returns whether a card may draw much less than another one with the same chip, so that its clock falls.

    >>> limited_power(SPECS["a100-pcie-40"]), limited_power(SPECS["a100-sxm4-40"])
    (True, False)
    """
    return (spec.power_w or math.inf) <= LIMITED * _highest_power().get(chip_key(spec), 0.0)


def precision_class(spec: Spec, precision: str) -> str:
    """Returns "tensor" if products have units of their own, "half" for small numbers without them, otherwise "full".

    >>> from paceline.topologies.catalogue.device_catalogue import SPECS
    >>> precision_class(SPECS["v100-sxm2"], "fp16"), precision_class(SPECS["p100-sxm2"], "fp16")
    ('tensor', 'half')
    """
    precision = precision_named(precision)
    if spec.peak(precision) >= TENSOR * spec.peak("fp32"):
        return "tensor"
    return "half" if ITEM_BYTES[precision] < 4 else "full"


def common_terms(spec: Spec, precision: str, software: Software) -> Iterator[str]:
    """Yields the parameters of ln e that all kinds of layers share."""
    if spec.kind != "gpu":
        yield f"class {spec.kind}"
    yield f"architecture {spec.architecture}"
    yield f"library {software.library}{'' if spec.kind == 'gpu' else ' on hosts'}"
    if software.framework:
        yield f"framework {software.framework}"
    group = precision_class(spec, precision)
    if group == "tensor":
        yield "tensor units"
        yield f"tensor {spec.architecture}"
        yield f"tensor {software.library}"
        if limited_power(spec):
            yield "limited power"
    elif group == "half":
        yield "half"
    yield f"chip {chip_key(spec)}"


def terms(kind: LayerKind, spec: Spec, precision: str, software: Software) -> Iterator[str]:
    """Yields the parameters whose sum is ln e of a kind of layer."""
    yield f"kind {kind}"
    yield f"mix {software.library} {kind}"
    yield f"mix {spec.architecture} {kind}"
    yield from common_terms(spec, precision, software)
    if precision_class(spec, precision) == "tensor":
        yield f"tensor {kind}"
        if software.planes and kind in CONVOLUTIONS:
            yield "planes"


def reachable_flops_per_s(spec: Spec, precision: str) -> float:
    """Returns the rate that efficiencies are relative to: the best measured matrix product, or else the peak.

    A product measured in one precision counts for all precisions with the same peak.
    """
    peak = spec.peak(precision)
    return min([peak, *(rate for name, rate in spec.gemms.items() if spec.peaks[name] == peak)])


def filling_of(spec: Spec, software: Software) -> Filling:
    """Returns how products are spread over a device by its software."""
    return Filling(spec.units or (spec.cores if spec.kind == "manycore" else None), per_image=software.library == "own")


def memory_terms(spec: Spec, software: Software) -> Iterator[str]:
    """Yields the parameters of the bandwidth that is reached, as a factor on the catalogue's."""
    yield "memory"
    yield f"memory {spec.architecture}"
    yield f"memory {software.library}"
    if software.compiled:
        yield "memory compiled"
    if software.fused:
        yield "memory fused"


def launch_terms(spec: Spec, software: Software) -> Iterator[str]:
    """Yields the parameters of the cost of a kernel, as a factor on the catalogue's; on GPUs only."""
    if spec.kind != "gpu":
        return
    yield "launch"
    if software.framework:
        yield f"launch {software.framework}"
    if software.compiled:
        yield "launch compiled"


def launches_ahead(spec: Spec) -> bool:
    """Returns whether a host launches kernels ahead of the device; a processor executes what it issues."""
    return spec.kind == "gpu"


@dataclass(frozen=True, eq=False)
class Parameters:
    """Fitted values by name; a parameter without a value has its prior mean."""

    values: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.values.get(name, prior(name)[0])

    def efficiency(self, kind: LayerKind, spec: Spec, precision: str, software: Software) -> float:
        """Returns the part of the peak that a kind of layer reaches at full utilisation.

        Args:
            kind: of the layer.
            spec: the device.
            precision: of the arithmetic.
            software: library and framework.

        It may pass 1, because fast convolutions need fewer products than are counted.
        """
        return math.exp(sum(self[name] for name in terms(kind, spec, precision, software)))

    def knows(self, spec: Spec) -> bool:
        """Returns whether a row of this chip was in the data."""
        return f"chip {chip_key(spec)}" in self.values

    def rates(self, spec: Spec, precision: str, software: Software, *, needed_bytes: float = 0.0) -> Rates:
        """Returns what a device contributes to the times of layers.

        Args:
            spec: the device.
            precision: of the arithmetic.
            software: library and framework.
            needed_bytes: in memory; it is slower where so many bytes spill into a far one.
        """
        precision = precision_named(precision)
        peak = reachable_flops_per_s(spec, precision)
        framework = 0.0 if software.captured else sum(self[name] for name in launch_terms(spec, software))
        return Rates(
            flops_per_s=tuple(peak * self.efficiency(kind, spec, precision, software) for kind in KINDS),
            bytes_per_s=sustained_bytes_per_s(spec, needed_bytes)
            * math.exp(sum(self[name] for name in memory_terms(spec, software))),
            launch_s=spec.launch_s * math.exp(framework),
            filling=filling_of(spec, software),
            scale=ITEM_BYTES[precision] / 4,
            ahead=launches_ahead(spec) and not software.captured,  # the device itself launches what was captured
        )


FILE = DATA / "device_parameters.csv"


@cache
def fitted_parameters() -> Parameters:
    """Returns the parameters fitted to all rows of `throughput.csv`.

    `python -m paceline.scenarios.sections.fitted_devices --write` writes the file.
    """
    with FILE.open(newline="", encoding="utf-8") as file:
        return Parameters({line["parameter"]: float(line["value"]) for line in csv.DictReader(file)})
