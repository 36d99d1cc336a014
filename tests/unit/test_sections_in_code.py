"""Sections made in code: their arguments are the keys of a file, and a scenario in code is that of a file."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline import Cluster, Device, Link, Network, Nodes, Scenario, ScenarioError, Stop, Target, Train, Workload
from paceline.algorithms import METHODS
from paceline.scenarios.sections.fault_sections import OwnStepTime
from paceline.scenarios.sections.networks import LinkFault
from paceline.scenarios.values.mistakes import key_of
from paceline.scenarios.values.section import Section

DEVICE = Device(name="gpu", overhead="4 ms", per_sample="0.5 ms")
TEXT = """
name: scenario
cluster:
  nodes: [{device: {name: gpu, overhead: 4 ms, per_sample: 0.5 ms}, count: 2, workers_per_node: 2}]
  network: {link: {latency: 20 us, bandwidth: 10 Gbit/s}}
  step_time: {distribution: lognorm, sigma: 0.3}
workload: {model: digits-mlp, batch_per_worker: 16}
algorithms: [sync-sgd, {name: agd, delay: 2}]
hyperparameters: {learning_rate: 0.2}
stop: {epochs: 1, seconds: 30 s}
train: {pace: none}
"""


def sections() -> dict[str, type[Section]]:
    """All sections below a scenario, by the name of their class."""
    found: dict[str, type[Section]] = {}

    def add(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, Section):
            assert found.setdefault(annotation.__name__, annotation) is annotation
            for field in annotation.model_fields.values():
                add(field.annotation)
        for inner in getattr(annotation, "__args__", ()):
            add(inner)

    for field in Scenario.model_fields.values():
        add(field.annotation)
    return found


@pytest.mark.parametrize("name", sections())
def test_a_number_has_the_unit_of_its_key(name: str) -> None:
    """The unit that the schema gives is that of the text that a number becomes."""
    section = sections()[name]
    units = {}
    for key, schema in section.model_json_schema()["properties"].items():
        kinds = [schema, *schema.get("anyOf", ())]
        unit = next((kind["unit"] for kind in kinds if "unit" in kind), None)
        if unit not in {None, "interval", "fraction"}:
            units[key] = unit
    fields = {key_of(name, field): name for name, field in section.model_fields.items()}
    given = section(**{fields[key]: 2.5 for key in units}).document()
    assert given == {key: f"2.5 {unit}" for key, unit in units.items()}


@pytest.mark.parametrize("name", sections())
def test_a_section_without_arguments_has_the_defaults_of_its_keys(name: str) -> None:
    section = sections()[name]
    try:
        usual = section.model_validate({})
    except ValueError:
        with pytest.raises(ScenarioError, match=f"^{name}: "):
            section().model_dump()
    else:
        assert section() == usual
        assert section(**dict.fromkeys(section.model_fields)) == usual, "None leaves a key out"


def test_every_argument_of_a_scenario_is_a_key() -> None:
    assert set(inspect.signature(Scenario.__init__).parameters) - {"self"} == set(Scenario.model_fields)


@pytest.mark.parametrize("name", [name for name in paceline.__all__ if name in sections()])
def test_public_sections_show_their_arguments_and_say_what_they_are(name: str) -> None:
    section = getattr(paceline, name)
    assert section is sections()[name]
    assert list(inspect.signature(section).parameters) == list(section.model_fields)
    assert section.__doc__ not in (None, Section.__doc__)


def test_a_scenario_in_code_is_that_of_the_text() -> None:
    made = Scenario(
        cluster=Cluster(
            nodes=[Nodes(device=DEVICE, count=2, workers_per_node=2)],
            network=Network(link=Link(latency=20e-6, bandwidth=1.25e9)),
            step_time={"distribution": "lognorm", "sigma": 0.3},
        ),
        workload=Workload(model="digits-mlp", batch_per_worker=16),
        algorithms=[METHODS["sync-sgd"], {"name": "agd", "delay": 2}],
        hyperparameters={"learning_rate": 0.2},
        stop=Stop(epochs=1, seconds=30),
        train=Train(pace="none"),
    )
    assert made == paceline.load(TEXT)
    assert paceline.load(made.dump()) == made
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert Scenario.model_validate(made.dump()) == made


def test_sections_of_another_scenario_can_be_used() -> None:
    first = paceline.load(TEXT)
    again = Scenario(
        cluster=first.cluster, workload=first.workload, algorithms=list(first.algorithms), stop=first.stop, seeds=2
    )
    assert again.cluster == first.cluster
    assert (again.algorithms, again.seeds) == (first.algorithms, 2)


def test_a_mapping_may_have_sections() -> None:
    given = {**paceline.load(TEXT).dump(), "stop": Stop(updates=3), "target": Target(accuracy=0.5)}
    assert paceline.load(given).stop.updates == 3


def test_all_mistakes_are_reported_together_with_their_places() -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario(
            cluster=Cluster(nodes=[Nodes(device="v10"), Nodes(device=DEVICE, count=0)]),
            workload=Workload(model="digits-mpl", data_dir=Path("/nowhere")),
            algorithms=["sync-sdg"],
            stop=Stop(seconds=-3),
        )
    places = [line.split(": ")[1] for line in str(error.value).splitlines()]
    assert places == [
        "cluster.nodes[0].device",
        "cluster.nodes[1].count",
        "workload.model",
        "algorithms[0]",
        "stop.seconds",
    ]


def test_a_number_in_a_mapping_needs_its_unit_as_in_a_file() -> None:
    data = paceline.load(TEXT).dump()
    with pytest.raises(ScenarioError, match=r"stop\.seconds: found 3, expected a time"):
        paceline.load({**data, "stop": {"seconds": 3}})


def test_a_section_shows_what_was_given() -> None:
    nodes = Nodes(device="v100-sxm2", count=2)
    assert repr(nodes) == str(nodes) == "Nodes(device='v100-sxm2', count=2)"
    assert repr(Nodes(device="v10", link=Link(like="eth-10g"))) == "Nodes(device='v10', link=Link(like='eth-10g'))"


def test_a_section_holds_si_units_and_defaults() -> None:
    assert (DEVICE.overhead, DEVICE.per_sample, DEVICE.memory_bandwidth) == (0.004, 0.0005, None)
    assert Nodes(device="v100-sxm2", price_per_hour=3).price_per_hour == 3.0
    assert (Nodes(device="v100-sxm2").count, Stop(epochs=2).divergence) == (1, True)
    assert Cluster(nodes=[Nodes(device=DEVICE, count=3), {"device": "v100-sxm2"}]).workers == 4


def test_reading_a_key_of_a_wrong_section_raises_all_its_mistakes() -> None:
    wrong = Cluster(nodes=[Nodes(device="v10", count=0)], network=Network(link=Link(latency=-1.0, bandwidth=1e9)))
    said = r"Cluster: nodes\[0\]\.device: unknown device 'v10'.*\nCluster: nodes\[0\]\.count: found 0.*\n"
    said += r"Cluster: network\.link\.latency: found '-1.0 s'"
    for read in (lambda: wrong.nodes, lambda: wrong.workers, wrong.model_dump, lambda: wrong.model_copy(update={})):
        with pytest.raises(ScenarioError, match=said):
            read()
    with pytest.raises(AttributeError):
        wrong.count  # type: ignore[attr-defined]  # noqa: B018


def test_wrong_sections_can_be_copied_compared_and_shown() -> None:
    wrong = Nodes(device="v10")
    assert pickle.loads(pickle.dumps(wrong)) == copy.deepcopy(wrong) == Nodes(device="v10") == wrong
    assert wrong not in (Nodes(device="v11"), Nodes(device="v100-sxm2"))
    assert repr(copy.copy(wrong)) == "Nodes(device='v10')"


def test_a_changed_copy_goes_into_the_scenario() -> None:
    nodes = Nodes(device=DEVICE, count=2).model_copy(update={"count": 3})
    assert (nodes.count, nodes.document()["count"], repr(nodes)) == (3, 3, f"Nodes(device={DEVICE!r}, count=3)")


def test_a_section_in_code_equals_that_of_a_file() -> None:
    (nodes,) = paceline.load(TEXT).cluster.nodes  # type: ignore[misc]
    assert nodes == Nodes(device=DEVICE, count=2, workers_per_node=2)
    assert hash(nodes.device) == hash(DEVICE)


def test_keys_that_python_cannot_spell_and_null() -> None:
    fault = LinkFault(between=("host0", "switch"), at=1, lasts="2 s")
    assert fault.document() == {"between": ["host0", "switch"], "at": "1 s", "for": "2 s"}
    assert LinkFault.model_validate(fault.document()) == fault
    assert OwnStepTime(node=0, step_time=None).document() == {"node": 0, "step_time": None}


def test_changes_are_applied_to_what_was_given() -> None:
    """A key that code left out has the default of the topology that a change names."""
    given = Cluster(nodes=[Nodes(device=DEVICE, count=8)], network=Network())
    data = {**paceline.load(TEXT).dump(), "cluster": given}
    assert given.network.link.name == "eth-10g"
    assert paceline.load(data, ["cluster.network.topology=dragonfly"]).cluster.network.link.name == "aries-nic"
