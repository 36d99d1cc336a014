"""The sources of errors: simulated runs against the same runs with changed costs, whose cause is known."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.algorithms import METHODS
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.records.summary import Kind
from paceline.records.tables import frame
from paceline.records.trace import Schedule
from paceline.reports.attribution.error_sources import ErrorSources, error_sources
from paceline.reports.attribution.timeline import from_tables, from_trace
from paceline.reports.attribution.variation import MeanStep, VariationWaiting
from paceline.reports.comparison.comparison import assemble
from paceline.reports.comparison.error_table import describe_error, error_tables
from paceline.reports.text import as_text
from paceline.simulator.interpreter.interpreter import simulate_job
from tests.clusters import fixed_costs
from tests.support import FixedTiming, job_of

WORKERS, STEPS = 3, 30


def compute_s(rank: int, step: int) -> float:
    """Rank 0 takes 10 ms, the others a millisecond more each; every third step of a rank takes a millisecond more."""
    return 0.010 + 0.001 * rank + 0.001 * ((step + rank) % 3 == 0)


def run(
    method: str,
    kind: Kind,
    *,
    compute: Callable[[int, int], float] = compute_s,
    work: float = 0.001,
    rest: float = 0.0005,
    collective_s: float = 0.002,
    message_s: float = 0.001,
    seed: int = 1,
) -> Run:
    """Simulates a method with these costs; a "measured" run is one with this label."""
    job = job_of(METHODS[method](), WORKERS, steps=STEPS, seed=seed)
    timing = FixedTiming(compute=compute, work=work, rest=rest)
    network = fixed_costs(collective_s=collective_s, message_s=message_s)
    trace = simulate_job(job, timing, network, Schedule(every=1000))
    return Run.of(trace, job=job, kind=kind, scenario={"name": "pair"}, name="pair")


def found_of(method: str, **changed: Any) -> ErrorSources:
    found = error_sources([run(method, "simulated")], [run(method, "measured", **changed)])
    assert found is not None
    return found


def slower(rank: int, factor: float, steps: Callable[[int], bool] = lambda _: True) -> Callable[[int, int], float]:
    """The gradients of a rank, or with −1 of all ranks, take longer in some steps."""
    return lambda one, step: compute_s(one, step) * (factor if rank in (one, -1) and steps(step) else 1.0)


def shares(found: ErrorSources) -> dict[str, float]:
    return {name: part.share or 0.0 for name, part in found.activities.items()}


COLLECTIVES = ("sync-sgd", "layerwise-sgd", "agd", "hbs-sgd", "sync-easgd3")
MESSAGES = ("async-sgd", "easgd", "ad-psgd", "ssp")
"""methods of both kinds: synchronous, overlapping, periodic, with a server and without"""
TOLERANCE = 0.1
"""the largest share that is not attributed to the change: the steps also interleave differently"""


@pytest.mark.parametrize("method", [*COLLECTIVES, *MESSAGES])
def test_slow_gradients_of_one_rank(method: str) -> None:
    found = found_of(method, compute=slower(2, 1.2))
    (cause,) = found.causes
    assert cause.activity == "compute"
    assert cause.ranks == (2,)
    assert cause.when == "in all steps"
    assert cause.own.measured_s == pytest.approx(1.2 * cause.own.predicted_s)
    assert shares(found)["compute"] == pytest.approx(1.0, abs=TOLERANCE)


def test_the_sentence_names_what_to_calibrate() -> None:
    found = found_of("sync-sgd", compute=slower(2, 1.2))
    words = describe_error("sync-sgd", found)
    mean_ms = 1e3 * statistics.fmean(compute_s(2, one.step) for one in found.alignment.steps if one.rank == 2)
    figures = f"(predicted {mean_ms:.3g} ms, measured {1.2 * mean_ms:.3g} ms)"
    assert f"100 % of the difference is compute on rank 2 in all steps {figures}" in words
    assert "calibrate gradient times, with as many ranks" in words
    assert "(`paceline calibrate` measures this as gradients)." in words


@pytest.mark.parametrize("method", ["sync-sgd", "layerwise-sgd", "hbs-sgd"])
def test_slow_collectives(method: str) -> None:
    found = found_of(method, collective_s=0.005)
    (cause,) = found.causes
    assert (cause.activity, cause.ranks) == ("collective", ())
    assert shares(found)["collective"] == pytest.approx(1.0, abs=TOLERANCE)
    assert cause.own.measured_s == pytest.approx(2.5 * cause.own.predicted_s)


@pytest.mark.parametrize("method", MESSAGES)
def test_slow_messages(method: str) -> None:
    found = found_of(method, message_s=0.004)
    assert [cause.activity for cause in found.causes] == ["receive"]
    assert shares(found)["receive"] == pytest.approx(1.0, abs=TOLERANCE)


def test_a_slow_server() -> None:
    found = found_of("async-sgd", work=0.004)
    (cause,) = found.causes
    assert (cause.activity, cause.ranks) == ("server", (WORKERS,))
    assert cause.own.measured_s > 2 * cause.own.predicted_s
    assert "the server in all steps" in describe_error("async-sgd", found)


def test_slow_updates_of_workers() -> None:
    (cause,) = found_of("sync-sgd", work=0.003).causes
    assert (cause.activity, cause.ranks) == ("update", ())
    assert (cause.own.predicted_s, cause.own.measured_s) == pytest.approx((0.001, 0.003))


@pytest.mark.parametrize("method", [*COLLECTIVES, *MESSAGES])
def test_time_between_operations(method: str) -> None:
    """Also while a collective is pending that the program has started and does not wait for yet."""
    found = found_of(method, rest=0.003)
    assert [cause.activity for cause in found.causes] == ["unrecorded"]
    assert shares(found)["unrecorded"] == pytest.approx(1.0, abs=TOLERANCE)


def test_time_between_operations_of_all_ranks() -> None:
    (cause,) = found_of("sync-sgd", rest=0.002).causes
    assert (cause.activity, cause.ranks) == ("unrecorded", ())
    assert (cause.own.predicted_s, cause.own.measured_s) == pytest.approx((0.0005, 0.002))


def test_a_warm_up() -> None:
    found = found_of("sync-sgd", compute=slower(-1, 4.0, lambda step: step < 3))
    (cause,) = found.causes
    assert (cause.activity, cause.ranks, cause.when) == ("compute", (), "in the first 3 steps")
    assert found.phases["first"].share == pytest.approx(1.0)
    assert found.phases["steady"].difference_s == pytest.approx(0.0)


def test_rare_long_steps() -> None:
    found = found_of("sync-sgd", compute=slower(1, 10.0, lambda step: step in (11, 17)))
    (cause,) = found.causes
    assert (cause.activity, cause.ranks) == ("compute", (1,))
    assert cause.when == "in 2 long steps of 29"
    assert (found.long_steps.predicted, found.long_steps.measured) == (0, 2 * WORKERS)
    assert "compute on rank 1 in 2 long steps of 29" in describe_error("sync-sgd", found)


def test_a_wider_spread_of_steps_is_waiting() -> None:
    """The mean of every rank's gradients is the same, but another rank is the slowest in each step."""
    turns = [0.004, -0.002, -0.002]
    found = found_of("sync-sgd", compute=lambda rank, step: compute_s(rank, step) + turns[(step + rank) % 3])
    assert found.causes[0].activity == "wait"
    assert "calibrate the spread of step times" in describe_error("sync-sgd", found)


def test_a_small_error_has_no_cause_in_words_and_no_table() -> None:
    found = found_of("sync-sgd", compute=slower(2, 1.01))
    words = describe_error("sync-sgd", found)
    assert f"No activity differs by more than {-1e3 * found.whole.difference_s:.3g} ms (compute)." in words
    assert "calibrate" not in words
    text = printed(found)
    assert "No activity differs" in text and "activity  " not in text


def test_equal_runs_have_no_difference() -> None:
    found = found_of("async-sgd")
    assert found.whole.difference_s == 0
    assert found.causes == ()
    assert all(part.share is None for part in found.activities.values())


def test_two_causes_and_one_that_compensates() -> None:
    found = found_of("sync-sgd", compute=slower(2, 1.5), work=0.004, collective_s=0.001)
    assert [cause.activity for cause in found.causes] == ["compute", "update"]
    assert shares(found)["collective"] == pytest.approx(-1 / (1e3 * -found.whole.difference_s))
    assert "compensate a part of this: collectives (1 ms)" in describe_error("sync-sgd", found)


def test_steps_of_one_side_only_are_reported_apart() -> None:
    found = found_of("async-sgd", compute=slower(-1, 3.0, lambda step: step < 4))
    aligned = found.alignment
    assert len(aligned.steps) <= min(aligned.predicted_steps, aligned.measured_steps)
    whole_s = aligned.predicted_s - aligned.measured_s
    assert found.whole.difference_s + found.unaligned_s == pytest.approx(whole_s)


def test_all_steps_are_those_of_the_summary() -> None:
    ours, theirs = run("async-sgd", "simulated"), run("async-sgd", "measured", message_s=0.003)
    found = error_sources([ours], [theirs])
    assert found is not None
    assert found.alignment.predicted_s == pytest.approx(ours.summary["step_s"]["mean"])
    assert found.alignment.measured_s == pytest.approx(theirs.summary["step_s"]["mean"])


def test_seeds_have_the_same_weight_and_an_interval() -> None:
    ours = [run("sync-sgd", "simulated", seed=seed) for seed in (1, 2, 3)]
    theirs = [run("sync-sgd", "measured", seed=seed, compute=slower(0, 1 + seed / 2)) for seed in (3, 1, 2)]
    found = error_sources(ours, theirs)
    assert found is not None
    alone = [error_sources([one], [next(run for run in theirs if run.seed == one.seed)]) for one in ours]
    means = [one.whole.difference_s for one in alone if one is not None]
    assert found.whole.difference_s == pytest.approx(sum(means) / 3)
    assert found.interval_s is not None
    assert found.interval_s["low"] < found.whole.difference_s < found.interval_s["high"]


def test_differences_within_the_noise_of_seeds() -> None:
    """One seed is 20 % faster and the others are slower, so that the interval of the mean difference contains 0."""
    factors = {1: 0.8, 2: 1.15, 3: 1.25}
    ours = [run("sync-sgd", "simulated", seed=seed) for seed in factors]
    theirs = [run("sync-sgd", "measured", seed=seed, compute=slower(-1, by)) for seed, by in factors.items()]
    found = error_sources(ours, theirs)
    assert found is not None
    assert "The seeds do not distinguish the difference from chance (95 % interval -" in describe_error("a", found)
    sure = error_sources(ours, [run("sync-sgd", "measured", seed=seed, message_s=0.0, work=0.003) for seed in factors])
    assert sure is not None
    assert "chance" not in describe_error("a", sure)


def stored_again(one: Run, out: Path) -> Run:
    path = save(one, out).path
    assert path is not None
    return read_run(path)


def test_stored_runs_are_divided_like_runs_in_memory(tmp_path: Path) -> None:
    for method in ("sync-sgd", "async-sgd", "easgd", "agd", "layerwise-sgd", "hbs-sgd"):
        ours, theirs = run(method, "simulated"), run(method, "measured", compute=slower(2, 1.2), message_s=0.002)
        stored = stored_again(theirs, tmp_path)
        assert theirs.trace is not None and stored.trace is None
        in_memory = [activity._replace(span=None) for activity in from_trace(theirs.trace)]
        assert sorted(from_tables(stored.tables), key=repr) == sorted(in_memory, key=repr), method
        found, again = error_sources([ours], [theirs]), error_sources([ours], [stored])
        assert found is not None and again is not None
        assert again.alignment.traced and again.record() == found.record(), method


def test_runs_that_were_stored_without_transfers_have_waits_without_causes(tmp_path: Path) -> None:
    """Runs of earlier versions: they can be read, but waits are not followed on either side."""
    ours, theirs = run("sync-sgd", "simulated"), run("sync-sgd", "measured", compute=slower(2, 1.2))
    before = dataclasses.replace(theirs, tables=dataclasses.replace(theirs.tables, transfers=frame("transfers", ())))
    stored = stored_again(before, tmp_path)
    assert not list(tmp_path.glob("*/transfers.parquet"))
    found = error_sources([ours], [stored])
    assert found is not None
    assert not found.alignment.traced
    assert shares(found)["compute"] == pytest.approx(1 / 3, abs=0.1)
    assert shares(found)["compute"] + shares(found)["wait"] == pytest.approx(1.0)
    assert "a stored run does not contain for which rank" in describe_error("sync-sgd", found)


def test_runs_without_common_steps() -> None:
    assert error_sources([run("sync-sgd", "simulated", seed=1)], [run("sync-sgd", "measured", seed=2)]) is None


def comparison(variation: VariationWaiting | None = None, **changed: Any) -> dict[str, Any]:
    ours, theirs = run("sync-sgd", "simulated"), run("sync-sgd", "measured", **changed)
    wrong = {"no_message_cost": [ours], "no_spread": [ours]}
    known = {} if variation is None else {"sync-sgd": variation}
    found = assemble("pair", simulated=[ours], measured=[theirs], wrong=wrong, other_load=0.0, variation=known)
    answer: dict[str, Any] = json.loads(json.dumps(found.document(), allow_nan=False))["algorithms"][0]["explanation"]
    return answer


def test_the_answer_has_an_explanation() -> None:
    answer = comparison(compute=slower(2, 1.2))
    assert answer["causes"][0]["activity"] == "compute"
    assert answer["causes"][0]["ranks"] == [2]
    assert sum(one["share"] for one in answer["activities"]) == pytest.approx(1.0)
    assert sum(one["share"] for one in answer["phases"]) == pytest.approx(1.0)
    assert sum(one["difference_s"] for one in answer["sources"]) == pytest.approx(answer["step_s"]["difference_s"])
    assert answer["words"].startswith("sync-sgd: predicted ")
    assert comparison()["causes"] == [], "without a difference it is valid JSON, too"


VARIATION = VariationWaiting(
    MeanStep(0.020, 0.004),
    {"persistent": MeanStep(0.017, 0.001), "noise": MeanStep(0.019, 0.003)},
    MeanStep(0.016, 0.0),
)
"""lasting differences make three quarters of a predicted waiting of 4 ms, noise a quarter"""


def test_the_parts_of_the_predicted_waiting_are_related_to_the_measured_waiting() -> None:
    """Rank 2 takes 2.4 ms longer than predicted, so the two others wait for it so much longer."""
    as_predicted, answer = comparison(VARIATION), comparison(VARIATION, compute=slower(2, 1.2))
    measured_s = answer["waiting"]["measured_s"]
    assert as_predicted["waiting"]["measured_s"] == pytest.approx(answer["waiting"]["predicted_s"])
    longer_s = 0.2 * statistics.fmean(compute_s(2, step) for step in range(STEPS - 1))
    assert measured_s - answer["waiting"]["predicted_s"] == pytest.approx(2 / 3 * longer_s, rel=0.05)
    parts = {part["part"]: part for part in answer["variation"]["parts"]}
    assert {name: part["share"] for name, part in parts.items()} == pytest.approx({"persistent": 0.75, "noise": 0.25})
    beside = {name: part["share_of_measured"] for name, part in parts.items()}
    assert beside == pytest.approx({"persistent": 0.003 / measured_s, "noise": 0.001 / measured_s})
    words = answer["variation"]["words"]
    assert "sync-sgd is predicted to wait 4 ms of a step" in words
    assert f"75 % ({100 * beside['persistent']:.0f} % of the measured) comes from lasting differences" in words
    assert comparison()["variation"] is None, "nobody has asked"


def test_the_table_has_a_row_for_each_part() -> None:
    text = as_text(error_tables("sync-sgd", found_of("sync-sgd"), VARIATION), width=80)
    rows = {line[:37].strip(): line[37:].split() for line in text.splitlines()}
    assert rows["lasting differences between workers"][:2] == ["1", "75"]
    assert rows["noise of single steps"][:2] == ["3", "25"]
    assert rows["any variation"][:2] == ["0", "100"]
    assert all(len(line) <= 80 for line in text.splitlines())


def printed(found: ErrorSources) -> str:
    return as_text(error_tables("sync-sgd", found), width=80)


def test_tables_of_a_large_error() -> None:
    text = printed(found_of("sync-sgd", compute=slower(2, 1.2)))
    assert all(len(line) <= 80 for line in text.splitlines())
    row = next(line for line in text.splitlines() if line.strip().startswith("compute"))
    assert row.split()[-1] == "100"
    assert "rank 2" in text
    assert "first (9)" in text
