"""Sets of published step times: their lines become rows and scenarios, and lines that cannot be read are left out."""

from __future__ import annotations

import pytest

from paceline.scenarios import load
from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet, set_named
from paceline.workloads.models.layer_tables import find_model


def predicted(known: MeasurementSet, lines: list[Line]) -> tuple[list[Outcome], list[LeftOut]]:
    groups, left_out = known.groups([{"line": str(number), **line} for number, line in enumerate(lines, start=2)])
    results = [result for rows in groups for result in known.predict(rows)]
    return (
        [result for result in results if isinstance(result, Outcome)],
        [*left_out, *(result for result in results if isinstance(result, LeftOut))],
    )


def job(**values: object) -> Line:
    """A line of the table of Gavel."""
    line = {
        "gpu": "p100", "workers_on_different_servers": "False", "model": "LM", "batch_size_per_gpu": "20",
        "n_gpus": "1", "steps_per_s": "50", "source": "made up",
    }  # fmt: skip
    return line | {key: str(value) for key, value in values.items()}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cifar_resnet18", 11_173_962),  # of the program, by its own count
        ("lstm_lm", 2 * 33_278 * 200 + 33_278 + 2 * 4 * 200 * (400 + 2)),
        ("translation_transformer", 44_140_544 - 2 * 512 * 2 + 512 * (2_909 + 3_149)),
    ],
)
def test_jobs_have_the_parameters_of_their_programs(name: str, parameters: int) -> None:
    assert find_model(f"paceline.validation.models:{name}").parameters == parameters


def test_steps_per_second_are_the_sum_over_the_workers_of_a_job() -> None:
    given, apart = job(), job(n_gpus=2, workers_on_different_servers=True, steps_per_s=40)
    (outcome,), left_out = predicted(set_named("gavel"), [given, apart])
    assert not left_out
    assert outcome.measured == pytest.approx(40 * 20)
    assert outcome.simpler["linear scaling"] == pytest.approx(2 * 50 * 20)
    assert outcome.scenario is not None
    (plan,) = load(dict(outcome.scenario)).plans()
    assert plan.job.workers == 2 and len(plan.cluster.nodes) == 2


def test_workers_on_different_servers_are_slower_than_those_of_one_server() -> None:
    lines = [job(), *(job(n_gpus=4, workers_on_different_servers=apart) for apart in (False, True))]
    outcomes = {outcome.name: outcome for outcome in predicted(set_named("gavel"), lines)[0]}
    within, apart = outcomes["p100 LM 20 x 4"], outcomes["p100 LM 20 x 4 in as many servers"]
    assert apart.predicted < within.predicted < within.simpler["linear scaling"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "A3C", "batch_size_per_gpu": ""}, "model: found A3C"),
        ({"n_gpus": "many"}, "n_gpus: found 'many', expected a count"),
        ({"batch_size_per_gpu": ""}, "batch_size_per_gpu, n_gpus: found nothing"),
        ({"steps_per_s": "0"}, "steps_per_s: found '0', expected a positive number"),
    ],
)
def test_lines_of_gavel_that_cannot_be_read_are_left_out(values: dict[str, str], words: str) -> None:
    outcomes, (left_out,) = predicted(set_named("gavel"), [job(), job(n_gpus=2) | values])
    assert outcomes == [] and left_out.name == "line 3" and words in left_out.reason
