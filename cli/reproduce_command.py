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
            help="Papers (icmla17, dbs, sc17, pnnl, hsgd, softsync) or single claims; default: all.",
            show_default=False,
            autocompletion=complete_papers,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds and shorter runs: minutes instead of a quarter hour.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=2, help="Number of seeds; default: 5, or 3 with --quick.", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of parallel processes; default: one per core.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for papers.md, papers.json and figures, in which the computed claims are replaced; default: "
            "docs/results, or nothing with --quick.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Compute the published claims of the papers, and show them beside the published figures with a verdict.

    A claim holds if the interval of the computed figure, over seeds and over the
    plausible range of inputs that were not found, agrees with what the paper
    asserts. It misses if the whole interval disagrees, and is undecidable
    otherwise. A miss is a result, not an error: the exit status is still 0.

    Writes papers.md with its figures, and papers.json. Claims that are not
    computed keep their earlier results.

    \b
    Examples:
      paceline reproduce
      paceline reproduce --quick --json
      paceline reproduce softsync icmla17 --out runs/papers
      paceline reproduce softsync-staleness-1
    """
    from paceline.papers.core import reproduce as running
    from paceline.papers.core import store
    from paceline.papers.core.claim import Effort
    from paceline.papers.core.page import answer_of_reproduction
    from paceline.papers.core.registry import claims_named
    from paceline.reports.sweeps.parallel_tasks import cores

    claims = claims_named(names or [])
    folder = out if out is not None or quick else RESULTS
    processes = jobs or cores()
    effort = Effort(quick=quick, seeds=seeds or (3 if quick else 5), workers=processes)
    with output.progress() as stage:
        reproduction = running.reproduce(claims, effort, jobs=processes, progress=stage("reproducing"))
    results = [result.answer() for result in reproduction.results]
    page = None if folder is None else store.write(folder, store.merged(folder, results))
    output.give(answer_of_reproduction(reproduction))
    if page is not None:
        output.note(f"page: {page}")
    if reproduction.failed:
        raise PacelineError("\n".join(f"{name}: {error}" for name, error in reproduction.failed.items()))
