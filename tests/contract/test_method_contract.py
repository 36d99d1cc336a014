"""The built-in methods pass `MethodContract`: of each family one in `make test`, all of them in `make test-all`."""

from __future__ import annotations

import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method, changed
from paceline.checking.cases import Effort
from paceline.testing import GuaranteeViolated, MethodContract
from tests.support import built
from tests.thorough import FAMILIES, SIMILAR, cases, extra, sampled

FEW = Effort(schedules=20, shrink_runs=50)
EFFORT = Effort(schedules=cases(10, 400), workers=3, steps=4)
SHARDED = ["sync-sgd-ps", "async-sgd"]


@pytest.mark.parametrize("name", sampled(METHODS, lambda name: name in FAMILIES and name not in SIMILAR))
def test_a_built_in_method_passes(name: str) -> None:
    it_passes(built(name))


@pytest.mark.parametrize("servers", [2, extra(3)])
@pytest.mark.parametrize(
    "name", sampled(["sync-sgd-ps", "async-sgd", "async-msgd", "softsync", "k-batch-async", "dc-asgd"], SHARDED)
)
def test_a_method_with_several_servers_passes(name: str, servers: int) -> None:
    it_passes(changed(built(name), servers=servers))


@pytest.mark.parametrize("servers", [2, extra(3)])
def test_servers_that_exchange_layer_by_layer_pass(servers: int) -> None:
    it_passes(changed(built("sync-sgd-ps"), servers=servers, layerwise=True))


def it_passes(method: Method) -> None:
    """All guarantees of a method in one item, since an item for each would cost more than it checks."""
    contract = type(f"Test_{method.name}", (MethodContract,), {"method": method, "effort": EFFORT})()
    checked = contract.explored()
    assert checked.schedules == EFFORT.schedules
    skipped = set[str]()
    for guarantee in checked.verdicts:
        try:
            contract.test_it_keeps(checked, guarantee)
        except pytest.skip.Exception:
            skipped.add(guarantee)
    assert "no-deadlock" not in skipped


def test_a_method_with_a_bug_fails() -> None:
    from tests.planted_bugs.servers import CountsTwice

    contract = type("TestCountsTwice", (MethodContract,), {"method": CountsTwice(), "effort": FEW})()
    checked = contract.explored()
    contract.test_it_keeps(checked, "no-deadlock")
    with pytest.raises(GuaranteeViolated, match=r"k-async-counts-twice violates distinct-workers: update \d+ has"):
        contract.test_it_keeps(checked, "distinct-workers")
