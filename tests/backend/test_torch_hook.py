"""`paceline.torch.hook` in a training script: what it writes, that it changes no number, what it does not record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._C._distributed_c10d import FileStore
from torch.nn import Linear, Module, Sequential

from paceline import simulate
from paceline.algorithms.core.errors import InputError
from paceline.scenarios import load
from paceline.scenarios.machine_file import load_machine
from paceline.scenarios.sections.workload import profile_of
from paceline.torch import all_reduce_times, hook, overlap_of

SCRIPT = """
import hashlib, sys
import torch
import torch.distributed as dist
from torch.nn import Linear, ReLU, Sequential
from torch.nn.parallel import DistributedDataParallel
import paceline.torch

torch.set_num_threads(1)
out, meeting, rank, world = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(world))
torch.manual_seed(1)
model = DistributedDataParallel(Sequential(Linear(64, 256), ReLU(), Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(dist.get_rank())

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()

if out == "-":
    train(20)
else:
    with paceline.torch.hook(model, optimizer, out=out, steps=10, warm_up=5, samples=640):
        train(20)
numbers = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
sys.stdout.write(hashlib.sha256(numbers).hexdigest())
dist.destroy_process_group()
"""


def run_of(folder: Path, out: str, ranks: int = 2) -> tuple[list[str], str]:
    """Returns what each rank of the script printed, and the messages of the first one."""
    (folder / "script.py").write_text(SCRIPT)
    meeting = str(folder / f"meeting-{Path(out).name}")
    processes = [
        subprocess.Popen(
            [sys.executable, str(folder / "script.py"), out, meeting, str(rank), str(ranks)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=200) for process in processes]
    assert not any(process.returncode for process in processes), said
    return [printed for printed, _ in said], said[0][1]


@pytest.mark.backend
def test_a_script_is_recorded_and_its_numbers_are_the_same(tmp_path: Path) -> None:
    plain, _ = run_of(tmp_path, "-")
    recorded, said = run_of(tmp_path, str(tmp_path / "mine"))
    assert recorded == plain and len({*plain}) == 1, "weights are equal on all ranks, with and without the hook"
    assert "20 steps of" in said and "next: paceline simulate" in said
    scenario = load(str(tmp_path / "mine/scenario.yaml"))
    assert scenario.cluster.workers == 2 and scenario.workload.batch_per_worker == 32
    sizes = [4 * 64 * 256, 4 * 256, 4 * 256 * 10, 4 * 10]
    assert sorted(part.nbytes for part in profile_of(str(tmp_path / "mine/trace.json")).parts) == sorted(sizes)
    machine = load_machine(tmp_path / "mine/machine.yaml")
    (gradient,), (curve,) = machine.gradients, machine.costs
    assert [busy.ranks for busy in gradient.busy] == [2] and gradient.batch == 32
    assert 0 < gradient.forward < 1 and gradient.forward + sum(gradient.backward) == pytest.approx(1)
    assert (curve.operation, curve.ranks, curve.hosts) == ("AllReduce", 2, 1) and curve.points[-1].bytes == sum(sizes)

    (run,) = simulate(scenario)
    step, mean_s = run.summary["step_s"]["mean"], gradient.busy[0].mean
    assert step is not None and step > mean_s, "a step has a gradient, and what follows"
    assert on_eight(tmp_path / "mine/scenario.yaml", "eth-1g") > on_eight(tmp_path / "mine/scenario.yaml", "eth-100g")


def on_eight(scenario: Path, link: str) -> float:
    """Returns the predicted mean seconds of a step of four such hosts."""
    changes = ["cluster.nodes[0].count=4", f"cluster.network.link={link}", "stop.updates=20"]
    (run,) = simulate(load(str(scenario), changes))
    mean_s = run.summary["step_s"]["mean"]
    assert run.scenario["cluster"]["nodes"][0]["count"] == 4 and mean_s is not None
    return mean_s


def trained(model: Module, steps: int, loss: Callable[[], torch.Tensor], out: Path, **more: int) -> Path | None:
    """Returns the scenario that a recording of one rank wrote; None if it wrote none."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hook(model, optimizer, out=out, steps=10, warm_up=1, **more) as recording:
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    return recording.written


def test_one_rank_is_recorded_and_predicted(tmp_path: Path) -> None:
    model = Linear(8, 2)
    written = trained(model, 20, lambda: model(torch.ones(3, 8)).sum(), tmp_path / "one")
    assert written is not None
    (run,) = simulate(load(str(written), ["stop.updates=5"]))
    assert run.algorithm == "sequential-sgd" and run.scenario["workload"]["batch_per_worker"] == 3


def test_callbacks_are_gone_after_the_recorded_steps(tmp_path: Path) -> None:
    model = Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hook(model, optimizer, out=tmp_path / "out", steps=5, warm_up=1) as recording:
        for _ in range(6):
            model(torch.ones(3, 8)).sum().backward()
            optimizer.step()
        assert not recording.removable and recording.written is not None, "before the loop ends"


def test_a_training_that_ends_early_is_recorded_as_far_as_it_went(tmp_path: Path) -> None:
    model = Linear(8, 2)
    written = trained(model, 8, lambda: model(torch.ones(3, 8)).sum(), tmp_path / "early")
    assert written is not None
    steps = [event for event in events_of(written) if event.startswith("ProfilerStep#")]
    assert len(steps) == 7, "one of the eight was for warming up"


def events_of(scenario: Path) -> list[str]:
    return [event["name"] for event in json.loads((scenario.parent / "trace.json").read_text())["traceEvents"]]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda model: model[1](model[0](torch.ones(3, 8))).sum(), "found 0 steps"),  # never through its forward
        (lambda model: model(torch.ones(3, 8)).sum() + model(torch.ones(3, 8)).sum(), "accumulated gradients"),
        (lambda model: model[0](torch.ones(3, 8)).sum(), "unused parameters"),
    ],
)
def test_steps_that_are_not_one_forward_and_one_backward_pass_are_not_recorded(
    loss: Callable[[Sequential], torch.Tensor], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Sequential(Linear(8, 4), Linear(4, 2))
    assert trained(model, 20, lambda: loss(model), tmp_path / "none") is None
    assert "nothing was written" in (said := capsys.readouterr().err) and words in said
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_written_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Linear(8, 2)
    (tmp_path / "file").write_text("")
    assert trained(model, 20, lambda: model(torch.ones(3, 8)).sum(), tmp_path / "file/inside") is None
    assert "nothing could be written" in capsys.readouterr().err


def test_a_failure_of_the_training_is_passed_on_and_nothing_is_written(tmp_path: Path) -> None:
    model = Linear(8, 2)

    def loss() -> torch.Tensor:
        raise RuntimeError("of the script")

    with pytest.raises(RuntimeError, match="of the script"):
        trained(model, 20, loss, tmp_path / "failed")
    assert not (tmp_path / "failed").exists()


def test_all_mistakes_are_told_at_once() -> None:
    frozen = Linear(2, 2).requires_grad_(False)
    optimizer = torch.optim.SGD(frozen.parameters(), lr=0.1)
    with pytest.raises(
        InputError, match=r"steps: found 2, expected 5 or more\nwarm_up: found 0.*\nmodel: found no para"
    ):
        hook(frozen, optimizer, steps=2, warm_up=0)


def test_sizes_of_timed_all_reduces_reach_from_small_to_all(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        curve = all_reduce_times(100_000, torch.device("cpu"))
    finally:
        torch.distributed.destroy_process_group()
    sizes = [nbytes for nbytes, _ in curve]
    assert sizes == sorted({*sizes}) and sizes[-1] == 100_000 and sizes[0] <= 4096
    assert all(nbytes % 4 == 0 and seconds > 0 for nbytes, seconds in curve)


@pytest.mark.parametrize("speed", [0.3, 0.6, 0.9])
def test_the_speed_beside_a_gradient_follows_from_what_is_left_at_its_end(speed: float) -> None:
    """Three all-reduces of 0.2 s, of which the first can begin after 0.5 s of a gradient of 1 s, in steps of 10 us."""
    begin_s, alone_s, gradient_s, tick_s = [0.5, 0.6, 0.95], 0.2, 1.0, 1e-5
    now_s, number, done_s = 0.0, 0, 0.0
    while number < 3:
        if now_s >= begin_s[number]:
            done_s += tick_s * (speed if now_s < gradient_s else 1.0)
        if done_s >= alone_s:
            number, done_s = number + 1, 0.0
        now_s += tick_s
    collectives = [(begin, alone_s) for begin in begin_s]
    assert overlap_of(collectives, gradient_s, now_s - gradient_s) == pytest.approx(speed, abs=0.01)


def test_waits_that_no_speed_explains_give_the_nearest_one() -> None:
    assert overlap_of([(0.5, 0.2)], gradient_s=1.0, exposed_s=9.0) == 0.05
    assert overlap_of([(0.9, 0.5)], gradient_s=1.0, exposed_s=0.1) == 1.0
