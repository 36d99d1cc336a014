"""Generations of software, read from the words that tables use for it.

Words decide, never the name of a system. Where a library's version is not given, the year stands for it. Generations
are those in which convolutions changed: own code (a framework's loops over a matrix product), cuDNN before R3, R3 and
R4, 5.0 with the first Winograd convolutions, 5.1 and 6, 7, and 8 or later; hand-written kernels; on processors a
vendor's library or own code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from paceline.topologies.catalogue.device_catalogue import Kind, Spec

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
    """

    library: Library
    framework: str = ""
    planes: bool = False
    compiled: bool = False
    fused: bool = False


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
