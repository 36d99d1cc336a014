"""``paceline plan``: searches for the best way to a target in a folder, and prints the plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.files import write_whole
from paceline.cli.options import Jobs, Only, ScenarioOptions, given, scenario_argument
from paceline.cli.output import Output
from paceline.cli.report_command import REPORT, say_report
from paceline.records.document import to_json

if TYPE_CHECKING:
    from paceline.records.store import NumberedFolder
    from paceline.reports.planning.plan_answer import PlanResult
    from paceline.reports.planning.request import PlanRequest


def plan(
    *,
    scenario: Annotated[str | None, scenario_argument(more="; not allowed with --resume")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="accuracy=A|loss=L", help="What every plan must reach; default: the target of the scenario."
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="USD", help="The most that a run may cost, such as '200 USD'.")
    ] = None,
    within: Annotated[
        str | None, typer.Option(metavar="TIME", help="The longest time of a run, such as '2 h'.")
    ] = None,
    minimise: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="time, cost, energy: the most important first; default: time, and cost if all prices are known.",
        ),
    ] = None,
    options: Annotated[ScenarioOptions, Only("changes", "algorithms", "seed")],
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE", help="Numbers of workers, such as 1..64x2; default: 1, 2, 4, … up to those of the cluster."
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Devices of [bold]paceline list devices[/] instead of those of the cluster; plan.nodes gives them "
            "prices.",
        ),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE", help="Batches per worker, such as 16..64x2; default: half, once and twice the scenario's."
        ),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW..HIGH",
            help="A hyper-parameter to tune on a logarithmic scale, or NAME=A,B,C; METHOD.NAME for one method; may be "
            "repeated. Default: learning_rate and periods.",
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Number of trials; default: 15 for each method.")] = None,
    tuning_seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Number of seeds of a trial; they are never reported.")
    ] = 2,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of fresh seeds of a reported plan.")] = 5,
    jobs: Jobs = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Continue an interrupted plan from its folder; only --trials, --jobs and --verify may be given with "
            "it.",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Then train the best two plans for real, paced, and compare their times.")
    ] = False,
    output: Output,
) -> None:
    """Search methods, cluster sizes, devices, batches and hyper-parameters for the best way to a target.

    Optuna draws the trials, each is simulated, and trials that are worse than
    another plan in every objective are stopped. The best plans are then simulated
    again with seeds that no trial used; only these figures are shown. Prices and
    power come from the scenario (cluster.nodes[].price_per_hour, power) or from
    the catalogue. The section plan of the scenario gives ranges.

    A new folder contains the study (study.log), all trials (trials.csv, and the
    scenario of each in trials/), the plans (plans/), plan.json, plan.png and
    report.html, which shows all of this. An
    interrupted plan continues with --resume and makes the same trials.
    Needs paceline[planning].

    \b
    Examples:
      paceline plan quickstart --target accuracy=0.93
      paceline plan my.yaml --target accuracy=0.93 --budget '200 USD' --within 2h
      paceline plan my.yaml --minimise cost,time --workers 1..64x2
      paceline plan my.yaml --devices v100-sxm2,a100-sxm4-40 --minimise time,cost
      paceline plan my.yaml --tune learning_rate=0.01..1 --tune agd.delay=1,2,4
      paceline plan --resume runs/my-plan-unfinished-1
    """
    arguments: dict[str, Any] = {
        "target": target,
        "budget": budget,
        "within": within,
        "minimise": minimise,
        "workers": workers,
        "devices": devices,
        "batches": batches,
        "tune": tune,
    }
    if resume is not None:
        _resume(resume, given(scenario, options, **arguments), trials, output, jobs=jobs, verify=verify)
        return
    if scenario is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, or --resume FOLDER")
    _check_optuna()
    from paceline.records import store
    from paceline.reports.planning.planner import request_of

    arguments |= {"tune": dict(map(_tuned, tune or [])), "trials": trials, "tuning_seeds": tuning_seeds, "seeds": seeds}
    request = request_of(scenario, options.all_changes(), options.names(), **arguments)
    output.make_folder()
    with store.numbered_folder(output.folder, f"{store.slug(request.scenario['name'])}-plan") as folder:
        answer = _made(request, folder, output, jobs)
    _answer(answer, folder, output, verify=verify)


def _tuned(text: str) -> tuple[str, str]:
    """Divides ``NAME=LOW..HIGH`` or ``NAME=A,B,C`` into the name and the range."""
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not name or not values:
        raise InputError(
            f"--tune: found {text!r}, expected NAME=LOW..HIGH or NAME=A,B,C, such as learning_rate=0.01..1"
        )
    return name, values


def _resume(
    path: Path, others: Sequence[str], trials: int | None, output: Output, *, jobs: int | None, verify: bool
) -> None:
    """Continues a plan in its folder; raises `InputError` if one of the `others`, names of options, is given."""
    if others:
        raise InputError(
            "\n".join(f"{name}: found beside --resume; the request is that of the folder" for name in others)
        )
    _check_optuna()
    from paceline.reports.planning.request import resumed_folder, stored_request

    with resumed_folder(path) as folder:
        request = stored_request(path)
        if trials is not None:
            request = dataclasses.replace(request, trials=trials)
        answer = _made(request, folder, output, jobs)
    _answer(answer, folder, output, verify=verify)


def _check_optuna() -> None:
    if find_spec("optuna") is None:
        raise InputError("paceline plan needs Optuna, which is not installed: pip install 'paceline[planning]'")


def _made(request: PlanRequest, folder: NumberedFolder, output: Output, jobs: int | None) -> PlanResult:
    """Makes the plan in the folder and writes its files; keeps the folder if it is interrupted."""
    from paceline.reports.planning.planner import make_plan

    folder.keep = True  # a killed or failed plan can be continued
    hint = f"continue with: paceline plan --resume {folder.building}"
    if not output.quiet:
        output.note(f"{request.trials} trials in {folder.building}/; if it is interrupted, {hint}")
    try:
        with output.progress() as stage:
            answer = make_plan(request, folder.building, jobs=jobs, stage=lambda name: _estimating(stage(name)))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(hint)
        raise
    except RunFailed as failure:
        raise RunFailed(f"{failure}\nall trials are in {folder.building}/; with more --trials, {hint}") from failure
    document = {**answer.document(), "words": answer.words}
    (folder.building / "plan.json").write_text(to_json(document) + "\n", encoding="utf-8")
    answer.plot().savefig(folder.building / "plan.png")
    if output.report:
        answer.report(folder.building / REPORT)
    return answer


def _estimating(report: Callable[[str, float], None] | None) -> Callable[[str, float], None] | None:
    """Adds the time left to the progress of a stage, once enough of it is done."""
    from paceline.cli.progress import RemainingTime
    from paceline.reports.words import duration

    if report is None:
        return None
    pace = RemainingTime()

    def estimated(now: str, done: float) -> None:
        left_s = pace.left_s(done)
        report(now if left_s is None else f"{now}, about {duration(left_s)} left", done)

    return estimated


def _answer(answer: PlanResult, folder: NumberedFolder, output: Output, *, verify: bool) -> None:
    assert folder.path is not None
    document = {**answer.document(), "path": str(folder.path)}
    printed = answer.answer()
    blocks = [*printed.blocks]
    if verify:
        from paceline.reports.planning.plan_answer import verified, verified_words
        from paceline.reports.planning.plan_blocks import claims_of

        with output.progress() as stage:
            verified_plans = verified(answer, folder.path, progress=stage("training the best plans for real"))
        document["verified"] = [plan.document() for plan in verified_plans]
        write_whole(folder.path / "verified.json", to_json(document["verified"]) + "\n")
        blocks += claims_of(verified_words(verified_plans))
    output.give(dataclasses.replace(printed, blocks=blocks, data=lambda: document))
    if not output.as_json:
        output.note(f"Study, trials, plans and figure stored in {folder.path}/")
        say_report(folder.path, output)
        output.note(f"simulate a trial again: paceline simulate {folder.path}/trials/NNNN.yaml")
        output.note(f"train the best plan: paceline compare {folder.path}/{answer.best.path}")
