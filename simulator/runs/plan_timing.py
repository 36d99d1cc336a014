"""The seconds of each rank's own work in a simulated run: device times of the plan, and charges or measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algorithms.core.operations import Charge
from paceline.algorithms.core.traffic import COMBINE
from paceline.algorithms.core.values import Rank
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.cells import PASSES
from paceline.simulator.kernel.crash_timeline import Timeline, timeline_of
from paceline.topologies.catalogue.machine_profile import Profile
from paceline.topologies.faults.worker_faults import Crashes

LINE_BYTES = 64
"""bytes of a line of a processor's cache"""
NOTHING = Profile()
"""the costs of a rank's own work besides gradients, if no machine was measured: those of the cluster's catalogue"""


@dataclass(frozen=True, slots=True)
class PlanTiming:
    """The device times of a plan, and the measured costs of a machine for other work."""

    plan: Plan
    costs: Profile = NOTHING

    @property
    def completes(self) -> bool:
        return bool(self.costs.gradients)

    def compute_s(self, rank: Rank, step: int, samples: int) -> float:
        if self.costs.gradients:
            times = self.costs.gradient(samples)
            host = self.plan.job.team[rank].host
            return self.costs.gradient_s(samples) * times.factor(self.plan.seed, int(rank), step, host)
        return self.plan.compute_s(rank, step, samples) + self.costs.late_s

    def paused_s(self, samples: int, pause_s: float) -> float:
        return self.costs.gradient(samples).paused_s(pause_s) if self.costs.gradients else 0.0

    def started_factor(self, samples: int) -> float:
        return self.costs.gradient(samples).started if self.costs.gradients else 1.0

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        if self.costs.gradients and (times := self.costs.gradient(self.plan.job.batch)).backward:
            return times.layer_shares()
        return self.plan.layer_shares()

    def timeline(self, rank: Rank) -> Timeline | None:
        cluster, seed = self.plan.cluster, self.plan.seed
        if rank >= cluster.workers or not cluster.faults.shows:
            return None
        node, nodes = cluster.node_of(rank), len(cluster.nodes)
        crashes = cluster.faults.crashes or Crashes()
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

    @property
    def _has_server(self) -> bool:
        return self.plan.job.team[0].server is not None

    def _access_s(self, rank: Rank, nbytes: int) -> float:
        """Returns the time at the rate of copies between processes of a host; counts, at most a line, take no time."""
        node = self.plan.cluster.nodes[self.plan.cluster.node_of(rank)]
        return nbytes / node.intra_node_link.bytes_per_s if nbytes > PASSES["swap"] * LINE_BYTES else 0.0
