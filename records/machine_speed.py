"""The speed of a machine during a calibration or a run, from the samples of its ranks' speed references.

* A speed reference is a fixed piece of arithmetic and one of memory traffic. *Slowness* is the geometric mean of their
  processor times, in units of `NOMINAL_S`, times the elapsed seconds of a busy core for each second of processor time.
  It is 1 on no machine in particular; only quotients have a meaning.
* A machine whose slowness is 1.2 at one time and 1 at another needs 1.2 times as long for a gradient, an update or a
  message in memory. So times are divided by the slowness that their ranks had, and multiplied by another one.
* The slowness at a time is the mean over the ranks of a run: they share the processors, and one clock keeps their
  order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from paceline.algorithms.core.values import Rank
from paceline.records.trace import Trace

BIN_S = 0.5
"""seconds whose samples are stored as one figure for each rank; provenance: ours, shorter than the changes that were
seen, and long enough for 25 samples and for counters of hundredths of a second"""
NOMINAL_S = 2e-5
"""the unit of slowness; provenance: ours, so that it is about 1 on a processor of 2023"""


class SpeedSample(NamedTuple):
    """One sample of a rank's speed reference."""

    at_s: float
    """on the run's clock"""
    arithmetic_s: float
    """processor seconds of the piece of arithmetic"""
    memory_s: float
    """processor seconds of the piece of memory traffic"""
    waited_s: float
    """seconds until now for which the rank's thread was ready but had no core"""
    busy_s: float = 0.0
    """processor seconds of all cores of the machine until now"""
    stolen_s: float = 0.0
    """seconds that a hypervisor has stolen from busy cores until now"""


class SpeedBin(NamedTuple):
    """The samples of a rank within `BIN_S`."""

    at_s: float
    """the mean time of the samples"""
    arithmetic_s: float
    """the median of the samples"""
    memory_s: float
    """the median of the samples"""
    stretch: float
    """elapsed seconds of a busy core for each second of its processor time: (busy + stolen) / busy"""

    @property
    def slowness(self) -> float:
        """How slow the machine was for this rank."""
        return self.stretch * math.sqrt(self.arithmetic_s * self.memory_s) / NOMINAL_S


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """The speed references of a run's or a probe's ranks.

    Args:
        ranks: the bins of each rank, by time.
        waiting: the share of its time for which each rank's thread was ready but had no core.
    """

    ranks: Mapping[int, Sequence[SpeedBin]]
    waiting: Mapping[int, float]

    @classmethod
    def of(cls, samples: Mapping[int, Sequence[SpeedSample]]) -> MachineSpeed | None:
        """Returns the speed from the samples of each rank; None if there are none.

        >>> samples = [SpeedSample(0.0, 4e-5, 1e-5, 0.0, 1.0, 0.0), SpeedSample(0.4, 4e-5, 1e-5, 0.1, 1.4, 0.2)]
        >>> speed = MachineSpeed.of({0: samples})
        >>> round(speed.slowness, 9), round(speed.waiting[0], 9)
        (1.5, 0.25)
        """
        made = {rank: each for rank, each in samples.items() if each}
        if not made:
            return None
        waiting = {rank: _waiting(each) for rank, each in made.items()}
        return cls({rank: tuple(_bins(each)) for rank, each in made.items()}, waiting)

    @classmethod
    def notes(cls, samples: Mapping[Rank, Sequence[SpeedSample]]) -> dict[str, Any]:
        """Returns the speed from the samples of each rank as a note of a record; nothing if there are no samples."""
        speed = cls.of({int(rank): each for rank, each in samples.items()})
        return {} if speed is None else {"speed": speed.record()}

    @property
    def slowness(self) -> float:
        """The mean over time and ranks."""
        return float(np.mean([np.mean([each.slowness for each in bins]) for bins in self.ranks.values()]))

    @property
    def spread(self) -> float:
        """The standard deviation of the slowness over time, over its mean."""
        over_time = [slowness for _, slowness in self._over_time()]
        return float(np.std(over_time)) / self.slowness if over_time else 0.0

    def _over_time(self) -> list[tuple[float, float]]:
        """Returns the slowness as a mean over ranks, with the middle of each time."""
        together = defaultdict[int, list[SpeedBin]](list)
        for bins in self.ranks.values():
            for each in bins:
                together[int(each.at_s // BIN_S)].append(each)
        return [
            ((number + 0.5) * BIN_S, float(np.mean([each.slowness for each in bins])))
            for number, bins in sorted(together.items())
        ]

    def clock(self) -> Callable[[float], float]:
        """Returns the function that turns a time of the run into the time at which it would be at slowness 1.

        t ↦ ∫₀ᵗ dτ / slowness(τ), where the slowness is constant between the middles of two neighbouring intervals.

        >>> fast, slow = (SpeedBin(at_s, NOMINAL_S, NOMINAL_S, stretch) for at_s, stretch in ((0.1, 1.0), (0.6, 2.0)))
        >>> speed = MachineSpeed({0: (fast, slow)}, {0: 0.0})
        >>> at = speed.clock()
        >>> at(0.5), at(1.5)
        (0.5, 1.0)
        """
        middles, slowness = (np.array(column) for column in zip(*self._over_time(), strict=True))
        edges = np.concatenate([[0.0], (middles[1:] + middles[:-1]) / 2])
        steady = np.concatenate([[0.0], np.cumsum(np.diff(edges) / slowness[:-1])])

        def at(time_s: float) -> float:
            place = max(0, int(np.searchsorted(edges, time_s, side="right")) - 1)
            return float(steady[place] + (time_s - edges[place]) / slowness[place])

        return at

    def record(self) -> dict[str, Any]:
        """Returns the speed for `run.json`, in seconds."""
        return {
            "slowness": self.slowness,
            "spread": self.spread,
            "ranks": [
                {"rank": rank, "waiting": self.waiting[rank], "bins": [list(each) for each in bins]}
                for rank, bins in self.ranks.items()
            ],
        }

    @classmethod
    def read(cls, record: Mapping[str, Any] | None) -> MachineSpeed | None:
        """Returns the speed from `run.json`; None if the run has none."""
        if not record:
            return None
        return cls(
            {part["rank"]: tuple(SpeedBin(*each) for each in part["bins"]) for part in record["ranks"]},
            {part["rank"]: part["waiting"] for part in record["ranks"]},
        )


def steady(trace: Trace) -> tuple[Trace, float]:
    """Returns the record of a run with its times at slowness 1, and the slowness that the run had.

    A record without a speed reference is returned as it is, with slowness 1.

    Args:
        trace: the record.
    """
    speed = MachineSpeed.read(trace.notes.get("speed"))
    if speed is None:
        return trace, 1.0
    at = speed.clock()
    spans = [
        span._replace(
            start_s=at(span.start_s), end_s=at(span.end_s), ready_s=None if span.ready_s is None else at(span.ready_s)
        )
        for span in trace.spans
    ]
    now_s = {rank: [at(each) for each in times] for rank, times in trace.now_s.items()}
    return replace(trace, spans=spans, now_s=now_s, wall_s=at(trace.wall_s)), speed.slowness


def _bins(samples: Sequence[SpeedSample]) -> Iterator[SpeedBin]:
    bins = defaultdict[int, list[SpeedSample]](list)
    for sample in samples:
        bins[int(sample.at_s // BIN_S)].append(sample)
    before = samples[0]
    for _, each in sorted(bins.items()):
        at_s, arithmetic_s, memory_s = (list(column) for column in list(zip(*each, strict=True))[:3])
        busy_s, stolen_s = each[-1].busy_s - before.busy_s, each[-1].stolen_s - before.stolen_s
        stretch = 1.0 + stolen_s / busy_s if busy_s > 0 else 1.0
        before = each[-1]
        yield SpeedBin(float(np.mean(at_s)), float(np.median(arithmetic_s)), float(np.median(memory_s)), stretch)


def _waiting(samples: Sequence[SpeedSample]) -> float:
    first, last = samples[0], samples[-1]
    elapsed_s = last.at_s - first.at_s
    return min(1.0, (last.waited_s - first.waited_s) / elapsed_s) if elapsed_s > 0 else 0.0
