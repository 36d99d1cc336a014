"""Runs that end before the longest period of their method, and which runs are compared at equal figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from paceline.algorithms import METHODS
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.operations import AllReduce
from paceline.algorithms.methods.async_elastic import Eamsgd
from paceline.algorithms.methods.layerwise import Agd
from paceline.algorithms.methods.local_sgd import DiLoCo, PostLocalSgd, SlowMo
from paceline.algorithms.methods.periodic import HbsSgd, KAvg, Sasgd
from paceline.algorithms.methods.ssp import Downpour
from paceline.checking.anyorder import AnyOrder
from paceline.records import Run
from paceline.records.trace import Schedule
from paceline.reports.comparison.comparison import assemble
from paceline.reports.comparison.conclusion import conclusion
from paceline.reports.comparison.predict import WRONG_MODELS
from paceline.reports.comparison.ranking import say_unfinished_runs, soonest
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_answer import charts, means_table
from paceline.reports.sweeps.sweep_table import SweepTable, tabulate
from paceline.reports.sweeps.sweep_words import sweep_words
from paceline.reports.text import as_text
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.network.network import NoCost
from tests.backend.jobs import run_for_real
from tests.made_up import run
from tests.support import FixedTiming, job_of

AVERAGES: list[Method] = [
    HbsSgd(k1=2, k2=4),
    KAvg(k=3),
    KAvg(k=3, phase=1),
    Sasgd(period=3),
    SlowMo(period=3),
    DiLoCo(period=3),
    PostLocalSgd(switch=2, period=3),
]


@pytest.mark.parametrize("method", AVERAGES, ids=repr)
def test_the_longest_period_ends_with_an_average_of_everyone(method: Method) -> None:
    period = method.longest_period(2)
    counts = []
    for steps in (period - 1, period):
        trial = AnyOrder(job_of(method, 2, steps=steps))
        trial.run()
        keys = [entry.op.key for entry in trial.log if isinstance(entry.op, AllReduce) and entry.move.rank == 0]
        counts.append(sum(key.startswith("everyone") for key in keys))
    early = 1 if getattr(method, "phase", 0) else 0
    assert counts == [early, 1]


def test_every_method_says_its_longest_period() -> None:
    assert all(method().longest_period(4) >= 1 for method in METHODS.values())
    found = [one.longest_period(4) for one in (Eamsgd(period=6), Downpour(n_push=2, n_fetch=5), Agd(delay=3))]
    assert found == [6, 5, 4]
    assert METHODS["sync-sgd"]().longest_period(4) == 1
    assert METHODS["dbs-sgd"]().longest_period(5) == 7  # 32 updates of 5 workers


@pytest.mark.parametrize("method", AVERAGES, ids=repr)
def test_one_worker_is_never_stale(method: Method) -> None:
    """Its weights are the average of all workers, in virtual time and in any order."""
    job = job_of(method, 1, steps=8)
    for trace in (AnyOrder(job).run(), simulate_job(job, FixedTiming(), NoCost(), Schedule(every=1))):
        assert {row.staleness for row in trace.updates} == {0}
    assert max(row.staleness for row in AnyOrder(job_of(method, 2, steps=8)).run().updates) > 0


@pytest.mark.backend
def test_one_worker_is_never_stale_for_real() -> None:
    """Local steps between its averages count for 0 in a real run too."""
    updates = run_for_real(job_of(KAvg(k=3), 1, steps=5)).updates
    assert [row.staleness for row in updates] == [0] * 5


def made(rates: Mapping[str, Mapping[int, float]], *, periods: Mapping[str, float] | None = None) -> SweepTable:
    """The table of a sweep over the number of workers, from samples per second by algorithm and size."""
    base = dict(run("sync-sgd").summary) | {"time_to_accuracy_s": None, "steps": 10_000, "longest_period": 8}
    entries = tuple(
        SweepEntry(
            vary={"n": workers},
            algorithm=name,
            seed=1,
            workers=workers,
            summary={**base, "samples_per_s": rate, "periods": (periods or {}).get(name, 2.0)},
        )
        for name, rates_of in rates.items()
        for workers, rate in rates_of.items()
    )
    return tabulate(SweepResult(scenario="made-up", paths=("n",), target=None, entries=entries))


def words_of(table: SweepTable) -> str:
    return "\n".join(sweep_words(table))


RATES = {"sync-sgd": {1: 100.0, 4: 200.0}, "hbs-sgd": {1: 100.0, 4: 400.0}, "agd": {1: 100.0, 4: 300.0}}


def test_a_run_without_a_whole_period_is_in_no_headline() -> None:
    """Without this rule hbs-sgd, whose global average never ran, would scale best."""
    said = words_of(made(RATES, periods={"hbs-sgd": 5 / 8}))
    assert "agd scales best: on 4 workers it is 3 times as fast" in said
    assert "Fastest is agd on 4: 300 samples/s." in said
    assert "Not compared: hbs-sgd (8 steps) ended in 2 of 6 runs before the longest period" in said
    assert said.count("hbs-sgd") == 1
    whole = words_of(made(RATES))
    assert "hbs-sgd scales best" in whole and "Not compared" not in whole


def test_the_table_and_the_figure_mark_it() -> None:
    table = made(RATES, periods={"hbs-sgd": 5 / 8})
    rows = as_text([means_table(table)], 80)
    assert rows.count("hbs-sgd*") == 2 and "agd*" not in rows
    mark = "ended before a whole period"
    (line,) = [series for series in charts(table)[0].plots[""].series if series.name == mark]
    assert line.colour == "hbs-sgd" and None not in line.y
    assert mark not in {series.name for chart in charts(made(RATES)) for series in chart.plots[""].series}


def test_a_point_is_not_compared_with_one_that_ended_early() -> None:
    table = made({"hbs-sgd": {1: 100.0, 4: 200.0}, "agd": {1: 100.0, 4: 150.0}})
    table.frame.loc[table.frame["algorithm"] == "hbs-sgd", "base_periods"] = 0.5
    said = words_of(table)
    assert "On 4 workers agd is 1.5 times as fast" in said


def test_ties_are_ties() -> None:
    equal: dict[str, Any] = {"sync-sgd": {1: 100.0, 4: 400.0}, "hbs-sgd": {1: 100.0, 4: 400.0 * (1 + 1e-12)}}
    said = words_of(made(equal))
    assert "scale best, equally (to the precision shown): on 4 workers they are 4 times as fast" in said
    assert "Fastest are" in said and "scales best" not in said
    third = words_of(made({**equal, "agd": {1: 100.0, 4: 100.0}}))
    assert "scale best, equally (to the precision shown)" in third
    assert "agd scales worst" in third


def early(made_run: Run) -> Run:
    """The same run of a method whose longest period has not passed in it."""
    return replace(made_run, summary={**made_run.summary, "longest_period": 8, "periods": 0.5})


def test_simulate_names_no_run_that_ended_early() -> None:
    quick, slow = run("hbs-sgd", accuracies=(0.1, 0.95, 1.0, 1.0)), run("agd")
    assert soonest([quick, slow]).startswith("hbs-sgd reaches 90 % accuracy soonest")
    assert soonest([early(quick), slow]).startswith("agd reaches 90 % accuracy, in")
    assert soonest([early(quick)]) == ""
    assert say_unfinished_runs([early(quick), slow]).startswith("Not compared: hbs-sgd (8 steps) ended before")
    assert say_unfinished_runs([quick, slow]) == ""
    assert soonest([run("agd"), run("ssp")]).startswith("agd and ssp reach 90 % accuracy soonest, equally (to the")


def test_compare_names_no_run_that_ended_early() -> None:
    def said(*algorithms: tuple[Run, Run]) -> str:
        simulated, measured = zip(*algorithms, strict=True)
        wrong = {model: list(simulated) for model in WRONG_MODELS}
        return conclusion(assemble("made-up", simulated=simulated, measured=measured, wrong=wrong, other_load=0.0))

    def both(name: str, **options: Any) -> tuple[Run, Run]:
        return run(name, **options), run(name, kind="measured", **options)

    quick, slow = both("hbs-sgd", accuracies=(0.1, 0.95, 1.0, 1.0)), both("agd")
    assert said(quick, slow).startswith("hbs-sgd reaches 90 % accuracy soonest, as predicted")
    late = said((early(quick[0]), quick[1]), slow)
    assert late.startswith("agd reaches 90 % accuracy soonest") and "Not compared: hbs-sgd (8 steps)" in late
    assert said(both("agd"), both("ssp")).startswith(
        "agd and ssp reach 90 % accuracy soonest, equally (to the precision shown), as predicted"
    )
    assert said(both("agd"), both("ssp"), both("easgd")).startswith(
        "agd, ssp and easgd reach 90 % accuracy soonest, equally (to the precision shown), as predicted"
    )
