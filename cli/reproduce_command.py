"""``paceline reproduce``: the published figures of the papers beside those that Paceline computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError, PacelineError
from paceline.cli.options import Only, complete_papers
from paceline.cli.output import Output

if TYPE_CHECKING:
    from paceline.papers.claim import Claim
    from paceline.papers.reproduce import Computation

RESULTS = Path("docs/results")


def reproduce(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAPER|CLAIM]...",
            help="Papers (icmla17, dbs, sc17, pnnl, hsgd, softsync, digits), single claims, or beginnings of their "
            "names; default: all papers but digits.",
            autocompletion=complete_papers,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer seeds and shorter runs: about 11 minutes instead of 50 on two cores."),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, help="Number of seeds; default: that of each claim, mostly 10, or 3 with --quick."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel processes; default: one per core.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of inputs files, such as sc17.yaml, that replace those of Paceline: for readers who know an "
            "input of a paper.",
            file_okay=False,
            exists=True,
        ),
    ] = None,
    infer: Annotated[
        bool,
        typer.Option(
            "--infer",
            help="Search the inputs with which the published figures of the named papers come out, together; from the "
            "results of the pages, or computed ones where inputs have changed since.",
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Compute also what is stored and has not changed since.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the pages, papers.json and charts, in which the computed claims are replaced; "
            "default: docs/results, or nothing with --quick or --inputs.",
            file_okay=False,
        ),
    ] = None,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Compute the published claims of the papers, and show them beside the published figures with a verdict.

    Every claim is computed for all plausible values of the inputs that the paper
    does not give, and for several seeds. It holds if at least 90 % of them agree
    with what the paper asserts, misses if 90 % lie on one side of it, and is
    undecidable otherwise; the answer names the input that decides. A miss is a
    result, not an error: the exit status is still 0.

    Whoever owns a paper copies its file from papers/inputs, enters the true value
    of an input without its range, and gets new verdicts with --inputs.

    Writes papers.md, a page for each paper, and papers.json. Claims that are not
    computed keep their earlier results. An interrupted command continues where it
    was.

    \b
    Examples:
      paceline reproduce
      paceline reproduce --quick --json
      paceline reproduce softsync icmla17 --out runs/papers
      paceline reproduce softsync-staleness-1
      paceline reproduce sc17 --infer
      paceline reproduce sc17 --inputs my-inputs
    """
    from paceline.papers import reproduce as running
    from paceline.papers.claim import FOLDER, Effort
    from paceline.papers.inference import inferable
    from paceline.papers.page import answer_of_reproduction
    from paceline.reports.sweeps.parallel_tasks import cores

    claims = running.claims_named(names or [])
    folder = out if out is not None or quick or inputs is not None else RESULTS
    computation = running.Computation(Effort(quick=quick, seeds=seeds), inputs or FOLDER, running.STORE)
    known: dict[str, Any] = {}
    if infer:
        claims = inferable(claims)
        if not claims:
            raise InputError("--infer: the named claims have no published figure that depends on unknown inputs")
        known = {} if again else running.results_of_pages(out or RESULTS, claims, computation)
    if known:
        output.note(f"from results in {out or RESULTS}: {', '.join(known)}; --again computes them")
    with output.progress() as stage:
        reproduction = running.reproduce(
            [claim for claim in claims if claim.name not in known],
            computation,
            jobs=jobs or cores(),
            again=again,
            progress=stage("reproducing"),
        )
    inferred = {}
    if infer and not reproduction.failed:
        results = known | {result["name"]: result for result in reproduction.results}
        inferred = _inferred(claims, results, computation, output)
    else:
        output.give(answer_of_reproduction(reproduction))
    stored = {} if folder is None else running.merged(folder, reproduction.results, inferred)
    for page in [] if folder is None else running.write(folder, stored):
        output.note(f"page: {page}")
    if reproduction.failed:
        raise PacelineError("\n".join(f"{name}: {error}" for name, error in reproduction.failed.items()))


def _inferred(
    claims: Sequence[Claim], results: dict[str, Any], computation: Computation, output: Output
) -> dict[str, Any]:
    """Gives the answer of --infer, and returns it by paper."""
    from paceline.papers.inference import answer_of_inference, infer
    from paceline.papers.reproduce import PAPERS
    from paceline.reports.blocks import Answer, Block

    blocks: list[Block] = []
    documents = {}
    with output.progress() as stage:
        for paper in dict.fromkeys(claim.paper for claim in claims):
            own = [claim for claim in claims if claim.paper == paper]
            tables = infer(own, results, computation, stage(f"inferring {paper}"))
            blocks += answer_of_inference(PAPERS[paper], tables).blocks
            documents[paper] = {"inferences": [table.document() for table in tables]}
    output.give(Answer("Inputs that would make the published figures true", blocks, lambda: documents))
    return documents
