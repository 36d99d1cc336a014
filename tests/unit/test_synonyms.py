"""Names from papers and libraries are accepted as names of methods, or lead to the most similar ones."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paceline
from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.registry import built
from paceline.algorithms.synonyms import ALIASES, SYNONYMS, Synonym, squeezed
from paceline.cli.app import app
from paceline.scenarios import json_schema, load

NAMES = [name for synonym in SYNONYMS for name in synonym.names]
QUICK = "stop.updates=4"


@pytest.mark.parametrize("synonym", SYNONYMS, ids=lambda synonym: synonym.names[0])
def test_each_names_methods_that_there_are(synonym: Synonym) -> None:
    assert synonym.methods
    assert set(synonym.methods) <= set(METHODS)
    assert all(method in synonym.text for method in synonym.methods[:1])
    assert set(synonym.presets) <= {field.name for field in fields(METHODS[synonym.methods[0]])}


def test_no_name_is_there_twice_or_a_methods_own() -> None:
    keys = [squeezed(name) for name in NAMES]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {squeezed(method) for method in METHODS}


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_is_its_method_wherever_a_name_is_expected(alias: str) -> None:
    method, presets = ALIASES[alias]
    assert find(alias) is METHODS[method]
    assert built(alias) == METHODS[method](**presets)
    scenario = load("quickstart", ["cluster.nodes=[{device: p100, count: 1, workers_per_node: 4}]"], algorithms=[alias])
    assert type(scenario.algorithms[0]) is METHODS[method]
    assert all(getattr(scenario.algorithms[0], key) == value for key, value in presets.items())


def test_the_schema_of_a_scenario_has_every_alias() -> None:
    names, *entries = json_schema()["properties"]["algorithms"]["items"]["oneOf"]
    assert set(ALIASES) < set(names["enum"])
    found = next(one["properties"]["name"]["enum"] for one in entries if "bucket" in one.get("properties", {}))
    assert found[:2] == ["layerwise-sgd", "ddp"]


def test_an_alias_sets_hyper_parameters_that_the_entry_may_change() -> None:
    shared = "hyperparameters={bucket: null, first_bucket: null}"
    entries = "algorithms=[ddp, {name: ddp, bucket: 10}, layerwise-sgd]"
    scenario = load("quickstart", [entries, shared])
    found = [(one.bucket, one.first_bucket) for one in scenario.algorithms]  # type: ignore[attr-defined]
    assert found == [(6553600, 262144), (10, 262144), (None, None)]


def test_an_alias_is_a_label_in_tables_and_records(tmp_path: Path) -> None:
    asked = ["simulate", "quickstart", "--algorithms", "ddp,local-sgd", "--set", QUICK, "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, asked)
    assert {line.split()[0].strip("*") for line in shown.stdout.splitlines() if "–" in line} == {"ddp", "local-sgd"}
    for asked_for in ("ddp", "layerwise-sgd"):  # by the label, and by the method
        chosen = ["runs", str(tmp_path), "--algorithm", asked_for, "--json"]
        runs = json.loads(CliRunner().invoke(app, chosen).stdout)["runs"]
        assert [run["algorithm"] for run in runs] == ["ddp"]
    (again,) = paceline.simulate(next(tmp_path.glob("*local-sgd*/run.json")))
    assert again.algorithm == "local-sgd"


def test_an_alias_selects_the_entry_of_its_method() -> None:
    entries = "algorithms=[sync-sgd, {name: k-avg, k: 50}]"
    (chosen,) = load("quickstart", [entries], algorithms=["fedavg"]).algorithms
    assert chosen.k == 50  # type: ignore[attr-defined]
    changed = load("quickstart", [entries, "algorithms.local-sgd.k=3"])
    assert changed.algorithms[1].k == 3  # type: ignore[attr-defined]


def test_a_sweep_and_a_plan_take_aliases(tmp_path: Path) -> None:
    asked = ["algorithms.local-sgd.k=2,4"]
    swept = paceline.sweep("quickstart", asked, overrides=["algorithms=[fedavg]", QUICK], jobs=1, store=tmp_path)
    assert [entry.algorithm for entry in swept.entries] == ["fedavg", "fedavg"]
    scenario = load("quickstart", ["plan.hyperparameters={fedavg.k: [2, 4]}"], algorithms=["fedavg"])
    assert list(scenario.plan.hyperparameters) == ["k-avg.k"]


def test_the_checker_takes_aliases() -> None:
    found = CliRunner().invoke(app, ["check", "fedavg", "--schedules", "5", "--json"])
    assert json.loads(found.stdout)["algorithm"] == "k-avg"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Local SGD", "did you mean local-sgd, which is k-avg?"),
        ("LocalSGD", "did you mean local-sgd, which is k-avg?"),
        ("DDP", "did you mean ddp, which is layerwise-sgd?"),
        ("dpp", "did you mean ddp, which is layerwise-sgd?"),
        ("DistributedDataParallel", "layerwise-sgd"),
        ("fsdp", "no method shards weights"),
        ("Horovod", "did you mean horovod"),
        ("BSP", "did you mean bsp, which is sync-sgd?"),
        ("hogwild!", "hogwild-sgd"),
        ("parameter_server", "did you mean parameter-server, which is async-sgd?"),
        ("adpsgd", "did you mean ad-psgd?"),
        ("EASGD", "did you mean easgd?"),
        ("eagsd", "did you mean easgd?"),
        ("fedavgg", "did you mean fedavg, which is k-avg?"),
        ("parametre-server", "async-sgd"),
    ],
)
def test_an_unknown_name_is_explained(name: str, method: str) -> None:
    with pytest.raises(InputError, match=f"unknown method '{name}'") as caught:
        find(name)
    assert method in str(caught.value)


def test_a_name_like_no_other_is_answered_with_all_methods() -> None:
    with pytest.raises(InputError, match="there are sequential-sgd, "):
        find("xyzzy")


def test_the_command_exits_with_2() -> None:
    found = CliRunner().invoke(app, ["simulate", "quickstart", "--algorithms", "fsdp"])
    assert found.exit_code == 2
    assert "algorithms[0]: unknown method 'fsdp': no method shards weights" in found.stderr


def test_the_list_says_common_names() -> None:
    shown = CliRunner().invoke(app, ["list", "algorithms"]).stdout
    assert "known as ddp" in shown
    items = json.loads(CliRunner().invoke(app, ["list", "algorithms", "--json"]).stdout)["items"]
    known = {item["name"]: item["common_names"] for item in items}
    assert "fedavg" in known["k-avg"]
    assert not any("fsdp" in names for names in known.values()), "no method is FSDP"
