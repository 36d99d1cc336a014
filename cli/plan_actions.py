"""The actions of ``paceline plan``: reads the options, makes the plan in a folder, and prints the answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.cli.actions import Ask
from paceline.cli.output import Output
from paceline.records.document import to_json
from paceline.reports.comparison.words import duration

if TYPE_CHECKING:
    from paceline.records.store import NumberedFolder
    from paceline.reports.planning.plan_answer import PlanAnswer
    from paceline.reports.planning.request import Request
    from paceline.scenarios import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of ``paceline plan`` that decide what is planned; None where one is not given."""

    target: str | None = None
    budget: str | None = None
    within: str | None = None
    minimise: str | None = None
    workers: str | None = None
    devices: str | None = None
    batches: str | None = None
    tune: Sequence[str] = ()
    trials: int | None = None
    tuning_seeds: int
    reported_seeds: int

    def section(self) -> list[str]:
        """Returns the changes to the scenario's section `plan`; raises `InputError` with all mistakes."""
        made = [
            f"plan.{key}={value}"
            for key, value in (("workers", self.workers), ("batch_per_worker", self.batches))
            if value is not None
        ]
        if self.devices is not None:
            names = [name for part in self.devices.split(",") if (name := part.strip())]
            if not names:
                raise InputError(f"--devices: found {self.devices!r}, expected names such as v100-sxm2,a100-sxm4-40")
            made.append("plan.nodes=[" + ", ".join(f"{{device: {name}}}" for name in names) + "]")
        ranges = dict(tuned(text) for text in self.tune)
        if ranges:
            made.append("plan.hyperparameters={" + ", ".join(f"{name}: {text}" for name, text in ranges.items()) + "}")
        return made


def tuned(text: str) -> tuple[str, str]:
    """Parses ``NAME=LOW..HIGH`` or ``NAME=A,B,C``; returns the name, and the range as YAML.

    >>> tuned("learning_rate=0.01..1"), tuned("agd.delay=1,2")
    (('learning_rate', '{low: 0.01, high: 1}'), ('agd.delay', '[1, 2]'))
    """
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not name or not listed:
        raise InputError(
            f"--tune: found {text!r}, expected NAME=LOW..HIGH or NAME=A,B,C, such as learning_rate=0.01..1"
        )
    low, dots, high = listed.partition("..")
    if dots:
        return name, f"{{low: {low}, high: {high}}}"
    return name, "[" + ", ".join(part.strip() for part in listed.split(",")) + "]"


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
    """
    if source is None:
        raise InputError("SCENARIO: missing; give a scenario file, the name of one, or --resume FOLDER")
    _check_optuna()
    ask = Ask(source, changes=[*changes, *options.section()], algorithms=algorithms, seed=seed, out=out)
    request = request_of(ask, options)
    ask.make_out()
    from paceline.records import store

    with store.numbered_folder(out, f"{store.slug(request.scenario['name'])}-plan") as folder:
        answer = _made(request, folder, output, jobs)
    _answer(answer, folder, output, verify=verify)


def resume(
    path: Path, options: Options, given: Mapping[str, Any], output: Output, *, jobs: int | None, verify: bool
) -> None:
    """Continues a plan.

    Args:
        path: its folder.
        options: the options, of which only the number of trials may be given.
        given: further options and their values, none of which may be given.
        output: where the answer is printed.
        jobs: number of parallel processes.
        verify: whether to train the best two plans for real.
    """
    own = ("target", "budget", "within", "minimise", "workers", "devices", "batches", "tune")
    named = [*(name for name, value in given.items() if value not in (None, []))]
    named += [f"--{name}" for name in own if getattr(options, name)]
    if named:
        raise InputError(
            "\n".join(f"{name}: found beside --resume; the request is that of the folder" for name in named)
        )
    _check_optuna()
    import dataclasses

    from paceline.reports.planning.plan_files import resumed_folder
    from paceline.reports.planning.request import stored_request

    with resumed_folder(path) as folder:
        request = stored_request(path)
        if options.trials is not None:
            request = dataclasses.replace(request, trials=options.trials)
        answer = _made(request, folder, output, jobs)
    _answer(answer, folder, output, verify=verify)


def request_of(ask: Ask, options: Options) -> Request:
    """Returns the request; raises `InputError` with what is wrong in the options.

    Args:
        ask: the scenario and its changes.
        options: the options.
    """
    from paceline.reports.planning.default_ranges import usual_methods
    from paceline.reports.planning.objectives import Limits, parse_objectives
    from paceline.reports.planning.planner import check_rates, known_objectives
    from paceline.reports.planning.request import TRIALS_PER_METHOD, Request
    from paceline.reports.planning.search_space import checked_methods, space_of
    from paceline.scenarios import load
    from paceline.scenarios.values.units import COST, PERIOD

    given = ask.read()
    names = ask.names() or given.plan.methods or usual_methods([method.name for method in given.algorithms])
    checked_methods(names)
    scenario = load(ask.scenario, ask.all_changes(), algorithms=list(names))
    limits = Limits(
        within_s=_quantity("--within", options.within, PERIOD.parse),
        budget_usd=_quantity("--budget", options.budget, COST.parse),
    )
    objectives = known_objectives(scenario) if options.minimise is None else parse_objectives(options.minimise)
    space = space_of(scenario, scenario.plan)
    request = Request(
        scenario=scenario.dump(),
        part=scenario.plan.model_dump(mode="json"),
        target=target_of(options.target, scenario),
        objectives=objectives,
        limits=limits,
        trials=options.trials or TRIALS_PER_METHOD * len(space.methods),
        tuning_seeds=options.tuning_seeds,
        reported_seeds=options.reported_seeds,
    )
    check_rates(request, scenario, space)
    return request


def target_of(text: str | None, scenario: Scenario) -> Any:
    """Returns the target: the option's, or else the scenario's.

    Args:
        text: the option; None if it is not given.
        scenario: the scenario.
    """
    from paceline.reports.planning.objectives import Target, parse_target

    learning = scenario.workload.learning
    if text is not None:
        found = parse_target(text)
    elif scenario.target_accuracy is not None:
        found = Target("accuracy", scenario.target_accuracy)
    elif scenario.target_loss is not None:
        found = Target("loss", scenario.target_loss)
    else:
        raise InputError("--target: missing, and the scenario has none; give one such as accuracy=0.93")
    if learning == "none" and scenario.extrapolate is None:
        raise InputError(
            "workload.learning: found none, so no target is ever reached; expected train or quadratic, or a section "
            "extrapolate"
        )
    if found.aim == "accuracy" and learning == "quadratic" and scenario.workload.options.get("link") is None:
        raise InputError("--target: found an accuracy; the noisy quadratic has a loss only, so give loss=L")
    return found


def _quantity(option: str, text: str | None, parse: Callable[[object], float]) -> float:
    if text is None:
        return math.inf
    try:
        return parse(text)
    except PydanticCustomError as error:
        raise InputError(f"{option}: found {text!r}, expected {error.message()}") from None


def _check_optuna() -> None:
    if find_spec("optuna") is None:
        raise InputError("paceline plan needs Optuna, which is not installed: pip install 'paceline[planning]'")


def _made(request: Request, folder: NumberedFolder, output: Output, jobs: int | None) -> PlanAnswer:
    """Makes the plan in the folder and writes its files; keeps the folder if it is interrupted."""
    from paceline.reports.planning.plan_figure import save_figure
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
    (folder.building / "plan.json").write_text(to_json(answer.answer()) + "\n", encoding="utf-8")
    save_figure(answer, folder.building / "plan.png")
    return answer


def _estimating(report: Callable[[str, float], None] | None) -> Callable[[str, float], None] | None:
    """Adds the time left to the progress of a stage, from the rate since its first report."""
    if report is None:
        return None
    first: tuple[float, float] | None = None

    def estimated(now: str, done: float) -> None:
        nonlocal first
        now_s = time.monotonic()
        if first is None:
            first = now_s, done
        began_s, before = first
        if done > before:
            now = f"{now}, about {duration((now_s - began_s) / (done - before) * (1 - done))} left"
        report(now, done)

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
        (folder.path / "verified.json").write_text(to_json(document["verified"]) + "\n", encoding="utf-8")
        shown.append(verified_words(found))
    output.answer(document, shown)
    if not output.as_json:
        output.note(f"Study, trials, plans and figure stored in {folder.path}/")
        output.note(f"simulate a trial again: paceline simulate {folder.path}/trials/NNNN.yaml")
        output.note(f"train the best plan: paceline compare {folder.path}/{answer.best.path}")
