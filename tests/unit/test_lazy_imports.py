"""Commands import only what they need: torch takes a second to import, pandas and scipy a third of one."""

import subprocess
import sys

import pytest

from tests.thorough import extra

SLOW = {"matplotlib", "networkx", "numba", "pandas", "pyarrow", "scipy", "simpy", "sklearn", "torch"}
PROGRAM = """
import sys
from paceline.cli import main
sys.argv = ["paceline", *sys.argv[1:]]
try:
    main()
finally:
    print("imported:", *sys.modules)
"""


def imported(*arguments: str) -> set[str]:
    """Returns the modules that a command has imported when it ends."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in found.stderr, found.stderr
    return set(found.stdout.rpartition("imported: ")[2].split())


@pytest.mark.parametrize(
    ("command", "also"),
    [
        ("--help", "numpy yaml"),
        extra(("--version", "numpy yaml")),
        ("simulate --help", "numpy yaml"),
        extra(("list fruits", "numpy yaml")),
        extra(("list devices", "numpy")),
        ("list topologies", "numpy"),
        extra(("list storage", "numpy")),
        ("list scenarios", "numpy paceline.scenarios.resolution.schema paceline.topologies.graphs.graph"),
        ("list algorithms", "paceline.scenarios.resolution.schema"),
        ("list models", ""),
        extra(("list data", "")),
        ("simulate no-such-scenario", ""),
        ("topology no-such-topology", "numpy"),
    ],
)
def test_a_command_imports_only_what_it_shows(command: str, also: str) -> None:
    assert not imported(*command.split()) & (SLOW | set(also.split()))


def test_the_schema_does_without_torch_and_tables() -> None:
    """The schema names every topology and method; it computes nothing."""
    assert not imported("schema") & (SLOW - {"networkx"})


@pytest.mark.parametrize("package", ["algorithms", "records", "scenarios", "topologies", "workloads"])
def test_what_a_package_defers_is_there(package: str) -> None:
    code = f"""
import paceline.{package} as package
assert set(package.__all__) == set(dir(package)), dir(package)
from paceline.{package} import *
assert all(callable(value) or value for name, value in globals().items() if name in package.__all__)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FOLDERS = ["algorithms", "records", "scenarios", "simulator", "topologies", "workloads", "checking"]


def test_importing_does_not_import_torch() -> None:
    """One folder after the other, in one process; the first that imports torch is named."""
    code = ["import sys"]
    for folder in FOLDERS:
        code += [f"from paceline.{folder} import *", f"'torch' in sys.modules and sys.exit('{folder} imports torch')"]
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
