"""Runs a job with the vectorised interpreter.

* At first all workers are one class. If the program of a class needs different control flow at some of its ranks, the
  class is divided and the run begins again, which costs little, because ranks usually part in their first steps.
* What cannot be vectorised raises `NotACohort`, most of it before virtual time advances. An error of a program does so
  as well: the event-by-event interpreter then reports it with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from weakref import WeakKeyDictionary

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.records.recorder import Recorder
from paceline.records.trace import Schedule, Trace
from paceline.simulator.cohort.batch_copies import CopyPaths
from paceline.simulator.cohort.classes import Contexts, Places, divided
from paceline.simulator.cohort.interpreter import CohortRun
from paceline.simulator.cohort.prices import prices_of
from paceline.simulator.cohort.varying import MOST_CLASSES, Diverges, NotACohort
from paceline.simulator.interpreter.host_costs import NO_COSTS, HostCosts
from paceline.simulator.interpreter.weights_owner import Progress, SimulatedWeightsOwner, has_drift
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.interference import WHOLE, Processors
from paceline.simulator.network.network import ClusterNetwork, Network
from paceline.simulator.network.node_memory import NodeMemory
from paceline.topologies.catalogue.staging import Staging


def simulate_cohort(
    job: Job,
    timing: Timing,
    network: Network,
    schedule: Schedule,
    progress: Progress | None = None,
    hosts: HostCosts = NO_COSTS,
    record: Callable[[], Recorder] = Recorder,
) -> Trace:
    """Runs a job to its end in virtual time, one program for many ranks.

    Args:
        job: the method, its ranks, its learner and its budget.
        timing: the seconds of each rank's own work.
        network: the time of messages and collectives.
        schedule: when the weights being learned are evaluated; it is not changed.
        progress: called with the samples so far and the virtual time.
        hosts: what the hosts of the ranks cost and share.
        record: returns what writes the record.

    Returns:
        The record of the run, with the rows of the event-by-event interpreter.

    Raises:
        NotACohort: the run cannot be vectorised.
    """
    if (reason := why_not(job, timing, schedule, hosts)) is not None:
        raise NotACohort(reason)
    contexts = Contexts(job.team)
    classes = contexts.roles()
    overlaps = hosts.processors is None or not hosts.processors.used
    copying = _copying(job, hosts)
    while True:
        recorder = record()
        try:
            owner = SimulatedWeightsOwner(job, copy(schedule), recorder, progress)
            run = CohortRun(
                job, timing, prices_of(network), owner, recorder, classes, contexts, overlaps=overlaps, copying=copying
            )
            run.run()
        except Diverges as diverges:
            classes = _refined(classes, diverges)
        except NotACohort:
            raise
        except (
            PacelineError,
            ArithmeticError,
            AssertionError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:
            raise NotACohort(
                f"a program does what it cannot do for many ranks ({type(error).__name__}: {error})"
            ) from error
        else:
            return recorder.trace


def _refined(classes: Sequence[Places], diverges: Diverges) -> list[Places]:
    assert diverges.of is not None, "the scheduler knows the class"
    if len(classes) >= MOST_CLASSES:
        raise NotACohort(f"its ranks need more than {MOST_CLASSES} different control flows")
    return divided(classes, diverges.of, diverges.mask)


def why_not(job: Job, timing: Timing, schedule: Schedule, hosts: HostCosts) -> str | None:
    """Returns why a run cannot be vectorised, as far as that is known before it begins; None if nothing is known.

    Args:
        job: the job.
        timing: the seconds of each rank's own work.
        schedule: what is measured.
        hosts: what the hosts of the ranks cost and share.
    """
    if job.method.independent or job.method.shared:
        return "its workers do not step together"
    if job.deaths:
        return "workers die"
    if schedule.drift is not None and has_drift(job.method):
        return "the distances between workers are measured"
    if hosts.supply is not None:
        return "its batches are read from storage"
    if (copied := _copied(hosts)) is not None:
        memory, staging = copied
        if memory.network.fabric.buffers.copied:
            return "the library copies vectors between hosts and devices"
        if staging.batches == "pageable" or staging.prefetch > 1:
            return "batches are copied from pageable memory, or more than one ahead"
        sockets = [memory.network.cluster.socket_of(rank) for rank in job.team[0].workers]
        if None in sockets and any(socket is not None for socket in sockets):
            return "the batches of some workers are copied to devices, and those of others are not"
    handling = hosts.handling
    if handling.lane_s or handling.wait_s or handling.start_s is not NO_COSTS.handling.start_s or hosts.snapshot_s:
        return "starts and stored weights cost processor time on the measured machine"
    if hosts.processors is not None and not _own_devices(job, hosts.processors):
        return "ranks share the processors of their hosts"
    if any(timing.timeline(me.rank) is not None for me in job.team):
        return "workers crash or are slower for some time"
    return None


def _copied(hosts: HostCosts) -> tuple[NodeMemory, Staging] | None:
    """Returns the memories and links by which batches and vectors may be copied; None if nothing is."""
    if hosts.staging is None or (staging := hosts.staging.network.cluster.staging) is None:
        return None
    return hosts.staging, staging


def _copying(job: Job, hosts: HostCosts) -> tuple[CopyPaths, Staging] | None:
    """Returns how batches are copied; None if they are not."""
    if (copied := _copied(hosts)) is None:
        return None
    memory, staging = copied
    network = memory.network
    if staging.batches == "none" or staging.sample_bytes <= 0 or network.cluster.socket_of(job.team[0].rank) is None:
        return None
    if network.cluster.links_change:  # its capacities change, and it serves one run
        return CopyPaths(memory, job.workers), staging
    if network not in _COPY_PATHS:
        _COPY_PATHS[network] = CopyPaths(memory, job.workers)
    return _COPY_PATHS[network], staging


_COPY_PATHS: WeakKeyDictionary[ClusterNetwork, CopyPaths] = WeakKeyDictionary()
"""the links of the copies on networks that serve several runs; the workers are those of the cluster"""


def _own_devices(job: Job, processors: Processors) -> bool:
    """Returns whether no rank shares a processor with another one, so that only what it does itself slows it down."""

    def alone(rank: Rank) -> bool:
        demand = processors.demand(rank)
        own = demand.processor is None or demand.processor == rank
        return own and demand.law is WHOLE and demand.messages_on is None and not demand.charge

    return not processors.used or all(alone(me.rank) for me in job.team)
