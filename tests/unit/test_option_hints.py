"""Unknown options lead to the option or the key of a scenario that is meant."""

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.scenarios import ScenarioError, load
from paceline.scenarios.resolution.key_paths import key_paths
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.values.key_hints import COMMON, RENAMED

COMMANDS = ("simulate", "train", "compare", "sweep")


def _stderr(*arguments: str) -> str:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 2
    assert not found.stdout
    return found.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["--lr=0.1"], "hyperparameters.learning_rate=0.1"),
        (["--lr", "0.1"], "hyperparameters.learning_rate=0.1"),
        (["--learning-rate", "0.1"], "hyperparameters.learning_rate=0.1"),
        (["--rate", "0.1"], "hyperparameters.learning_rate=0.1"),
        (["--momentum", "0.9"], "hyperparameters.momentum=0.9"),
        (["--batch-size", "16"], "workload.batch_per_worker=16"),
        (["--batch_size", "16"], "workload.batch_per_worker=16"),
        (["--nproc", "4"], "'cluster.nodes[0].workers_per_node=4'"),
        (["--nproc_per_node=4"], "'cluster.nodes[0].workers_per_node=4'"),
        (["--gpus", "4"], "'cluster.nodes[0].workers_per_node=4'"),
        (["--nnodes", "2"], "'cluster.nodes[0].count=2'"),
        (["--epochs", "3"], "stop.epochs=3"),
        (["--max-steps", "100"], "stop.updates=100"),
        (["--device", "cuda"], "train.device=cuda"),
        (["--threads", "2"], "train.torch_threads=2"),
        (["--pin"], "train.cpu_affinity=VALUE"),
        (["--epochs", "--json"], "stop.epochs=VALUE"),
    ],
)
def test_options_of_other_tools_name_the_key_of_the_scenario(command: str, arguments: list[str], right: str) -> None:
    name = arguments[0].partition("=")[0]
    if (command, name) == ("sweep", "--gpus"):
        return  # an axis of sweeps
    expected = f"error: No such option: {name}; this is a key of the scenario: --set {right}\n"
    assert _stderr(command, "quickstart", *arguments) == expected


@pytest.mark.parametrize("name", ["--world-size", "--workers"])
def test_a_number_of_workers_is_explained(name: str) -> None:
    said = _stderr("simulate", "quickstart", name, "8")
    assert "give the workers as nodes: the sum of count times workers_per_node" in said
    assert "--set 'cluster.nodes[0].count=8'" in said


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["simulate", "quickstart", "--algorithm", "agd"], "--algorithm (did you mean --algorithms?)"),
        (["simulate", "quickstart", "--sede=1"], "--sede (did you mean --seed?)"),
        (["sweep", "quickstart", "--keep_runs"], "--keep_runs (did you mean --keep-runs?)"),
        (["convert", "digits", "--directory", "x"], "--directory (it was renamed to --data-dir)"),
        (["topology", "star", "--sett", "hosts=2"], "--sett (did you mean --set?)"),
    ],
)
def test_a_misspelled_option_names_the_one_that_is_close(arguments: list[str], right: str) -> None:
    assert _stderr(*arguments) == f"error: No such option: {right}\n"


def test_an_option_like_no_other_is_refused_as_before() -> None:
    assert "No such option: --xyzzy" in _stderr("simulate", "quickstart", "--xyzzy")


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ("lr=0.1", "lr: unknown key (did you mean hyperparameters.learning_rate?)"),
        ("train.lr=0.1", "train.lr: unknown key (did you mean hyperparameters.learning_rate?)"),
        ("epochs=3", "epochs: unknown key (did you mean stop.epochs?)"),
        ("stop.num_epochs=3", "stop.num_epochs: unknown key (did you mean epochs?)"),
        ("cluster.world_size=3", "cluster.world_size: unknown key (give the workers as nodes"),
    ],
)
def test_a_key_in_the_wrong_section_names_the_right_path(change: str, right: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("quickstart", [change])
    assert right in str(caught.value)


def test_every_suggested_path_can_be_set() -> None:
    """An unknown path would be answered with "unknown key"; any other complaint is about the value."""
    paths = key_paths(Scenario)
    said = ""
    for name in {*COMMON.values(), *(new for names in RENAMED.values() for new in names)} & paths.keys():
        try:
            load("quickstart", [f"{paths[name]}=[]"], algorithms=["sync-sgd", "async-sgd"])
        except ScenarioError as error:
            said += f"{error}\n"
    assert "has no such key" not in said
    assert "unknown key" not in said


def test_all_common_names_have_a_path() -> None:
    assert set(COMMON.values()) <= key_paths(Scenario).keys()
