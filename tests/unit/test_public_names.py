"""The names that users import from the top of each package: they exist, they are listed, and the docs use no others."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACADES = ("paceline.algorithms", "paceline.backend", "paceline.checking", "paceline.simulator", "paceline.testing")
PACKAGES = ("paceline", *FACADES)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_TO_READ_FIRST = 5

# One import statement of a page, in an example or in a listing; parentheses may extend it over several lines.
IMPORT = re.compile(r"^(?:>>> )?[ ]*from (paceline(?:\.\w+)?) import (\([^)]*\)|[^\n(]+)", re.MULTILINE)


def imported_by(text: str) -> set[tuple[str, str]]:
    """Each (package, name) that a page imports from paceline or from the top of one of its packages."""
    return {
        (package, name.split(" as ")[0].strip(" \n."))
        for package, names in IMPORT.findall(text)
        for name in names.split("#")[0].strip("()").split(",")
        if name.strip(" \n.")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported(package: str) -> None:
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_is_what_the_package_offers(package: str) -> None:
    module = import_module(package)
    assert module.__file__ is not None
    (block,) = [node for node in ast.parse(Path(module.__file__).read_text()).body if isinstance(node, ast.If)]
    typed = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert set(module.__all__) == set(typed) == set(module.__dir__())
    assert len(module.__all__) == len(set(module.__all__))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_is_sorted(package: str) -> None:
    names = import_module(package).__all__
    # Ruff's order (RUF022): constants, then classes, then functions.
    assert names == sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_a_submodule(package: str) -> None:
    for name in import_module(package).__all__:
        assert find_spec(f"{package}.{name}") is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_docs_import_public_names(page: Path) -> None:
    for package, name in imported_by(page.read_text()):
        assert name in import_module(package).__all__, f"{package}.{name}"


def test_an_import_over_several_lines_is_found() -> None:
    page = "from paceline.algorithms import (\n    Gradient, Load,\n)\n>>> from paceline.checking import AnyOrder\n"
    assert imported_by(page) == {
        ("paceline.algorithms", "Gradient"),
        ("paceline.algorithms", "Load"),
        ("paceline.checking", "AnyOrder"),
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_says_what_to_read_first(package: str) -> None:
    found = re.search(r"Read (.*?)\.(?:\s|$)", import_module(package).__doc__ or "", re.DOTALL)
    assert found is not None
    assert "first" in found[1]
    assert 1 <= len(re.findall(r"`[^`]+`", found[1])) <= MOST_TO_READ_FIRST
