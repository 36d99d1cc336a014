"""Epochs by batch: the fit, the halves, the published tables, and the figures that predictions state."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records import epoch_errors
from paceline.validation import epochs as stated
from paceline.validation.outcome import CONSTANT, LeftOut, Outcome
from paceline.validation.sets import SETS, epochs, noise_scales, set_named, times
from paceline.validation.support import written

BATCHES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


def run(batch: int, needed: float, **values: Any) -> dict[str, str]:
    """A line of the table of runs: a system that is named by its batch."""
    line = {
        "round": "0.7", "submitter": "us", "system": f"of-{batch}", "benchmark": "resnet", "accelerators": "8",
        "global_batch_size_samples": f"{batch}", "duration_s": f"{1000 + batch + needed}", "status": "success",
        "last_eval_epoch_or_samples": f"{needed}", "last_eval_value": "0.76", "source": f"made up/{batch}",
    }  # fmt: skip
    return line | {name: str(value) for name, value in values.items()}


def by_relation(batch: int) -> float:
    return 40 * (1 + batch / 20000)


def predicted(lines: list[dict[str, str]]) -> list[Outcome | LeftOut]:
    groups, _ = epochs.groups(lines)
    return [row for rows in groups for row in epochs.predict(rows)]


@given(smallest=st.floats(0.1, 1e6), noise_scale=st.floats(10, 1e7), first=st.integers(1, 1000))
def test_a_fit_recovers_the_relation(smallest: float, noise_scale: float, first: int) -> None:
    batches = [first * factor for factor in (1, 10, 100, 1000, 100_000)]
    relation = epochs.fit(batches, [smallest * (1 + batch / noise_scale) for batch in batches])
    for batch in batches:
        assert relation.needed(batch) == pytest.approx(smallest * (1 + batch / noise_scale), rel=1e-6)


def test_a_fit_without_a_smallest_amount_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batches \[1, 10\] need \[1, 20\], found no smallest amount"):
        epochs.fit([1, 10], [1, 20])


def test_epochs_that_follow_the_relation_are_predicted_from_the_other_half() -> None:
    outcomes = predicted([run(batch, by_relation(batch)) for batch in BATCHES])
    assert len(outcomes) == len(BATCHES)
    for outcome in outcomes:
        assert isinstance(outcome, Outcome)
        assert outcome.predicted == pytest.approx(outcome.measured) and outcome.error_of(CONSTANT) != 0


def test_no_batch_is_predicted_from_itself() -> None:
    """Another measurement changes the predictions of the other half, and neither its own nor those of its half."""
    before = predicted([run(batch, by_relation(batch)) for batch in BATCHES])
    after = predicted([run(batch, by_relation(batch) * (1.5 if batch == 8192 else 1)) for batch in BATCHES])
    changed = next(row for row in after if row.name.endswith("batch 8192"))
    assert isinstance(changed, Outcome) and changed.error == pytest.approx(1 / 3)
    for old, new in zip(before, after, strict=True):
        assert isinstance(old, Outcome) and isinstance(new, Outcome)
        assert (old.predicted == pytest.approx(new.predicted)) == (new.half == changed.half)


def test_a_row_counts_once_and_by_its_median() -> None:
    lines = [
        run(512, 40, run=1), run(512, 44, duration_s=7), run(512, 90, duration_s=8),
        run(512, 40, round="1.0"),  # the result of an earlier round, again
        run(512, 10, system="x_open", duration_s=9), run(512, 10, status="aborted", duration_s=10),
        run(512, 20, last_eval_value=0.70, duration_s=11),  # another target
        run(512, 1, duration_s=12),  # a placeholder
    ]  # fmt: skip
    groups, left_out = epochs.groups(lines)
    ((row,),) = groups
    assert (row.needed, row.systems, row.name) == (44, 1, "resnet v0.7 to v1.1, batch 512")
    assert "x_open" in {row.name for row in left_out}


def test_too_few_batches_are_left_out_with_the_reason() -> None:
    rows = predicted([run(batch, by_relation(batch)) for batch in (512, 1024)])
    assert rows and all(isinstance(row, LeftOut) and "a fit takes 3 or more" in row.reason for row in rows)


# --- a measured noise scale


def training(batch: int, samples: list[float], noise_scale: float = 4000, model: str = "cnn") -> list[dict[str, str]]:
    """Evaluations of a training whose metric grows by a tenth after each of the samples."""
    return [
        {
            "model": model, "global_batch_size": f"{batch}", "iteration": f"{count / batch}", "source": "made up",
            "validation_metric": f"{number / 10}", "grad_sqr": "2.0", "grad_var": f"{2.0 * noise_scale / batch}",
        }
        for number, count in enumerate(samples)
    ]  # fmt: skip


def test_larger_batches_are_predicted_from_the_gradients_of_the_smallest() -> None:
    steps = [100 * 1000.0 * number for number in range(1, 12)]
    penalty = (1 + 2000 / 4000) / (1 + 100 / 4000)
    lines = training(100, steps) + training(2000, [penalty * count for count in steps], noise_scale=1)
    groups, left_out = noise_scales.groups(lines)
    ((outcome,),) = [noise_scales.predict(rows) for rows in groups]
    assert isinstance(outcome, Outcome) and not left_out
    assert outcome.predicted == pytest.approx(outcome.measured, rel=1e-3)
    assert outcome.measured == pytest.approx(penalty * outcome.simpler[CONSTANT], rel=1e-3)


def test_a_falling_metric_has_its_target_below() -> None:
    steps = [100 * 1000.0 * number for number in range(1, 12)]
    lines = training(100, steps, model="deepspeech2") + training(200, steps, model="deepspeech2")
    lines = [line | {"validation_metric": str(5 - float(line["validation_metric"]))} for line in lines]
    groups, _ = noise_scales.groups(lines)
    (outcome,) = noise_scales.predict(groups[0])
    assert isinstance(outcome, Outcome) and outcome.measured > steps[5]


def test_few_evaluations_are_left_out() -> None:
    groups, left_out = noise_scales.groups(training(100, [1000.0, 2000.0]))
    assert not groups and left_out[0].name == "cnn"


def test_the_unit_of_measured_noise_scales() -> None:
    """The gain that AdaScale had at a batch is that of the noise scale of the gradients, in samples of the smallest."""
    lines = [line for line in noise_scales.SET.lines() if line["model"] == "imagenet"]
    smallest = min(int(line["global_batch_size"]) for line in lines)
    for batch in {int(line["global_batch_size"]) for line in lines} - {smallest}:
        of_batch = [line for line in lines if int(line["global_batch_size"]) == batch]
        ratios = []
        for before, line in pairwise(of_batch):
            gain = (float(line["progress"]) - float(before["progress"])) / (
                float(line["iteration"]) - float(before["iteration"])
            )
            noise_scale = smallest * float(line["grad_var"]) / float(line["grad_sqr"])
            ratios.append(gain / ((1 + noise_scale / smallest) / (1 + noise_scale / batch)))
        assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1, rel=0.01)


# --- the published tables, and what predictions state


@pytest.mark.parametrize("name", ["epochs", "noise_scales", "times"])
def test_the_rows_of_a_published_table(name: str) -> None:
    outcomes = stated.outcomes_of(set_named(name))
    assert name in SETS and len({row.name for row in outcomes}) == len(outcomes) > 20
    assert all(row.source and math.isfinite(row.predicted) and row.predicted > 0 for row in outcomes)
    assert {row.half for row in outcomes} == {"open", "held back"}


def test_a_time_is_that_of_the_epochs_of_its_batch() -> None:
    outcomes = {row.name: row for row in stated.outcomes_of(times.SET)}
    relation = epochs.published_relations(epochs.LATER)[64800]
    (line,) = [line for line in times.SET.lines() if line["system"] == "dgxa100_n540_ngc21.09_mxnet"]
    expected = relation.needed(64800) * 1_281_167 / float(line[times.RATE])
    assert outcomes["1.1 dgxa100_n540_ngc21.09_mxnet"].predicted == pytest.approx(expected)
    assert not any("_open" in name or name.startswith("0.5") for name in outcomes)


def test_predicted_epochs_and_images_per_second_make_a_time() -> None:
    """A rate that is predicted a quarter too low makes the time a third longer; rows without a rate have no time."""
    outcomes = stated.outcomes_of(times.SET)
    rates = [
        replace(row, set="mlperf", unit="samples/s", measured=4.0, predicted=3.0, assumed=("a cable",))
        for row in outcomes[::2]
    ]
    scaled = times.with_scale_out([*outcomes, *rates])
    assert [row.name for row in scaled] == [row.name for row in outcomes[::2]]
    for before, after in zip(outcomes[::2], scaled, strict=True):
        assert after.predicted == pytest.approx(4 / 3 * before.predicted) and after.measured == before.measured
        assert after.assumed[-1] == "a cable"
    assert f"of {len(scaled)} systems" in times.remark([*outcomes, *rates]) and times.remark(outcomes) == ""


def test_the_stated_figures_are_those_of_the_published_tables() -> None:
    """`python -m paceline.validation.epochs` writes them."""
    assert epoch_errors.RELATION.read_text(encoding="utf-8") == written(stated.relation_errors())
    assert epoch_errors.SPREADS.read_text(encoding="utf-8") == written(stated.run_spreads(epochs.SET.lines()))


def test_a_spread_is_that_of_runs_around_the_mean_without_them() -> None:
    lines = [run(512, 40, duration_s=seconds) for seconds in (90, 110, 95, 105)]
    spread, other = stated.run_spreads(lines)
    assert (spread.benchmark, spread.runs, spread.systems) == ("resnet", 4, 1)
    # 80 % of 0.9, 0.95, 1.05, 1.1, interpolated, times √(4/3) around 1
    assert spread.low == pytest.approx(1 - 0.085 * math.sqrt(4 / 3))
    assert spread.high == pytest.approx(1 + 0.085 * math.sqrt(4 / 3)) and other.high == spread.high


def test_the_tables_are_in_the_package() -> None:
    for known in (epochs.SET, noise_scales.SET, times.SET):
        assert (Path(epochs.__file__).parent.parent / "data" / known.file).is_file()
