"""Sets of published step times: their lines become rows and scenarios, and lines that cannot be read are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.scenarios import load
from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet, gavel, reports, set_named
from paceline.validation.steps import scenario_of, step_s
from paceline.workloads.models.layer_tables import find_model


def predicted(known: MeasurementSet, lines: list[Line]) -> tuple[list[Outcome], list[LeftOut]]:
    groups, left_out = known.groups([{"line": str(number), **line} for number, line in enumerate(lines, start=2)])
    results = [result for rows in groups for result in known.predict(rows)]
    return (
        [result for result in results if isinstance(result, Outcome)],
        [*left_out, *(result for result in results if isinstance(result, LeftOut))],
    )


def job(**values: object) -> Line:
    """A line of the table of Gavel."""
    line = {
        "gpu": "p100", "workers_on_different_servers": "False", "model": "LM", "batch_size_per_gpu": "20",
        "n_gpus": "1", "steps_per_s": "50", "source": "made up",
    }  # fmt: skip
    return line | {key: str(value) for key, value in values.items()}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cifar_resnet18", 11_173_962),  # of the program, by its own count
        ("lstm_lm", 2 * 33_278 * 200 + 33_278 + 2 * 4 * 200 * (400 + 2)),
        ("translation_transformer", 44_140_544 - 2 * 512 * 2 + 512 * (2_909 + 3_149)),
    ],
)
def test_jobs_have_the_parameters_of_their_programs(name: str, parameters: int) -> None:
    assert find_model(f"paceline.validation.models:{name}").parameters == parameters


def test_steps_per_second_are_the_sum_over_the_workers_of_a_job() -> None:
    given, apart = job(), job(n_gpus=2, workers_on_different_servers=True, steps_per_s=40)
    (outcome,), left_out = predicted(set_named("gavel"), [given, apart])
    assert not left_out
    assert outcome.measured == pytest.approx(40 * 20)
    assert outcome.simpler["linear scaling"] == pytest.approx(2 * 50 * 20)
    assert outcome.scenario is not None
    (plan,) = load(dict(outcome.scenario)).plans()
    assert plan.job.workers == 2 and len(plan.cluster.nodes) == 2


def test_workers_on_different_servers_are_slower_than_those_of_one_server() -> None:
    lines = [job(), *(job(n_gpus=4, workers_on_different_servers=apart) for apart in (False, True))]
    outcomes = {outcome.name: outcome for outcome in predicted(set_named("gavel"), lines)[0]}
    within, apart = outcomes["p100 LM 20 x 4"], outcomes["p100 LM 20 x 4 in as many servers"]
    assert apart.predicted < within.predicted < within.simpler["linear scaling"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "A3C", "batch_size_per_gpu": ""}, "model: found A3C"),
        ({"n_gpus": "many"}, "n_gpus: found 'many', expected a count"),
        ({"batch_size_per_gpu": ""}, "batch_size_per_gpu, n_gpus: found nothing"),
        ({"steps_per_s": "0"}, "steps_per_s: found '0', expected a positive number"),
    ],
)
def test_lines_of_gavel_that_cannot_be_read_are_left_out(values: dict[str, str], words: str) -> None:
    outcomes, (left_out, alone) = predicted(set_named("gavel"), [job(), {**job(n_gpus=2), **values}])
    assert outcomes == [] and left_out.name == "line 3" and words in left_out.reason
    assert alone.reason == "no row of its group has more devices or nodes"


@pytest.mark.parametrize(("version", "hidden"), [("PyTorch 1.4", False), ("PyTorch 1.7", True)])
def test_layers_joined_in_forward_order_hide_nothing_of_the_exchange_of_a_word_model(
    version: str, hidden: bool
) -> None:
    """The output layer's gradient is the first; before PyTorch 1.7 it waited for those of the recurrent layers."""
    row = gavel.row_of(job(n_gpus=2, workers_on_different_servers=True))
    exchange_s = step_s(replace(row, words={**row.words, "framework": version}), ((20, 0.2),)) - 0.2
    whole_s = 4 * find_model(row.model).parameters / 1.15e9  # of two servers on 10 Gbit/s
    assert exchange_s < 0.7 * whole_s if hidden else exchange_s == pytest.approx(whole_s, rel=0.1)


# --- reports ----------------------------------------------------------------------------------------------------------


def report(**values: object) -> Line:
    """A line of the table of reports: a Horovod run on servers with four P100."""
    line = {
        "what": "throughput", "hardware": "2 servers x 4 Pascal (P100) GPUs", "network": "RoCE-capable 25 Gbit/s",
        "model": "inception3", "batch_per_gpu": "64", "method": "single GPU", "n_gpus": "1", "n_nodes": "1",
        "value": "130", "unit": "images/s", "note": "synthetic", "source": "made up", "line": "2",
    }  # fmt: skip
    return line | {key: str(value) for key, value in values.items()}


EIGHT = {"n_gpus": 8, "n_nodes": 2, "value": 900}


def scenario(**values: object) -> dict[str, Any]:
    row = reports.row_of(report(**EIGHT | values))
    return scenario_of(row, ((row.batch, 0.5),))


@pytest.mark.parametrize(
    ("method", "library", "link", "gpudirect"),
    [
        ("TCP Horovod allreduce on CPU", "mpi", "eth-25g", "off"),
        ("TCP Horovod allreduce NCCL", "nccl", "eth-25g", "auto"),
        ("RDMA Horovod allreduce NCCL", "nccl", "eth-100g-roce", "auto"),
        ("PyTorch DDP gloo", "gloo", "eth-100g-roce", "off"),
    ],
)
def test_words_of_a_method_choose_library_and_network(method: str, library: str, link: str, gpudirect: str) -> None:
    cluster = scenario(method=method)["cluster"]
    found = cluster["network"]["link"]
    assert (cluster["network"]["library"], cluster["staging"]["gpudirect"]) == (library, gpudirect)
    assert (found if isinstance(found, str) else found["like"]) == link


def test_parameter_servers_of_tensorflow_serve_one_process_a_node_by_grpc() -> None:
    """The variables of a host are eight servers, which exchange layer by layer."""
    made = scenario(method="Distributed TensorFlow (PS, default)")
    assert made["algorithms"] == [{"name": "sync-sgd-ps", "servers": 16, "layerwise": True}]
    (nodes,) = made["cluster"]["nodes"]
    assert (nodes["count"], nodes["workers_per_node"]) == (2, 1)
    assert made["workload"]["batch_per_worker"] == 4 * 64
    assert nodes["device"]["per_sample"] == f"{0.5 / 256!r} s"  # four devices compute 256 samples in the time of 64
    assert made["cluster"]["network"]["link"]["bandwidth"] == f"{reports.GRPC_BYTES_PER_S!r} B/s"


def test_asynchronous_servers_and_servers_of_one_machine_have_their_methods() -> None:
    assert scenario(method="MXNet kvstore dist_async")["algorithms"] == [{"name": "async-sgd", "servers": 2}]
    layerwise = {"name": "sync-sgd-ps", "layerwise": True}
    assert scenario(method="Distributed TensorFlow")["algorithms"] == [{**layerwise, "servers": 16}]
    one_machine = scenario(method="MXNet kvstore local", n_gpus=4, n_nodes=1)
    assert one_machine["algorithms"] == [{**layerwise, "servers": 8}]


def test_what_was_seen_of_a_network_counts() -> None:
    network = scenario(method="Horovod PyTorch", network="100 Gbit/s nominal, 10 Gbit/s seen")["cluster"]["network"]
    assert network["link"] == "eth-10g"


@pytest.mark.parametrize(
    ("values", "step_s"),
    [
        ({"value": 1280}, 8 * 64 / 1280),
        ({"what": "throughput per GPU", "unit": "samples/s per GPU", "value": 160}, 64 / 160),
        ({"what": "time to 90 epochs", "unit": "hours", "value": 2}, 7200 / (90 * 1_281_167 / 512)),
        ({"what": "epoch time", "unit": "s", "value": 500}, 500 / (1_281_167 / 512)),
        ({"what": "step time", "unit": "ms", "value": 250}, 0.25),
        ({"what": "run time", "model": "MNIST example", "unit": "s", "value": 93.8, "batch_per_gpu": "?"}, 0.1),
    ],
)
def test_rates_and_times_become_seconds_of_a_step(values: dict[str, object], step_s: float) -> None:
    assert reports.row_of(report(**EIGHT | {"method": "Horovod"} | values)).step_s == pytest.approx(step_s)


def test_a_batch_that_is_not_stated_is_assumed_and_said() -> None:
    stated = reports.row_of(report(model="vgg16", batch_per_gpu=48, method="Horovod PyTorch"))
    assumed = reports.row_of(report(model="vgg16", batch_per_gpu="?", method="Horovod PyTorch"))
    assert (stated.batch, stated.assumed) == (48, ())
    assert assumed.batch == 32 and "batch 32" in assumed.assumed[0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "inception3 forward only"}, "expected a training"),
        ({"what": "all-reduce 1 GB", "model": "-"}, "expected a training"),
        ({"model": "not stated"}, "model: found 'not stated'"),
        ({"batch_per_gpu": "?"}, "batch_per_gpu: not stated"),
        ({"value": "fast"}, "value: found 'fast', expected a positive number"),
        ({"what": "time to a loss", "unit": "hours"}, "the number of steps is not known"),
    ],
)
def test_reports_that_cannot_be_predicted_are_left_out(values: dict[str, object], words: str) -> None:
    outcomes, (left_out, alone) = predicted(set_named("reports"), [report(), report(**EIGHT | values)])
    assert outcomes == [] and words in left_out.reason
    assert alone.reason == "no row of its group has more devices or nodes"


def test_an_all_reduce_of_the_readme_is_predicted_from_one_gpu() -> None:
    lines = [report(), report(**EIGHT, method="TCP Horovod allreduce NCCL")]
    (outcome,), left_out = predicted(set_named("horovod"), lines)
    assert not left_out and outcome.measured == 900
    assert 0.5 * 8 * 130 < outcome.predicted < 8 * 130


def test_servers_of_tensorflow_are_slower_than_an_all_reduce_and_bound_by_the_largest_layer() -> None:
    ways = ("Distributed TensorFlow (PS, default)", "TCP Horovod allreduce NCCL")
    lines = [report(model="vgg16"), *(report(**EIGHT | {"model": "vgg16", "method": method}) for method in ways)]
    outcomes, left_out = predicted(set_named("horovod"), lines)
    assert not left_out
    servers, all_reduce = (next(each for each in outcomes if way in each.name) for way in ways)
    largest_s = 2 * 4 * 25_088 * 4_096 / reports.GRPC_BYTES_PER_S  # fc6 to the only worker on another node, and back
    step_s = 8 * 64 / servers.predicted
    assert largest_s < step_s < 1.5 * largest_s
    assert servers.predicted < 0.2 * all_reduce.predicted


# --- training over the Internet ---------------------------------------------------------------------------------------


def internet(**values: object) -> Line:
    line = {
        "run": "INTELLECT-1", "params": "10B", "hardware": "H100", "network": "internet", "method": "DiLoCo + int8",
        "metric": "compute utilisation", "value": "83-96", "unit": "%", "source": "made up",
    }  # fmt: skip
    return line | {key: str(value) for key, value in values.items()}


def test_utilisation_and_communication_of_a_round_are_those_of_a_ring_over_the_slowest_link() -> None:
    lines = [internet(), internet(metric="communication per round", value=8.3, unit="minutes")]
    (utilisation, communication), left_out = predicted(set_named("decentralised"), lines)
    assert not left_out
    exchange_s = 2 * 13 / 14 * 10e9 / (500e6 / 8)  # of 8 bits a number among 14 sites
    assert communication.predicted == pytest.approx(exchange_s, rel=0.02)
    assert communication.measured == pytest.approx(498)
    assert utilisation.measured == 89.5
    assert utilisation.predicted == pytest.approx(100 * 2280 / (2280 + communication.predicted))


def test_wider_numbers_take_longer() -> None:
    lines = [internet(method=f"DiLoCo, {bits}") for bits in ("int8", "fp16", "fp32")]
    shares = [outcome.predicted for outcome in predicted(set_named("decentralised"), lines)[0]]
    assert shares == sorted(shares, reverse=True) and len(set(shares)) == 3


def test_a_run_with_an_unknown_input_has_a_row_for_each_of_its_ends() -> None:
    covenant = {"run": "Covenant-72B", "params": "72B", "method": "SparseLoCo", "network": "110 Mbit/s up"}
    lines = [
        internet(**covenant, value=94.5),
        internet(run="Decoupled DiLoCo", metric="goodput under aggressive failures", value=88),
    ]
    (slow, quick, few, many), left_out = predicted(set_named("decentralised"), lines)
    assert not left_out
    upload_s = 72e9 / 64 * 14 / 110e6
    for row, share in ((slow, 0.2), (quick, 0.5)):
        compute_s = 6 * 72e9 * 30 * 192 * 2048 / (8 * share * 2.25e15)
        assert row.predicted == pytest.approx(100 * compute_s / (compute_s + upload_s), rel=1e-3)
    for row, learners in ((few, 4), (many, 16)):  # all chips are up 27 % of the time, and a learner's ones more often
        assert row.predicted == pytest.approx(100 * 0.27 ** (1 / learners), abs=2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"run": "unknown"}, "run: found unknown"),
        ({"params": "many"}, "params: found 'many'"),
        ({"metric": "model FLOPS utilisation"}, "metric: found model FLOPS utilisation"),
        ({"method": "SparseLoCo"}, "method: found SparseLoCo"),
        ({"value": "high"}, "value: found 'high'"),
    ],
)
def test_runs_over_the_internet_that_cannot_be_read_are_left_out(values: dict[str, object], words: str) -> None:
    outcomes, (left_out,) = predicted(set_named("decentralised"), [internet(**values)])
    assert outcomes == [] and words in left_out.reason
