"""The actions of ``paceline plan``: reads the options, makes the plan in a folder, and prints the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.algorithms.core.files import write_whole
from paceline.cli.actions import Ask
from paceline.cli.expected import Pace
from paceline.cli.output import Output
from paceline.cli.report_command import add_report, say_report
from paceline.records.document import to_json
from paceline.reports.comparison.words import duration
from paceline.reports.planning.options import Options, request_of

if TYPE_CHECKING:
    from paceline.records.store import NumberedFolder
    from paceline.reports.planning.plan_answer import PlanAnswer
    from paceline.reports.planning.request import Request


def run(
    source: str | None,
    changes: Sequence[str],
    algorithms: str | None,
    seed: int | None,
    options: Options,
    out: Path,
    output: Output,
    *,
    jobs: int | None,
    verify: bool,
    report: bool,
) -> None:
    """Makes a plan in a new folder.

    Args:
        source: the scenario.
        changes: changes to it.
        algorithms: the methods to consider; None: those of its section `plan`, or the usual ones.
        seed: the first reported seed.
        options: the other options.
        out: the folder for the new folder.
        output: where the answer is printed.
        jobs: number of parallel processes.
        verify: whether to train the best two plans for real.
        report: whether to write a report.
    """
    if source is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, or --resume FOLDER")
    _check_optuna()
    ask = Ask(source, changes=changes, algorithms=algorithms, seed=seed, out=out)
    request = request_of(ask.scenario, ask.all_changes(), ask.names(), options)
    ask.make_out()
    from paceline.records import store

    with store.numbered_folder(out, f"{store.slug(request.scenario['name'])}-plan") as folder:
        answer = _made(request, folder, output, jobs, report=report)
    _answer(answer, folder, output, verify=verify)


def resume(
    path: Path,
    options: Options,
    given: Mapping[str, Any],
    output: Output,
    *,
    jobs: int | None,
    verify: bool,
    report: bool,
) -> None:
    """Continues a plan.

    Args:
        path: its folder.
        options: the options, of which only the number of trials may be given.
        given: further options and their values, none of which may be given.
        output: where the answer is printed.
        jobs: number of parallel processes.
        verify: whether to train the best two plans for real.
        report: whether to write a report.
    """
    own = ("target", "budget", "within", "minimise", "workers", "devices", "batches", "tune")
    named = [*(name for name, value in given.items() if value not in (None, []))]
    named += [f"--{name}" for name in own if getattr(options, name)]
    if named:
        raise InputError(
            "\n".join(f"{name}: found beside --resume; the request is that of the folder" for name in named)
        )
    _check_optuna()
    from paceline.reports.planning.plan_files import resumed_folder
    from paceline.reports.planning.request import stored_request

    with resumed_folder(path) as folder:
        request = stored_request(path)
        if options.trials is not None:
            request = dataclasses.replace(request, trials=options.trials)
        answer = _made(request, folder, output, jobs, report=report)
    _answer(answer, folder, output, verify=verify)


def _check_optuna() -> None:
    if find_spec("optuna") is None:
        raise InputError("paceline plan needs Optuna, which is not installed: pip install 'paceline[planning]'")


def _made(request: Request, folder: NumberedFolder, output: Output, jobs: int | None, *, report: bool) -> PlanAnswer:
    """Makes the plan in the folder and writes its files; keeps the folder if it is interrupted."""
    from paceline.reports.html import report_of_plan
    from paceline.reports.html.sources import stored_trials
    from paceline.reports.planning.plan_figure import save_figure
    from paceline.reports.planning.plan_words import plan_words
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
    document = {**answer.answer(), "words": plan_words(answer)}
    (folder.building / "plan.json").write_text(to_json(document) + "\n", encoding="utf-8")
    save_figure(answer, folder.building / "plan.png")
    if report:
        trials = stored_trials(folder.building)
        add_report(folder.building, lambda: report_of_plan(document, dataclasses.asdict(request), trials))
    return answer


def _estimating(report: Callable[[str, float], None] | None) -> Callable[[str, float], None] | None:
    """Adds the time left to the progress of a stage, once enough of it is done."""
    if report is None:
        return None
    pace = Pace()

    def estimated(now: str, done: float) -> None:
        left_s = pace.left_s(done)
        report(now if left_s is None else f"{now}, about {duration(left_s)} left", done)

    return estimated


def _answer(answer: PlanAnswer, folder: NumberedFolder, output: Output, *, verify: bool) -> None:
    from paceline.reports.planning.plan_words import plan_table, plan_words

    assert folder.path is not None
    document = {**answer.answer(), "path": str(folder.path)}
    shown: list[Any] = [plan_table(answer), plan_words(answer)]
    if verify:
        from paceline.reports.planning.verification import verified, verified_words

        with output.progress() as stage:
            found = verified(answer, folder.path, progress=stage("training the best plans for real"))
        document["verified"] = [one.answer() for one in found]
        write_whole(folder.path / "verified.json", to_json(document["verified"]) + "\n")
        shown.append(verified_words(found))
    output.answer(document, shown)
    if not output.as_json:
        output.note(f"Study, trials, plans and figure stored in {folder.path}/")
        say_report(folder.path, output)
        output.note(f"simulate a trial again: paceline simulate {folder.path}/trials/NNNN.yaml")
        output.note(f"train the best plan: paceline compare {folder.path}/{answer.best.path}")
