"""Axes and grids of a sweep: how values are written, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.scenarios import ScenarioError, load
from paceline.scenarios.resolution.grid import axis, grid
from paceline.scenarios.values.limits import MOST_POINTS

COUNT = "cluster.nodes[0].count"


def mistakes(*vary: str, overrides: list[str] | None = None) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        grid("quickstart", vary, overrides or [])
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,2,4", ["1", "2", "4"]),
        ("a = 1 , 2 ", ["1", "2"]),
        ("a=3..6", ["3", "4", "5", "6"]),
        ("a=7..7", ["7"]),
        ("a=1..64x2", ["1", "2", "4", "8", "16", "32", "64"]),
        ("a=3..100x3", ["3", "9", "27", "81"]),
        ("a=1..3,8..32x2,100", ["1", "2", "3", "8", "16", "32", "100"]),
        ("a=10 Gbit/s,1 Gbit/s", ["10 Gbit/s", "1 Gbit/s"]),
        ("a=[1, 2],[3]", ["[1, 2]", "[3]"]),
        ("a={latency: 2 us, bandwidth: 1 Gbit/s},ib-edr", ["{latency: 2 us, bandwidth: 1 Gbit/s}", "ib-edr"]),
        ("a='x, y',\"z, [\"", ["'x, y'", '"z, ["']),
        ("a=b=c", ["b=c"]),
        ("a=1..30+8", ["1", "9", "17", "25"]),
        ("a=0.1..0.4+0.1", ["0.1", "0.2", "0.3", "0.4"]),
        ("a=0.5..2x2", ["0.5", "1.0", "2.0"]),
        ("a=1..3x1.5", ["1", "1.5", "2.25"]),
        ("a=1e-4..1e-1x10", ["0.0001", "0.001", "0.01", "0.1"]),
        ("a=0..1:5", ["0", "1"]),
        ("a=0.0..1.0:5", ["0.0", "0.25", "0.5", "0.75", "1.0"]),
        ("a=1..1000:4log", ["1", "10", "100", "1000"]),
        ("a=1..10:4log", ["1", "2", "5", "10"]),
        ("a=1.0..10.0:4log", ["1.0", "2.154", "4.642", "10.0"]),
        ("a=1..4x2 ms", ["1 ms", "2 ms", "4 ms"]),
        ("a=10..40 x2 Gbit/s,1 Gbit/s", ["10 Gbit/s", "20 Gbit/s", "40 Gbit/s", "1 Gbit/s"]),
        ("a=5..6 %", ["5 %", "6 %"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert axis(text).path == "a"
    assert list(axis(text).values) == values


def test_the_last_axis_changes_fastest() -> None:
    points = grid("quickstart", [f"{COUNT}=1,2", "stop.epochs=3,4"])
    assert [tuple(point.values.values()) for point in points] == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert [point.scenario.stop.epochs for point in points] == [3, 4, 3, 4]


def test_paths_that_change_together_are_one_axis() -> None:
    points = grid("quickstart", [f"{COUNT}=1..4x2 with workload.batch_per_worker=8,4,2", "stop.epochs=1,2"])
    assert [tuple(point.values.values()) for point in points] == [
        (count, batch, epochs) for count, batch in ((1, 8), (2, 4), (4, 2)) for epochs in (1, 2)
    ]
    assert {point.axes for point in points} == {((COUNT, "workload.batch_per_worker"), ("stop.epochs",))}
    assert points[-1].scenario.workload.batch_per_worker == 2


def test_a_path_may_be_twice_the_same_where_another_changes() -> None:
    points = grid("quickstart", [f"{COUNT}=1,2,2 with stop.epochs=1,1,2"])
    assert [tuple(point.values.values()) for point in points] == [(1, 1), (2, 1), (2, 2)]


ONE_KIND = """
name: one-kind
algorithms: [sync-sgd]
workload: {model: lenet, batch_per_worker: 32, learning: none}
cluster: {nodes: [{device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}, count: 4}], network: {link: ib-edr}}
stop: {updates: 2}
"""
EIGHT_IN_A_NODE = ONE_KIND.replace("{device: {name: fast, overhead: 4 ms, per_sample: 0.5 ms}", "{node: dgx1")


@pytest.mark.parametrize("source", [ONE_KIND, EIGHT_IN_A_NODE])
def test_an_axis_of_gpus_gives_as_many_workers(source: str) -> None:
    points = grid(source, ["gpus=1..16x2"])
    assert [point.values for point in points] == [{"gpus": number} for number in (1, 2, 4, 8, 16)]
    assert [point.scenario.cluster.workers for point in points] == [1, 2, 4, 8, 16]


def test_gpus_fill_whole_nodes() -> None:
    points = grid(EIGHT_IN_A_NODE, ["gpus=4,8,24"])
    nodes = [point.scenario.dump()["cluster"]["nodes"][0] for point in points]
    assert [(node["count"], node["workers_per_node"]) for node in nodes] == [(1, 4), (1, 8), (3, 8)]
    with pytest.raises(ScenarioError) as caught:
        grid(EIGHT_IN_A_NODE, ["gpus=8,12,0,x"])
    assert str(caught.value).splitlines() == [
        "gpus: found 12, expected 1 to 8 or a multiple of 8, the workers of a node (with gpus=12)",
        "gpus: found '0', expected a whole number of 1 or more (with gpus=0)",
        "gpus: found 'x', expected a whole number of 1 or more (with gpus=x)",
    ]


def test_gpus_of_a_named_system() -> None:
    points = grid("dgx1-p100", ["gpus=8,16"], algorithms=["sync-sgd"])
    assert [point.scenario.cluster.workers for point in points] == [8, 16]


def test_strong_scaling_keeps_the_total_batch_of_the_scenario() -> None:
    """Four workers with 32 samples each are 128 samples, on any number of workers."""
    points = grid(ONE_KIND, ["gpus=1..128x2"], scaling="strong")
    sizes = [(point.scenario.cluster.workers, point.scenario.workload.batch_per_worker) for point in points]
    assert sizes == [(workers, 128 // workers) for workers in (1, 2, 4, 8, 16, 32, 64, 128)]


def test_weak_scaling_keeps_the_batch_of_each_worker() -> None:
    weak, plain = grid(ONE_KIND, ["gpus=1,2"], scaling="weak"), grid(ONE_KIND, ["gpus=1,2"])
    assert [point.scenario for point in weak] == [point.scenario for point in plain]
    assert {point.scenario.workload.batch_per_worker for point in weak} == {32}


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ("gpus=1,3", "found a total batch of 128 samples and 3 workers, expected a batch that they can divide equally"),
        (
            "stop.updates=1,2",
            "--scaling strong: found no axis that changes the number of workers, expected one such as",
        ),
        ("workload.batch_per_worker=1,2", "found also --scaling strong, which sets it; expected one of them"),
    ],
)
def test_strong_scaling_that_is_impossible(vary: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        grid(ONE_KIND, [vary], scaling="strong")
    assert words in str(caught.value)


def test_a_point_is_what_set_would_make_of_it() -> None:
    (_, point) = grid("quickstart", ["algorithms.agd.delay=1,3"], ["stop.epochs=2"], algorithms=["agd"])
    assert point.scenario == load("quickstart", ["stop.epochs=2", "algorithms.agd.delay=3"], algorithms=["agd"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (COUNT, f"--vary: found '{COUNT}', expected path=values, such as"),
        ("=1,2", "--vary: found '=1,2', expected path=values"),
        (f"{COUNT}=", "expected path=values"),
        (f"{COUNT}=1,,2", f"--vary {COUNT}: found nothing between two commas or at an end"),
        (f"{COUNT}=1,2,", "found nothing between two commas or at an end"),
        (f"{COUNT}=4..1", f"--vary {COUNT}: found '4..1', expected a range upwards"),
        (f"{COUNT}=0..8x2", "found '0..8x2', expected a range by a factor above 1 from a number above 0"),
        (f"{COUNT}=1..8x1", "found '1..8x1', expected a range by a factor above 1 from a number above 0"),
        (f"{COUNT}=1..8x1.00001", "found '1..8x1.00001', which is more than 10000 values"),
        (f"{COUNT}=1..8+0", "found '1..8+0', expected a step above 0"),
        (
            f"{COUNT}=1..8*2",
            "found '1..8*2', expected a range such as 1..8 (steps of 1), 1..64+8 (steps of 8), 1..64x2",
        ),
        (f"{COUNT}=1...8", "found '1...8', expected a range such as 1..8"),
        (f"{COUNT}=1..", "found '1..', expected a range such as 1..8"),
        (f"{COUNT}=1.5..2", "found '1.5..2', expected a step or a number of values: 1..8 (steps of 1)"),
        (f"{COUNT}=1..8:1", "found '1..8:1', expected 2 to 10000 values after the colon"),
        (f"{COUNT}=0..8:3log", "found '0..8:3log', expected a logarithmic range from a number above 0"),
        (f"{COUNT}=8..8:3", "found '8..8:3', expected two different ends"),
        (f"{COUNT}=1,2 with stop.epochs=1", f"--vary {COUNT} with stop.epochs: found 2 and 1 values, expected equally"),
        (f"{COUNT}=1,1 with stop.epochs=1,1", "found '1, 1' twice, expected each value once"),
        (f"{COUNT}=1,2 with {COUNT}=3,4", f"--vary {COUNT}: found twice; expected all its values in one"),
        ("gpus=1,2", "gpus: found 2 kinds of nodes in cluster.nodes, expected one; vary the number of nodes of a kind"),
        (f"{COUNT}=1,2,1", f"--vary {COUNT}: found '1' twice, expected each value once"),
        (f"{COUNT}=1..9999999", "which is 9999999 values; expected at most 10000"),
        (f"{COUNT}=[1", f"--vary {COUNT}: value: found no YAML"),
        ("seed=1,2", "--vary seed: found an axis of its own, expected --seed and --seeds"),
        ("algorithms=agd,easgd", "expected --algorithms a,b"),
    ],
)
def test_a_wrong_axis(text: str, words: str) -> None:
    (line,) = mistakes(text)
    assert words in line


def test_a_mistake_of_every_point_is_said_once_and_without_values() -> None:
    (line,) = mistakes(f"{COUNT}=1..4", overrides=["stop.epochs=soon"])
    assert line.startswith("quickstart.yaml: stop.epochs: found 'soon'")
    assert "(with" not in line


def test_a_mistake_of_a_value_names_the_value() -> None:
    (line,) = mistakes(f"{COUNT}=1,0,2", "stop.epochs=1,2")
    assert line.startswith(f"quickstart.yaml: {COUNT}: found 0, expected")
    assert line.endswith(f"(with {COUNT}=0)")


def test_a_mistake_of_a_combination_names_the_combination() -> None:
    (line,) = mistakes(f"{COUNT}=1,99", "workload.batch_per_worker=1,9")
    assert "workload.batch_per_worker: found 9, expected at most 7" in line
    assert line.endswith(f"(with {COUNT}=99, workload.batch_per_worker=9)")


def test_all_mistakes_come_at_once() -> None:
    lines = mistakes(f"{COUNT}=0,1", "stop.epochs=2..1", "cluster.nods[0].count=1", overrides=["seed=one"])
    for words in ("expected a range upwards", f"(with {COUNT}=0)", "cluster.nods", "seed: found 'one'"):
        assert any(words in line for line in lines), words


def test_a_path_that_leads_nowhere_names_the_option() -> None:
    (line,) = mistakes("cluster.nodes[5].count=1,2")
    assert "--vary cluster.nodes[5].count: found no 5 in cluster.nodes" in line


def test_a_path_is_given_once() -> None:
    assert mistakes(f"{COUNT}=1,2", f"{COUNT}=3") == [f"--vary {COUNT}: found twice; expected all its values in one"]
    (line,) = mistakes(f"{COUNT}=1,2", overrides=[f"{COUNT}=3"])
    assert line == f"--vary {COUNT}: found also with --set; expected it once"


def test_too_many_points_are_refused_before_they_are_made() -> None:
    assert f"expected at most {MOST_POINTS}" in mistakes(f"{COUNT}=1..9000", "stop.epochs=1..9000")[0]
    assert "--vary: found none" in mistakes()[0]


def test_a_missing_file_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such file") as caught:
        grid(tmp_path / "none.yaml", [f"{COUNT}=1..100"])
    assert len(str(caught.value).splitlines()) == 1
