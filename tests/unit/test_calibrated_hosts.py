"""Several hosts that were calibrated together: costs between hosts, their file, and predictions from them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import simulate
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.backend.calibration.gradient_costs import gradients_of
from paceline.backend.calibration.message_costs import job_of, never
from paceline.backend.calibration.probe_runner import refuse_torn
from paceline.backend.calibration.probes import GRADIENTS, ProbeCollectives, ProbeGradients, ProbeMessages, phases_of
from paceline.backend.calibration.recorded_costs import Costs, costs, pooled
from paceline.backend.multihost.rank_mapping import Host, map_ranks
from paceline.records import Run
from paceline.scenarios import load
from paceline.scenarios.machine_file import HostPart, MachinePart, load_machine, save_machine, sections_of
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.interpreter.host_costs import HostCosts
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from paceline.simulator.runs.cost_model import measured
from paceline.simulator.runs.dry_run import dry_run, without_numbers
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.topologies.catalogue.machine_profile import Asked, JoinedHosts, MeasuredCosts, Profile
from tests.unit.test_calibrate import MS, NBYTES, of, relabelled, with_words
from tests.unit.test_machine_files import PROFILE, SCENARIO, machine_of

HOST = Profile(
    collectives={("AllReduce", 2): of(1.0 * MS)},
    messages=with_words(0.4 * MS, 0.6 * MS),
    handling={("send", False): with_words(0.1 * MS, 0.2 * MS), ("start", False): of(0.15 * MS)},
)
BETWEEN = Profile(
    collectives={("AllReduce", 2): of(5.0 * MS), ("AllReduce", 4): of(7.0 * MS)},
    messages=with_words(2.0 * MS, 3.0 * MS),
    handling={("send", False): with_words(0.5 * MS, 0.7 * MS), ("start", False): of(0.9 * MS)},
)
LINKED = MeasuredCosts(HOST, joined=JoinedHosts(BETWEEN, (2, 2)))
PLACES = {Rank(0): 0, Rank(1): 0, Rank(2): 1, Rank(3): 1, Rank(4): 0}


def plan_of(*changes: str) -> Plan:
    (plan,) = load("quickstart", ["train.shared_memory=false", *changes], algorithms=["sync-sgd"]).plans(paced=True)
    return plan


def probed(method: Method) -> Costs:
    """The costs that a probe finds on two hosts with these costs, two workers on each."""
    plan = plan_of()
    job = without_numbers(job_of(plan.job, plan.cluster.placement, method, 60))
    plan = replace(plan, job=job)
    model = measured(plan, LINKED)
    hosts = HostCosts(handling=model.hosts.handling)
    trace = simulate_job(job, model.timing, model.network, never(), hosts=hosts)
    trace.spans = [relabelled(span) for span in trace.spans]
    return costs(job, trace, plan, hosts=PLACES)


def test_costs_between_hosts_are_found_apart_from_those_inside() -> None:
    pairs = Asked("AllReduce", 2, NBYTES, ((0, 1), (2, 3)))
    leaders = Asked("AllReduce", 2, NBYTES, ((0, 2),))
    whole = Asked("AllReduce", 4, NBYTES, ((0, 1, 2, 3),))
    found = [probed(ProbeMessages()), probed(ProbeCollectives(asked=(pairs, leaders, whole)))]
    for profile, expected in ((pooled(found), HOST), (pooled(found, between=True), BETWEEN)):
        assert profile.collectives.keys() == expected.collectives.keys()
        for (operation, members), ((nbytes, seconds),) in expected.collectives.items():
            assert profile.collective_s(operation, members, nbytes) == pytest.approx(seconds)
        for nbytes in (0, NBYTES):
            assert profile.message_s(nbytes) == pytest.approx(expected.message_s(nbytes))
            assert profile.handling_s("send", nbytes, False) == pytest.approx(
                expected.handling_s("send", nbytes, False)
            )
        start_s = profile.handling_s("start", NBYTES, False)
        assert start_s == pytest.approx(expected.handling_s("start", NBYTES, False))
    assert pooled(found, between=True).rest_s == 0.0


@pytest.mark.parametrize("hosts", [((0, 1), (2, 3)), ((0, 1, 2), (3,)), ()])
def test_gradients_are_counted_by_the_busy_ranks_of_their_host(hosts: tuple[tuple[int, ...], ...]) -> None:
    method, plan = ProbeGradients(hosts=hosts, cores=2), plan_of()
    most = max(map(len, hosts), default=4)
    job = without_numbers(job_of(plan.job, plan.cluster.placement, method, len(phases_of(most, 4, 2))))
    trace = simulate_job(job, PlanTiming(replace(plan, job=job)), NoCost(), never())
    trace.spans = [relabelled(span) for span in trace.spans]
    found = {busy: len(times) for busy, times in gradients_of(job, trace).by_busy.items()}
    expected = dict.fromkeys(range(1, most + 1), 0)
    for ranks in hosts or ((0, 1, 2, 3),):
        for busy in range(1, most + 1):
            expected[min(busy, len(ranks))] += min(busy, len(ranks)) * (GRADIENTS - 3)
    assert found == expected


def test_collectives_of_a_node_and_of_several_nodes_are_different_ones() -> None:
    plans = load("quickstart", ["train.shared_memory=false"], algorithms=["hbs-sgd", "sync-sgd"]).plans()
    groups = {asked.groups for asked in dry_run(plans, by_hosts=True)}
    inside = [one for one in groups if all(set(ranks) <= {0, 1} or set(ranks) <= {2, 3} for ranks in one)]
    between = [one for one in groups if not any(set(ranks) <= {0, 1} or set(ranks) <= {2, 3} for ranks in one)]
    assert inside and between and len(inside) + len(between) == len(groups)


# --- the file and predictions from it -----------------------------------------------------------------------------


def two_hosts() -> MachinePart:
    """Two hosts with two workers each."""
    hosts = tuple(HostPart(ranks=2, processor="any", cores=2, memory_bytes=1, other_load=0.0) for _ in range(2))
    return machine_of().model_copy(
        update=sections_of(MeasuredCosts(PROFILE, joined=JoinedHosts(BETWEEN))) | {"hosts": hosts}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_machine(two_hosts(), tmp_path / "machine.yaml")
    return tmp_path / "machine.yaml"


def predicted(file: Path, *changes: str) -> Run:
    (run,) = simulate(load({**SCENARIO, "cluster": {**SCENARIO["cluster"], "machine": str(file)}}, changes))
    return run


def test_a_file_keeps_the_costs_between_hosts_and_the_hosts(file: Path) -> None:
    machine = load_machine(file)
    assert machine == two_hosts()
    assert machine.joined() == MeasuredCosts(PROFILE, joined=JoinedHosts(BETWEEN, (2, 2)))
    assert machine.profile() == PROFILE


def test_hosts_of_a_file_have_the_slowness_of_its_calibration(tmp_path: Path) -> None:
    """So a run on them can be predicted at the speed that they had during the run; links keep their times."""
    machine = two_hosts()
    made = machine.made.model_copy(update={"slowness": 0.8, "spread": 0.1})
    save_machine(machine.model_copy(update={"made": made}), tmp_path / "machine.yaml")
    hosts = load_machine(tmp_path / "machine.yaml").joined()
    assert (hosts.slowness, hosts.spread) == (0.8, 0.1)
    assert hosts.at(1.6).host == PROFILE.slowed(2.0) and hosts.at(1.6).joined == hosts.joined


def test_a_file_of_one_host_has_no_costs_between_hosts(tmp_path: Path) -> None:
    save_machine(machine_of(), tmp_path / "machine.yaml")
    assert load_machine(tmp_path / "machine.yaml").joined() == MeasuredCosts(PROFILE, joined=JoinedHosts())


def test_the_measured_placement_uses_the_costs_between_hosts(file: Path) -> None:
    """Two nodes with two workers: a gradient with both busy, an all-reduce of 7 ms, and the rank's own work."""
    run = predicted(file, "cluster.nodes[0].count=2", "stop.samples=640")
    step_s, own_s = run.summary["step_s"]["mean"], PROFILE.update_s + PROFILE.rest_s + PROFILE.load_s
    assert step_s is not None
    assert 0.9 * 0.0125 + 7 * MS + own_s <= step_s <= 1.1 * 0.0125 + 7 * MS + own_s
    assert not run.machine["warnings"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("cluster.nodes[0].count=3",), "found 3 hosts with 2 workers; measured were 2 hosts with 2 workers"),
        (
            ("cluster.nodes[0].count=2", "cluster.nodes[0].workers_per_node=1"),
            "found 2 hosts with 1 worker; measured were 2 hosts with 2 workers",
        ),
    ],
)
def test_another_placement_uses_the_links_and_says_so(file: Path, changes: tuple[str, ...], said: str) -> None:
    warnings = predicted(file, *changes).machine["warnings"]
    assert [said in one and "take the scenario's links" in one for one in warnings].count(True) == 1


def test_a_size_that_was_not_measured_between_hosts_uses_the_links(tmp_path: Path) -> None:
    small: Any = {("AllReduce", 4): ((100, 7 * MS),)}
    between = replace(BETWEEN, collectives=small)
    machine = two_hosts().model_copy(update=sections_of(MeasuredCosts(PROFILE, joined=JoinedHosts(between))))
    save_machine(machine, tmp_path / "machine.yaml")
    run = predicted(tmp_path / "machine.yaml", "cluster.nodes[0].count=2")
    (said,) = run.machine["warnings"]
    assert f"the scenario's links carry AllReduce of 4 ranks of {NBYTES} bytes between hosts" in said
    assert "up to 100 bytes were measured" in said


def test_an_operation_that_was_not_measured_inside_a_host_uses_the_links(tmp_path: Path) -> None:
    machine = two_hosts().model_copy(update=sections_of(MeasuredCosts(Profile(), joined=JoinedHosts(BETWEEN))))
    save_machine(machine, tmp_path / "machine.yaml")
    (said,) = predicted(tmp_path / "machine.yaml").machine["warnings"]
    assert "the scenario's links carry AllReduce inside a host" in said


def test_a_comparison_names_what_the_machine_lacks() -> None:
    with pytest.raises(InputError, match=r"no AllReduce.*run `paceline calibrate` with the algorithms and ranks"):
        simulate(load(SCENARIO), machine=MeasuredCosts(replace(PROFILE, inside={}, collectives={})))


@pytest.mark.parametrize(
    ("processes", "nodes", "fits"),
    [
        (((0, 1), (2, 3)), [[0, 1], [2, 3]], True),
        (((0, 1, 2, 3),), [[0, 1], [2, 3]], True),
        (((0, 1), (2, 3)), [[0, 1, 2, 3]], False),
        (((0, 1), (2, 3)), [[0], [1], [2], [3]], False),
    ],
)
def test_nodes_have_to_be_hosts(processes: tuple[tuple[int, ...], ...], nodes: list[list[int]], fits: bool) -> None:
    hosts = [Host(f"node-{index}", ranks) for index, ranks in enumerate(processes)]
    job = job_of(plan_of().job, [[Rank(rank) for rank in node] for node in nodes], ProbeCollectives(asked=()), 1)
    refused = pytest.raises(InputError, match=f"cluster.nodes: found {len(nodes)} node")
    with nullcontext() if fits else refused:
        refuse_torn(map_ranks(hosts, job.team))


def test_a_server_away_from_the_first_node_cannot_be_predicted() -> None:
    job = job_of(plan_of().job, plan_of().cluster.placement, ProbeMessages(), 1)
    with pytest.raises(InputError, match=r"cluster\.nodes: found"):
        refuse_torn(map_ranks([Host("a", (0, 1)), Host("b", (2, 3, 4))], job.team))
    refuse_torn(map_ranks([Host("a", (0, 1, 2)), Host("b", (3, 4))], job.team))
