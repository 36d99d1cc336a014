"""benchmarks/fidelity.py: its configurations, statistics and resuming, without launching anything; and one real run."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms.core.errors import RunFailed
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.scenarios.machine_file import MachinePart, MadePart, OwnPart, save_machine
from paceline.scenarios.resolution.machine_costs import emulated_part
from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import EmulationCosts, MeasuredCosts, Profile
from tests.made_up import run

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def part(name: str) -> Any:
    return importlib.import_module(name)


def configurations(**options: Any) -> list[Any]:
    listed = part("fidelity_runs.settings")
    return list(listed.configurations(options.pop("settings", listed.SETTINGS), **{"cores": 2, **options}))


# --- the list ---------------------------------------------------------------------------------------------------------


def test_there_are_enough_configurations_of_every_kind() -> None:
    found = configurations()
    assert len(found) >= 60 and len({one.name for one in found}) == len(found)
    assert len({one.method for one in found}) >= 10
    assert {one.setting.model for one in found} == {"digits-mlp", "digits-cnn", "wide-mlp"}
    assert {one.setting.workers for one in found} == {1, 2, 3, 4, 6}
    assert {one.setting.group(2) for one in found} == set(part("fidelity_runs.settings").GROUPS)
    assert any(len({step_ms for _, step_ms in one.setting.nodes}) > 1 for one in found), "unequal devices"


def test_each_group_has_ten_methods_in_one_setting() -> None:
    ranked = Counter((one.setting.group(2), one.setting.name) for one in configurations())
    assert {group for (group, _), count in ranked.items() if count >= 10} == set(part("fidelity_runs.settings").GROUPS)


def test_no_configuration_has_a_calibrated_batch() -> None:
    calibrated = part("fidelity_runs.settings").CALIBRATED
    assert not {one.setting.batch for one in configurations()} & {*calibrated}


def test_every_scenario_and_calibration_is_valid() -> None:
    listed = part("fidelity_runs.settings")
    for cell in dict.fromkeys(setting.cell for setting in listed.SETTINGS):
        settings = tuple(setting for setting in listed.SETTINGS if setting.cell == cell)
        assert len(listed.calibration_scenario(settings).algorithms) >= 1
        for setting in settings:
            scenario = setting.scenario(setting.methods, seeds=2)
            assert [method.name for method in scenario.algorithms] == list(setting.methods)
            assert scenario.seeds == 2 and scenario.train.pace == ("device" if setting.paced else "none")


def test_settings_of_a_cell_follow_each_other() -> None:
    cells = [setting.cell for setting in part("fidelity_runs.settings").SETTINGS]
    changes = [cell for number, cell in enumerate(cells) if not number or cells[number - 1] != cell]
    assert len(changes) == len(set(cells)) == len({cell.name for cell in cells})


def test_groups_depend_on_the_cores() -> None:
    local = [one for one in configurations() if one.setting.network == "local" and not one.setting.order]
    unpaced = [one for one in local if not one.setting.paced]
    for cores in (1, 2, 8):
        beyond = {one.name for one in unpaced if one.setting.workers > cores}
        assert {one.name for one in configurations(cores=cores, only=["unpaced-beyond-cores"])} == beyond
    assert {one.setting.group(8) for one in unpaced} == {"unpaced-within-cores"}


def test_the_quick_subset_has_a_part_of_every_group_besides_the_order() -> None:
    quick = configurations(settings=part("fidelity_runs.settings").quick_settings())
    assert {one.name for one in quick} < {one.name for one in configurations()}
    assert {one.setting.group(2) for one in quick} == set(part("fidelity_runs.settings").GROUPS) - {"order"}


def test_the_third_model_has_about_200_000_weights() -> None:
    module = part("fidelity_runs.wide_mlp")
    assert sum(weights.numel() for weights in module.wide_mlp().parameters()) == 197_482


# --- rows and statistics ----------------------------------------------------------------------------------------------


def line(*names: str, step_s: float = 1.1) -> ComparisonResult:
    """Predicts steps 10 % too long, and 20, 30 and 40 % by the simpler models; one update is staler than predicted."""
    names = names or ("sync-sgd",)
    wrong = dict(zip(("no_message_cost", "no_spread", "alpha_beta"), (1.2, 1.3, 1.4), strict=True))
    return assemble(
        "tiny",
        simulated=[run(name, step_s=step_s) for name in names],
        measured=[run(name, "measured", lags=(0, 1, 1, 1)) for name in names],
        wrong={model: [run(name, step_s=seconds) for name in names] for model, seconds in wrong.items()},
        other_load=0.25,
    )


def row(configuration: str = "one: sync-sgd", **known: Any) -> dict[str, Any]:
    setting, _, method = configuration.partition(": ")
    names = {"configuration": configuration, "group": "paced", "setting": setting, "method": method}
    place = {
        "date": "2026-01-01",
        "commit": "1234567",
        "processor": "P, fast",
        "cores": 2,
        "python": "3.11",
        "torch": "2",
    }
    more = {"model": "digits-mlp", "workers": 2, "batch": 24, "seeds": 1, "other_load": 0.25, "calibration_load": 0.5}
    figures = part("fidelity_runs.measuring").figures_of(line().lines[0])
    return {**names, **figures, **more, **place, "python": "3.11", "torch": "2", **known}


def test_a_row_has_the_errors_of_all_models() -> None:
    found = row()
    assert found.keys() == set(part("fidelity_runs.measuring").COLUMNS)
    models = ("", "_no_message_cost", "_no_spread", "_alpha_beta")
    assert [found[f"step_error{model}"] for model in models] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert found["staleness_tv"] == pytest.approx(0.25)
    assert (found["time_predicted_s"], found["time_measured_s"], found["time_error"]) == (2.0, 2.0, 0.0)
    assert found["share_points"] == pytest.approx(0.0)


def test_sizes_are_those_of_absolute_values() -> None:
    sizes = part("fidelity_runs.tables").sizes
    assert sizes([-0.1 * number for number in range(11)]) == pytest.approx({"mean": 0.5, "p90": 0.9, "worst": 1.0})
    assert sizes([None]) == {}


def test_the_order_of_methods() -> None:
    """One of ten pairs is in the wrong order: τ = (9 − 1) / 10."""
    statistics = part("fidelity_runs.tables")
    times = {"a": (1.0, 1.0), "b": (2.0, 2.0), "c": (3.0, 4.0), "d": (4.0, 3.0), "e": (5.0, None), "f": (None, None)}
    rows = [
        row(f"set: {name}", time_predicted_s=ours, time_measured_s=real, time_error_alpha_beta=None)
        for name, (ours, real) in times.items()
    ]
    (order,) = statistics.orders(rows)
    assert (order["setting"], order["methods"], order["unreached"]) == ("set", 5, "e, f")
    assert order["tau"] == pytest.approx(0.8)
    assert order["tau_alpha_beta"] is None, "a model without times orders nothing"
    assert statistics.orders(rows, fewest=6) == []
    assert statistics.kendall([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == -1.0


def test_pairs_in_the_wrong_order_have_a_reason() -> None:
    """d is measured before c, and e, which is missed, after f; the seeds distinguish the former pair only."""
    tables = part("fidelity_runs.tables")
    times = {
        "a": (1.0, "1 1", 1.0, "0.9 1.1"),
        "b": (2.0, "2 2", 2.0, "2 2"),
        "c": (3.0, "3 3", 4.0, "3.9 4.1"),
        "d": (3.3, "3.3 3.3", 3.2, "3.1 3.3"),
        "e": (5.0, "5 5", None, "- 5"),
        "f": (6.0, "6 6", 5.5, "5.5 5.5"),
    }
    rows = [
        row(
            f"set: {name}",
            time_predicted_s=ours,
            times_predicted=each_ours,
            time_measured_s=real,
            times_measured=each,
            time_error=None if real is None else ours / real - 1,
        )
        for name, (ours, each_ours, real, each) in times.items()
    ]
    found = tables.wrong_pairs(rows)
    assert [(pair["sooner"], pair["later"], pair["apart"]) for pair in found] == [("d", "c", True), ("f", "e", None)]
    assert (found[0]["measured"], found[0]["predicted"]) == pytest.approx((0.25, 3.0 / 3.3 - 1))
    assert found[0]["error_sooner"] > 0 > found[0]["error_later"] and found[1]["measured"] is None
    *_, pairs = tables.tables(rows)
    assert [len(list(column.cells)) for column in pairs.columns] == [2] * 8


def test_tables_have_a_row_for_each_group_and_method() -> None:
    tables = part("fidelity_runs.tables")
    rows = [row("one: sync-sgd"), row("one: agd", group="emulated", method="agd"), row("two: sync-sgd")]
    assert [(line["group"], line["method"], line["n"]) for line, _ in tables.families(rows)] == [
        ("paced", "all", 2),
        ("", "sync-sgd", 2),
        ("emulated", "all", 1),
        ("", "agd", 1),
    ]
    assert [table.row_count for table in tables.tables(rows)] == [4, 4, 4, 0]


# --- the file, and resuming -------------------------------------------------------------------------------------------


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    results, path = part("fidelity_runs.measuring"), tmp_path / "results.csv"
    made = [row(), row("two: agd", time_error=None, seeds=3)]
    for one in made:
        results.append(path, one)
    assert results.finished(path) == made
    assert path.read_text().count("configuration,group") == 1


def test_an_interrupted_line_is_removed(tmp_path: Path) -> None:
    results, path = part("fidelity_runs.measuring"), tmp_path / "results.csv"
    results.append(path, row())
    whole = path.read_text()
    path.write_text(whole + "two: agd,pac")
    assert results.finished(path) == [row()] and path.read_text() == whole
    path.write_text("configur")
    assert results.finished(path) == [] and not path.exists()


def test_a_file_with_other_columns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    assert called("--tables", "--folder", str(tmp_path)) == 2
    said = capsys.readouterr().err
    assert "missing: batch, " in said and said.endswith("unknown: a, b; use another folder\n")


def called(*arguments: str) -> int:
    """Runs the command in this process, and returns its exit status."""
    command = part("fidelity")
    status: int = command.run_command(command.__doc__, command.body, command.add_options, arguments)
    return status


class Machine:
    """Counts calibrations and comparisons instead of making them; the names in `failing` fail."""

    def __init__(self, *failing: str) -> None:
        self.calibrated: list[str] = []
        self.compared: list[str] = []
        self.failing = failing

    def measure(self, cell: Any, scenario: Any, seconds: float) -> MachinePart:
        self.calibrated.append(cell.name)
        return machine_part()

    def compare(self, scenario: Any, costs: Any, out: Path) -> ComparisonResult:
        names = [method.name for method in scenario.algorithms]
        self.compared.append(" ".join(names))
        if {*names} & {*self.failing}:
            raise RunFailed("rank 1 died")
        return line(*names)


def machine_part() -> MachinePart:
    made = MadePart.model_construct(
        date="2026-01-01", processor="", versions={}, seconds=0.0, other_load=0.5, verdict=""
    )
    return MachinePart.model_construct(
        format=1, made=made, model="m", ranks=2, cores=2, torch_threads=1, own=OwnPart(), gradients=(), costs=()
    )


def study(folder: Path, machine: Machine, seeds: int = 1) -> Any:
    doubles = {"measure": machine.measure, "compare": machine.compare}
    kind = part("fidelity_runs.measuring").Study
    return kind(folder=folder, seeds=seeds, seconds=1.0, say=lambda _: None, **doubles)


def test_a_second_start_makes_what_is_missing(tmp_path: Path) -> None:
    results = part("fidelity_runs.measuring")
    wanted = [one for one in configurations() if one.setting.name == "unpaced, digits-mlp, 6 workers"]
    first = Machine("hbs-sgd")
    failures = study(tmp_path, first).run(wanted, 2)
    assert failures == ["unpaced, digits-mlp, 6 workers: hbs-sgd: rank 1 died"]
    assert first.compared == ["sync-sgd", "async-sgd", "hbs-sgd", "agd"] and len(first.calibrated) == 1
    second = Machine()
    assert study(tmp_path, second).run(wanted, 2) == []
    assert second.compared == ["hbs-sgd"] and second.calibrated == [], "the stored calibration is used"
    rows = results.finished(tmp_path / "results.csv")
    assert [one["method"] for one in rows] == ["sync-sgd", "async-sgd", "agd", "hbs-sgd"]
    assert {one["group"] for one in rows} == {"unpaced-beyond-cores"}
    third = Machine()
    study(tmp_path, third, seeds=3).run(wanted, 2)
    assert len(third.compared) == 4, "rows of another number of seeds do not count"
    assert [one["seeds"] for one in results.finished(tmp_path / "results.csv")] == [1] * 4 + [3] * 4


def test_all_methods_of_an_order_are_measured_together(tmp_path: Path) -> None:
    measuring = part("fidelity_runs.measuring")
    ordered = [one for one in configurations(only=["order"]) if one.setting.paced and one.setting.link is None]
    assert len(ordered) == 10 and [ordered] == measuring.together(ordered)
    machine = Machine()
    assert study(tmp_path, machine).run(ordered[:2], 2) == []
    assert machine.compared == ["sync-sgd async-sgd"]
    rows = part("fidelity_runs.measuring").finished(tmp_path / "results.csv")
    assert [one["configuration"] for one in rows] == [one.name for one in ordered[:2]]
    others = configurations(only=["paced"])[:2]
    assert measuring.together(others) == [[others[0]], [others[1]]]


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    calibrations, settings = part("fidelity_runs.measuring"), part("fidelity_runs.settings").SETTINGS
    setting = next(setting for setting in settings if setting.link is not None)
    plan = setting.scenario(("sync-sgd",)).plans()[0]
    emulation = EmulationCosts(
        message_s=0.1, all_reduce_s=0.2, few_bytes=64, packet_bytes=1500,
        leads_s=(0.0, 0.5), start_s=0.25,
    )  # fmt: skip
    machine = machine_part().model_copy(update={"emulated": emulated_part(plan, emulation)})
    save_machine(machine, tmp_path / "m.yaml")
    assert calibrations.read(tmp_path / "m.yaml") == calibrations.Calibration(
        MeasuredCosts(machine_part().profile(), emulation), 0.5
    )
    save_machine(machine_part(), tmp_path / "m.yaml")
    assert calibrations.read(tmp_path / "m.yaml").costs == MeasuredCosts(machine_part().profile())


def test_a_prediction_is_made_before_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring, order = part("fidelity_runs.measuring"), list[str]()

    def noted(name: str, answer: Any) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            order.append(name)
            return answer

        return call

    predict = part("paceline.reports.comparison.predict")
    made = [run("sync-sgd")]
    prediction = predict.Prediction(simulated=made, wrong=dict.fromkeys(predict.WRONG_MODELS, made))
    monkeypatch.setattr(measuring, "predict", noted("predicted", prediction))
    monkeypatch.setattr(measuring, "train", noted("measured", [run("sync-sgd", "measured")]))
    scenario = configurations()[0].setting.scenario(("sync-sgd",))
    assert measuring.predict_then_measure(scenario, Profile(), tmp_path).lines[0].name == "sync-sgd"
    assert order == ["predicted", "measured"]


# --- the command ------------------------------------------------------------------------------------------------------


def test_without_root_emulated_networks_are_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse() -> None:
        raise NoHosts("needs root")

    command = part("fidelity")
    monkeypatch.setattr(command, "refuse", refuse)
    assert called("--list", "--quick", "--folder", str(tmp_path)) == 0
    said = capsys.readouterr()
    assert "emulated" not in said.out and "paced: paced, two kinds of device: sync-sgd" in said.out
    assert "skipped 5 configurations on an emulated network: needs root" in said.err


def test_tables_of_stored_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = part("fidelity_runs.measuring")
    assert called("--tables", "--folder", str(tmp_path)) == 0
    assert "no results yet" in capsys.readouterr().out
    results.append(tmp_path / "results.csv", row())
    assert called("--tables", "--folder", str(tmp_path), "--only", "paced") == 0
    text = capsys.readouterr().out
    assert "Error of the step time" in text and "commit 1234567; P, fast, 2 cores" in text
    assert called("--tables", "--folder", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [row()]


def test_an_interleaved_method_is_predicted_from_the_probes_and_compared_with_the_mean_of_its_runs() -> None:
    command = part("fidelity")
    setting = replace(command.UNPACED["unpaced, digits-mlp, 2 workers"], methods=("sync-sgd",), epochs=1.0, longer=1)
    times = GradientTimes(batch=setting.batch, busy=((1, 0.03), (2, 0.03)))
    machine = Profile(gradients=(times,), cores=2, inside={("AllReduce", 2): ((0, 0.01),)})
    (found,) = command.lines_of(setting, machine, {"sync-sgd": [0.04, 0.06]})
    assert found["predicted_s"] == pytest.approx(0.04)
    assert (found["measured_s"], found["spread_s"]) == pytest.approx((0.05, 0.01))
    assert found["error"] == pytest.approx(-0.2)


@pytest.mark.backend
@pytest.mark.slow
@pytest.mark.thorough
def test_a_configuration_is_calibrated_predicted_and_measured(tmp_path: Path) -> None:
    listed, measuring = part("fidelity_runs.settings"), part("fidelity_runs.measuring")
    setting = next(one for one in listed.SETTINGS if one.name == "unpaced, digits-mlp, 2 workers")
    setting = replace(setting, methods=("sync-sgd",), epochs=1)
    made = measuring.Study(folder=tmp_path, seeds=1, seconds=1.0, say=print)
    assert made.run([listed.Configuration(setting, "sync-sgd")], 2) == []
    (found,) = measuring.finished(tmp_path / "results.csv")
    assert found["step_measured_s"] > 0 and found["staleness_tv"] == 0.0, "sync-sgd is deterministic"
    assert found["step_error"] == pytest.approx(found["step_predicted_s"] / found["step_measured_s"] - 1)
    assert [path.name for path in (tmp_path / "calibrations").iterdir()] == [f"{setting.cell.name}.yaml"]
    assert len(list((tmp_path / "runs").iterdir())) == 1
