"""``paceline validate``: predictions of published measurements, and of the user's own, beside the measured figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.cli.options import Only
from paceline.cli.output import Output, write

FOLDER = Path("runs/validation")


def validate(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SET]...",
            help="Sets of measurements (mlperf, gavel, reports, horovod, pollux, throughput, devices, collectives, "
            "diloco, decentralised, epochs, noise_scales, times); default: all, or only --rows if it is given.",
        ),
    ] = None,
    rows: Annotated[
        list[Path] | None,
        typer.Option(
            "--rows",
            metavar="FILE",
            help="A CSV file with measurements of your own, or a table with the columns of a set; may be repeated.",
            dir_okay=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A sample of the rows: two minutes instead of a quarter hour.")
    ] = False,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="ROW", help="Only print the scenario of a row, by its name, for `paceline simulate`."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel processes; default: one per core.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for validation.md, validation.html, validation.json and predicted rows.",
            file_okay=False,
        ),
    ] = FOLDER,
    output: Annotated[Output, Only("as_json", "as_csv", "quiet", "verbose")],
) -> None:
    """Predict published measurements, and show how far off the predictions are.

    Every row of a table becomes a scenario, by rules that read its words (chip,
    number of devices, network, framework, batch), and is simulated as
    `paceline simulate` does. The smallest system of a group of rows is given,
    and the larger ones are predicted from it. Errors are shown by set, family
    and system, beside two simpler predictions: linear scaling and the α–β model.
    --json has every row, with what was assumed for it.

    Predicted rows are stored, so an interrupted command continues where it was.

    \b
    A file for --rows has a line for each measured run and the columns
      device       the chip: a100, v100-sxm2, "Xeon 8280"
      devices      their number
      nodes        the number of nodes
      model        a model of `paceline list models`, a size, or module:function
      batch_per_device
      samples_per_s or step_ms
    and may have
      group        rows with equal groups are predicted from the smallest of them
      placement    devices of each node, such as 1+2+4
      network      "InfiniBand HDR, 8 cards", "25 Gbit/s Ethernet"
      inside       what joins the devices of a node: "NVSwitch", "PCIe"
      library      nccl, gloo or mpi
      framework    or method: a method of `paceline list algorithms`
      precision    fp32, tf32, fp16, bf16 or amp

    \b
    Examples:
      paceline validate --quick
      paceline validate mlperf
      paceline validate --rows mine.csv
      paceline validate mlperf --scenario "1.1 HLS-1H-N32" > row.yaml
    """
    from paceline.algorithms.core.files import write_whole
    from paceline.records.document import to_json
    from paceline.reports.html.document import write_report
    from paceline.reports.sweeps.parallel_tasks import cores
    from paceline.validation import page, support
    from paceline.validation import validate as running

    sets = running.tables(names or [], rows or [])
    if scenario is not None:
        write(running.scenario_text(sets, scenario))
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: found {str(out)!r}, where nothing can be written ({error.strerror})") from error
    with output.progress() as stage:
        validation = running.validate(sets, folder=out, quick=quick, jobs=jobs or cores(), progress=stage("predicting"))
    if not validation.outcomes:
        reasons = "\n".join(f"{each.set}, {each.name}: {each.reason}" for each in validation.left_out[:10])
        raise RunFailed(f"no row could be predicted\n{reasons}" if reasons else "no group has a row to predict")
    answer = page.report_of(validation)
    output.give(page.answer_of(validation))
    write_whole(out / "validation.md", page.page_of(validation))
    write_whole(out / "validation.json", to_json(page.document_of(validation)) + "\n")
    write_whole(out / "step_errors.csv", support.written(support.step_errors(validation.outcomes)))
    output.note(f"page: {out / 'validation.md'}\nreport: {write_report(answer, out / 'validation.html')}")
