"""Commands import only what they need: torch takes a second to import, pandas and scipy a third of one."""

import importlib
import subprocess
import sys

import pytest

SLOW = {"matplotlib", "networkx", "numba", "pandas", "pyarrow", "scipy", "simpy", "sklearn", "torch"}
COMMANDS = [
    ("numpy yaml", ["--help", "--version", "simulate --help", "list fruits"]),
    ("numpy paceline.scenarios.resolution.schema paceline.topologies.graphs.graph", ["list scenarios"]),
    ("numpy", ["list devices", "list topologies", "list storage", "topology no-such-topology"]),
    ("paceline.scenarios.resolution.schema", ["list algorithms"]),
    ("", ["list models", "list data", "simulate no-such-scenario"]),
]
"""commands, and what they do without beside `SLOW`: a command imports no more than those after it"""
FOLDERS = ["algorithms", "records", "scenarios", "simulator", "topologies", "workloads", "checking"]


def in_a_process(code: str, *arguments: object) -> None:
    command = [sys.executable, "-c", code, *map(repr, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_imports_only_what_it_shows() -> None:
    """One command after the other, in one process; the first that imports too much is named."""
    code = """
import ast, sys
from paceline.cli import main
slow, commands = map(ast.literal_eval, sys.argv[1:])
for also, lines in commands:
    for line in lines:
        sys.argv = ["paceline", *line.split()]
        try:
            main()
        except SystemExit:
            pass
        imported = (slow | set(also.split())) & set(sys.modules)
        assert not imported, f"{line} imports {imported}"
"""
    in_a_process(code, SLOW, COMMANDS)


def test_the_schema_does_without_torch_and_tables() -> None:
    """The schema names every topology and method; it computes nothing."""
    code = """
import ast, sys
from paceline.cli.app import app
slow = ast.literal_eval(sys.argv[1])
app(["schema"], standalone_mode=False)
assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    in_a_process(code, SLOW - {"networkx"})


@pytest.mark.parametrize("package", ["algorithms", "records", "scenarios", "topologies", "workloads"])
def test_what_a_package_defers_is_there(package: str) -> None:
    module = importlib.import_module(f"paceline.{package}")
    assert set(module.__all__) == set(dir(module))
    assert all(callable(value) or value for value in (getattr(module, name) for name in module.__all__))


def test_importing_does_not_import_torch() -> None:
    """One folder after the other, in one process; the first that imports torch is named. Then workloads without it."""
    code = ["import sys"]
    for folder in FOLDERS:
        code += [f"from paceline.{folder} import *", f"'torch' in sys.modules and sys.exit('{folder} imports torch')"]
    code += [
        "problems('digits-mlp', dataset='digits', learning='train')",
        "build('quadratic', learning='quadratic', seed=1), build('lenet', learning='none', seed=1)",
        "assert not {'torch', 'sklearn'} & set(sys.modules)",
    ]
    in_a_process("\n".join(code))
