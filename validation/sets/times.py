"""MLPerf Training, ResNet-50: time to 75.9 %, from the epochs of other batches and the measured images per second.

time = epochs × images / (images per second), with epochs by the relation that was fitted to the other half of the
batches (`epochs`). Images per second of blocks contain evaluations, but not the start of a run, nor, in v0.6 on TPUs,
evaluations between blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import Line, MeasurementSet
from paceline.validation.sets.epochs import BENCHMARKS, is_open, published_relations

NAME, RATE, TIME = "times", "images_per_s_in_blocks_incl_eval", "mean_time_to_75.9pct_s"
IMAGES = 1_281_167
"""of an epoch; provenance: FOUND, train_samples of the logs"""
CONSTANT = "epochs of small batches"
ROUNDS = {number: known.rounds for known in BENCHMARKS if known.name == "resnet" for number in known.rounds}


def groups(lines: Sequence[Line]) -> tuple[dict[str, list[Line]], list[LeftOut]]:
    """Returns the systems of the closed division by their rounds, each once: later rounds repeat earlier results."""
    by_rounds: dict[str, list[Line]] = {}
    left_out, known = [], set()
    for line in lines:
        name, once = name_of(line), (line[TIME], line["global_batch_size_samples"], line["accelerators"])
        if line["round"] not in ROUNDS or is_open(line["system"]):
            left_out.append(
                LeftOut(NAME, name, "v0.5 had another target" if line["round"] == "0.5" else "open division")
            )
        elif not line[RATE]:
            left_out.append(LeftOut(NAME, name, f"{RATE}: missing"))
        elif once not in known:
            by_rounds.setdefault(f"v{ROUNDS[line['round']][0]}", []).append(line)
        known.add(once)
    return by_rounds, left_out


def name_of(line: Line) -> str:
    """Returns the name of a system."""
    return f"{line['round']} {line['submitter']} {line['system']}"


def predict(lines: Sequence[Line]) -> list[Outcome | LeftOut]:
    """Predicts the times of systems."""
    outcomes: list[Outcome | LeftOut] = []
    for line in lines:
        relations = published_relations(ROUNDS[line["round"]])
        batch, epoch_s = int(float(line["global_batch_size_samples"])), IMAGES / float(line[RATE])
        if (relation := relations.get(batch)) is None:
            outcomes.append(LeftOut(NAME, name_of(line), f"found no epochs of batch {batch}"))
            continue
        outcomes.append(
            Outcome(
                set=NAME,
                name=name_of(line),
                system=f"resnet v{line['round']}",
                family=f"resnet v{line['round']}",
                unit="s",
                measured=float(line[TIME]),
                predicted=relation.needed(batch) * epoch_s,
                simpler={CONSTANT: relation.smallest * epoch_s},
                assumed=(f"epochs by a noise scale of {relation.noise_scale:.3g} samples, fitted to other batches",),
                source=line["first_source"],
            )
        )
    return outcomes


SET = MeasurementSet(
    name=NAME,
    title="MLPerf Training, ResNet-50: time to 75.9 %, with measured images per second",
    file="mlperf_resnet50_systems.csv",
    columns=frozenset(
        {"round", "submitter", "system", "accelerators", "global_batch_size_samples", RATE, TIME, "first_source"}
    ),
    aim=(0.15, None),
    groups=groups,
    predict=predict,
)
