"""How far predicted steps are from published ones, by the chip and the network.

`paceline validate` computes the figures, and `make validation` stores them in the file. A prediction on devices of the
catalogue states those of the most similar rows: with its chip and its network, else with its chip, else with its
network, else of all rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

FILE = Path(__file__).parent / "data" / "step_errors.csv"
SHARE = 0.8
"""share of the rows in an interval; that of other intervals of predictions"""
LEAST = 5
"""rows below which less similar ones are taken: INFERENCE, an interval of fewer says little"""
ANY, ONE_NODE = "any", "one node"
"""in place of a chip or network: all of them; in place of a network: runs in one node"""
PAGE = "docs/results/validation.md"


class StepErrors(TypedDict):
    """The published rows that are most similar to a prediction.

    `chip` and `network` are names of the catalogue, `ANY` or `ONE_NODE`; `rows` is their number; `low` and `high` are
    the ends of the interval of measured / predicted step time that has `SHARE` of the rows; `median` is the median of
    |predicted − measured| / measured.
    """

    chip: str
    network: str
    rows: int
    low: float
    high: float
    median: float


@dataclass(frozen=True, slots=True)
class Place:
    """What decides which rows are similar: a chip, and the network between the nodes."""

    chip: str
    network: str


@cache
def table() -> dict[Place, StepErrors]:
    """Returns all figures by chip and network.

    >>> table()[Place(ANY, ANY)]["rows"] >= max(errors["rows"] for errors in table().values())
    True
    """
    with FILE.open(newline="", encoding="utf-8") as lines:
        return {
            Place(row["chip"], row["network"]): StepErrors(
                chip=row["chip"], network=row["network"], rows=int(row["rows"]), low=float(row["low"]),
                high=float(row["high"]), median=float(row["median"]),
            )
            for row in csv.DictReader(lines)
        }  # fmt: skip


def most_similar(chip: str, networks: Iterable[str]) -> StepErrors:
    """Returns the errors of the most similar published rows.

    Args:
        chip: the name of the device in the catalogue.
        networks: names of links between the nodes, the first known one counts; `ONE_NODE` for a single node.

    >>> most_similar("no such chip", ["no such network"])["chip"]
    'any'
    """
    known = table()
    network = next((name for name in networks if Place(ANY, name) in known), ANY)
    for place in (Place(chip, network), Place(chip, ANY), Place(ANY, network)):
        if place in known and known[place]["rows"] >= LEAST:
            return known[place]
    return known[Place(ANY, ANY)]


def sentence(errors: StepErrors) -> str:
    """Returns the errors in words.

    >>> errors = StepErrors(chip="t4", network="eth-10g", rows=40, low=0.9, high=1.25, median=0.08)
    >>> sentence(errors).partition(" (")[0]
    'Published steps with t4 over eth-10g took 0.90 to 1.25 times as long as predicted from fewer devices'
    """
    chip = "" if errors["chip"] == ANY else f" with {errors['chip']}"
    where = {ANY: "", ONE_NODE: " in one node"}.get(errors["network"], f" over {errors['network']}")
    which = f"{chip}{where}" or " of all kinds"
    interval = f"{100 * SHARE:.0f} % of {errors['rows']} rows; median error {100 * errors['median']:.1f} %"
    return (
        f"Published steps{which} took {errors['low']:.2f} to {errors['high']:.2f} times as long as predicted from "
        f"fewer devices ({interval}): see {PAGE}."
    )
