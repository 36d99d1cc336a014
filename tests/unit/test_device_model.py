"""The device model: utilisation and layers against hand-computed cases, the fit against the stored files."""

from __future__ import annotations

import csv
import doctest
import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.scenarios import load
from paceline.scenarios.resolution.fitted_ranges import predicted_times
from paceline.scenarios.sections import fitted_devices as fitting
from paceline.topologies import DeviceModel
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.device_fit import Fit
from paceline.topologies.compute.device_model import device
from paceline.topologies.compute.device_parameters import (
    FILE,
    KIND_PRIORS,
    Parameters,
    Software,
    chip_key,
    prior,
    read_software,
)
from paceline.topologies.compute.layer_times import (
    KINDS,
    SPLITS,
    START,
    TILES,
    Filling,
    LaunchQueue,
    Rates,
    gradient_s,
    kind_of,
    kind_times,
    layer_shares,
    layer_times,
    utilisation,
)
from paceline.topologies.compute.prediction_errors import LeftOut, basis, chip_error, ranges
from paceline.workloads import MODELS
from paceline.workloads.models.layer_costs import LayerWork, Pass, Product


@dataclass(frozen=True)
class Net:
    """A model made up for a test."""

    works: tuple[LayerWork, ...]
    name: str = "net"
    family: str = ""


P100 = SPECS["p100-sxm2"]
EVEN = Rates(flops_per_s=(1e12,) * len(KINDS), bytes_per_s=1e11, launch_s=1e-5)
CONV = Product("conv", 1, 64, 128, 3, 3, 1, 1, 56, 56, 56, 56)
DENSE = LayerWork("dense", 10, 0, Pass(10**9, 10**6, 4 * 10**6, 1), Pass(2 * 10**9, 2 * 10**6, 8 * 10**6, 2))
THIN = LayerWork("thin", 0, 0, Pass(0, 10**8, 0, 1), Pass(0, 2 * 10**8, 0, 1))


# --- utilisation -----------------------------------------------------------------------------------------------------


def test_one_wave_of_full_tiles_loses_only_the_start() -> None:
    assert utilisation(128, 128 * 56, 576, 56) == pytest.approx(576 / (576 + START))


def test_half_a_tile_wastes_half_a_tile() -> None:
    """64 rows of a tile of 128 would waste half; tiles of 64 rows are worth 0.95 and fill the device just as well."""
    assert utilisation(64, 128 * 56, 576, 56) == pytest.approx(0.95 * 576 / (576 + START))


def test_a_long_sum_is_split_over_the_units() -> None:
    """One tile of 128² or sixteen of 32² on 32 units: with 32 splits of the large tile all work."""
    alone = utilisation(128, 128, 65536, 32)
    split = utilisation(128, 128, 65536, 32, split=True)
    assert alone < 0.25 < 0.9 < split == pytest.approx(2048 / (2048 + START))
    assert 32 in SPLITS
    assert TILES[0] == (128, 128, 1.0)


SIZES = st.integers(1, 3000)


@given(SIZES, SIZES, SIZES, st.integers(1, 200), st.integers(1, 8), st.booleans())
def test_a_larger_product_never_takes_less_time(
    rows: int, columns: int, inner: int, units: int, more: int, split: bool
) -> None:
    def seconds(m: int, n: int, k: int) -> float:
        return m * n * k / utilisation(m, n, k, units, split=split)

    base = seconds(rows, columns, inner) * (1 - 1e-9)
    assert base <= seconds(rows + more, columns, inner)
    assert base <= seconds(rows, columns + more, inner)
    assert base <= seconds(rows, columns, inner + more)
    assert 0 < utilisation(rows, columns, inner, units, split=split) <= 1


# --- kinds and layers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        (CONV, "3x3"),
        (replace(CONV, kernel_height=1, kernel_width=1), "1x1"),
        (replace(CONV, kernel_height=5, kernel_width=5), "large"),
        (replace(CONV, kernel_height=1, kernel_width=7), "large"),
        (replace(CONV, kernel_height=1, kernel_width=7, stride=2), "strided"),
        (replace(CONV, stride=2), "strided"),
        (replace(CONV, channels_in=3), "first"),
        (replace(CONV, groups=64, channels_out=64), "depthwise"),
        (replace(CONV, groups=2), "3x3"),
        (Product("dense", 1, 10, 10), "dense"),
        (Product("attention", 4, 64, 128, height_in=128, height_out=128), "attention"),
    ],
)
def test_kinds_of_layers(product: Product, kind: str) -> None:
    assert kind_of(product) == kind


def test_every_product_has_the_operations_of_its_layer() -> None:
    for model in MODELS.values():
        for row in model.works:
            assert sum(product.flops for product in row.products) == row.forward.flops, (model.name, row.name)


def test_the_time_of_one_layer_in_closed_form() -> None:
    """2 · 128 · 64 · 9 · 56² operations per sample, three times, at 1 TFLOP/s; bytes at 100 GB/s; a launch."""
    flops = 2 * 128 * 64 * 9 * 56 * 56
    layer = LayerWork("conv", 1, 0, Pass(flops, 1000, 50, 1), Pass(2 * flops, 2000, 70, 2), (CONV,))
    expected = 8 * 3 * flops / 1e12 + (8 * 3000 + 120) / 1e11 + 1e-5
    assert gradient_s([layer], EVEN, 8) == pytest.approx(expected, rel=1e-12)
    fills = Filling(56).forward(CONV, 8), *Filling(56).backward(CONV, 8)
    on_units = 8 * flops / 1e12 * sum(1 / fill for fill in fills) + (8 * 3000 + 120) / 1e11 + 1e-5
    assert gradient_s([layer], replace(EVEN, filling=Filling(56)), 8) == pytest.approx(on_units, rel=1e-12)


def test_a_first_layer_has_no_input_gradient() -> None:
    layer = LayerWork("conv", 1, 0, Pass(CONV.flops, 0, 0, 0), Pass(CONV.flops, 0, 0, 0), (CONV,))
    assert gradient_s([layer], EVEN, 4) == pytest.approx(4 * 2 * CONV.flops / 1e12)


# --- launches --------------------------------------------------------------------------------------------------------


def waiting(launch_s: float, *kernels: tuple[int, float], ahead: bool = True) -> tuple[float, float]:
    """Returns the time of (number, seconds) of kernels in a queue, and of the same kernels launched one by one."""
    queue, single = LaunchQueue(launch_s, ahead), LaunchQueue(launch_s, ahead)
    whole = sum(queue.run(number, seconds) for number, seconds in kernels)
    return whole, sum(single.run(1, seconds / number) for number, seconds in kernels for _ in range(number))


def test_launches_behind_long_kernels_are_hidden() -> None:
    """Only the first of 5 launches is exposed."""
    assert waiting(1.0, (3, 12.0), (2, 6.0)) == pytest.approx((1 + 18,) * 2)


def test_launches_of_short_kernels_are_exposed() -> None:
    """The host is busy throughout; the device executes the last kernel after the last launch."""
    assert waiting(4.0, (3, 3.0), (2, 2.0)) == pytest.approx((5 * 4 + 1,) * 2)


def test_a_queue_runs_dry_after_long_kernels() -> None:
    """One kernel of 10 hides 10 launches; of 15 short ones, the last 5 or so wait for the host."""
    assert waiting(1.0, (1, 10.0), (15, 1.5)) == pytest.approx((16 + 0.1,) * 2)
    assert waiting(1.0, (1, 10.0), (3, 0.3)) == pytest.approx((1 + 10.3,) * 2)


def test_a_processor_hides_nothing() -> None:
    assert waiting(1.0, (3, 12.0), (2, 6.0), ahead=False) == pytest.approx((5 + 18,) * 2)


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0.01, 50)), min_size=1, max_size=6), st.floats(0.01, 20))
def test_the_closed_form_of_equal_kernels_is_that_of_single_ones(
    kernels: list[tuple[int, float]], launch: float
) -> None:
    whole, single = waiting(launch, *kernels)
    count, executed = sum(number for number, _ in kernels), sum(seconds for _, seconds in kernels)
    assert whole == pytest.approx(single)
    assert max(executed + launch, count * launch) <= whole * (1 + 1e-9) <= (executed + count * launch) * (1 + 2e-9)


def test_layers_and_kinds_both_add_up_to_the_gradient_where_launches_count() -> None:
    model = MODELS["resnet50"]
    for samples in (1, 4, 64):
        rates = fitting.without().rates(SPECS["a100-sxm4-80"], "fp16", Software("eight", "torch"))
        whole, parts = gradient_s(model.works, rates, samples), kind_times(model.works, rates, samples)
        assert sum(one.seconds for one in parts) == pytest.approx(whole)
        launches = parts[-1]
        assert launches.seconds + launches.hidden_s == pytest.approx(launches.amount * rates.launch_s)
        assert (launches.seconds > launches.hidden_s) == (samples < 64)


def test_own_code_computes_image_by_image() -> None:
    small = replace(CONV, height_in=7, width_in=7, height_out=7, width_out=7)
    assert (
        Filling(56, per_image=True).forward(small, 64) == Filling(56).forward(small, 1) < Filling(56).forward(small, 64)
    )


def test_layers_without_parameters_belong_to_the_one_before() -> None:
    forward, backward = layer_shares(layer_times((THIN, DENSE, THIN, DENSE), EVEN, 32))
    assert len(forward) == len(backward) == 2
    assert sum(forward) + sum(backward) == pytest.approx(1)
    assert forward[0] > forward[1]  # it has both thin ones


@given(st.sampled_from(sorted(SPECS)), st.sampled_from(["fp32", "fp16"]), st.integers(1, 64))
def test_shares_make_one_and_a_larger_batch_takes_longer(name: str, precision: str, samples: int) -> None:
    model = MODELS["googlenet"]
    made = device(SPECS[name], model, precision, samples=samples)
    assert len(made.forward_shares) == len(made.backward_shares) == len(model.layers)
    assert sum(made.forward_shares) + sum(made.backward_shares) == pytest.approx(1, rel=1e-12)
    assert min(*made.forward_shares, *made.backward_shares) > 0
    assert 0 <= made.compute_s(0) < made.compute_s(samples) < made.compute_s(2 * samples)


@given(st.integers(1, 256), st.integers(1, 64))
def test_more_channels_never_take_less_time(channels: int, more: int) -> None:
    def seconds(count: int) -> float:
        product = replace(CONV, channels_out=count)
        layer = LayerWork("conv", 1, 0, Pass(product.flops, 0, 0, 1), Pass(2 * product.flops, 0, 0, 2), (product,))
        return gradient_s([layer], replace(EVEN, filling=Filling(56)), 16)

    assert seconds(channels) <= seconds(channels + more) * (1 + 1e-9)


def test_a_model_without_a_table_is_refused() -> None:
    with pytest.raises(InputError, match="no layer table"):
        device(P100, MODELS["quadratic"])


# --- software and parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "year", "library"),
    [
        ("Caffe native", 2016, "own"),
        ("Torch without cuDNN", 2016, "own"),
        ("cuDNN R2 Torch", 2016, "early"),
        ("cuda-convnet2", 2014, "early"),
        ("cuDNN R4 Torch", 2016, "r4"),
        ("Torch cuDNN 5.0.05", 2016, "five"),
        ("Torch and cuDNN 5.1", 2017, "six"),
        ("TF 1.x tf_cnn_benchmarks", 2017, "six"),
        ("MXNet 1.2 and cuDNN 7", 2018, "seven"),
        ("PyTorch + DALI", 2021, "eight"),
        ("Nervana neon", 2016, "assembler"),
        ("something", None, "eight"),
    ],
)
def test_generations_of_software(words: str, year: int | None, library: str) -> None:
    assert read_software(words, "gpu", year).library == library


def test_processors_have_a_vendors_library_or_own_code() -> None:
    assert read_software("TF1.2 MKL", "cpu", 2017) == Software("vendor", "tensorflow")
    assert read_software("TF1.2 AVX2 (no MKL)", "cpu", 2017).library == "own"


def test_without_any_row_a_parameter_has_its_prior() -> None:
    nothing = Parameters()
    assert nothing.efficiency("1x1", P100, "fp32", Software("six")) == pytest.approx(KIND_PRIORS["1x1"])
    assert nothing.efficiency("1x1", P100, "fp32", Software("own")) == pytest.approx(0.4 * KIND_PRIORS["1x1"])
    assert not nothing.knows(P100)


def test_no_parameter_is_far_from_its_prior() -> None:
    """More than three standard deviations would show a mistake in the data or in the model."""
    with FILE.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            mean, sd = prior(line["parameter"])
            limit = 5 if line["parameter"].startswith(("kind", "launch")) else 3.5
            assert abs(float(line["value"]) - mean) < limit * sd, line


# --- the fit, and how good it is -------------------------------------------------------------------------------------


def test_a_fit_finds_the_parameters_that_the_rows_were_made_with() -> None:
    """Rows predicted by known parameters: the fit predicts the same times, though not each parameter."""
    truth = Parameters({"kind 3x3": math.log(0.9), "kind 1x1": math.log(0.3), "architecture pascal": 0.3})
    rows = []
    for one in fitting.observations()[:40]:
        rates = truth.rates(one.spec, one.precision, one.software)
        rows.append(replace(one, seconds=gradient_s(one.work.works, rates, one.samples)))
    fit = Fit(rows)
    found = fit.predicted_s(fit.parameters())
    assert found == pytest.approx([one.seconds for one in rows], rel=0.05)


def test_refitting_gives_the_stored_parameters() -> None:
    """To two digits: the last ones depend on the linear algebra library."""
    stored, made = (
        {line["parameter"]: float(line["value"]) for line in csv.DictReader(text.splitlines())}
        for text in (FILE.read_text(encoding="utf-8"), fitting.parameters_text())
    )
    assert stored.keys() == made.keys()
    assert stored == pytest.approx(made, abs=0.02)


@pytest.fixture(scope="module")
def unknown() -> list[LeftOut]:
    """Every published row, predicted without any row of its chip."""
    return [row for row in fitting.error_rows() if not row.known]


@pytest.mark.thorough
def test_intervals_contain_70_to_90_per_cent_of_the_rows_of_other_chips(unknown: list[LeftOut]) -> None:
    """The interval for a chip comes from the errors of other chips, each left out of the fit; so it is a real test."""
    chips = [chip_key(one.spec) for one in fitting.observations()]
    inside: dict[str, list[bool]] = defaultdict(list)
    for chip in set(chips):
        others = ranges(row for row, owner in zip(unknown, chips, strict=True) if owner != chip)
        known = {(one.host, one.precision): one for one in others}
        for row, owner in zip(unknown, chips, strict=True):
            if owner == chip:
                one = known[row.host, row.precision]
                inside[chip].append(one.low <= row.error <= one.high)
    assert 0.7 < fmean(hit for hits in inside.values() for hit in hits) < 0.9


@pytest.mark.thorough
def test_a_chip_never_seen_is_missed_by_a_fifth(unknown: list[LeftOut]) -> None:
    """What docs/devices.md says."""
    errors = [abs(math.exp(-row.error) - 1) for row in unknown]
    assert 0.1 < np.median(errors) < 0.2
    assert 0.15 < fmean(errors) < 0.25


def test_a_range_holds_four_fifths_of_the_errors_of_its_kind() -> None:
    """Of 101 even errors; and where a class of precision has few, those of all classes."""
    rows = [LeftOut(host=False, precision="half", known=False, error=number / 100) for number in range(101)]
    few = [LeftOut(host=False, precision="full", known=False, error=9.0)]
    found = {(one.host, one.precision, one.known): one for one in ranges([*rows, *few])}
    half, full = found[False, "half", False], found[False, "full", False]
    assert [half.low, half.high] == pytest.approx([0.1, 0.9]) and half.rows == 101
    assert full.rows == 102 and found.keys() >= {(False, "tensor", False)}


def test_the_stored_error_of_a_chip_is_that_of_its_rows_left_out() -> None:
    chip = chip_key(P100)
    rows = [place for place, one in enumerate(fitting.observations()) if chip_key(one.spec) == chip]
    predicted = fitting.fit().predicted_s(fitting.fit().parameters(rows))
    errors = [abs(fitting.observations()[place].seconds / predicted[place] - 1) for place in rows]
    stored = chip_error(P100)
    assert stored is not None
    assert stored.rows == len(rows) and stored.error == pytest.approx(fmean(errors), abs=0.02)


def test_every_published_row_can_be_read() -> None:
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(fitting.observations()) > 300


def rate(name: str, model: str, batch: int, precision: str) -> float:
    return batch / device(SPECS[name], MODELS[model], precision, samples=batch).compute_s(batch)


def test_generations_of_gpus_in_mixed_precision() -> None:
    """Published: A100 over V100 1.9 to 2.1 with PyTorch and XLA; H100 over A100 1.2 to 1.8."""
    volta, ampere, hopper = (
        rate(name, "resnet50-v1.5", 128, "amp") for name in ("v100-sxm2", "a100-sxm4-80", "h100-sxm5")
    )
    assert 1.8 < ampere / volta < 2.2
    assert 1.2 < hopper / ampere < 1.8


def test_two_precisions_with_the_same_peak_take_the_same_time() -> None:
    for name in ("a100-sxm4-40", "a100-sxm4-80", "h100-sxm5", "b200", "mi300x"):
        assert rate(name, "resnet50-v1.5", 128, "bf16") == rate(name, "resnet50-v1.5", 128, "fp16")


def test_a_transformer_of_a_billion_parameters_reaches_half_of_an_a100s_peak() -> None:
    """LLM Foundry reached 60 % on an A100 and 42 % on an H100 with this shape."""
    model = MODELS["gpt3-xl"]
    reached = {
        name: rate(name, model.name, 8, "bf16") * model.training_flops / SPECS[name].peak("bf16")
        for name in ("a100-sxm4-80", "h100-sxm5")
    }
    assert 0.5 < reached["a100-sxm4-80"] < 0.65
    assert 0.33 < reached["h100-sxm5"] < 0.48


def test_rows_of_new_gpus_in_half_precision_are_predicted_as_the_page_says() -> None:
    """Nine tenths of the transformers within 15 %, of the networks of convolutions within 20 %."""
    fit, rows = fitting.fit(), fitting.observations()
    predicted = fit.predicted_s(fitting.without())
    errors: dict[bool, list[float]] = defaultdict(list)
    for one, seconds in zip(rows, predicted, strict=True):
        transformer = one.work.family == "transformer"
        new = one.spec.name.startswith(("a100", "h100", "v100-sxm2")) and one.precision in ("fp16", "bf16")
        if new and (transformer or one.samples >= 32):
            errors[transformer].append(abs(one.seconds / seconds - 1))
    assert np.quantile(errors[True], 0.9) < 0.15
    assert np.quantile(errors[False], 0.9) < 0.20


def test_a_device_says_what_its_interval_rests_on() -> None:
    assert basis(SPECS["l40s"]).startswith("no published rows; interval -")
    assert re.match(r"\d+ published rows, \d+% off when left out; interval -", basis(SPECS["a100-sxm4-80"]))
    assert chip_error(SPECS["a100-pcie-40"]) == chip_error(SPECS["a100-sxm4-80"])


# --- profiles --------------------------------------------------------------------------------------------------------


def test_a_profile_takes_the_place_of_the_model() -> None:
    made = device(P100, MODELS["resnet50"], profile=[(32, 0.2), (64, 0.3)])
    assert made.compute_s(48) == pytest.approx(0.25)
    assert made.interval is None
    assert made.provenance.startswith("measured at 2 batches")
    assert len(made.forward_shares) == len(MODELS["resnet50"].layers)


# --- in a plan -------------------------------------------------------------------------------------------------------


def test_a_plan_takes_the_devices_shares() -> None:
    (plan, *_) = load("quickstart").plans()
    layers = len(plan.job.learner.layout.layers)
    shares = tuple(0.25 for _ in range(layers)), tuple(0.25 for _ in range(layers))
    made = DeviceModel(name="x", overhead_s=0, per_sample_s=1, forward_shares=shares[0], backward_shares=shares[1])
    nodes = tuple(replace(node, device=made) for node in plan.cluster.nodes)
    assert replace(plan, cluster=replace(plan.cluster, nodes=nodes)).layer_shares() == shares
    assert plan.layer_shares() != shares


def test_devices_of_the_catalogue_have_intervals_and_others_none() -> None:
    assert predicted_times(load("quickstart").plans()[0]) == []
    (one,) = predicted_times(load("dgx1-p100").plans()[0])
    known = one["high_s"] / one["low_s"]
    (other,) = predicted_times(load("fat-tree-1024").plans()[0])
    assert other["device"] == "p100-pcie"
    assert other["high_s"] / other["low_s"] > known > 1  # nothing was published of the PCIe card


def test_a_device_is_a_curve_over_batches() -> None:
    """A small batch fills the device worse, so its samples take longer."""
    made = device(named("v100"), MODELS["resnet50"], samples=64)
    rates = [batch / made.compute_s(batch) for batch in (1, 4, 16, 64)]
    assert rates == sorted(rates)
    assert rates[-1] > 3 * rates[0]


def test_the_session_on_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8")
    (session,) = re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest(session, {}, "devices", "docs/devices.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0
