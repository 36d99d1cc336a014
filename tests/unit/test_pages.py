"""Pages of the documentation agree with the code: their tables, and the examples on them run."""

from __future__ import annotations

import doctest
import inspect
import re
import shlex
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner

import paceline
from paceline.algorithms import find
from paceline.algorithms.core.compression import Cast, Compression, PowerSgd, TopK
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.option_groups import Options
from paceline.algorithms.core.rules import Lars
from paceline.algorithms.core.schedules import LearningRateSchedule
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.local_sgd import Hsgd
from paceline.cli.app import app
from paceline.reports.attribution.explain import Effect
from paceline.reports.attribution.rows import GROUPS, ExplainedRow
from paceline.reports.attribution.variation import MeanStep, VariationWaiting
from paceline.scenarios import load
from paceline.scenarios.sections.reading import Reading
from paceline.scenarios.sections.workload import Workload
from paceline.workloads import find_model
from paceline.workloads.convert_dataset import convertible
from paceline.workloads.datasets import DATA
from paceline.workloads.datasets.catalogue import HOME
from paceline.workloads.learners.torch_building import TRIED
from paceline.workloads.models.transformer_config import MEANINGS
from paceline.workloads.reading import Strategy
from paceline.workloads.reading.file import INPUTS
from paceline.workloads.reading.folder import ABOUT, TEST, TRAIN, checksums_beside
from tests.pages import blocks, files_of, page, run_session, table, write_files

# --- explain ----------------------------------------------------------------------------------------------------------

EXPLAIN = page("explain")


def test_explain_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scenario,), (shown, waiting) = blocks(EXPLAIN, "yaml"), blocks(EXPLAIN, "text")
    (tmp_path / "star.yaml").write_text(scenario, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "118")
    (changed,) = re.findall(r'paceline explain star.yaml --set "(.*)"', EXPLAIN)

    def printed(*options: str) -> str:
        answer = CliRunner().invoke(app, ["explain", "star.yaml", "--quiet", *options])
        assert answer.exit_code == 0, answer.output
        return "\n".join(line.rstrip() for line in answer.stdout.rstrip().splitlines())

    assert printed() == shown.rstrip()
    assert f"\n\n{waiting.rstrip()}\n\n" in printed("--set", changed)


def test_the_page_on_explain_has_every_group_and_key() -> None:
    assert [row[0] for row in table(EXPLAIN, "group | rows")] == list(GROUPS)
    keys = {row[0]: row[1].replace("`", "").split(", ") for row in table(EXPLAIN, "list | keys")}
    row = ExplainedRow(group="gradient", name="ip1", seconds=1.0).record()
    mean = MeanStep(1.0, 0.5)
    variation = VariationWaiting(mean, {"noise": mean}, mean).record("agd")
    assert list(keys.values()) == [
        list(row), list(Effect("no jitter", 1.0, 2.0).record()), list(variation), list(variation["parts"][0])
    ]  # fmt: skip
    assert [name.split("`")[0] for name in keys] == ["rows", "what_if", "variation", "parts"]


# --- methods/hsgd -----------------------------------------------------------------------------------------------------

HSGD = page("methods/hsgd")


def hsgd_row(begins: str) -> list[str]:
    """Returns the cells of the first row of a table that begins like this."""
    (line,) = re.findall(rf"^\| {re.escape(begins)} \|(.*)\|$", HSGD, re.MULTILINE)[:1]
    return [cell.strip() for cell in line.split("|")]


def test_the_scenario_of_hsgd_runs_as_long_as_its_schedule() -> None:
    (text,) = blocks(HSGD, "yaml")
    scenario = paceline.load(text)
    (method,) = scenario.algorithms
    assert isinstance(method, Hsgd)
    (run,) = paceline.simulate(scenario)
    assert run.summary["updates"] == getattr(method.schedule, "total_steps", None)
    assert run.summary["final_accuracy"] is not None
    assert run.summary["final_accuracy"] > 0.9


def test_the_published_settings_of_the_batch_of_hsgd_are_the_shipped_scenarios() -> None:
    (method,) = paceline.load("hsgd-tianhe2").algorithms
    assert isinstance(method, Hsgd)
    law = method.schedule
    assert law is not None
    said = [float(number) for cell in hsgd_row("8K") for number in re.findall(r"[\d.]+", cell.replace(",", "", 1))]
    total = getattr(law, "total_steps", None)
    assert said == [method.learning_rate, law.warmup_steps, law.warmup_start, total]


# --- python -----------------------------------------------------------------------------------------------------------

PYTHON = page("python")
PROCESSES = "## Sweep"
"""the first section whose examples start processes"""
MODES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize(
    "processes", [False, pytest.param(True, marks=[pytest.mark.backend, pytest.mark.thorough])], ids=["alone", "all"]
)
def test_the_examples_of_the_python_page_run(processes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one session; the tutorial, which the ordinary suite executes, has a sweep and a comparison too."""
    monkeypatch.chdir(tmp_path)
    alone, _, rest = PYTHON.partition(PROCESSES)
    text = "\n".join(blocks(PYTHON if processes else alone, "pycon"))
    assert "paceline.train(" in "".join(blocks(rest, "pycon"))
    run_session(text, more_than=12, options=MODES)


def test_every_public_function_has_an_example() -> None:
    shown = "".join(blocks(PYTHON, "pycon"))
    functions = [name for name in paceline.__all__ if inspect.isfunction(getattr(paceline, name))]
    assert {"simulate", "train", "compare", "sweep", "check", "plan", "load"} == set(functions)
    for name in functions:
        assert f"paceline.{name}(" in shown
        assert f"| `paceline.{name}` |" in PYTHON


# --- reading ----------------------------------------------------------------------------------------------------------

READING = page("reading")
REAL = pytest.param("train", marks=pytest.mark.backend)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's scenario, in which its first command was run."""
    whole = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patched:
        write_files(READING, whole, patched)
        assert CliRunner().invoke(app, ["convert", "digits"]).exit_code == 0
    return whole


@pytest.mark.parametrize("name", ["simulate", REAL])
def test_the_commands_of_the_page_on_reading_run(name: str, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(records)
    (shown,) = blocks(READING, "console")
    asked = {words[1]: words[1:] for words in map(shlex.split, re.findall(r"^\$ (.+)$", shown, re.MULTILINE))}
    assert list(asked) == ["convert", "simulate", "train"]
    answer = CliRunner().invoke(app, asked[name])
    assert (answer.exit_code, "sync-sgd" in answer.stdout) == (0, True), answer.output


def test_the_sessions_of_the_page_on_reading_run(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(records)
    run_session("".join(blocks(READING, "pycon")), more_than=8)


def test_the_keys_of_reading_are_those_of_its_section() -> None:
    rows = {row[0]: row[1] for row in table(READING, "key | default")}
    fields = Reading.model_fields.items()
    assert {key: None if said == "none" else yaml.safe_load(said) for key, said in rows.items()} == {
        name: field.default for name, field in fields
    }


def test_strategies_files_and_data_sets_are_those_known() -> None:
    assert [row[0] for row in table(READING, "strategy | worker")] == list(get_args(Strategy))
    sums = [checksums_beside(Path(name)).name for name in (TRAIN, TEST)]
    assert [row[0] for row in table(READING, "file | holds")] == [TRAIN, TEST, f"{sums[0]}`, `{sums[1]}", ABOUT]
    (line,) = re.findall(r"`paceline convert DATA` takes (.+?), from", " ".join(READING.split()))
    assert set(re.findall(r"`([\w-]+)`", line)) == set(convertible())
    assert all(f"`{name}`" in READING for name in INPUTS)


# --- rules ------------------------------------------------------------------------------------------------------------

RULES = page("rules")
KINDS: dict[str, type[Options]] = {
    kind().kind: kind for kind in (*get_args(LearningRateSchedule), *get_args(Compression))
}
EXAMPLES = [entry for block in blocks(RULES, "yaml") for entry in yaml.safe_load(block)["algorithms"]]
NODES = [[Rank(0)], [Rank(1)]]


@pytest.mark.parametrize(
    ("header", "group"),
    [
        ("of `lars` |", Lars),
        ("of `compression: {kind: top-k}` |", TopK),
        ("of `compression: {kind: power-sgd}` |", PowerSgd),
        ("of `compression: {kind: dct-top-k}` |", DctTopK),
        ("of `compression: {kind: cast}` |", Cast),
    ],
)
def test_the_options_of_rules_are_the_classes(header: str, group: type[Options]) -> None:
    """Names, defaults (as YAML writes them), and what a number must be."""
    known = [field for field in fields(group) if field.name != "kind"]
    assert MISSING not in [field.default for field in known]
    rows = table(RULES, header)
    assert {row[0]: yaml.safe_load(row[1]) for row in rows} == {field.name: field.default for field in known}
    said = {row[0]: row[2] for row in rows}
    assert {name: said[name] for name in group.ranges} == {name: what for name, (_, what) in group.ranges.items()}
    assert all(cell for row in rows for cell in row)


def test_the_schedules_are_the_classes() -> None:
    """Each kind and its own options with their defaults; the text below the table describes those of the ramp."""
    rows = {row[0]: row[2] for row in table(RULES, "kind | rate of step t")}
    assert list(rows) == [kind().kind for kind in get_args(LearningRateSchedule)]
    for kind in get_args(LearningRateSchedule):
        for field in fields(kind):
            if field.name not in {"kind", "warmup_steps", "warmup_start"}:
                given = f"{field.default} unless given" if field.default else "has to be given"
                assert f"{field.name}`:" in rows[kind().kind]
                assert given.replace("2.0", "2") in rows[kind().kind]


def built(value: Any, name: str = "") -> Any:
    """A value of an example, with mappings as the groups that they describe."""
    if not isinstance(value, dict):
        return tuple(value) if isinstance(value, list) else value
    group = Lars if name == "lars" else KINDS[value["kind"]]
    return group(**{key: built(part) for key, part in value.items()})


@pytest.mark.parametrize("entry", EXAMPLES, ids=str)
def test_an_example_is_a_method(entry: dict[str, Any]) -> None:
    method: Any = find(entry["name"])
    made = method(**{key: built(value, key) for key, value in entry.items() if key != "name"})
    assert not made.problems(NODES)


@pytest.mark.parametrize("entry", EXAMPLES, ids=str)
def test_an_example_can_be_loaded(entry: dict[str, Any]) -> None:
    """As in a scenario; the groups are equal to those that the classes build."""
    (plan,) = paceline.load({**paceline.load("quickstart").dump(), "algorithms": [entry]}).plans()
    for name, value in entry.items():
        if name != "name":
            assert getattr(plan.job.method, name) == built(value, name)


# --- workloads --------------------------------------------------------------------------------------------------------

WORKLOADS = page("workloads")


def test_the_data_sets_are_those_known() -> None:
    rows = {row[0]: row[1:] for row in table(WORKLOADS, "name | sample")}
    assert list(rows) == list(DATA)
    for name, (sample, classes, counts, holds) in rows.items():
        known = DATA[name]
        if known.shape:
            assert sample.removesuffix(" tokens") == " × ".join(map(str, known.shape))
            assert classes == str(known.classes)
            assert counts == f"{known.train} + {known.test}"
        assert ("nothing" in holds) is (known.read is None)
    for name in (
        "train-images-idx3-ubyte",
        "cifar-10-python.tar.gz",
        "cifar-100-python.tar.gz",
        f"${HOME}",
        f"first {TRIED}",
    ):
        assert name in WORKLOADS


def test_the_keys_of_a_workload_are_those_of_its_section() -> None:
    keys = [row[0] for row in table(WORKLOADS, "key | means")]
    assert set(keys) == set(Workload.model_fields) - {"options", "vmap"}


def test_the_size_of_a_described_model_is_read(tmp_path: Path) -> None:
    (config,) = blocks(WORKLOADS, "json")
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    (tmp_path / "tinyllama.yaml").write_text(files_of(WORKLOADS)["tinyllama.yaml"], encoding="utf-8")
    model = find_model(load(tmp_path / "tinyllama.yaml").workload.model)
    assert f"TinyLlama {model.parameters:,}".replace(",", " ") in WORKLOADS
    keys = {key.strip("`") for row in table(WORKLOADS, "size | means") for key in row[0].split(", ")}
    assert keys | {"_attn_implementation", "embedding_dropout", "sequence_length"} == {*MEANINGS, "model_type"}


def test_the_example_of_an_own_workload_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(WORKLOADS, tmp_path, monkeypatch)
    run_session("".join(blocks(WORKLOADS, "pycon")), more_than=5)
