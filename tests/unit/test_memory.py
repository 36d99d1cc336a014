"""Memory as a limit, memory that spills, and a chip partitioned into groups."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.scenarios import Scenario
from paceline.scenarios.sections.fitted_devices import published_model
from paceline.topologies.catalogue.device_catalogue import DATA, SPECS
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute.chip_groups import partitioned
from paceline.topologies.compute.device_model import device
from paceline.topologies.compute.model_work import Mode, check_fits, footprint, sustained_bytes_per_s
from paceline.topologies.compute.scaling import Efficiency, scaling_of
from paceline.workloads import MODELS, find_model

ROOT = Path(__file__).parents[2]
KNL = SPECS["knl-7250"]
ALEXNET = MODELS["alexnet"]
MODES = st.sampled_from(["flat", "cache"])


# --- what fits -------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_footprint() -> None:
    """VGG-19: 575 MB of weights (SC'17), as much again for gradients and momentum."""
    single = footprint(SPECS["p100-sxm2"], MODELS["vgg19"])
    assert single.weights_bytes == single.gradients_bytes == single.optimizer_bytes == 4 * 143_667_240
    assert footprint(SPECS["p100-sxm2"], MODELS["vgg19"], optimizer_copies=0).optimizer_bytes == 0
    half = footprint(SPECS["p100-sxm2"], MODELS["vgg19"], "amp")
    assert half.weights_bytes == 6 * 143_667_240
    assert half.activation_bytes == single.activation_bytes / 2


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(InputError) as caught:
        check_fits(named("p100"), MODELS["vgg16"], samples=256)
    found = re.fullmatch(
        r"vgg16 with 256 samples needs (\S+) GB of 16 GB on p100-sxm2: (\S+) GB too much; "
        r"the largest batch that fits is (\d+)",
        str(caught.value),
    )
    assert found
    assert float(found[1]) - 16 == pytest.approx(float(found[2]), abs=0.1)
    most = int(found[3])
    check_fits(named("p100"), MODELS["vgg16"], samples=most)
    with pytest.raises(InputError):
        check_fits(named("p100"), MODELS["vgg16"], samples=most + 1)


@given(
    st.sampled_from(["k20", "p100-sxm2", "v100-sxm2", "a100-sxm4-40"]), st.sampled_from(["vgg16", "resnet50", "lenet"])
)
def test_the_largest_batch_is_the_largest(name: str, model: str) -> None:
    spec = SPECS[name]
    wanted = footprint(spec, MODELS[model])
    most = wanted.largest_batch(spec.memory_bytes or 0)
    assert wanted.needed_bytes(most) <= (spec.memory_bytes or 0) < wanted.needed_bytes(most + 1)


def test_a_model_too_large_for_one_sample() -> None:
    with pytest.raises(InputError, match="not even one sample fits"):
        check_fits(replace(SPECS["k20"], memory_bytes=1e9), MODELS["vgg19"], samples=1)


def test_the_device_model_refuses_what_does_not_fit() -> None:
    with pytest.raises(InputError, match="too much"):
        device(named("k20"), MODELS["resnet152"], samples=64)
    assert device(named("xeon-e5-2670"), MODELS["resnet152"], samples=4096).compute_s(4096) > 0


def test_everything_that_was_published_on_one_device_fits() -> None:
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if "share the weights" in line["source"] or "one of" in line["source"] or " chips" in line["source"]:
                continue  # a device holds a part of the weights and their state
            model = published_model(line["model"])
            check_fits(named(line["device"]), model, line["precision"], int(line["batch"]))


# --- what spills -----------------------------------------------------------------------------------------------------


@given(st.floats(0, 100e9), st.floats(0, 100e9), MODES)
def test_more_bytes_are_never_faster(some: float, others: float, mode: Mode) -> None:
    few, many = sorted((some, others))
    fast, slow = (sustained_bytes_per_s(KNL, needed, mode) for needed in (few, many))
    assert slow <= fast
    assert 70e9 < slow <= fast <= 480e9


def test_both_modes_have_mcdrams_speed_while_it_suffices() -> None:
    assert sustained_bytes_per_s(KNL, 16e9) == sustained_bytes_per_s(KNL, 16e9, "cache") == 480e9
    assert sustained_bytes_per_s(KNL, 24e9, "cache") < sustained_bytes_per_s(KNL, 24e9)
    assert sustained_bytes_per_s(SPECS["k20"], 100e9) == SPECS["k20"].sustained_bytes_per_s


def test_a_batch_that_spills_is_slower_for_it() -> None:
    """ResNet-152 with 64 samples needs 12 GB, with 256 more than MCDRAM has; only memory-bound work gets slower."""
    per_sample = {
        batch: device(KNL, MODELS["resnet152"], samples=batch).compute_s(batch) / batch for batch in (64, 256)
    }
    assert per_sample[256] > 1.05 * per_sample[64]


# --- one chip in groups ----------------------------------------------------------------------------------------------


def test_one_group_is_the_whole_chip_but_for_the_exchange() -> None:
    whole = device(KNL, ALEXNET, samples=256, optimizer_copies=0)
    assert partitioned(KNL, ALEXNET, 1, samples=256).compute_s == pytest.approx(whole.compute_s(256), rel=1e-9)


def test_scaling_meets_both_figures_that_it_is_made_of() -> None:
    scaling = scaling_of(KNL, Efficiency(0.3, ""))
    assert scaling.efficiency(1) == pytest.approx(4.56 / 6.09)
    assert scaling.efficiency(68) == pytest.approx(0.3)
    assert scaling_of(KNL, Efficiency(0.9, "")).loss == 0


def test_cores_come_in_tiles() -> None:
    assert [partitioned(KNL, ALEXNET, groups, samples=256).cores for groups in (1, 2, 4, 8, 16, 32)] == [
        68,
        34,
        16,
        8,
        4,
        2,
    ]
    for groups in (0, 35):
        with pytest.raises(InputError, match="1 to 34"):
            partitioned(KNL, ALEXNET, groups, samples=256)
    with pytest.raises(InputError, match="expected a many-core chip"):
        partitioned(SPECS["k80"], ALEXNET, 2, samples=256)


@given(st.integers(1, 34), st.integers(32, 512), MODES)
def test_copies_cost_memory_and_exchange(groups: int, samples: int, mode: Mode) -> None:
    one, many = (partitioned(KNL, ALEXNET, count, samples=samples, mode=mode) for count in (1, groups))
    assert many.needed_bytes - one.needed_bytes == pytest.approx((groups - 1) * 2 * 4 * ALEXNET.parameters)
    assert many.exchange_s >= one.exchange_s


def test_a_small_model_gains_until_its_tiles_run_out() -> None:
    """LeNet's copies never leave MCDRAM."""
    steps = [partitioned(KNL, MODELS["lenet"], groups, samples=1024) for groups in (1, 4, 16)]
    assert all(step.bytes_per_s == 480e9 for step in steps)


def test_copies_that_overflow_even_ddr_are_refused() -> None:
    with pytest.raises(InputError, match=r"32 groups of vgg19 need \S+ GB of 112 GB"):
        partitioned(KNL, MODELS["vgg19"], 32, samples=256, data_bytes=4e9)


def test_groups_of_alexnet_gain_until_what_a_step_touches_leaves_mcdram() -> None:
    """The table of docs/devices.md, beside SC'17: 1605 s as one group and 1025 s in four."""
    page = (ROOT / "docs/devices.md").read_text(encoding="utf-8")
    parts = {
        groups: partitioned(KNL, ALEXNET, groups, samples=256, data_bytes=687e6, mode="flat")
        for groups in (1, 2, 4, 8, 16, 32)
    }
    speedup = {groups: parts[1].step_s / part.step_s for groups, part in parts.items()}
    for groups, part in parts.items():
        published = f"1.57 | {100 * (speedup[4] / (1605 / 1025) - 1):.0f} % |" if groups == 4 else "| |"
        sizes = f"{part.touched_bytes / 1e9:.1f} | {part.needed_bytes / 1e9:.1f}"
        assert f"| {groups} | {speedup[groups]:.2f} | {published} {sizes} |" in page
    assert speedup[1] < speedup[2] < speedup[4] < speedup[8]
    assert speedup[32] < speedup[16], "the cliff"
    assert [part.touched_bytes <= (KNL.memory_bytes or 0) for part in parts.values()] == [True] * 5 + [False]


@given(st.integers(1, 34), st.floats(0, 2e9), MODES)
def test_data_that_a_step_does_not_draw_cost_no_time(groups: int, data_bytes: float, mode: Mode) -> None:
    without, beside = (
        partitioned(KNL, ALEXNET, groups, samples=256, data_bytes=size, mode=mode) for size in (0.0, data_bytes)
    )
    assert (beside.step_s, beside.touched_bytes) == (without.step_s, without.touched_bytes)
    assert beside.needed_bytes == pytest.approx(without.needed_bytes + groups * data_bytes)


# --- groups in a scenario: `cluster.nodes[].groups` -------------------------------------------------------------------


def chip(**node: Any) -> Scenario:
    """A Knights Landing chip that computes AlexNet's batch of 256."""
    return paceline.load(
        {
            "name": "chip",
            "algorithms": ["chip-partitioned-sgd"],
            "workload": {"model": "alexnet", "learning": "none", "batch_per_worker": 256},
            "cluster": {"nodes": [{"device": "knl-7250", **node}]},
            "stop": {"updates": 2},
        }
    )


@pytest.mark.parametrize("mode", ["flat", "cache"])
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_a_group_takes_the_time_of_the_closed_form(groups: int, mode: Any) -> None:
    """The data of 16 groups fit into MCDRAM no longer; what a step touches does."""
    scenario = chip(groups={"count": groups, "data": "687 MB", "memory_mode": mode})
    (plan,) = scenario.plans()
    whole = partitioned(
        SPECS["knl-7250"],
        find_model("alexnet"),
        groups,
        samples=256,
        data_bytes=687e6,
        optimizer_copies=1,
        mode=mode,
    )
    device = plan.cluster.nodes[0].device
    assert plan.job.workers == groups
    assert device.compute_s(256 // groups) == pytest.approx(whole.compute_s, rel=1e-12)
    assert device.rates is not None
    assert device.rates.bytes_per_s(1e9) == pytest.approx(whole.bytes_per_s / groups)
    assert (whole.needed_bytes > 16e9) == (groups == 16) and whole.touched_bytes < 16e9


def test_more_images_than_mcdram_holds_slow_the_groups_and_more_data_do_not() -> None:
    """The activations of 4096 images need 19 GB."""

    def per_image_s(data: str, batch: int) -> float:
        scenario = paceline.load(
            chip(groups={"count": 16, "data": data, "memory_mode": "cache"}), [f"workload.batch_per_worker={batch}"]
        )
        return scenario.plans()[0].cluster.nodes[0].device.compute_s(batch // 16) / batch

    assert per_image_s("2 GB", 256) == per_image_s("1 MB", 256)
    assert per_image_s("1 MB", 4096) > 1.02 * per_image_s("1 MB", 2048)


def test_groups_share_the_memory_of_their_chip() -> None:
    (plan,) = chip(groups={"count": 4}).plans()
    rates = plan.cluster.nodes[0].host_rates
    assert rates is not None
    assert rates.total_bytes_per_s == KNL.sustained_bytes_per_s
    assert rates.bytes_per_s(1e9) == KNL.core_bytes_per_s


def test_a_scenario_with_groups_comes_back_from_its_record() -> None:
    scenario = chip(groups={"count": 4, "data": "687 MB", "memory_mode": "cache"})
    assert paceline.load(scenario.dump()) == scenario


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"groups": {"count": 35}}, r"groups.count: found 35, expected 1 to 34, the tiles of knl-7250"),
        ({"groups": {"count": 4}, "device": "p100"}, r"groups.count: p100-sxm2: found a gpu to divide into groups"),
        ({"groups": {"count": 4}, "workers_per_node": 2}, r"workers_per_node: found beside groups; expected one of"),
        ({"groups": {"count": 4, "memory_mode": "hot"}}, r"groups.memory_mode: found 'hot', expected .*flat"),
        ({"groups": {"count": 32, "data": "4 GB"}}, r"32 groups of alexnet need .* GB too much"),
        (
            {"groups": {"count": 2}, "device": {"name": "own", "overhead": "1 ms", "per_sample": "1 ms"}},
            r"device: found .*expected a many-core chip",
        ),
    ],
)
def test_mistakes_in_groups_are_told(node: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        chip(**node).plans()
