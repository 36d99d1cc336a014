"""Scenarios whose layers and times are those of a trace: Chakra's, torch.profiler's, and refusals."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, schedule
from typer.testing import CliRunner

from paceline import load, simulate
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.values import Rank
from paceline.cli.app import app
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.reports.export.export_run import export_run
from paceline.scenarios.machine_file import load_machine
from paceline.topologies.importing import chakra
from paceline.topologies.importing.torch_profile import GradientProfile
from paceline.topologies.importing.training_trace import of_nodes, profile
from paceline.workloads import find_model
from tests.logs import HOST, event, trace_text

DATA = Path(__file__).parents[1] / "data"
BATCH = 32
BACKWARD = "autograd::engine::evaluate_function: "


def scenario(method: Any, workload: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return {
        "name": "traced",
        "algorithms": [method],
        "workload": {"learning": "none", **workload},
        "cluster": {"nodes": [{"device": "p100", "count": 4}], "network": {"link": "eth-10g"}, **cluster},
        "stop": {"updates": 6},
    }


def exported(run: Run, folder: Path) -> Path:
    """The execution trace of rank 0 of a simulated run."""
    stored = save(run, folder)
    assert stored.path is not None
    return min(export_run(read_run(stored.path), "chakra", folder / "out").glob("*.0.et"))


def simulated(method: Any, workload: dict[str, Any], **cluster: Any) -> Run:
    (run,) = simulate(load(scenario(method, workload, **cluster)))
    return run


def parts_of(found: GradientProfile) -> tuple[list[int], list[float]]:
    """The bytes of the parts of a gradient, and their shares."""
    return [part.nbytes for part in found.parts], [part.share for part in found.parts]


def gradient_s(run: Run) -> float:
    """The mean time of a gradient of rank 0."""
    spans = run.tables.spans
    own = spans[(spans["rank"] == 0) & (spans["activity"] == "compute")]
    return float((own["end_s"] - own["start_s"]).sum() / own["step"].nunique())


# --- Chakra ----------------------------------------------------------------------------------------------------------


def test_an_export_read_back_has_the_time_and_bytes_of_the_gradient(tmp_path: Path) -> None:
    jitter = {"step_time": {"distribution": "lognorm", "sigma": 0.2}}
    run = simulated("sync-sgd", {"model": "resnet50", "batch_per_worker": BATCH}, **jitter)
    trace = {"trace": str(exported(run, tmp_path)), "trace_batch": BATCH}
    (plan,) = load(scenario("sync-sgd", trace)).plans()
    assert plan.compute_s(Rank(0), 0, BATCH) == pytest.approx(gradient_s(run), rel=0.02)
    assert plan.job.learner.initial().nbytes == 4 * find_model("resnet50").parameters
    again = simulated("sync-sgd", trace)
    assert gradient_s(again) == pytest.approx(gradient_s(run), rel=0.02)


def test_an_export_of_a_layer_wise_method_has_its_layers_and_steps(tmp_path: Path) -> None:
    """Every layer is a message of its own, so that each one's size and time count in the step."""
    method = {"name": "layerwise-sgd", "bucket": 1}
    run = simulated(method, {"model": "alexnet", "batch_per_worker": BATCH})
    file = exported(run, tmp_path)
    again = simulated(method, {"trace": str(file), "trace_batch": BATCH})
    (plan,) = load(again.scenario).plans()
    model = find_model("alexnet")
    layers = plan.job.learner.layout.layers
    assert [(layer.name, layer.stop - layer.start) for layer in layers] == [
        (layer.name, layer.parameters) for layer in model.layers
    ]
    forward, backward = plan.layer_shares()
    assert sum(forward) + sum(backward) == pytest.approx(1.0)
    assert again.summary["wall_s"] == pytest.approx(run.summary["wall_s"], rel=0.02)


def node(number: int, kind: str, micros: int, after: Sequence[int] = (), **about: Any) -> Any:
    """A node as PyTorch's converter writes it: without a start, and with its caller among the dependencies."""
    made = chakra.classes()
    attributes = [made.attribute(name=name, int64_val=value) for name, value in about.items()]
    return made.node(
        id=number, name=f"n{number}", type=chakra.NODE_TYPES[kind], duration_micros=micros, ctrl_deps=after,
        attr=attributes,
    )  # fmt: skip


def foreign() -> list[Any]:
    """Forward and backward on the host, kernels behind them, two all-reduces, and the optimizer."""
    return [
        node(1, "COMP_NODE", 10),
        node(2, "COMP_NODE", 300, [1]),
        node(3, "COMP_NODE", 10, [1]),
        node(4, "COMP_NODE", 200, [2, 3]),
        node(5, "COMM_COLL_NODE", 900, [4], comm_type=0, comm_size=4096),
        node(6, "COMP_NODE", 10, [3]),
        node(7, "COMP_NODE", 90, [4, 6]),
        node(8, "COMM_COLL_NODE", 900, [7, 5], comm_type=0, comm_size=1000),
        node(9, "COMP_NODE", 50, [6, 8]),
    ]


def test_nodes_without_starts_end_after_what_they_depend_on() -> None:
    found = of_nodes(foreign(), "trace")
    assert found.gradient == pytest.approx((600e-6,)), "10 + 300 + 200 + 90 us, on the longest path"
    assert found.optimizer == pytest.approx((50e-6,)), "no all-reduce depends on it"
    sizes, shares = parts_of(found)
    assert sizes == [4096, 1000]
    assert shares == pytest.approx([310 / 400, 90 / 400]), "a third of 600 us is forward"
    assert found.steps == pytest.approx((10e-6 + 300e-6 + 200e-6 + 900e-6 + 900e-6 + 50e-6,))
    assert found.communication == pytest.approx((1800e-6,))
    assert found.overlapped == pytest.approx((90e-6,))


def test_a_step_of_pytorch_has_resnet50s_gradients_and_the_time_of_its_kernels(tmp_path: Path) -> None:
    """Chakra's own example: all-reduces are DDP's buckets; kernels run in the order of their stream."""
    path = tmp_path / "rank0.et"
    path.write_bytes(gzip.decompress((DATA / "chakra/resnet50-ddp.0.et.gz").read_bytes()))
    sizes, shares = parts_of(profile(path))
    assert sum(sizes) == 4 * find_model("resnet50").parameters
    assert len(sizes) == 5 and sum(shares) == pytest.approx(1.0)
    kernels = [
        node
        for node in chakra.read(path).nodes
        if node.type == chakra.NODE_TYPES["COMP_NODE"] and not chakra.attributes(node)["is_cpu_op"]
    ]
    found = profile(path)
    busy_s = sum(node.duration_micros for node in kernels) * 1e-6
    assert found.gradient[0] + found.optimizer[0] == pytest.approx(busy_s, rel=0.01)
    assert 0.01 * busy_s < found.optimizer[0] < 0.05 * busy_s
    (plan,) = load(scenario("sync-sgd", {"trace": str(path), "trace_batch": BATCH})).plans()
    assert plan.job.learner.layout.size == find_model("resnet50").parameters


def test_other_nodes_than_those_of_a_worker_are_refused() -> None:
    def refused(nodes: Sequence[Any]) -> str:
        with pytest.raises(InputError) as error:
            of_nodes(nodes, "trace")
        return str(error.value)

    assert "no durations of computation" in refused([node(1, "COMP_NODE", 0)])
    assert "no computation that an all-reduce depends on" in refused([node(1, "COMP_NODE", 5)])
    assert "nodes that depend on each other: [" in refused([node(1, "COMP_NODE", 5, [2]), node(2, "COMP_NODE", 5, [1])])
    steps = [chakra.classes().node(id=number, name=f"ProfilerStep#{number}", type=4) for number in (1, 2)]
    assert "found 2 steps (ProfilerStep#1, ProfilerStep#2); expected one" in refused(steps)
    several = foreign()
    several[4].attr.add(name="pg_name", string_val="3")
    assert "several groups of ranks" in of_nodes(several, "trace").no_parts


# --- torch.profiler --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """A trace of a small model, with or without the shapes of operands."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 500), torch.nn.ReLU(), torch.nn.Linear(500, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = tmp_path_factory.mktemp("traces")

    def record(shapes: bool) -> Path:
        path = folder / f"{shapes}.json.gz"
        if path.exists():
            return path
        with torch.profiler.profile(
            activities=[ProfilerActivity.CPU],
            record_shapes=shapes,
            schedule=schedule(wait=1, warmup=1, active=3),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        ) as profiler:
            for _ in range(5):
                loss = torch.nn.functional.cross_entropy(model(torch.randn(BATCH, 64)), torch.zeros(BATCH).long())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
        return path

    return record


def test_a_profile_gives_the_gradients_of_parameters_and_their_times(recorded: Callable[[bool], Path]) -> None:
    file = recorded(True)
    found = profile(file)
    (plan,) = load(scenario("sync-sgd", {"trace": str(file), "trace_batch": BATCH})).plans()
    sizes = [layer.stop - layer.start for layer in plan.job.learner.layout.layers]
    assert sorted(sizes) == sorted([64 * 500, 500, 500 * 10, 10])
    assert sizes[-2:] in ([10, 500 * 10], [500 * 10, 10]), "the last layer's gradients are there first"
    assert plan.compute_s(Rank(0), 0, BATCH) == pytest.approx(sum(found.gradient) / 3)
    assert plan.compute_s(Rank(0), 0, 2 * BATCH) == pytest.approx(2 * sum(found.gradient) / 3)
    forward, backward = plan.layer_shares()
    assert sum(forward) == pytest.approx(sum(found.forward) / sum(found.gradient))
    assert sum(forward) + sum(backward) == pytest.approx(1.0)
    assert all(share > 0 for share in backward)


def test_beside_a_model_only_the_time_is_that_of_the_trace(recorded: Callable[[bool], Path]) -> None:
    trace = {"trace": str(recorded(False)), "trace_batch": BATCH}
    with pytest.raises(InputError, match=r"record_shapes=True; or give workload\.model"):
        load(scenario("sync-sgd", trace))
    (plan,) = load(scenario("sync-sgd", {**trace, "model": "lenet"})).plans()
    assert plan.job.learner.layout == find_model("lenet").layout()
    assert plan.compute_s(Rank(0), 0, BATCH) == pytest.approx(sum(profile(recorded(False)).gradient) / 3)


def step_of(*events: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        event("ProfilerStep#1", "user_annotation", 0.0, 1000.0, HOST),
        event("aten::linear", "cpu_op", 10.0, 50.0, HOST),
        event(f"{BACKWARD}AddmmBackward0", "cpu_op", 100.0, 90.0, HOST),
        event(f"{BACKWARD}AddmmBackward0", "cpu_op", 210.0, 80.0, HOST),
        *events,
    ]


def accumulated(at: float, dims: list[int], kind: str = "float") -> dict[str, Any]:
    args = {"Input Dims": [dims], "Input type": [kind]}
    return event("torch::autograd::AccumulateGrad", "cpu_op", at, 5.0, HOST, **args)


def of(events: list[dict[str, Any]], tmp_path: Path) -> GradientProfile:
    path = tmp_path / "trace.json"
    path.write_text(trace_text(events))
    return profile(path)


def test_kernels_belong_to_the_gradient_before_whose_end_they_are_launched(tmp_path: Path) -> None:
    launches = [
        event("cudaLaunchKernel", "cuda_runtime", at, 2.0, HOST, correlation=number)
        for number, at in enumerate((20.0, 110.0, 220.0))
    ]
    kernels = [
        event("gemm", "kernel", at, length, (0, 7), correlation=number)
        for number, (at, length) in enumerate(((300.0, 200.0), (500.0, 300.0), (800.0, 100.0)))
    ]
    found = of(step_of(accumulated(150.0, [8, 4]), accumulated(250.0, [8], "c10::Half"), *launches, *kernels), tmp_path)
    sizes, shares = parts_of(found)
    assert sizes == [128, 16]
    assert shares == pytest.approx([0.75, 0.25])
    assert found.forward_share == pytest.approx(200 / 600)


def test_without_shapes_nccl_tells_the_bytes_of_its_all_reduces(tmp_path: Path) -> None:
    about = {"Collective name": "allreduce", "dtype": "Float", "Process Group Name": "0"}
    reduces = [
        event("record_param_comms", "cpu_op", at, 2.0, HOST, **{**about, "In msg nelems": count})
        for at, count in ((180.0, 1000), (280.0, 10))
    ]
    other = event("record_param_comms", "cpu_op", 285.0, 2.0, HOST, **{**about, "Collective name": "broadcast"})
    sizes, shares = parts_of(of(step_of(*reduces, other), tmp_path))
    assert sizes == [4000, 40]
    assert shares == pytest.approx([80 / 190, 110 / 190])
    reduces[1]["args"]["Process Group Name"] = "1"
    assert "several process groups" in of(step_of(*reduces), tmp_path).no_parts


def test_gradients_that_differ_between_steps_are_no_layers(tmp_path: Path) -> None:
    later = [{**one, "ts": one["ts"] + 2000.0} for one in step_of(accumulated(150.0, [9]))]
    later[0]["name"] = "ProfilerStep#2"
    found = of([*step_of(accumulated(150.0, [8])), *later], tmp_path)
    assert found.parts == () and "other sizes in one step than in another" in found.no_parts
    assert len(found.gradient) == 2


# --- commands --------------------------------------------------------------------------------------------------------


def refused(workload: dict[str, Any], tmp_path: Path, **cluster: Any) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(scenario("sync-sgd", workload, **cluster)))
    result = CliRunner().invoke(app, ["simulate", str(path), "--out", str(tmp_path / "runs")])
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "found ''; expected the JSON of torch.profiler's export_chrome_trace, plain or gzip, or an execution"),
        (b"step,seconds\n1,0.5\n", "found 'step,seconds"),
        (b'{"traceEvents": [', "not valid JSON"),
        (b'{"traceEvents": []}', "has no events ProfilerStep#N"),
        (b"\x1f\x8b\x08cut off", "is damaged or cut off"),
        (b"\x7f\x00\x01", "the file is cut off; expected a complete execution trace of Chakra"),
        (b"\x02\x0a\x00", "found no nodes"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(content)
    message = refused({"trace": "trace"}, tmp_path)
    assert message.startswith("error: ") and f"workload.trace: {tmp_path / 'trace'}: " in message
    assert words in message
    assert len(message.splitlines()) == 1


def test_what_a_trace_cannot_be_beside_is_refused(recorded: Callable[[bool], Path], tmp_path: Path) -> None:
    trace = {"trace": str(recorded(True)), "trace_batch": BATCH}
    assert "workload.trace: no.json: cannot be read" in refused({"trace": "no.json"}, tmp_path).replace(
        f"{tmp_path}/", ""
    )
    message = refused({**trace, "learning": "train", "dataset": "digits"}, tmp_path)
    assert "workload.learning: found 'train' for the layers of a trace, expected none" in message
    assert "workload.dataset: found beside the layers of a trace" in message
    assert "found 'float64' for the layers" in refused({**trace, "dtype": "float64"}, tmp_path)
    assert "workload.trace_batch: missing beside batch_per_worker" in refused(
        {**trace, "trace_batch": None, "batch_per_worker": 8}, tmp_path
    )
    assert "workload.trace_batch: found 32 without trace" in refused({"model": "lenet", "trace_batch": 32}, tmp_path)
    assert "workload.model: found 'trace' without trace" in refused({"model": "trace"}, tmp_path)
    assert "workload.model: missing; expected digits-mlp" in refused({}, tmp_path)
    device = {"name": "own", "overhead": "1 ms", "per_sample": "1 ms"}
    assert "found beside the device own, which has its own time" in refused(trace, tmp_path, nodes=[{"device": device}])


def test_batches_scale_from_that_of_the_trace(recorded: Callable[[bool], Path]) -> None:
    trace = str(recorded(True))
    known = load(scenario("sync-sgd", {"trace": trace, "trace_batch": 8}))
    assert known.workload.batch_per_worker == 8
    again = load(known.dump(), ["workload.batch_per_worker=16"])
    assert [plan.compute_s(Rank(0), 0, 16) for plan in again.plans()] == [
        pytest.approx(2 * plan.compute_s(Rank(0), 0, 8)) for plan in known.plans()
    ]


def test_calibrate_reads_the_same_traces(tmp_path: Path) -> None:
    run = simulated("sync-sgd", {"model": "lenet", "batch_per_worker": BATCH})
    file, machine = exported(run, tmp_path), tmp_path / "machine.yaml"
    words = ["calibrate", "lenet", "--import-only", "--torch-profile", f"{BATCH}={file}", "--out", str(machine)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    (part,) = load_machine(machine).gradients
    assert part.busy[0].mean == pytest.approx(gradient_s(run), rel=0.02)
    assert part.origin is not None and part.origin.tool == "Chakra"
