"""docs/rules.md agrees with the classes of groups of hyper-parameters, and its examples are scenarios."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest
import yaml

import paceline
from paceline.algorithms import find
from paceline.algorithms.core.compression import Cast, Compression, PowerSgd, TopK
from paceline.algorithms.core.dct_top_k import DctTopK
from paceline.algorithms.core.lars import Lars
from paceline.algorithms.core.option_groups import Options
from paceline.algorithms.core.schedules import LearningRateSchedule
from paceline.algorithms.core.values import Rank
from tests.unit.test_docs import ROOT, blocks, table

PAGE = (ROOT / "docs/rules.md").read_text(encoding="utf-8")
KINDS: dict[str, type[Options]] = {
    kind().kind: kind for kind in (*get_args(LearningRateSchedule), *get_args(Compression))
}
EXAMPLES = [entry for block in blocks(PAGE, "yaml") for entry in yaml.safe_load(block)["algorithms"]]
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
def test_the_options_are_the_classes(header: str, group: type[Options]) -> None:
    """Names, defaults (as YAML writes them), and what a number must be."""
    known = [field for field in fields(group) if field.name != "kind"]
    assert MISSING not in [field.default for field in known]
    rows = table(PAGE, header)
    assert {row[0]: yaml.safe_load(row[1]) for row in rows} == {field.name: field.default for field in known}
    said = {row[0]: row[2] for row in rows}
    assert {name: said[name] for name in group.ranges} == {name: what for name, (_, what) in group.ranges.items()}
    assert all(cell for row in rows for cell in row)


def test_the_schedules_are_the_classes() -> None:
    """Each kind and its own options with their defaults; the text below the table describes those of the ramp."""
    rows = {row[0]: row[2] for row in table(PAGE, "kind | rate of step t")}
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
