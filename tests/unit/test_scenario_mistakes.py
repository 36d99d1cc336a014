"""Malformed scenarios: every mistake is reported with its path, the value found, and the expected one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.algorithms import find
from paceline.scenarios import SHIPPED, ScenarioError, load
from paceline.scenarios.sections.runs import Stop

QUICKSTART = SHIPPED["quickstart"].read_text(encoding="utf-8")
NODES = "cluster: {nodes: [{device: {name: a, overhead: 4 ms, per_sample: 1 ms}, workers_per_node: 2}]}\n"
OVERHEAD = "cluster.nodes[1].device.overhead"
OF_A_TIME = "expected a time of 0 or more with its unit, such as '4 ms'"
SMALL = "name: small\nalgorithms: [sync-sgd]\nworkload: {model: digits-mlp}\nstop: {epochs: 1}\n" + NODES


def mistakes(source: str | Path, overrides: Sequence[str] = (), algorithms: Sequence[str] | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(source, overrides, algorithms=algorithms)
    return str(caught.value).splitlines()


def changed(*overrides: str) -> list[str]:
    """Returns the mistakes of quickstart with these changes, without the file's name."""
    return [line.removeprefix("quickstart.yaml: ") for line in mistakes("quickstart", overrides)]


def test_the_small_scenario_is_right() -> None:
    assert load(SMALL).name == "small"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("cluster.nodes[0].count=two", "cluster.nodes[0].count: found 'two', expected a whole number of 1 or more"),
        (
            "workload.batch_per_wroker=32",
            (
                "workload.batch_per_wroker: unknown key (did you mean batch_per_worker?); there are model, trace, "
                "trace_batch, dataset, data_dir, samples, batch_per_worker, learning, dtype, vmap, compute_dtype, "
                "options, stand_in, reading"
            ),
        ),
        ("algorithms[0]=sync-sdg", "algorithms[0]: unknown method 'sync-sdg' (did you mean sync-sgd?)"),
        ("algorithms[4].name=hbs-sdg", "algorithms[4].name: unknown method 'hbs-sdg' (did you mean hbs-sgd?)"),
        (
            "cluster.network.link={latency: 20 us, bandwidth: -10 Gbit/s}",
            (
                "cluster.network.link.bandwidth: found '-10 Gbit/s', expected a bandwidth above 0 with its unit, "
                "such as '10 Gbit/s'"
            ),
        ),
        (f"{OVERHEAD}=4 parsec", f"{OVERHEAD}: found '4 parsec', {OF_A_TIME}; 'parsec' is no unit of it"),
        (f"{OVERHEAD}=4", f"{OVERHEAD}: found 4, {OF_A_TIME}"),
        (
            "algorithms.hbs-sgd.group=3",
            "algorithms[4].group: groups of 3 do not divide the 4 workers; 1, 2, 4 would, or 'node'",
        ),
        ("algorithms.hbs-sgd.group=rack", "algorithms[4].group: found 'rack', expected a whole number or 'node'"),
        ("algorithms.easgd.elastic=true", "algorithms[2].elastic: found True, expected a number or null"),
        (
            "algorithms[0]=easgd",
            "algorithms[2]: easgd is there twice with the same hyper-parameters; expected once, or a label",
        ),
        ("cluster.nodes=[]", "cluster.nodes: found [], expected a list of at least one"),
        (
            "cluster.nodes[1].count=1000000000",
            "cluster.nodes: found 2000000002 workers in all, expected at most 100000",
        ),
        (
            "cluster.nodes[0]={node: dgx1, workers_per_node: 9}",
            "cluster.nodes[0].workers_per_node: found 9, expected at most 8, as many as a dgx1 has",
        ),
        ("cluster.server.node=2", "cluster.server.node: found 2, expected a node below 2, the number of nodes"),
        (
            "cluster.network={topology: torus, sidse: 3x3}",
            (
                "cluster.network.sidse: unknown key (did you mean sides?); there are topology, file, link, "
                "intra_node_link, routing, allreduce_algorithm, library, library_version, variation, faults, sides"
            ),
        ),
        (
            "workload.batch_per_worker=360",
            (
                "workload.batch_per_worker: found 360, expected at most 359, so that 4 workers together take no more "
                "than all 1437 samples at once"
            ),
        ),
        (
            "stop={accuracy: 0.9}",
            (
                "stop: found only accuracy, which may never be reached; expected one of epochs, updates, samples or "
                "seconds too"
            ),
        ),
        ("stop={}", "stop: found no rule; expected one of epochs, updates, samples or seconds too"),
    ],
)
def test_one_mistake(change: str, told: str) -> None:
    assert changed(change) == [told]


def test_a_network_too_small_for_its_nodes() -> None:
    assert changed("cluster.network={topology: fat-tree, k: 2}", "cluster.nodes[0].count=4") == [
        "cluster.network.topology: found a fat-tree of 2 hosts (k = 2), expected 5 or more"
    ]


def test_a_batch_of_all_samples_is_right() -> None:
    assert load("quickstart", ["workload.batch_per_worker=359"]).workload.batch_per_worker == 359


@pytest.mark.parametrize(
    ("change", "begins", "ends"),
    [
        ("cluster=cori-knm", "cluster.system: found 'cori-knm', expected cori-knl, summit, ", "cori-knl"),
        ("cluster.network.link=eth-10", "cluster.network.link: found 'eth-10', expected one of eth-1g, ", "eth-10g"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(change: str, begins: str, ends: str) -> None:
    (line,) = changed(change)
    assert line.startswith(begins) and line.endswith(f"(did you mean {ends}?)")


def test_a_missing_device() -> None:
    assert mistakes(SMALL.replace(NODES, "cluster: {nodes: [{workers_per_node: 4}]}\n")) == [
        "scenario: cluster.nodes[0].device: missing; expected a device's name or a mapping"
    ]


def test_what_needs_the_cluster_is_checked_once_that_is_right() -> None:
    known = [field.name for field in dataclasses.fields(find("sync-sgd"))]
    misspelt = "cluster.step_time={distribution: lognormal, sigma: 0.3}"
    assert changed(misspelt, "algorithms.agd.delay=-1", "algorithms[0].rat=1") == [
        "cluster.step_time.distribution: unknown distribution 'lognormal' (did you mean lognorm?)",
        "algorithms[0].rat: sync-sgd has no such key; it has " + ", ".join(known),
    ]


def test_missing_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SMALL)
    (line,) = mistakes(tmp_path / "mime.yaml")
    assert line == (
        f"{tmp_path}/mime.yaml: no such file (did you mean {tmp_path}/mine.yaml?); "
        f"expected the path of a scenario file or one of {', '.join(SHIPPED)}"
    )


def test_empty_file(tmp_path: Path) -> None:
    for text in ("", "# nothing but a comment\n", "---\n"):
        (tmp_path / "empty.yaml").write_text(text)
        assert mistakes(tmp_path / "empty.yaml") == [
            "empty.yaml: found nothing in it, expected a scenario with name, cluster, workload, algorithms and stop"
        ]


def test_not_yaml(tmp_path: Path) -> None:
    (tmp_path / "text.yaml").write_text("name: [quickstart\nstop: }")
    (line,) = mistakes(tmp_path / "text.yaml")
    assert line.startswith("text.yaml: found no YAML in line 2 (")
    assert line.endswith("), expected a scenario in YAML")


def test_all_at_once() -> None:
    overrides = ["algorithms.agd.delay=-1", "algorithms[0].rat=1", "train.pace=devise", "seed=-1", "stop=", "nam=x"]
    found = mistakes(QUICKSTART.replace("batch_per_worker: 32", "batch_per_worker: 4000"), overrides)
    assert [line.split(": ")[1] for line in found] == [
        "workload.batch_per_worker",
        "algorithms[0].rat",
        "algorithms[5].delay",
        "train.pace",
        "stop",
        "seed",
        "nam",
    ]
    assert found[3] == "scenario: train.pace: found 'devise', expected device or none (did you mean device?)"


def test_keys_given_twice() -> None:
    found = mistakes(SMALL + "stop: {epochs: 2, epochs: 3}\n")
    assert found == [
        "scenario: stop.epochs: given twice, in lines 6 and 6; expected once",
        "scenario: stop: given twice, in lines 4 and 6; expected once",
    ]


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1e999"])
def test_numbers_that_are_not_finite(value: str) -> None:
    for path in (
        "stop.epochs",
        "train.time_dilation",
        "target.accuracy",
        "algorithms.agd.learning_rate",
        "cluster.step_time.sigma",
    ):
        (line,) = changed(f"{path}={value}")
        shown = {".nan": "nan", "-.inf": "-inf"}.get(value, "inf")
        assert f"found {shown}, expected" in line, line
    (line,) = changed(f"cluster.nodes[0].device.overhead={value} s")
    assert "expected a time" in line


def test_overrides_of_paths_that_are_not_there() -> None:
    assert changed("stop.epoch=3") == [
        f"stop.epoch: unknown key (did you mean epochs?); there are {', '.join(Stop.model_fields)}"
    ]
    assert changed("cluster.nodes[2].count=3") == [
        "--set cluster.nodes[2].count: found no 2 in cluster.nodes, expected a position below 2 or a name"
    ]
    assert changed("algorithms.agb.delay=3") == [
        (
            "--set algorithms.agb.delay: found no 'agb' in algorithms, expected a position below 6 or a name "
            "(sync-sgd, async-sgd, easgd, sync-easgd3, hbs-sgd, agd)"
        )
    ]
    assert changed("name.first=a") == [
        "--set name.first: found 'quickstart' at name, which has no parts; expected the path of a value"
    ]
    assert changed("cluster[0]=a")[0].startswith(
        "--set cluster[0]: found the position 0 in cluster, which is a mapping"
    )
    for bad in ("seed", "=3", "a..b=3", "a[x]=3"):
        assert changed(bad) == [f"--set: found {bad!r}, expected path=value, such as cluster.nodes[0].count=2"]


def test_devices_too_fast_to_be_paced_here() -> None:
    scenario = load("quickstart", ["cluster.nodes[0].device={name: quick, overhead: 0.1 ms, per_sample: 10 us}"])
    assert len(scenario.plans()) == 6  # simulating it is no problem
    with pytest.raises(ScenarioError) as caught:
        scenario.plans(paced=True)
    assert str(caught.value) == (
        "quickstart: cluster.nodes[0].device: found 0.42 ms a step on quick, too fast to be paced on this machine; "
        "expected at least 2 ms (give `train.time_dilation: 48` to stretch the clock, or "
        "run `paceline train` with `train.pace: none`)"
    )
    for way in ("train.time_dilation=48", "train.pace=none"):
        assert len(load(scenario, [way]).plans(paced=True)) == 6


@pytest.mark.parametrize("value", ["[a, b]", "{a: 1}", "3", "true", "[[1]]"])
@pytest.mark.parametrize("setting", ["gpu", "between"])
def test_a_graphs_setting_of_another_shape_is_told(setting: str, value: str) -> None:
    with pytest.raises(ScenarioError, match=rf"cluster\.nodes\[0\]\.settings\.{setting}: found .*, expected a name"):
        load("fat-tree-128", [f"cluster.nodes[0].settings.{setting}={value}"])
    with pytest.raises(ScenarioError, match=r"settings\.roots: found '\[2\]', expected a whole number"):
        load("fat-tree-128", ["cluster.nodes[0].settings.roots=[2]"])


def test_a_topologys_own_link_is_looked_at_as_any_other() -> None:
    network = "cluster.network={{topology: leaf-spine, uplink: {}}}"
    (line,) = changed(network.format("eth-10"))
    assert "cluster.network.uplink: found 'eth-10', expected one of eth-1g, " in line
    (line,) = changed(network.format("[1, 2]"))
    assert "cluster.network.uplink: found [1, 2], expected one of eth-1g, " in line
    assert changed(network.format("{latency: fast, lat: 2 us}")) == [
        "cluster.network.uplink.latency: found 'fast', expected a time of 0 or more with its unit, such as '4 ms'",
        "cluster.network.uplink.bandwidth: missing; expected a bandwidth with its unit, in each direction: '10 Gbit/s'",
        (
            "cluster.network.uplink.lat: unknown key (did you mean latency?); there are like, name, latency, "
            "bandwidth, count, download, provenance, medium, send, receive, hop, pieces, fitted_up_to, variation"
        ),
    ]


def test_hyperparameters_for_all() -> None:
    assert changed("hyperparameters={momentun: 0.9}") == [
        (
            "hyperparameters.momentun: no algorithm here has this hyper-parameter without "
            "giving its own (did you mean momentum?)"
        )
    ]
    assert changed("hyperparameters={momentum: much}") == ["hyperparameters.momentum: found 'much', expected a number"]
    (line,) = mistakes(SMALL, ["hyperparameters.delay=1"])
    assert line.startswith("scenario: hyperparameters.delay: no algorithm here has this")


def test_unknown_algorithms_on_the_command_line() -> None:
    (line,) = mistakes("quickstart", algorithms=["agd", "easdg"])
    assert line == "quickstart.yaml: algorithms[1]: unknown method 'easdg' (did you mean easgd?)"


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("train: &t {torch_threads: 1}\nevaluate: *t\n", "evaluate: found an alias (*), expected the value itself"),
        (
            "train: !!python/name:os.system\n",
            "train: found in line 6 the tag 'tag:yaml.org,2002:python/name:os.system'",
        ),
        ("? [a, b]\n: 1\n", "found in line 6 a key that is a list or mapping; expected text"),
    ],
)
def test_yaml_that_is_more_than_data(addition: str, message: str) -> None:
    assert any(message in line for line in mistakes(SMALL + addition))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "photo.yaml").write_bytes(b"\xff\xd8\xff\xe0")
    assert mistakes(tmp_path / "photo.yaml") == [
        "photo.yaml: found bytes that are no UTF-8 text, expected a scenario in YAML"
    ]
    assert mistakes(tmp_path) == [f"{tmp_path}: found a folder, expected a scenario file"]
    (tmp_path / "run.json").write_text("{'name'}")
    assert mistakes(tmp_path / "run.json")[0].startswith("run.json: not valid JSON: line 1, column ")
    assert "nested more than 100 deep in line 1" in mistakes("a: " + "[" * 10_000 + "\n")[0]
    assert mistakes("- a\n- b\n")[0].startswith("scenario: found ['a', 'b'], expected a mapping with the keys name, ")
