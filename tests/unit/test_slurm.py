"""The Slurm script: as many nodes as the cluster has, and a task for every rank."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paceline.backend.transports.launchers import script
from paceline.scenarios import load


def asked(text: str) -> dict[str, str]:
    """What the script asks Slurm for."""
    return dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("algorithms", "nodes", "tasks"),
    [
        ([], "2", "3"),  # with a server
        (["algorithms=[sync-sgd]"], "2", "2"),
        (["algorithms=[{name: async-sgd, servers: 2}]"], "2", "3"),
        (["algorithms=[{name: async-sgd, servers: 3}, sync-sgd]"], "2", "4"),
        (["algorithms=[sync-sgd]", "cluster.nodes[0].count=3"], "4", "2"),
    ],
)
def test_nodes_and_tasks_follow_from_the_cluster(algorithms: list[str], nodes: str, tasks: str) -> None:
    found = asked(script(load("quickstart", algorithms), ["train", "quickstart"]))
    assert (found["nodes"], found["ntasks-per-node"]) == (nodes, tasks)
    assert found["cpus-per-task"] == "1" and found["job-name"] == "quickstart"


@pytest.mark.parametrize(
    ("train", "gpus"),
    [
        ("device: cpu", None),
        ("device: cuda", "3"),  # the server's too
        ("device: cuda, share_gpus: true", "1"),
    ],
)
def test_gpus_are_asked_for_where_ranks_compute_on_them(train: str, gpus: str | None) -> None:
    found = asked(script(load("quickstart", [f"train={{{train}, network: local, pace: none}}"]), ["train"]))
    assert found.get("gpus-per-node") == gpus


def test_what_auto_would_take_is_named_in_a_comment() -> None:
    text = script(load("quickstart", ["train.device=auto"]), ["train"])
    assert "gpus-per-node" not in asked(text)
    assert "# Perhaps also: --partition, --account, --constraint, --gpus-per-node=3 (train.device is auto)." in text


def test_the_command_is_the_users(tmp_path: Path) -> None:
    """Quoted for the shell, which finds the whole script in order."""
    arguments = ["train", "quickstart", "--set", "stop={epochs: 2}"]
    text = script(load("quickstart"), arguments)
    assert text.rstrip().endswith("paceline train quickstart --set 'stop={epochs: 2}'")
    path = tmp_path / "script.sh"
    path.write_text(text)
    checked: Any = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
