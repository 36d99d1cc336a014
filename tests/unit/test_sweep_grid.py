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
        ("a=1.5..2", ["1.5..2"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert axis(text).path == "a"
    assert list(axis(text).values) == values


def test_the_last_axis_changes_fastest() -> None:
    points = grid("quickstart", [f"{COUNT}=1,2", "stop.epochs=3,4"])
    assert [tuple(point.values.values()) for point in points] == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert [point.scenario.stop.epochs for point in points] == [3, 4, 3, 4]


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
        (f"{COUNT}=0..8x2", "found '0..8x2', expected a range by factors of 2 or more from 1 or more"),
        (f"{COUNT}=1..8x1", "found '1..8x1', expected a range by factors of 2 or more"),
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
