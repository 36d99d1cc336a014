"""Files of calibrated machines: written, read, named in scenarios, and refused where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paceline import simulate
from paceline.algorithms.core.errors import InputError
from paceline.backend.calibration.calibrate import joined
from paceline.cli.app import app
from paceline.cli.machine_commands import batches_of
from paceline.scenarios import load
from paceline.scenarios.machine_file import MachinePart, MadePart, load_machine, save_machine, sections_of
from paceline.scenarios.resolution.machine_costs import hosts_like, this_host
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile

PROFILE = Profile(
    collectives={("AllReduce", 2): ((100, 1e-3), (1000, 2e-3))},
    inside={("AllReduce", 2): ((10_000, 1e-3), (40_000, 1e-3)), ("Barrier", 2): ((0, 1e-4),)},
    messages=((0, 1e-4), (1000, 2e-4)),
    inside_messages=((0, 5e-5),),
    handling={("send", False): ((1000, 3e-5),), ("start", True): ((1000, 4e-5),)},
    load_s=1e-5,
    rest_s=2e-5,
    update_s=3e-5,
    serve_s=4e-5,
    gradients=(GradientTimes(batch=8, busy=((1, 0.01), (2, 0.0125)), factors=(0.9, 1.1), layered=1.5, forward=0.25,
                             backward=(0.5, 0.25)),),
    cores=2,
)  # fmt: skip
SCENARIO: dict[str, Any] = {
    "name": "small",
    "algorithms": ["sync-sgd"],
    "workload": {"model": "digits-mlp", "dataset": "digits", "batch_per_worker": 8, "learning": "none"},
    "cluster": {"nodes": [{"device": {"name": "any", "overhead": "5 ms", "per_sample": "0 s"}, "workers_per_node": 2}]},
    "stop": {"samples": 320},
}  # fmt: skip


def machine_of(profile: Profile = PROFILE, model: str = "digits-mlp") -> MachinePart:
    gradients = [
        {
            "batch": one.batch,
            "busy": [{"ranks": ranks, "mean": f"{seconds!r} s"} for ranks, seconds in one.busy],
            "factors": one.factors,
            "layered": one.layered,
            "forward": one.forward,
            "backward": one.backward,
        }
        for one in profile.gradients
    ]
    machine = MachinePart.model_validate(
        {"made": {"date": "2026-11-23"}, "model": model, "ranks": 2, "cores": profile.cores, "gradients": gradients}
    )
    return machine.model_copy(update=sections_of(MeasuredCosts(profile)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_machine(machine_of(), tmp_path / "machine.yaml")
    return tmp_path / "machine.yaml"


def test_a_file_keeps_every_cost(file: Path) -> None:
    assert load_machine(file).profile() == PROFILE


def test_times_in_a_file_have_units(file: Path) -> None:
    data = yaml.safe_load(file.read_text())
    assert data["gradients"][0]["busy"][1] == {"ranks": 2, "mean": "0.0125 s"}
    assert {"bytes": 40_000, "time": "0.001 s"} in data["costs"][-2]["points"]


def test_a_scenario_names_a_machine(file: Path) -> None:
    """Two ranks: 12.5 ms a gradient with both busy, and the measured all-reduce, update and rest."""
    scenario = load({**SCENARIO, "cluster": {**SCENARIO["cluster"], "machine": str(file)}})
    (run,) = simulate(scenario)
    own_s = PROFILE.update_s + PROFILE.rest_s + PROFILE.load_s + 1e-3
    step_s = run.summary["step_s"]["mean"]
    assert step_s is not None
    assert 0.9 * 0.0125 + own_s <= step_s <= 1.1 * 0.0125 + own_s
    assert not run.machine["warnings"]


def test_what_was_not_measured_is_said(file: Path) -> None:
    changes = ["cluster.nodes[0].count=2", "workload.batch_per_worker=32", "cluster.nodes[0].workers_per_node=4"]
    (run,) = simulate(load({**SCENARIO, "cluster": {**SCENARIO["cluster"], "machine": str(file)}}, changes))
    said = "\n".join(run.machine["warnings"])
    for part in ("gradients of 32 samples", "4 ranks of a host", "messages between hosts"):
        assert part in said


def test_a_machine_of_another_model_is_refused() -> None:
    other = machine_of(model="digits-cnn")
    with pytest.raises(
        InputError, match=r"found gradients of digits-cnn, expected those of workload.model, digits-mlp"
    ):
        hosts_like(other, load(SCENARIO))


def test_all_mistakes_of_a_comparison_are_reported_together() -> None:
    scenario = load(SCENARIO, ["train.torch_threads=2"])
    with pytest.raises(InputError) as caught:
        this_host(machine_of(), scenario)
    assert "train.pace: found 'device'" in str(caught.value) and "found 1 threads per rank" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("gradients", 0, "busy", 0, "mean"), 0.01, "a time of 0 or more with its unit"),
        (("ranks",), 0, "a whole number of 1 or more"),
        (("colour",), "red", "unknown key"),
        (("format",), 2, "format"),
    ],
)
def test_mistakes_in_a_file_are_named(file: Path, path: tuple[Any, ...], value: Any, said: str) -> None:
    data = yaml.safe_load(file.read_text())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file.write_text(yaml.safe_dump(data))
    with pytest.raises(InputError, match=said):
        load_machine(file)


def test_a_file_without_gradients_and_costs_is_refused(file: Path) -> None:
    save_machine(machine_of(Profile()), file)
    with pytest.raises(InputError, match="gradients: found none, and no costs"):
        load_machine(file)


def test_a_missing_machine_ends_with_exit_code_2(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["simulate", "quickstart", "--machine", str(tmp_path / "none.yaml")])
    assert found.exit_code == 2
    assert "cluster.machine: found" in found.stderr and "Traceback" not in found.stderr


@pytest.mark.parametrize("text", ["", "a", "0", "8,-1"])
def test_wrong_batches_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--batches: found"):
        batches_of(text)


def test_made_needs_a_date() -> None:
    with pytest.raises(ValueError, match="date"):
        MadePart.model_validate({})


# --- named as a device, a node or a cluster ---------------------------------------------------------------------------


def named(cluster: dict[str, Any], changes: list[str] | None = None) -> Any:
    return load({**SCENARIO, "cluster": cluster}, changes or [])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_device_takes_the_gradients_of_as_many_busy_ranks_as_its_node_has(file: Path, workers: int) -> None:
    """10 ms alone, 12.5 ms with two busy, and twice that with four on two cores."""
    scenario = named({"nodes": [{"device": {"machine": str(file)}, "workers_per_node": workers}]})
    (plan,) = scenario.plans()
    (node,) = plan.cluster.nodes
    assert node.device.compute_s(8) == pytest.approx({1: 0.01, 2: 0.0125, 4: 0.025}[workers])
    assert node.step_time is not None
    drawn = {node.step_time.law.factor(1, 0, step) for step in range(20)}
    assert sorted(drawn) == pytest.approx([0.9, 1.1])
    forward, backward = plan.layer_shares()
    assert [*forward, *backward] == pytest.approx([1 / 6, 1 / 12, 0.5, 0.25])


def test_a_node_is_a_host_with_the_calibrated_ranks(file: Path) -> None:
    scenario = named({"nodes": [{"node": {"machine": str(file)}, "count": 2}]})
    assert scenario.cluster.workers == 4
    assert load(scenario.dump()) == scenario


def test_a_machine_is_a_cluster(file: Path) -> None:
    assert named({"machine": str(file)}).cluster.workers == 2
    assert named({"machine": str(file), "nodes": 3}).cluster.workers == 6
    (run,) = simulate(named({"machine": str(file)}))
    assert not run.machine["warnings"]


def test_a_path_in_a_scenario_is_relative_to_its_folder(file: Path) -> None:
    cluster = {"nodes": [{"device": {"machine": file.name}}, {"node": {"machine": file.name}}]}
    (file.parent / "scenario.yaml").write_text(yaml.safe_dump({**SCENARIO, "cluster": cluster}))
    assert load(file.parent / "scenario.yaml").cluster.workers == 3


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (
            {"nodes": [{"device": {"machine": "none"}}]},
            r"nodes\[0\].device.machine: found '.*none', which is no",
        ),
        ({"nodes": [{"node": {"machine": "none"}}]}, r"cluster.nodes\[0\].node.machine: found '.*none', which is no"),
        ({"nodes": [{"node": {"machine": "F"}, "device": "v100"}]}, r"cluster.nodes\[0\].device: found beside"),
        ({"machine": "none"}, r"cluster.machine: found '.*none', which is no file"),
    ],
)
def test_wrong_machines_of_a_scenario_are_named(file: Path, cluster: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        named(yaml.safe_load(yaml.safe_dump(cluster).replace("machine: F", f"machine: {file}")))


def test_a_device_of_another_model_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match=r"found gradients of digits-mlp, expected .* digits-cnn"):
        named({"nodes": [{"device": {"machine": str(file)}}]}, ["workload.model=digits-cnn"])


# --- several models ---------------------------------------------------------------------------------------------------


def test_a_file_of_several_models_predicts_each(tmp_path: Path) -> None:
    slow = replace(PROFILE, gradients=(GradientTimes(batch=8, busy=((1, 0.1), (2, 0.1))),), update_s=1.0)
    both = joined([machine_of(), machine_of(slow, model="digits-cnn")])
    save_machine(both, tmp_path / "both.yaml")
    read = load_machine(tmp_path / "both.yaml")
    assert read.names() == ["digits-mlp", "digits-cnn"]
    assert read.of_model("digits-mlp").profile() == PROFILE
    assert hosts_like(read, load(SCENARIO, ["workload.model=digits-cnn"])).host == slow
    with pytest.raises(InputError, match=r"found gradients of digits-mlp, digits-cnn, expected those of .* lenet"):
        hosts_like(read, load(SCENARIO, ["workload.model=lenet", "workload.dataset=mnist"]))


def test_sizes_of_several_models_are_one_curve() -> None:
    other = replace(PROFILE, messages=((0, 3e-4), (5000, 4e-4)))
    found = joined([machine_of(), machine_of(other, model="digits-cnn")]).profile().messages
    assert [nbytes for nbytes, _ in found] == [0, 1000, 5000]
    assert [seconds for _, seconds in found] == pytest.approx([2e-4, 2e-4, 4e-4])
