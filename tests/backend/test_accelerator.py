"""The backend with a GPU, tested without one: every path that vectors of a device take.

The stand-in is a kind of tensor "on the device": it can be neither pickled nor read as an array, nor mixed with a
tensor in host memory, like a CUDA tensor. So every missing copy raises an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Evaluation, Learner, OneByOne
from paceline.algorithms.core.values import Group, Layout, Rank, Samples
from paceline.backend.devices.accelerator import CopyingDevice, Devices, accelerator, devices, mapped
from paceline.backend.local import worker
from paceline.backend.local.launch import Launch, run_job
from paceline.backend.status import recorder
from paceline.records.machine import gpu_driver
from paceline.records.trace import Schedule, Trace
from paceline.workloads import build
from paceline.workloads.learners.torch_learner import TorchLearner
from tests.backend.jobs import job_with
from tests.support import built
from tests.thorough import sampled

STEPS = 6
BUSY_S = 0.002
"""how long the device is still busy after work was queued, whenever a caller waits for it"""


class Away(torch.Tensor):
    """A tensor on the device."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [one for one in _flat((args, kwargs)) if isinstance(one, torch.Tensor)]
        here = [one for one in tensors if not isinstance(one, Away) and one.dim()]
        assert not here, f"{func} is given tensors of the device and of the host's memory"
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert a tensor of the device to numpy")

    def __array__(self, *_: Any) -> Any:
        raise TypeError("can't convert a tensor of the device to numpy")

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a process that unpickles this may have no such device")

    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        return here(self)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [one for part in value for one in _flat(part)]
    return _flat(list(value.values())) if isinstance(value, dict) else [value]


def here(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(torch.Tensor).clone()


def away(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone().as_subclass(Away)


class Pretended(CopyingDevice):
    """A simulated device, which counts its calls."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.entered = self.synchronised = 0
        self.groups: list[int] = []

    def enter(self) -> None:
        self.entered += 1

    def holds(self, value: Any) -> bool:
        return isinstance(value, Away)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return here(tensor)

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return away(tensor)

    def synchronize(self) -> None:
        self.synchronised += 1
        time.sleep(BUSY_S)

    def group(self, store: Any, rank: int, size: int) -> Any:
        self.groups.append(size)
        options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = timedelta(minutes=1)
        options._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
        return dist.ProcessGroupGloo(store, rank, size, options)

    def facts(self) -> dict[str, Any]:
        counted = {"entered": self.entered, "synchronised": self.synchronised, "groups": self.groups}
        return {**super().facts(), **counted}


@dataclass(frozen=True)
class Moved(OneByOne):
    """A learner that computes on the device."""

    learner: Any
    there: bool = False

    def on(self, device: torch.device) -> Moved:
        return replace(self, there=True)

    @property
    def layout(self) -> Layout:
        return self.learner.layout  # type: ignore[no-any-return]

    @property
    def num_samples(self) -> int:
        return int(self.learner.num_samples)

    def initial(self) -> Any:
        return away(self.learner.initial()) if self.there else self.learner.initial()

    def load(self, samples: Samples) -> Any:
        return self.learner.load(samples)

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        assert isinstance(vector, Away), "weights of the host's memory are given to the device"
        gradient, loss = self.learner.gradient(here(vector), data)
        return away(gradient), loss

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        return float(self.learner.layer_gradients(here(vector), data, lambda name, part: ready(name, away(part))))

    def evaluate(self, vector: Any) -> Evaluation:
        assert not isinstance(vector, Away), "the launcher has no device"
        return self.learner.evaluate(vector)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def digits() -> Learner:
    return build("digits-mlp", learning="train", seed=3, dtype="float64")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks use the stand-in as a GPU; they are forked, because spawned ranks would not have it."""
    monkeypatch.setattr(worker, "accelerator", lambda _: Pretended())
    monkeypatch.setattr(Devices, "start", lambda *_: "fork")
    monkeypatch.setitem(recorder.TABLE, Away, recorder.TABLE[torch.Tensor])


def ran(learner: Learner, name: str, *, gpus: int | None, shared_memory: bool = False, **options: Any) -> Trace:
    """Runs some steps of a method with a GPU for each rank, a single one, or none."""
    job = job_with(built(name), learner if gpus is None else Moved(learner), steps=STEPS)
    launch = Launch(job=job, schedule=lambda: Schedule(every=2), shared_memory=shared_memory, **options)
    if gpus is None:
        return run_job(launch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: gpus)
        return run_job(replace(launch, device="cuda", share_gpus=gpus == 1))


def told(trace: Trace) -> list[dict[str, Any]]:
    """Returns the device notes of every rank."""
    return list(trace.notes["devices"]["ranks"].values())


@pytest.mark.backend
@pytest.mark.parametrize("name", sampled(["sync-sgd", "hbs-sgd", "layerwise-sgd"], ["hbs-sgd", "layerwise-sgd"]))
@pytest.mark.usefixtures("pretended")
def test_collectives_of_the_program_go_from_device_to_device(digits: Learner, name: str) -> None:
    trace = ran(digits, name, gpus=8)
    assert torch.equal(trace.weights, ran(digits, name, gpus=None).weights)  # both by gloo: the same sums, bit for bit
    for said in told(trace):
        assert said["entered"] == 1 and said["groups"], "no group of devices was made"
        assert not said["copied_out_bytes"]
    spans = [span for span in trace.spans if span.activity in ("compute", "load", "update")]
    assert {span.activity for span in spans} == {"compute", "load", "update"}
    assert min(span.end_s - span.start_s for span in spans) >= BUSY_S, "a time was taken while the device was busy"


@pytest.mark.backend
@pytest.mark.usefixtures("pretended")
def test_ranks_that_share_a_device_meet_in_the_hosts_memory(digits: Learner) -> None:
    trace = ran(digits, "sync-sgd", gpus=1, shared_memory=True)
    assert torch.equal(trace.weights, ran(digits, "sync-sgd", gpus=None, shared_memory=True).weights)
    for said in told(trace):
        assert not said["groups"]
        assert said["copied_out_bytes"] == said["copied_in_bytes"] == STEPS * trace.weights.nbytes


@pytest.mark.backend
@pytest.mark.parametrize("name", ["async-sgd", "hogwild-sgd"])
@pytest.mark.usefixtures("pretended")
def test_messages_and_cells_go_by_way_of_the_hosts_memory(digits: Learner, name: str) -> None:
    trace = ran(digits, name, gpus=8)
    assert len(trace.updates) >= STEPS
    assert type(trace.weights) is torch.Tensor and not torch.equal(trace.weights, digits.initial())
    # on a busy machine one worker may take all the steps before another has begun
    worked = {span.rank for span in trace.spans if span.activity == "compute"}
    said = [said for rank, said in trace.notes["devices"]["ranks"].items() if int(rank) in worked]
    assert len(said) == len(worked) >= 1
    for one in said:
        assert one["copied_out_bytes"] >= trace.weights.nbytes
        assert one["copied_in_bytes"] >= trace.weights.nbytes


# --- placement on GPUs ------------------------------------------------------------------------------------------------

FOUR = [[Rank(0), Rank(1), Rank(2), Rank(3)]]


class Torch:
    """A learner that can be moved."""

    def on(self, device: torch.device) -> Torch:
        return self


def placed(asked: Any, gpus: Sequence[int], hosts: Sequence[Sequence[Rank]] = FOUR, **options: Any) -> Devices:
    return devices(asked, hosts, gpus, learner=Torch(), **options)


def test_every_rank_of_a_host_has_a_gpu_or_none_has() -> None:
    assert [placed("auto", [4]).name(rank) for rank in FOUR[0]] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert not placed("auto", [3]).cuda
    assert not placed("cpu", [4]).cuda
    two = [[Rank(0), Rank(1)], [Rank(2), Rank(3)]]
    assert [placed("cuda", [2, 2], two).name(rank) for rank in FOUR[0]] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert placed("cuda", [2, 2], two).direct(Group(tuple(FOUR[0])))
    assert not placed("auto", [2, 1], two).cuda


def test_shared_gpus_are_no_group_of_nccl() -> None:
    shared = placed("cuda", [2], share=True)
    assert [shared.name(rank) for rank in FOUR[0]] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert not shared.direct(Group(tuple(FOUR[0])))
    assert not placed("cuda", [4], apart=True).direct(Group((Rank(0), Rank(1))))


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (0, "train.device: found cuda, with 0 GPUs for 4 ranks.*expected cpu or auto here"),
        (2, "train.device: found cuda, with 2 GPUs for 4 ranks; .*NCCL refuses two ranks on one; .*share_gpus: true"),
    ],
)
def test_too_few_gpus_are_refused_in_words(gpus: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        placed("cuda", [gpus])


def test_what_torch_does_not_compute_stays_on_processors() -> None:
    bowl = build("quadratic", learning="quadratic", seed=1)
    assert not devices("auto", FOUR, [4], learner=bowl).cuda
    with pytest.raises(InputError, match=r"train\.device: found cuda, with a learning problem .*workload\.learning"):
        devices("cuda", FOUR, [4], learner=bowl)


def test_gpus_are_spawned_and_processors_forked() -> None:
    assert placed("auto", [4]).start("auto") == "spawn"
    assert placed("cpu", [4]).start("auto") == "fork"
    assert placed("cpu", [4]).start("spawn") == "spawn"
    with pytest.raises(InputError, match=r"train\.start_method: found fork with ranks on GPUs; expected spawn or auto"):
        placed("cuda", [4]).start("fork")


# --- small parts ------------------------------------------------------------------------------------------------------


def test_tensors_are_found_at_any_depth_and_nothing_else_is_touched() -> None:
    value = (Group((Rank(0),)), [Samples(0, 1, 2, 3), {"weights": torch.zeros(2)}], "tag", None)
    group, (samples, named), tag, nothing = mapped(value, lambda tensor: tensor + 1)
    assert (group, samples, tag, nothing) == (value[0], Samples(0, 1, 2, 3), "tag", None)
    assert named["weights"].tolist() == [1.0, 1.0]


def test_a_learner_that_is_moved_takes_weights_and_batches_along() -> None:
    learner = build("digits-mlp", learning="train", seed=3)
    assert isinstance(learner, TorchLearner)
    there = learner.on(torch.device("meta"))  # numbers without values, which no processor computes
    for one, device in ((there, "meta"), (learner, "cpu")):
        batch = one.load(Samples(0, 1, 0, 8))
        everything = [one.initial(), *batch, *one.module.parameters()]
        assert {tensor.device.type for tensor in everything} == {device}


def test_a_processor_copies_nothing() -> None:
    own, vector = accelerator("cpu"), torch.zeros(3)
    assert own.out(vector) is own.into(vector) is vector
    assert not own.holds(vector)


def test_the_driver_is_what_the_kernel_says(tmp_path: Path) -> None:
    listing = tmp_path / "version"
    assert gpu_driver(listing) is None
    listing.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n")
    assert gpu_driver(listing) == "550.54.15"
    listing.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n")
    assert gpu_driver(listing) == "560.35.03"
