"""Emulated networks: the hosts of a plan as namespaces of this machine, joined as in the scenario.

Two implementations:

* ``tc``: for a star of links whose latencies are within this machine's own, or if the kernel has netem: token buckets
  around a bridge, in the kernel.
* ``forwarder``: for any other topology and latency. A process carries the packets (`forwarder`), on lines of up to
  `CEILING_BYTES_PER_S`. Scenarios with faster lines are refused.

Rules of this file:

* The rate of a line is the rate of messages, as in the simulator; headers are added to it.
* Deviations of a run's network are in its record: dropped packets, and how late others were.
* Inside a host, messages use this machine's memory; the scenario's `intra_node_link` is not emulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from paceline.algorithms.core.errors import InputError
from paceline.backend.emulation.emulated_hosts import MOST, Hosts, Spoke, has_netem, star
from paceline.backend.posix.network_namespaces import refuse
from paceline.scenarios.resolution.plan import Plan
from paceline.topologies.packet_lines import Lines, Spokes

if TYPE_CHECKING:
    from paceline.backend.emulation.forwarder import Forwarder  # imports a compiler, so only where it is needed

Way = Literal["tc", "forwarder"]
CEILING_BYTES_PER_S = 125e6
"""of one line, measured on two cores with 88 % of their time used by other programs: 83 to 100 % of it were reached.
Without a rate limit: 1.4 to 6 Gbit/s, depending on packet size and load, which all lines share"""
TC_BYTES_PER_S = 125e6
"""the highest rate at which token buckets were measured here"""
OWN_LATENCY_S = 1e-4
"""chosen by us: the best latency of a small gloo message on this machine; tc adds no delay up to it"""
FRAME = 1514 / 1448
"""the size of a full Ethernet frame relative to the message bytes in it"""
HELD_S = 1e-3
"""an emulated network that is later than this is reported as late"""


@dataclass(frozen=True, slots=True)
class Emulation:
    """The emulated network of a run, and how it is implemented."""

    way: Way
    hosts: Hosts
    lines: Lines
    forwarder: Forwarder | None = None

    @property
    def packet_bytes(self) -> int:
        """The size of the largest packet."""
        return 1500 if self.forwarder is None else self.forwarder.packet_bytes

    @property
    def words(self) -> str:
        """The network in one line."""
        slowest, fastest = self.lines.slowest, self.lines.fastest
        if slowest is None or fastest is None:
            return "one host, and nothing to emulate"
        rates = " to ".join(dict.fromkeys(_rate(line.bytes_per_s) for line in (slowest, fastest)))
        longest = f"up to {1e3 * self.lines.longest_s:g} ms one way"
        how = "token buckets of the kernel" if self.way == "tc" else "a forwarder in user space"
        return f"emulated network: {len(self.lines.hosts)} hosts, lines of {rates}, {longest}, by {how}"

    def record(self) -> dict[str, Any]:
        """Returns the entries of a run's record, at its end."""
        recorded: dict[str, Any] = {
            "way": self.way,
            "hosts": list(self.lines.hosts),
            "lines": [[line.name, line.bytes_per_s, line.latency_s] for line in self.lines.lines],
            "packet_bytes": self.packet_bytes,
            "words": self.words,
        }
        if self.forwarder is None:
            return recorded | {"dropped": self.hosts.dropped()}
        return recorded | self.forwarder.record()


def said(record: dict[str, Any] | None) -> list[str]:
    """Returns the warnings about a run's emulated network; empty without one.

    >>> said({"way": "forwarder", "lines": [], "dropped": 2, "late_p99_s": 0.0002, "late_max_s": 0.03})
    ['the emulated network dropped 2 packets at full queues, which TCP has sent again']
    """
    if record is None:
        return []
    words = []
    if record.get("late_p99_s", 0.0) > HELD_S:
        late, most = (1e3 * record[key] for key in ("late_p99_s", "late_max_s"))
        words.append(
            f"the emulated network was late by {late:.1f} ms or more for 1 % of its packets, by {most:.1f} ms at most: "
            "the machine was busy"
        )
    fastest = max((rate for _, rate, _ in record["lines"]), default=0.0)
    if record["way"] == "tc" and fastest > TC_BYTES_PER_S:
        words.append(
            f"the emulated network has links of {_rate(fastest)}; token buckets were measured up to "
            f"{_rate(TC_BYTES_PER_S)}, so it is not known whether they reach these rates"
        )
    if record["dropped"]:
        words.append(
            f"the emulated network dropped {record['dropped']} packets at full queues, which TCP has sent again"
        )
    return words


@contextmanager
def emulated(plan: Plan) -> Iterator[Emulation]:
    """Creates the hosts of a plan's ranks for the block.

    Raises:
        InputError: root rights, iproute2 or a kernel feature is missing, or the network is too fast to emulate.
    """
    lines = plan.lines
    refuse_emulation(plan)
    spokes = spokes_by_tc(lines)
    if spokes is not None:
        with star(spokes, lines.places) as hosts:
            yield Emulation("tc", hosts, lines)
    else:
        from paceline.backend.emulation.forwarder import forwarded

        with forwarded(lines) as forwarder:
            yield Emulation("forwarder", forwarder.hosts, lines, forwarder)


def refuse_emulation(plan: Plan) -> None:
    """Raises `InputError` if a plan's network cannot be emulated here, before anything has run."""
    refuse()
    if plan.cluster.link_faults:
        raise InputError(
            f"{plan.scenario_name}: cluster.network.faults: found links that fail, which an emulated network does not "
            "support; expected none (`--set cluster.network.faults=[]`)"
        )
    lines = plan.lines
    if len(lines.hosts) > MOST:
        raise InputError(
            f"{plan.scenario_name}: cluster.nodes: found {len(lines.hosts)} hosts; expected at most {MOST}"
        )
    fastest = lines.fastest
    if fastest is not None and fastest.bytes_per_s > CEILING_BYTES_PER_S and spokes_by_tc(lines) is None:
        raise InputError(f"{plan.scenario_name}: {_too_fast(plan, fastest.name, fastest.bytes_per_s)}")


def _too_fast(plan: Plan, name: str, bytes_per_s: float) -> str:
    factor = plan.time_dilation * bytes_per_s / CEILING_BYTES_PER_S
    return (
        f"cluster.network: found {_rate(bytes_per_s)} on {name}; the forwarder on this machine holds at most "
        f"{_rate(CEILING_BYTES_PER_S)} (measure it by `python benchmarks/emulation.py`); expected slower links, or "
        f"`train.time_dilation: {-(-factor // 1):.0f}` with `train.pace: device`, which slows devices and network alike"
    )


def _rate(bytes_per_s: float) -> str:
    return f"{8e-6 * bytes_per_s:.4g} Mbit/s"


def spokes_by_tc(lines: Lines) -> list[Spoke] | None:
    """Returns the links of a star for tc; None if tc alone cannot emulate these lines."""
    spokes = lines.spokes()
    if spokes is None:
        return None
    if lines.longest_s <= OWN_LATENCY_S:
        return _spokes(spokes, delays=False)
    return _spokes(spokes, delays=True) if has_netem() else None


def _spokes(spokes: Spokes, *, delays: bool) -> list[Spoke]:
    return [
        Spoke(
            out.bytes_per_s * FRAME,
            into.bytes_per_s * FRAME,
            out.latency_s if delays else 0.0,
            into.latency_s if delays else 0.0,
        )
        for out, into in zip(spokes.out, spokes.into, strict=True)
    ]
