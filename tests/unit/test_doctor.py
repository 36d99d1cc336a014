"""What `paceline doctor` reports: every check has a result, and what is missing has a remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.backend import machine_checks
from paceline.backend.machine_checks import MachineCheck
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.cli.app import app

PARTS = {
    "Python", "processor cores", "memory", "shared memory", "torch", "gloo", "NCCL", "GPUs", "network namespaces",
    "traffic control (tc)", "MPI", "Slurm", "optuna", "dask", "tensorboardX", "wandb", "mlflow",
    "hypothesis", "Chromium",
}  # fmt: skip


def test_every_part_is_reported_with_a_remedy_if_it_is_missing() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    answer = json.loads(result.stdout)
    assert {one["name"] for one in answer["checks"]} == PARTS
    for one in answer["checks"]:
        assert one["found"] and one["needed_for"]
        assert bool(one["remedy"]) == (one["status"] != "ok"), one
    assert result.exit_code == 0 and answer["ready"]  # the tests need torch and gloo themselves


def test_a_required_part_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = MachineCheck(
        name="torch", status="missing", found="no", needed_for="all", remedy="pip install torch", required=True
    )
    optional = MachineCheck(name="MPI", status="missing", found="no [b]", needed_for="mpirun", remedy="apt install m")
    monkeypatch.setattr(machine_checks, "CHECKS", (lambda: missing, lambda: [optional]))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    for part in ("train and compare cannot work without: torch.", "pip install torch", "no [b]", "apt install m"):
        assert part in result.stdout
    monkeypatch.setattr(machine_checks, "CHECKS", (lambda: optional,))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0 and "simulate, train and compare work here" in result.stdout


def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine_checks.mpi().status == "missing" and "mpirun or mpiexec" in machine_checks.mpi().found
    program = tmp_path / "mpiexec"
    program.write_text("#!/bin/sh\necho; echo mpi 4.1\n")
    program.chmod(0o755)
    assert (machine_checks.mpi().status, machine_checks.mpi().found) == ("ok", f"mpi 4.1 ({program})")
    program.write_text("#!/bin/sh\necho no library >&2; exit 127\n")
    assert machine_checks.mpi().found == f"{program}, which does not run: no library"


def test_networks_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(parts: object) -> None:
        raise NoHosts("needs root")

    monkeypatch.setattr(machine_checks, "namespaces", refuse)
    first, second = machine_checks.network()
    assert (first.status, first.found) == ("missing", "needs root")
    assert second.status == "missing" and "--privileged" in second.remedy


@pytest.mark.parametrize(("fails", "status"), [((), "ok"), (("netem",), "limited"), (("netem", "tbf"), "missing")])
def test_traffic_control(fails: tuple[str, ...], status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_ip(*command: str) -> str:
        if set(fails) & set(command):
            raise NoHosts(f"{command} fails")
        return ""

    monkeypatch.setattr(machine_checks, "run_ip", run_ip)
    assert machine_checks._traffic_control("here").status == status


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"cores": 1, "processor": "one", "memory_bytes": 2**30}
    monkeypatch.setattr(machine_checks, "machine_facts", lambda: facts)
    assert [machine_checks.cores().status, machine_checks.memory().status] == ["limited", "limited"]
    monkeypatch.setattr(machine_checks, "LEAST_SHARED_BYTES", 2**60)
    assert machine_checks.shared_memory().status == "limited" and machine_checks.shared_memory().remedy


def test_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "find_spec", {}.get)
    remedies = {one.name: one.remedy for one in machine_checks.packages()}
    assert remedies["tensorboardX"] == "pip install 'paceline[tensorboard]'"
    assert {one.status for one in machine_checks.packages()} == {"missing"}
