"""The documentation site: its navigation, its generated pages and its pictures agree with the code."""

from __future__ import annotations

import doctest
import importlib
import json
import re
from functools import partial
from typing import Any

import pytest
import typer
import yaml

from docs.site_build import command_page, device_page, link_page, packages_picture, record_page
from docs.site_build.api_pages import PACKAGES, pages, place_of
from docs.site_build.claim_tables import MARK, chosen, filled
from docs.site_build.links import adapted, linked_files
from paceline.cli.app import app
from paceline.papers import Claim
from paceline.papers.reproduce import PAPERS, every_claim
from paceline.records.tables import SCHEMAS
from paceline.topologies import LINKS, STORAGE
from paceline.topologies.catalogue.device_catalogue import SPECS
from tests.folded import check_all
from tests.pages import ROOT

TRUST = (ROOT / "docs/trust.md").read_text(encoding="utf-8")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the Python objects in it."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, suffix, _node: suffix)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def entries(nav: Any) -> list[str]:
    """Returns the pages of a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [page for value in values for page in entries(value)]


def test_every_page_is_once_in_the_navigation() -> None:
    shown = entries(SITE["nav"])
    written = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    methods = {page for page in written if page.startswith("methods/")}  # which the build adds
    generated = {page for page in shown if page.startswith("reference/")}
    generated |= {"contributing.md", "changelog.md", "notebook.md"}
    assert sorted(shown) == sorted((written - methods) | generated)


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    assert SITE["strict"] is True
    assert not [url for url in SITE["extra"]["polyfills"] if "//" in url]
    assert all((ROOT / "docs" / path).exists() for path in [*SITE["extra"]["polyfills"], *SITE["extra_css"]])


@pytest.mark.parametrize("name", ["links", "tables", "claim_tables", "packages_picture", "api_pages", "doctest_blocks"])
def test_examples_of_the_generators(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"docs.site_build.{name}")).failed == 0


def test_the_page_of_commands_has_every_option() -> None:
    page, group = command_page.page(), typer.main.get_command(app)
    sections = dict(re.findall(r"^## paceline ([\w ]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))

    def complete(name: str, command: Any) -> None:
        options = [option for each in command.params for option in each.opts if option.startswith("--")]
        assert not [option for option in options if f"`{option}`" not in sections[name]]
        assert "[bold]" not in sections[name] and "\b" not in sections[name]

    commands: dict[str, Any] = group.commands  # type: ignore[attr-defined]
    single = {name: command for name, command in commands.items() if not hasattr(command, "commands")}
    check_all({name: partial(complete, name, command) for name, command in single.items() if not command.hidden})


def test_the_pages_of_the_catalogue_are_complete() -> None:
    devices, links = device_page.page(), link_page.page()
    assert not [name for name, spec in SPECS.items() if spec.sockets == 1 and f"\n### {name}\n" not in devices]
    assert not [name for name in [*LINKS, *STORAGE] if f"| `{name}` |" not in links]
    rows = [row for row in devices.splitlines() if re.match(r"\| [\w ]+ \| [\d.e+]+ \|", row)]
    assert len(rows) > 300
    assert not [row for row in rows if not re.search(r"\| (FOUND|DERIVED|MEMORY|INFERENCE)[^|]*\|$", row)]


def test_the_page_of_records_has_every_column_and_key() -> None:
    page = record_page.page()
    assert [name for name in SCHEMAS if f"\n### {name}\n" in page] == list(SCHEMAS)
    assert "| `schema_version` |" in page and "| `time_fraction` | dict[str, float] |" in page


def test_the_api_has_every_public_name() -> None:
    found = pages()
    for name in PACKAGES:
        package = importlib.import_module(name)
        places = [place_of(package, public) or f"`{public}`" for public in package.__all__]
        assert not [place for place in places if place not in found[f"reference/api/{name}.md"]]
    documented = re.findall(r"^::: (\S+)$", "\n".join(found.values()), re.MULTILINE)
    assert len(documented) == len(set(documented)) > 100


def test_links_to_files_outside_of_docs_have_pages() -> None:
    linked = linked_files(ROOT)
    assert "algorithms/core/operations.py" in linked
    assert not [path for path in linked if not (ROOT / path).exists()]
    text = "| `a\\|b` | [x](../../records/trace.py#y) | https://z |\n```\n[k](../no)\n```\n"
    there = "| `a|b` | [x](../source/records/trace.py.md#y) | https://z |\n```\n[k](../no)\n```\n"
    assert adapted(text, "methods/agd.md", {}) == there


def test_the_picture_of_the_packages_is_that_of_the_contracts() -> None:
    stored = (ROOT / "docs/packages.svg").read_text(encoding="utf-8")
    shown = re.findall(r">([\w]+)</text>", stored)
    columns = ["paceline", *(f"paceline.{name}" for name in packages_picture.contained())]
    expected = [name for column in columns for layer in packages_picture.layers(column) for name in layer]
    titles = [column.rpartition(".")[2] for column in columns]
    assert sorted(shown) == sorted([*expected, *titles])  # `make packages` draws it again


def test_measured_errors_are_those_of_the_pages_that_are_named() -> None:
    table = TRUST.partition("## Measured errors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*\]\(([\w/.-]+)#?[^)]*\)[^|]*\| (.*) \|$", table, re.MULTILINE)
    assert len(rows) == 14
    for path, words in rows[:-1]:
        page = (ROOT / "docs" / path).read_text(encoding="utf-8").replace("−", "")
        numbers = re.findall(r"\d+\.\d+|\d+(?= %)", page)
        rounded = {figure for number in numbers for figure in (number, f"{float(number):.0f}")}
        assert not [figure for figure in re.findall(r"\d+(?:\.\d+)?", words) if figure not in rounded], words


def written_pages() -> dict[str, str]:
    """The pages that people write, by path: all but those of docs/results."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    kept = [page for page in pages if (ROOT / "docs/results") not in page.parents]
    return {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in kept}


def made_result(claim: Claim, verdict: str) -> dict[str, Any]:
    """A result of a claim as in papers.json, with a made-up figure."""
    keys = ("name", "paper", "kind", "published", "unit", "holds_if", "measured")
    ours = {"claim": claim.sentence, "predicted": 1.5, "low": 1.0, "high": 2.0, "share": 0.4, "verdict": verdict}
    return {key: getattr(claim, key) for key in keys} | ours


def test_verdicts_of_claims_are_those_of_the_stored_results() -> None:
    """Where a written page has the mark of claims, the site shows their results; it has no others."""
    results = [made_result(claim, "undecidable") for claim in every_claim().values()]
    marked = {path: MARK.findall(text) for path, text in written_pages().items()}
    assert {name for names in marked.values() for name in names} == {*PAPERS, "digits-dbs-rate"} - {"digits"}
    for path, text in written_pages().items():
        shown = re.findall(r"^\| \*\*([\w.-]+)\*\*.* \*\*undecidable\*\* \|$", filled(text, results), re.MULTILINE)
        expected = [row["name"] for name in marked[path] for row in chosen(name, results)]
        assert shown == expected and (shown or not marked[path]), path
    with pytest.raises(ValueError, match=r"of which papers\.json has none"):
        filled("<!-- claims of icmla18 -->", results)


def test_no_verdict_is_written_by_hand() -> None:
    names = "|".join(re.escape(name) for name in every_claim())
    verdict = re.compile(rf"undecidable|cannot be decided|(?:{names})\W.*\b(?:holds|misses)\b")
    assert {path: found for path, text in written_pages().items() if (found := verdict.findall(text))} == {}


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{citation["version"]}"' in project
    assert citation["cff-version"] == "1.2.0" and citation["authors"] and json.dumps(citation["title"])


def test_issue_templates_are_valid() -> None:
    templates = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    forms = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in templates}
    for name, form in forms.items():
        if name != "config":
            assert form["name"] and form["description"]
            assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in form["body"])
