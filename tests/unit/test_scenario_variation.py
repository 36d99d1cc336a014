"""Scenarios whose links vary over time, have a faster download, or differ between nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import DeadlockError
from paceline.algorithms.core.values import Rank
from paceline.cli.app import app
from paceline.scenarios import load
from paceline.scenarios.sections.networks import Link, Network, Variation
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.kernel.clock import VirtualClock
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.network.outages import VaryingLinks
from paceline.simulator.runs.cost_model import cluster_network
from paceline.simulator.runs.run import perform, simulate
from paceline.topologies import LINKS
from paceline.topologies.graphs import links as processes
from paceline.topologies.graphs.graph_registry import build
from paceline.topologies.packet_lines import lines_of
from tests.changing_links import WIRE, ends, fault, on, receiver, sender, varying_star
from tests.clusters import answer, played

DEVICE = {"name": "d", "overhead": "10 ms", "per_sample": "0 s"}
VARIES = {"cv": 0.5, "every": "0.2 s", "correlation": 0.5}
PLAIN = {"latency": "1 ms", "bandwidth": "1 Gbit/s"}


def scenario(network: Any, nodes: Any = None, **rest: Any) -> dict[str, Any]:
    cluster = {"nodes": nodes or [{"device": DEVICE, "count": 4}], "network": network}
    workload = {"model": "alexnet", "learning": "none"}
    return {
        "name": "x", "cluster": cluster, "workload": workload, "algorithms": ["sync-sgd"], "stop": {"updates": 20},
    } | rest  # fmt: skip


def told(data: Any) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(data)
    return [line.removeprefix("scenario: cluster.") for line in str(caught.value).splitlines()]


# --- the section -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network",
    [
        {"link": {**PLAIN, "variation": VARIES}},
        {"link": PLAIN, "variation": VARIES},
        {"link": "wan-1g"},
        {"link": {"like": "wan-1g", "variation": VARIES}},
        Network(link=Link(like="wan-1g", variation=Variation(cv=0.5, every=0.2, correlation=0.5))).document(),
    ],
)
def test_variation_is_read_and_written_back(network: Any) -> None:
    loaded = load(scenario(network))
    varying = loaded.cluster.build(loaded.workload).graph.varying
    assert list(varying) == [("switch", f"host{number}") for number in range(4)]
    if network["link"] == "wan-1g":
        assert set(varying.values()) == {LINKS["wan-1g"].variation}
    else:
        assert {(one.cv, one.every_s, one.correlation, one.floor) for one in varying.values()} == {(0.5, 0.2, 0.5, 0.1)}
    assert load(json.loads(json.dumps(loaded.dump()))) == loaded


@pytest.mark.parametrize(
    "network", [{"link": "wan-1g", "variation": "none"}, {"link": {"like": "wan-1g", "variation": "none"}}]
)
def test_none_makes_bandwidths_constant(network: Any) -> None:
    loaded = load(scenario(network))
    assert not loaded.cluster.build(loaded.workload).links_change
    assert load(loaded.dump()) == loaded


def test_only_links_between_nodes_vary() -> None:
    loaded = load(scenario({"link": PLAIN, "variation": VARIES}, [{"node": "dgx1", "count": 2}]))
    varying = loaded.cluster.build(loaded.workload).graph.varying
    assert varying and all("switch" in ends for ends in varying)


def test_wrong_values_are_told_all_at_once_and_end_with_2(tmp_path: Path) -> None:
    wrong = {"cv": 9, "every": "0 s", "correlation": 1, "floor": -1, "sigma": 1}
    file = tmp_path / "x.yaml"
    file.write_text(json.dumps(scenario({"link": {**PLAIN, "variation": wrong}, "variation": "always"})))
    result = CliRunner().invoke(app, ["simulate", str(file)], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (2, "")
    place = "cluster.network.link.variation"
    assert [line.partition("x.yaml: ")[2] for line in result.stderr.splitlines() if "x.yaml: " in line] == [
        f"{place}.cv: found 9, expected a number above 0 and at most 3: standard deviation over mean",
        f"{place}.every: found '0 s', expected a time above 0 with its unit, such as '30 s'",
        f"{place}.correlation: found 1, expected a number from 0 to less than 1",
        f"{place}.floor: found -1, expected a number from 0 to less than 1",
        f"{place}.sigma: unknown key; there are cv, every, correlation, floor, provenance",
        (
            "cluster.network.variation: found 'always', expected links or none, or a mapping such as {cv: 0.3, "
            "every: 10 s, correlation: 0.8}"
        ),
    ]


def test_links_inside_a_host_do_not_vary_and_have_no_download() -> None:
    inside = {"like": "wan-1g", "download": "5 Gbit/s"}
    assert told(scenario({"intra_node_link": inside})) == [
        "network.intra_node_link.download: found '625000000.0 B/s', expected none inside a host",
        "network.intra_node_link.variation: found 0.2, expected none: only links between nodes vary over time",
    ]


def test_an_unknown_link_is_told_with_the_nearest() -> None:
    (line,) = told(scenario({"link": {"like": "wan-1"}}))
    assert line.startswith("network.link.like: found 'wan-1', expected one of eth-1g, ")
    assert line.endswith(" (did you mean wan-1g?)")


def test_a_name_may_be_changed_in_part() -> None:
    """As --set and --vary do: the other values of the catalogue's link remain, and the provenance says what changed."""
    loaded = load(scenario({"link": "wan-1g"}), ["cluster.network.link.bandwidth=2 Gbit/s"])
    link, usual = loaded.cluster.network.link.build(), LINKS["wan-1g"]
    assert (link.latency_s, link.bytes_per_s, link.variation) == (usual.latency_s, 250e6, usual.variation)
    assert link.provenance == f"{usual.provenance}; given in the scenario: bandwidth"


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_run_is_the_same_each_time_and_its_seed_counts() -> None:
    data = scenario({"link": PLAIN, "variation": VARIES})
    first, again, other = (simulate({**data, "seed": seed})[0] for seed in (1, 1, 2))
    assert first.tables.spans.equals(again.tables.spans)
    assert first.summary["wall_s"] == again.summary["wall_s"] != other.summary["wall_s"]


def test_all_methods_see_the_same_bandwidths() -> None:
    """Sampled in two networks of one seed, one of which carries messages meanwhile."""
    methods = ["sync-sgd", {"name": "k-avg", "k": 4}]
    plans = load(scenario({"link": PLAIN, "variation": VARIES}, algorithms=methods)).plans()
    seen = []
    for number, plan in enumerate(plans):
        network: ClusterNetwork = cluster_network(plan)
        clock = VirtualClock()
        network.attach(clock)
        if number:
            network.message(Rank(0), Rank(1), 10**8)
        now = []
        for at_s in (0.0, 0.1, 0.3, 0.5, 2.9):
            clock.run(clock.timeout(at_s - clock.now + 1e-3))
            now.append(dict(network.fabric.capacity))
        seen.append(now)
    assert seen[0] == seen[1]
    assert seen[0][0] == seen[0][1] and len({one["host0>switch"] for one in seen[0]}) == 4


def test_the_choice_of_collectives_depends_on_mean_bandwidths() -> None:
    """A library does not know the bandwidth of the moment: predictions are those of constant bandwidths."""
    data = scenario({"link": PLAIN})
    varied = scenario({"link": PLAIN, "variation": VARIES})
    plans = [load(one).plans()[0] for one in (data, varied)]
    chosen = [perform(plan, plan.schedule()).notes["collectives"] for plan in plans]
    assert chosen[0] == chosen[1]


LAW = processes.VariationModel(cv=0.3, every_s=0.25)


def test_redraws_end_with_the_run() -> None:
    """The 2000 bytes have arrived after some 2 s; nothing is left on the clock that would go on."""
    trace = played(sender, receiver, workers=2, network=ClusterNetwork(varying_star(1, 1, host0=LAW, host1=LAW)))
    assert answer(trace, 1) == 2000
    assert trace.wall_s == ends(varying_star(1, 1, host0=LAW, host1=LAW), [(0.0, 0, 1, 2000)])[0] < 10.0


def test_a_link_that_stays_broken_ends_the_run_although_bandwidths_vary() -> None:
    faults = fault("host1", "switch", 1.0), fault("host0", "switch", 9.0, 1.0)
    network = ClusterNetwork(replace(varying_star(1, 1, host0=LAW), link_faults=faults))
    with pytest.raises(DeadlockError, match=r"deadlock at 10 s[^$]*switch – host1 has been broken since 1 s"):
        played(sender, receiver, workers=2, network=network)


def test_the_vectorised_engine_says_why_it_does_not_run() -> None:
    nodes = [{"device": "knl-7250", "count": 4}]
    data = scenario({"link": PLAIN, "variation": VARIES}, nodes, algorithms=["sync-sgd"])
    (plan,) = load(data).plans()
    notes = perform(plan, plan.schedule(), engine="cohort").notes
    assert notes["engine"]["name"] == "events"
    assert "the bandwidths of links vary during" in notes["engine"]["reason"]


# --- a faster download, and links of nodes ----------------------------------------------------------------------------


def test_a_download_is_faster_than_an_upload() -> None:
    """Two uploads of 1 MB/s arrive together at a node that takes 4 MB/s; its own upload is as slow as theirs."""
    link = {"latency": "0 s", "bandwidth": "1 MB/s", "download": "4 MB/s"}
    loaded = load(scenario({"link": link}))
    cluster = loaded.cluster.build(loaded.workload)
    together = [(0.0, 1, 0, 10**6), (0.0, 2, 0, 10**6)]
    assert ends(cluster, together) == pytest.approx([1.0, 1.0])
    assert ends(cluster, [(0.0, 0, 1, 10**6), (0.0, 0, 2, 10**6)]) == pytest.approx([2.0, 2.0])
    equal = load(scenario({"link": {**link, "download": None}}))
    assert ends(equal.cluster.build(equal.workload), together) == pytest.approx([2.0, 2.0])
    assert load(loaded.dump()) == loaded
    lines = lines_of(cluster, [Rank(0), Rank(1)])
    assert {line.name: line.bytes_per_s for line in lines.lines} == {
        "host0>switch": 1e6, "switch>host1": 4e6, "host1>switch": 1e6, "switch>host0": 4e6,
    }  # fmt: skip


def test_a_download_is_larger_and_in_a_star() -> None:
    link = {"latency": "0 s", "bandwidth": "4 MB/s", "download": "1 MB/s"}
    assert told(scenario({"link": link})) == [
        (
            "network.link.download: found '1000000.0 B/s', expected more than the bandwidth 4000000.0 B/s, which is "
            "that of the upload"
        )
    ]
    assert told(scenario({"link": "home-cable", "topology": "ring"})) == [
        (
            "network.link.download: found '62500000.0 B/s', expected none in a ring: only in a star is it clear which "
            "direction is the download"
        )
    ]
    (line,) = told(scenario({"link": {**PLAIN, "upload": "1 MB/s"}}))
    assert line.startswith("network.link.upload: unknown key (did you mean bandwidth?); there are like, name, ")


def test_nodes_may_have_links_of_their_own() -> None:
    nodes = [{"device": DEVICE, "count": 2}, {"device": DEVICE, "link": {"latency": "0 s", "bandwidth": "1 MB/s"}}]
    loaded = load(scenario({"link": {"latency": "0 s", "bandwidth": "4 MB/s"}}, nodes))
    cluster = loaded.cluster.build(loaded.workload)
    assert ends(cluster, [(0.0, 0, 1, 10**6), (1.0, 0, 2, 10**6)]) == pytest.approx([0.25, 2.0])
    assert load(loaded.dump()) == loaded
    assert cluster.graph.describe().bisection.bytes_per_s == pytest.approx(1e6)


def test_nodes_have_links_of_their_own_only_in_a_star() -> None:
    nodes = [{"device": DEVICE, "count": 3}, {"device": DEVICE, "link": "wan-1g"}]
    assert told(scenario({"topology": "ring"}, nodes)) == [
        "nodes[1].link: found 'wan-1g', expected none in a ring: only in a star has a node one link"
    ]


def test_links_with_the_same_interval_vary_together_in_any_topology() -> None:
    graph = build("fat-tree", {"k": 4, "link": WIRE}).with_variation(LAW)
    assert len(graph.varying) == len(graph.striped().connections)
    (end_s,) = ends(on(graph, ranks=4), (), [(0.0, 4000)])
    assert end_s != ends(on(build("fat-tree", {"k": 4, "link": WIRE}), ranks=4), (), [(0.0, 4000)])[0]


def test_bandwidths_that_nobody_sees_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message waits an hour for its receiver: 360 bandwidths pass meanwhile, and no event is made for them."""
    link = {"latency": "10 ms", "bandwidth": "1 Gbit/s", "receive": "1 h", "variation": {"cv": 0.5, "every": "10 s"}}
    waiting = {
        "name": "waiting",
        "algorithms": ["gossip"],
        "workload": {"model": "resnet50", "learning": "none"},
        "cluster": {
            "nodes": [{"device": {"name": "d", "overhead": "1 s", "per_sample": "0 s"}, "count": 4}],
            "network": {"topology": "star", "link": link},
        },
        "stop": {"updates": 8},
    }
    redraw, made = VaryingLinks._redraw, list[float]()

    def counted(self: VaryingLinks, one: Any) -> None:
        made.append(one.every_s)
        redraw(self, one)

    monkeypatch.setattr(VaryingLinks, "_redraw", counted)
    (run,) = simulate(load(waiting))
    few = len(made)
    monkeypatch.setattr(VaryingLinks, "_unseen", lambda *_: 0)
    (each,) = simulate(load(waiting))
    assert run.tables.spans.equals(each.tables.spans)
    assert run.summary["wall_s"] == each.summary["wall_s"]
    assert few < 50 < 500 < len(made) - few
