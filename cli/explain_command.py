"""``paceline explain``: where the predicted time of a step goes, and what would shorten it most."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.actions import ScenarioOptions
from paceline.cli.options import Algorithms, Json, Quiet, Scenario, Set, output

Steps = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Steps of each worker that are evaluated, rounded up to whole periods of the method; default: 4 to 100, "
        "and at least two periods.",
        show_default=False,
    ),
]


def explain(
    ctx: typer.Context,
    scenario: Scenario,
    changes: Set = None,
    algorithms: Algorithms = None,
    steps: Steps = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Explain where the predicted time of a step goes, and which change would shorten it most.

    The mean time of a step is divided into parts that add up to it:

    \b
      gradient     by layer
      loading      batches that prefetching does not hide
      charge       updates, compression, copies, access to shared memory
      collective   by operation, size and number of members
      message      by role of sender and receiver, and size
      waiting      for the slowest worker
      queue        for a server, a lock, or an earlier collective

    Communication during a gradient costs no time and is shown as hidden. Each part has its formula with the numbers
    put in, and the provenance of the values. Then each part of the cluster is changed alone and simulated again:
    faster devices, links, storage and servers, no jitter, no stragglers.

    \b
    Examples:
      paceline explain quickstart --algorithms sync-sgd,async-sgd
      paceline explain dgx1-p100 --algorithms sync-sgd
      paceline explain my.yaml --set cluster.network.link=ib-edr --steps 200
      paceline explain my.yaml --json | jq '.algorithms[].conclusion'
    """
    shown = output(ctx, as_json, quiet)
    loaded = ScenarioOptions(scenario, changes=changes, algorithms=algorithms).read()
    from paceline.checking.own_methods import check_own_methods
    from paceline.reports.explanation.explain import answer_of_explanations
    from paceline.reports.explanation.explain import explain as run

    check_own_methods(loaded)
    with shown.progress() as stage:
        found = run(loaded, steps=steps, progress=stage("explaining"))
    shown.give(answer_of_explanations(loaded.name, found))
