"""What a case violates: what every method must keep in every run, and the guarantees that its own method promises.

Rules of this file:

* An invariant reads the outcome of one case and describes each violation in a sentence.
* A run that ended with an error is reported by that error alone: its record is incomplete, so nothing else is checked.
* After a worker has died, the only guarantees are that the run continues and that every gradient counts as declared.
* A costly invariant runs the case again, under other conditions. `check` tests these for some of its schedules only.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.algorithms.core.errors import DeadlockError, MismatchedCollectives, PacelineError
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Budget, Job
from paceline.algorithms.runtime.weights_owner import LayerUpdate, Update
from paceline.checking.cases.case import Case
from paceline.checking.cases.gradient_weights import LONGEST, is_measured, wrong_weights
from paceline.checking.cases.performing import Outcome, TooLong, order_is_irrelevant, performed, reference_of, unlike
from paceline.checking.cases.purity import dependence_on_shared_state, impure_calls, own_line
from paceline.checking.cases.worst_values import Measured, measured
from paceline.checking.check_guarantees import (
    REFERENCES,
    broken,
    conserved,
    numbers,
    reference_weights,
    rounding,
    too_distant,
)
from paceline.checking.limits import DoesNotEnd
from paceline.records.figures import SECONDS, significant

Check = Callable[[Outcome], Iterator[str]]
SAME_AS = "same-as"
RANDOM = "needs random schedules"


@dataclass(frozen=True, slots=True)
class Invariant:
    """One invariant.

    Args:
        name: the name that commands and pages use.
        words: a description.
        check: yields a sentence for each violation.
        costly: whether the check runs the case again.
        applies: whether the invariant says anything about an outcome without an error.
        needs: what it applies to, for a report that nothing like that was run; empty if it applies to every run.
    """

    name: str
    words: str
    check: Check
    costly: bool = False
    applies: Callable[[Outcome], bool] = lambda _: True
    needs: str = ""


def error_of(outcome: Outcome) -> tuple[str, str] | None:
    """Returns the violated invariant of a run that ended with an error, and the error; None for a whole run."""
    error = outcome.error
    match error:
        case None:
            return None
        case DeadlockError():
            return "no-deadlock", str(error)
        case MismatchedCollectives():
            return "collectives-match", str(error)
        case DoesNotEnd() | TooLong():
            return "ends", f"{error}{_place_of(error)}"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    kind = "" if isinstance(error, PacelineError) else f"{type(error).__name__}: "
    return "no-errors", f"{kind}{error}{_place_of(error)}{notes}"


def _place_of(error: BaseException) -> str:
    """Returns the method's own line at which an exception was raised, for a message; empty if there is none."""
    frame, tb = None, error.__traceback__
    while tb is not None:
        frame, tb = tb.tb_frame, tb.tb_next
    where = own_line(frame)
    return "" if where is None or where in str(error) else f", at {where}"


def _found(name: str) -> Check:
    """Returns the check of an invariant that the run itself observes."""

    def check(outcome: Outcome) -> Iterator[str]:
        yield from (words for invariant, words in outcome.findings if invariant == name)

    return check


def _in_any_order(outcome: Outcome) -> bool:
    return outcome.case.times is None


def _messages_read(outcome: Outcome) -> Iterator[str]:
    """Checks a simulated run by its record: every message that was sent was also received."""
    yield from _found("messages-read")(outcome)
    if outcome.case.times is not None:
        spans = outcome.trace.spans
        sent = sum(span.activity == "send" for span in spans)
        received = sum(span.activity == "receive" for span in spans)
        if sent != received:
            yield f"{sent} messages were sent and {received} received"


def _applied(outcome: Outcome) -> list[Sequence[Update | LayerUpdate]]:
    """Returns the rows of the updates, with several servers those of each."""
    if not outcome.job.team[0].shards:
        return [outcome.trace.updates]
    names = (shard.range_name for shard in outcome.job.team[0].shards)
    return [[row for row in outcome.trace.layers if row.layer == name] for name in names]


def _gradients_once(outcome: Outcome) -> Iterator[str]:
    """Checks that each gradient is applied once at most, after it was computed."""
    computed = {(span.rank, span.step) for span in outcome.trace.spans if span.activity == "compute"}
    for updates in _applied(outcome):
        yield from _once(updates, computed)


def _once(updates: Sequence[Update | LayerUpdate], computed: Collection[tuple[int, int]]) -> Iterator[str]:
    for (rank, step), times in Counter((row.rank, row.step) for row in updates).items():
        if times > 1:
            yield f"the gradient of rank {rank}'s step {step} was applied {times} times"
        elif (rank, step) not in computed:
            yield f"an update contains a gradient of rank {rank}'s step {step}, which was never computed"
    for row in updates:
        if row.version_read > row.version_applied or row.staleness < 0:
            yield (
                f"the gradient of rank {row.rank}'s step {row.step} was applied to version {row.version_applied}, and "
                f"says that it was computed at version {row.version_read}"
            )


def _versions_by_one(outcome: Outcome) -> Iterator[str]:
    """Checks the versions of the learned weights: one snapshot was taken of each.

    If the weights are in shared memory, the updates of all workers advance their version, and snapshots are taken of
    those of the first worker, and once more at the end. Then versions must not decrease.
    """
    before, shared = 0, outcome.job.method.shared
    for shot in outcome.trace.snapshots[1:]:
        if not (shot.version >= before if shared else shot.version == before + 1):
            yield f"version {before} of the weights was followed by version {shot.version}"
        before = shot.version


def _time_forward(outcome: Outcome) -> Iterator[str]:
    trace = outcome.trace
    for span in trace.spans:
        if not 0 <= span.start_s <= span.end_s <= trace.wall_s:
            yield (
                f"rank {span.rank}, {span.activity} of step {span.step}: from {SECONDS.with_symbol(span.start_s)} to "
                f"{SECONDS.with_symbol(span.end_s)}, in a run of {SECONDS.with_symbol(trace.wall_s)}"
            )
    for what, times in (
        ("updates", [row.time_s for row in trace.updates]),
        ("snapshots", [shot.time_s for shot in trace.snapshots]),
        *((f"the answers of Now on rank {rank}", answers) for rank, answers in trace.now_s.items()),
    ):
        if times != sorted(times):
            yield f"the times of {what} decrease"


def _spends_budget(outcome: Outcome) -> Iterator[str]:
    """Checks that the role that owns the weights takes the steps of its budget, and no more."""
    job, states = outcome.job, outcome.trace.states
    lost = [me.rank for me in job.team if states.get(me.rank) is None]
    if lost:
        yield f"rank {lost[0]} returned no state at its end"
        return
    steps = [states[rank].step for rank in job.owners]
    taken = {sum(steps)} if job.method.independent else set(steps)
    if taken != {job.limit}:
        yield f"the run ended after {', '.join(map(str, sorted(taken)))} steps, and its budget is {job.limit}"


def _same_record(outcome: Outcome) -> Iterator[str]:
    again = performed(outcome.case)
    first, second = outcome.trace, again.trace
    for what, here, there in (
        ("the error", repr(outcome.error), repr(again.error)),
        ("the activities", first.spans, second.spans),
        ("the updates", first.updates, second.updates),
        ("the order of messages", first.heard, second.heard),
    ):
        if here != there:
            yield f"{what} of a second run of the same case are different"
            return
    if (away := unlike(outcome, again)) is not None:
        yield f"the weights of a second run of the same case are different, by {significant(away)}"


def _same_in_interpreters(outcome: Outcome) -> Iterator[str]:
    """Replays a simulated run in the any-order interpreter; the weights have the same bits."""
    if not _is_replayable(outcome):
        return
    from paceline.checking.replay import Recording, replay  # imports pandas, which takes half a second

    try:
        trace = replay(outcome.job, Recording.of_run(outcome.trace))
    except Exception as error:  # of any kind: the program is the user's
        yield f"the simulated run, repeated by the any-order interpreter, failed: {type(error).__name__}: {error}"
        return
    again = dataclasses.replace(outcome, trace=trace)
    if (away := unlike(outcome, again)) is not None:
        yield (
            "the simulated run and its repetition by the any-order interpreter differ in weights by "
            f"{significant(away)}"
        )


def _is_replayable(outcome: Outcome) -> bool:
    """A replay cannot repeat accesses to shared cells, because their order is not in the record."""
    return outcome.case.times is not None and not outcome.job.method.shared


def _complete_state(outcome: Outcome) -> Iterator[str]:
    """Compares a run that was stopped and entered again with the run that was not."""
    case = outcome.case
    if not _has_one_end(outcome):
        return
    whole = reference_of(dataclasses.replace(case, choices=(), stops=()))
    if whole.error is None and (away := unlike(outcome, whole)) is not None and order_is_irrelevant(case):
        yield (
            f"the run that was stopped after step {' and '.join(map(str, case.stops))} and entered again from its "
            f"states ends with other weights, by {significant(away)}"
        )


def _has_one_end(outcome: Outcome) -> bool:
    """Whether the run was stopped, and ends with the same weights in any order of moves.

    A stop drops messages in flight of asynchronous methods. With one worker, their gradients are computed again from
    the same weights; this is used if some orders without a stop end with equal weights.
    """
    case = outcome.case
    if not case.stops:
        return False
    return outcome.job.method.deterministic or (case.workers == 1 and order_is_irrelevant(case))


def _newest_weights(outcome: Outcome) -> Iterator[str]:
    """Checks what a server sends, and at which weights a worker goes on after a gradient that was applied."""
    yield from _found("newest-weights")(outcome)
    if not _sees_own_updates(outcome):
        return
    for updates in _applied(outcome):
        yield from _without_own(updates)


def _without_own(updates: Sequence[Update | LayerUpdate]) -> Iterator[str]:
    rows = {(row.rank, row.step): row for row in updates}
    for (rank, step), row in rows.items():
        after = rows.get((rank, step + 1))
        if after is not None and after.version_read <= row.version_applied:
            yield (
                f"rank {rank} computed its gradient of step {step + 1} at version {after.version_read} of the weights, "
                f"which does not contain its gradient of step {step}: update {row.version_applied} applied it; a "
                "server that answers before its update declares that in sees_own_updates"
            )


def _sees_own_updates(outcome: Outcome) -> bool:
    return not outcome.case.stops and outcome.job.method.sees_own_updates(outcome.job.workers)


def _gradient_weights(outcome: Outcome) -> Iterator[str]:
    yield from wrong_weights(outcome.case)


def _same_as(outcome: Outcome) -> Iterator[str]:
    """Compares the weights at the end with those of the named method, with as many samples on the same cluster."""
    job = _reference(outcome)
    if job is None:
        return
    there = reference_weights(job)
    away = float(np.abs(numbers(outcome.trace.weights) - there).max())
    if not away <= rounding(there):
        yield f"weights differ by {significant(away)} from those of {job.method.name}, more than rounding explains"


def _reference(outcome: Outcome) -> Job | None:
    """Returns the job of the named method; None if none is named, or if its result is not comparable."""
    case, own, method = outcome.case, outcome.job, outcome.case.same_as
    if method is None or not case.gradients or (case.workers > 1 and not method.deterministic):
        return None
    if method.problems(case.placement) or own.limit is None:
        return None
    job = Job.of(method, case.placement, own.learner, batch=own.batches, budget=Budget(), seed=case.seed)
    samples = own.samples_in(own.limit)
    return None if samples % job.samples_in(1) else dataclasses.replace(job, budget=Budget(samples=samples))


def _no_shared_state(outcome: Outcome) -> Iterator[str]:
    yield from dependence_on_shared_state(outcome.case)


def _pure(outcome: Outcome) -> Iterator[str]:
    yield from impure_calls(outcome.case)


INVARIANTS: dict[str, Invariant] = {
    invariant.name: invariant
    for invariant in (
        Invariant("no-deadlock", "no schedule leaves all remaining ranks waiting", lambda _: iter(())),
        Invariant("ends", "every run ends", lambda _: iter(())),
        Invariant("no-errors", "no program fails or requests an invalid operation", lambda _: iter(())),
        Invariant("spends-budget", "the owner of the weights takes all steps of the budget", _spends_budget),
        Invariant("messages-read", "every message is received, once", _messages_read),
        Invariant(
            "collectives-match",
            "all members of a group enter the same collectives in the same order",
            _found("collectives-match"),
        ),
        Invariant(
            "vectors-unchanged",
            "no vector is changed after it was sent",
            _found("vectors-unchanged"),
            applies=_in_any_order,
        ),
        Invariant("gradients-once", "every gradient is applied once at most, after it was computed", _gradients_once),
        Invariant(
            "gradient-weights",
            "every gradient counts as much as the method declares",
            _gradient_weights,
            costly=True,
            applies=lambda outcome: is_measured(outcome.case),
            needs=f"needs a linear form, a period of at most {LONGEST} steps, and random schedules",
        ),
        Invariant(
            "newest-weights",
            "a server sends its newest weights, and they contain the receiver's last gradient",
            _newest_weights,
            applies=lambda outcome: outcome.job.method.has_server,
            needs="needs a server",
        ),
        Invariant(
            SAME_AS,
            "the weights are those of the method that was named",
            _same_as,
            applies=lambda outcome: _reference(outcome) is not None,
            needs="needs clusters that both methods accept; with one worker, if the named method is not deterministic",
        ),
        Invariant("versions-by-one", "versions of the weights increase by one", _versions_by_one),
        Invariant("time-forward", "time never goes back", _time_forward),
        Invariant(
            "complete-state",
            "the state given to NextStep is complete",
            _complete_state,
            applies=_has_one_end,
            needs="needs runs that are stopped, of methods whose result does not depend on the order",
        ),
        Invariant(
            "same-record",
            "the same case has the same record again",
            _same_record,
            costly=True,
            needs=RANDOM,
        ),
        Invariant(
            "same-in-interpreters",
            "a simulated run has the same weights when the any-order interpreter repeats it",
            _same_in_interpreters,
            costly=True,
            applies=_is_replayable,
            needs="needs simulated runs without shared memory",
        ),
        Invariant(
            "no-shared-state",
            "the result does not depend on what ranks or runs share outside of programs",
            _no_shared_state,
            costly=True,
            applies=_in_any_order,
            needs=RANDOM,
        ),
        Invariant(
            "pure-programs",
            "no program reads a clock or draws unseeded random numbers",
            _pure,
            costly=True,
            needs=RANDOM,
        ),
    )
}
"""the invariants of all methods, in the order of reports"""


AFTER_DEATHS = "gradient-weights"
"""the invariant that holds after deaths, too"""


def _died(outcome: Outcome) -> str:
    deaths = (f"the death of rank {rank} before move {move}" for rank, move in outcome.case.deaths)
    return " and ".join(deaths)


def violated(outcome: Outcome, *, costly: bool = True, only: str | None = None) -> Iterator[tuple[str, str]]:
    """Yields the violated invariants of an outcome: the name, and what was found.

    Args:
        outcome: of a case.
        costly: whether costly invariants are checked too.
        only: the name of the only invariant to check besides the error of the run; None: all.
    """
    failed = error_of(outcome)
    if outcome.case.deaths:
        if failed is not None:
            yield Guarantee.SURVIVES_WORKERS.slug, f"after {_died(outcome)}: {failed[0]}: {failed[1]}"
        elif costly and only in (None, AFTER_DEATHS):
            yield from ((AFTER_DEATHS, f"after {_died(outcome)}: {words}") for words in _gradient_weights(outcome))
        return
    if failed is not None:
        yield failed
        if not costly or isinstance(outcome.error, TooLong):
            return
    for invariant in INVARIANTS.values():
        if (invariant.costly and not costly) or only not in (None, invariant.name):
            continue
        if (failed is None and not outcome.case.deaths) or invariant.name == "pure-programs":
            yield from ((invariant.name, words) for words in invariant.check(outcome))


LAST = frozenset({"gradient-weights", "newest-weights", "no-shared-state"})
"""invariants whose words come after those of all others, which name the place of a mistake more closely"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A guarantee that a case violates.

    Args:
        guarantee: its name, such as ``bounded-staleness`` or, for every method, ``no-deadlock``.
        words: what was found, and what is right.
        case: the case that shows it.
    """

    guarantee: str
    words: str
    case: Case


def violations(
    outcome: Outcome, *, costly: bool = True, values: Mapping[str, Measured] | None = None, only: str | None = None
) -> list[Violation]:
    """Lists what a case violates: invariants of all methods, then guarantees that its method promises.

    Args:
        outcome: of the case.
        costly: whether invariants are checked for which the case has to run again.
        values: the result of `worst_values.measured`, if it is known.
        only: the name of the only guarantee to check besides the error of the run; None: all.

    >>> from paceline.algorithms import find
    >>> from paceline.checking.cases import performed
    >>> violations(performed(Case(method=find("ssp")(), nodes=(1, 1), steps=3)))
    []
    """
    pairs = [*violated(outcome, costly=costly, only=only)]
    if outcome.error is None and not outcome.case.deaths and only not in INVARIANTS:
        pairs += _declared(outcome, values)
    pairs.sort(key=lambda item: item[0] in LAST)
    return [Violation(guarantee=name, words=words, case=outcome.case) for name, words in pairs]


def _declared(outcome: Outcome, values: Mapping[str, Measured] | None) -> Iterator[tuple[str, str]]:
    job, trace = outcome.job, outcome.trace
    built_in = {guarantee for guarantee in job.method.guarantees if isinstance(guarantee, Guarantee)}
    compared = built_in & set(REFERENCES)
    lines = broken(job, trace, built_in - compared) if outcome.case.gradients else conserved(job, trace)
    pairs = [_split(line) for line in lines]
    if outcome.case.gradients:
        known = measured(outcome, compared) if values is None else values
        pairs += [
            (guarantee.slug, words)
            for guarantee in compared
            for words in _too_distant(guarantee, known[guarantee.slug])
        ]
    yield from sorted(pairs, key=lambda item: item[0])
    if not outcome.case.gradients:
        return
    for guarantee in sorted(job.method.guarantees - set(built_in), key=lambda promised: promised.slug):
        try:
            yield from ((guarantee.slug, words) for words in guarantee(job, trace))  # type: ignore[operator]
        except Exception as error:  # of any kind: the check is the user's
            yield guarantee.slug, f"its check failed: {type(error).__name__}: {error}"


def _too_distant(guarantee: Guarantee, value: Measured) -> Iterator[str]:
    assert value.bound is not None, "a comparison of weights has one"
    return too_distant(guarantee, value.value, value.bound)


def _split(line: str) -> tuple[str, str]:
    """Returns the name of a guarantee and the words of a line of `broken`."""
    name, _, words = line.partition(": ")
    return name, words
