"""Who may import whom. Arrows point down only, and a method knows none of its interpreters."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline

PACKAGE = Path(paceline.__file__).parent
GROUND = {"algorithms", "workloads", "topologies"}
MIDDLE = GROUND | {"scenarios", "records"}
MAY_IMPORT = {
    "algorithms": set[str](),
    "workloads": {"algorithms"},
    "topologies": {"algorithms"},
    "records": GROUND,
    "scenarios": GROUND | {"records"},
    "simulator": MIDDLE,
    "backend": MIDDLE,
    "checking": MIDDLE,
    "reports": MIDDLE | {"simulator", "backend", "checking"},
    "cli": MIDDLE | {"simulator", "backend", "checking", "reports"},
}
FILES = [path for folder in MAY_IMPORT for path in sorted((PACKAGE / folder).rglob("*.py"))]


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, wherever it stands in the file."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def forbidden(source: str, folder: str) -> list[str]:
    """The imports of a file that its folder may not make; the facade itself counts, as it stands above all folders."""
    allowed = MAY_IMPORT[folder] | {folder}
    return [
        f"line {line}: {name}"
        for line, name in imported(source)
        if name == "paceline" or (name.startswith("paceline.") and name.split(".")[1] not in allowed)
    ]


def test_every_folder_has_its_place(folders: list[str]) -> None:
    assert folders == sorted(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down(path: Path) -> None:
    assert not forbidden(path.read_text(), path.relative_to(PACKAGE).parts[0])


@pytest.mark.parametrize(
    ("folder", "source"),
    [
        ("algorithms", "import paceline.simulator.core"),
        ("algorithms", "def late():\n    from paceline.backend import launch"),
        ("simulator", "from paceline import backend"),
        ("records", "from paceline.scenarios.plan import Plan"),
        ("workloads", "import paceline"),
    ],
)
def test_a_wrong_arrow_is_seen(folder: str, source: str) -> None:
    assert forbidden(source, folder)


@pytest.mark.parametrize(
    "folder", ["algorithms", "records", "scenarios", "simulator", "topologies", "workloads", "checking"]
)
def test_importing_does_not_import_torch(folder: str) -> None:
    code = f"import sys; from paceline.{folder} import *; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
