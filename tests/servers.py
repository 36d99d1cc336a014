"""The methods with a server that applies gradients, in exact arithmetic, and orders of moves to run them in."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.delay_compensated import DcAsgd
from paceline.algorithms.methods.parameter_server import AsyncMsgd, AsyncSgd, Softsync, SyncSgdPs
from paceline.algorithms.methods.partial_waiting import BackupWorkers, KAsync, KBatchAsync, KSync
from paceline.checking.anyorder import AnyOrder
from paceline.checking.moves import Adversary, Chooser, Shuffled
from tests.exact import ExactBowl
from tests.support import job_of

Make = Callable[..., Any]
"""makes a method from its number of workers, a number from 1 to it, and more hyper-parameters"""
RATE = Fraction(1, 10)
FINDING = settings(database=None, phases=[Phase.generate])
"""for properties that mutations must break: those need only be found, not made small"""


def exactly(kind: Make, **numbers: Callable[[int, int], Any]) -> Make:
    """A method of fractions; `numbers` say how a hyper-parameter follows from workers and the number drawn."""

    def make(workers: int, number: int, **more: Any) -> Any:
        return kind(learning_rate=RATE, **{name: follows(workers, number) for name, follows in numbers.items()}, **more)

    return make


SERVERS: dict[str, Make] = {
    "sync-sgd-ps": exactly(SyncSgdPs),
    "async-sgd": exactly(AsyncSgd),
    "async-msgd": exactly(AsyncMsgd, momentum=lambda *_: Fraction(1, 2)),
    "softsync": exactly(Softsync, n=lambda _, number: number),
    "k-batch-async": exactly(KBatchAsync, k=lambda _, number: number + 1),
    "k-async": exactly(KAsync, k=lambda _, number: number),
    "k-sync": exactly(KSync, k=lambda _, number: number),
    "backup-workers": exactly(BackupWorkers, backups=lambda _, number: number - 1),
    "dc-asgd": exactly(DcAsgd, compensation=lambda *_: Fraction(1, 25), square_decay=lambda *_: Fraction(1, 2)),
}
CREWS = st.integers(1, 4).flatmap(lambda workers: st.tuples(st.just(workers), st.integers(1, workers)))
"""workers, and a number from 1 to it"""
ORDERS: st.SearchStrategy[Chooser] = st.one_of(
    st.builds(Shuffled, st.integers(0, 2**16)), st.builds(Adversary, st.integers(0, 3).map(Rank))
)
"""any order, or an order that starves one worker"""


def exact_run(method: Any, order: Chooser, workers: int, steps: int) -> AnyOrder:
    """Runs `steps` updates in that order."""
    run = AnyOrder(job_of(method, workers, steps=steps, learner=ExactBowl()))
    run.run(order)
    return run
