"""The size of the tests: `make test` takes samples of large sets, `make test-all` takes all of them.

`make test-all` sets PACELINE_THOROUGH=1, and there is no other switch. With it, items marked `thorough` run too,
`cases` and `examples` take their larger numbers, and Hypothesis draws 200 random examples instead of 25.

Every behaviour has an item in `make test`. Only `make test-all` runs further values of a parameter that take the same
path through the code: the rest of the methods where one of each family is tried, further orders of moves and networks,
larger sizes, and more random cases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

from paceline.algorithms import METHODS

THOROUGH = os.environ.get("PACELINE_THOROUGH") == "1"


def _families() -> list[str]:
    seen, families = set[str](), []
    for name, method in METHODS.items():
        if method.alone or method.__module__ not in seen:
            families.append(name)
            seen |= set() if method.alone else {method.__module__}
    return families


FAMILIES = _families()
"""the first method of each family, which is a module of `paceline.algorithms.methods`; and the one of one worker"""


SIMILAR = ("acco", "co2", "eager-diloco", "noloco")
"""methods with a module of their own that communicate as those of another family do: with averages that are started
early, or in pairs"""


WAYS = ("sync-sgd", "async-sgd", "easgd", "hbs-sgd", "layerwise-sgd", "agd", "gossip", "hogwild-sgd")
"""methods whose ranks communicate in different ways: with all, with a server at any time or in turn, in groups, by
layer, with a delay, in pairs, and through shared memory. `make test` takes these where a test is about real runs, and
contract/test_methods with backend/test_replay the families, except those in SIMILAR"""


def cases(short: int, thorough: int) -> int:
    """Returns one number for `make test`, and another for `make test-all`."""
    return thorough if THOROUGH else short


def examples(short: int, thorough: int | None = None) -> settings:
    """Returns Hypothesis settings for a test whose examples cost more or less than most.

    Args:
        short: examples in `make test`.
        thorough: examples in `make test-all`; eight times as many where it is not given, as for all other tests.
    """
    return settings(max_examples=cases(short, 8 * short if thorough is None else thorough))


def sampled(values: Iterable[Any], keep: Collection[Any] | Callable[[Any], bool], *, several: bool = True) -> list[Any]:
    """Returns the values of a parameter, of which `make test` takes those to keep.

    Args:
        values: of the parameter, in order.
        keep: the values for `make test`, or a function that selects them.
        several: whether a tuple is a value of several parameters, and not of one.

    Raises:
        ValueError: `make test` would try none of the values.
    """
    kept: Callable[[Any], bool] = keep if callable(keep) else keep.__contains__
    values = list(values)
    if not any(map(kept, values)):
        raise ValueError(f"none of {values} is kept")
    return [value if kept(value) else extra(value, several=several) for value in values]


def extra(value: Any, *, several: bool = True) -> Any:
    """Returns a value of a parameter for `make test-all` only; `several` as in `sampled`."""
    together = value if several and isinstance(value, tuple) else (value,)
    return pytest.param(*together, marks=pytest.mark.thorough)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the items marked `thorough`, unless all are to run; an item that is named on the command line runs."""
    if THOROUGH or any("::" in argument for argument in config.invocation_params.args):
        return
    left = [item for item in items if item.get_closest_marker("thorough")]
    items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left)
