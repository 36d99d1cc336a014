"""Every module has one name: imported under two, its classes would exist twice and `isinstance` would fail."""

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import paceline


def test_no_two_modules_share_a_file() -> None:
    names = [info.name for info in pkgutil.walk_packages(paceline.__path__, "paceline.")]
    for name in names:
        importlib.import_module(name)
    files: dict[Path, str] = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or name == "__main__":
            continue
        path = Path(file).resolve()
        if any(part in path.parents for part in _roots()):
            assert path not in files, f"{path} is both {files.get(path)} and {name}"
            files[path] = name
    assert len(files) >= len(names)


def test_the_guard_sees_a_folder_without_its_prefix(tmp_path: Path) -> None:
    """The session's own check (tests/conftest.py), applied to a run that breaks the rule."""
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "__init__.py").touch()
    (tmp_path / "conftest.py").write_text((Path(__file__).parents[1] / "conftest.py").read_text())
    (tmp_path / "test_wrong.py").write_text("def test_wrong():\n    import workloads\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "imported without the paceline. prefix: workloads" in run.stdout


def _roots() -> set[Path]:
    """The package's folder, and the folders that its links lead to."""
    package = Path(paceline.__file__).resolve().parent
    return {package, *(entry.resolve() for entry in package.iterdir() if entry.is_dir())}
