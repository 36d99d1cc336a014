"""Chooses the interpreter of a simulated run: vectorised over ranks, or event by event.

* Both interpreters run the same programs and write the same records. So the choice is made by the size of the run, and
  by trying: the vectorised interpreter stops as soon as it finds something that it cannot do, and says what.
* The choice and its reason are in the notes of the record, and `paceline simulate --verbose` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Job
from paceline.records.recorder import Recorder
from paceline.records.trace import Schedule, Trace
from paceline.simulator.cohort.simulate import simulate_cohort
from paceline.simulator.cohort.values import NotACohort
from paceline.simulator.interpreter.host_costs import NO_COSTS, HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.interpreter.weights_owner import Progress
from paceline.simulator.kernel.timing import Timing
from paceline.simulator.network.network import NetworkModel

Engine = Literal["auto", "events", "cohort"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
FEWEST_RANKS = 16
"""ranks from which `auto` tries the vectorised interpreter. Provenance: ours, seconds of CPU time on a fat tree, event
by event and vectorised: with 16 ranks 1.5 and 0.5 (sync-sgd, 400 steps), 1.8 and 0.6 (hbs-sgd, 400), 20 and 18
(layerwise-sgd, 100); with 8 ranks 1.2 and 0.5, 1.1 and 0.5, 8.7 and 11.7. Runs of fewer than some 900 worker steps are
slower if batches are copied, because loading compiled code takes about 0.3 s"""


def run_job(
    job: Job,
    timing: Timing,
    network: NetworkModel,
    schedule: Schedule,
    progress: Progress | None = None,
    hosts: HostCosts = NO_COSTS,
    *,
    engine: Engine = "auto",
    record: Callable[[], Recorder] = Recorder,
) -> Trace:
    """Runs a job to its end in virtual time.

    Args:
        job: the method, its ranks, its learner and its budget.
        timing: the seconds of each rank's own work.
        network: the time of messages and collectives; it serves one run.
        schedule: when the weights being learned are evaluated; it serves one run.
        progress: called with the samples so far and the virtual time.
        hosts: what the hosts of the ranks cost and share.
        engine: `events` and `cohort` demand an interpreter, but a run that the vectorised one cannot do is run event
            by event; `auto` tries the vectorised one if there are many ranks.
        record: returns what writes the record, see `Recorder.of`; by default all records are kept.

    Returns:
        The record of the run; its note `engine` has the interpreter's name and the reason.

    Raises:
        DeadlockError: all remaining programs wait for something that cannot happen.
        ProgramError: a program requested an invalid operation.
        InputError: there is no such engine.
    """
    if engine not in ENGINES:
        raise InputError(f"engine: found {engine!r}, expected one of {', '.join(ENGINES)}")
    if engine == "events":
        reason = "it was requested"
    elif engine == "auto" and len(job.team) < FEWEST_RANKS:
        reason = f"there are fewer than {FEWEST_RANKS} ranks, for which it is as fast"
    else:
        try:
            trace = simulate_cohort(job, timing, network, schedule, progress, hosts, record)
        except NotACohort as found:
            reason = f"the vectorised interpreter cannot run it: {found}"
        else:
            trace.notes["engine"] = {"name": "cohort", "reason": "all ranks run the same program in step"}
            return trace
    trace = simulate_job(job, timing, network, schedule, progress, hosts, record())
    trace.notes["engine"] = {"name": "events", "reason": reason}
    return trace
