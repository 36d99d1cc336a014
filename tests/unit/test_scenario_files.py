"""Scenarios whose machines, networks or nodes come from files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.scenarios import Scenario, load
from paceline.scenarios.values.mistakes import ScenarioError
from paceline.simulator.runs.run import simulate

SAMPLES = Path(__file__).parents[1] / "data" / "topologies"
DEVICE = {"name": "d", "overhead": "10 ms", "per_sample": "0 s"}
TREE = {
    "nodes": [{"id": "tor", "kind": "switch"}, *({"id": name} for name in "abcd")],
    "edges": [{"source": "tor", "target": name, "bandwidth": "1 GB/s", "latency": "1 us"} for name in "abcd"],
}


def written(folder: Path, cluster: dict[str, Any]) -> Path:
    """Returns a scenario file with this cluster, and writes the files that it names."""
    for sample in SAMPLES.iterdir():
        shutil.copy(sample, folder)
    (folder / "tree.json").write_text(json.dumps(TREE))
    (folder / "mine.yaml").write_text(
        yaml.safe_dump(
            {
                "name": "mine",
                "cluster": cluster,
                "workload": {"model": "alexnet", "learning": "none"},
                "algorithms": ["sync-sgd"],
                "stop": {"updates": 2},
            }
        )
    )
    return folder / "mine.yaml"


def mistakes(folder: Path, cluster: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(written(folder, cluster))
    lines = str(caught.value).replace(f"{folder}/", "").splitlines()
    return [line.removeprefix("mine.yaml: cluster.") for line in lines]


FORMS: list[tuple[dict[str, Any], int]] = [
    ({"file": "tree.json", "device": DEVICE}, 4),
    ({"file": "tree.json", "device": DEVICE, "nodes": 3}, 3),
    ({"file": "dgx1-v100.txt", "device": "v100-sxm2"}, 8),
    ({"file": "cluster.xml", "device": DEVICE, "nodes": 4}, 4),
    ({"network": {"file": "tree.json"}, "nodes": [{"device": DEVICE, "count": 3, "workers_per_node": 2}]}, 6),
    (
        {
            "network": {"file": "tree.json"},
            "nodes": [{"node": {"file": "dgx1-v100.txt"}, "settings": {"pcie": 3}, "count": 2, "device": "v100-sxm2"}],
        },
        16,
    ),
    ({"nodes": [{"node": {"file": "dgx1-v100.txt"}, "device": DEVICE, "workers_per_node": 4, "count": 2}]}, 8),
]


@pytest.mark.parametrize(("cluster", "workers"), FORMS)
def test_what_a_file_holds_is_simulated_and_written_back(
    cluster: dict[str, Any], workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = load(written(tmp_path, cluster))
    assert scenario.cluster.workers == workers
    (run,) = simulate(scenario)
    assert (run.summary["step_s"]["mean"] or 0) > 0.01
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    again = load(json.loads(json.dumps(scenario.dump())))
    assert isinstance(again, Scenario) and again == scenario and again.cluster.workers == workers


def test_a_path_given_beside_the_scenario_is_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (below := tmp_path / "below").mkdir()
    path = written(below, {"file": "tree.json", "device": DEVICE})
    monkeypatch.chdir(tmp_path)
    assert load(path).cluster.file == str(below / "tree.json")
    assert load(path, ["cluster.file=below/tree.json"]).cluster.file == str(below / "tree.json")


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (
            {"file": "tre.json", "device": DEVICE},
            ["file: tre.json: cannot be read: No such file or directory"],
        ),
        ({"file": "tree.json"}, ["device: missing; tree.json does not say what its devices are"]),
        (
            {"file": "tree.json", "device": DEVICE, "nodes": 5},
            ["nodes: found 5, expected at most 4, as many as there are in tree.json"],
        ),
        (
            {"file": "tree.json", "system": "dgx1-v100", "device": DEVICE},
            ["file: found a system and a file; expected one of them"],
        ),
        (
            {"network": {"file": "tree.json"}, "nodes": [{"device": DEVICE, "count": 5}]},
            ["network.file: found 4 hosts in tree.json, expected 5 or more, one a node"],
        ),
        (
            {"network": {"file": "tree.json", "sides": "4x4"}, "nodes": [{"device": DEVICE}]},
            [
                "network.sides: unknown key; "  # noqa: ISC004
                "there are file, intra_node_link, routing, allreduce_algorithm, library, library_version, "
                "variation, faults"
            ],
        ),
        (
            {"network": {"file": "dgx1-v100.txt"}, "nodes": [{"device": DEVICE}]},
            ["network.file: found devices in dgx1-v100.txt; expected hosts alone (for a whole machine: cluster.file)"],
        ),
        (
            {"nodes": [{"node": {"file": "tree.json"}, "device": DEVICE}]},
            ["nodes[0].node.file: tree.json: found no devices in it, expected the inside of a machine"],
        ),
        (
            {"nodes": [{"node": {"file": "dgx1-v100.txt"}, "settings": {"pcie": 9}, "device": DEVICE}]},
            ["nodes[0].settings.pcie: found '9', expected 3, 4 or 5"],
        ),
        (
            {"nodes": [{"node": {"file": "dgx1-v100.txt"}}]},
            ["nodes[0].device: missing; a dgx1-v100.txt does not say what its devices are"],
        ),
    ],
)
def test_mistakes_say_what_would_be_right(cluster: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    assert mistakes(tmp_path, cluster) == told
