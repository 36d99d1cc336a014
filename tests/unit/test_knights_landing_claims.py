"""What the claims of SC'17 on Knights Landing and on one K20 are computed from."""

from __future__ import annotations

import math

import pytest

from paceline.papers.claim import Given, inputs_of
from paceline.papers.sc17 import knl
from paceline.topologies.catalogue.device_catalogue import SPECS

CLAIMS = {claim.name: claim for claim in knl.CLAIMS}


def given(name: str, **changes: str) -> Given:
    """The most plausible inputs of a claim with some of them changed."""
    made = CLAIMS[f"sc17-{name}"].given(inputs_of("sc17"), quick=True)
    for key, value in changes.items():
        made = made.with_value(key.replace("_", "-"), value)
    return made


def efficiency(**changes: str) -> float:
    return knl.efficiency("googlenet", given("knl-weak-scaling", **{"knl_batch": "64", **changes}), nodes=4)


def test_more_jitter_and_slower_reductions_cost_efficiency() -> None:
    base = efficiency(knl_jitter="0.0015", knl_mpi_cores="68")
    assert 90 < base <= 101
    assert efficiency(knl_jitter="0.2", knl_mpi_cores="68") < base
    assert efficiency(knl_jitter="0.0015", knl_mpi_cores="1") < base
    assert efficiency(knl_jitter="0.0015", knl_mpi_cores="1", knl_core_rate="5") < efficiency(
        knl_jitter="0.0015", knl_mpi_cores="1", knl_core_rate="12"
    )


def test_overlap_hides_communication() -> None:
    assert efficiency(knl_overlap="no") < efficiency(knl_overlap="yes")


def test_more_communication_for_a_step_costs_efficiency() -> None:
    """VGG-19 has twenty times the weights of GoogLeNet, and twelve times its operations."""
    made = given("knl-vgg-weak-scaling", knl_vgg_batch="64")
    assert knl.efficiency("vgg19", made, nodes=4) < efficiency()


def test_seventeen_copies_of_weights_and_data_fit() -> None:
    """17 · (249.5 + 687) MB are 15.9 GB."""
    assert knl.copies_in_mcdram(given("knl-copies")) == math.floor(16e9 / (4 * 62_378_344 + 687e6)) == 17


@pytest.mark.parametrize("batch", ["8", "16"])
def test_batches_of_their_own_save_steps_but_not_in_proportion(batch: str) -> None:
    """Four times the images in a step need fewer steps, at most by a factor of about four."""
    made = given("knl-groups", groups_stand_in_batch=batch)
    ratios = [
        knl.steps_to_accuracy(one, 1) / knl.steps_to_accuracy(one, 4)
        for one in (Given(made.values, seed=seed) for seed in (1, 2, 3))
    ]
    assert 1.0 < sum(ratios) / 3 < 4.5


def test_groups_that_divide_one_batch_need_the_steps_of_one() -> None:
    made = given("knl-groups", groups_draw="part")
    assert knl.steps_to_accuracy(made, 4) == knl.steps_to_accuracy(made, 1)
    assert knl.four_groups(made) > 1.0


def test_an_accuracy_that_is_not_reached_counts_as_the_end_of_the_training() -> None:
    made = given("knl-groups", groups_accuracy="0.9999").only(
        "groups-stand-in", "groups-stand-in-batch", "groups-accuracy"
    )
    assert knl._steps_at(made, 1, 1e-6) == knl.MOST_EPOCHS * knl.DIGITS / 16


def test_days_are_epochs_times_images_times_seconds() -> None:
    days = knl.days_on_a_k20(given("k20-days", k20_rate="measured", k20_clock_of_k40="875 MHz"))
    k40_s = 72 * 1281167 * 1.6888 / 128
    assert days * 86400 / k40_s == pytest.approx(SPECS["k40"].peak("fp32") / SPECS["k20"].peak("fp32"), rel=0.25)
    slower = knl.days_on_a_k20(given("k20-days", k20_rate="measured", k20_clock_of_k40="745 MHz"))
    assert slower == pytest.approx(days * 745 / 875)
    assert knl.days_on_a_k20(given("k20-days", k20_rate="own")) > knl.days_on_a_k20(given("k20-days", k20_rate="early"))
