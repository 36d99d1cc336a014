"""Every method on two hosts: network namespaces with one torchrun each. Needs root and iproute2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.algorithms import METHODS, find
from tests.backend.test_hosts import left_alone, needs_hosts  # noqa: F401
from tests.thorough import THOROUGH

ROOT = Path(__file__).parents[2]
SOME = ["easgd"]
"""it has a server; test_launchers has a method without one"""
TRIED = list(METHODS) if THOROUGH else SOME
pytestmark = [
    pytest.mark.backend,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository"),
]


@needs_hosts
def test_methods_train_on_two_hosts(left_alone: None) -> None:  # noqa: F811
    """One worker per host; deterministic methods end with the weights of forked ranks, bit for bit."""
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks/two_hosts.py"),
            "--per-host=1",
            "--samples=128",
            "--json",
            f"--methods={','.join(TRIED)}",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {one["algorithm"]: one for one in json.loads(done.stdout)["rows"]}
    assert rows.keys() == set(TRIED)
    for name, one in rows.items():
        assert one["updates"] > 0
        assert one["same_as_forked"] is (True if find(name)().deterministic else None)
        alone = find(name).alone or find(name).shared or name == "chip-partitioned-sgd"
        assert bool(one["hosts"][1]) is not alone, "its second worker is on the second host"
