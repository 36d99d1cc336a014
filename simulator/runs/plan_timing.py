"""The seconds of each rank's own work in a simulated run: device times of the plan, and charges or measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.traffic import COMBINE
from paceline.algorithms.core.values import Rank
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.cells import PASSES
from paceline.simulator.kernel.crash_timeline import CrashTimeline, timeline_of
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import Profile
from paceline.topologies.faults.gradient_variation import gradient_factor
from paceline.topologies.faults.jitter import Factors
from paceline.topologies.faults.worker_faults import CrashModel

LINE_BYTES = 64
"""bytes of a line of a processor's cache"""
NOTHING = Profile()
"""the costs of a rank's own work besides gradients, if no machine was measured: those of the cluster's catalogue"""


@dataclass(frozen=True, slots=True)
class PlanTiming:
    """The device times of a plan, and the measured costs of a machine for other work."""

    plan: Plan
    costs: Profile = NOTHING
    _known: dict[int, GradientTimes] = field(default_factory=dict, compare=False)
    """the times of gradients by the number of samples"""

    @property
    def completes(self) -> bool:
        return bool(self.costs.gradients)

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        if self.costs.gradients:
            times, host = self._varying(samples), self.plan.job.team[rank].host
            return self.costs.gradient_s(samples) * gradient_factor(times, self.plan.seed, int(rank), host, step)
        return self.plan.compute_s(rank, step, samples, start_s) + self.costs.late_s

    def many(self, ranks: Sequence[int]) -> PlanTimes | None:
        """Returns the times of many ranks together; None if the times of gradients were measured on a machine.

        Args:
            ranks: the ranks.
        """
        return None if self.costs.gradients else PlanTimes(self.plan, ranks, self.costs.late_s)

    def paused_s(self, samples: int, pause_s: float) -> float:
        return self.costs.gradient(samples).paused_s(pause_s) if self.costs.gradients else 0.0

    def started_factor(self, samples: int) -> float:
        return self.costs.gradient(samples).started if self.costs.gradients else 1.0

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        if self.costs.gradients and (times := self.costs.gradient(self.plan.job.batches[0])).backward:
            return times.layer_shares()
        return self.plan.layer_shares()

    def timeline(self, rank: Rank) -> CrashTimeline | None:
        cluster, seed = self.plan.cluster, self.plan.seed
        if rank >= cluster.workers or not cluster.faults.shows:
            return None
        node, nodes = cluster.node_of(rank), len(cluster.nodes)
        crashes = cluster.faults.crashes or CrashModel()
        return timeline_of(crashes, self.plan.speed_of(rank), rank=int(rank), node=node, nodes=nodes, seed=seed)

    def work_s(self, rank: Rank, op: Charge) -> float:
        if op.kind == "access":
            return self._access_s(rank, op.bytes)
        if self.costs is not NOTHING:
            return self._measured_s(rank, op)
        rates = self.plan.cluster.rates_of(rank, op.where)
        return 0.0 if rates is None else rates.seconds(op.bytes, op.traffic, op.flops)

    def _measured_s(self, rank: Rank, op: Charge) -> float:
        """Returns the seconds of arithmetic on a measured machine; a server's work includes one update."""
        share = op.bytes / self.plan.job.learner.initial().nbytes
        seconds = self.costs.arithmetic_s(share, op.traffic)
        if rank != self.plan.job.team[0].server:
            return seconds
        return self.costs.serve_s + max(0.0, seconds - self.costs.arithmetic_s(1.0, COMBINE))

    def load_s(self, rank: Rank, samples: int) -> float:
        return (self._has_server and self.costs.server_load_s) or self.costs.load_s

    def rest_s(self, rank: Rank) -> float:
        return (self._has_server and self.costs.server_rest_s) or self.costs.rest_s

    def _varying(self, samples: int) -> GradientTimes:
        """Returns the times of gradients with the variation of this run: with a server, ranks take turns on cores."""
        if (times := self._known.get(samples)) is None:
            times, served = self.costs.gradient(samples), self.costs.served
            if served is not None and self._has_server:
                times = times.varying(served)
            self._known[samples] = times
        return times

    @property
    def _has_server(self) -> bool:
        return self.plan.job.team[0].server is not None

    def _access_s(self, rank: Rank, nbytes: int) -> float:
        """Returns the time at the rate of copies between processes of a host; counts, at most a line, take no time."""
        node = self.plan.cluster.nodes[self.plan.cluster.node_of(rank)]
        return nbytes / node.intra_node_link.bytes_per_s if nbytes > PASSES["swap"] * LINE_BYTES else 0.0


class PlanTimes:
    """The seconds of the gradients of many ranks of a plan: for each rank those of `Plan.compute_s`, bit for bit.

    Args:
        plan: the plan.
        ranks: the ranks.
        late_s: seconds that are added to each gradient.
        scales: a factor on the time of each rank's gradients; None: 1.
    """

    def __init__(self, plan: Plan, ranks: Sequence[int], late_s: float = 0.0, scales: Factors | None = None) -> None:
        self._plan, self._late_s, self._count, self._scales = plan, late_s, len(ranks), scales
        varying = [plan.varying(Rank(rank)) for rank in ranks]
        self._slowness = np.array([slowness for _, _, slowness in varying])
        self._alike_speeds = bool((self._slowness == 1.0).all())
        self._devices = _alike([device for device, _, _ in varying])
        self._known: dict[int, Factors] = {}
        """the seconds of a gradient on each rank's device, for the latest number of samples"""
        every, job = np.asarray(ranks), plan.job
        budget = job.budget.samples
        steps = None if budget is None else -(-budget // sum(job.batches))
        nodes = np.array([plan.cluster.node_of(Rank(rank)) for rank in ranks])
        self._step_times = [
            (places, step_times.of_ranks(plan.seed, every[places].tolist(), nodes[places].tolist(), steps))
            for step_times, places in _alike([step_times for _, step_times, _ in varying])
        ]

    def compute_s(self, step: int, samples: Any, starts_s: Factors) -> Factors:
        """Returns the seconds of a gradient at each rank.

        Args:
            step: the step.
            samples: the samples of a gradient, or an array with those of each rank.
            starts_s: when it begins at each rank, in seconds on the run's clock.
        """
        if self._plan.time_dilation != 1.0:
            starts_s = starts_s / self._plan.time_dilation
        if len(self._step_times) == 1:
            factors = self._step_times[0][1].factors(step, starts_s)
        else:
            factors = np.empty(self._count)
            for places, step_times in self._step_times:
                factors[places] = step_times.factors(step, starts_s[places])
        seconds: Factors = self._base_s(samples) * factors
        if not self._alike_speeds:  # products with 1 and sums with 0 have no effect
            seconds *= self._slowness
        if self._plan.time_dilation != 1.0:
            seconds *= self._plan.time_dilation
        if self._late_s:
            seconds += self._late_s
        if self._scales is not None:
            seconds *= self._scales
        return seconds

    def _base_s(self, samples: Any) -> Factors:
        """Returns the seconds of a gradient on each rank's device."""
        if isinstance(samples, int) and samples in self._known:
            return self._known[samples]
        base_s = np.empty(self._count)
        for device, places in self._devices:
            if isinstance(samples, int):
                base_s[places] = device.compute_s(samples)
            else:
                different, which = np.unique(samples[places], return_inverse=True)
                base_s[places] = np.array([device.compute_s(count) for count in different.tolist()])[which]
        if isinstance(samples, int):
            self._known = {samples: base_s}
        return base_s


def _alike(things: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Returns the different things, each with its places."""
    places: dict[int, list[int]] = {}
    for place, thing in enumerate(things):
        places.setdefault(id(thing), []).append(place)
    return [(things[numbers[0]], np.array(numbers)) for numbers in places.values()]
