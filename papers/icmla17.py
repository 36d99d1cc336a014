"""Claims on hierarchical bulk-synchronous SGD at 128 GPUs: speed-up, hierarchy, comparisons with asynchronous methods.

Rules of this file:

* The time to an accuracy is that of the samples which the stand-in needs, at the samples per second of the network.
* A training depends on method, learning rate, seed and stand-in only, so other machines and networks need no other
  trainings. Averages do not depend on times. A server applies a gradient of each worker in turn, whatever a step
  takes, so the mean staleness of asynchronous methods does not depend on them either.
* Every method is tuned in the same way on separate seeds, for the accuracy `TUNED_FOR`: the learning rate by samples;
  k1 and k2 of hbs-sgd, and the periods of Downpour and EAMSGD, by what is compared, time or samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from statistics import fmean
from typing import Any, Literal

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import SgdMethod
from paceline.algorithms.methods.async_elastic import Eamsgd
from paceline.algorithms.methods.baseline import SequentialSgd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.periodic import HbsSgd
from paceline.algorithms.methods.ssp import Downpour
from paceline.papers.claim import TUNING_SEED, Claim, Curve, Given, claims_like
from paceline.papers.runs import NEVER, Cost, Trained, best_rate, rate_of, simulated, trained

PAPER, SCENARIO = "icmla17", "icmla17-cifar10"
PUBLISHED = 56.0
TUNED_FOR = 0.96
"""the accuracy for which all is tuned"""
MARGIN = 1.05
"""part of the samples of the best rate so far after which another rate is given up; means of evaluations lag by less"""
RATES = tuple(float(f"{0.001 * 10 ** (power / 4):.3g}") for power in range(15))
EPOCH = 1437
"""training samples of the digits"""
HIERARCHIES = ((1, 1), (1, 4), (4, 4), (4, 16), (16, 16))
"""k1 and k2 that are tried"""
PERIODS = (1, 4)
"""of Downpour and EAMSGD that are tried; 16 and 64, which NIPS 2015 has too (MEMORY medium), leave 128 workers hardly
an exchange until the stand-in is trained"""
VERSION = "2.0"
"""of both libraries in 2017: Open MPI's on which Spectrum MPI 10.1 rests, and NCCL's of that summer (MEMORY high)"""
GPUS_OF_NODE = {"minsky": 4, "dgx1-p100": 8}
TIME = ("machine", "library", "model", "batch", "jitter")
LEARNING = ("gpus", "group", "stand-in", "target")
"""inputs of a training"""
INPUTS = (*LEARNING, *TIME)
By = Literal["time", "samples"]


# --- samples per second -----------------------------------------------------------------------------------------------


def samples_per_s(method: SgdMethod, given: Given) -> float:
    """Returns the samples per second of all GPUs, or of one for sequential SGD.

    Args:
        method: The method; its learning rate does not matter.
        given: With the inputs of time.
    """
    plain: Any = replace(method, learning_rate=RATES[0])
    return _samples_per_s(plain, given.only("gpus", *TIME))


@cache
def _samples_per_s(method: SgdMethod, given: Given) -> float:
    gpus = 1 if isinstance(method, SequentialSgd) else int(given.number("gpus"))
    steps = 32 if isinstance(method, (HbsSgd, SequentialSgd)) else given.choose(16, 8)
    batch = int(given.number("batch"))
    changes = [
        *_machine(given.word("machine"), int(given.number("gpus"))),
        f"cluster.network.library={given.word('library')}",
        f"cluster.network.library_version='{VERSION}'",
        f"cluster.step_time.sigma={given.number('jitter')}",
        f"workload.model={given.word('model')}",
        "workload.dataset=null",
        f"workload.batch_per_worker={batch}",
        "extrapolate=null",
        f"stop.samples={steps * batch * gpus}",
    ]
    (run,) = simulated(SCENARIO, changes, algorithms=[method])
    return rate_of(run)


def _machine(name: str, gpus: int) -> list[str]:
    """Returns the changes for so many GPUs of a machine."""
    if name not in GPUS_OF_NODE:
        raise InputError(f"input 'machine': found {name!r}, expected {' or '.join(GPUS_OF_NODE)}")
    return [f"cluster.system={name}", f"cluster.nodes={max(1, gpus // GPUS_OF_NODE[name])}"]


# --- trainings --------------------------------------------------------------------------------------------------------


@cache
def _training(method: SgdMethod, stand_in: str, gpus: int, seed: int, epochs: float, accuracy: float) -> Trained:
    # copies of batches, which are alike on all workers, change no order
    machine = [*_machine("minsky", gpus), "cluster.staging={batches: none}"]
    changes = [f"extrapolate.stand_in.model={stand_in}", *machine]
    one = isinstance(method, SequentialSgd)
    return trained(SCENARIO, method, changes, seed=seed, epochs=epochs, accuracy=accuracy, one_worker=one)


def training(
    method: SgdMethod, given: Given, seed: int, *, accuracy: float = TUNED_FOR, epochs: float = math.inf
) -> Trained:
    """Returns the training of the stand-in until an accuracy, or until its epochs are over.

    Args:
        method: With its learning rate.
        given: With the inputs of learning.
        seed: Of initial weights and samples.
        accuracy: At which it ends; one below `TUNED_FOR` shares the training to that.
        epochs: After which it ends, if that is before the limit of all trainings.
    """
    gpus = 128 if isinstance(method, SequentialSgd) else int(given.number("gpus"))
    most = min(epochs, epochs_of(given))
    return _training(method, given.word("stand-in"), gpus, seed, most, max(TUNED_FOR, accuracy))


def samples_to_target(method: SgdMethod, given: Given, seed: int) -> float:
    """Returns the samples to the target; infinity if it was not reached."""
    target = given.number("target")
    return training(method, given, seed, accuracy=target).samples_to(target)


def epochs_of(given: Given) -> float:
    """Returns the epochs after which a training ends that has not reached its target."""
    return float(given.choose(10, 5))


def tuning_samples(method: SgdMethod, given: Given) -> float:
    """Returns the mean samples to `TUNED_FOR` on the seeds of tuning; infinity if one of them does not reach it."""
    needed = []
    for seed in range(TUNING_SEED, TUNING_SEED + given.choose(2, 1)):
        needed.append(training(method, given, seed).samples_to(TUNED_FOR))
        if needed[-1] == math.inf:
            break
    return fmean(needed)


@cache
def _at_best_rate(method: SgdMethod, given: Given) -> SgdMethod:
    fewest = epochs_of(given)

    def rated(rate: float) -> SgdMethod:
        return replace(method, learning_rate=rate)

    def cost(rate: float) -> Cost:
        """Returns the samples that are needed, infinite if a rate that was tried before needs fewer; then accuracy."""
        nonlocal fewest
        tried = training(rated(rate), given, TUNING_SEED, epochs=fewest)
        needed = tried.samples_to(TUNED_FOR)
        fewest = min(fewest, MARGIN * needed / EPOCH)
        return needed, -tried.highest

    doublings = 0.0 if not isinstance(method, HbsSgd) else math.log2(given.number("gpus"))
    start = RATES[{"eamsgd": 6, "sequential-sgd": 5}.get(method.name, 4 + round(doublings))]  # saves time only
    return rated(best_rate(cost, RATES, start))


def at_best_rate(method: SgdMethod, given: Given) -> SgdMethod:
    """Returns a method at the learning rate with which it needs the fewest samples to `TUNED_FOR`.

    If it reaches that at none, it is the one with the highest accuracy.
    """
    return _at_best_rate(method, given.only("gpus", "stand-in"))


# --- what is tuned ----------------------------------------------------------------------------------------------------


def settings(family: str, given: Given) -> list[SgdMethod]:
    """Returns the methods that are tried.

    Args:
        family: The name of a method; or a condition on k1 and k2 of hbs-sgd.
        given: With the size of a group.
    """
    match family:
        case "sequential-sgd":
            return [SequentialSgd()]
        case "async-sgd":
            return [AsyncSgd()]
        case "downpour":
            return [Downpour(n_push=period, n_fetch=period) for period in PERIODS]
        case "eamsgd":
            return [Eamsgd(period=period) for period in PERIODS]
    group, tried = int(given.number("group")), HIERARCHIES[: given.choose(len(HIERARCHIES), 3)]
    of_family = {
        "hbs-sgd": tried,
        "k2 = 1": [(k1, k2) for k1, k2 in tried if k2 == 1],
        "k2 > 1": [(k1, k2) for k1, k2 in tried if k2 > 1],
        "k1 = k2": [(k1, k2) for k1, k2 in tried if k1 == k2],
        "k1 < k2": [(k1, k2) for k1, k2 in tried if k1 < k2],
    }[family]
    return [HbsSgd(k1=k1, k2=k2, group=group if k1 < k2 else "node") for k1, k2 in of_family]


@cache
def _best(family: str, given: Given, by: By) -> SgdMethod:
    def cost(method: SgdMethod) -> float:
        samples = tuning_samples(method, given)
        return samples / samples_per_s(method, given) if by == "time" else samples

    return min((at_best_rate(method, given) for method in settings(family, given)), key=cost)


def best(family: str, given: Given, by: By) -> SgdMethod:
    """Returns the method of a family that needs the least time, or the fewest samples, to the target.

    Args:
        family: As in `settings`.
        given: The inputs.
        by: What is compared.
    """
    return _best(family, given.only("gpus", "group", "stand-in", *(TIME if by == "time" else ())), by)


# --- figures ----------------------------------------------------------------------------------------------------------


def speed_up(given: Given) -> float:
    """Returns the time of one GPU to the target over that of all; 0 if the target was not reached.

    A single GPU could take the steps of all workers in turn, so the speed-up is at most the number of GPUs.
    """
    return _speed_up(best("hbs-sgd", given, "time"), given, range(given.seed, given.seed + 1))


def _speed_up(method: SgdMethod, given: Given, seeds: range) -> float:
    one, end = at_best_rate(SequentialSgd(), given), epochs_of(given) * EPOCH
    faster = samples_per_s(method, given) / samples_per_s(one, given)
    alone = fmean(min(end, samples_to_target(one, given, seed)) for seed in seeds)
    ours = fmean(samples_to_target(method, given, seed) for seed in seeds)
    return min(given.number("gpus"), faster * alone / ours)


def compared(theirs: str, by: By, given: Given, ours: str = "hbs-sgd") -> float:
    """Returns the time or samples to the target of other methods, over those of ours; each is tuned for it.

    Where the others do not reach the target, they count as there at the end of the training, which flatters them; where
    ours do not, they count as there at twice that.

    Args:
        theirs: A family of `settings`.
        by: What is compared.
        given: The inputs.
        ours: A family of `settings`.
    """
    end = epochs_of(given) * EPOCH

    def cost(family: str, unreached: float) -> float:
        method = best(family, given, by)
        samples = samples_to_target(method, given, given.seed)
        samples = samples if samples < math.inf else unreached
        return samples / samples_per_s(method, given) if by == "time" else samples

    return cost(theirs, end) / cost(ours, 2 * end)


def accuracy(given: Given) -> float:
    """Returns the final accuracy of hbs-sgd minus that of sequential SGD, in points, after the same samples."""
    epochs = given.number("final-epochs") * given.choose(2, 1) / 2
    length = max(epochs, given.choose(15, 8))

    def final(method: SgdMethod) -> float:
        gpus = 128 if isinstance(method, SequentialSgd) else int(given.number("gpus"))
        run = _training(method, given.word("stand-in"), gpus, given.seed, length, NEVER)
        return run.accuracy_after(epochs * EPOCH)

    return final(best("hbs-sgd", given, "samples")) - final(at_best_rate(SequentialSgd(), given))


# --- what is said about them ------------------------------------------------------------------------------------------


def described(method: SgdMethod) -> str:
    """Returns a method with what was tuned.

    >>> described(HbsSgd(k1=1, k2=4, learning_rate=0.5)), described(SequentialSgd(learning_rate=0.1))
    ('hbs-sgd (k1 1, k2 4, rate 0.5)', 'sequential-sgd (rate 0.1)')
    """
    names = {"k1": "k1", "k2": "k2", "n_push": "period", "period": "period", "learning_rate": "rate"}
    tuned = [f"{word} {getattr(method, name):g}" for name, word in names.items() if hasattr(method, name)]
    return f"{method.name} ({', '.join(tuned)})"


def _about_speed_ups(given: Given) -> Iterator[str]:
    one = at_best_rate(SequentialSgd(), given)
    yield f"Tuned: {described(best('hbs-sgd', given, 'time'))}; {described(one)}."
    yield f"One GPU needs {tuning_samples(one, given):.0f} updates to accuracy {TUNED_FOR:g}."
    seeds = range(TUNING_SEED, TUNING_SEED + given.choose(2, 1))
    for model in NETWORKS:
        of_model = given.with_value("model", model)
        rows = [
            f"{method.k1}, {method.k2}: {_speed_up(method, of_model, seeds):.0f}"
            for method in (at_best_rate(each, given) for each in settings("hbs-sgd", given))
            if isinstance(method, HbsSgd)
        ]
        yield f"{model} by k1, k2, on the seeds of tuning: {'; '.join(rows)}."


def _about_comparison(families: tuple[str, ...], by: By, given: Given) -> Iterator[str]:
    yield f"Tuned: {'; '.join(described(best(family, given, by)) for family in families)}."
    missed = {
        family: sum(
            samples_to_target(best(family, given, by), given, seed) == math.inf
            for seed in range(1, given.choose(10, 3) + 1)
        )
        for family in families
    }
    unreached = [f"{family} with {count} of {given.choose(10, 3)} seeds" for family, count in missed.items() if count]
    if unreached:
        yield f"The target was missed by {' and by '.join(unreached)}; see `compared` for what counts then."


NETWORKS = ("cifar10-full", "cifar-alexnet", "alexnet")


def _curve(given: Given) -> Curve:
    """Returns the speed-up by the number of GPUs, at the k1 and k2 that are best on all; rates are tuned for each."""
    most, lines = int(given.number("gpus")), {}
    counts = [2**power for power in range(2, 1 + int(math.log2(most)))]
    for model in NETWORKS[: given.choose(3, 1)]:
        of_model = given.with_value("model", model)
        method = best("hbs-sgd", of_model, "time")
        assert isinstance(method, HbsSgd)
        points = [(1.0, 1.0)]
        for gpus in counts[:: given.choose(1, len(counts) - 1)]:
            here = of_model.with_value("gpus", str(gpus))
            points.append((float(gpus), _speed_up(at_best_rate(_plain(method), here), here, range(1, 2))))
        lines[f"{model}, k1 = {method.k1}, k2 = {method.k2}"] = points
    return Curve(
        x="GPUs",
        y="speed-up to the accuracy",
        lines=lines | {"as many times as GPUs": [(1.0, 1.0), (float(most), float(most))]},
        published_lines={"paper": [(float(most), PUBLISHED)]},
        log_x=True,
        log_y=True,
    )


def _plain(method: SgdMethod) -> SgdMethod:
    """Returns a method with the learning rate before tuning, so that equal methods are equal."""
    return replace(method, learning_rate=type(method)().learning_rate)


# --- the claims -------------------------------------------------------------------------------------------------------

_made = claims_like(
    PAPER,
    section="abstract",
    hardware="128 GPUs",
    model="not found; a CIFAR-10 network here",
    batch="not found; 64 per GPU here",
    scenario=SCENARIO,
    command="paceline simulate icmla17-cifar10",
    shares="icmla17",
)


def _against(name: str, theirs: str, by: By, sentence: str, ours: str = "hbs-sgd", **more: Any) -> Claim:
    inputs = (*LEARNING, *(TIME if by == "time" else ()))
    figure = partial(compared, theirs, by, ours=ours)
    explain = partial(_about_comparison, (ours, theirs), by)
    return _made(name, sentence, figure, inputs=inputs, holds_if="order", explain=explain, **more)


def _comparisons() -> Iterator[Claim]:
    for theirs in ("async-sgd", "downpour", "eamsgd"):
        # that Downpour and EAMSGD are the asynchronous methods of the paper is MEMORY medium
        kind = {"kind": "headline" if theirs == "async-sgd" else "supporting"}
        words = f"converges better than {theirs} (samples to the accuracy, {theirs} over hbs-sgd)"
        yield _against(f"convergence-{theirs}", theirs, "samples", words, **kind)
        words = f"is faster at scale than {theirs} (time to the accuracy, {theirs} over hbs-sgd)"
        yield _against(f"time-{theirs}", theirs, "time", words, **kind)


CLAIMS: tuple[Claim, ...] = (
    _made(
        "speed-up",
        "up to 56 times sequential SGD with 128 GPUs, at similar test accuracy (time to the same accuracy)",
        speed_up,
        published=PUBLISHED,
        inputs=INPUTS,
        holds_if="within 25 %",
        bounds=(0.0, 128.0),
        explain=_about_speed_ups,
        curve=_curve,
        together="speed-up",
    ),
    _made(
        "accuracy",
        "similar test accuracy as sequential SGD (hbs-sgd minus sequential SGD; read as at most one point lower)",
        accuracy,
        published=-1.0,
        unit="points",
        inputs=("gpus", "group", "stand-in", "final-epochs"),
        seeds=3,
        holds_if="at least",
        bounds=(-100.0, 100.0),
    ),
    *_comparisons(),
    _against(
        "rare-averages",
        "k2 = 1",
        "time",
        "averages of all workers after several steps are faster than after each (time to the accuracy, k2 = 1 over the "
        "best k2 > 1)",
        "k2 > 1",
        kind="supporting",
    ),
    _against(
        "hierarchy",
        "k1 = k2",
        "time",
        "averages inside nodes between those of all workers help (time to the accuracy, the best k1 = k2 over the best "
        "k1 < k2)",
        "k1 < k2",
        kind="supporting",
    ),
)
