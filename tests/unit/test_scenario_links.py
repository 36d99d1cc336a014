"""Scenarios whose links fail, and the paths of their messages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms.core.values import Rank
from paceline.scenarios import load
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.run import simulate
from paceline.topologies.faults.link_faults import LinkFaultModel
from paceline.topologies.graphs.graph_registry import build
from tests.changing_links import on

DEVICE = {"name": "d", "overhead": "10 ms", "per_sample": "0 s"}


def scenario(faults: Any, network: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    cluster = {"nodes": [{"device": DEVICE, "count": 4}], "network": {**(network or {}), "faults": faults}}
    workload = {"model": "alexnet", "learning": "none"}
    return {
        "name": "x", "cluster": cluster, "workload": workload, "algorithms": ["sync-sgd"], "stop": {"updates": 20},
    } | rest  # fmt: skip


def test_faults_are_read_and_written_back() -> None:
    faults = [
        {"between": ["host3", "switch"], "at": "10 s", "for": "5 s", "rate": 0.5},
        {"between": ["switch", "host1"], "at": "2 min", "rate": "25 %"},
        {"between": ["host0", "switch"], "at": "0 s"},
    ]
    loaded = load(scenario(faults))
    assert loaded.cluster.build(loaded.workload).link_faults == (
        LinkFaultModel(between=("host3", "switch"), at_s=10.0, lasts_s=5.0, rate=0.5),
        LinkFaultModel(between=("switch", "host1"), at_s=120.0, rate=0.25),
        LinkFaultModel(between=("host0", "switch"), at_s=0.0),
    )
    dumped = loaded.dump()
    assert dumped["cluster"]["network"]["faults"][0] == {
        "between": ["host3", "switch"], "at": "10.0 s", "for": "5.0 s", "rate": 0.5,
    }  # fmt: skip
    assert load(json.loads(json.dumps(dumped))) == loaded


def test_all_mistakes_are_told_with_what_would_be_right() -> None:
    faults = [
        {"between": ["hots3", "switch"], "at": "10 s"},
        {"between": ["host1", "host2"], "at": "10 s"},
    ]
    with pytest.raises(ScenarioError) as caught:
        load(scenario(faults))
    assert str(caught.value).splitlines() == [
        "scenario: cluster.network.faults[0].between: star has no vertex 'hots3' (did you mean host3?)",
        "scenario: cluster.network.faults[1].between: nothing joins host1 and host2; host1 is joined to switch",
    ]
    with pytest.raises(ScenarioError) as caught:
        load(scenario([{"between": "host3", "rate": 1, "fro": "5 s"}, {"between": ["a", "b"], "at": 3, "for": "0 s"}]))
    told = [line.removeprefix("scenario: cluster.network.faults") for line in str(caught.value).splitlines()]
    assert told == [
        (
            "[0].between: found 'host3', expected the two ends of a link, as `paceline topology` draws them: "
            "[host0, switch]"
        ),
        "[0].at: missing; expected a time with its unit, on the run's own clock: when it begins",
        "[0].rate: found 1, expected a share from 0, which is broken, to less than 1, such as 0.5 or '50 %'",
        "[0].fro: unknown key (did you mean for?); there are between, at, for, rate",
        "[1].at: found 3, expected a time of 0 or more with its unit, such as '4 ms'",
        "[1].for: found '0 s', expected a time above 0 with its unit, such as '30 s'",
    ]


def test_a_slow_link_makes_a_run_longer_while_it_is_slow() -> None:
    """A ring is as fast as its slowest link: 2 (p - 1) / p n / b a step, twice that at half the rate."""
    network = {"link": {"latency": "0 s", "bandwidth": "1 GB/s"}, "allreduce_algorithm": "ring"}
    whole, slow, late = (
        simulate(scenario(faults, network))[0].summary["step_s"]["mean"]
        for faults in (
            [],
            [{"between": ["host2", "switch"], "at": "0 s", "rate": 0.5}],
            [{"between": ["host2", "switch"], "at": "1 h"}],
        )
    )
    assert whole is not None and slow is not None
    assert slow - 0.01 == pytest.approx(2 * (whole - 0.01), rel=1e-9)
    assert late == whole


def test_a_collective_that_begins_while_a_link_is_broken_waits_for_its_repair() -> None:
    """It begins after 10 ms of computing; the link works again after 15."""
    network = {"link": {"latency": "0 s", "bandwidth": "1 GB/s"}}
    whole, broken = (
        simulate(scenario(faults, network))[0].summary["wall_s"]
        for faults in ([], [{"between": ["host2", "switch"], "at": "5 ms", "for": "10 ms"}])
    )
    assert broken == pytest.approx(whole + 0.005, rel=1e-9)


def test_systems_have_links_that_fail_too() -> None:
    cluster = {"system": "dgx1-v100", "network": {"faults": [{"between": ["gpu0", "gpu1"], "at": "1 s"}]}}
    loaded = load(scenario([], cluster=cluster))
    assert loaded.cluster.build(loaded.workload).link_faults[0].between == ("gpu0", "gpu1")


def test_a_topologys_own_link_is_a_name_or_latency_and_bandwidth() -> None:
    given = {"latency": "3 ms", "bandwidth": "100 Mbit/s"}
    loaded = load(scenario([], {"topology": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "uplink": given}))
    for one in (loaded, load(loaded.dump())):
        joined = one.cluster.network.graph(4).connections
        (up,) = {each.link for each in joined if {end[:4] for end in each.ends} == {"leaf", "spin"}}
        assert (up.latency_s, up.bytes_per_s) == (0.003, 12.5e6)
    named = load(scenario([], {"topology": "leaf-spine", "uplink": "ib-hdr"}))
    assert named.dump()["cluster"]["network"]["uplink"] == "ib-hdr"


@pytest.mark.parametrize(("name", "settings"), [("leaf-spine", {"spines": 4}), ("fat-tree", {"k": 4})])
def test_messages_spread_over_all_uppermost_switches(name: str, settings: dict[str, int]) -> None:
    assert load(scenario([])).cluster.network.routing == "auto"
    graph = build(name, settings)
    far = range(len(graph.of_kind("host")) // 2, len(graph.of_kind("host")))
    fabric = ClusterNetwork(on(graph)).fabric
    used = {hop for one in range(4) for other in far for hop in fabric.path(Rank(one), Rank(other), 1).ports}
    tops = {end for hop in used for end in hop.split(">") if end.startswith(("spine", "core"))}
    assert len(tops) == 4
    again = ClusterNetwork(on(graph)).fabric
    assert all(again.path(Rank(0), Rank(to), 1) == fabric.path(Rank(0), Rank(to), 1) for to in far)


def test_the_example_in_the_docs_loads() -> None:
    text = (Path(__file__).parents[2] / "docs/networks.md").read_text(encoding="utf-8")
    text = text.partition("\n## Servers\n")[0]
    shown = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    assert len(load(shown).cluster.network.faults) == 2
    keys = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    dumped = load(shown).dump()["cluster"]["network"]
    of_variation = {"cv", "every", "correlation", "floor"}
    assert set(keys) == {*dumped, *of_variation, "file", "between", "at", "for", "rate"} - {"k"}


def test_parallel_links_divide_every_message() -> None:
    one, twelve = (
        load(scenario([], {"intra_node_link": {"like": "nvlink3", "count": count}})).cluster.network.intra_node_link
        for count in (1, 12)
    )
    assert twelve.build().bytes_per_s == 12 * one.build().bytes_per_s
    assert twelve.build().latency_s == one.build().latency_s
    assert twelve.build().provenance.startswith("12 links: 12 an A100; one link")
