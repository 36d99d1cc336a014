"""``paceline convert``: writes a data set as record files, for fast sequential reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.algorithms.core.errors import InputError
from paceline.cli.options import Only, complete_data
from paceline.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from paceline.reports.comparison.predict import Stage
    from paceline.workloads.reading.folder import RecordedDataset


def convert(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="One of [bold]paceline list datasets[/]: mnist, fashion-mnist, cifar10, cifar100, images, digits.",
            autocompletion=complete_data,
        ),
    ],
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder with its files; default: the one of its name in $PACELINE_DATA."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The new folder; nothing is overwritten. Default: DATA-records in the current folder."
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Size for pictures in folders: a number of pixels, HEIGHTxWIDTH, or CHANNELSxHEIGHTxWIDTH; "
            "default: 3x224x224.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order in which the training samples are written.")] = 1,
    keep_order: Annotated[
        bool,
        typer.Option("--keep-order", help="Write them in the order of the data set, which for folders is by class."),
    ] = False,
    output: Annotated[Output, Only("as_json", "quiet", "verbose")],
) -> None:
    """Write a data set as record files: train.npy, test.npy and dataset.json in a new folder.

    Samples are shuffled once before they are written. A scenario reads them by [bold]data: records[/], and NumPy by
    np.load("mnist-records/train.npy", mmap_mode="r").

    \b
    Examples:
      paceline convert digits
      paceline convert mnist --data-dir ~/data/mnist --out mnist-records
      paceline convert images --data-dir flowers --size 64 --out flowers-records
      paceline train my.yaml --set workload.dataset=records \\
          --set workload.data_dir=mnist-records
    """
    made = out or Path(f"{data}-records")
    with output.progress() as stage:
        there = _converted(data, data_dir, made, size, None if keep_order else seed, stage)
    from paceline.reports.catalogue_answer import data_set_answer

    output.give(data_set_answer(there, made))
    output.note(f"to use it: workload: {{dataset: records, data_dir: {made.resolve()}}}")


def _converted(
    data: str, data_dir: Path | None, out: Path, size: str | None, seed: int | None, stage: Stage
) -> RecordedDataset:
    """Writes a new folder atomically."""
    from paceline.records.store import new_folder
    from paceline.workloads.convert_dataset import convert as write
    from paceline.workloads.convert_dataset import find_source
    from paceline.workloads.reading.folder import recorded

    if out.exists():
        raise InputError(f"--out: found {str(out)!r} there already, expected the name of a new folder")
    source = find_source(data, None if data_dir is None else str(data_dir.expanduser()), size)
    try:
        with new_folder(out) as building:
            write(source, building, seed=seed, progress=_progress(stage))
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        problem = f"found {str(out)!r}, which cannot be made ({error.strerror or error})"
        raise InputError(f"--out: {problem}; expected the name of a new folder") from error
    return recorded(out)


def _progress(stage: Stage) -> Callable[[str, float], None]:
    """Returns a progress callback with a bar for each file."""
    bars: dict[str, Any] = {}

    def report(file: str, done: float) -> None:
        if file not in bars:
            bars[file] = stage(file)
        if bars[file] is not None:
            bars[file]("", done)

    return report
