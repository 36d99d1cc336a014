"""docs/scenario-reference.md is generated from the schema, and the page is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.algorithms import METHODS
from paceline.cli.app import app
from paceline.scenarios import json_schema
from paceline.scenarios.resolution.reference import reference_page
from paceline.scenarios.values.units import RATE, SIZE, TIME

PAGE = (Path(__file__).parents[2] / "docs/scenario-reference.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def rows(page: str, header: str) -> list[list[str]]:
    """The cells of all tables with this header."""
    tables = re.findall(rf"^{re.escape(header)}\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    lines = [line for body in tables for line in body.splitlines()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_committed_page_is_what_the_schema_gives(schema: dict[str, Any]) -> None:
    assert reference_page(schema) == PAGE, "run `make reference`"


def test_the_command_prints_the_page() -> None:
    answer = CliRunner().invoke(app, ["schema", "--markdown"])
    assert (answer.exit_code, answer.stdout) == (0, PAGE)


def test_every_key_of_the_schema_has_a_row_with_a_type_and_a_meaning(schema: dict[str, Any]) -> None:
    """Counted in the schema directly; a page without a section, or with a duplicate, would differ."""
    shown = rows(PAGE, "| key | type | unit | default | meaning |")
    keys = [key for part in [schema, *schema["$defs"].values()] for key in part["properties"]]
    assert sorted(row[0].strip("`") for row in shown) == sorted(keys)
    assert all(row[1] and row[4] for row in shown)


def test_a_key_has_a_default_exactly_if_it_is_not_required(schema: dict[str, Any]) -> None:
    shown = rows(PAGE, "| key | type | unit | default | meaning |")
    parts = [schema, *schema["$defs"].values()]
    required = [key for part in parts for key in part.get("required", ())]
    required += ["latency", "bandwidth"]  # of a link, which needs them unless it is `like` a known one
    assert parts[0]["$defs"]["Link"]["anyOf"] == [{"required": ["like"]}, {"required": ["latency", "bandwidth"]}]
    assert sorted(row[0].strip("`") for row in shown if not row[3]) == sorted(required)


def test_a_default_is_written_as_in_a_scenario(schema: dict[str, Any]) -> None:
    validation: Any = pytest.importorskip("jsonschema", reason="jsonschema is not installed: it validates defaults")
    for part in [schema, *schema["$defs"].values()]:
        for about in part["properties"].values():
            if "default" in about:
                whole = {**about, "$defs": schema["$defs"]}
                validation.Draft202012Validator(whole).validate(about["default"])
    cluster = schema["$defs"]["Cluster"]["properties"]
    assert cluster["step_time"]["default"] is None
    assert schema["$defs"]["Train"]["properties"]["timeout"]["default"] == "60.0 s"


def leaves(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part)


def test_every_quantity_has_a_unit_that_the_page_explains(schema: dict[str, Any]) -> None:
    explained = {row[0] for row in rows(PAGE, "| unit in the tables | quantity | units | prefixes |")}
    units = {leaf["unit"] for leaf in leaves(schema["$defs"]) if "unit" in leaf and "type" in leaf}
    assert units == explained
    for kind in (TIME, RATE, SIZE):
        assert {leaf["unit"] for leaf in leaves(schema["$defs"]) if leaf.get("examples") == [kind.example]} == {
            kind.symbol
        }


def test_the_units_of_the_page_are_read() -> None:
    for symbol, _, units, prefixes in rows(PAGE, "| unit in the tables | quantity | units | prefixes |")[:3]:
        kind = {"s": TIME, "B": SIZE, "B/s": RATE}[symbol]
        for unit in re.findall(r"`([^`]+)`", units):
            assert kind.parse(f"2 {unit}") > 0
        for prefix in re.findall(r"`([^`]+)`", prefixes):
            assert kind.parse(f"2 {prefix}{units.split('`')[1]}") > 0


def test_every_method_with_hyperparameters_of_its_own_is_there() -> None:
    named = {row[0].partition("]")[0].strip("[") for row in rows(PAGE, "| method | key | type | default |")}
    assert named <= set(METHODS)
    assert {"easgd", "ssp", "diloco", "agd"} <= named
    assert "sync-sgd" not in named
