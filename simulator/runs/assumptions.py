"""What an extrapolation takes for granted, in sentences: those that hold for all algorithms first, then one's own."""

from __future__ import annotations

from paceline.algorithms.core.method import StalenessKind
from paceline.records.goals import SMOOTHING
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.extrapolate import ExtrapolatePart, RelationPart, StandInPart, stand_for
from paceline.simulator.runs.stand_in import Needed

SLOWDOWNS = {
    "stability-limit": "as a constant delay lowers the largest stable rate on a quadratic",
    "implicit-momentum": "as asynchrony acts like momentum on a quadratic (Mitliagkas et al. 2016)",
}


def of_all(part: ExtrapolatePart, plan: Plan) -> list[str]:
    """Where the model's own figures are from."""
    model, known = plan.scenario.workload.model, part.reference
    return [
        f"Nobody trained {model} here: its samples/s are of a simulated run without learning, start included.",
        (
            f"{model} gets to {known.reaches} in {known.epochs:g} epochs of synchronous updates of {known.batch} "
            f"samples: {known.provenance}."
        ),
    ]


def of_stand_in(part: ExtrapolatePart, stand_in: StandInPart, plan: Plan, mine: Needed, reference: Needed) -> list[str]:
    """What it takes to believe a small problem."""
    workload, goal = plan.scenario.workload, f"{100 * stand_in.accuracy:g} % accuracy"
    model, small, own = workload.model, stand_in.model, stand_in.batch_per_worker
    ratio = f"{workload.batch_per_worker / own:g}"
    batch = round(stand_for(workload, stand_in, part.reference.batch))
    said = [
        (
            f"What a method costs in extra samples to {goal} on {small} carries over to {model}. The gradients are "
            f"{small}'s; step times, messages, their order and so every update's staleness are {model}'s."
        ),
        (
            f"A sample of {small} stands for {ratio} of {model}: {own} a worker for {workload.batch_per_worker}, "
            f"{batch} for the reference's {part.reference.batch}. Where {model} bears batches more than {ratio} times "
            f"as large as {small} does, the penalty is overstated; where less, understated."
        ),
        (
            f"Samples to {goal} are read from means of {SMOOTHING} evaluations, every {stand_in.evaluate.text} or, "
            "where weights are averaged more seldom, every average; interpolated."
        ),
        *_brevity(part, plan, batch, reference),
        *_rates(stand_in, plan, mine, reference),
    ]
    for name, found in ((plan.name, mine), (f"{stand_in.alone.name} with the reference's batch", reference)):
        if None in found.samples:
            said.append(f"{name} did not get to {goal} on {small} within {stand_in.epochs:g} epochs with every seed.")
    return said


def _brevity(part: ExtrapolatePart, plan: Plan, batch: int, reference: Needed) -> list[str]:
    """How much shorter the stand-in's training is."""
    if None in reference.samples:
        return []
    updates = part.reference.epochs * plan.scenario.workload.num_samples / part.reference.batch
    words = (
        f"The reference's training is {updates:,.0f} updates, the stand-in's {reference.mean / batch:,.0f}: what takes "
    )
    return [words + "updates to settle, such as staleness and local steps, weighs more in the shorter one."]


def _rates(stand_in: StandInPart, plan: Plan, mine: Needed, reference: Needed) -> list[str]:
    """Whose rates they were; a best one at the end of the list may not be the best."""
    if not stand_in.learning_rates:
        words = (
            f"Learning rates are the scenario's own, {reference.learning_rate:g} for the reference; "
            "none is scaled with the batch."
        )
        return [words, *([] if mine.learning_rate is None else [f"The rate of {plan.name} is {mine.learning_rate:g}."])]
    tried = ", ".join(f"{rate:g}" for rate in stand_in.learning_rates)
    said = [f"Each has the constant rate with which its slowest seed, of these, needs fewest samples: of {tried}."]
    for name, found in ((plan.name, mine), ("the reference", reference)):
        if found.learning_rate is not None and None not in found.samples:
            edge = len(stand_in.learning_rates) > 1 and found.learning_rate in (
                min(stand_in.learning_rates),
                max(stand_in.learning_rates),
            )
            beyond = ", the last of those tried: one beyond may need fewer samples" if edge else ""
            said.append(f"The best rate of {name} is {found.learning_rate:g}{beyond}.")
    return said


def of_relation(relation: RelationPart, plan: Plan, batch: float, staleness: float) -> list[str]:
    """What it takes to believe the relation."""
    said = [
        (
            f"Samples grow as 1 + slowdown × batch / {relation.noise_scale:g}, with one noise scale for all of the "
            "training, though it grows, and the best rate for each batch (McCandlish et al. 2018, on a quadratic)."
        ),
        f"The noise scale: {relation.provenance}.",
        f"The batch of {plan.name} is {batch:g} samples, those of one update.",
    ]
    if plan.job.method.staleness_kind is StalenessKind.LOCAL_AGE:
        words = "Local steps between averages cost nothing, as on a curvature that is the same everywhere"
        said.append(f"{words}: {plan.name}.")
    elif staleness and relation.staleness == "none":
        said.append(f"The staleness of {plan.name} costs nothing.")
    elif staleness:
        said.append(
            f"Staleness slows {plan.name} down, by the mean of its updates, {SLOWDOWNS[relation.staleness]}. That the "
            "slowdown multiplies the batch is derived here, not published."
        )
    return said
