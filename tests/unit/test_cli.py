"""The command: exit statuses, output streams, stored files. Engines are replaced by stand-ins."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from paceline.algorithms.core.errors import RunFailed
from paceline.algorithms.core.method import SgdMethod
from paceline.cli.app import app, main
from paceline.records import Run, RunsFailed
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.machine_profile import MeasuredCosts, Profile
from tests.made_up import run

PROFILE = Profile(collectives={("AllReduce", 4): ((8, 0.25),)})
"""the costs of this machine, as a probe finds them"""
COMMAND = [sys.executable, "-c", "from paceline.cli import main; main()"]
Engine = Callable[..., Any]


class Engines(SimpleNamespace):
    """The module that the commands import: replace an attribute to change what an engine does."""

    simulate: Engine
    train: Engine
    probe: Engine
    consistent: Engine
    dry_run: Engine


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    def simulated(scenario: Any, **options: Any) -> list[Run]:
        step_s = 1.0 if options.get("message_cost", True) else 0.9
        keep = options.get("keep", lambda run: run)
        return [keep(run(plan.name, step_s=step_s, seed=plan.seed)) for plan in scenario.plans()]

    def measured(scenario: Any, keep: Engine, **_: Any) -> list[Run]:
        return [keep(run(plan.name, "measured", step_s=1.01, seed=plan.seed)) for plan in scenario.plans()]

    made = Engines(
        simulate=simulated,
        train=measured,
        dry_run=lambda _: [],
        probe=lambda *_, **__: MeasuredCosts(PROFILE),
        consistent=None,
    )
    for module, name in (
        ("simulator.runs.run", "simulate"),
        ("backend.training", "train"),
        ("simulator.runs.dry_run", "dry_run"),
        ("backend.calibration.rounds", "probe"),
        ("simulator.runs.consistency", "consistent"),
    ):
        fake = ModuleType(f"paceline.{module}")
        setattr(fake, name, lambda *args, _name=name, **kwargs: getattr(made, _name)(*args, **kwargs))
        monkeypatch.setitem(sys.modules, fake.__name__, fake)
    sys.modules["paceline.simulator.runs.run"].perform = perform  # type: ignore[attr-defined]  # of explanations
    return made


def call(*arguments: str | int | Path) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_simulate_answers_one_document(engines: Engines, tmp_path: Path) -> None:
    result = call("simulate", "quickstart", "--algorithms", "agd,sync-sgd", "--seeds", 2, "--json", "--out", tmp_path)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer.keys() == {"scenario", "runs", "figures"}
    assert [(one["algorithm"], one["seed"]) for one in answer["runs"]] == [
        ("agd", 1),
        ("agd", 2),
        ("sync-sgd", 1),
        ("sync-sgd", 2),
    ]
    for one in answer["runs"]:
        assert one.keys() == {"algorithm", "seed", "kind", "summary", "path", "warnings"}
        assert json.loads((Path(one["path"]) / "run.json").read_text())["summary"] == one["summary"]


def test_tables_go_to_standard_output_and_notes_to_standard_error(engines: Engines, tmp_path: Path) -> None:
    result = call("simulate", "quickstart", "--algorithms", "sync-sgd", "--out", tmp_path)
    assert "sync-sgd" in result.stdout
    assert "1 run stored in" in result.stderr
    assert "\x1b" not in result.output
    quiet = call("simulate", "quickstart", "--algorithms", "sync-sgd", "--out", tmp_path, "--quiet")
    assert quiet.stderr == ""
    assert quiet.stdout == result.stdout
    verbose = call("simulate", "quickstart", "--algorithms", "sync-sgd", "--out", tmp_path, "--verbose")
    assert "tiny-sync-sgd-1-simulated-3" in verbose.stderr


def test_options_change_the_scenario(engines: Engines, tmp_path: Path) -> None:
    seen: list[Any] = []
    whole = engines.train

    def watched(scenario: Any, **options: Any) -> Any:
        seen.append(scenario)
        return whole(scenario, **options)

    engines.train = watched
    result = call(
        "train", "quickstart", "--set", "stop.epochs=3", "--set", "algorithms.agd.delay=2", "--algorithms", "agd",
        "--seed", 7, "--no-pace", "--network", "local", "--out", tmp_path,
    )  # fmt: skip
    assert result.exit_code == 0
    (scenario,) = seen
    assert scenario.stop.epochs == 3
    assert scenario.seed == 7
    assert scenario.train.pace == "none"
    assert [method.delay for method in scenario.algorithms] == [2]


def test_compare_answers_keeps_and_draws(engines: Engines, tmp_path: Path) -> None:
    result = call("compare", "quickstart", "--algorithms", "sync-sgd,easgd", "--json", "--out", tmp_path)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["predicts"] == "this machine"
    assert 0 <= answer["other_load"] <= 1
    line = answer["algorithms"][0]
    assert line["error"]["step_s"]["mean"] == pytest.approx(1 / 1.01 - 1)
    assert line["wrong_models"]["no_message_cost"]["step_s"]["mean"] == pytest.approx(0.9 / 1.01 - 1)
    folder = tmp_path / "quickstart-comparison-1"
    assert (folder / "accuracy.png").stat().st_size > 0
    kept = json.loads((folder / "comparison.json").read_text())
    assert len(kept["runs"]) == 4
    assert all((Path(path) / "run.json").exists() for path in kept["runs"])


def test_the_prediction_uses_the_probed_network(engines: Engines, tmp_path: Path) -> None:
    networks: list[Any] = []
    whole = engines.simulate

    def watched(scenario: Any, **options: Any) -> Any:
        networks.append(options["machine"].host)
        return whole(scenario, **options)

    engines.simulate = watched
    assert call("compare", "quickstart", "--algorithms", "agd", "--out", tmp_path).exit_code == 0
    assert networks == [PROFILE] * 3


def test_compare_for_a_person(engines: Engines, tmp_path: Path) -> None:
    result = call("compare", "quickstart", "--algorithms", "sync-sgd", "--out", tmp_path)
    assert "Step time (measured, paced)" in result.stdout
    assert "sync-sgd reaches 90 % accuracy soonest, as predicted" in " ".join(result.stdout.split())
    assert "Figure and answer stored in" in result.stderr


def test_compare_explains_errors(engines: Engines, tmp_path: Path) -> None:
    result = call("compare", "quickstart", "--algorithms", "sync-sgd", "--explain", "--out", tmp_path)
    words = " ".join(result.stdout.split())
    assert "sync-sgd: predicted 1,000 ms, measured 1,010 ms a step. No activity differs" in words
    explained = json.loads((tmp_path / "quickstart-comparison-1" / "comparison.json").read_text())
    parts = explained["algorithms"][0]["explanation"]["variation"]["parts"]
    assert [part["part"] for part in parts] == ["persistent", "node", "correlated", "noise"]
    whole = engines.train
    engines.train = lambda scenario, **options: whole(scenario, **{**options, "keep": slowed(options["keep"])})
    result = call("compare", "quickstart", "--algorithms", "sync-sgd", "--explain", "--out", tmp_path)
    assert "error of the step time" in result.stdout
    kept = json.loads((tmp_path / "quickstart-comparison-2" / "comparison.json").read_text())
    causes = kept["algorithms"][0]["explanation"]["causes"]
    assert {cause["activity"]: cause["share"] for cause in causes} == pytest.approx({"compute": 0.5, "unrecorded": 0.5})


def slowed(keep: Engine) -> Engine:
    """Stores another run, whose steps are twice as long; a gradient takes half of each step."""
    return lambda one: keep(run(one.algorithm, "measured", step_s=2.0, seed=one.seed))


def test_a_comparison_without_accuracy_has_no_figure(engines: Engines, tmp_path: Path) -> None:
    whole = engines.simulate
    engines.simulate = lambda scenario, **options: [without_accuracy(run) for run in whole(scenario, **options)]
    engines.train = engines.simulate
    result = call("compare", "quickstart", "--algorithms", "sync-sgd", "--out", tmp_path)
    assert result.exit_code == 0
    assert "Accuracy" not in result.stdout
    assert [entry.name for entry in (tmp_path / "quickstart-comparison-1").iterdir()] == ["comparison.json"]


def without_accuracy(whole: Run) -> Run:
    summary = {**whole.summary, "target_accuracy": None, "time_to_accuracy_s": None, "final_accuracy": None}
    return dataclasses.replace(whole, summary=summary)  # type: ignore[arg-type]


def test_a_failed_run_exits_with_1_and_is_kept(engines: Engines, tmp_path: Path) -> None:
    def dies(*_: Any, keep: Engine, **__: Any) -> list[Run]:
        raise RunsFailed("rank 2 (worker) died at step 7: killed by SIGKILL", [keep(run("sync-sgd", "measured"))])

    engines.train = dies
    result = call("train", "quickstart", "--out", tmp_path, "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "rank 2 (worker) died at step 7" in result.stderr
    assert "Traceback" not in result.stderr
    assert (tmp_path / "tiny-sync-sgd-1-measured-1" / "run.json").exists()


def test_a_failure_shows_its_traceback_when_asked_for(engines: Engines, tmp_path: Path) -> None:
    def dies(*_: Any, **__: Any) -> list[Run]:
        raise RunFailed("rank 0 died")

    engines.train = dies
    assert "in dies" in call("train", "quickstart", "--out", tmp_path, "--verbose").stderr


def test_a_failed_comparison_keeps_its_predictions(engines: Engines, tmp_path: Path) -> None:
    def dies(*_: Any, **__: Any) -> list[Run]:
        raise RunFailed("rank 0 died")

    engines.train = dies
    assert call("compare", "quickstart", "--algorithms", "agd", "--out", tmp_path).exit_code == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny-agd-1-simulated-1"]


def test_interruption_exits_with_130(engines: Engines, tmp_path: Path) -> None:
    def interrupted(*_: Any, **__: Any) -> list[Run]:
        raise KeyboardInterrupt

    engines.simulate = interrupted
    result = call("simulate", "quickstart", "--out", tmp_path)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["simulate", "no/such.yaml"], "no such file", id="missing file"),
        pytest.param(["simulate", "quickstart", "--set", "stop.epochs=x"], "stop.epochs", id="wrong value"),
        pytest.param(["compare", "quickstart", "--algorithms", "sync-sdg"], "did you mean sync-sgd", id="near miss"),
        pytest.param(["compare", "quickstart", "--algorithms", ","], "--algorithms", id="no algorithm"),
        pytest.param(["train", "quickstart", "--network", "imagined"], "'local', 'emulated'", id="no such network"),
        pytest.param(["compare"], "SCENARIO: missing", id="nothing to compare"),
        pytest.param(["simulate", "quickstart", "--seeds", "0"], "--seeds", id="no seed"),
        pytest.param(["list", "fruits"], "algorithms", id="nothing to list"),
        pytest.param(["dance"], "dance", id="unknown command"),
    ],
)
def test_wrong_input_exits_with_2(
    engines: Engines, arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "kind", ["algorithms", "devices", "links", "topologies", "models", "datasets", "scenarios", "storage", "systems"]
)
def test_list(kind: str) -> None:
    answer = json.loads(call("list", kind, "--json").stdout)
    assert answer["kind"] == kind
    assert answer["items"]
    shown = call("list", kind).stdout
    for item in answer["items"]:
        assert item["name"] in shown


def test_list_algorithms_says_their_hyperparameters() -> None:
    items = {item["name"]: item for item in json.loads(call("list", "algorithms", "--json").stdout)["items"]}
    shared = {field.name: field.default for field in dataclasses.fields(SgdMethod)}
    assert items["agd"]["hyperparameters"] == {"delay": 1, "accumulate": 1, "compression": None, **shared}
    assert "exact-delay" in items["agd"]["guarantees"]


def test_list_shows_an_algorithm_with_hyperparameters_and_guarantees() -> None:
    shown = call("list", "algorithms", "agd", "diloco").stdout
    assert re.search(r"delay +1 +a number of steps", shown)
    assert re.search(r"exact-delay +every gradient is applied exactly", shown)
    assert "hyper-parameters of diloco" in shown
    named = json.loads(call("list", "devices", "v100", "--json").stdout)["items"]
    assert [item["name"] for item in named] == ["v100-sxm2"]
    mistyped = call("list", "algorithms", "dilco", "agd", "sync-sdg")
    assert mistyped.exit_code == 2
    assert "did you mean diloco?" in mistyped.stderr
    assert "did you mean sync-sgd?" in mistyped.stderr


def test_schema_is_json() -> None:
    assert "algorithms" in json.loads(call("schema").stdout)["properties"]


def test_help_has_the_words_of_the_source() -> None:
    """Every command has examples. Square brackets are no markup, paragraphs are wrapped once, no example is wrapped."""
    assert "Examples:" in call("--help").stdout
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        words = inspect.getdoc(command.callback) or ""
        shown = call(name, "--help").stdout
        assert "Examples:" in shown and f"paceline {name}" in shown
        text = re.split("╭─ ", shown[shown.index(words[:20]) :])[0]
        for paragraph in words.split("\n\n"):
            if paragraph.startswith("\b"):
                assert all(line.rstrip() in shown for line in paragraph.split("\n")[1:]), name
            else:
                assert " ".join(paragraph.split()) in " ".join(text.split()), name
        lines = [line.strip() for line in text.split("\n")]
        short = [line for line, after in pairwise(lines) if line and after and len(f"{line} {after.split()[0]}") <= 78]
        examples = {line.strip() for part in words.split("\n\n") if part.startswith("\b") for line in part.split("\n")}
        assert {line for line in short if line not in examples} == set(), name


def test_version() -> None:
    assert call("--version").stdout.startswith("paceline ")


def test_exit_statuses_of_the_process(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    found = subprocess.run([*COMMAND, "simulate", str(empty)], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stderr.startswith("error: empty.yaml: ")
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("command", ["simulate", "train", "compare"])
def test_a_place_that_cannot_be_written_is_told_before_anything_runs(
    engines: Engines, command: str, tmp_path: Path
) -> None:
    engines.simulate = engines.train = engines.probe = lambda *_, **__: pytest.fail("ran")
    (tmp_path / "file").touch()
    result = call(command, "quickstart", "--out", tmp_path / "file" / "runs")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: --out: found '{tmp_path}/file/runs', where nothing can be written")


def test_a_disk_that_fills_up_is_told_without_a_traceback(engines: Engines, tmp_path: Path) -> None:
    def full(*_: Any, **__: Any) -> list[Run]:
        raise OSError(errno.ENOSPC, "No space left on device")

    engines.simulate = full
    result = call("simulate", "quickstart", "--out", tmp_path)
    assert (result.exit_code, result.stderr) == (1, "error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("words", [["list", "algorithms", "--json"], ["list", "links"]])
def test_output_does_not_depend_on_what_the_terminal_can_show(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON escapes characters outside ASCII; a table shows a question mark instead."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # restored after `main`
    monkeypatch.setattr(sys, "argv", ["paceline", *words])
    answers = []
    for encoding in ("ascii", "utf-8"):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        sys.stdout.flush()
        answers.append(written.getvalue().decode(encoding))
    if words[-1] == "--json":
        assert json.loads(answers[0]) == json.loads(answers[1]) != {}
    else:
        assert "?" in answers[0] and "µ" in answers[1]


@pytest.mark.parametrize(
    "error", [ValueError("first line\nsecond line"), RecursionError(), SystemExit(), KeyError("x")]
)
def test_what_nobody_foresaw_is_one_sentence_with_a_report(
    error: BaseException, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    engines.simulate = fails
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = CliRunner().invoke(app, ["simulate", "quickstart", "--out", str(tmp_path / "runs")])
    assert done.exit_code == 1
    (report,) = tmp_path.glob("paceline-error-*.txt")
    (line,) = (line for line in done.stderr.splitlines() if "Paceline failed" in line)
    assert line.startswith("error: ") and line.endswith(f"please report it with the file {report}")
    assert type(error).__name__ in line and "Traceback" not in done.output
    said = report.read_text(encoding="utf-8")
    assert "Traceback" in said and "in fails" in said and "numpy" in said and "command: " in said


def test_an_unforeseen_failure_without_room_for_a_report_is_told(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise AssertionError("never")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    engines.simulate = fails
    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    done = CliRunner().invoke(app, ["simulate", "quickstart"])
    assert done.exit_code == 1
    assert "AssertionError: never; no report could be written" in done.stderr


DEEP = "[" * 100_000
NESTED = "[" * 300 + "]" * 300


@pytest.mark.parametrize("text", [DEEP, NESTED, '{"a": ' * 100_000])
@pytest.mark.parametrize(
    "command",
    ["check --replay", "report", "show", "staleness", "simulate", "topology", "calibrate --run", "train --resume"],
)
def test_brackets_inside_each_other_are_no_traceback(command: str, text: str, tmp_path: Path) -> None:
    """In the file itself, or in the run.json of a folder."""
    (tmp_path / "deep.json").write_text(text)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(text)
    in_folder = command in {"show", "staleness", "calibrate --run", "train --resume"}
    done = CliRunner().invoke(app, [*command.split(), str(folder if in_folder else tmp_path / "deep.json")])
    assert done.exit_code == 2, done.output
    assert "Paceline failed" not in done.output and "Traceback" not in done.output
    if command != "train --resume":  # it looks for a checkpoint first
        assert "more than 100 brackets inside each other" in " ".join(done.stderr.split())


@pytest.mark.parametrize("words", [["schema"], ["list", "algorithms", "agd"]])
def test_a_reader_that_has_heard_enough_is_no_mistake(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run([*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (found.returncode, found.stderr) == (1, "")


def test_ctrl_c_ends_the_process_with_130(tmp_path: Path) -> None:
    code = """
import sys, time, types
engine = types.ModuleType("paceline.simulator.runs.run")
def simulate(*_, **__):
    print("started", flush=True)
    time.sleep(60)
engine.simulate = simulate
sys.modules["paceline.simulator.runs.run"] = engine
sys.argv = ["paceline", "simulate", "quickstart"]
from paceline.cli import main
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
