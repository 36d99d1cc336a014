"""The compute model against closed forms, and against the published figures that its efficiencies come from."""

from __future__ import annotations

import csv
import doctest
import re
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paceline.topologies.compute.efficiencies import Efficiency, Row, efficiency_of, rows
from paceline.topologies.compute.roofline import Line, device, fitted, roof_of, whole

from paceline.algorithms.core.errors import InputError
from paceline.scenarios import load
from paceline.scenarios.sections import derived_efficiencies as deriving
from paceline.topologies import Device
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS
from paceline.topologies.catalogue.device_names import named
from paceline.workloads import MODELS, find_model
from paceline.workloads.models.layer_costs import LayerWork, Pass


@dataclass(frozen=True)
class Net:
    """A model made up for a test."""

    works: tuple[LayerWork, ...]
    name: str = "net"
    family: str = ""


HALF = Efficiency(0.5, 1e-5, "given")
P100 = SPECS["p100-sxm2"]
DENSE = LayerWork("dense", 10, 0, Pass(10**9, 10**6, 4 * 10**6, 1), Pass(2 * 10**9, 2 * 10**6, 8 * 10**6, 2))
THIN = LayerWork("thin", 0, 0, Pass(0, 10**8, 0, 1), Pass(0, 2 * 10**8, 0, 1))


def test_arithmetic_binds_a_dense_layer() -> None:
    """3 GFLOP a sample at half of 10.6 TFLOP/s, and three kernels."""
    made = device(P100, Net((DENSE,)), efficiency=HALF, samples=64)
    assert made.compute_s(64) == pytest.approx(64 * 3e9 / 5.3e12 + 3e-5, rel=1e-12)
    assert made.overhead_s == pytest.approx(3e-5, rel=1e-12)


def test_memory_binds_a_thin_layer() -> None:
    """300 MB a sample at 0.8 of 732 GB/s; in half precision half of it."""
    net = Net((THIN, DENSE))
    both = device(P100, net, efficiency=HALF).compute_s(32) - device(P100, Net((DENSE,)), efficiency=HALF).compute_s(32)
    assert both == pytest.approx(32 * 3e8 / (0.8 * 732e9) + 2e-5, rel=1e-9)
    small = device(
        P100, Net((THIN, replace(DENSE, forward=Pass(0, 0, 0, 0), backward=Pass(0, 0, 0, 0)))), "fp16", efficiency=HALF
    )
    assert small.compute_s(32) == pytest.approx(32 * 1.5e8 / (0.8 * 732e9) + 2e-5, rel=1e-9)


def test_weights_bind_a_small_batch() -> None:
    """400 MB of weights read once forward take more time than the 0.2 GFLOP of a sample."""
    layer = LayerWork("fc", 10**8, 0, Pass(2 * 10**8, 0, 4 * 10**8, 0), Pass(0, 0, 0, 0))
    one, many = (device(P100, Net((layer,)), efficiency=HALF, samples=b) for b in (1, 256))
    assert one.compute_s(1) == pytest.approx(4e8 / (0.8 * 732e9), rel=1e-12)
    assert many.compute_s(256) == pytest.approx(256 * 2e8 / 5.3e12, rel=1e-12)


@given(st.sampled_from(["lenet", "alexnet", "resnet50", "transformer"]), st.integers(1, 1024), st.integers(1, 1024))
def test_the_line_touches_the_curve_and_lies_below_it(name: str, at: int, elsewhere: int) -> None:
    """The curve is convex, so its tangent at one batch is below it at every other."""
    roof = roof_of(P100, "fp32", HALF)
    works = MODELS[name].works
    tangent = whole(works, roof, at)
    assert tangent.overhead_s >= 0
    assert tangent.at(elsewhere) <= whole(works, roof, elsewhere).at(elsewhere) * (1 + 1e-12)


@given(st.sampled_from(sorted(SPECS)), st.sampled_from(["fp32", "fp16"]), st.integers(1, 64))
def test_shares_make_one_and_fit_the_layers(name: str, precision: str, samples: int) -> None:
    model = MODELS["googlenet"]
    made = device(SPECS[name], model, precision, samples=samples)
    assert len(made.forward_shares) == len(made.backward_shares) == len(model.layers)
    assert sum(made.forward_shares) + sum(made.backward_shares) == pytest.approx(1, rel=1e-12)
    assert min(*made.forward_shares, *made.backward_shares) > 0
    assert made.compute_s(2 * samples) > made.compute_s(samples)


def test_layers_without_parameters_belong_to_the_one_before() -> None:
    one = device(P100, Net((THIN, DENSE, THIN, DENSE)), efficiency=HALF)
    assert len(one.forward_shares) == 2
    assert one.forward_shares[0] > one.forward_shares[1]  # it has both thin ones


def test_a_faster_device_is_faster_on_every_model() -> None:
    for model in MODELS.values():
        if model.works:
            slow, fast = (device(named(name), model, efficiency=HALF).compute_s(32) for name in ("k80", "h100"))
            assert fast <= slow


def test_a_model_without_a_table_is_refused() -> None:
    with pytest.raises(InputError, match="no layer table"):
        device(P100, MODELS["quadratic"])


# --- efficiencies ----------------------------------------------------------------------------------------------------


def test_efficiencies_are_what_the_throughput_gives() -> None:
    assert deriving.FILE.read_text(encoding="utf-8") == deriving.text()


def test_published_figures_come_out_again() -> None:
    """Where one software was published for a device and a model, at each of its batches."""
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    tried = 0
    for line in lines:
        alike = {
            (other["software"]) for other in lines if all(other[k] == line[k] for k in ("device", "model", "precision"))
        }
        if len(alike) == 1:
            batch = int(line["batch"])
            made = device(named(line["device"]), find_model(line["model"]), line["precision"], samples=batch)
            assert batch / made.compute_s(batch) == pytest.approx(float(line["samples_per_s"]), rel=1e-3), line
            tried += 1
    assert tried > 40


def test_no_efficiency_is_at_its_limit() -> None:
    """There the memory model alone would be slower than the measured time."""
    assert all(0.02 < row.efficiency < 2 for row in rows())


def test_the_devices_own_rows_come_first_then_its_family_then_the_kind() -> None:
    own = efficiency_of(P100, "resnet50", "resnet", "fp32")
    family = efficiency_of(P100, "resnet101", "resnet", "fp32")
    kind = efficiency_of(named("m40"), "resnet50", "resnet", "fp32")
    unknown = efficiency_of(named("m40"), "mine", "", "fp32")
    assert "published throughput of resnet50 on p100-sxm2" in own.provenance
    assert "its family resnet on p100-sxm2" in family.provenance
    assert "INFERENCE: mean over resnet on" in kind.provenance
    assert "INFERENCE: mean over all families" in unknown.provenance
    assert efficiency_of(named("v100-sxm2-32"), "resnet50-v1.5", "resnet", "amp").provenance.startswith(
        "efficiency DERIVED"
    )


def row(name: str, family: str, value: float, **other: object) -> Row:
    base = Row(
        device=name, kind="gpu", year=2015, model=family, family=family, precision="fp32", tensor=False,
        efficiency=value, launch_s=None, typical=True,
    )  # fmt: skip
    return replace(base, **other)  # type: ignore[arg-type]


def test_a_device_twice_as_good_at_one_family_is_taken_to_be_so_at_another() -> None:
    """e = mean of the family × efficiency of the device relative to the mean of the family it was measured with."""
    known = [row("a", "vgg", 0.2), row("b", "vgg", 0.8), row("a", "resnet", 0.1), row("b", "resnet", 0.1)]
    known += [row("m40", "vgg", 0.8)]
    mean = (0.2 * 0.8 * 0.8) ** (1 / 3)
    assert efficiency_of(named("m40"), "resnet", "resnet", "fp32", known=known).value == pytest.approx(0.1 * 0.8 / mean)


def test_untypical_rows_speak_for_their_own_device_only() -> None:
    known = [row("a", "vgg", 0.4), row("k40", "vgg", 0.01, typical=False)]
    assert efficiency_of(named("m40"), "vgg", "vgg", "fp32", known=known).value == pytest.approx(0.4)
    assert efficiency_of(named("k40"), "vgg", "vgg", "fp32", known=known).value == pytest.approx(0.01)


def test_with_no_rows_at_all_the_kind_has_a_default() -> None:
    assert efficiency_of(P100, "x", "x", "fp32", known=[]).value == pytest.approx(0.5)


# --- profiles --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(1e-6, 1), st.lists(st.integers(1, 4096), min_size=2, max_size=8, unique=True))
def test_a_profile_on_a_line_gives_that_line(overhead_s: float, per_sample_s: float, batches: list[int]) -> None:
    line = Line(overhead_s, per_sample_s)
    found = fitted([(batch, line.at(batch)) for batch in batches])
    for batch in batches:
        assert found.at(batch) == pytest.approx(line.at(batch), rel=1e-6)


def test_a_profile_never_gives_a_negative_cost() -> None:
    assert fitted([(10, 1.0), (20, 3.0)]).overhead_s == 0
    assert fitted([(10, 3.0), (20, 1.0)]).per_sample_s == 0
    with pytest.raises(InputError, match="no points"):
        fitted([])
    with pytest.raises(InputError, match="above 0"):
        fitted([(0, 1.0)])


def test_a_profile_takes_the_place_of_the_roofline() -> None:
    made = device(P100, MODELS["resnet50"], profile=[(32, 0.2), (64, 0.3)])
    assert made.compute_s(48) == pytest.approx(0.25)
    assert made.provenance.startswith("fitted to 2 measured batches")
    assert len(made.forward_shares) == len(MODELS["resnet50"].layers)


# --- in a plan -------------------------------------------------------------------------------------------------------


def test_a_plan_takes_the_devices_shares() -> None:
    (plan, *_) = load("quickstart").plans()
    layers = len(plan.job.learner.layout.layers)
    shares = tuple(0.25 for _ in range(layers)), tuple(0.25 for _ in range(layers))
    made = Device(name="x", overhead_s=0, per_sample_s=1, forward_shares=shares[0], backward_shares=shares[1])
    nodes = tuple(replace(node, device=made) for node in plan.cluster.nodes)
    assert replace(plan, cluster=replace(plan.cluster, nodes=nodes)).layer_shares() == shares
    assert plan.layer_shares() != shares


# --- how good it is, and the page that says so -----------------------------------------------------------------------


def test_a_device_never_seen_is_missed_by_about_half() -> None:
    """Every published row, predicted without any row of its device: as exact as docs/devices.md says, and no better."""
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["typical"] == "yes"]
    errors = []
    for line in lines:
        spec, model, batch = named(line["device"]), find_model(line["model"]), int(line["batch"])
        others = [known for known in rows() if known.device != spec.name]
        guess = efficiency_of(spec, model.name, model.family, line["precision"], known=others)
        made = device(spec, model, line["precision"], samples=batch, efficiency=guess)
        errors.append(abs(batch / made.compute_s(batch) / float(line["samples_per_s"]) - 1))
    assert 0.3 < median(errors) < 0.6


def test_the_session_on_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8")
    (session,) = re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest(session, {}, "devices", "docs/devices.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0
