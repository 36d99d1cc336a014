"""Parses the words of published tables: counts, numbers, and the chips that are named.

Rules of this file: single words decide, never the full name of a system. What cannot be interpreted raises `Unread`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.algorithms.core.errors import PacelineError

Row = Mapping[str, str]


class Unread(PacelineError):
    """A row that cannot be predicted, with the reason."""


@dataclass(frozen=True, slots=True)
class Chip:
    """The properties of a chip that follow from its name."""

    generation: Literal[
        "kepler", "maxwell", "pascal", "volta", "ampere", "hopper", "blackwell", "cdna", "cpu", "manycore"
    ]
    year: int
    pcie: int = 3
    nvlink: str = ""
    links: int = 0
    bridged: int = 0
    """NVLinks of the bridge that the card can carry"""

    @property
    def architecture(self) -> str:
        """The chip's architecture by the catalogue's name; "" for CPUs and AMD's GPUs."""
        return {"cdna": "", "cpu": "", "manycore": "knights-landing"}.get(self.generation, self.generation)

    @property
    def is_host(self) -> bool:
        """Whether ranks are processes on a CPU, not GPUs."""
        return self.generation in ("cpu", "manycore")


CHIPS: tuple[tuple[str, Chip], ...] = (
    (r"\bg?b[123]00\b|blackwell", Chip("blackwell", 2024, 5, "nvlink4", 36)),
    (r"\bg?h200", Chip("hopper", 2024, 5, "nvlink4", 18, 18)),
    (r"\bg?h[138]00|\bh20\b|hopper|\bp5[\be.]", Chip("hopper", 2022, 5, "nvlink4", 18, 12)),
    (r"\ba[18]00|\bp4de?\b", Chip("ampere", 2020, 4, "nvlink3", 12, 12)),
    (r"\ba[34]0\b|\ba10g?\b|a6000|rtx ?30|ampere|\bg5\b|\bl40?s?\b|rtx ?40|4090|3090", Chip("ampere", 2020, 4)),
    (r"\bv100|volta|\bp3(dn)?\b", Chip("volta", 2017, 3, "nvlink2", 6)),
    (r"\bt4\b|turing|2080|titan ?rtx|titan ?v\b|\bg4dn\b", Chip("volta", 2018)),
    (r"\bp100", Chip("pascal", 2016, 3, "nvlink1", 4)),
    (r"pascal|10[5678]0|\bp40?\b|titan ?xp", Chip("pascal", 2016)),
    (r"\bm[46]0\b|titan ?x|maxwell|gtx ?9[0-9]0", Chip("maxwell", 2015)),
    (r"\bk[2468]0|kepler|titan ?(black|z)?\b|\bp2\b", Chip("kepler", 2013, 2)),
    (r"\bmi ?3[0-9]{2}", Chip("cdna", 2023, 5, "infinity-fabric", 7)),
    (r"\bmi ?2[0-9]{2}|frontier|\blumi\b", Chip("cdna", 2021, 4, "infinity-fabric", 3)),
    (r"\bmi ?(50|60|100)\b|\bradeon|\bvega\b", Chip("cdna", 2019, 4)),
    (r"\bknl\b|knights|xeon ?phi|\b72[1359]0f?\b", Chip("manycore", 2016)),
    (r"\bcpus?\b|xeon|epyc|\be5-|power[89]|skylake|milan|genoa|haswell|broadwell", Chip("cpu", 2018)),
)
"""words and chips, the first that fits; years, PCIe generations and NVLinks MEMORY high (links as in `wires`), those
that AMD's rings can use MEMORY medium
"""


def text_of(row: Row, *columns: str) -> str:
    """Returns the texts of the columns in lower case."""
    return " ; ".join(str(row.get(column) or "") for column in columns).lower()


def whole(row: Row, column: str) -> int | None:
    """Returns a count, or None if there is none. Raises `Unread` if it is not a count."""
    text = str(row.get(column) or "").strip()
    if not text or text.lower() in ("nan", "none", "not stated", "?"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise Unread(f"{column}: found {text!r}, expected a count") from None
    if not math.isfinite(value) or value < 1:
        raise Unread(f"{column}: found {text!r}, expected a count of 1 or more")
    return int(value)


def number(row: Row, column: str) -> float:
    """Returns a positive number. Raises `Unread`."""
    try:
        value = float(str(row.get(column) or "nan"))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise Unread(f"{column}: found {row.get(column)!r}, expected a positive number")
    return value


def chip_of(*texts: str, hosts: bool = True) -> Chip | None:
    """Returns the chip that the first text with one names. Without hosts only GPUs count, as CPUs are often named
    beside GPUs.
    """
    for text in texts:
        for words, chip in CHIPS:
            if (hosts or not chip.is_host) and re.search(words, text):
                return chip
    return None
