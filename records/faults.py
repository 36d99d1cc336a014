"""Slowdowns, crashes and deaths of workers: what they cost in a run, and the sentences about them.

The sentences are the same for simulated and real runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from paceline.algorithms.core.job import Job
from paceline.algorithms.core.values import Rank
from paceline.records.figures import SECONDS

if TYPE_CHECKING:
    import pandas as pd

    from paceline.records.trace import LostRank

Slowed = Callable[[Rank, float, float], float]
"""seconds that slowdowns added to a rank's work between two times"""


class FaultFigures(TypedDict):
    """Sums over all ranks, in seconds of the run's own clock. Crashes after a rank's last gradient are not counted."""

    crashes: int
    lost_s: float
    """time of redoing lost work"""
    recovery_s: float
    """time of recovery from crashes"""
    checkpoint_s: float
    """time of writing checkpoints"""
    slowed_s: float
    """time that slowdowns added to work, lost work included"""


def fault_figures(spans: pd.DataFrame, slowed: Slowed) -> FaultFigures:
    """Returns the figures of a run.

    Args:
        spans: the table.
        slowed: returns the seconds that slowdowns added to work.

    >>> import pandas as pd
    >>> columns = ["rank", "activity", "start_s", "end_s"]
    >>> rows = [(0, "compute", 0.0, 4.0), (0, "crash", 4.0, 4.0), (0, "recovery", 4.0, 5.0), (0, "redo", 5.0, 9.0)]
    >>> fault_figures(pd.DataFrame(rows, columns=columns), slowed=lambda rank, start_s, end_s: 0.5)
    {'crashes': 1, 'lost_s': 4.0, 'recovery_s': 1.0, 'checkpoint_s': 0.0, 'slowed_s': 1.0}
    """
    lasts_s = (spans["end_s"] - spans["start_s"]).groupby(spans["activity"]).sum()
    work = spans[spans["activity"].isin(["compute", "redo"])]
    rows = zip(work["rank"].tolist(), work["start_s"].tolist(), work["end_s"].tolist(), strict=True)
    return FaultFigures(
        crashes=int((spans["activity"] == "crash").sum()),
        lost_s=float(lasts_s.get("redo", 0.0)),
        recovery_s=float(lasts_s.get("recovery", 0.0)),
        checkpoint_s=float(lasts_s.get("checkpoint", 0.0)),
        slowed_s=math.fsum(slowed(Rank(rank), start_s, end_s) for rank, start_s, end_s in rows),
    )


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
        f"rank {failure['rank']} ({failure['role']}) {failure['how']}, at {SECONDS.with_symbol(failure['time_s'], 4)}"
        for failure in lost[:NAMED]
    ]
    more = f", and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
    waited = waits and f": {waits}"
    return f"{', '.join(died)}{more}; {needs(job)}, so the run ended at {SECONDS.with_symbol(time_s, 4)}{waited}"


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
    for failure in summary.get("failed_ranks", ()):
        words = f"{name} continued without rank {failure['rank']} ({failure['role']}), which {failure['how']}"
        absent_s, wall_s = failure.get("absent_s", 0.0), summary["wall_s"]  # runs of earlier versions have no such key
        cost = (
            f"; the other {SECONDS.with_symbol(absent_s)} ({100 * absent_s / wall_s:.0f} %) ran without it"
            if absent_s
            else ""
        )
        yield f"{words}, at {SECONDS.with_symbol(failure['time_s'])}{cost}"
