"""Names from papers and libraries lead to the most similar methods."""

import json

import pytest
from typer.testing import CliRunner

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.synonyms import SYNONYMS, Synonym, squeezed
from paceline.cli.app import app

NAMES = [name for synonym in SYNONYMS for name in synonym.names]


@pytest.mark.parametrize("synonym", SYNONYMS, ids=lambda synonym: synonym.names[0])
def test_each_names_methods_that_there_are(synonym: Synonym) -> None:
    assert synonym.methods
    assert set(synonym.methods) <= set(METHODS)
    assert all(method in synonym.text for method in synonym.methods[:1])


def test_no_name_is_there_twice_or_a_methods_own() -> None:
    keys = [squeezed(name) for name in NAMES]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {squeezed(method) for method in METHODS}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("local-sgd", "k-avg"),
        ("local sgd", "k-avg"),
        ("LocalSGD", "k-avg"),
        ("ddp", "layerwise-sgd overlaps like DistributedDataParallel"),
        ("DistributedDataParallel", "layerwise-sgd"),
        ("fedavg", "k-avg is FedAvg"),
        ("fsdp", "no method shards weights"),
        ("horovod", "layerwise-sgd"),
        ("bsp", "sync-sgd is bulk-synchronous"),
        ("asgd", "async-sgd"),
        ("hogwild", "hogwild-sgd"),
        ("parameter-server", "async-sgd"),
        ("parameter_server", "async-sgd"),
        ("gossipgrad", "gossip is GossipGraD"),
        ("adpsgd", "did you mean ad-psgd?"),
        ("EASGD", "did you mean easgd?"),
        ("eagsd", "did you mean easgd?"),
        ("fedavgg", "k-avg is FedAvg"),
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
    found = CliRunner().invoke(app, ["simulate", "quickstart", "--algorithms", "ddp"])
    assert found.exit_code == 2
    assert "algorithms[0]: unknown method 'ddp': layerwise-sgd overlaps" in found.stderr


def test_the_list_says_common_names() -> None:
    shown = CliRunner().invoke(app, ["list", "algorithms"]).stdout
    assert "known as ddp" in shown
    items = json.loads(CliRunner().invoke(app, ["list", "algorithms", "--json"]).stdout)["items"]
    known = {item["name"]: item["common_names"] for item in items}
    assert "fedavg" in known["k-avg"]
    assert not any("fsdp" in names for names in known.values()), "no method is FSDP"
