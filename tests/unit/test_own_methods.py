"""A user's own methods: named by their class or offered by a package; all errors in one are reported together."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import paceline
from paceline.algorithms import METHODS, find, reference
from paceline.algorithms.core.errors import InputError, MethodWarning
from paceline.algorithms.core.naming import imported
from paceline.algorithms.core.schedules import Steps
from paceline.algorithms.own import mistakes as mistakes_of
from paceline.algorithms.synonyms import ALIASES
from paceline.cli.app import app
from paceline.records.store import read_run
from paceline.scenarios import ScenarioError, json_schema, load
from paceline.scenarios.resolution.plan import names_of
from paceline.scenarios.values.hyperparameters import unwritable
from tests.warm import Program

HEAD = """
from dataclasses import dataclass
from typing import Literal
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.core.method import SgdMethod, Guarantee, Method, StalenessKind, Replica
from paceline.algorithms.core.program import program

@dataclass(frozen=True, slots=True)
class Mine(Replica):
    note: str = "kept"

@dataclass(frozen=True)
class Lars:
    trust: float = 0.001
    skip: tuple[str, ...] = ()
    mode: Literal["clip", "scale"] | None = None
"""
LAZY = """
@dataclass(frozen=True, kw_only=True)
class Lazy(SyncSgd):
    \"\"\"Sync-sgd under another name.\"\"\"

    name = "lazy"
    source = "the tests"
    every: int = 1
    lars: Lars | None = None

    @program
    def worker(self, me, state):
        end = yield from super().worker(me, state)
        return Mine(end.step, end.weights, end.optimizer_state)
"""
SMALL = """
name: small
workload: {model: quadratic, learning: quadratic}
cluster: {nodes: [{device: {name: d, overhead: 4 ms, per_sample: 1 us}, workers_per_node: 2}]}
stop: {updates: 3}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate current folder, with a method in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("lazy_methods", "offered_methods"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "lazy_methods.py").write_text(HEAD + LAZY)
    return tmp_path


def small(algorithms: str, *more: str) -> str:
    return "\n".join([SMALL, f"algorithms: {algorithms}", *more, ""])


def mistakes(algorithms: str, *more: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(small(algorithms, *more))
    return [line.removeprefix("scenario: ") for line in str(caught.value).splitlines()]


# --- naming ----------------------------------------------------------------------------------------------------------


def test_a_module_or_a_file_names_it(here: Path) -> None:
    (here / "in").mkdir()
    (here / "in" / "lazy.py").write_text(HEAD + LAZY)
    (here / "in" / "scenario.yaml").write_text(small("[lazy.py:Lazy]"))
    for scenario, name in (
        (load(small("[lazy_methods:Lazy]")), "lazy_methods:Lazy"),
        (load(small('[{name: "lazy_methods:Lazy", every: 4}]')), "lazy_methods:Lazy"),
        (load("in/scenario.yaml"), f"{here}/in/lazy.py:Lazy"),
        (load("quickstart", algorithms=["in/lazy.py:Lazy"]), f"{here}/in/lazy.py:Lazy"),
        (load("quickstart", ["algorithms=[in/lazy.py:Lazy]"]), f"{here}/in/lazy.py:Lazy"),
    ):
        (method,) = scenario.algorithms
        assert (method.name, scenario.dump()["algorithms"][0]["name"]) == ("lazy", name)
        assert load(scenario.dump()) == scenario


def test_a_method_itself_can_be_given() -> None:
    method = imported("lazy_methods:Lazy")(every=3)
    scenario = load(small("[agd]"), algorithms=[method, "sync-sgd"])
    assert [plan.name for plan in scenario.plans()] == ["lazy", "sync-sgd"]
    assert load(scenario.dump()) == scenario


def test_its_hyperparameters_are_kept_when_it_is_chosen() -> None:
    scenario = load(small('[sync-sgd, {name: "lazy_methods.py:Lazy", every: 4}]'), algorithms=["lazy_methods.py:Lazy"])
    assert [vars(method)["every"] for method in scenario.algorithms] == [4]


def test_it_goes_by_its_name_in_tables_and_runs_again_from_its_record(here: Path) -> None:
    words = ["simulate", "quickstart", "--algorithms", "lazy_methods.py:Lazy", "--set", "stop.updates=3", "--json"]
    (run,) = json.loads(CliRunner().invoke(app, words).stdout)["runs"]
    assert run["algorithm"] == "lazy"
    again = json.loads(CliRunner().invoke(app, ["simulate", f"{run['path']}/run.json", "--json"]).stdout)["runs"]
    assert [one["summary"] for one in again] == [run["summary"]]


@pytest.mark.backend
@pytest.mark.parametrize("name", ["lazy_methods:Lazy", "lazy_methods.py:Lazy"])
def test_it_runs_for_real(name: str) -> None:
    """In new processes, which return their last states, of a class of the file."""
    (run,) = paceline.train(load(small(f'["{name}"]', "train: {pace: none}")))
    assert run.summary["updates"] == 3
    assert run.trace is not None
    assert {state.note for state in run.trace.states.values()} == {"kept"}


def test_a_sweeps_processes_find_it() -> None:
    swept = paceline.sweep(small("[lazy_methods.py:Lazy]"), ["algorithms[0].every=1,2"], jobs=2)
    assert [entry.algorithm for entry in swept.entries] == ["lazy", "lazy"]


# --- mistakes --------------------------------------------------------------------------------------------------------

RIGHT = "expected module:Class or path/to/file.py:Class"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lazy_method:Lazy", "found no module lazy_method (did you mean lazy_methods?)"),
        ("lazy_methods.lazy:Lazy", "found no module lazy_methods.lazy"),
        ("lazy_methods:Lasy", "found no Lasy in lazy_methods (did you mean Lazy?)"),
        ("lazy_methods:", "found no name in lazy_methods"),
        ("lazy method.py:Lazy", "found no file"),
        ("lazy_methodz.py:Lazy", "lazy_methods.py?)"),
        (":Lazy", "found no module ''"),
        ("../x:Lazy", "found no module '../x'"),
    ],
)
def test_what_is_not_there_is_said(name: str, said: str) -> None:
    (line,) = mistakes(f'["{name}"]')
    assert line.startswith("algorithms[0]: method '")
    assert said in line
    assert line.endswith(RIGHT)


def test_what_is_no_method_is_said() -> None:
    right = "expected one derived from paceline.algorithms.core.method.Method"
    assert mistakes('["math:pi", "pathlib:Path"]') == [
        f"algorithms[0]: method 'math:pi': found the value 3.141592653589793, {right}",
        f"algorithms[1]: method 'pathlib:Path': found the class Path, {right}",
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero (line 1 of "),
        ("import no_such_module_at_all", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_at"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("class Lazy(", "cannot be imported: SyntaxError: '(' was never closed"),
    ],
)
@pytest.mark.parametrize("form", ["broken_{}:Lazy", "broken_{}.py:Lazy"])
def test_what_raises_when_it_is_imported_is_said(here: Path, form: str, source: str, said: str) -> None:
    number = abs(hash((form, source)))
    (here / f"broken_{number}.py").write_text(source)
    (line,) = mistakes(f'["{form.format(number)}"]')
    assert said in line


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("class Lazy(SyncSgd):\n    name = 'lazy'", ["is no frozen dataclass"]),
        (
            "@dataclass(frozen=True, kw_only=True)\nclass Lazy(SgdMethod):\n    k: int",
            [
                "name: missing, expected a name of letters",
                "staleness_kind: missing, expected a StalenessKind: STEPS",
                "source: missing",
                "guarantees: missing, expected a frozenset of Guarantee",
                "k: found no default",
                "worker: missing",
            ],
        ),
        (
            LAZY.replace('"lazy"', "'a,b'") + "    guarantees = {Guarantee.DETERMINISTIC}",
            ["name: found 'a,b'", "guarantees: found"],
        ),
        (LAZY.replace('name = "lazy"', 'name: str = "lazy"'), ["name: found a hyper-parameter"]),
        (LAZY + "    has_server = True", ["server: missing"]),
        (LAZY.replace('name = "lazy"', ""), ["name: found 'sync-sgd', which is a built-in method's"]),
        (LAZY + "    k: int = None", ["k: its default is None, expected a whole number"]),
        (LAZY + "    k: object() = 1", ["k: found the type <object"]),
        (LAZY + "    k: 'Nowhere' = 1", ["its types cannot be read (NameError"]),
    ],
)
def test_a_wrong_class_is_told_all_its_mistakes(here: Path, body: str, said: list[str]) -> None:
    name = f"wrong_{abs(hash(body))}"  # Python imports a module name only once
    (here / f"{name}.py").write_text(HEAD + body + "\n")
    lines = mistakes(f'["{name}:Lazy", agdd]')
    assert len(lines) == 2, "and the other algorithm's mistake is said too"
    for part in said:
        assert part in lines[0]


@pytest.mark.parametrize("name", METHODS)
def test_built_in_methods_are_held_to_the_same(name: str) -> None:
    method = METHODS[name]
    assert mistakes_of(method) == unwritable(method) == []
    assert find(f"{method.__module__}:{method.__qualname__}") is method
    assert reference(method) == name


def test_two_of_one_name_are_refused(here: Path) -> None:
    (here / "other.py").write_text(HEAD + LAZY)
    (line,) = mistakes('["lazy_methods:Lazy", "other.py:Lazy"]')
    assert line == (
        f"algorithms[1]: {here}/other.py:Lazy is called lazy as another class here is, lazy_methods:Lazy; "
        "expected names that differ"
    )


def test_a_method_that_refuses_its_hyperparameters_is_heard(here: Path) -> None:
    check = (
        '\n    def __post_init__(self):\n        if self.every < 1:\n            raise ValueError("every is below 1")\n'
    )
    (here / "strict.py").write_text(HEAD + LAZY + check)
    (line,) = mistakes('[{name: "strict.py:Lazy", every: 0}]')
    assert line == "algorithms[0]: lazy cannot be made of these hyper-parameters: every is below 1"


def test_the_command_exits_with_2() -> None:
    answer = CliRunner().invoke(app, ["simulate", "quickstart", "--algorithms", "lazy_methods:Lasy,agdd"])
    assert answer.exit_code == 2
    assert "did you mean Lazy?" in answer.stderr
    assert "did you mean agd?" in answer.stderr
    assert "Traceback" not in answer.stderr


# --- hyper-parameters with parts -------------------------------------------------------------------------------------


def lazy(given: str, *more: str) -> Any:
    return load(small(f'[{{name: "lazy_methods:Lazy", {given}}}]', *more)).algorithms[0]


@pytest.mark.parametrize(
    ("given", "trust", "skip"),
    [
        ("lars: {}", 0.001, ()),
        ("lars: {trust: 1}", 1.0, ()),
        ("lars: {skip: [bias, norm], mode: clip}", 0.001, ("bias", "norm")),
    ],
)
def test_a_mapping_becomes_a_dataclass(given: str, trust: float, skip: tuple[str, ...]) -> None:
    method = lazy(given)
    assert (type(method.lars).__name__, method.lars.trust, method.lars.skip) == ("Lars", trust, skip)
    scenario = load(small(f'[{{name: "lazy_methods:Lazy", {given}}}]'))
    assert load(json.dumps(scenario.dump())) == scenario
    assert lazy("lars: null").lars is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("lars: {trust: '1'}", ["lars.trust: found '1', expected a number"]),
        (
            "lars: {trusty: 1, mode: clop}",
            [
                "lars.mode: found 'clop', expected 'clip', 'scale' or null",
                "lars.trusty: it has no such key (did you mean trust?); it has trust, skip, mode",
            ],
        ),
        ("lars: {skip: [bias, 3]}", ["lars.skip[1]: found 3, expected text"]),
        ("lars: {skip: bias}", ["lars.skip: found 'bias', expected a list (each text)"]),
        ("lars: 3", ["lars: found 3, expected a mapping (trust, skip, mode) or null"]),
        ("lars: {trust: .nan}", ["lars.trust: found nan, expected a number"]),
    ],
)
def test_a_mistake_in_a_part_is_told_at_its_place(given: str, said: list[str]) -> None:
    lines = mistakes(f'[{{name: "lazy_methods:Lazy", {given}}}]')
    assert sorted(lines) == [f"algorithms[0].{text}" for text in said]
    shared = mistakes("[lazy_methods:Lazy]", f"hyperparameters: {{{given}}}")
    assert sorted(shared) == [f"hyperparameters.{text}" for text in said]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{}", ["schedule.kind: missing; expected 'constant', 'polynomial', 'steps' or 'exponential'"]),
        (
            "{kind: step}",
            [
                (
                    "schedule.kind: found 'step', expected 'constant', 'polynomial', 'steps' or 'exponential' "
                    "(did you mean steps?)"
                )
            ],
        ),
        (
            "{kind: [steps]}",
            ["schedule.kind: found ['steps'], expected 'constant', 'polynomial', 'steps' or 'exponential'"],
        ),
        ("{kind: steps, milestones: [3, x]}", ["schedule.milestones[1]: found 'x', expected a whole number"]),
        (
            "{kind: steps, milestones: [3, 2]}",
            ["schedule.milestones: found (3, 2), expected whole numbers of 1 or more, each above"],
        ),
        (
            "{kind: polynomial, gamma: 2}",
            ["schedule.gamma: it has no such key; it has warmup_steps, warmup_start, kind, total_steps, power"],
        ),
        (
            "3",
            ["schedule: found 3, expected a mapping with kind 'constant', 'polynomial', 'steps' or 'exponential' or"],
        ),
    ],
)
def test_one_of_several_mappings_is_told_by_its_kind(given: str, said: list[str]) -> None:
    lines = mistakes(f"[{{name: sync-sgd, schedule: {given}}}]")
    assert len(lines) == len(said)
    for line, words in zip(lines, said, strict=True):
        assert line.startswith(f"algorithms[0].{words}")


def test_a_mapping_of_a_kind_is_written_as_it_was_read() -> None:
    scenario = load(small("[{name: sync-sgd, schedule: {kind: steps, milestones: [2, 3]}}]"))
    assert vars(scenario.algorithms[0])["schedule"] == Steps(milestones=(2, 3))
    assert load(json.dumps(scenario.dump())) == scenario


def test_parts_tell_two_of_one_method_apart() -> None:
    methods = [lazy("lars: {trust: 0.1}"), lazy("lars: {trust: 0.2}"), lazy("lars: null")]
    assert names_of(methods[:2]) == ["lazy lars.trust=0.1", "lazy lars.trust=0.2"]
    assert len(set(names_of(methods))) == 3


def test_an_option_reaches_into_a_part() -> None:
    scenario = load(small("[sync-sgd, lazy_methods:Lazy]"), ["algorithms[1].lars.trust=0.5"])
    assert vars(scenario.algorithms[1])["lars"].trust == 0.5


# --- installed packages ----------------------------------------------------------------------------------------------


@pytest.fixture
def offer(here: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs a package that offers methods; the class in it may be changed."""
    monkeypatch.syspath_prepend(str(here))

    def install(entries: str, package: str = "offers") -> None:
        folder = here / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[paceline.methods]\n{entries}\n")

    return install


def listed() -> tuple[dict[str, Any], str]:
    answer = CliRunner().invoke(app, ["list", "algorithms", "--json"])
    assert answer.exit_code == 0
    return {item["name"]: item for item in json.loads(answer.stdout)["items"]}, answer.stderr


def test_a_packages_method_has_a_name(offer: Any) -> None:
    offer("lazy = lazy_methods:Lazy")
    scenario = load(small("[lazy]"))
    assert load(scenario.dump()) == scenario
    assert scenario.dump()["algorithms"][0]["name"] == "lazy"
    assert reference(find("lazy")) == "lazy"
    items, notes = listed()
    assert (items["lazy"]["from"], items["agd"]["from"], notes) == ("offers 1.0", "built in", "")
    assert "from offers 1.0" in CliRunner().invoke(app, ["list", "algorithms"]).stdout
    assert mistakes("[lazzy]") == ["algorithms[0]: unknown method 'lazzy' (did you mean lazy?)"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("lazy = lazy_methods:Lasy", "found no Lasy in lazy_methods"),
        ("lazy = lazy_method:Lazy", "found no module lazy_method"),
        ("lazy = lazy_methods", "found no"),
        ("lazy = math:pi", "expected one derived from paceline.algorithms.core.method.Method"),
        ("lazier = lazy_methods:Lazy", "name: found 'lazy', expected 'lazier'"),
        ("sync-sgd = lazy_methods:Lazy", "the name is a built-in method's"),
    ],
)
def test_a_broken_package_is_harmless_unless_its_method_is_used(offer: Any, entry: str, said: str) -> None:
    offer(entry)
    name = entry.partition(" ")[0]
    items, notes = listed()
    assert set(items) == set(METHODS)
    assert f"left out: method '{name}', which is offered by offers 1.0" in notes
    assert said in notes
    assert load("quickstart").name == "quickstart"
    assert find("sync-sgd") is METHODS["sync-sgd"]
    if name not in METHODS:
        with pytest.raises(InputError, match=r"which is offered by offers 1\.0"):
            find(name)


def test_two_packages_with_one_name_are_told_apart_by_class(offer: Any, here: Path) -> None:
    offer("lazy = lazy_methods:Lazy")
    offer("lazy = offered_methods:Lazy", package="others")
    (here / "offered_methods.py").write_text(HEAD + LAZY)
    with pytest.raises(InputError, match=r"offered by .*: found several, expected one; name its class"):
        find("lazy")
    assert find("offered_methods:Lazy").name == "lazy"


# --- schema ----------------------------------------------------------------------------------------------------------


def test_the_schema_takes_methods_of_ones_own_and_knows_parts(offer: Any) -> None:
    offer("lazy = lazy_methods:Lazy")
    whole = json_schema()
    assert "$ref" not in json.dumps(whole["properties"]["algorithms"])  # its target would be in another place
    names, *mappings = whole["properties"]["algorithms"]["items"]["oneOf"]
    assert names["enum"] == [*METHODS, "lazy", *ALIASES]
    *known, reference_of_ones_own, with_hyperparameters = mappings
    every = [one["properties"]["name"] for one in known]
    assert sorted(name for one in every for name in one.get("enum", [one.get("const")])) == sorted(names["enum"])
    assert re.search(reference_of_ones_own["pattern"], "lazy_methods:Lazy")
    assert not any(re.search(reference_of_ones_own["pattern"], name) for name in names["enum"])
    assert with_hyperparameters["properties"]["name"] == reference_of_ones_own
    mapping, nothing = known[-1]["properties"]["lars"]["anyOf"]
    assert nothing == {"type": "null"}
    assert (list(mapping["properties"]), mapping["additionalProperties"]) == (["trust", "skip", "mode"], False)


UNEVEN = """
from dataclasses import dataclass, replace
from paceline.algorithms.core.program import program
from paceline.algorithms.core.values import Weights
from paceline.algorithms.methods.periodic import KAvg

@dataclass(frozen=True, kw_only=True)
class Uneven(KAvg):
    \"\"\"The last worker keeps its own weights when all average.\"\"\"

    name = "uneven"
    k: int = 2

    @program
    def average_all(self, me, state):
        own = state.weights.vector + 0
        mean = yield from super().average_all(me, state)
        last = me.rank == me.workers.ranks[-1]
        return replace(mean, weights=Weights(own, mean.weights.version)) if last else mean
"""


def test_a_broken_promise_is_a_warning_that_says_what_it_means(tmp_path: Path) -> None:
    """The figures of a run are those of the first worker's weights, which a reader may take for everyone's."""
    (tmp_path / "uneven.py").write_text(UNEVEN, encoding="utf-8")
    path = tmp_path / "small.yaml"
    path.write_text(f"{SMALL}algorithms: ['{tmp_path / 'uneven.py'}:Uneven', sync-sgd]\n", encoding="utf-8")
    with pytest.warns(
        MethodWarning, match="uneven violates replicas-meet in a small run: .*the first worker's weights"
    ):
        paceline.simulate(path)
    code = "from paceline.cli import main; main()"
    said = Program(code, ["simulate", str(path), "--out", str(tmp_path / "runs"), "--report"]).communicate()[1]
    assert len(re.findall("^note: uneven violates replicas-meet in a small run", said, re.MULTILINE)) == 1
    assert "Warning" not in said
    runs = {run.algorithm: run for place in (tmp_path / "runs").glob("*/run.json") for run in [read_run(place.parent)]}
    assert runs.keys() == {"uneven", "sync-sgd"}
    (broken,) = runs["uneven"].summary.get("broken_promises", [])
    assert broken in said and broken.startswith("uneven violates replicas-meet")
    assert "broken_promises" not in runs["sync-sgd"].summary
    (report,) = (tmp_path / "runs").glob("*/report.html")
    assert "uneven violates replicas-meet in a small run" in unescape(report.read_text(encoding="utf-8"))
    said = CliRunner().invoke(app, ["show", str(runs["uneven"].path)]).stdout
    assert "uneven violates replicas-meet" in " ".join(said.split())
