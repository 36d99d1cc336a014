"""Tests on real GPUs. Those that need one are skipped without it; the others run on CPUs with the same code.

On a machine with GPUs: ``pytest tests/backend/test_gpu.py -v``; with two of them nothing is skipped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from paceline.algorithms.core.errors import PeerFailed
from paceline.algorithms.core.operations import AllGather, AllReduce, Broadcast, Reduce
from paceline.algorithms.core.values import Group, Rank
from paceline.algorithms.runtime.collective_matching import Collective
from paceline.backend.devices.accelerator import Accelerator, Devices, Gpu, Processor, accelerator
from paceline.backend.status.status_board import Lost
from paceline.backend.training import train
from paceline.backend.transports.collectives import Flying, Groups, TorchCollectives
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.scenarios import load
from tests.backend.jobs import no_children, plain
from tests.backend.test_accelerator import Pretended

GPUS = torch.cuda.device_count()
needs_a_gpu = pytest.mark.skipif(GPUS < 1, reason="torch sees no GPU here")
needs_two = pytest.mark.skipif(GPUS < 2, reason=f"torch sees {GPUS} GPUs here; NCCL needs one for each of two ranks")
BOTH = Group((Rank(0), Rank(1)))
DEVICES = ["host", "stand-in", pytest.param("cuda", marks=needs_two)]
NEAR = 1e-10
"""of the weights' scale: float64 on processors and on GPUs, which add in other orders; ours, and never measured"""

SCENARIO = """
name: on-gpus
algorithms: [sync-sgd]
workload: {model: digits-mlp, dataset: digits, batch_per_worker: 16, dtype: float64}
cluster: {nodes: [{device: {name: any, overhead: 4 ms, per_sample: 0.1 ms},
    workers_per_node: 2}], network: {link: eth-10g}}
train: {pace: none}
evaluate: {every: 10 updates}
stop: {updates: 20}
seed: 5
"""


def ran(name: str, *changes: str) -> Run:
    (run,) = train(load(SCENARIO, [f"algorithms=[{name}]", *changes]))
    return run


def close(run: Run, other: Run) -> bool:
    mine, theirs = plain(run.weights), plain(other.weights)
    return float(np.abs(mine - theirs).max()) <= NEAR * float(np.abs(theirs).max())


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.backend
@needs_a_gpu
@pytest.mark.parametrize("name", ["sync-sgd", "layerwise-sgd", "sync-easgd3"])
def test_ranks_that_share_a_gpu_learn_what_processors_do(name: str) -> None:
    run = ran(name, "train.device=cuda", "train.share_gpus=true")
    assert close(run, ran(name))
    assert no_children()


@pytest.mark.backend
@needs_a_gpu
@pytest.mark.parametrize("name", ["async-sgd", "hogwild-sgd", "gossip"])
def test_asynchronous_methods_learn_on_a_gpu(name: str) -> None:
    run = ran(name, "train.device=cuda", "train.share_gpus=true")
    losses = run.tables.evaluations["loss"]
    assert losses.iloc[-1] < losses.iloc[0]


@pytest.mark.backend
@needs_two
@pytest.mark.parametrize("name", ["sync-sgd", "layerwise-sgd", "sync-easgd3"])
def test_ranks_with_a_gpu_each_meet_by_nccl(name: str) -> None:
    run = ran(name, "train.device=cuda")
    assert close(run, ran(name))
    for said in run.machine["devices"]["ranks"].values():
        assert said["copied_out_bytes"] == 0


@pytest.mark.backend
@needs_a_gpu
def test_the_record_names_the_gpu_and_the_launcher_leaves_cuda_alone(tmp_path: Path) -> None:
    before = torch.cuda.is_initialized()
    stored = save(ran("sync-sgd", "train.device=cuda", "train.share_gpus=true"), tmp_path)
    assert torch.cuda.is_initialized() == before
    assert stored.path is not None
    said = read_run(stored.path).machine["devices"]["ranks"]["0"]
    assert said["device"] == "cuda:0" and said["name"] and said["driver"] and said["nccl"]


# --- small parts ------------------------------------------------------------------------------------------------------


@needs_a_gpu
def test_synchronising_waits_for_the_gpu() -> None:
    gpu, done = Gpu(torch.device("cuda:0")), torch.cuda.Event()
    torch.cuda._sleep(200_000_000)  # cycles
    done.record()
    assert not done.query(), "the GPU was done before anybody could ask"
    gpu.synchronize()
    assert done.query()


@needs_a_gpu
def test_vectors_go_out_to_pinned_memory_and_into_the_gpu() -> None:
    gpu = Gpu(torch.device("cuda:0"))
    there = torch.arange(1000.0, device="cuda:0")
    out = gpu.out({"weights": there})["weights"]
    assert out.is_pinned() and out.device.type == "cpu" and out.tolist() == there.tolist()
    assert torch.equal(gpu.into((out, 1))[0], there)
    assert (gpu.out_bytes, gpu.in_bytes) == (4000, 4000)


# --- collectives ------------------------------------------------------------------------------------------------------


def own(device: str, rank: int) -> Accelerator:
    if device == "cuda":
        return accelerator(f"cuda:{rank}")
    return Pretended() if device == "stand-in" else Processor()


def no_dead_rank(_: Iterable[Rank]) -> Rank | None:
    return None


def by_two(
    device: str, folder: Path, body: Callable[[int, TorchCollectives, Accelerator], Any], lost: Lost = no_dead_rank
) -> list[Any]:
    """What two ranks answer, each in a thread of this process with groups as in a run; `lost` is what rank 0 hears."""
    store = dist.FileStore(str(folder / "store"), 2)  # type: ignore[attr-defined]
    placed = Devices("a test", {} if device == "host" else {Rank(0): (0, 0), Rank(1): (0, 1)})

    def rank(number: int) -> Any:
        mine = own(device, number)
        mine.enter()
        groups = Groups(Rank(number), store, no_dead_rank if number else lost, accelerator=mine, devices=placed)
        return body(number, TorchCollectives(groups), mine)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(rank, range(2)))


def issued(collectives: TorchCollectives, op: Collective) -> Flying:
    return collectives.issue_direct(op) if collectives.direct(op.group) else collectives.issue(op)


def numbers(answer: Any) -> Any:
    """What an answer's tensors hold, wherever they lie."""
    if answer is None:
        return None
    return [one.cpu().tolist() for one in answer] if isinstance(answer, tuple) else answer.cpu().tolist()


@pytest.mark.backend
@pytest.mark.parametrize("device", DEVICES)
def test_every_collective_answers_the_same_wherever_its_vectors_lie(device: str, tmp_path: Path) -> None:
    def body(rank: int, collectives: TorchCollectives, mine: Accelerator) -> list[Any]:
        collectives.connect(BOTH)
        value = mine.into(torch.tensor([1.0 + rank, 10.0]))
        assert mine.holds(value) is (device != "host")
        ops: list[Collective] = [
            AllReduce(value=value, group=BOTH, key="sum", op="sum"),
            AllReduce(value=value, group=BOTH, key="mean", op="mean"),
            Reduce(value=value, group=BOTH, key="to 1", root=Rank(1), op="sum"),
            Broadcast(value=value, group=BOTH, key="from 1", root=Rank(1)),
            AllGather(value=value, group=BOTH, key="all"),
        ]
        flying = [issued(collectives, op) for op in ops]  # under way together, as a program starts them
        answers = [numbers(one.finish()) for one in flying]
        assert numbers(value) == [1.0 + rank, 10.0], "a vector that was given was changed"
        return answers

    everyone = [[1.0, 10.0], [2.0, 10.0]]
    alike = [[3.0, 20.0], [1.5, 10.0]]
    assert by_two(device, tmp_path, body) == [
        [*alike, None, [2.0, 10.0], everyone],
        [*alike, [3.0, 20.0], [2.0, 10.0], everyone],
    ]


@pytest.mark.backend
@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_wait_for_a_device_ends_when_a_rank_has_died(device: str, tmp_path: Path) -> None:
    died, told = threading.Event(), threading.Event()

    def lost(needed: Iterable[Rank]) -> Rank | None:
        return Rank(1) if died.is_set() and Rank(1) in needed else None

    def body(rank: int, collectives: TorchCollectives, mine: Accelerator) -> str | None:
        collectives.connect(BOTH)
        if rank == 1:
            time.sleep(0.05)
            died.set()
            assert told.wait(10.0)
        flying = issued(collectives, AllReduce(value=mine.into(torch.ones(3)), group=BOTH, key="late"))
        if rank == 1:  # late enough that no rank needs it, but so that no operation outlives the test
            flying.finish()
            return None
        with pytest.raises(PeerFailed) as failure:
            flying.finish()
        told.set()
        return str(failure.value)

    assert by_two(device, tmp_path, body, lost) == ["rank 1 died", None]
