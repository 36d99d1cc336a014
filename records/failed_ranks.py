"""Sentences about workers that died, the same for simulated and real runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.algorithms.core.job import Job
from paceline.records.figures import significant
from paceline.records.trace import LostRank

KEY = "cluster.deaths"
"""the key of a scenario that lets workers die"""


NAMED = 4
"""deaths that a sentence lists"""


def died_words(step: int, how: str = "") -> str:
    """Returns how a worker died that a scenario lets die.

    Args:
        step: its step.
        how: what ended its process, in a real run.

    >>> died_words(17), died_words(17, "killed by SIGKILL")
    ('died at step 17 (cluster.deaths)', 'died at step 17: killed by SIGKILL (cluster.deaths)')
    """
    return f"died at step {step}{how and f': {how}'} ({KEY})"


def ended_words(job: Job, lost: Sequence[LostRank], time_s: float, waits: str) -> str:
    """Returns why a run ended after a death.

    Args:
        job: the job.
        lost: the ranks that died, in the order of their deaths.
        time_s: when it ended.
        waits: which rank waited where, and for what; empty if none did.
    """
    died = [
        f"rank {one['rank']} ({one['role']}) {one['how']}, at {significant(one['time_s'], 4)} s" for one in lost[:NAMED]
    ]
    more = f", and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    waited = waits and f": {waits}"
    return f"{', '.join(died)}{more}; {needs(job)}, so the run ended at {significant(time_s, 4)} s{waited}"


def needs(job: Job) -> str:
    """Returns how many workers a method can lose, beginning with its name."""
    spare = f"can lose {job.spare} of its {job.workers} workers" if job.spare else "needs all of its workers"
    return f"{job.method.name} {spare}"


def failure_sentences(summary: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yields a sentence for each rank that died in a run, with what it cost, or one for a death that ended the run.

    Args:
        summary: the summary of the run.
        name: what the sentences call the run.

    >>> lost = {"rank": 2, "role": "worker", "step": 7, "time_s": 9.0, "how": "died at step 7", "absent_s": 3.0}
    >>> next(failure_sentences({"failed_ranks": [lost], "wall_s": 12.0}, "diloco"))
    'diloco continued without rank 2 (worker), which died at step 7, at 9 s; the other 3 s (25 %) ran without it'
    """
    if (ended := summary.get("ended")) is not None:
        yield f"{name} did not reach its end: {ended}"
        return
    for one in summary.get("failed_ranks", ()):
        words = f"{name} continued without rank {one['rank']} ({one['role']}), which {one['how']}"
        absent_s, wall_s = one.get("absent_s", 0.0), summary["wall_s"]  # runs of earlier versions have no such key
        cost = (
            f"; the other {significant(absent_s)} s ({100 * absent_s / wall_s:.0f} %) ran without it"
            if absent_s
            else ""
        )
        yield f"{words}, at {significant(one['time_s'])} s{cost}"
