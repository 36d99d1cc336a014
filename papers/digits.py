"""The papers' claims on accuracy and convergence, each as a comparison on the digits that can come out either way.

Rules of this file:

* Every sentence has the source of its words: FOUND in public material (mostly the abstract), from MEMORY, or an
  INFERENCE. Words of ours are tested in the same way.
* A claim is a headline if its words were found and no other module computes it; what a paper's own module computes with
  its machine is supporting here, where all methods are compared on the same small network.
* The direction is the paper's statement on the first method relative to the second. This file contains no results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import pi, sin

from paceline.papers.claim import Claim
from paceline.papers.comparisons import (
    FINE,
    GRID,
    LOW,
    Comparison,
    Contender,
    Direction,
    Figure,
    Setting,
    difference,
    entered,
    reasons,
)
from paceline.papers.verdicts import EVERY_VALUE

ICMLA = "Cong, Bhardwaj, ICMLA'17"
SASGD = "Cong, Bhardwaj, Feng, ICPP'17"
K_AVG = "Zhou, Cong, IJCAI'18"
HIER_AVG = "Zhou, Cong, arXiv 1903.05133"
DBS = "Ji et al., J. Comp. R&D 2019"
PNNL = "Daily et al., rkFd2P5gl"
RUDRA = "Zhang, Gupta, Lian, Liu, IJCAI'16"
OURS = "Reasons of ours, tested in the same way"
LARS = "You, Gitman, Ginsburg, arXiv 1708.03888"
OWN_MODULE = (ICMLA, DBS, PNNL, RUDRA)
"""papers whose claims another module computes"""

TWO = Setting("2 × 4", "two nodes of four devices", nodes=2, workers_per_node=4, message_s=1e-3, seconds=0.6)
EIGHT = Setting("8 × 4", "eight nodes of four devices", nodes=8, workers_per_node=4, message_s=1e-3, seconds=0.4)
EIGHT_SAMPLES = replace(EIGHT, name="8 × 4, samples", words="the same, equal samples", seconds=None, samples=16384)
UNLIKE = Setting("unlike", "eight workers of speeds 8 to 1", seconds=1.0, batch=32, unlike=True)
UNLIKE_SAMPLES = replace(UNLIKE, name="unlike, samples", words="the same, equal samples", seconds=None, samples=5632)
NODE = Setting("node", "one node of eight devices", workers_per_node=8, local_s=0.5e-3, seconds=0.5)
BOUND = Setting("bound", "eight nodes whose messages weigh", nodes=8, message_s=3.2e-3, seconds=0.6)
BOUND_SAMPLES = replace(BOUND, name="bound, samples", words="the same, equal samples", seconds=None, samples=6144)
THIRTY = Setting("thirty", "thirty learners with batches of 4", nodes=30, batch=4, samples=4096)
SMALL = Setting("batch 64", "four devices, a global batch of 64", nodes=2, workers_per_node=2, batch=16, samples=28672)
LARGE = replace(SMALL, name="batch 1024", words="four devices, a global batch of 1024", batch=256)


def _claim(paper: str, name: str, words: str, of: Comparison, source: str = "FOUND") -> Claim:
    """Returns a claim.

    Args:
        paper: The source.
        name: The claim's name, without setting and figure.
        words: What the paper says.
        of: The comparison.
        source: Where the words come from.
    """
    place, (holds_if, published, unit) = of.ours.setting, of.asserted
    slug = "-".join([name, place.name.replace(" × ", "x").replace(",", ""), of.figure]).replace(" ", "-")
    places = " and ".join(dict.fromkeys((place.name, of.theirs.setting.name)))
    said = f" {of.direction}" if of.direction == "no worse" else ""
    return Claim(
        name=f"digits-{slug}",
        paper="digits",
        section=paper,
        sentence=f"{words} ({source}): {of.ours.label} against {of.theirs.label}, {of.figure}{said}",
        kind="headline" if source == "FOUND" and paper not in OWN_MODULE else "supporting",
        published=published,
        unit=unit,
        hardware=places,
        model="64-64-10 perceptron",
        batch=str(place.batch),
        scenario="",
        command=f"paceline reproduce digits-{slug}",
        inputs=(),
        holds_if=holds_if,
        figure=partial(difference, of),
        bounds=EVERY_VALUE,
        explain=partial(reasons, of),
        shares=f"digits {place.name.partition(',')[0]}",
    )


def _each(
    paper: str,
    name: str,
    words: str,
    pair: tuple[Contender, Contender],
    *figures: Figure | tuple[Figure, Direction],
    source: str = "FOUND",
) -> Iterator[Claim]:
    """Yields a claim for each figure, in which ours is lower unless a direction is given."""
    for figure in figures:
        what: tuple[Figure, Direction] = (figure, "lower") if isinstance(figure, str) else figure
        yield _claim(paper, name, words, Comparison(*pair, *what), source)


def _hierarchical() -> Iterator[Claim]:
    """Claims of paper 0 and of its group, against the asynchronous methods that it is remembered to have compared."""
    better = "converges better and runs faster than asynchronous ones"
    averages = "averages after local steps do better than {}"
    for setting in (TWO, EIGHT):
        hbs, eamsgd = entered("hbs-sgd", setting), entered("eamsgd", setting)
        downpour = entered("downpour", setting, grid=LOW)  # a push holds four gradients
        yield from _each(ICMLA, "hbs-downpour", better, (hbs, downpour), "loss", "time")
        yield from _each(ICMLA, "hbs-eamsgd", better, (hbs, eamsgd), "loss", "time")
    for setting in (TWO, EIGHT):
        k_avg, eamsgd = entered("k-avg", setting), entered("eamsgd", setting)
        made = partial(_each, SASGD, source="MEMORY medium")
        downpour = entered("downpour", setting, grid=LOW)
        yield from made("k-avg-downpour", averages.format("Downpour"), (k_avg, downpour), "loss", "time")
        yield from made("k-avg-eamsgd", averages.format("EAMSGD"), (k_avg, eamsgd), "loss", "time")


def _periodic() -> Iterator[Claim]:
    """Comparisons of K-AVG and Hier-AVG."""
    words = "K-AVG is faster and more accurate than ASGD"
    for setting in (TWO, EIGHT):
        pair = entered("k-avg", setting), entered("async-sgd", setting)
        yield from _each(K_AVG, "k-avg-asgd", words, pair, "time", ("accuracy", "higher"))
    words = "K > 1 can converge faster than K = 1"
    for setting in (TWO, EIGHT, EIGHT_SAMPLES):
        for k in (4, 16):
            pair = entered("k-avg", setting, k=k), entered("k-avg", setting, k=1)
            yield from _each(K_AVG, f"k-avg-k-{k}", words, pair, "loss")
    words = "K-AVG stands a larger step than ASGD"
    for setting in (TWO, EIGHT):
        pair = entered("k-avg", setting, grid=FINE), entered("async-sgd", setting, grid=FINE)
        yield from _each(K_AVG, "k-avg-step", words, pair, ("largest rate", "higher"))
    hbs = partial(entered, "hbs-sgd", EIGHT_SAMPLES)
    words, pair = "more frequent local averages converge faster", (hbs(k1=1, k2=16), hbs(k1=8, k2=16))
    yield from _each(HIER_AVG, "hier-often", words, pair, "loss")
    words, pair = (
        "local averages of more members converge faster",
        (hbs(k1=2, k2=16, group=8), hbs(k1=2, k2=16, group=2)),
    )
    yield from _each(HIER_AVG, "hier-members", words, pair, "loss")
    words = "Hier-AVG is about as fast as K-AVG, and often more accurate"
    for setting in (TWO, EIGHT):
        pair = entered("hbs-sgd", setting), entered("k-avg", setting)
        yield from _each(HIER_AVG, "hier-k-avg", words, pair, ("accuracy", "higher"), ("time", "no worse"))


def _unlike() -> Iterator[Claim]:
    """Claims of DBS-SGD. Softsync averages c = 2 gradients and has twice the learning rate, so that a fresh sample has
    the same weight.
    """

    def rivals(grid: tuple[float, ...]) -> tuple[tuple[str, str, Contender], ...]:
        softsync = partial(entered, "softsync", UNLIKE, scale=2.0, grid=grid, n=4)
        return (
            ("async-sgd", "ASGD's", entered("async-sgd", UNLIKE, grid=grid)),
            ("softsync", "n-soft's", softsync()),
            ("softsync-undamped", "n-soft's", softsync(damping="none")),
        )

    dbs = entered("dbs-sgd", UNLIKE)
    for name, words, theirs in rivals(GRID):
        lower = f"loss 60 % (MNIST) or 10 % (CIFAR-10) lower than {words}"
        yield from _each(DBS, f"dbs-loss-{name}", lower, (dbs, theirs), "loss")
        above = f"accuracy 10 % above {words} (CIFAR-10)"
        yield from _each(DBS, f"dbs-accuracy-{name}", above, (dbs, theirs), ("accuracy", "higher"))
    for rate in (0.05, 0.1, 0.2):
        for name, words, theirs in rivals((rate,)):
            lower = f"loss lower than {words}, both with a rate of {rate:g} for a gradient"
            pair = entered("dbs-sgd", UNLIKE, grid=(rate,)), theirs
            yield from _each(DBS, f"dbs-rate-{rate:g}-{name}", lower, pair, "loss")
    words = "its curve is closer to the synchronous one than ASGD's"
    # the mean of eight gradients: at eight times the rate each gradient has full weight; every method uses its best
    # rate
    steady = entered("sync-sgd", UNLIKE_SAMPLES, scale=8.0)
    pair = entered("dbs-sgd", UNLIKE_SAMPLES), entered("async-sgd", UNLIKE_SAMPLES)
    yield _claim(DBS, "dbs-curve", words, Comparison(*pair, "distance", reference=steady, rate_of=steady))


def _delayed() -> Iterator[Claim]:
    """Claims of PNNL: a delay in exchange for speed."""
    sync = entered("sync-sgd", BOUND)
    words = "up to 1.7 times as fast as synchronous SGD"
    equal = "delayed gradients are as good as fresh ones, sample by sample"
    for delay in (1, 2, 4):
        yield from _each(PNNL, f"agd-delay-{delay}", words, (entered("agd", BOUND, delay=delay), sync), "time")
        pair = entered("agd", BOUND_SAMPLES, delay=delay), entered("sync-sgd", BOUND_SAMPLES)
        yield from _each(PNNL, f"agd-cost-{delay}", equal, pair, ("loss", "no worse"), source="INFERENCE")
    yield from _each(PNNL, "agd-layerwise", words, (entered("layerwise-agd", BOUND), sync), "time")


def _softsync() -> Iterator[Claim]:
    """Thirty learners without momentum, because none of its effects is staleness."""
    words = "the rate over the staleness stands rates at which a fixed one diverges"
    softsync = partial(entered, "softsync", THIRTY, grid=FINE, n=30)
    pair = softsync(damping="inverse"), softsync(damping="none")
    yield from _each(RUDRA, "softsync-largest", words, pair, ("largest rate", "higher"), source="INFERENCE")


def _large_batches() -> Iterator[Claim]:
    """Claims of LARS. Its learning rates are of another kind, 16 times larger; momentum 0.9 and weight decay as on the
    method's page.
    """
    lars, plain = entered("hsgd", LARGE, scale=16.0, grid=GRID), entered("hsgd", LARGE, grid=GRID, lars=None)
    of = Comparison(lars, plain, "accuracy", "higher", alike=False)
    yield _claim(LARS, "lars-large", "LARS reaches batches that plain SGD does not", of)
    small = entered("hsgd", SMALL, grid=GRID, lars=None)
    of = Comparison(lars, small, "accuracy", "no worse", alike=False)
    yield _claim(LARS, "lars-small", "LARS loses no accuracy with the larger batch", of)


def _reasons() -> Iterator[Claim]:
    """Our own claim: a learning rate has full weight per gradient at a server, and 1 / P of it in a mean of P workers.

    Both sides use the best learning rate of ours; that of theirs is divided by P, so that a gradient has the same
    weight in both.
    """
    for setting, name, shown in ((NODE, "async-easgd", "Async EASGD"), (TWO, "k-avg", "K-AVG")):
        workers = setting.nodes * setting.workers_per_node
        ours, theirs = entered(name, setting), entered("async-sgd", setting, scale=1 / workers)
        words = f"at P times the rate, {shown} learns from a sample what Async SGD does"
        of = Comparison(ours, theirs, direction="no worse", rate_of=ours)
        yield _claim(OURS, "why-rate", words, of, "INFERENCE")
    for delay in (1, 4):
        limit = sin(pi / (2 * (2 * delay + 1)))
        words = f"a delay of {delay} lowers the largest rate, on a quadratic to {limit:.2f} of it"
        pair = entered("agd", BOUND, delay=delay, grid=FINE), entered("sync-sgd", BOUND, grid=FINE)
        yield from _each(OURS, f"why-delay-{delay}", words, pair, "largest rate", source="INFERENCE")
    words = "a centre that follows four times as fast learns no faster"
    pair = entered("async-easgd", NODE), entered("async-easgd", NODE, moving_rate=3.6)
    yield from _each(OURS, "why-centre", words, pair, ("loss", "no worse"), source="INFERENCE")


CLAIMS: tuple[Claim, ...] = (
    *_hierarchical(),
    *_periodic(),
    *_unlike(),
    *_delayed(),
    *_softsync(),
    *_large_batches(),
    *_reasons(),
)
