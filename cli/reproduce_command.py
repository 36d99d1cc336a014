"""``paceline reproduce``: the published figures of the papers beside those that Paceline computes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.algorithms.core.errors import PacelineError
from paceline.cli.options import Only, complete_papers
from paceline.cli.output import Output

RESULTS = Path("docs/results")


def reproduce(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAPER|CLAIM]...",
            help="Papers (icmla17, dbs, sc17, pnnl, hsgd, softsync, digits), single claims, or beginnings of their "
            "names; default: all.",
            autocompletion=complete_papers,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer seeds and shorter runs: a quarter hour instead of an hour and a half."),
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=2, help="Number of seeds; default: 5, or 3 with --quick.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel processes; default: one per core.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for papers.md, claims.md, papers.json and charts, in which the computed claims are replaced; "
            "default: docs/results, or nothing with --quick.",
            file_okay=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Compute the published claims of the papers, and show them beside the published figures with a verdict.

    A claim holds if the interval of the computed figure, over seeds and over the
    plausible range of inputs that were not found, agrees with what the paper
    asserts. It misses if the whole interval disagrees, and is undecidable
    otherwise. A miss is a result, not an error: the exit status is still 0.

    Writes papers.md, claims.md (accuracy, compared on the digits) and
    papers.json. Claims that are not computed keep their earlier results.

    \b
    Examples:
      paceline reproduce
      paceline reproduce --quick --json
      paceline reproduce softsync icmla17 --out runs/papers
      paceline reproduce softsync-staleness-1
    """
    from paceline.papers import reproduce as running
    from paceline.papers.claim import Effort
    from paceline.papers.page import answer_of_reproduction
    from paceline.reports.sweeps.parallel_tasks import cores

    claims = running.claims_named(names or [])
    folder = out if out is not None or quick else RESULTS
    processes = jobs or cores()
    effort = Effort(quick=quick, seeds=seeds or (3 if quick else 5), workers=processes)
    with output.progress() as stage:
        reproduction = running.reproduce(claims, effort, jobs=processes, progress=stage("reproducing"))
    results = [result.answer() for result in reproduction.results]
    pages = [] if folder is None else running.write(folder, running.merged(folder, results))
    output.give(answer_of_reproduction(reproduction))
    for page in pages:
        output.note(f"page: {page}")
    if reproduction.failed:
        raise PacelineError("\n".join(f"{name}: {error}" for name, error in reproduction.failed.items()))
