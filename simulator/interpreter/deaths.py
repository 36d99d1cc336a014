"""Workers that die in virtual time and do not return, with the semantics of real runs.

A worker dies between two events. What it has sent arrives; what it was computing is lost. The others learn of a death
after its detection time, at the first operation that needs the dead worker: a collective with it, or a receive from it
or from any rank. The operation fails with `PeerFailed`. A run that has lost more workers than its method can spare ends
at that operation, and the record names both. If workers do not wait for each other, it ends when one of them would
begin its next step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import simpy

from paceline.algorithms.core.job import Job, PlannedDeath
from paceline.algorithms.core.values import Rank
from paceline.records.faults import died_words, ended_words
from paceline.records.trace import LostRank, Trace
from paceline.simulator.interpreter.collectives import SimulatedCollectives
from paceline.simulator.interpreter.mail import SimulatedMail
from paceline.simulator.interpreter.weights_owner import SimulatedWeightsOwner
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.kernel.lanes import SimulatedTask


@dataclass
class Deaths:
    """The deaths of a run.

    Args:
        env: the run's clock.
        job: the job, with its deaths.
        trace: the run's record.
        mail, collectives, weights_owner: the parts of the simulation that others wait in.
        tasks: returns the tasks that have not ended.
    """

    env: VirtualClock
    job: Job
    trace: Trace
    mail: SimulatedMail
    collectives: SimulatedCollectives
    weights_owner: SimulatedWeightsOwner
    tasks: Callable[[], list[SimulatedTask]]
    ended: str = ""
    """why the run has ended, if it was because of a death"""
    _mains: dict[Rank, tuple[SimulatedTask, simpy.Process]] = field(default_factory=dict)
    _dead: set[Rank] = field(default_factory=set)
    _known: list[LostRank] = field(default_factory=list)
    """the deaths that the others know of"""

    def begin(self, task: SimulatedTask, process: simpy.Process) -> None:
        """Notes the program of a rank, and schedules the deaths of the rank that have a time."""
        self._mains[task.me.rank] = task, process
        for death in self.job.deaths:
            if death.rank == task.me.rank and death.at_s is not None:
                self.env.meanwhile(death.at_s, partial(self._die, death), self._awaited)

    def at_step(self, rank: Rank, step: int) -> simpy.Event | None:
        """Returns an event that never comes if the rank dies in place of beginning this step; None if it lives."""
        for death in self.job.deaths:
            if death.rank == rank and death.step == step:
                self.env.meanwhile(self.env.now, partial(self._die, death), lambda: True)
                return self.env.event()
        return None

    @property
    def ends(self) -> bool:
        """Whether the method has lost more workers than it can spare, as far as the others know."""
        return len(self._known) > self.job.spare

    def end(self, waits: str) -> None:
        """Ends the run.

        Args:
            waits: the rank, its place and what it waits for.
        """
        if not self.ended:
            self.ended = ended_words(self.job, self.trace.failed_ranks, self.env.now, waits)
            self.env.halt()

    def is_dead(self, rank: Rank) -> bool:
        return rank in self._dead

    def _awaited(self) -> bool:
        """Whether ranks may wait for the news of a death, so that time has to pass without other events."""
        return len(self._known) < len(self._dead) and any(task.name == "main" for task in self.tasks())

    def _die(self, death: PlannedDeath) -> None:
        rank = death.rank
        task, process = self._mains[rank]
        if rank in self._dead or task.promise.settled:
            return
        self._dead.add(rank)
        how = died_words(task.step)
        lost = LostRank(rank=rank, role=task.me.role, step=task.step, time_s=self.env.now, how=how)
        self.trace.failed_ranks.append(lost)
        for other in self.tasks():
            if other is not task and other.me.rank == rank:
                other.promise.cancel()
        task.promise.cancelled = True
        process.interrupt()
        self.env.meanwhile(self.env.now + death.detection_s, partial(self._tell, lost), self._awaited)

    def _tell(self, lost: LostRank) -> None:
        self._known.append(lost)
        rank = Rank(lost["rank"])
        self.weights_owner.lose_at(rank, lost["step"])
        self.mail.lose(rank)
        self.collectives.lose(rank)
