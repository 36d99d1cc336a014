"""The built-in methods: they end when they should, and keep their guarantees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Contribution, parts_of
from paceline.algorithms.methods.async_elastic import AsyncEasgd, Eamsgd
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.elastic import Easgd, SyncEasgd3
from paceline.algorithms.methods.gossip import AdPsgd, Gossip
from paceline.algorithms.methods.layerwise import Agd, LayerwiseSgdNextForward
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.algorithms.methods.parameter_server import AsyncSgd, SyncSgdPs
from paceline.algorithms.methods.partial_collectives import EagerSgd
from paceline.algorithms.methods.partial_waiting import KSync
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.algorithms.methods.ssp import Ssp
from paceline.checking.check_guarantees import broken
from paceline.records.trace import Trace
from paceline.testing.contract.programs import Contract, Interpreter, job_of

STEPS = 17  # no multiple of the number of workers or of a period below
NODES = [[0, 1], [2, 3]]
METHODS: list[Method] = [
    SyncSgd(),
    SyncSgdPs(servers=2),
    AsyncSgd(),
    AsyncSgd(servers=2),
    Ssp(slack=1),
    KSync(),
    Easgd(),
    AsyncEasgd(),
    SyncEasgd3(),
    Eamsgd(),
    HbsSgd(k1=1, k2=2),
    Hsgd(),
    Agd(delay=2),
    LayerwiseSgdNextForward(),
    Gossip(),
    AdPsgd(),
    EagerSgd(),
]
"""methods that together use all operations except shared cells"""


def case_name(method: Method) -> str:
    """Returns the name of a case: that of the method, with the number of its servers if there are several."""
    return method.name + (f" on {method.num_servers} servers" if method.num_servers > 1 else "")


class MethodsContract(Contract):
    """The built-in methods end when they should, and keep their guarantees."""

    @pytest.mark.parametrize("method", METHODS, ids=case_name)
    def test_a_method_keeps_its_guarantees(self, interpreter: Interpreter, method: Method) -> None:
        job = job_of(method, steps=STEPS, nodes=NODES)
        trace = interpreter(job)
        it_runs_to_its_budget(job, trace)
        gradients_are_applied_once(trace)
        the_clock_never_goes_back(job, trace)
        it_keeps_its_promises(job, trace)


def it_runs_to_its_budget(job: Job, trace: Trace) -> None:
    """The owner of the weights takes its steps, and the updates use as many samples.

    If all workers take the budget's steps together, a gradient may wait for an update in a worker's state instead, as
    the last ones do with an exact delay.
    """
    assert job.limit is not None, "the budget of these jobs is in samples"
    keepers = [trace.states[rank].step for rank in job.owners]
    assert [sum(keepers)] == [job.limit] if job.method.independent else set(keepers) == {job.limit}
    waiting = waiting_samples(job, trace)
    if job.method.even_steps:
        assert sum(row.samples for row in trace.updates) + waiting == job.samples_in(job.limit)
    if (delay := job.method.bounds(job.workers).get(Guarantee.EXACT_DELAY)) is not None:
        assert waiting == job.samples_in(int(delay))
    assert set(trace.states) == {me.rank for me in job.team}


def waiting_samples(job: Job, trace: Trace) -> int:
    """Returns the samples of gradients that wait for an update in the final states.

    It is 0 unless all workers take their steps together: a server has what it has received.
    """
    if job.method.has_server or job.method.independent:
        return 0
    applied = {(row.rank, row.step) for row in trace.updates}
    return sum(state.samples for state in contributions(trace.states) if (state.rank, state.step) not in applied)


def contributions(value: Any) -> set[Contribution]:
    """Returns the origins of gradients that a state holds, at any depth."""
    if isinstance(value, Contribution):
        return {value}
    if isinstance(value, Mapping):
        return contributions(tuple(value.values()))
    if isinstance(value, tuple | list):
        return {one for part in value for one in contributions(part)}
    kind: type = type(value)
    return contributions(tuple(getattr(value, name) for name in parts_of(kind) or ()))


def gradients_are_applied_once(trace: Trace) -> None:
    """No gradient is applied twice, or before it was computed."""
    times = Counter((row.rank, row.step) for row in trace.updates)
    assert set(times.values()) == {1}
    assert all(row.version_read <= row.version_applied and row.staleness >= 0 for row in trace.updates)


def the_clock_never_goes_back(job: Job, trace: Trace) -> None:
    """Snapshots and activities are in the order of time and within the run."""
    times = [snapshot.time_s for snapshot in trace.snapshots]
    assert times == sorted(times)
    assert all(0 <= span.start_s <= span.end_s <= trace.wall_s for span in trace.spans)
    computing, workers = {s.rank for s in trace.spans if s.activity == "compute"}, set(job.team[0].workers.ranks)
    assert computing == workers if job.method.deterministic else computing <= workers


def it_keeps_its_promises(job: Job, trace: Trace) -> None:
    """The weights have moved, and no guarantee of the method is violated."""
    begun = {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}
    moved = [np.abs(state.weights.vector - begun[rank].weights.vector) for rank, state in trace.states.items()]
    assert max(away.max() for away in moved) > 0.1
    assert broken(job, trace) == []
