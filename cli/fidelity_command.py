"""``paceline fidelity``: a standard set of configurations, predicted and then measured on the user's own machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.cli.options import Only
from paceline.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paceline.reports.blocks import Answer
    from paceline.validation.fidelity.settings import Setting

FOLDER = Path("runs/fidelity")


def fidelity(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", help="With --collect: files that were sent in.", dir_okay=False),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder of the results: finished settings, measured runs, fidelity.html and fidelity.json.",
            file_okay=False,
        ),
    ] = FOLDER,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=1, help="The time into which runs are fitted; default: 20, 5 with --quick, none with --complete."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Seeds of each configuration; default: 2, 1 with --quick, 3 with --complete."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="GROUP", help="Only this group; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The standard set with three methods and one seed.")] = False,
    complete: Annotated[bool, typer.Option("--complete", help="All configurations, three seeds each: hours.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also measure what the folder has already.")] = False,
    list_settings: Annotated[
        bool, typer.Option("--list", help="List the settings, and whether the folder has them; measure nothing.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Make the answer of what the folder has; measure nothing.")
    ] = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Make the table of machines from the fidelity.json of each.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="PAGE.md", help="With --collect: the page into which the table is written.", dir_okay=False
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "as_csv", "quiet", "verbose")],
) -> None:
    """Predict a standard set of configurations, measure it here, and show how far off the predictions are.

    The set has up to six settings: the small and the large model within and
    beyond the cores of this machine, one paced on devices of two speeds, and
    one across an emulated network, which needs root. In each, some methods are
    predicted and then measured as `paceline compare` does. Unpaced runs are as
    long as the minutes allow, since the speed of a machine changes from second
    to second.

    The answer has the errors of step time, staleness and time to accuracy and
    the order of the methods, by group, beside three simpler models. In the
    folder, fidelity.html is a report, and fidelity.json can be sent in: it has
    every row, the processor, memory, kernel and versions, and nothing that
    identifies you or the machine.

    A finished setting is stored; the same command continues where it was
    interrupted. Close other programs before you start.

    Groups: unpaced-within-cores, unpaced-beyond-cores, paced, emulated,
    emulated-unpaced.

    \b
    Examples:
      paceline fidelity
      paceline fidelity --quick --only paced
      paceline fidelity --complete --out runs/fidelity-complete
      paceline fidelity --tables --json > answer.json
      paceline fidelity --collect machines/*.json
    """
    actions = {"list": list_settings, "tables": tables, "collect": collect}
    refuse_together(files=files or (), page=page, quick=quick, complete=complete, **actions)
    if collect:
        output.give(collected(files or (), page, output))
        return
    from paceline.algorithms.core.files import write_whole
    from paceline.records.document import to_json
    from paceline.reports.html.document import write_report
    from paceline.validation.fidelity import page as pages
    from paceline.validation.fidelity import settings as known
    from paceline.validation.fidelity.rows import this_machine
    from paceline.validation.fidelity.study import Study, notes_on, stored

    cores, groups = this_machine().cores, known.groups_named(only or ())
    every = known.COMPLETE if complete else known.quick_settings(cores) if quick else known.standard_settings(cores)
    usual = (
        (known.COMPLETE_SEEDS, None) if complete
        else (known.QUICK_SEEDS, known.QUICK_MINUTES) if quick
        else (known.STANDARD_SEEDS, known.STANDARD_MINUTES)
    )  # fmt: skip
    study = Study(
        folder=out,
        settings=possible(known.in_groups(every, cores, groups), output),
        seeds=seeds or usual[0],
        minutes=minutes or usual[1],
        cores=cores,
        note=output.note,
    )
    if list_settings:
        output.give(pages.listing_of(study))
        return
    if not tables:
        make_folder(out)
        with output.progress() as stage:
            study.report = stage("fidelity") or study.report
            study.run(again=again)
    whole = stored(out)
    shown = whole.of_groups(groups)
    if not shown.measured:
        failed = f"; failed: {'; '.join(study.failures)}" if study.failures else ""
        raise RunFailed(f"{out} has no finished setting{failed}")
    output.give(pages.answer_of(shown, notes=notes_on(shown)))
    answer = pages.answer_of(whole, notes=notes_on(whole))  # the files have every setting of the folder
    write_whole(out / "fidelity.json", to_json(answer.data()) + "\n")
    output.note(f"report: {write_report(answer, out / 'fidelity.html')}\nto send in: {out / 'fidelity.json'}")
    if study.failures:
        raise RunFailed(f"failed, and tried again by the same command: {'; '.join(study.failures)}")


def refuse_together(*, files: Sequence[Path], page: Path | None, quick: bool, complete: bool, **actions: bool) -> None:
    """Refuses options that exclude each other.

    Raises:
        InputError: two of them are given, or files or a page without --collect.
    """
    mistakes = []
    for options in ({"quick": quick, "complete": complete}, actions):
        if len(given := [f"--{name}" for name, there in options.items() if there]) > 1:
            mistakes.append(f"found {' and '.join(given)}, expected one of them")
    if files and not actions["collect"]:
        mistakes.append(f"FILE: found {str(files[0])!r} without --collect")
    if page is not None and not actions["collect"]:
        mistakes.append(f"--page: found {str(page)!r} without --collect")
    if mistakes:
        raise InputError("\n".join(mistakes))


def possible(settings: Sequence[Setting], output: Output) -> list[Setting]:
    """Returns the settings that this machine can run, and says which are left out."""
    from paceline.backend.posix.network_namespaces import NoHosts, refuse

    try:
        refuse()
    except NoHosts as error:
        here = [setting for setting in settings if setting.link is None]
        if left := len(settings) - len(here):
            output.note(f"left out: {left} setting{'s' * (left > 1)} on an emulated network: {error}")
        return here
    return list(settings)


def collected(files: Sequence[Path], page: Path | None, output: Output) -> Answer:
    """Returns the table of machines; writes it into a page if one is given."""
    from paceline.validation.fidelity import collecting

    documents = collecting.read_all(files)
    if page is not None:
        collecting.put_into(page, documents)
        output.note(f"table of {len(documents)} machine{'s' * (len(documents) > 1)} written into {page}")
    return collecting.answer_of(documents)


def make_folder(folder: Path) -> None:
    """Makes the folder of the results.

    Raises:
        InputError: nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: found {str(folder)!r}, where nothing can be written ({error.strerror})") from error
