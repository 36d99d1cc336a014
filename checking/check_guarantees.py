"""Checks that a run keeps the guarantees of its method: one check for each guarantee that a record can show.

Rules of this file:

* A check reads the job and the trace, which every interpreter produces. It describes each violation in a sentence, with
  the values that the guarantee compares.
* Some guarantees need a second run to compare with (the weights are the same whichever rank is slow). That run is an
  any-order run in the order of ranks, and its end is kept for the next check of the same job.
* A guarantee that a user has defined (`custom_guarantee`) contains its own check.
* Some guarantees hold only without gradients (conserved sums and means) and cannot be checked in an ordinary run;
  `conserved` checks a run whose gradients are 0.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from paceline.algorithms.core.guarantees import AnyGuarantee, CustomGuarantee, Guarantee, missing_figures
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.core.values import Special
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.runtime.weights_owner import Update
from paceline.checking.anyorder import AnyOrder
from paceline.checking.hidden_state import hidden_state
from paceline.records.figures import COUNT, SECONDS, significant, written_apart
from paceline.records.trace import Trace

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptResults(Generic[K, V]):
    """The results of a function for its last arguments.

    `functools.lru_cache` would raise a `TypeError` for an argument without a hash, such as a method with a list as a
    hyper-parameter. Here the function is called again for it.

    Args:
        compute: the function, which always returns the same for the same argument.
        most: number of results that are kept; the oldest is dropped first.

    >>> squares = KeptResults(lambda number: number * number, most=2)
    >>> [squares(number) for number in (2, 3, 2, 4)], len(squares)
    ([4, 9, 4, 16], 2)
    """

    def __init__(self, compute: Callable[[K], V], most: int) -> None:
        self._compute, self._most = compute, most
        self._results: OrderedDict[K, V] = OrderedDict()

    def __call__(self, argument: K) -> V:
        """Returns the result for this argument."""
        try:
            if argument in self._results:
                return self._results[argument]
        except TypeError:  # no hash
            return self._compute(argument)
        result = self._results[argument] = self._compute(argument)
        if len(self._results) > self._most:
            self._results.popitem(last=False)
        return result

    def __len__(self) -> int:
        return len(self._results)


ROUNDINGS = 4500
"""allowed difference of two runs that add the same numbers in different orders, in roundings of the weights' scale"""
KEPT_RUNS = 64
"""number of jobs whose ends are kept; a job of `paceline check` has eight weights"""
LISTED = 3
"""elements of a vector that a message lists"""


def as_sync_sgd(job: Job) -> Job:
    """Returns the job of sync-sgd at the same hyper-parameters and number of samples."""
    own = {field.name for field in dataclasses.fields(job.method)}
    shared = {name: getattr(job.method, name) for name in own & {field.name for field in dataclasses.fields(SyncSgd)}}
    samples = job.samples_in(job.limit or 0)
    return dataclasses.replace(job, method=SyncSgd(**shared), team=_workers(job), budget=Budget(samples=samples))


def _workers(job: Job) -> Any:
    """Returns the team without its servers, as in sync-sgd."""
    return tuple(
        dataclasses.replace(me, world=me.workers, server=None, servers=(), shards=())
        for me in job.team
        if me.role == "worker"
    )


REFERENCES: dict[Guarantee, tuple[str, Callable[[Job], Job]]] = {
    Guarantee.DETERMINISTIC: ("the same run without a clock", lambda job: job),
    Guarantee.SAME_AS_SYNC_SGD: ("sync-sgd", as_sync_sgd),
}
"""guarantees that compare the weights with those of another run: its name in messages, and its job"""


def distance(guarantee: Guarantee, job: Job, trace: Trace) -> tuple[float, float]:
    """Returns the largest difference of a run's weights from those that they are compared with.

    Args:
        guarantee: one of `REFERENCES`.
        job: the method, its ranks and its learner.
        trace: the record of its run.

    Returns:
        The difference, and the largest one that rounding explains.
    """
    there = reference_weights(REFERENCES[guarantee][1](job))
    return float(np.abs(numbers(trace.weights) - there).max()), rounding(there)


def too_distant(guarantee: Guarantee, away: float, most: float) -> Iterator[str]:
    """Yields a sentence if a `distance` is larger than rounding explains.

    Args:
        guarantee: one of `REFERENCES`.
        away: the largest difference.
        most: the largest permitted one.
    """
    if not away <= most:
        other = REFERENCES[guarantee][0]
        yield f"weights differ by {significant(away)} from those of {other}, more than rounding explains"


def _weights_of_reference(job: Job) -> np.ndarray[Any, Any]:
    return numbers(AnyOrder(job).run().weights)


reference_weights = KeptResults(_weights_of_reference, KEPT_RUNS)
"""returns the weights at the end of the job's any-order run in the order of ranks"""


def numbers(vector: Any) -> np.ndarray[Any, Any]:
    """Returns a NumPy array or a torch tensor as a NumPy array."""
    return np.asarray(vector)


def changed_elements(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any], most: float) -> str:
    """Returns the first elements that changed, how many there are, and the largest change, for a message.

    Args:
        before: a vector.
        after: the same vector later.
        most: the largest change that is none.

    >>> changed_elements(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 2.0]), 1e-9)
    'element 0 went from 1 to 1.5, element 2 from 3 to 2; 2 of 3 elements changed, by at most 1'
    """
    changes = np.abs(after - before)
    indices = np.flatnonzero(~(changes <= most))  # not `>`, which is false for NaN
    first = []
    for at, index in enumerate(indices[:LISTED]):
        old, new = written_apart(float(before[index]), float(after[index]))
        first.append(f"element {index} {'went ' * (not at)}from {old} to {new}")
    listed = ", ".join(first)
    return f"{listed}; {len(indices)} of {len(changes)} elements changed, by at most {significant(changes.max())}"


def rounding(vector: np.ndarray[Any, Any]) -> float:
    """Returns the largest difference of two vectors of this scale that rounding explains."""
    kind = vector.dtype if np.issubdtype(vector.dtype, np.floating) else np.float64
    return float(ROUNDINGS * np.finfo(kind).eps * max(1.0, np.abs(vector).max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Values that a violated guarantee compares.

    >>> Difference(what="weights[0]", values=(("rank 0", "0.1"), ("rank 1", "0.2"))).text
    'weights[0]: rank 0 0.1, rank 1 0.2'
    """

    what: str
    values: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The difference in one line."""
        return f"{self.what}: " + ", ".join(f"{name} {value}".strip() for name, value in self.values)


class Breach(NamedTuple):
    """One violation of a guarantee."""

    words: str
    difference: Difference | None = None
    update: Update | None = None
    """the input of an update that violates the guarantee, if it is about updates"""


Check = Callable[[Job, Trace], Iterable[Breach]]


def broken(job: Job, trace: Trace, guarantees: Iterable[AnyGuarantee] | None = None) -> list[str]:
    """Lists the promised guarantees that a run violates, each as ``guarantee: what was found``; empty if none.

    A guarantee that needs a figure in the method's `bounds` and has none is always listed.

    Args:
        job: the method, its ranks and its learner.
        trace: the record of its run, from any interpreter.
        guarantees: the guarantees to check. None: all that the method promises, and that its programs keep everything
            in their states (see `hidden_state`), as ``re-entry: …``. Guarantees without a check here are ignored.

    >>> from paceline.algorithms import find
    >>> from paceline.algorithms.core.job import Budget
    >>> from paceline.algorithms.core.values import Rank
    >>> from paceline.checking.anyorder import AnyOrder
    >>> from paceline.checking.moves import RoundRobin
    >>> from paceline.workloads import build
    >>> bowl = build("quadratic", learning="quadratic", seed=1)
    >>> job = Job.of(find("async-sgd")(), [[Rank(0)], [Rank(1)]], bowl, batch=4, budget=Budget(samples=40))
    >>> trace = AnyOrder(job).run(RoundRobin())
    >>> broken(job, trace)
    []
    >>> broken(job, trace, [Guarantee.SYNCHRONOUS])
    ['synchronous: found staleness 1, promised 0']
    """
    promised = frozenset(job.method.guarantees if guarantees is None else guarantees)
    missing = missing_figures(promised, job.method.bounds(job.workers))
    said: dict[AnyGuarantee, Iterable[str]] = {}
    for guarantee in sorted(promised, key=lambda guarantee: guarantee.name):
        if isinstance(guarantee, Guarantee) and guarantee in missing:
            said[guarantee] = [missing[guarantee]]
        elif (check := check_of(guarantee)) is not None:
            said[guarantee] = check(job, trace)
    broken_promises = [f"{guarantee.slug}: {words}" for guarantee, lines in said.items() for words in lines]
    return (
        broken_promises
        if guarantees is not None
        else broken_promises + [f"re-entry: {words}" for words in _reentry(job)]
    )


def check_of(guarantee: AnyGuarantee) -> Callable[[Job, Trace], Iterable[str]] | None:
    """Returns the check of a guarantee, which yields sentences; None if the record of one run cannot show it."""
    if isinstance(guarantee, CustomGuarantee):
        return guarantee
    check = CHECKS.get(guarantee)
    return None if check is None else lambda job, trace: (breach.words for breach in check(job, trace))


def conserved(job: Job, trace: Trace) -> list[str]:
    """Like `broken`, for a run without gradients: checks that sums and means are conserved.

    A sum includes the centre: the weights of the server or, in a synchronous method, those of the first worker.

    Args:
        job: the method, its ranks and its learner.
        trace: the record of a run whose gradients are 0.

    Returns:
        The violated guarantees, each as ``guarantee: what was found``; empty if there are none.
    """
    promised = job.method.guarantees & {Guarantee.CONSERVES_SUM, Guarantee.CONSERVES_MEAN}
    before = {me.rank: job.method.begin(me, job.learner.initial()) for me in job.team}
    old, new = (total_weights(job, states) for states in (before, trace.states))
    if not promised or np.abs(new - old).max() <= rounding(old):
        return []
    words = f"the sum of the weights is not conserved: {changed_elements(old, new, rounding(old))}"
    return [f"{guarantee.slug}: {words}" for guarantee in sorted(promised, key=lambda guarantee: guarantee.name)]


def total_weights(job: Job, states: Any) -> Any:
    """Returns the sum of the workers' weights, with the centre if the method promises to conserve the sum with it.

    Args:
        job: the method and its ranks.
        states: the state of each rank.
    """
    with_centre = Guarantee.CONSERVES_SUM in job.method.guarantees
    vectors = [states[me.rank].weights.vector for me in job.team if me.role == "worker" or with_centre]
    if with_centre and not job.method.has_server:
        vectors.append(states[job.weights_owner].centre.vector)
    return numbers(reduce(add, vectors))


def _reentry(job: Job) -> Iterable[str]:
    nodes = tuple(dict.fromkeys(me.node.ranks for me in job.team if me.role == "worker"))
    return hidden_state(job.method, lambda: nodes, tensors=not isinstance(job.learner.initial(), np.ndarray | Special))


# --- each guarantee --------------------------------------------------------------------------------------------------


def _compared(guarantee: Guarantee) -> Check:
    return lambda job, trace: map(Breach, too_distant(guarantee, *distance(guarantee, job, trace)))


def _synchronous(_: Job, trace: Trace) -> Iterator[Breach]:
    yield from _not_in(trace, 0, 0)


def _exact_delay(job: Job, trace: Trace) -> Iterator[Breach]:
    delay = job.method.bounds(job.workers)[Guarantee.EXACT_DELAY]
    yield from _not_in(trace, delay, delay)


def _bounded_staleness(job: Job, trace: Trace) -> Iterator[Breach]:
    yield from _not_in(trace, 0, job.method.bounds(job.workers)[Guarantee.BOUNDED_STALENESS])


def _not_in(trace: Trace, least: float, most: float) -> Iterator[Breach]:
    odd = [row for row in trace.updates if not least <= row.staleness <= most]
    if not odd:
        return
    row, promised = odd[0], significant(least) if least == most else f"{significant(least)} to {significant(most)}"
    values = (("computed at version", str(row.version_read)), ("staleness", str(row.staleness)), ("promised", promised))
    what = f"update {row.version_applied}, gradient of rank {row.rank}, step {row.step}"
    found = ", ".join(map(str, sorted({row.staleness for row in odd})))
    yield Breach(f"found staleness {found}, promised {promised}", Difference(what=what, values=values), row)


def staleness_values(trace: Trace) -> list[int]:
    """Returns the different values of the staleness of the updates, of the method's own kind, in ascending order."""
    return sorted({row.staleness for row in trace.updates})


def _bounded_clock_gap(job: Job, trace: Trace) -> Iterator[Breach]:
    most = job.method.bounds(job.workers)[Guarantee.BOUNDED_CLOCK_GAP]
    for row, gap, done in clock_gaps(job, trace):
        if gap > most:
            when = (
                f"at {SECONDS.with_symbol(row.time_s)}" if trace.in_seconds else f"after move {COUNT.text(row.time_s)}"
            )
            steps = tuple((f"rank {rank}", str(done[rank])) for rank in job.team[0].workers)
            values = (*steps, ("gap", str(gap)), ("promised", f"at most {significant(most)}"))
            yield Breach(
                f"rank {row.rank} was {gap} steps ahead of the slowest {when}, promised {significant(most)} at most",
                Difference(what="steps applied", values=values),
                row,
            )


def clock_gaps(job: Job, trace: Trace) -> Iterator[tuple[Update, int, Counter[int]]]:
    """Yields each update with the number of steps that its worker is ahead of the slowest once it is applied.

    The third value is the number of applied steps of each worker, which changes with the next update.
    """
    done = Counter[int]()
    for row in trace.updates:
        done[row.rank] += 1
        yield row, done[row.rank] - min(done[rank] for rank in job.team[0].workers), done


def _replicas_equal(job: Job, trace: Trace) -> Iterator[Breach]:
    vectors = {rank: trace.states[rank].weights.vector for rank in job.team[0].workers}
    first = numbers(vectors[job.team[0].rank])
    for rank, vector in vectors.items():
        if not np.array_equal(numbers(vector), first):
            yield Breach(f"at the end rank {rank} holds other weights than rank {job.team[0].rank}")


def _replicas_meet(job: Job, trace: Trace) -> Iterator[Breach]:
    """Checks runs that end with an average: the common weights then include every update."""
    learned = job.samples_in(trace.states[job.weights_owner].step)
    if trace.snapshots and trace.snapshots[-1].samples == learned:
        yield from _replicas_equal(job, trace)


def _round_robin(job: Job, trace: Trace) -> Iterator[Breach]:
    workers = job.team[0].workers.ranks
    for at, row in enumerate(trace.updates):
        if row.rank != (turn := workers[at % job.workers]):
            values = (("found rank", str(row.rank)), ("expected rank", str(turn)))
            difference = Difference(what=f"exchange {at}", values=values)
            yield Breach(f"exchange {at} was rank {row.rank}'s, and the turn rank {turn}'s", difference, row)
            return


def _distinct_workers(job: Job, trace: Trace) -> Iterator[Breach]:
    for version, rows in _by_version(trace).items():
        twice = [rank for rank, times in Counter(row.rank for row in rows).items() if times > 1]
        if twice:
            yield _odd_update(job, rows, f"update {version} has several gradients of rank {twice[0]}")


def _full_updates(job: Job, trace: Trace) -> Iterator[Breach]:
    needed = job.method.samples_per_step(1, job.workers)
    for version, rows in _by_version(trace).items():
        if len(rows) != needed:
            yield _odd_update(job, rows, f"update {version} is made of {len(rows)} gradients, promised {needed}")


def _odd_update(job: Job, rows: list[Update], words: str) -> Breach:
    """Returns the violation by the gradients of one update."""
    values = (
        ("gradients of ranks", ", ".join(str(row.rank) for row in rows)),
        ("number", str(len(rows))),
        ("promised", str(job.method.samples_per_step(1, job.workers))),
    )
    return Breach(words, Difference(what=f"update {rows[0].version_applied}", values=values), rows[-1])


def _constant_total(job: Job, trace: Trace) -> Iterator[Breach]:
    """Checks the current batches in the server's state; there are none before the first gradient."""
    batches, total = trace.states[job.weights_owner].batches, job.global_batch
    if batches and sum(batches) != total:
        sizes = tuple((f"rank {rank}", str(size)) for rank, size in enumerate(batches))
        values = (*sizes, ("together", str(sum(batches))), ("promised", str(total)))
        words = f"batches of {', '.join(map(str, batches))} make {sum(batches)}, promised {total}"
        yield Breach(words, Difference(what="batches", values=values))


def _by_version(trace: Trace) -> dict[int, list[Update]]:
    rows = defaultdict(list)
    for row in trace.updates:
        rows[row.version_applied].append(row)
    return dict(rows)


def _conserves_messages(job: Job, trace: Trace) -> Iterator[Breach]:
    """Checks that all messages of workers were received, and that every applied gradient was computed once."""
    servers = frozenset(job.owners)
    pushes = Counter(span.rank for span in trace.spans if span.activity == "send" and span.rank not in servers)
    heard = Counter(source for _, source in trace.heard if source is not None)
    for rank in job.team[0].workers:
        if heard[rank] != pushes[rank]:
            yield Breach(f"rank {rank} sent {pushes[rank]} messages, of which {heard[rank]} were heard")
    computed = {(span.rank, span.step) for span in trace.spans if span.activity == "compute"}
    applied = Counter((row.rank, row.step) for row in trace.updates)
    for (rank, step), times in applied.items():
        if times > 1 or (rank, step) not in computed:
            yield Breach(f"the gradient of rank {rank}'s step {step} was applied {times} times")


CHECKS: dict[Guarantee, Check] = {
    Guarantee.DETERMINISTIC: _compared(Guarantee.DETERMINISTIC),
    Guarantee.SYNCHRONOUS: _synchronous,
    Guarantee.EXACT_DELAY: _exact_delay,
    Guarantee.BOUNDED_STALENESS: _bounded_staleness,
    Guarantee.BOUNDED_CLOCK_GAP: _bounded_clock_gap,
    Guarantee.SAME_AS_SYNC_SGD: _compared(Guarantee.SAME_AS_SYNC_SGD),
    Guarantee.REPLICAS_EQUAL: _replicas_equal,
    Guarantee.REPLICAS_MEET: _replicas_meet,
    Guarantee.ROUND_ROBIN: _round_robin,
    Guarantee.DISTINCT_WORKERS: _distinct_workers,
    Guarantee.FULL_UPDATES: _full_updates,
    Guarantee.CONSTANT_TOTAL: _constant_total,
    Guarantee.CONSERVES_MESSAGES: _conserves_messages,
}
"""what a record can show"""
