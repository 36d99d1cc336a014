"""The installed package: every module under its name and every scenario, and nothing else."""

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)]*)\)")

pytestmark = pytest.mark.skipif(not (ROOT / "paceline").exists(), reason="needs the repository, not an installed wheel")


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel, the source archive it was built from, and the copy of the repository that both were built from."""

    repository: Path
    wheel: Path
    archive: Path

    def shipped(self) -> set[str]:
        """Returns the files of the package, through its links."""
        package = self.repository / "paceline"
        files = (path for folder in (package, *package.iterdir()) if folder.is_dir() for path in folder.rglob("*"))
        kinds = {".py", ".yaml", ".csv", ".md", ".npz", ".typed", ".gz", ".j2", ".css", ".js", ".LICENSE"}
        return {f"paceline/{path.relative_to(package)}" for path in files if path.suffix in kinds}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built from a copy, so that no files are left in the repository."""
    copy, out = tmp_path_factory.mktemp("copy") / "repository", tmp_path_factory.mktemp("dist")
    left_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(out), str(copy)]
    subprocess.run(command, capture_output=True, check=True)
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(copy, wheel, archive)


def test_wheel_holds_every_module_scenario_and_table(built: Built) -> None:
    names = {name for name in zipfile.ZipFile(built.wheel).namelist() if ".dist-info/" not in name}
    assert names == built.shipped()
    tables = {"paceline/workloads/tables/lenet.csv"}
    assert {"paceline/py.typed", "paceline/algorithms/core/values.py"} | tables <= names


def test_source_archive_holds_them_as_plain_files(built: Built) -> None:
    with tarfile.open(built.archive) as members:
        files = {member.name.partition("/")[2]: member for member in members}
    assert built.shipped() <= set(files)
    assert not [name for name, member in files.items() if member.issym() or member.islnk()]


def test_wheel_has_the_command_and_the_licence(built: Built) -> None:
    archive = zipfile.ZipFile(built.wheel)
    (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "paceline = paceline.cli:main" in archive.read(entry).decode()
    assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_links_of_the_description_lead_somewhere(built: Built) -> None:
    """On PyPI a link into the repository leads nowhere, unless it has the repository's address."""
    archive = zipfile.ZipFile(built.wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    fields, _, described = archive.read(metadata).decode().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in fields and described.lstrip().startswith("# Paceline")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    description = runpy.run_path(str(ROOT / "setup.py"), run_name="not main")["description"]
    with_address = description(readme, "https://example.org/us/it", "1.0")
    assert len(LINK.findall(readme)) == len(LINK.findall(with_address)) > 10
    assert "![Accuracy" in with_address and "(https://example.org/us/it/raw/v1.0/docs/quickstart.png)" in with_address
    for text in (described, with_address):
        assert [target for target in LINK.findall(text) if not target.startswith("https://")] == []


def test_check_wheel_contents_is_content(built: Built) -> None:
    command = [sys.executable, "-m", "check_wheel_contents", "--toplevel", "paceline", str(built.wheel)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
