"""`paceline validate`: users' rows, what is stored and continued, halves, the page and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.records import step_errors
from paceline.reports.sweeps.parallel_tasks import Done, TaskFailure
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from paceline.validation import page, sets, steps, support, validate
from paceline.validation.outcome import Errors, LeftOut, Outcome, half_of
from paceline.validation.steps import Row

HEADER = "device,devices,nodes,model,batch_per_device,samples_per_s,step_ms,network,inside,placement,precision\n"
ALONE = "v100,1,1,resnet50,64,360,,,,,fp32\n"
FOUR = "v100,4,1,resnet50,64,1380,,,PCIe,,fp32\n"
UNEVEN = 'v100,3,2,resnet50,64,,200,"25 Gbit/s Ethernet",PCIe,1+2,fp32\n'


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Predicts groups one after the other in this process, and returns what was predicted."""
    predicted: list[Any] = []

    def each(work: Any, pieces: Any, **_: Any) -> Any:
        for position, piece in enumerate(pieces):
            predicted.append(piece)
            try:
                yield position, Done(work(piece))
            except ZeroDivisionError as error:
                yield position, TaskFailure(str(error))

    monkeypatch.setattr(validate, "each", each)
    return predicted


def table(path: Path, *lines: str) -> Path:
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["validate", *map(str, arguments)], catch_exceptions=False)


def test_rows_of_a_user_are_predicted_from_the_smallest(tmp_path: Path) -> None:
    mine = table(tmp_path / "mine.csv", ALONE, FOUR, UNEVEN)
    result = run("--rows", mine, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    (own,) = json.loads(result.stdout)["sets"]
    four, uneven = sorted(own["rows"], key=lambda row: row["name"])
    assert (four["unit"], uneven["unit"]) == ("samples/s", "s")
    assert four["simpler"]["linear scaling"] == pytest.approx(4 * 360)
    assert uneven["simpler"]["linear scaling"] == pytest.approx(64 / 360)
    assert 0.5 * 4 * 360 < four["predicted"] < 4 * 360
    assert uneven["predicted"] > 64 / 360
    assert uneven["network"] == "eth-25g" and four["network"] == ""
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "predicted", "step_errors.csv", "validation.html", "validation.json", "validation.md",
    }  # fmt: skip


def test_all_mistakes_of_a_table_are_said_at_once_and_nothing_is_predicted(
    tmp_path: Path, in_this_process: list[Any]
) -> None:
    wrong = "v100,x,1,resnet5,64,,,,,,fp31\n"
    mine = table(tmp_path / "mine.csv", ALONE, wrong, "v100,4,2,resnet50,64,100,,,,1+1,fp32\n")
    result = run("--rows", mine, "--out", tmp_path / "out")
    assert result.exit_code == 2
    for words in ("line 3: devices: found 'x'", "fp31", "did you mean resnet50", "line 4: placement", "add up to"):
        assert words in " ".join(result.stderr.split())
    assert in_this_process == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device,devices\na100,1\n", "missing for rows of your own: batch_per_device, model, nodes"),
        ("device,devices\n", "found no line below the names"),
        ("", "found no line"),
        (b"\xff\xfe\x00", "found no readable table"),
    ],
)
def test_a_file_that_is_no_table_is_refused(text: str | bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = run("--rows", path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_the_help_names_all_sets() -> None:
    words = " ".join(run("--help").stdout.replace("│", " ").split())
    assert f"({', '.join(sets.SETS)})" in words


def test_unknown_sets_are_refused_with_the_known_ones() -> None:
    result = run("mlprf", "polux")
    assert result.exit_code == 2
    assert "did you mean mlperf?" in result.stderr and "unknown set 'polux'" in result.stderr


def test_another_file_with_the_columns_of_a_set_belongs_to_it(tmp_path: Path) -> None:
    lines = (sets.DATA / "mlperf_resnet50_systems.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "others.csv"
    path.write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")
    ((known, file),) = validate.tables([], [path])
    assert (known.name, file) == ("mlperf", path)


def test_predicted_groups_are_not_predicted_again(tmp_path: Path, in_this_process: list[Any]) -> None:
    mine = table(tmp_path / "mine.csv", ALONE, FOUR)
    first = run("--rows", mine, "--out", tmp_path, "--json").stdout
    assert len(in_this_process) == 1
    assert run("--rows", mine, "--out", tmp_path, "--json").stdout == first
    assert len(in_this_process) == 1
    table(mine, ALONE, FOUR.replace("1380", "1390"))
    run("--rows", mine, "--out", tmp_path, "--json")
    assert len(in_this_process) == 2


def test_a_scenario_of_a_row_gives_its_prediction(tmp_path: Path) -> None:
    mine = table(tmp_path / "mine.csv", ALONE, FOUR)
    text = run("--rows", mine, "--scenario", "line 3").stdout
    (row,) = json.loads(run("--rows", mine, "--out", tmp_path, "--json").stdout)["sets"][0]["rows"]
    (made,) = simulate(load(yaml.safe_load(text)))
    assert made.summary["samples_per_s"] == pytest.approx(row["predicted"], rel=0.02)
    refused = run("--rows", mine, "--scenario", "line 2")
    assert refused.exit_code == 2 and "given to the others" in refused.stderr
    assert run("--rows", mine, "--scenario", "line 9").exit_code == 2


def test_a_group_that_fails_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(steps, "outcomes", fail)
    known = sets.of_steps(
        name="made", title="", file="", columns=frozenset(), row=lambda line: row_of(int(line["devices"]))
    )
    monkeypatch.setattr(validate, "set_named", lambda _: known)
    monkeypatch.setattr(type(known), "lines", lambda *_: [{"line": "2", "devices": "1"}, {"line": "3", "devices": "2"}])
    validation = validate.validate([(known, None)], folder=tmp_path)
    assert validation.outcomes == ()
    assert {left.reason for left in validation.left_out} == {"broken"}
    assert not (tmp_path / "predicted").exists()  # it is tried again


def test_rows_with_nothing_to_predict_are_counted(in_this_process: list[Any], tmp_path: Path) -> None:
    alone = ALONE.replace("resnet50", "vgg16")
    result = run("--rows", table(tmp_path / "mine.csv", ALONE, FOUR, alone), "--out", tmp_path)
    words = " ".join(result.stdout.split())
    assert f"own: 1 row left out: 1: {sets.ALONE}." in words


def test_all_reasons_are_counted() -> None:
    left_out = [LeftOut("made", str(number), f"reason {max(number, 2)}") for number in range(9)]
    words = page._left_out_words("made", left_out)
    assert words.startswith("made: 9 rows left out: 3: reason 2; 1: reason 3; ")
    assert words.endswith("; 1 for other reasons, in the report.")


def row_of(devices: int, batch: int = 8, step_s: float = 1.0, **values: Any) -> Row:
    given: dict[str, Any] = {"group": "", "name": f"{devices}", "family": "", "words": {}, "nodes": 1, "model": "lenet"}
    given |= values
    return Row(devices=devices, batch=batch, step_s=step_s, **given)


def test_the_rows_with_the_fewest_devices_are_given() -> None:
    rows = [row_of(4), row_of(2, nodes=2), row_of(2), row_of(2, batch=16), row_of(8)]
    given, others = steps.given_and_predicted(rows)
    assert given == [rows[2], rows[3]]
    assert others == [rows[0], rows[1], rows[4]]


def test_links_of_chips_join_all_hosts_of_a_slice() -> None:
    row = row_of(16, nodes=4, words={"device": "TPU v3"})
    cluster = steps.scenario_of(row, ((8, 1.0),))["cluster"]
    assert [(node["count"], node["workers_per_node"]) for node in cluster["nodes"]] == [(1, 16)]
    assert cluster["network"]["intra_node_link"]["like"] == "tpu-ici"


def test_gradients_between_given_batches_are_interpolated_and_others_scaled() -> None:
    points = ((8, 1.0), (16, 1.5))
    assert steps.with_batch(points, row_of(4, batch=12)) == (points, "")
    further, words = steps.with_batch(points, row_of(4, batch=32, model="quadratic"))
    assert further == ((8, 1.0), (16, 1.5), (32, 3.0))
    assert "32/16" in words


def test_halves_of_a_set_do_not_depend_on_its_other_rows() -> None:
    names = [f"mlperf row {number}" for number in range(400)]
    halves = [half_of(name) for name in names]
    assert halves == [half_of(name) for name in names]
    assert 150 < halves.count("open") < 250


def outcome(measured: float, predicted: float, **values: Any) -> Outcome:
    given: dict[str, Any] = {"set": "made", "name": "row", "system": "", "family": "", "unit": "s", "scenario": {}}
    given |= values
    return Outcome(measured=measured, predicted=predicted, **given)


def test_errors_are_relative_to_the_measurement() -> None:
    errors = Errors.of([outcome(2.0, 3.0).error, outcome(4.0, 3.0).error, None])
    assert errors == Errors(rows=2, median=0.375, p90=0.475, mean=0.375)
    assert Errors.of([None]) is None


def test_outcomes_and_rows_that_are_left_out_survive_storing() -> None:
    rows = [outcome(1.0, 2.0, interval=(1.0, 3.0), assumed=("a",), simpler={"linear scaling": 2.0})]
    assert [Outcome.of(json.loads(json.dumps(row.document()))) for row in rows] == rows
    assert validate._result({"left_out": ["made", "row", "why"]}) == LeftOut("made", "row", "why")


def test_errors_by_chip_and_network_are_of_the_measured_over_the_predicted_step() -> None:
    rows = [
        outcome(1.2, 1.0, chip="t4", network="eth-10g"),
        outcome(100.0, 80.0, unit="samples/s", chip="t4"),  # the step took 80 / 100 of the predicted time
        outcome(5.0, 1.0, scenario=None),
    ]
    errors = {(each["chip"], each["network"]): each for each in support.step_errors(rows)}
    assert errors["t4", "eth-10g"]["low"] == pytest.approx(1.2)
    assert errors["t4", step_errors.ONE_NODE]["high"] == pytest.approx(0.8)
    assert errors[step_errors.ANY, step_errors.ANY]["rows"] == 2


def test_a_prediction_states_the_most_similar_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    few = [outcome(1.1, 1.0, chip="t4", network="ib-edr")] * 4
    many = [outcome(1.2, 1.0, chip="t4", network="eth-10g")] * 6
    path = tmp_path / "step_errors.csv"
    path.write_text(support.written(support.step_errors([*few, *many])), encoding="utf-8")
    monkeypatch.setattr(step_errors, "FILE", path)
    step_errors.table.cache_clear()
    try:
        assert step_errors.most_similar("t4", ["eth-10g"])["rows"] == 6
        assert step_errors.most_similar("t4", ["ib-edr"])["network"] == step_errors.ANY  # four are too few
        assert step_errors.most_similar("k80", ["eth-10g"])["chip"] == step_errors.ANY
        assert step_errors.most_similar("k80", ["aries"])["rows"] == 10
    finally:
        step_errors.table.cache_clear()
