"""/dev/shm is full, from the start or suddenly: one sentence, status 1, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.records.store import read_run
from tests.attacks.mounts import Ended, needs_mounts, within
from tests.thorough import cases

pytestmark = [pytest.mark.backend, pytest.mark.slow, pytest.mark.timeout(900), needs_mounts]

SHARED = Path("/dev/shm")
SCENARIO = """
name: full
algorithms: [{algorithm}]
workload: {{model: digits-mlp, dataset: digits, batch_per_worker: 8}}
cluster: {{nodes: [{{device: p100, workers_per_node: 2}}], network: {{link: eth-10g}}}}
train: {{pace: none, start_method: {start}}}
stop: {{{stop}}}
"""
TORCHRUN = (
    "python -m torch.distributed.run --standalone --nproc-per-node=2 --no-python bash -c 'paceline \"$@\"' paceline"
)


def script(
    folder: Path, command: str, *, start: str = "fork", stop: str = "updates: 40", method: str = "sync-sgd"
) -> str:
    """A command that trains a small scenario."""
    path = folder / "full.yaml"
    path.write_text(SCENARIO.format(algorithm=method, start=start, stop=stop))
    return f"{command} train {path} --quiet --out {folder / 'runs'}"


def told(ended: Ended) -> None:
    """The error is one sentence with the required size, the free size and a remedy, and the only output."""
    assert ended.status == 1, ended
    assert "Traceback" not in ended.said and "Bus error" not in ended.said, ended.said
    lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, ended.said
    assert " need" in lines[0] and " free in /dev/shm: make room there, or enlarge it" in lines[0]
    assert ended.processes == 0, ended


SIZES = ["280k", "64k", "300k", "4k", "100k", "200k", "272k", "276k", "288k", "320k"]


@pytest.mark.parametrize("size", SIZES[: cases(0, len(SIZES))])
def test_forked_ranks(size: str, tmp_path: Path) -> None:
    """There is no room for the status board; or there is, but none for the output of the ranks."""
    ended = within(SHARED, size, script(tmp_path, "paceline"))
    told(ended)
    assert ended.left == ()
    assert not list((tmp_path / "runs").glob(".*"))


@pytest.mark.parametrize("size", ["4500k", "600k", "2m", "5m", "12m", "20m"][: cases(0, 6)])
def test_spawned_ranks(size: str, tmp_path: Path) -> None:
    """There is no room for the files of messages, or of a channel that a rank claims."""
    ended = within(SHARED, size, script(tmp_path, "paceline", start="spawn"))
    told(ended)
    assert ended.left == ()


@pytest.mark.parametrize("size", ["320k", "64k", "200k", "240k", "288k"][: cases(0, 5)])
def test_shared_vectors(size: str, tmp_path: Path) -> None:
    ended = within(SHARED, size, script(tmp_path, "paceline", method="hogwild-sgd"))
    told(ended)
    assert ended.left == ()


@pytest.mark.parametrize("size", ["1m", "64k", "300k", "2m"][: cases(0, 4)])
def test_joined_ranks(size: str, tmp_path: Path) -> None:
    """Each process maps the memory of its host itself; torchrun prints its own text after ours."""
    ended = within(SHARED, size, script(tmp_path, TORCHRUN))
    assert ended.status == 1 and ended.processes == 0, ended
    assert "Bus error" not in ended.said and "SIGBUS" not in ended.said
    assert "free in /dev/shm: make room there, or enlarge it" in ended.said
    ours = ended.said.split("torch/distributed")[0]
    assert "Traceback" not in ours, ended.said
    assert not [name for name in ended.left if name.startswith("paceline")]


@pytest.mark.parametrize("method", ["sync-sgd", "async-sgd", "hogwild-sgd"][: cases(1, 3)])
def test_memory_that_fills_up_while_ranks_run(method: str, tmp_path: Path) -> None:
    """The data recorded so far is kept."""
    train = script(tmp_path, "paceline", stop="seconds: 60 s", method=method)
    started = "grep -q started /dev/shm/paceline-run-*/rank0.log 2>/dev/null"
    fill = f"for _ in {{1..300}}; do {started} && break; sleep 0.1; done; sleep 1; cat /dev/zero > /dev/shm/fill"
    ended = within(SHARED, "8m", f"{train} & {fill} 2>/dev/null; wait $!")
    told(ended)
    assert ended.left == ("fill",)
    (kept,) = (tmp_path / "runs").iterdir()
    run = read_run(kept)
    assert run.summary["stop_reason"] == "failure" and len(run.tables.updates) > 0
