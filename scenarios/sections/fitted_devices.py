"""Fits the device model to published throughput and writes its parameters and the ranges of its errors.

    python -m paceline.scenarios.sections.fitted_devices          # compares the files with a new fit
    python -m paceline.scenarios.sections.fitted_devices --write  # writes them; ten seconds

The rows are those of `topologies/data/throughput.csv`, each with its source. A model there is one of `MODELS`, or a
transformer of `transformers.csv` with the tokens of a sample, as in ``mpt-1b@2048``. Errors are of rows that were left
out: of all rows of a chip at once, and of one tenth of the pairs of chip and model at a time.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from io import StringIO
from itertools import chain
from statistics import fmean

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.device_catalogue import DATA
from paceline.topologies.catalogue.device_names import named
from paceline.topologies.compute import device_parameters, prediction_errors
from paceline.topologies.compute.device_fit import Fit, PublishedTime
from paceline.topologies.compute.device_parameters import Parameters, chip_key, precision_class, prior, read_software
from paceline.topologies.compute.prediction_errors import LeftOut, ranges
from paceline.workloads.models.layer_tables import ModelInfo, find_model, transformer_model
from paceline.workloads.models.transformer_shapes import TransformerShape

PARTS = 10
DIGITS = 3
"""of the stored logarithms"""


@cache
def observations() -> tuple[PublishedTime, ...]:
    """Returns the published rows."""
    with (DATA / "throughput.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    rows = []
    for line in lines:
        spec, batch = named(line["device"]), int(line["batch"])
        software = read_software(line["software"], spec.kind, int(line["year"]))
        seconds = batch / float(line["samples_per_s"])
        rows.append(PublishedTime(spec, published_model(line["model"]), line["precision"], batch, software, seconds))
    return tuple(rows)


@cache
def published_model(name: str) -> ModelInfo:
    """Returns a model of a published row.

    Args:
        name: of a model, or of a transformer of `transformers.csv` with its tokens.

    Raises:
        InputError: there is no such model.

    >>> found = published_model("mpt-1b@2048")
    >>> found.name, found.family, found.parameters  # the source counts 1,315,950,592
    ('mpt-1b', 'transformer', 1315950592)
    """
    model, _, tokens = name.partition("@")
    if not tokens:
        return find_model(name)
    with (DATA / "transformers.csv").open(newline="", encoding="utf-8") as file:
        lines = {line["model"]: line for line in csv.DictReader(file)}
    if model not in lines:
        raise InputError(f"model {name!r}: found no {model!r} among {', '.join(lines)}")
    line = lines[model]
    sizes = {key: int(line[key]) for key in ("width", "layers", "heads", "vocabulary", "mlp")}
    drop = 0.1 if line["attention"] == "plain" else 0.0  # BERT's (MEMORY certain); the others have none
    shape = TransformerShape(
        context=int(tokens),
        style=line["style"],  # type: ignore[arg-type]
        attention=line["attention"],  # type: ignore[arg-type]
        dropout=drop,
        attention_dropout=drop,
        **sizes,  # type: ignore[arg-type]
    )
    return transformer_model(model, shape, family="transformer", num_samples=1, provenance=line["source"])


@cache
def fit() -> Fit:
    """Returns the published rows, prepared for fits."""
    return Fit(observations())


@cache
def without(*, chip: str = "", model: str = "", family: str = "") -> Parameters:
    """Returns the parameters fitted without the rows of a chip, a model or a family.

    Args:
        chip: its key, see `device_parameters.chip_key`; "" leaves out none.
        model: its name; "" leaves out none.
        family: its name; "" leaves out none.
    """
    return fit().parameters(
        place
        for place, observation in enumerate(observations())
        if (chip and chip_key(observation.spec) == chip)
        or (model and observation.work.name == model)
        or (family and observation.work.family == family)
    )


def left_out(group_of: Callable[[PublishedTime], Hashable], *, parts: int = 0) -> list[float]:
    """Returns ln(predicted / measured) of every row, predicted without the rows of its group.

    Args:
        group_of: the group of a row.
        parts: groups are left out in so many parts; 0: one at a time.
    """
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, observation in enumerate(observations()):
        places[group_of(observation)].append(place)
    groups = list(places.values())
    together = [list(chain.from_iterable(groups[part::parts])) for part in range(parts)] if parts else groups
    errors = [0.0] * len(observations())
    for some in together:
        predicted = fit().predicted_s(fit().parameters(some))
        for place in some:
            errors[place] = math.log(predicted[place] / observations()[place].seconds)
    return errors


def error_rows() -> Iterator[LeftOut]:
    """Yields the errors of all rows, with their chip left out and with their model on this chip left out."""
    unknown = left_out(lambda observation: chip_key(observation.spec))
    known = left_out(lambda observation: (chip_key(observation.spec), observation.work.name), parts=PARTS)
    for is_known, errors in ((False, unknown), (True, known)):
        for observation, error in zip(observations(), errors, strict=True):
            yield LeftOut(
                observation.spec.kind != "gpu",
                precision_class(observation.spec, observation.precision),
                is_known,
                error,
            )


def parameters_text() -> str:
    """Returns the file of parameters: those that differ from their priors, with the number of rows they depend on."""
    values = fit().parameters().values
    used = fit().rows_of()
    lines = [
        [name, f"{value:.{DIGITS}f}", str(used[name])]
        for name, value in sorted(values.items())
        if round(value - prior(name)[0], DIGITS) or name.startswith("chip ")
    ]
    return _csv(["parameter", "value", "rows"], lines)


def errors_text() -> str:
    """Returns the file of the ranges of errors."""
    lines = [
        ["yes" if errors.host else "no", errors.precision, "yes" if errors.known else "no", f"{errors.low:.{DIGITS}f}",
         f"{errors.high:.{DIGITS}f}", str(errors.rows)]
        for errors in ranges(error_rows())
    ]  # fmt: skip
    return _csv(["host", "precision", "known", "low", "high", "rows"], lines)


def chips_text() -> str:
    """Returns the file of the errors of each chip, with its rows left out of the fit."""
    errors: dict[str, list[float]] = defaultdict(list)
    for observation, error in zip(observations(), left_out(lambda left: chip_key(left.spec)), strict=True):
        errors[chip_key(observation.spec)].append(abs(math.exp(-error) - 1))
    lines = [[chip, str(len(errors_of)), f"{fmean(errors_of):.2f}"] for chip, errors_of in sorted(errors.items())]
    return _csv(["chip", "rows", "error"], lines)


def _csv(header: list[str], lines: list[list[str]]) -> str:
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *lines])
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description="Fits the device model to published throughput.")
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing them")
    write, wrong = parser.parse_args().write, []
    for path, text in (
        (device_parameters.FILE, parameters_text),
        (prediction_errors.FILE, errors_text),
        (prediction_errors.CHIPS, chips_text),
    ):
        content = text()
        if write:
            path.write_text(content, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != content:
            wrong.append(path.name)
    sys.stdout.write(f"{len(observations())} rows, wrong: {', '.join(wrong) or 'none'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
