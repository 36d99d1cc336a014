"""README.md and docs/ agree with the code: tables, defaults, links, commands and examples."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from typer.testing import CliRunner

import paceline
from paceline.algorithms import METHODS
from paceline.algorithms.core.guarantees import Guarantee
from paceline.algorithms.core.job import Reason
from paceline.algorithms.core.method import Method, StalenessKind
from paceline.algorithms.core.operations import OPERATIONS
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.cli.app import app
from paceline.cli.options import EXIT_FAILED, EXIT_INPUT, EXIT_INTERRUPTED
from paceline.records.staleness import Staleness
from paceline.records.store import describe
from paceline.records.summary import Summary
from paceline.records.tables import assemble
from paceline.records.targets import DIVERGED, SMOOTHING, reading
from paceline.records.trace import Schedule
from paceline.scenarios import load
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.folded import check_all
from tests.made_up import run
from tests.pages import FENCE, ROOT, blocks, run_session, table, write_files
from tests.support import FixedTiming, job_of, nodes_for
from tests.thorough import THOROUGH

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDE = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
RUNS = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
HOME = (ROOT / "docs/index.md").read_text(encoding="utf-8")
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


# --- reading Markdown ------------------------------------------------------------------------------------------------


def page_of(name: str) -> str:
    return (ROOT / "docs/methods" / f"{name}.md").read_text(encoding="utf-8")


def first_column(text: str, header: str) -> list[str]:
    return [row[0] for row in table(text, header)]


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- methods ---------------------------------------------------------------------------------------------------------


def test_every_method_has_a_page_and_every_page_a_method() -> None:
    assert {page.stem for page in (ROOT / "docs/methods").glob("*.md")} == set(METHODS)
    assert re.findall(r"^\| \[([\w-]+)\]\(methods/\1\.md\)", HOME, re.MULTILINE) == list(METHODS)


def the_rule_is_the_docstrings(name: str) -> None:
    rule = (METHODS[name].__doc__ or "").split("\n\n")[1].strip()
    (shown,) = blocks(page_of(name), "text")
    assert [line.strip() for line in shown.splitlines()] == [line.strip() for line in rule.splitlines()]


def the_notion_is_the_methods(name: str) -> None:
    facts = dict(table(page_of(name), "| |"))
    assert facts["staleness"].startswith(METHODS[name].staleness_kind.value)


def the_guarantees_are_the_methods(name: str) -> None:
    section = page_of(name).partition("## Guarantees\n")[2].partition("\n## ")[0]
    said = dict(re.findall(r"^- `([\w-]+)`: (.+)$", section, re.MULTILINE))
    assert said == {guarantee.slug: guarantee.value for guarantee in METHODS[name].guarantees}


def written(default: Any) -> Any:
    """A default as a scenario holds it."""
    return asdict(default) if is_dataclass(default) and not isinstance(default, type) else default


def shown_and_known(page: str, method: type[Method], known: Sequence[Any]) -> None:
    """Returns names, defaults (as YAML writes them), and constraints; each with a word and a provenance."""
    assert MISSING not in [field.default for field in known]
    rows = table(page, "name | default") if known else []
    said = {row[0]: yaml.safe_load(row[1]) for row in rows}
    assert said == {field.name: written(field.default) for field in known}
    ranges = method.every_range()
    assert {row[0]: row[2].removesuffix(", or null") for row in rows if row[0] in ranges} == {
        field.name: ranges[field.name][1] for field in known if field.name in ranges
    }
    assert all(cell for row in rows for cell in row)


def the_hyperparameters_are_the_methods(name: str) -> None:
    """A method's page has its own options and those with its own default; docs/rules.md has the common ones."""
    shared = {field.name: field.default for field in fields(SyncSgd)}
    method = METHODS[name]
    shown_and_known(
        page_of(name), method, [own for own in fields(method) if shared.get(own.name, MISSING) != own.default]
    )
    assert "(../rules.md)" in page_of(name)


def test_the_shared_hyperparameters_are_those_of_sync_sgd() -> None:
    shown_and_known((ROOT / "docs/rules.md").read_text(encoding="utf-8"), SyncSgd, fields(SyncSgd))


def the_bytes_of_a_step_are_those_of_a_run(name: str) -> None:
    """Returns what 24 further steps of four workers on two nodes add to a simulated run, independent of its ends.

    A step is as many gradients as there are workers; 24 of them are whole updates of two, three or four gradients. A
    formula may use P workers, S of them on each of N nodes, n bytes of weights, and the hyper-parameters.
    """
    method = METHODS[name]()
    nodes = nodes_for(method)
    workers = 1 if method.alone else sum(map(len, nodes))
    sent = []
    for steps in (24, 48):
        together = (
            method.has_server or method.independent
        )  # the steps of the weights' owner are then those of all workers
        keepers = steps * workers * 8 // method.samples_per_step(8, workers) if together else steps
        job = job_of(method, steps=keepers, nodes=nodes)
        trace = simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1))
        sent.append(int(assemble(trace, num_samples=64).spans["bytes"].sum()))
    formula = re.search(r"^\| \[bytes sent per step\]\(\S+\) \| `([^`]+)`", page_of(name), re.MULTILINE)
    assert formula is not None
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    values |= {"P": workers, "S": len(nodes[0]), "N": len(nodes), "n": job.learner.initial().nbytes}
    assert eval(formula[1], {"__builtins__": {}}, values) == (sent[1] - sent[0]) / 24


@pytest.mark.parametrize("name", METHODS)
def test_a_page_says_what_the_method_is(name: str) -> None:
    checks = [
        the_rule_is_the_docstrings,
        the_notion_is_the_methods,
        the_guarantees_are_the_methods,
        the_hyperparameters_are_the_methods,
        the_bytes_of_a_step_are_those_of_a_run,
    ]
    check_all({check.__name__: partial(check, name) for check in checks})


# --- the guide -------------------------------------------------------------------------------------------------------


def test_the_guide_has_every_operation() -> None:
    assert first_column(GUIDE, "operation | answer") == [operation.__name__ for operation in OPERATIONS]


def test_the_guide_has_every_notion() -> None:
    assert dict(table(GUIDE, "notion | counts")) == {
        staleness_kind.name: staleness_kind.value for staleness_kind in StalenessKind
    }


def test_the_guide_has_every_guarantee() -> None:
    assert dict(table(GUIDE, "guarantee | means")) == {one.slug: one.value for one in Guarantee}


def test_the_page_of_runs_has_everything_that_a_run_holds() -> None:
    assert first_column(RUNS, "key of run.json") == [*describe(run("sync-sgd")), "files", "checksum"]
    assert first_column(RUNS, "key of the summary") == list(Summary.__annotations__)
    (staleness,) = (row[1] for row in table(RUNS, "key of the summary") if row[0] == "staleness")
    assert re.findall(r"`(\w+)`", "`" + staleness) == list(Staleness.__annotations__)


def test_the_home_page_has_every_exit_status() -> None:
    assert [int(status) for status in first_column(HOME, "status | means")] == [
        0,
        EXIT_FAILED,
        EXIT_INPUT,
        EXIT_INTERRUPTED,
    ]


@pytest.fixture
def beside_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes the guide's own methods and their scenario to files in the current folder."""
    write_files(GUIDE, tmp_path, monkeypatch)


REAL = pytest.param(True, marks=pytest.mark.backend)


@pytest.mark.parametrize("real", [pytest.param(False, marks=pytest.mark.thorough), REAL], ids=["virtual", "real"])
def test_the_guides_sessions_run(beside_its_file: None, real: bool) -> None:
    """In order, in one session; the last block starts real processes and is left out of the virtual one."""
    *virtual, last = blocks(GUIDE, "pycon")
    assert "paceline.train(" in last
    text = "".join([*virtual, *([last] if real else [])])
    run_session(text, more_than=8)


@pytest.mark.parametrize("real", [False, REAL], ids=["virtual", "real"])
def test_the_guides_commands_run(beside_its_file: None, real: bool) -> None:
    (shown,) = blocks(GUIDE, "console")
    ours = [shlex.split(command)[1:] for command in commands(shown)]
    assert [words[0] for words in ours] == ["simulate", "train", "compare", "simulate"]
    for words in ours:
        if words[0] == "compare" and not THOROUGH:  # which test_compare tries
            continue
        if real == (words[0] != "simulate"):
            answer = CliRunner().invoke(app, words)
            assert (answer.exit_code, "coin-avg" in answer.stdout) == (0, True), answer.output


def test_the_guides_wrong_program_is_refused_as_it_says(beside_its_file: None) -> None:
    answer = CliRunner().invoke(app, ["simulate", "coin.yaml", "--algorithms", "forgets:Forgets"])
    (shown,) = (block for block in blocks(GUIDE, "text") if block.startswith("error: "))
    assert answer.exit_code == EXIT_INPUT
    assert " ".join(shown.split()) == answer.stderr.strip()


@pytest.mark.parametrize("real", [False, REAL], ids=["virtual", "real"])
def test_the_guides_right_program_does_not_notice_checkpoints(
    beside_its_file: None, real: bool, tmp_path: Path
) -> None:
    small = [
        "stop.updates=9",
        "train.pace=none",
        "cluster.nodes[0].workers_per_node=1",
        "cluster.nodes[1].workers_per_node=1",
    ]
    if not real:
        (run,) = paceline.simulate(load("coin.yaml", small, algorithms=["accumulate:Accumulate"]))
        assert (run.summary["updates"], run.summary["staleness"]["max"]) == (2, 0)
        return
    weights = []
    for every in ("100 updates", "3 updates"):
        changes = [*small, f"train.checkpoint.every={every}"]
        scenario = load("coin.yaml", changes, algorithms=["accumulate:Accumulate"])
        (run,) = paceline.train(scenario, out=tmp_path)
        assert run.summary["updates"] == 2
        weights.append(run.weights)
    assert (weights[0] == weights[1]).all()


def test_the_guide_shows_sync_sgd_as_it_is() -> None:
    (shown,) = (block for block in blocks(GUIDE, "python") if block.startswith("@program\n"))
    source = (ROOT / "algorithms/methods/baseline.py").read_text(encoding="utf-8").partition("class SyncSgd")[2]
    assert shown.strip() in "\n".join(line.removeprefix("    ") for line in source.splitlines())


# --- links and commands ----------------------------------------------------------------------------------------------


def links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert target.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}; no such heading"


def commands(text: str) -> list[str]:
    """Every `paceline …` with arguments, in code or on a line of its own; alternatives as one command each."""
    quoted = [found.replace("\n", " ") for found in re.findall(r"`(paceline [^`>]+)[`>]", text)]
    lines = re.findall(r"^(?:    |\$ )(paceline [^#>\n]+)", text, re.MULTILINE)
    every = []
    for command in [*quoted, *lines]:
        head, *others = command.strip().split("\\|")
        every += [head, *(f"{head.rpartition(' ')[0]} {other}" for other in others)]
    return every


def documented() -> Sequence[str]:
    return sorted({command for page in PAGES for command in commands(page.read_text(encoding="utf-8"))})


def quoted_commands_are_understood(page: Path) -> None:
    quoted = commands(page.read_text(encoding="utf-8"))
    check_all({command: partial(is_understood, command) for command in quoted})


@cache
def every_command() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


@cache
def is_understood(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    every_command()[name].make_context(name, arguments or _least(name))  # parses and checks; runs nothing


def _least(name: str) -> list[str]:
    """Adds the arguments that a command needs, where the text names the command alone."""
    alone: dict[str, list[str]] = {"schema": [], "doctor": [], "runs": [], "export": ["RUN", "--format", "csv"]}
    return {"list": ["algorithms"], **alone}.get(name, ["SCENARIO"])


@pytest.mark.parametrize("name", ["reports", "runs"])
def test_commands_in_blocks_are_understood(name: str) -> None:
    text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    shown = [line for block in blocks(text, "sh") for line in block.splitlines()]
    assert shown
    for line in shown:
        if line.startswith("paceline "):
            is_understood(line.partition("#")[0])


@EVERY_PAGE
def test_what_a_page_refers_to_is_there(page: Path) -> None:
    checks = [links_lead_somewhere, quoted_commands_are_understood, quoted_make_targets_are_there]
    check_all({check.__name__: partial(check, page) for check in checks})


def test_commands_are_found_in_the_text() -> None:
    text = "`paceline list a\\|b` and\n\n    paceline simulate x --json   # why\n"
    assert commands(text) == ["paceline list a", "paceline list b", "paceline simulate x --json"]
    assert {"paceline compare SCENARIO", "paceline list topologies"} <= set(documented())


def quoted_make_targets_are_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    for words in re.findall(r"(?:`|^    )make ([a-z -]+?)(?:`|  +#)", text, re.MULTILINE):
        assert set(words.split()) <= targets


def test_the_page_on_evaluation_has_every_reason_and_a_scenario_that_loads() -> None:
    page = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    ended = {name for row in table(page, "`stop` | ends a run | `stop_reason`") for name in re.findall(r"\w+", row[-1])}
    assert ended == set(get_args(Reason))
    (shown,) = blocks(page, "yaml")
    assert load(shown).target_loss == 0.5
    assert reading().split(", ")[1] == f"on the mean of the last {SMOOTHING}" and f"the last {SMOOTHING} " in page
    assert f"more than {DIVERGED:g} times the first" in page
