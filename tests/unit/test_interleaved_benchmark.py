"""benchmarks/interleaved.py: what it computes from probes and runs, without launching anything."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.topologies.catalogue.gradient_times import GradientTimes
from paceline.topologies.catalogue.machine_profile import Profile

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")


@pytest.fixture
def interleaved(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("interleaved")


def test_a_method_is_predicted_from_the_probes_and_compared_with_the_mean_of_its_runs(interleaved: Any) -> None:
    (setting,) = (one for one in interleaved.UNPACED if one.name == "unpaced, digits-mlp, 2 workers")
    setting = replace(setting, methods=("sync-sgd",), epochs=1.0, longer=1)
    times = GradientTimes(batch=setting.batch, busy=((1, 0.03), (2, 0.03)))
    machine = Profile(gradients=(times,), cores=2, inside={("AllReduce", 2): ((0, 0.01),)})
    (line,) = interleaved.lines_of(setting, machine, {"sync-sgd": [0.04, 0.06]})
    assert line.predicted_s == pytest.approx(0.04)
    assert (line.measured_s, line.error_s) == pytest.approx((0.05, 0.01))
    assert line.error == pytest.approx(-0.2)


def test_the_table_has_the_mean_size_of_the_errors(interleaved: Any) -> None:
    one = interleaved.Line
    shown = interleaved.table("title", [one("a", 1.1, 1.0, 0.0), one("b", 0.7, 1.0, 0.0)])
    assert list(shown.columns[-1].cells) == ["+10.0", "-30.0", "20.0"]
