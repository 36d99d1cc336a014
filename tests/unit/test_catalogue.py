"""The device catalogue: figures, provenance, and common spellings of names."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import DATA, FILES, SPECS, Spec, _DeviceEntry, precision_named
from paceline.topologies.catalogue.device_names import _aliases, find, named
from tests.clusters import measured_briefly

ASKED = [
    "k20", "k40", "k80", "m40", "titanx-maxwell", "titanx-pascal", "gtx-1080", "gtx-1080-ti", "p100-pcie", "p100-sxm2",
    "v100-sxm2", "v100-pcie", "t4", "a100-40", "a100-80", "a40", "h100", "h100-pcie", "h200", "knl-7210",
    "knl-7250", "phi-31s1p", "xeon-e5-2670", "xeon-e5-2698v3", "power8", "power9", "epyc-7763",
    "epyc-9654", "p100", "v100", "a100", "knl",
]  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_devices_of_the_papers_are_there(name: str) -> None:
    spec = named(name)
    assert spec.peak("fp32") > 0
    assert spec.bytes_per_s > 0
    assert spec.memory_bytes or spec.kind == "cpu"


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_figures_hang_together(spec: Spec) -> None:
    """A figure in the wrong unit, or a precision in the wrong place, would break one of these."""
    slow_to_fast = [spec.peaks[name] for name in ("fp64", "fp32", "tf32", "fp16", "fp8") if name in spec.peaks]
    assert slow_to_fast == sorted(slow_to_fast)
    assert 1e11 < spec.peak("fp32") < 2e14
    assert 4e10 < spec.bytes_per_s < 1e13
    assert 0.5 * spec.bytes_per_s < spec.sustained_bytes_per_s <= spec.bytes_per_s
    assert 2 < spec.peak("fp32") / spec.bytes_per_s < 110, "operations per byte"
    assert spec.memory_bytes is None or 4e9 < spec.memory_bytes < 2e11
    assert spec.power_w is None or 50 < spec.power_w <= 1000
    for precision, rate in spec.gemms.items():
        assert rate < 1.05 * spec.peak(precision)


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_every_value_says_where_it_is_from(spec: Spec) -> None:
    keys = {f"{name}_tflops" for name in spec.peaks} | {f"gemm_{name}_tflops" for name in spec.gemms}
    keys |= {"memory_gb_per_s", "memory_sustained_gb_per_s", "launch_s"}
    keys |= {"memory_gb"} if spec.memory_bytes else set()
    assert keys <= set(spec.provenance)
    assert all(
        words.split()[0].rstrip(":") in {"FOUND", "MEMORY", "DERIVED", "INFERENCE"}
        for words in spec.provenance.values()
    )


def test_a_value_without_provenance_is_refused() -> None:
    with pytest.raises(ValidationError, match="fp32_tflops"):
        _DeviceEntry.model_validate(
            {"title": "x", "kind": "gpu", "year": 2020, "fp32_tflops": [1.0, "surely"], "memory_gb_per_s": [1, "FOUND"]}
        )


def test_an_alias_means_one_device() -> None:
    many = [alias for spec in SPECS.values() for alias in (spec.name, *spec.aliases)]
    assert len(many) == len(_aliases())
    assert {path.name for path in DATA.glob("*.yaml")} == {*FILES, "prices.yaml", "storage.yaml"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p-100", "did you mean p100?"),
        ("p100sxm2", "did you mean p100-sxm2?"),
        ("abacus", "there are k20, "),
        ("", "there are"),
    ],
)
def test_near_misses_are_told(name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        named(name)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("V100-SXM2-16GB", "v100-sxm2"),
        ("V100-SXM2-32GB", "v100-sxm2-32"),
        ("V100-PCIE-16GB", "v100-pcie"),
        ("P100-SXM2 (DGX-1)", "p100-sxm2"),
        ("Tesla P100-PCIE-16GB", "p100-pcie"),
        ("K80 (8 GK210, p2.8xlarge)", "k80"),
        ("K40c", "k40"),
        ("K20X", "k20x"),
        ("Tesla M40 24GB", "m40-24"),
        ("TitanX (Maxwell)", "titanx-maxwell"),
        ("TitanX Pascal", "titanx-pascal"),
        ("GTX 1080Ti", "gtx-1080-ti"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40"),
        ("A100-PCIE-40GB", "a100-pcie-40"),
        ("16x A100", "a100-sxm4-80"),
        ("H100 80GB HBM3", "h100-sxm5"),
        ("KNL (model not stated, MKL17)", "knl-7250"),
        ("Xeon Phi 7210", "knl-7210"),
        ("P100 + POWER8 NVLink (S822LC Minsky)", "p100-sxm2"),
        ("2x E5-2630 v3 (CPU, Torch nn)", "xeon-e5-2630v3-x2"),
        ("dual E5-2670", "xeon-e5-2670-x2"),
    ],
)
def test_texts_of_tables_are_understood(text: str, name: str) -> None:
    assert find(text).name == name


@pytest.mark.parametrize("text", ["", "CPU (not stated)", "m4.10xlarge", "a cluster of 100 nodes"])
def test_a_text_without_a_device_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="found no device"):
        find(text)


@given(st.sampled_from(sorted(_aliases())), st.sampled_from(["", "Tesla ", "NVIDIA ", "4x "]), st.booleans())
def test_every_alias_is_found_in_a_sentence(alias: str, before: str, loud: bool) -> None:
    text = f"{before}{alias}, at home"
    spec = find(text.upper() if loud else text)
    assert spec.kind == SPECS[_aliases()[alias]].kind
    if before != "4x " and before != "Tesla ":
        assert spec.name == _aliases()[alias]


def test_sockets_add_up() -> None:
    one, two = named("xeon-e5-2670"), named("xeon-e5-2670-x2")
    assert (two.peak("fp32"), two.bytes_per_s, two.cores) == (2 * one.peak("fp32"), 2 * one.bytes_per_s, 16)
    with pytest.raises(InputError):
        named("k80-x2")


def test_a_precision_without_units_of_its_own_runs_as_float32() -> None:
    assert named("k40").peak("amp") == named("k40").peak("fp32")
    assert named("a100").peak("bfloat16") == 312e12
    with pytest.raises(InputError, match="fp64"):
        named("a40").peak("fp64")
    with pytest.raises(InputError, match="there are fp64"):
        precision_named("fp23")


def test_nothing_is_read_before_it_is_asked_for() -> None:
    code = "from paceline.topologies.catalogue import device_catalogue as it; assert not it._read.cache_info().currsize"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_briefly(monkeypatch)
    spec = named("this-machine")
    assert spec.kind == "cpu"
    assert spec.peak("fp32") > 1e9
    assert spec.sustained_bytes_per_s > 1e8
    assert 1e-8 < spec.launch_s < 1e-2
    assert all("measured" in words or words == "the operating system" for words in spec.provenance.values())
