"""The disk with the results is full: the error names the path, and existing results stay complete."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.attacks.mounts import Ended, needs_mounts, within
from tests.thorough import cases

pytestmark = [pytest.mark.backend, pytest.mark.slow, pytest.mark.timeout(900), needs_mounts]

SCENARIO = """
name: full
algorithms: [sync-sgd, async-sgd]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 8}
cluster: {nodes: [{device: p100, workers_per_node: 2}], network: {link: eth-10g}}
train: {pace: none}
stop: {updates: 60}
"""
CHECKPOINTS = "--set train.checkpoint.every='10 updates' --set 'algorithms=[sync-sgd]'"
COMMANDS = {
    "simulate": "simulate {scenario} --out {disk}",
    "train": "train {scenario} --out {disk}",
    "sweep": "sweep {scenario} --vary workload.batch_per_worker=4,8 --keep-runs --jobs 2 --out {disk}",
    "convert": "convert digits --out {disk}/records",
}

HALF = """
import json, pathlib, sys
for folder in pathlib.Path(sys.argv[1]).iterdir():
    if folder.name == "sweep-points":
        for path in folder.rglob("*"):
            path.is_dir() or json.loads(path.read_text())
    elif "-unfinished-" in folder.name:
        continue
    elif folder.is_dir() and not (folder / "run.json").exists():
        print("half:", folder)
"""
"""prefixes of incomplete results in a folder; a test fails if a stored result of a sweep is incomplete"""


def told(ended: Ended, disk: Path) -> None:
    assert ended.status == 1, ended
    assert "Traceback" not in ended.said, ended.said
    assert "error: " in ended.said
    assert f"{disk}" in ended.said and "No space left on device" in ended.said, ended.said
    assert ended.processes == 0, ended
    assert not [name for name in ended.left if name.startswith(".")], ended.left


@pytest.mark.parametrize("size", ["64k", "16k", "32k", "48k", "8k"][: cases(1, 5)])
@pytest.mark.parametrize("command", ["train", "sweep", "simulate", "convert"][: cases(1, 4)])
def test_nothing_half_written_is_left(command: str, size: str, tmp_path: Path) -> None:
    """A run stored before the disk was full remains, and so do complete results of a sweep; incomplete ones do not."""
    disk, scenario = tmp_path / "disk", tmp_path / "full.yaml"
    disk.mkdir()
    scenario.write_text(SCENARIO)
    check = f"{sys.executable} -c {shlex.quote(HALF)} {disk} >&2"
    run = COMMANDS[command].format(scenario=scenario, disk=disk)
    ended = within(disk, size, f"paceline {run} --quiet; status=$?; {check}; exit $status")
    told(ended, disk)
    assert "half: " not in ended.said


@pytest.mark.parametrize("size", ["200k", "160k", "120k", "100k"][: cases(1, 4)])
def test_checkpoints_that_do_not_fit(size: str, tmp_path: Path) -> None:
    """The checkpoint ends the run; an earlier complete one remains, and the command says how to resume."""
    disk, scenario = tmp_path / "disk", tmp_path / "full.yaml"
    disk.mkdir()
    scenario.write_text(SCENARIO)
    ended = within(disk, size, f"paceline train {scenario} {CHECKPOINTS} --quiet --out {disk}")
    told(ended, disk)
    assert "the checkpoint at step" in ended.said
