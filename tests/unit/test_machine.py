"""The load of other programs: our own is not counted, that of others is."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from paceline.records import machine
from paceline.records.machine import OtherLoad, machine_facts, package_versions


def test_the_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds on four cores: 12 CPU seconds were busy, 4 of them ours; others had 8 of 40, 3 of them stolen."""
    clock, busy, own = iter([100.0, 110.0]), iter([(45.0, 5.0), (54.0, 8.0)]), iter([1.0, 5.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(machine, "busy_and_stolen_s", lambda: next(busy))
    monkeypatch.setattr(machine, "_own_s", lambda _: next(own))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    with OtherLoad() as other:
        pass
    assert other.share == pytest.approx(0.2)
    assert other.stolen_share == pytest.approx(0.075)


def test_children_that_have_ended_are_ours() -> None:
    before_s = machine._own_s()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)
    assert machine._own_s() - before_s >= 0.3  # CPU time is counted in ticks, hence the slack


def test_children_that_still_run_are_ours() -> None:
    before_s = machine._own_s()
    code = "import time\nwhile time.process_time() < 0.4: pass\nprint('done', flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        spent_s = machine._own_s() - before_s
        child.kill()
    assert spent_s >= 0.3  # CPU time is counted in ticks, hence the slack


def test_facts() -> None:
    assert machine_facts()["cores"] >= 1
    assert package_versions()["numpy"]
