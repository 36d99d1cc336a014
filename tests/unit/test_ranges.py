"""Notes on runs outside the range of the data on which their models were fitted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.scenarios import load
from paceline.scenarios.resolution.fitted_ranges import covered, outside
from paceline.simulator.runs.run import simulate
from paceline.topologies.catalogue.device_catalogue import SPECS
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile
from paceline.topologies.compute.device_parameters import chip_key
from paceline.topologies.graphs.links import LINKS

TIMED = """
name: timed
algorithms: [async-sgd]
workload: {model: resnet50, batch_per_worker: 48, learning: none}
cluster:
  nodes: [{device: p100, count: 2}]
  network: {link: ib-fdr}
stop: {updates: 2}
"""


def notes(*changes: str, text: Any = TIMED, timed: bool = True) -> list[str]:
    (plan,) = load(text, list(changes)).plans()
    return outside(plan, timed=timed)


def test_the_shipped_scenarios() -> None:
    """Published data: AlexNet on that GPU at 128 to 512, GoogLeNet on KNL at 32, and nothing on P100s behind PCIe."""
    found = {name: outside(load(name).plans()[0]) for name in ("quickstart", "dgx1-p100", "cori-knl", "fat-tree-1024")}
    assert found["quickstart"] == []
    assert [len(found[name]) for name in ("dgx1-p100", "cori-knl", "fat-tree-1024")] == [0, 1, 1]
    assert found["cori-knl"][0].startswith(
        "workload.batch_per_worker: found 64; the time of knl-7250 was fitted at 32 ("
    )
    assert found["fat-tree-1024"][0].startswith(
        "cluster: found p100-pcie, of which the fit has no published throughput"
    )
    assert "DERIVED from published throughput of other chips" in found["fat-tree-1024"][0]


@pytest.mark.parametrize(("batch", "count"), [(31, 1), (32, 0), (48, 0), (64, 0), (65, 1)])
def test_batches_are_held_against_those_published(batch: int, count: int) -> None:
    same = [row for row in covered() if (row.chip, row.family) == (chip_key(SPECS["p100-sxm2"]), "resnet")]
    assert {row.batch for row in same} == {32, 64}
    found = notes(f"workload.batch_per_worker={batch}")
    assert len(found) == count
    assert all("was fitted at 32 to 64 (device model of" in note and "DERIVED" in note for note in found)


def test_without_pace_devices_do_not_matter() -> None:
    assert notes("workload.batch_per_worker=128") and not notes("workload.batch_per_worker=128", timed=False)


def test_a_measured_profile_has_the_batches_in_it() -> None:
    profile = "[{batch: 64, time: 292.2 ms}, {batch: 32, time: 164.1 ms}]"
    device = f"cluster.nodes[0].device={{name: mine, profile: {profile}}}"
    assert notes(device) == []
    (note,) = notes(device, "workload.batch_per_worker=16")
    assert note == (
        "workload.batch_per_worker: found 16; the time of mine was measured at 32 to 64 "
        "(2 measured steps given in the scenario)"
    )


def test_a_device_given_by_two_numbers_has_no_range() -> None:
    device = "cluster.nodes[0].device={name: mine, overhead: 1 ms, per_sample: 1 ms}"
    assert notes(device, "workload.batch_per_worker=4096") == []


@pytest.mark.parametrize(("link", "model", "noted"), [("gke-tcp", "resnet50", True), ("gke-tcp", "lenet", False),
                                                      ("ib-fdr", "resnet50", False)])  # fmt: skip
def test_messages_are_held_against_the_curve_that_a_link_was_fitted_to(link: str, model: str, noted: bool) -> None:
    """LeNet has 1.7 MB of weights, ResNet-50 102 MB; the curve ends with 4 MiB."""
    device = "cluster.nodes[0].device={name: mine, overhead: 1 ms, per_sample: 1 ms}"
    (run,) = simulate(load(TIMED, [f"cluster.network.link={link}", f"workload.model={model}", device]))
    found = [note for note in run.machine["warnings"] if note.startswith("cluster.network: ")]
    assert len(found) == noted
    if noted:
        sent = int(re.findall(r"messages of up to (\d+) bytes", found[0])[0])
        assert sent == run.tables.spans["bytes"].max() > LINKS[link].fitted_bytes == 4 * 2**20
        assert str(4 * 2**20) in found[0] and "osu_latency" in found[0]


def test_a_collective_is_held_against_it_by_its_largest_message() -> None:
    """A ring of 32 cuts 102 MB into 3.2 MB, which the curve has; of 4, into 25.5 MB, which it has not."""
    device = "cluster.nodes[0].device={name: mine, overhead: 1 ms, per_sample: 1 ms}"
    changes = ["cluster.network={link: gke-tcp, allreduce_algorithm: ring}", device, "workload.batch_per_worker=4"]
    for count, noted in ((4, True), (32, False)):
        (run,) = simulate(load(TIMED, [*changes, f"cluster.nodes[0].count={count}"], algorithms=["sync-sgd"]))
        assert bool(run.machine["warnings"]) is noted


def test_a_link_of_ones_own_may_say_what_it_was_fitted_to() -> None:
    link = "cluster.network.link={latency: 2 us, bandwidth: 40 Gbit/s, fitted_up_to: 1 MB}"
    device = "cluster.nodes[0].device={name: mine, overhead: 1 ms, per_sample: 1 ms}"
    (run,) = simulate(load(TIMED, [link, device]))
    assert "had up to 1000000 bytes" in run.machine["warnings"][0]
    (again,) = simulate(dict(run.scenario))
    assert again.machine["warnings"] == run.machine["warnings"]


def test_a_measured_machine_is_held_against_what_was_measured() -> None:
    points = ((0, 1e-4), (100, 1e-3))
    allreduce = {("AllReduce", 2): ((1000, 1e-4), (10_000, 2e-4))}
    small = Profile(collectives=allreduce, messages=points, inside_messages=points)
    (sync,) = simulate(load("quickstart", ["stop.epochs=0.1"], algorithms=["sync-sgd"]), machine=MeasuredCosts(small))
    found = "network: found AllReduce of 4 ranks"
    ranks = "the bytes that each rank of 4 sends at the speed of 2, and a latency by log2 of the ranks"
    sizes = "0.09 GB/s for the bytes above them, as between the largest sizes"
    assert sync.machine["warnings"] == [
        "evaluate.every: found 256 samples, so about 1 after the start; targets are read from the mean of 3",
        f"{found}; measured was AllReduce of 2 ranks; assumed: {ranks}",
        f"{found} of 19240 bytes; measured were 1000 to 10000 bytes; assumed: {sizes}",
    ]
    (server,) = simulate(load("quickstart", ["stop.epochs=1"], algorithms=["async-sgd"]), machine=MeasuredCosts(small))
    size = server.tables.spans["bytes"].max()
    assert server.machine["warnings"] == [
        f"network: found messages{where} of {size} bytes; measured were 0 to 100 bytes; assumed: 0.000111 GB/s for "
        "the bytes above them, as between the largest sizes"
        for where in (" in a node's memory", "")
    ]
    wide = Profile(messages=((size, 1e-3),), inside_messages=((size, 1e-3),))
    (server,) = simulate(load("quickstart", ["stop.epochs=1"], algorithms=["async-sgd"]), machine=MeasuredCosts(wide))
    assert server.machine["warnings"] == []  # the last messages of the server carry no vector


def test_what_is_done_in_a_nodes_memory_is_held_against_what_was_measured_there() -> None:
    both = dict.fromkeys(("Reduce", "Broadcast", "AllReduce"), ((1000, 0.0001), (10**6, 0.0002)))
    known = {(operation, 2): points for operation, points in both.items()}
    inside = {("Reduce", 2): both["Reduce"], ("Broadcast", 2): ((1000, 1e-4),)}
    machine = Profile(collectives=known, inside=inside, messages=((0, 1e-4),))
    (run,) = simulate(load("quickstart", ["stop.epochs=1"], algorithms=["hsgd"]), machine=MeasuredCosts(machine))
    size = 4810 * 4
    assumed = "measured were 1000 bytes; assumed: a time in proportion to the bytes"
    said = f"network: found Broadcast of 2 ranks in a node's memory of {size} bytes; {assumed}"
    assert run.machine["warnings"][-1:] == [said]
    apart = load("quickstart", ["stop.epochs=1", "train.shared_memory=false"], algorithms=["hsgd"])
    (run,) = simulate(apart, machine=MeasuredCosts(machine))
    assert not [text for text in run.machine["warnings"] if text.startswith("network: ")]


def test_a_quadratic_is_told_that_it_has_no_accuracy() -> None:
    quadratic = "workload={model: quadratic, learning: quadratic}"
    plan = load("quickstart", [quadratic], algorithms=["sync-sgd"]).plans()[0]
    (note,) = outside(plan)
    assert note.startswith("target.accuracy: found 0.93; the noisy quadratic has a loss and no accuracy")
    assert outside(load("quickstart", [quadratic, "target={loss: 0.1}"], algorithms=["sync-sgd"]).plans()[0]) == []


def test_a_quadratic_with_a_link_has_one() -> None:
    linked = "workload={model: quadratic, learning: quadratic, options: {link: 0.1}}"
    assert outside(load("quickstart", [linked], algorithms=["sync-sgd"]).plans()[0]) == []


def test_a_note_is_said_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "timed.yaml"
    path.write_text(TIMED)
    words = ["simulate", str(path), "--set", "workload.batch_per_worker=128", "--seeds", "2", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, words)
    assert (shown.exit_code, shown.stderr.count("note: workload.batch_per_worker: found 128")) == (0, 1)
    assert "note:" not in shown.stdout and CliRunner().invoke(app, [*words, "--quiet"]).stderr == ""
    answer = CliRunner().invoke(app, [*words, "--json"])
    (warning,) = json.loads(answer.stdout)["runs"][0]["warnings"]
    record = json.loads((Path(json.loads(answer.stdout)["runs"][0]["path"]) / "run.json").read_text())
    assert record["machine"]["warnings"] == [warning]
    swept = CliRunner().invoke(app, ["sweep", *words[1:], "--vary", "cluster.nodes[0].count=1,2", "--jobs", "1"])
    assert swept.stderr.count("note: workload.batch_per_worker") == 1


TABLE = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV6\t0-9\nGPU1\tNV6\t X \t0-9\n"
PLATFORM = (
    '<platform version="4.1"><zone id="z" routing="Full"><host id="a" speed="1Gf"/><host id="b" speed="1Gf"/>'
    '<link id="l" bandwidth="125MBps" latency="50us"/><route src="a" dst="b"><link_ctn id="l"/></route>'
    "<bypassRoute/></zone></platform>"
)


@pytest.mark.parametrize(("name", "text", "key", "cluster", "noted"), [
    ("box.txt", TABLE, "cluster.nodes[0].node.file", "{nodes: [{device: v100, count: 2, node: {file: FILE}}]}",
     "nvlink2 INFERENCE from 6 NVLinks a GPU"),
    ("wan.xml", PLATFORM, "cluster.file", "{file: FILE, device: v100}", "<bypassRoute> ignored"),
    ("wan.xml", PLATFORM, "cluster.network.file", "{nodes: [{device: v100, count: 2}], network: {file: FILE}}",
     "<bypassRoute> ignored"),
    ("net.json", '{"nodes": [{"id": "a"}, {"id": "b"}], "edges": [{"source": "a", "target": "b", "bandwidth": 1e9}]}',
     "cluster.file", "{file: FILE, device: v100}", "1 connections without a latency: 0"),
])  # fmt: skip
def test_what_a_file_leaves_open_is_said_with_the_figures(
    tmp_path: Path, name: str, text: str, key: str, cluster: str, noted: str
) -> None:
    """By `simulate` and `explain`, on standard error and in JSON, and in the record; a real run has its own links."""
    (tmp_path / name).write_text(text)
    path = tmp_path / "timed.yaml"
    head = TIMED.partition("cluster:")[0]
    path.write_text(f"{head}cluster: {cluster.replace('FILE', name)}\nstop: {{updates: 2}}\n")
    (plan,) = load(str(path)).plans()
    assert not [note for note in outside(plan, timed=False) if note.startswith(key)]
    for command in (["simulate", str(path), "--out", str(tmp_path)], ["explain", str(path)]):
        shown = CliRunner().invoke(app, [*command, "--json"])
        assert shown.exit_code == 0, shown.stderr
        answer = json.loads(shown.stdout)
        said = answer["runs"][0]["warnings"] if "runs" in answer else answer["algorithms"][0]["notes"]
        (line,) = [note for note in said if note.startswith(f"{key}: {name.partition('.')[0]}: ")]
        assert noted in line
        if name == "box.txt":
            assert f"note: {line}" in CliRunner().invoke(app, command).stderr
    record = next(tmp_path.rglob("run.json")).read_text()
    assert noted in "\n".join(json.loads(record)["machine"]["warnings"])
