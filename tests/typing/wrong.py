"""Programs with common mistakes, each of which mypy must report: an unused `type: ignore` is an error.

`make types` checks this file; nothing runs it.
"""

from __future__ import annotations

from paceline.algorithms.core.operations import Gradient, Load, Now, Send, Wait
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Rank, Samples


@program
def helper() -> Program[float]:
    return (yield from Now())


@program
def forgetful(samples: Samples) -> Program[None]:
    Send(Rank(0), 1.0)  # type: ignore[unused-awaitable]
    helper()  # type: ignore[unused-awaitable]
    yield from Now()


@program
def confused(samples: Samples) -> Program[str]:
    batch = yield from Load(samples)
    yield from Gradient(batch, batch)  # type: ignore[arg-type]
    yield from Wait(helper())  # type: ignore[arg-type]
    answer: str = yield from helper()  # type: ignore[assignment]
    yield from Send(Rank(0), answer)
    yield 3  # type: ignore[misc]
    return batch  # type: ignore[return-value]
