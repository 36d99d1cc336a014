"""The assumptions of an extrapolation, as sentences: first those of all algorithms, then those of one."""

from __future__ import annotations

from paceline.algorithms.core.method import StalenessKind
from paceline.records.goals import SMOOTHING
from paceline.scenarios.resolution.plan import Plan
from paceline.scenarios.sections.extrapolate import ExtrapolatePart, RelationPart, StandInPart, stand_for
from paceline.simulator.runs.stand_in_training import Needed

SLOWDOWNS = {
    "stability-limit": "as a constant delay lowers the largest stable rate on a quadratic",
    "implicit-momentum": "as asynchrony acts like momentum on a quadratic (Mitliagkas et al. 2016)",
}


def of_all(part: ExtrapolatePart, plan: Plan) -> list[str]:
    """Returns the sources of the model's own figures."""
    model, known = plan.scenario.workload.model, part.reference
    return [
        f"{model} was not trained here: its samples/s come from a simulated run without learning, start included.",
        (
            f"{model} reaches {known.reaches} in {known.epochs:g} epochs of synchronous updates of {known.batch} "
            f"samples: {known.provenance}."
        ),
    ]


def of_stand_in(part: ExtrapolatePart, stand_in: StandInPart, plan: Plan, mine: Needed, reference: Needed) -> list[str]:
    """Returns the assumptions of an estimate by a smaller model.

    Args:
        part: the scenario's section.
        stand_in: the smaller model.
        plan: the run.
        mine: the samples that the run's method needs on the smaller model.
        reference: the samples that one worker needs with the reference's batch.
    """
    workload, goal = plan.scenario.workload, f"{100 * stand_in.accuracy:g} % accuracy"
    model, small, own = workload.model, stand_in.model, stand_in.batch_per_worker
    ratio = f"{workload.batch_per_worker / own:g}"
    batch = round(stand_for(workload, stand_in, part.reference.batch))
    said = [
        (
            f"The extra samples that a method needs to {goal} on {small} carry over to {model}. Gradients are those of "
            f"{small}; step times, messages, their order and so every update's staleness are those of {model}."
        ),
        (
            f"A sample of {small} represents {ratio} of {model}: {own} per worker for {workload.batch_per_worker}, "
            f"{batch} for the reference's {part.reference.batch}. If {model} tolerates batches more than {ratio} times "
            f"as large as {small} does, the penalty is overstated; if less, understated."
        ),
        (
            f"Samples to {goal} are interpolated on means of {SMOOTHING} evaluations, every {stand_in.evaluate.text} "
            "or, if weights are averaged less often, at every average."
        ),
        *_brevity(part, plan, batch, reference),
        *_rates(stand_in, plan, mine, reference),
    ]
    for name, found in ((plan.name, mine), (f"{stand_in.alone.name} with the reference's batch", reference)):
        if None in found.samples:
            said.append(f"{name} did not reach {goal} on {small} within {stand_in.epochs:g} epochs with every seed.")
    return said


def _brevity(part: ExtrapolatePart, plan: Plan, batch: int, reference: Needed) -> list[str]:
    """Returns how much shorter the stand-in's training is."""
    if None in reference.samples:
        return []
    updates = part.reference.epochs * plan.scenario.workload.num_samples / part.reference.batch
    return [
        (
            f"The reference's training has {updates:,.0f} updates, the stand-in's {reference.mean / batch:,.0f}. "
            "Effects that need updates to settle, such as staleness and local steps, matter more in the shorter one."
        )
    ]


def _rates(stand_in: StandInPart, plan: Plan, mine: Needed, reference: Needed) -> list[str]:
    """Returns which learning rates were used; a best rate at the end of the list may not be the best."""
    if not stand_in.learning_rates:
        words = (
            f"Learning rates are the scenario's own, {reference.learning_rate:g} for the reference; "
            "none is scaled with the batch."
        )
        own = [] if mine.learning_rate is None else [f"The learning rate of {plan.name} is {mine.learning_rate:g}."]
        return [words, *own]
    tried = ", ".join(f"{rate:g}" for rate in stand_in.learning_rates)
    said = [
        f"Each uses a constant learning rate: the one of {tried} at which its slowest seed needs the fewest samples."
    ]
    for name, found in ((plan.name, mine), ("the reference", reference)):
        if found.learning_rate is not None and None not in found.samples:
            edge = len(stand_in.learning_rates) > 1 and found.learning_rate in (
                min(stand_in.learning_rates),
                max(stand_in.learning_rates),
            )
            beyond = ", at the end of the rates tried: a rate beyond it may need fewer samples" if edge else ""
            said.append(f"The best learning rate of {name} is {found.learning_rate:g}{beyond}.")
    return said


def of_relation(relation: RelationPart, plan: Plan, batch: float, staleness: float) -> list[str]:
    """Returns the assumptions of an estimate by a published relation.

    Args:
        relation: the relation.
        plan: the run.
        batch: samples of one update.
        staleness: mean staleness of the updates.
    """
    said = [
        (
            f"Samples grow as 1 + slowdown × batch / {relation.noise_scale:g}, with a constant noise scale, although "
            "it grows, and the best learning rate for each batch (McCandlish et al. 2018, on a quadratic)."
        ),
        f"The noise scale: {relation.provenance}.",
        f"The batch of {plan.name} is {batch:g} samples, those of one update.",
    ]
    if plan.job.method.staleness_kind is StalenessKind.LOCAL_AGE:
        words = "Local steps between averages cost nothing, as with constant curvature"
        said.append(f"{words}: {plan.name}.")
    elif staleness and relation.staleness == "none":
        said.append(f"The staleness of {plan.name} costs nothing.")
    elif staleness:
        said.append(
            f"The mean staleness of its updates slows {plan.name} down {SLOWDOWNS[relation.staleness]}. That the "
            "slowdown multiplies the batch is derived here, not published."
        )
    return said
