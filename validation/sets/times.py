"""MLPerf Training, ResNet-50: time to 75.9 %, from the epochs of other batches and the measured images per second.

time = epochs × images / (images per second), with epochs by the relation that was fitted to the other half of the
batches (`epochs`). Images per second of blocks contain evaluations, but not the start of a run, nor, in v0.6 on TPUs,
evaluations between blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from paceline.validation.outcome import CONSTANT, Errors, LeftOut, Outcome, percent
from paceline.validation.sets import Line, MeasurementSet
from paceline.validation.sets.epochs import BENCHMARKS, OPEN, is_open, published_relations

NAME, RATE, TIME = "times", "images_per_s_in_blocks_incl_eval", "mean_time_to_75.9pct_s"
IMAGES = 1_281_167
"""of an epoch; provenance: FOUND, train_samples of the logs"""
ROUNDS = {number: known.rounds for known in BENCHMARKS if known.name == "resnet" for number in known.rounds}


@dataclass(frozen=True, slots=True)
class System:
    """A system, and the mean of its runs.

    Args:
        name: The name of the row.
        round: The round of MLPerf.
        batch: Samples of an update.
        images_per_s: Of blocks.
        seconds: To the target.
        source: Where it was published.
    """

    name: str
    round: str
    batch: int
    images_per_s: float
    seconds: float
    source: str


def groups(lines: Sequence[Line]) -> tuple[list[list[System]], list[LeftOut]]:
    """Returns the systems of the closed division by their rounds, each once: later rounds repeat earlier results."""
    by_rounds: dict[tuple[str, ...], list[System]] = {}
    left_out, known = [], set()
    for line in lines:
        name = f"{line['round']} {line['system']}"
        once = (line[TIME], line["global_batch_size_samples"], line["accelerators"])
        if (rounds := ROUNDS.get(line["round"])) is None:
            left_out.append(LeftOut(NAME, name, f"found round {line['round']}; expected {', '.join(ROUNDS)}"))
        elif is_open(line["system"]):
            left_out.append(LeftOut(NAME, name, OPEN))
        elif not line[RATE]:
            left_out.append(LeftOut(NAME, name, f"{RATE}: missing"))
        elif once in known:
            left_out.append(LeftOut(NAME, name, "its time, batch and accelerators are those of an earlier row"))
        else:
            batch = int(float(line["global_batch_size_samples"]))
            system = System(name, line["round"], batch, float(line[RATE]), float(line[TIME]), line["first_source"])
            by_rounds.setdefault(rounds, []).append(system)
        known.add(once)
    return list(by_rounds.values()), left_out


def predict(systems: Sequence[System]) -> list[Outcome | LeftOut]:
    """Predicts the times of systems."""
    outcomes: list[Outcome | LeftOut] = []
    for system in systems:
        relation = published_relations(ROUNDS[system.round]).get(system.batch)
        if relation is None:
            reason = f"found no published epochs of batch {system.batch} in its rounds"
            outcomes.append(LeftOut(NAME, system.name, reason))
            continue
        epoch_s = IMAGES / system.images_per_s
        outcomes.append(
            Outcome(
                set=NAME,
                name=system.name,
                system=f"resnet v{system.round}",
                family=f"resnet v{system.round}",
                unit="s",
                measured=system.seconds,
                predicted=relation.needed(system.batch) * epoch_s,
                simpler={CONSTANT: relation.constant * epoch_s},
                assumed=(f"epochs by a noise scale of {relation.noise_scale:.3g} samples, fitted to other batches",),
                source=system.source,
            )
        )
    return outcomes


def with_scale_out(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Returns the times to accuracy of epochs and images per second that are both predicted.

    Args:
        outcomes: Those of this set and of `mlperf`, whose rows have the same names.
    """
    outcomes = list(outcomes)
    rates = {each.name: each for each in outcomes if each.set == "mlperf" and each.unit == "samples/s"}
    return [
        replace(
            each,
            predicted=each.predicted * rate.measured / rate.predicted,
            simpler={},
            assumed=(*each.assumed, *rate.assumed),
        )
        for each in outcomes
        if each.set == NAME and (rate := rates.get(each.name)) is not None
    ]


def remark(outcomes: Sequence[Outcome]) -> str:
    """Returns the errors of times whose images per second are predicted, too; "" without rows of `mlperf`."""
    scaled = with_scale_out(outcomes)
    every, held = (Errors.of(each.error for each in scaled if half in ("", each.half)) for half in ("", "held back"))
    if every is None or held is None:
        return ""
    return (
        "With images per second as mlperf predicts them from the smallest system, times are off by "
        f"{percent(every.median)} in the median and {percent(every.p90)} at the 90th percentile of {every.rows} "
        f"systems; in the half that other sets hold back, by {percent(held.median)} and {percent(held.p90)} of "
        f"{held.rows}."
    )


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
    in_sight=True,
    remark=remark,
)
