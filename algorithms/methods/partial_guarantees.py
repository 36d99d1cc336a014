"""The guarantees of eager SGD: which gradients a round has, and that none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.algorithms.core.guarantees import custom_guarantee
from paceline.algorithms.core.values import Rank


@custom_guarantee("fresh-quorum", "every round has the fresh gradients that its kind of collective promises")
def fresh_quorum(job: Any, trace: Any) -> Iterator[str]:
    """Checks each round: that of the drawn worker in majority, of any worker in solo, of all in a synchronous round."""
    fresh: dict[int, set[Rank]] = {number: set() for number in range(trace.states[job.weights_owner].step)}
    for row in trace.updates:
        if row.staleness == 0:
            fresh[row.version_applied].add(row.rank)
    ranks = job.team[0].workers.ranks
    first = min((row.version_applied for row in trace.updates), default=0)  # a run may continue an earlier one
    for number in range(first, len(fresh)):
        needed = job.method.promised(number, ranks)
        if not needed <= fresh[number] or not fresh[number]:
            wanted = f"that of rank {', '.join(map(str, sorted(needed)))}" if needed else "one"
            found = f"of rank {', '.join(map(str, sorted(fresh[number])))}" if fresh[number] else "none"
            yield f"the fresh gradients of round {number} are {found}, promised {wanted} at least"


@custom_guarantee("gradients-kept", "every gradient is applied by a later round or kept unsent at the end")
def gradients_kept(_: Any, trace: Any) -> Iterator[str]:
    """Checks that no gradient is lost, and that none is both applied and kept."""
    computed = {(span.rank, span.step) for span in trace.spans if span.activity == "compute"}
    applied = {(row.rank, row.step) for row in trace.updates}
    unsent = [state.unsent.origins for state in trace.states.values() if state.unsent is not None]
    kept = {(one.rank, one.step) for origins in unsent for one in origins}
    for rank, step in sorted(computed - applied - kept):
        yield f"the gradient of rank {rank}'s step {step} was neither applied nor kept"
    for rank, step in sorted(applied & kept):
        yield f"the gradient of rank {rank}'s step {step} was applied and is still kept"
