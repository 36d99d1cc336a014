"""Comparisons of two methods on the digits in virtual time: learning rates, runs, differences, and their reasons.

Rules of this file:

* All methods of a setting have the same workers, network, batch, jitter and end. Only the method differs.
* Learning rates are chosen on separate seeds, by the figure that is then tested on the others. A rate is not an option
  of a method: every method is run at every rate of its grid.
* A loss that is not finite or above chance, ln 10, counts as ln 10. Otherwise one run that diverged to 10²⁰ would
  decide every mean.
* Accuracies are trailing means over 5 % of the run's time, on a time grid that is the same for all methods, because a
  mean over a number of evaluations would lag more where evaluations are rare.
* Figures at the end of a run are interpolated to that exact time (or sample) between the evaluations around it.
* Reasons are measured: the samples per second of each method, its loss after equal samples, its staleness, and the
  results where both have the same learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from paceline.algorithms import METHODS
from paceline.papers.claim import TUNING_SEED, Assertion, Given, claims_like
from paceline.papers.verdicts import EVERY_VALUE, Case, Predicted, judge
from paceline.records.metrics import smoothed
from paceline.records.targets import crossing
from paceline.scenarios import load
from paceline.simulator.runs.run import simulate
from paceline.workloads import MODELS

MODEL = "digits-mlp"
GRID = tuple(0.0125 * 2**power for power in range(9))
"""learning rates of every method, from 0.0125 to 3.2"""
LOW = tuple(rate / 4 for rate in GRID)
"""learning rates of methods with momentum, whose steps are up to 1 / (1 − 0.9) times as long"""
FINE = tuple(0.025 * 2 ** (power / 2) for power in range(17))
"""learning rates to find the largest stable one, from 0.025 to 6.4, in steps of 41 %"""
SPEEDS = (8, 4, 4, 2, 2, 1, 1, 1)
"""of workers of unequal speed"""
SAMPLES_PER_S = 250
"""of the slowest of them; provenance: ours"""
STEP_TIMES = {"profile": "shared-cluster", "sigma": 0.1}
"""how step times vary: as on a shared cluster, with a smaller spread; provenance of the spread: ours"""
STEP_S = 0.01
"""time of a batch of 16"""
LATENCY_S = 50e-6
CHANCE = math.log(10)
"""the loss of a guess among ten classes"""
POINTS = 400
"""points of the time grid"""
MARGIN, MARGIN_POINTS = 10.0, 1.0
"""how much worse a loss or a time (in per cent) or an accuracy may be and still count as no worse; provenance: ours"""
ALIKE = 0.02
"""speeds with a smaller difference are called equal; provenance: ours"""
UNLIKE = 0.1
"""difference of the nodes' mean staleness, relative to the mean, below which it is not mentioned; provenance: ours"""

Figure = Literal["loss", "accuracy", "time", "largest rate", "distance"]
Direction = Literal["lower", "higher", "no worse"]


# --- what is compared -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster, a batch and an end.

    A network is defined by the time that the trained weights, 19 kB, need in it, relative to a step of 10 ms. The
    clusters of the papers sent models of 0.3 to 250 MB; only the ratio to a step is of the same order here. Provenance
    of every number: ours, because the numbers of the papers are mostly not known to us.
    """

    name: str
    words: str
    nodes: int = 1
    workers_per_node: int = 1
    message_s: float = 0.0001
    """time of the weights from one node to another"""
    local_s: float = 0.0001
    """time of the weights from one rank to another in one node"""
    batch: int = 16
    seconds: float | None = None
    """the end, in virtual time …"""
    samples: int | None = None
    """… or in samples of all workers"""
    target: float = 0.93
    """the target accuracy of times to accuracy"""
    unlike: bool = False
    """whether the workers have the `SPEEDS`"""

    @property
    def end(self) -> float:
        """The unit of the end: seconds or samples."""
        return self.seconds or self.samples or 0

    @property
    def unit(self) -> float:
        """The factor from the unit of the run to that of figures: ms, or samples."""
        return 1.0 if self.seconds is None else 1e3

    def cluster(self) -> dict[str, Any]:
        """Returns the section of the scenario."""
        jitter = {"step_time": STEP_TIMES}
        if self.unlike:
            devices = [
                {"name": f"speed-{speed}", "overhead": "0 s", "per_sample": f"{1 / (SAMPLES_PER_S * speed)!r} s"}
                for speed in SPEEDS
            ]
            network = {"topology": "star", "link": "eth-10g"}
            return {"nodes": [{"device": device} for device in devices], "network": network, **jitter}
        device = {"name": "device", "overhead": f"{STEP_S / 5} s", "per_sample": f"{STEP_S / 20} s"}
        return {
            "nodes": [{"device": device, "count": self.nodes, "workers_per_node": self.workers_per_node}],
            "network": {"topology": "star", "link": _link(self.message_s), "intra_node_link": _link(self.local_s)},
            **jitter,
        }


def _link(message_s: float) -> dict[str, str]:
    """Returns a link over which the weights take this time, latency included."""
    latency_s, nbytes = min(LATENCY_S, message_s / 10), MODELS[MODEL].layout().size * 4
    return {"latency": f"{latency_s!r} s", "bandwidth": f"{8 * nbytes / (message_s - latency_s)!r} bit/s"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A method with its options, in a setting."""

    method: str
    setting: Setting
    options: tuple[tuple[str, Any], ...] = ()
    scale: float = 1.0
    """the factor of the learning rates of the grid"""
    grid: tuple[float, ...] = field(default=GRID, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The method and its options."""
        shown = [f"{key} {'none' if value is None else value}" for key, value in self.options]
        return f"{self.method} ({', '.join(shown)})" if shown else self.method

    def scenario(self, rate: float, seed: int) -> dict[str, Any]:
        """Returns the scenario of one run.

        Args:
            rate: A learning rate of the grid. The method's own is `scale` times as large.
            seed: Of initial weights, samples and jitter.
        """
        end = self.setting
        stop: dict[str, Any] = {"samples": end.samples} if end.seconds is None else {"seconds": f"{end.seconds!r} s"}
        return {
            "name": "claims",
            "algorithms": [{"name": self.method, "learning_rate": rate * self.scale, **dict(self.options)}],
            "workload": {"model": MODEL, "dataset": "digits", "batch_per_worker": end.batch},
            "cluster": end.cluster(),
            "evaluate": {"every": f"{max(128, end.batch)} samples"},
            "stop": {**stop, "divergence": False},  # a diverged loss may decrease again
            "seed": seed,
        }


def entered(
    method: str, setting: Setting, *, scale: float = 1.0, grid: tuple[float, ...] | None = None, **options: Any
) -> Contender:
    """Returns a contender with its options as keywords. Without a grid it has the default one of its kind."""
    momentum = options.get("momentum", getattr(METHODS[method], "momentum", 0.0))
    return Contender(method, setting, tuple(options.items()), scale, grid or (LOW if momentum else GRID))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two contenders, a figure, and what is claimed of ours relative to theirs."""

    ours: Contender
    theirs: Contender
    figure: Figure = "loss"
    direction: Direction = "lower"
    reference: Contender | None = None
    """the contender from whose curve distances are measured"""
    rate_of: Contender | None = None
    """the contender whose best learning rate both must use; None: each uses its own"""
    alike: bool = True
    """whether a learning rate means the same for both, so that they can be compared at a common one"""

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The contenders whose runs it needs."""
        return tuple(filter(None, (self.ours, self.theirs, self.reference, self.rate_of)))

    @property
    def better(self) -> Literal["lower", "higher"]:
        """Whether lower or higher is better, independent of the claim."""
        return "higher" if self.figure in ("accuracy", "largest rate") else "lower"

    @property
    def relative(self) -> bool:
        """Whether the claimed figure is a difference in per cent of theirs."""
        return self.direction == "no worse" and self.figure != "accuracy"

    @property
    def asserted(self) -> tuple[Assertion, float | None, str]:
        """What the difference must be to hold, the limit if there is one, and its unit."""
        if self.relative:
            return "at most", MARGIN, "%"
        if self.direction == "no worse":
            return "at least", -MARGIN_POINTS, "points"
        unit = {"accuracy": "points", "time": "ms" if self.ours.setting.seconds else "samples"}.get(self.figure, "")
        return ("negative" if self.direction == "lower" else "positive"), None, unit

    @property
    def digits(self) -> str:
        """The format of a figure of one side."""
        formats = {"loss": ".4f", "accuracy": ".2f", "time": ".0f", "largest rate": ".2f", "distance": ".4f"}
        return formats[self.figure]


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures that are kept of a run."""

    samples: tuple[float, ...]
    losses: tuple[float, ...]
    """held-out loss after these samples, at most `CHANCE`"""
    loss: float
    """final loss"""
    accuracy: float
    """final accuracy in per cent"""
    reached: float | None
    """when the target was reached, in ms of virtual time (in samples, where the end is in samples)"""
    staleness: float
    """mean over updates"""
    staleness_of_ranks: float
    """mean of the ranks' means"""
    samples_per_s: float

    @property
    def diverged(self) -> bool:
        """Whether the final loss is that of a guess."""
        return self.loss >= CHANCE

    def loss_at(self, samples: float) -> float:
        """Returns the loss after this many samples."""
        return float(np.interp(samples, self.samples, self.losses))


@cache
def outcome(contender: Contender, rate: float, seed: int) -> Outcome:
    """Runs a contender once and returns its figures.

    Args:
        contender: The method in its setting.
        rate: A learning rate of the grid.
        seed: Of initial weights, samples and jitter.
    """
    setting = contender.setting
    (run,) = simulate(load(contender.scenario(rate, seed)), intervals=False)
    seen, staleness = run.tables.evaluations, run.summary["staleness"]
    axis = seen["time_s" if setting.samples is None else "samples"]
    losses = np.minimum(np.nan_to_num(seen["loss"].to_numpy(), nan=CHANCE, posinf=CHANCE), CHANCE)
    grid = np.linspace(0.0, setting.end, POINTS + 1)
    accuracies = smoothed(np.interp(grid, axis, seen["accuracy"]).tolist(), POINTS // 20)
    reached = crossing(setting.target, accuracies.tolist())
    return Outcome(
        samples=tuple(seen["samples"].astype(float)),
        losses=tuple(losses.tolist()),
        loss=float(np.interp(setting.end, axis, losses)),
        accuracy=100 * float(accuracies[-1]),
        reached=None if reached is None else reached.at(grid.tolist()) * setting.unit,
        staleness=staleness["mean"] or 0.0,
        staleness_of_ranks=staleness["mean_of_ranks"] or 0.0,
        samples_per_s=run.summary["samples_per_s"] or 0.0,
    )


def value(figure: Figure, contender: Contender, run: Outcome) -> float:
    """Returns a figure of one run. A target that was not reached counts as reached at the end, which is too early."""
    if figure == "time":
        return contender.setting.end * contender.setting.unit if run.reached is None else run.reached
    return run.accuracy if figure == "accuracy" else run.loss


def distance(run: Outcome, other: Outcome) -> float:
    """Returns the mean distance of two loss curves over the samples that both have processed."""
    samples = np.linspace(0.0, min(run.samples[-1], other.samples[-1]), 101).tolist()
    return float(np.mean([abs(run.loss_at(seen) - other.loss_at(seen)) for seen in samples]))


def largest(contender: Contender, seed: int) -> float:
    """Returns the largest learning rate of the grid up to which nothing diverges; 0 if everything does."""
    stable = 0.0
    for rate in contender.grid:
        if outcome(contender, rate, seed).diverged:
            break
        stable = rate * contender.scale
    return stable


# --- the comparison ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs behind a comparison, on seeds for choosing the rates and on seeds for the test."""

    of: Comparison
    tuning: tuple[int, ...]
    testing: tuple[int, ...]

    @staticmethod
    def behind(of: Comparison, given: Given, testing: Iterable[int]) -> Runs:
        """Returns the runs of a comparison.

        Args:
            of: The comparison.
            given: Decides on the number of seeds of tuning.
            testing: The seeds of the test.
        """
        return Runs(of, tuple(range(TUNING_SEED, TUNING_SEED + given.choose(3, 1))), tuple(testing))

    @property
    def rates(self) -> tuple[float, float]:
        """Our and their learning rate: the best of each, or of `rate_of`."""
        of = self.of
        if of.figure == "largest rate":
            return of.ours.grid[0], of.theirs.grid[0]
        return self.best(of.rate_of or of.ours), self.best(of.rate_of or of.theirs)

    def tuned(self, contender: Contender, figure: Figure, rate: float) -> float:
        """Returns the mean of a figure on the tuning seeds."""
        return float(np.mean([value(figure, contender, outcome(contender, rate, seed)) for seed in self.tuning]))

    def best(self, contender: Contender) -> float:
        """Returns the rate with the best mean on the tuning seeds; among equals that with the smaller loss, then the
        smallest.

        So there is a choice even if the target is never reached.
        """
        if len(contender.grid) == 1:
            return contender.grid[0]
        figure: Figure = "loss" if self.of.figure == "distance" else self.of.figure
        sign = -1 if figure == "accuracy" else 1
        return min(
            contender.grid,
            key=lambda rate: (sign * self.tuned(contender, figure, rate), self.tuned(contender, "loss", rate)),
        )

    def tested(self, contender: Contender, rate: float) -> list[Outcome]:
        """Returns one outcome for each test seed."""
        return [outcome(contender, rate, seed) for seed in self.testing]

    def figures(self, contender: Contender, rate: float) -> list[float]:
        """Returns the figure that is compared, one for each test seed."""
        if self.of.figure == "largest rate":
            return [largest(contender, seed) for seed in self.testing]
        runs = self.tested(contender, rate)
        if self.of.reference is None:
            return [value(self.of.figure, contender, run) for run in runs]
        return [distance(*pair) for pair in zip(runs, self.tested(self.of.reference, rate), strict=True)]

    def differences(self, ours: float, theirs: float) -> list[float]:
        """Returns ours − theirs at these rates for each test seed, in the unit of the claim.

        Args:
            ours: Our learning rate.
            theirs: Their learning rate.
        """
        pairs = zip(self.figures(self.of.ours, ours), self.figures(self.of.theirs, theirs), strict=True)
        if self.of.relative:
            return [100 * (own / other - 1) for own, other in pairs]
        return [own - other for own, other in pairs]


def difference(of: Comparison, given: Given) -> float:
    """Returns ours − theirs of one seed, each at its best rate.

    Args:
        of: The comparison.
        given: The seed.
    """
    runs = Runs.behind(of, given, [given.seed])
    (less,) = runs.differences(*runs.rates)
    return less


# --- reasons ----------------------------------------------------------------------------------------------------------

_BARE = claims_like("digits", section="", hardware="", model="", batch="", scenario="", command="", inputs=())


def judged(differences: Sequence[float], of: Comparison | None = None) -> Predicted:
    """Returns the mean of paired differences with its interval over seeds, and the verdict by the rule of all claims.

    Args:
        differences: One for each seed.
        of: The comparison whose assertion is judged; without it the assertion is that the mean is negative.
    """
    asserted: tuple[Assertion, float | None, str] = ("negative", None, "") if of is None else of.asserted
    holds_if, published, _ = asserted
    claim = _BARE("difference", "", lambda _: 0.0, holds_if=holds_if, published=published, bounds=EVERY_VALUE)
    return judge(claim, [Case((), tuple(differences))], {})


def reasons(of: Comparison, given: Given) -> Iterator[str]:
    """Yields sentences on both sides and on what was measured beside the figure, over all test seeds.

    Args:
        of: The comparison.
        given: Decides on the seeds.
    """
    runs = Runs.behind(of, given, range(1, given.choose(10, 3) + 1))
    yield _sides(runs)
    pair = runs.rates
    ours, theirs = (runs.tested(side, rate) for side, rate in zip((of.ours, of.theirs), pair, strict=True))
    if of.figure != "largest rate":
        speed = _mean(ours, lambda run: run.samples_per_s) / _mean(theirs, lambda run: run.samples_per_s)
        ends = [min(run.samples[-1], other.samples[-1]) for run, other in zip(ours, theirs, strict=True)]
        losses = [[run.loss_at(end) for run, end in zip(side, ends, strict=True)] for side in (ours, theirs)]
        worse = judged(np.subtract(losses[0], losses[1]).tolist())
        yield from cause(judged(runs.differences(*pair), of).verdict, of.ours.setting, speed, worse)
        yield (
            "As many samples per second as theirs."
            if abs(speed - 1) < ALIKE
            else f"{speed:.2f} times their samples per second."
        )
        if worse.low <= 0 <= worse.high:
            yield "After equal samples the losses are not told apart."
        else:
            by = abs(worse.value) / float(np.mean(losses[1]))
            yield f"After equal samples its loss is {'higher' if worse.value > 0 else 'lower'} by {by:.0%}."
    yield _staleness(ours, theirs)
    if of.figure != "largest rate" and of.alike:
        yield from _at_common_rates(runs)


def _sides(runs: Runs) -> str:
    """Returns the mean of both sides with their rates, and their difference."""
    of, said = runs.of, []
    means = []
    for contender, rate in zip((of.ours, of.theirs), runs.rates, strict=True):
        figures = runs.figures(contender, rate)
        means.append(float(np.mean(figures)))
        text = f"{contender.label} {means[-1]:{of.digits}}"
        ends = (contender.grid[0], contender.grid[-1])
        if of.figure != "largest rate":
            text += f" at {rate * contender.scale:.4g}" + "*" * (rate in ends and ends[0] != ends[1])
        elif max(figures) == ends[1] * contender.scale:
            text += "*"
        if of.figure == "time":
            reached = sum(run.reached is not None for run in runs.tested(contender, rate))
            text += f", {reached} reached it" * (reached < len(runs.testing))
        said.append(text)
    relative = f" ({_percent(means[0] / means[1] - 1)})" if means[1] else ""
    return f"{'; '.join(said)}{relative}."


def _at_common_rates(runs: Runs) -> Iterator[str]:
    """Yields what comes out if both sides have our best rate, or theirs, and at how many rates ours is better."""
    of = runs.of
    for rate in sorted(set(runs.rates)) if len(set(runs.rates)) > 1 else []:
        common = judged(runs.differences(rate, rate), of)
        theirs = float(np.mean(runs.figures(of.theirs, rate)))
        relative = common.value / 100 if of.relative else common.value / theirs if theirs else 0.0
        yield f"Both at {rate:.4g}: {common.verdict} ({_percent(relative)})."
    if of.rate_of is None and of.reference is None and len(of.ours.grid) > 1:
        yield "Better at {} of the {} common rates at which one learns.".format(*_favours(runs))


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.0f} %".replace("-", "−")


def _mean(runs: Sequence[Outcome], of: Callable[[Outcome], float]) -> float:
    return float(np.mean([of(run) for run in runs]))


def cause(verdict: str, setting: Setting, speed: float, worse: Predicted) -> list[str]:
    """Tells whether a method lost through its speed or through what it learns per sample; nothing if neither shows.

    A run that ends after a number of samples does not show speed.

    Args:
        verdict: The verdict of the comparison.
        setting: The setting of our method.
        speed: Our samples per second over theirs.
        worse: Our loss after equal samples minus theirs.
    """
    if verdict != "misses":
        return []
    slower = setting.samples is None and speed < 1 - ALIKE
    causes = ["it is slower"] * slower + ["it learns less from a sample"] * (worse.low > 0)
    return [f"Why: {' and '.join(causes)}."] if causes else []


def _staleness(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> str:
    means = [_mean(runs, lambda run: run.staleness) for runs in (ours, theirs)]
    of_ranks = [_mean(runs, lambda run: run.staleness_of_ranks) for runs in (ours, theirs)]
    text = f"Staleness, as each counts it: {means[0]:.1f} and {means[1]:.1f}"
    if any(abs(rank - mean) > UNLIKE * mean for rank, mean in zip(of_ranks, means, strict=True)):
        text += f"; mean of the nodes' means {of_ranks[0]:.1f} and {of_ranks[1]:.1f}"
    return f"{text}."


def _favours(runs: Runs) -> tuple[int, int]:
    """Returns the number of rates of the grid at which ours is better on the tuning seeds, and of those at which one
    learns.
    """
    of, learn, better = runs.of, 0, 0
    sign = 1 if of.better == "lower" else -1
    for rate in of.ours.grid:
        if rate not in of.theirs.grid:
            continue
        sides = (of.ours, of.theirs)
        if min(runs.tuned(side, "loss", rate) for side in sides) < CHANCE / 2:
            ours, theirs = (sign * runs.tuned(side, of.figure, rate) for side in sides)
            learn, better = learn + 1, better + (ours < theirs)
    return better, learn
