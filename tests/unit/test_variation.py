"""Which part of the variation of steps makes workers wait: scenarios whose steps vary in one known way, or in two."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.reports.attribution.explain import Explanation, blocks, explain
from paceline.reports.attribution.variation import PARTS, VariationWaiting, describe_waiting
from paceline.reports.comparison.predict import predicted_waiting
from paceline.reports.text import as_text
from paceline.scenarios import Scenario, load
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile
from paceline.topologies.faults.step_times import Part

GRADIENT_S = 0.01
STAR = """
name: star
workload: {model: lenet, learning: none, batch_per_worker: 10}
cluster:
  nodes: [{device: {name: even, overhead: 0 ms, per_sample: 1 ms}, workers_per_node: 2, count: 2}]
  network: {topology: star, link: {latency: 50 us, bandwidth: 10 Gbit/s}}
stop: {updates: 400}
"""
ONLY: dict[Part, dict[str, Any]] = {
    "persistent": {"persistent": "100 %"},
    "node": {"node": "100 %"},
    "correlated": {"correlated": "100 %", "correlation_time": "0.2 s"},
    "noise": {},
}
"""the variation of scenarios whose steps vary in one way only"""
HALF: dict[str, Any] = {"distribution": "lognorm", "sigma": 0.3, "persistent": "50 %"}
MACHINE = MeasuredCosts(Profile(collectives={("AllReduce", 4): ((8, 0.001), (10_000_000, 0.002))}))
"""a machine on which paced runs are predicted"""


def scenario(method: str, seeds: int = 1, **step_time: Any) -> Scenario:
    return load(STAR, [f"cluster.step_time={json.dumps(step_time)}", f"seeds={seeds}"], algorithms=[method])


def explained(method: str, **step_time: Any) -> Explanation:
    (explanation,) = explain(scenario(method, **step_time), steps=100)
    return explanation


def waiting_of(method: str, **step_time: Any) -> VariationWaiting:
    waiting = explained(method, **step_time).waiting
    assert waiting is not None
    return waiting


@pytest.mark.parametrize("part", ONLY)
def test_steps_that_vary_in_one_way_wait_for_that_reason(part: Part) -> None:
    of_machine = predicted_waiting(scenario("sync-sgd", distribution="lognorm", sigma=0.3, **ONLY[part]), MACHINE)
    for waiting in (
        waiting_of("sync-sgd", distribution="lognorm", sigma=0.3, **ONLY[part]),
        of_machine["sync-sgd"],
    ):
        assert waiting.without.keys() == {part}
        assert waiting.share(part) == pytest.approx(1.0)
        assert waiting.responsible == ([] if part == "noise" else [part]), "independent steps have nothing to compare"
        words = describe_waiting("sync-sgd", waiting)
        assert (f"100 % comes from {PARTS[part].cause}: {PARTS[part].remedy}." in words) == (part != "noise")


def test_known_workers_wait_for_the_slowest() -> None:
    """Three workers wait for the fourth, whose steps take twice as long; factors have the mean 1."""
    waiting = waiting_of("sync-sgd", distribution="lognorm", sigma=1e-6, workers=[1, 1, 1, 2])
    assert waiting.whole.wait_s == pytest.approx(3 / 4 * (1.6 - 0.8) * GRADIENT_S, rel=1e-4)
    assert waiting.share("persistent") == pytest.approx(1.0, abs=1e-4)
    assert waiting.share("noise") == pytest.approx(0.0, abs=1e-4)
    assert waiting.responsible == ["persistent"]


def test_shares_of_parts_need_not_add_up() -> None:
    found = explained("sync-sgd", **HALF)
    waiting, text = found.waiting, as_text(blocks(found), width=118)
    assert waiting is not None
    shares = [share for part in waiting.without if (share := waiting.share(part)) is not None]
    assert len(shares) == 2 and abs(sum(shares) - 1) > 0.05
    assert waiting.none.wait_s == pytest.approx(0.0, abs=1e-9)
    for part, share in zip(waiting.without, shares, strict=True):
        (row,) = (line for line in text.splitlines() if line.startswith(PARTS[part].cause))
        assert float(row.split()[-1]) == pytest.approx(100 * share, rel=5e-3)
    assert "need not add up to 100 %" in " ".join(text.split())
    record = found.record()["variation"]
    assert {one["part"]: one["share"] for one in record["parts"]} == dict(zip(waiting.without, shares, strict=True))


def test_an_asynchronous_method_does_not_wait_for_slow_workers() -> None:
    waiting = waiting_of("async-sgd", **HALF)
    assert waiting.responsible == []
    assert waiting_of("sync-sgd", **HALF).responsible != []


def test_steps_that_do_not_vary_have_no_waiting_by_part() -> None:
    (found,) = explain(load(STAR, algorithms=["sync-sgd"]), steps=5)
    assert found.waiting is None and found.record()["variation"] is None


@pytest.mark.parametrize(("lasting", "remedy"), [({}, "replace"), ({"node_correlation_time": "0.1 s"}, "asynchronous")])
def test_nodes_that_are_slow_for_a_while_are_not_replaced(lasting: dict[str, str], remedy: str) -> None:
    waiting = waiting_of("sync-sgd", distribution="lognorm", sigma=0.3, node="100 %", **lasting)
    assert remedy in waiting.remedy("node")


# --- beside measured runs --------------------------------------------------------------------------------------------


def test_both_commands_give_the_same_shares() -> None:
    """Collectives of the machine cost less than those of the cluster, which changes no wait for the slowest worker."""
    theirs, (ours,) = waiting_of("sync-sgd", **HALF), predicted_waiting(scenario("sync-sgd", **HALF), MACHINE).values()
    assert ours.whole.wait_s == pytest.approx(theirs.whole.wait_s, rel=1e-6)
    assert [ours.share(part) for part in PARTS if part in ours.without] == pytest.approx(
        [theirs.share(part) for part in theirs.without], rel=1e-6
    )


def test_the_waiting_of_several_seeds_is_their_mean() -> None:
    (both,) = predicted_waiting(scenario("sync-sgd", seeds=2, **HALF), MACHINE).values()
    each = [
        predicted_waiting(scenario("sync-sgd", **HALF).model_copy(update={"seed": seed}), MACHINE)["sync-sgd"]
        for seed in (1, 2)
    ]
    assert each[0] != each[1]
    assert both.whole.wait_s == pytest.approx(sum(one.whole.wait_s for one in each) / 2)
    assert both.saved_s("persistent") == pytest.approx(sum(one.saved_s("persistent") for one in each) / 2)


def test_measured_gradients_have_no_parts() -> None:
    times = GradientTimes(batch=10, busy=((1, 0.01),), factors=(0.5, 1.5))
    measured = MeasuredCosts(Profile(collectives=MACHINE.host.collectives, gradients=(times,)))
    assert predicted_waiting(scenario("sync-sgd", **HALF), measured) == {}
