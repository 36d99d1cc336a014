"""benchmarks/backend.py: every way is run, and different weights are reported. No speed is asserted."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.thorough import sampled

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository"),
]
WARNS = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
"""in torch.distributed.optim, at its import"""


def benchmark(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/backend.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the benchmark as a module of this process."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("benchmark", ROOT / "benchmarks/backend.py")  # `backend` is a folder
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_every_pair_has_a_row() -> None:
    done = benchmark("--models", "mlp", "--rounds", "1", "--steps", "8", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    pairs = {(row["pair"], row["transport"]) for row in found["rows"]}
    for ours in ("sync-sgd / DDP", "layerwise-sgd / DDP", "post-local-sgd / torch's PostLocalSGD"):
        assert {(ours, "gloo"), (ours, "shared memory")} <= pairs
    for row in found["rows"]:
        assert row["ratio"] == row["low"] == row["high"] == pytest.approx(row["of_step_s"] / row["step_s"])
        assert row["step_s"] > 0
    for cost in found["overhead"]:
        assert 0 < cost["generator_and_record_s"] == pytest.approx(0.005 * cost["share_of_5ms"])
        assert cost["step_s"] > 0


@WARNS
@pytest.mark.parametrize(("way", "rank"), [(("sync-sgd", "gloo"), 1), (("post-local-sgd", "shared memory"), None)])
def test_other_weights_are_told(way: tuple[str, str], rank: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = imported(monkeypatch)
    programs = importlib.import_module("torch_comparison.programs")
    same = torch.ones(3)
    launches = {each: programs.Timed(1.0, (same, same)) for each, _ in backend.ways(backend.WAYS, programs.TRANSPORTS)}
    backend.check(launches, 8)
    launches[way] = programs.Timed(1.0, tuple(same * 1.001 if rank in (None, place) else same for place in (0, 1)))
    with pytest.raises(backend.OtherWeights, match=way[0]):
        backend.check(launches, 8)


@pytest.mark.thorough
def test_some_ways_are_looked_at_alone() -> None:
    look = ("--ways", "DDP,sync-sgd", "--transports", "gloo")
    done = benchmark("--models", "mlp", "--rounds", "1", "--steps", "8", "--json", *look)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(row["pair"], row["transport"]) for row in found["rows"]] == [("sync-sgd / DDP", "gloo")]
    assert found["overhead"] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    sampled(
        [
            (("--models", "mpl"), "unknown mpl"),
            (("--ways", "dpd"), "unknown dpd"),
            (("--rounds", "0"), "found 0, expected 1 or more"),
            (("--steps", "9"), "found 9, expected whole periods"),
        ],
        lambda case: case[0][0] == "--ways",
    ),
)
@WARNS
def test_an_option_that_makes_no_sense_is_refused(
    wrong: tuple[str, str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = imported(monkeypatch)
    with pytest.raises(SystemExit) as ended:
        backend.run_command(backend.__doc__, backend.body, backend.add_options, wrong)
    assert ended.value.code == 2 and said in capsys.readouterr().err
