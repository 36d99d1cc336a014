"""Messages when ranks cannot meet: an interface without an address, too few processes of torchrun."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from paceline.algorithms.core.errors import RunFailed
from paceline.backend.transports.collectives import device_of, no_address
from paceline.backend.transports.launchers import tell_torchrun
from tests.warm import Program

pytestmark = pytest.mark.backend


def test_an_interface_without_an_address() -> None:
    with pytest.raises(RunFailed, match=r"^the network interface nowhere0 is down or has no address here"):
        device_of("nowhere0")  # gloo's own words for one that is down


def test_a_loopback_that_is_down() -> None:
    assert no_address("lo").endswith("`ip link set lo up`")
    assert device_of("lo") is not None


def test_torchrun_prints_our_message_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    tell_torchrun("found 2 processes, expected 5")
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(file))
    *_, last, border = str(ChildFailedError("paceline", {0: failure})).splitlines()
    assert last == "  traceback : error: found 2 processes, expected 5"
    assert set(border) == {"="}


def test_without_torchrun_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    tell_torchrun("found 2 processes, expected 5")


def test_too_few_processes_leave_the_message_for_torchrun(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    started = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = {**os.environ, **started, "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_ERROR_FILE": str(file)}
    arguments = ["train", "quickstart", "--algorithms", "sync-sgd", "--out", str(tmp_path / "runs")]
    process = Program("from paceline.cli import main; main()", arguments, env=environment)
    _, said = process.communicate(timeout=120)
    assert process.wait() == 2
    assert "error: found 1 process, and sync-sgd has 4 ranks" in said
    assert "error: found 1 process, and sync-sgd has 4 ranks" in file.read_text()
