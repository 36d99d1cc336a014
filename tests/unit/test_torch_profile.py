"""Traces of torch.profiler: the phases of steps, communication, real profiles, and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, schedule
from torch.utils.data import DataLoader, TensorDataset

from paceline.algorithms.core.errors import InputError
from paceline.topologies.importing.torch_profile import GradientProfile, profile
from tests.logs import GLOO, HOST, event, step_events, trace_text

DATA = Path(__file__).parents[1] / "data/measurements"
PHASES = {"loading": 20.0, "forward": 100.0, "backward": 200.0, "communication": 50.0, "optimizer": 30.0}
STEPS = [*step_events(0, 1e6, PHASES), *step_events(1, 2e6, PHASES)]


def us(*values: float) -> Any:
    return pytest.approx([value * 1e-6 for value in values], rel=1e-6, abs=1e-12)


def of(events: list[dict[str, Any]], tmp_path: Path, **more: Any) -> GradientProfile:
    path = tmp_path / "trace.json"
    path.write_text(trace_text(events, **more), encoding="utf-8")
    return profile(path)


def refused(content: str | bytes, tmp_path: Path) -> str:
    path = tmp_path / "trace.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as error:
        profile(path)
    return str(error.value).replace(str(path), "trace")


# --- phases ----------------------------------------------------------------------------------------------------------


def test_phases_of_each_step(tmp_path: Path) -> None:
    found = of(STEPS, tmp_path, distributedInfo={"backend": "gloo", "world_size": 2})
    assert found.steps == us(405.0, 405.0)
    assert found.loading == us(20.0, 20.0)
    assert found.forward == us(100.0, 100.0)
    assert found.backward == us(200.0, 200.0)
    assert found.optimizer == us(30.0, 30.0)
    assert found.communication == us(50.0, 50.0)
    assert found.overlapped == us(0.0, 0.0)
    assert found.gradient == us(300.0, 300.0)
    assert (found.kernels, found.device, found.ranks, found.backend) == (None, None, 2, "gloo")


def test_overlapped_communication(tmp_path: Path) -> None:
    backward = next(one for one in STEPS if "evaluate_function" in one["name"])
    early = event("gloo:all_reduce", "user_annotation", backward["ts"] + 150, 60.0, GLOO)
    found = of([*STEPS, early], tmp_path)
    assert found.communication == us(101.0, 50.0), "from 150 to 251 us after the start of the backward pass"
    assert found.overlapped == us(50.0, 0.0)


def test_accumulated_gradients_have_several_passes(tmp_path: Path) -> None:
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    events = [
        event("ProfilerStep#7", "user_annotation", 0.0, 1000.0, HOST),
        *(event("aten::linear", "cpu_op", at, 50.0, HOST) for at in (100.0, 400.0)),
        *(event(name, "cpu_op", at, 40.0, HOST) for at in (200.0, 245.0, 500.0)),
        event("aten::mul_", "cpu_op", 600.0, 10.0, HOST),
    ]
    found = of(events, tmp_path)
    assert found.forward == us(100.0 + 100.0), "100 to 200 and 400 to 500"
    assert found.backward == us(85.0 + 40.0), "200 to 285 with a gap, and 500 to 540"


def test_a_gpu_trace_of_ddp() -> None:
    found = profile(DATA / "ddp-gpu.json")
    assert (found.device, found.ranks, found.backend) == ("NVIDIA A100-SXM4-80GB", 8, "nccl")
    assert found.steps == us(1000.0, 500.0)
    assert found.loading == us(40.0, 0.0)
    assert found.forward == us(100.0, 100.0)
    assert found.backward == us(150.0, 100.0)
    assert found.optimizer == us(60.0, 0.0)
    assert found.communication == us(200.0, 0.0), "the kernel of NCCL, not the annotation of its launch"
    assert found.overlapped == us(80.0, 0.0), "from 500 to 580"
    assert found.kernels is not None
    assert found.kernels.forward == us(150.0, 0.0)
    assert found.kernels.backward == us(300.0, 0.0)
    assert found.kernels.optimizer == us(50.0, 0.0)
    assert found.gradient == us(450.0, 200.0), "on the GPU in the first step, on the host in the second"


def test_compressed_traces_are_recognised_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"  # though the name says otherwise
    path.write_bytes(gzip.compress((DATA / "ddp-gpu.json").read_bytes()))
    assert profile(path).steps == profile(DATA / "ddp-gpu.json").steps


def test_a_real_profile_is_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = TensorDataset(torch.randn(40, 20), torch.randint(0, 4, (40,)))
    path = tmp_path / "trace.json.gz"
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for inputs, labels in DataLoader(samples, batch_size=8):
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    found = profile(path)
    assert len(found.steps) == 3
    assert found.communication == (0.0, 0.0, 0.0) == found.overlapped
    assert (found.kernels, found.device, found.ranks) == (None, None, None)
    parts = (found.loading, found.forward, found.backward, found.optimizer)
    for step, *phases in zip(found.steps, *parts, strict=True):
        assert all(phase > 0 for phase in phases)
        assert sum(phases) <= step


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_trace_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    text = (DATA / "ddp-gpu.json").read_text(encoding="utf-8")
    message = refused(text[: len(text) // 2], tmp_path)
    assert message.startswith("trace: line ") and "not valid JSON" in message and "seems to be cut off" in message
    packed = gzip.compress(text.encode())
    assert "is damaged or cut off; expected a complete gzip file" in refused(packed[:-20], tmp_path)
    assert "is damaged or cut off" in refused(packed[:100] + b"xxxx" + packed[104:], tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "line 1, column 1: not valid JSON"),
        ("[]", "has no list traceEvents"),
        ("{}", "has no list traceEvents"),
        ('{"traceEvents": 3}', "has no list traceEvents"),
        ('{"traceEvents": [3]}', "traceEvents[0]: found '3', expected an object"),
        (b"\x80\x02}q\x00", "is not text; expected the JSON of torch.profiler"),
        ("[" * 100_000, "has too many brackets inside each other"),
        ('{"traceEvents": [' + "9" * 5000 + "]}", "too many digits"),
    ],
)
def test_other_files_are_no_traces(content: str | bytes, expected: str, tmp_path: Path) -> None:
    assert expected in refused(content, tmp_path)


def test_all_wrong_events_are_reported(tmp_path: Path) -> None:
    events = json.loads(trace_text(STEPS))["traceEvents"]
    events[1]["dur"] = -5
    events[2]["ts"] = "soon"
    events[3]["name"] = None
    del events[4]["dur"]
    message = refused(trace_text(events), tmp_path)
    assert "traceEvents[1] ('enumerate(DataLoader)" in message
    assert "found dur -5, expected 0 or more microseconds" in message
    assert "found ts 'soon', expected microseconds" in message
    assert "traceEvents[3] (None): expected text as name and cat" in message
    assert "found dur None" in message
    assert len(message.splitlines()) == 4


def test_a_trace_must_have_steps_with_a_backward_pass(tmp_path: Path) -> None:
    assert "has no events ProfilerStep#N; expected a profile with a schedule" in refused(trace_text([]), tmp_path)
    only = [one for one in STEPS if "evaluate_function" not in one["name"]]
    assert "has no events autograd::engine::evaluate_function" in refused(trace_text(only), tmp_path)


def test_steps_must_be_those_of_one_thread_one_after_the_other(tmp_path: Path) -> None:
    assert "found ProfilerStep#0 2 times" in refused(trace_text([*STEPS, *step_events(0, 3e6, PHASES)]), tmp_path)
    late = step_events(2, 2e6 + 100, PHASES)
    assert "starts 305 us before ProfilerStep#1 ends" in refused(trace_text([*STEPS, *late]), tmp_path)
    other = [{**one, "pid": 101} for one in step_events(2, 3e6, PHASES)]
    assert "found steps of the threads 100/100, 101/100" in refused(trace_text([*STEPS, *other]), tmp_path)
    empty = event("ProfilerStep#2", "user_annotation", 4e6, 0.0, HOST)
    assert "found a duration of 0 for ProfilerStep#2" in refused(trace_text([*STEPS, empty]), tmp_path)


@pytest.mark.parametrize("stubs", [[3], [0], [0, 1, 4]])
def test_steps_without_a_backward_pass_are_none(stubs: list[int], tmp_path: Path) -> None:
    phases = {"forward": 100.0, "backward": 200.0, "optimizer": 30.0}
    events = [
        one
        for step in range(5)
        for one in step_events(step, 1e6 * (1 + step), {"forward": 5.0} if step in stubs else phases)
    ]
    path = tmp_path / "trace.json"
    path.write_text(trace_text(events))
    found = profile(path)
    assert found.gradient == pytest.approx([300e-6] * (5 - len(stubs)))
    assert found.left_out == tuple(f"ProfilerStep#{step}" for step in stubs)


def test_old_versions_call_annotations_operators(tmp_path: Path) -> None:
    """As in the traces of Kineto's TensorBoard plugin, of PyTorch 1.8: a step is no operator of its forward pass."""
    old = [{**one, "cat": "Operator", "tid": str(one["tid"])} for one in STEPS if not one["name"].startswith("gloo:")]
    found = of(old, tmp_path)
    assert (found.loading, found.forward, found.backward) == (us(20.0, 20.0), us(100.0, 100.0), us(200.0, 200.0))
    assert found.optimizer == us(30.0, 30.0)


def test_spans_of_the_profiler_and_steps_on_the_gpus_lane_are_none_of_the_hosts(tmp_path: Path) -> None:
    """As Kineto exports them since PyTorch 1.13: a span of the whole cycle, and each step once more on a stream."""
    whole = event("PyTorch Profiler (0)", "Trace", 9e5, 3e6, HOST) | {"pid": "Spans", "tid": "PyTorch Profiler"}
    start = {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "ts": 1e6}
    there = [
        {**one, "cat": "gpu_user_annotation", "pid": 0, "tid": 7, "ts": one["ts"] + 40}
        for one in STEPS
        if one["name"].startswith("ProfilerStep")
    ]
    assert of([*there, whole, start, *STEPS], tmp_path).gradient == us(300.0, 300.0)
