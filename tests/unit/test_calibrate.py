"""The profile that a probe computes from recorded spans, and its use by the simulator: each cost at its place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.message_costs import job_of, never
from paceline.backend.calibration.probes import ProbeCollectives, ProbeMessages
from paceline.backend.calibration.recorded_costs import Costs, costs, pooled, served, started, uncovered
from paceline.records.trace import Activity, Span
from paceline.scenarios import load
from paceline.scenarios.resolution.machine_costs import Adjustment, ProbedSteps
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import InMemoryCosts, MeasuredNetwork
from paceline.simulator.runs.consistency import consistent, shortened, simulated_steps
from paceline.simulator.runs.cost_model import handling_of
from paceline.simulator.runs.dry_run import without_numbers
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import Asked, MeasuredCosts, Profile

NBYTES = 4810 * 4
MS = 1e-3


def of(seconds: float) -> tuple[tuple[int, float], ...]:
    """The cost of the quickstart's weights."""
    return ((NBYTES, seconds),)


def with_words(word_s: float, seconds: float) -> tuple[tuple[int, float], ...]:
    """The cost of a message without a vector, and that of the weights."""
    return ((0, word_s), (NBYTES, seconds))


MACHINE = Profile(
    collectives={("AllReduce", 4): of(3.0 * MS)},
    inside={("Reduce", 2): of(2.0 * MS), ("AllReduce", 2): of(2.4 * MS)},
    messages=with_words(1.0 * MS, 1.5 * MS),
    inside_messages=with_words(0.8 * MS, 1.2 * MS),
    handling={
        ("send", False): with_words(0.17 * MS, 0.31 * MS),
        ("send", True): with_words(0.13 * MS, 0.23 * MS),
        ("receive", False): of(0.41 * MS),
        ("receive", True): of(0.37 * MS),
        ("start", False): of(0.29 * MS),
        ("start", True): of(0.19 * MS),
    },
    load_s=0.53 * MS,
    late_s=0.07 * MS,
    rest_s=0.61 * MS,
    lane_s=0.13 * MS,
    wait_s=0.19 * MS,
    update_s=0.11 * MS,
    serve_s=0.17 * MS,
)
"""all costs differ"""
ELASTIC_MS = 0.11 * 11 / 3
"""an update with an elastic pull reads and writes 11 vectors, and the measured one 3"""


def probed(plan: Plan, method: Method, *, inside: bool) -> Costs:
    """Returns the result of a probe on a machine with these costs: its program in virtual time, its record read
    normally.
    """
    job = without_numbers(job_of(plan.job, plan.cluster.placement, method, 60))
    plan = replace(plan, job=job)
    memory = InMemoryCosts(
        collective_s=partial(MACHINE.collective_s, inside=True),
        holds=plan.inside,
        message_s=partial(MACHINE.message_s, inside=True),
        joins=plan.same_host,
    )
    network = MeasuredNetwork(MACHINE.collective_s, MACHINE.message_s, memory)
    timing, handling = PlanTiming(plan, MACHINE), handling_of(plan, MACHINE)
    trace = simulate_job(job, timing, network, never(), hosts=HostCosts(handling=handling))
    trace.spans = [relabelled(span) for span in trace.spans]
    return costs(job, trace, plan, inside=inside)


def relabelled(span: Span) -> Span:
    """With the key of a real run, which ends with the program's own key."""
    if span.key is None:
        return span
    key, group = span.key.split(" over ")
    return span._replace(key=f"{group}/0 {key.partition(' ')[2]}")


def test_a_probe_finds_every_cost_of_a_machine_apart_from_the_others() -> None:
    (plan,) = load("quickstart", algorithms=["sync-sgd"]).plans(paced=True)
    across = Asked("AllReduce", 4, NBYTES, ((0, 1, 2, 3),))
    within = Asked("Reduce", 2, NBYTES, ((0, 1), (2, 3)), inside=True)
    found = pooled(
        [
            probed(plan, ProbeMessages(), inside=True),
            probed(plan, ProbeCollectives(asked=(across,)), inside=False),
            probed(plan, ProbeCollectives(asked=(within,), inside=True), inside=True),
        ]
    )
    for part in ("load_s", "late_s", "rest_s", "lane_s", "wait_s", "update_s", "serve_s"):
        assert getattr(found, part) == pytest.approx(getattr(MACHINE, part)), part
    for nbytes in (0, NBYTES):
        for inside in (False, True):
            assert found.message_s(nbytes, inside) == pytest.approx(MACHINE.message_s(nbytes, inside))
    assert found.collective_s("AllReduce", 4, NBYTES) == pytest.approx(3.0 * MS)
    assert found.collective_s("Reduce", 2, NBYTES, inside=True) == pytest.approx(2.0 * MS)
    assert set(found.handling) == set(MACHINE.handling)
    for (kind, inside), points in MACHINE.handling.items():
        for nbytes, seconds in points:
            assert found.handling_s(kind, nbytes, inside) == pytest.approx(seconds), (kind, nbytes, inside)


def test_simulated_probes_find_what_waits_and_busy_cores_cost() -> None:
    """Gradients are longer after waits by 0.6 of what the pauses say, and messages have 0.4 of their speed."""
    scenario = load("quickstart", ["train.pace=none"], algorithms=["async-sgd"])
    plan = scenario.plans()[0]
    gradient = GradientTimes(
        batch=32, busy=((1, 2 * MS), (2, 2.2 * MS), (4, 4.4 * MS)), pauses=((1 * MS, 1 * MS), (10 * MS, 3 * MS))
    )
    costs = MeasuredCosts(replace(MACHINE, gradients=(gradient,), cores=2, late_s=0.0))
    true = Adjustment(pauses=0.6, beside=0.4).of(costs)
    methods = {False: ProbeMessages(active=1), True: ProbeMessages()}
    probes = []
    for beside, method in methods.items():
        probed_plan = replace(plan, job=job_of(plan.job, plan.cluster.placement, method, 240))
        asked = ProbedSteps(probed_plan, 1.0, 1.0, beside=beside)
        steps = simulated_steps(replace(asked, plan=shortened(probed_plan)), true)
        probes.append(replace(asked, step_s=steps.step_s, compute_s=steps.compute_s))
    found = consistent(costs, probes)
    assert found.pauses == pytest.approx(0.6, abs=0.1)
    assert found.beside == pytest.approx(0.4, abs=0.1)
    assert consistent(costs, []) == Adjustment()


# --- where the simulator books them -----------------------------------------------------------------------------------


def predicted(algorithm: str, *, workers: int, message_cost: bool = True) -> tuple[Any, dict[str, list[float]]]:
    """A run on a device of 20 ms a step, and the milliseconds of worker 0's spans by activity, in order of time."""
    device = "{name: even, overhead: 4 ms, per_sample: 0.5 ms}"
    cluster = f"cluster={{nodes: [{{device: {device}, workers_per_node: {workers}}}]}}"
    scenario = load("quickstart", [cluster, "stop={updates: 12}"], algorithms=[algorithm])
    (run,) = simulate(scenario, machine=MeasuredCosts(MACHINE), jitter=False, message_cost=message_cost)
    rows = run.tables.spans.query("rank == 0")
    lasted = rows.assign(lasted=1e3 * (rows["end_s"] - rows["start_s"])).groupby("activity")["lasted"]
    return run, {str(activity): times.tolist() for activity, times in lasted}


def test_an_exchange_behind_the_gradient_costs_what_the_processor_does_for_it() -> None:
    """`async-easgd` sends its weights, computes, and then finds the answer there."""
    run, lasted = predicted("async-easgd", workers=1)
    assert lasted["compute"] == pytest.approx([20.0 + 0.07] * len(lasted["compute"]))
    assert lasted["load"] == pytest.approx([0.53] * len(lasted["load"]))
    assert lasted["update"] == pytest.approx([ELASTIC_MS] * len(lasted["update"]))
    sent_and_taken = lasted["communication"][: 2 * len(lasted["update"])]
    assert sent_and_taken == pytest.approx([0.23, 0.37] * len(lasted["update"]))
    assert "wait" not in lasted or sum(lasted["wait"]) < 1.0, "for the word to stop alone"
    step_ms = 0.61 + 0.23 + 0.53 + 20.07 + 0.37 + ELASTIC_MS
    assert run.summary["step_s"]["p50"] == pytest.approx(step_ms * MS)
    share = run.summary["time_fraction"]
    assert share["load"] == pytest.approx(0.53 / step_ms, rel=0.1) and share["wait"] == pytest.approx(
        0.61 / step_ms, rel=0.1
    )
    assert share["communication"] == pytest.approx(0.6 / step_ms, rel=0.1)


def test_a_collective_behind_the_gradient_costs_its_start() -> None:
    """While it is in flight, time that no other span covers is communication."""
    run, lasted = predicted("agd", workers=2)
    step_ms = 0.61 + 0.53 + 20.07 + 0.19 + 0.11
    assert run.summary["step_s"]["p50"] == pytest.approx(step_ms * MS)
    share = run.summary["time_fraction"]
    assert share["load"] == pytest.approx(0.53 / step_ms, rel=0.1)
    assert share["communication"] == pytest.approx((0.19 + 0.61) / step_ms, rel=0.2)
    assert len(lasted["communication"]) == len(lasted["compute"])


def test_a_model_without_message_cost_leaves_out_what_processors_do_for_messages() -> None:
    run, lasted = predicted("async-easgd", workers=1, message_cost=False)
    assert sum(lasted["communication"]) == 0.0
    assert run.summary["step_s"]["p50"] == pytest.approx((0.61 + 0.53 + 20.07 + ELASTIC_MS) * MS)


# --- single figures ---------------------------------------------------------------------------------------------------


def span(activity: Activity, start_s: float, end_s: float, *, step: int = 0, key: str | None = None) -> Span:
    return Span(Rank(0), "main", activity, None, step, start_s, end_s, key=key)


def test_what_no_span_covers_is_neither_loading_nor_anything_else() -> None:
    """Overlapping spans count once, and the last step has no end."""
    first = [
        span("load", 1.0, 2.0),
        span("collective", 3.0, 6.0, key="0,1/0 AllReduce 8 entered 0"),
        span("update", 4.0, 5.0),
    ]
    second = [span("load", 6.5, 7.0, step=1), span("compute", 9.0, 10.0, step=1)]
    assert uncovered([*first, *second]) == [1.5]


def test_a_server_serves_what_it_updates_by_and_its_sends_are_apart() -> None:
    spans = [
        span("receive", 0.0, 1.0),
        span("update", 1.5, 2.0),
        span("send", 2.0, 2.25),
        span("receive", 3.0, 4.0),
        span("send", 4.0, 5.0),
        span("receive", 6.0, 7.0),
    ]
    assert served(spans) == [1.75]


def test_starting_a_collective_ends_where_the_program_goes_on() -> None:
    entered = [span("collective", 0.0, 1.0, key="0,1/0 AllReduce 8 entered 0"), span("update", 1.0, 2.0)]
    begun = [
        span("collective", 3.0, 9.0, step=1, key="0,1/1 AllReduce 8 started 1"),
        span("update", 3.5, 4.0, step=1),
    ]
    other = [one._replace(rank=Rank(1)) for one in begun]
    assert started([*entered, *begun], [*entered, *begun, *other]) == {("AllReduce", 2, 8): [0.5]}
