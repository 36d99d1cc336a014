"""Reads the network between nodes from words: kind, rate and number of cards.

Rules of this file: the sustained rate of a link comes from the catalogue of links. Words without a rate mean a default,
which is listed in `assumed`. GB/s in a table are bytes and mostly of NVLink; network rates are given in Gbit/s.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from paceline.simulator.collectives.tuning import TCP
from paceline.topologies.graphs.links import LinkModel, Medium, link_named
from published_timings.parsing import Chip, Row, text_of


@dataclass(frozen=True, slots=True)
class Hop:
    """The path of a rank's messages: its own share of the bandwidth, one way, when its neighbours are idle."""

    medium: Medium
    bytes_per_s: float
    latency_s: float
    cable: LinkModel
    transport: str = "any"
    cards: int = 1


INFINIBAND = {
    "sdr": 10.0,
    "ddr": 20.0,
    "qdr": 40.0,
    "fdr": 56.0,
    "edr": 100.0,
    "hdr100": 100.0,
    "hdr": 200.0,
    "ndr": 400.0,
}
NAMED = {
    10.0: "ib-qdr",
    20.0: "ib-qdr",
    40.0: "ib-qdr",
    56.0: "ib-fdr",
    100.0: "ib-edr",
    200.0: "ib-hdr",
    400.0: "ib-ndr",
}
BY_YEAR = ((2022, 400.0), (2020, 200.0), (2016, 100.0), (0, 56.0))
"""InfiniBand's usual rate in machines since that year: MEMORY medium"""


CARDS = r"qdr|fdr|edr|hdr|ndr|ib\b|infiniband|hca|nics?\b|slingshot|efa\b|omni-?path|opa\b|roce|connectx|cx-?\d"
NETWORK_WORDS = ("topology", "interconnect", "system", "library", "notes", "device")


def between(chip: Chip, row: Row, switched: bool, ranks: int, assumed: list[str]) -> Hop:
    """Returns the network between nodes: a cable and the number of cards, from the words of the columns in order."""
    words = text_of(row, *NETWORK_WORDS)
    cards, rate = _rate(" ; ".join(str(row.get(column) or "") for column in NETWORK_WORDS))
    if cards is None:
        one = re.search(r"\b(1|one|single) (nic|port|rail|card|hca)|1 port", words)
        cards = 1 if one else ranks if switched else 4 if re.search(r"\bdgx-?1\b", words) else 1
        if not one:
            assumed.append(f"network cards not given: {cards} a node")
    cable = _cable(words, rate, chip, ranks, assumed)
    transport = "tcp" if cable.name in TCP else "any"
    return Hop("network", cards * cable.bytes_per_s, cable.latency_s, cable, transport, cards)


def _rate(words: str) -> tuple[int | None, float | None]:
    """Returns the number of cards of a node and Gbit/s of one, as far as given. GB/s are bytes, and of another link."""
    many = r"(?:(\d+)\s*[x×]\s*)?(?:(\d+)\s*[x×]\s*)?"
    unit = r"(\d+(?:\.\d+)?)\s*-?(?:Gb/s|Gbps|Gbit(?:/s)?|[Gg]b[Ee]|Gig[Ee]|G\b|Gb\b)"
    found = re.search(many + unit, words)
    if found:
        times = math.prod(int(found[n]) for n in (1, 2) if found[n])
        return (times if (found[1] or found[2]) and times <= 64 else _cards(words)), float(found[3]) or None
    return _cards(words), None


def _cards(words: str) -> int | None:
    """Returns a count before the name of a network or of a card."""
    found = re.search(rf"(?i)(\d+)\s*[x×]\s*(?:{CARDS})", words)
    if found and 1 <= int(found[1]) <= 64:
        return int(found[1])
    return 2 if re.search(r"(?i)dual[- ]?(rail|port|nic)", words) else None


def _at(name: str, gbit: float, usual: float) -> LinkModel:
    """Returns a link of the catalogue at another rate; `usual` is the raw rate of the link, in Gbit/s."""
    link = link_named(name)
    return link if gbit == usual else replace(link, bytes_per_s=gbit / usual * link.bytes_per_s)


def _cable(words: str, rate: float | None, chip: Chip, ranks: int, assumed: list[str]) -> LinkModel:
    """Returns the cable of one card: a link of the catalogue, at the rate that the words give."""
    for kind, name, raw in (
        ("omni-path|\\bopa\\b|omnipath", "omni-path-100", 100.0),
        ("aries|gemini", "aries", 100.0),
        ("slingshot", "slingshot-200g", 200.0),
        ("\\befa\\b|elastic fabric", "efa-100g", 100.0),
    ):
        if re.search(kind, words):
            usual = _efa_rate(chip, ranks) if name == "efa-100g" else raw
            if rate is None:
                assumed.append(f"rate not given: {usual:g} Gbit/s")
            if name == "efa-100g" and not chip.is_host and chip.year < 2020 and (rate or usual) >= 100.0:
                return link_named("efa-100g-staged")
            return _at(name, rate or usual, raw)
    speed = next((name for name in ("hdr100", *INFINIBAND) if re.search(rf"\b{name}\b", words)), None)
    if "roce" in words:
        return _at("eth-100g-roce", rate or 100.0, 100.0)
    if speed or re.search(r"infiniband|ibverbs|\bib\b|\brdma\b|\bucx\b|\bgdr\b", words):
        usual = next(value for year, value in BY_YEAR if chip.year >= year)
        gbit = INFINIBAND[speed] if speed else rate or usual
        if not speed and rate is None:
            assumed.append(f"InfiniBand's rate not given: {usual:g} Gbit/s")
        return link_named(NAMED[min(NAMED, key=lambda known: abs(known - gbit))])
    return _ethernet(words, rate, chip, assumed)


def _efa_rate(chip: Chip, ranks: int) -> float:
    """Returns Gbit/s of AWS's instances with EFA: 25 with one GPU, otherwise by the year of the GPUs: MEMORY medium."""
    return 25.0 if ranks == 1 else 100.0 if chip.year < 2022 else 200.0


def _ethernet(words: str, rate: float | None, chip: Chip, assumed: list[str]) -> LinkModel:
    """Returns TCP at any rate; latency and fraction of the raw rate are those of the nearest known link."""
    if rate is None and re.search(r"gvnic|gke|cloud", words):
        cloud = link_named("gke-tcp")
        return replace(link_named("eth-100g"), latency_s=cloud.pieces[0].latency_s, bytes_per_s=cloud.bytes_per_s)
    if rate is None:
        rate = 10.0 if chip.year < 2017 else 25.0 if re.search(r"tcp|ether|cloud|aws|gcp|vm", words) else 100.0
        assumed.append(f"network not given: {rate:g} Gbit/s")
        if rate == 100.0:
            return link_named("ib-edr")
    known = {1.0: "eth-1g", 10.0: "eth-10g", 25.0: "eth-25g", 100.0: "eth-100g"}
    near = min(known, key=lambda one: abs(math.log(one / rate)))
    return _at(known[near], rate, near)


NO_NETWORK = Hop("network", link_named("ib-edr").bytes_per_s, link_named("ib-edr").latency_s, link_named("ib-edr"))
"""of a machine of one node, which does not use it"""
