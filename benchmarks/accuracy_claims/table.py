"""The papers' claims on accuracy and convergence, each as a comparison that can come out either way.

Rules of this file:

* `tag` is the source of the words: F, found in public material (mostly the abstract); M, from memory; I, an
  interpretation.
* `direction` is the paper's statement on `ours` relative to `theirs`. This file contains no results.
* A claim of a paper that names no figure is tested in every figure that fits its words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi, sin
from typing import Literal

from accuracy_claims.settings import FINE, GRID, LOW, Contender, Setting, entered

ICMLA = "Cong, Bhardwaj, ICMLA'17"
SASGD = "Cong, Bhardwaj, Feng, ICPP'17"
K_AVG = "Zhou, Cong, IJCAI'18"
HIER_AVG = "Zhou, Cong, arXiv 1903.05133"
DBS = "Ji et al., J. Comp. R&D 2019"
SC17 = "You, Buluç, Demmel, SC'17"
PNNL = "Daily et al., rkFd2P5gl"
RUDRA = "Zhang, Gupta, Lian, Liu, IJCAI'16"
OURS = "Reasons of ours, tested in the same way"
LARS = "You, Gitman, Ginsburg, arXiv 1708.03888"

Figure = Literal["loss", "accuracy", "time", "largest rate", "distance"]
Direction = Literal["lower", "higher", "no worse"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One comparison."""

    name: str
    paper: str
    words: str
    tag: Literal["F", "M", "I"]
    ours: Contender
    theirs: Contender
    figure: Figure = "loss"
    direction: Direction = "lower"
    reference: Contender | None = None
    """the value from which distances are measured"""
    rate_of: Contender | None = None
    """the contender whose best learning rate both must use; None: each uses its own"""
    alike: bool = True
    """whether a learning rate means the same for both, so that they can be compared at a common one"""

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The contenders whose runs the claim needs."""
        return tuple(one for one in (self.ours, self.theirs, self.reference, self.rate_of) if one is not None)

    @property
    def better(self) -> Literal["lower", "higher"]:
        """Whether lower or higher is better, independent of the claim."""
        return "higher" if self.figure in ("accuracy", "largest rate") else "lower"


TWO = Setting("2 × 4", "two nodes of four devices", nodes=2, workers_per_node=4, message_s=1e-3, seconds=0.6)
EIGHT = Setting("8 × 4", "eight nodes of four devices", nodes=8, workers_per_node=4, message_s=1e-3, seconds=0.4)
ALONE = Setting("1 × 1", "one device", seconds=2.0)
LONG = replace(
    TWO, name="2 × 4, long", words="two nodes of four devices, until one device can be there too", seconds=2.0
)
EIGHT_SAMPLES = replace(EIGHT, name="8 × 4, samples", words="the same, equal samples", seconds=None, samples=16384)
UNLIKE = Setting("unlike", "eight workers of speeds 8 to 1", seconds=1.0, batch=32, unlike=True)
UNLIKE_SAMPLES = replace(UNLIKE, name="unlike, samples", words="the same, equal samples", seconds=None, samples=5632)
NODE = Setting("node", "one node of eight devices", workers_per_node=8, local_s=0.5e-3, seconds=0.5)
SLOW_NODE = replace(NODE, name="slow node", words="the same, messages take 2 ms", local_s=2e-3, seconds=1.0)
BOUND = Setting("bound", "eight nodes whose messages weigh", nodes=8, message_s=3.2e-3, seconds=0.6)
BOUND_SAMPLES = replace(BOUND, name="bound, samples", words="the same, equal samples", seconds=None, samples=6144)
THIRTY = Setting("thirty", "thirty learners with batches of 4", nodes=30, batch=4, samples=16384)
THIRTY_SHORT = replace(THIRTY, name="thirty, short", words="the same, for fewer samples", samples=4096)
LEARNER = Setting("learner", "one learner with batches of 4", batch=4, samples=16384)
SMALL = Setting("batch 64", "four devices, a global batch of 64", nodes=2, workers_per_node=2, batch=16, samples=28672)
LARGE = replace(SMALL, name="batch 1024", words="four devices, a global batch of 1024", batch=256)


def _hierarchical() -> list[Claim]:
    """Claims of paper 0 and of its group."""
    found = []
    for setting in (TWO, EIGHT):
        hbs, k_avg = entered("hbs-sgd", setting), entered("k-avg", setting)
        eamsgd, plain = entered("eamsgd", setting), entered("async-sgd", setting)
        downpour = entered("downpour", setting, grid=LOW)  # a push holds four gradients
        faster: list[tuple[str, str, str, Literal["F", "M"], Contender, Contender]] = [
            ("hbs-downpour", ICMLA, "converges better and runs faster than asynchronous ones", "F", hbs, downpour),
            ("hbs-eamsgd", ICMLA, "converges better and runs faster than asynchronous ones", "F", hbs, eamsgd),
            ("k-avg-downpour", SASGD, "averages after local steps do better than Downpour", "M", k_avg, downpour),
            ("k-avg-eamsgd", SASGD, "averages after local steps do better than EAMSGD", "M", k_avg, eamsgd),
            ("k-avg-asgd", K_AVG, "K-AVG is faster and more accurate than ASGD", "F", k_avg, plain),
        ]
        for name, paper, words, tag, ours, theirs in faster:
            found += [
                Claim(name, paper, words, tag, ours, theirs),
                Claim(name, paper, words, tag, ours, theirs, "time"),
            ]
        words = "K-AVG is faster and more accurate than ASGD"
        found.append(Claim("k-avg-asgd", K_AVG, words, "F", k_avg, plain, "accuracy", "higher"))
    words = "faster than sequential SGD (56 times on 128 devices), at similar accuracy"
    parallel, alone = entered("hbs-sgd", LONG), entered("sequential-sgd", ALONE)
    found.append(Claim("hbs-sequential", ICMLA, words, "F", parallel, alone, "time"))
    found.append(Claim("hbs-sequential", ICMLA, words, "F", parallel, alone, "accuracy", "no worse"))
    return found


def _periodic() -> list[Claim]:
    """Comparisons of K-AVG and Hier-AVG."""
    words = "K > 1 can converge faster than K = 1"
    found = [
        Claim("k-avg-k", K_AVG, words, "F", entered("k-avg", setting, k=k), entered("k-avg", setting, k=1))
        for setting in (TWO, EIGHT, EIGHT_SAMPLES)
        for k in (4, 16)
    ]
    words = "K-AVG stands a larger step than ASGD"
    for setting in (TWO, EIGHT):
        k_avg, plain = (entered(name, setting, grid=FINE) for name in ("k-avg", "async-sgd"))
        found.append(Claim("k-avg-step", K_AVG, words, "F", k_avg, plain, "largest rate", "higher"))
    words = "more frequent local averages converge faster"
    often, seldom = (entered("hbs-sgd", EIGHT_SAMPLES, k1=k1, k2=16) for k1 in (1, 8))
    found.append(Claim("hier-often", HIER_AVG, words, "F", often, seldom))
    words = "local averages of more members converge faster"
    many, few = (entered("hbs-sgd", EIGHT_SAMPLES, k1=2, k2=16, group=members) for members in (8, 2))
    found.append(Claim("hier-members", HIER_AVG, words, "F", many, few))
    words = "Hier-AVG is about as fast as K-AVG, and often more accurate"
    for setting in (TWO, EIGHT):
        hier, k_avg = entered("hbs-sgd", setting), entered("k-avg", setting)
        found.append(Claim("hier-k-avg", HIER_AVG, words, "F", hier, k_avg, "accuracy", "higher"))
        found.append(Claim("hier-k-avg", HIER_AVG, words, "F", hier, k_avg, "time", "no worse"))
    return found


def _unlike() -> list[Claim]:
    """Claims of DBS-SGD. Softsync averages c = 2 gradients and has twice the learning rate, so that a fresh sample has
    the same weight.
    """
    dbs, plain = entered("dbs-sgd", UNLIKE), entered("async-sgd", UNLIKE)
    damped = entered("softsync", UNLIKE, scale=2.0, n=4)
    undamped = entered("softsync", UNLIKE, scale=2.0, n=4, damping="none")
    found = []
    for theirs in (plain, damped, undamped):
        words = f"loss 60 % (MNIST) or 10 % (CIFAR-10) lower than {'ASGD' if theirs is plain else 'n-soft'}'s"
        found.append(Claim("dbs-loss", DBS, words, "F", dbs, theirs))
        words = f"accuracy 10 % above {'ASGD' if theirs is plain else 'n-soft'}'s (CIFAR-10)"
        found.append(Claim("dbs-accuracy", DBS, words, "F", dbs, theirs, "accuracy", "higher"))
    words = "its curve is closer to the synchronous one than ASGD's"
    ours, theirs = entered("dbs-sgd", UNLIKE_SAMPLES), entered("async-sgd", UNLIKE_SAMPLES)
    # the mean of eight gradients: at eight times the rate each gradient has full weight; every method uses its best
    # rate
    steady = entered("sync-sgd", UNLIKE_SAMPLES, scale=8.0)
    found.append(Claim("dbs-curve", DBS, words, "F", ours, theirs, "distance", reference=steady, rate_of=steady))
    return found


def _elastic() -> list[Claim]:
    """Claims of SC'17."""
    found = []
    for setting in (NODE, SLOW_NODE):
        for ours, theirs, words in (
            ("async-easgd", "async-sgd", "Async EASGD is faster than Async SGD"),
            ("async-measgd", "async-msgd", "Async MEASGD is faster than Async MSGD"),
            ("hogwild-easgd", "hogwild-sgd", "Hogwild EASGD is faster than Hogwild SGD"),
        ):
            pair = entered(ours, setting), entered(theirs, setting)
            found.append(Claim(f"sc17-{ours}", SC17, words, "F", *pair))
            found.append(Claim(f"sc17-{ours}", SC17, words, "F", *pair, "time"))
        sync = entered("sync-easgd3", setting)
        words = "Sync EASGD is 5.3 times as fast as Original EASGD"
        found.append(Claim("sc17-original", SC17, words, "F", sync, entered("easgd", setting)))
        found.append(Claim("sc17-original", SC17, words, "F", sync, entered("easgd", setting), "time"))
        words = "Sync EASGD ties for best"
        found += [
            Claim("sc17-best", SC17, words, "F", sync, entered(other, setting), "time", "no worse")
            for other in ("hogwild-easgd", "async-easgd", "async-measgd", "hogwild-sgd", "async-sgd", "async-msgd")
        ]
    return found


def _delayed() -> list[Claim]:
    """Claims of PNNL: a delay in exchange for speed."""
    found = []
    sync = entered("sync-sgd", BOUND)
    words = "up to 1.7 times as fast as synchronous SGD"
    for delay in (1, 2, 4):
        agd = entered("agd", BOUND, delay=delay)
        found.append(Claim("agd-delay", PNNL, words, "F", agd, sync))
        found.append(Claim("agd-delay", PNNL, words, "F", agd, sync, "time"))
        words_equal = "delayed gradients are as good as fresh ones, sample by sample"
        pair = entered("agd", BOUND_SAMPLES, delay=delay), entered("sync-sgd", BOUND_SAMPLES)
        found.append(Claim("agd-cost", PNNL, words_equal, "I", *pair, "loss", "no worse"))
    layerwise = entered("layerwise-agd", BOUND)
    found.append(Claim("agd-layerwise", PNNL, words, "F", layerwise, sync, "time"))
    return found


def _softsync() -> list[Claim]:
    """Thirty learners at the best learning rate of one, without momentum, because none of its effects is staleness."""
    learner = entered("sequential-sgd", LEARNER)
    damped, undamped = entered("softsync", THIRTY, n=30), entered("softsync", THIRTY, n=30, damping="none")
    words = "30-softsync diverges at a fixed rate and converges at the rate over the staleness"
    found = [Claim("softsync-damped", RUDRA, words, "F", damped, undamped, "accuracy", "higher", rate_of=learner)]
    words = "with the rate over the staleness, 30 learners end where one does"
    found.append(Claim("softsync-one", RUDRA, words, "F", damped, learner, "accuracy", "no worse", rate_of=learner))
    words = "the rate over the staleness stands rates at which a fixed one diverges"
    damped, undamped = (
        entered("softsync", THIRTY_SHORT, grid=FINE, n=30, damping=damping) for damping in ("inverse", "none")
    )
    found.append(Claim("softsync-largest", RUDRA, words, "F", damped, undamped, "largest rate", "higher"))
    return found


def _large_batches() -> list[Claim]:
    """Claims of LARS. Its learning rates are of another kind, 16 times larger; momentum 0.9 and weight decay as on the
    method's page.
    """
    lars, plain = entered("hsgd", LARGE, scale=16.0, grid=GRID), entered("hsgd", LARGE, grid=GRID, lars=None)
    found = []
    words = "LARS reaches batches that plain SGD does not"
    found.append(Claim("lars-large", LARS, words, "F", lars, plain, "accuracy", "higher", alike=False))
    words = "LARS loses no accuracy with the larger batch"
    small = entered("hsgd", SMALL, grid=GRID, lars=None)
    found.append(Claim("lars-small", LARS, words, "F", lars, small, "accuracy", "no worse", alike=False))
    return found


def _reasons() -> list[Claim]:
    """Our own claim: a learning rate has full weight per gradient at a server, and 1 / P of it in a mean of P workers.

    Both sides use the best learning rate of ours; that of theirs is divided by P, so that a gradient has the same
    weight in both.
    """
    found = []
    words = "at P times the rate, {} learns from a sample what Async SGD does"
    for setting, name, shown in ((NODE, "async-easgd", "Async EASGD"), (TWO, "k-avg", "K-AVG")):
        workers = setting.nodes * setting.workers_per_node
        ours, theirs = entered(name, setting), entered("async-sgd", setting, scale=1 / workers)
        claimed = words.format(shown)
        found.append(Claim("why-rate", OURS, claimed, "I", ours, theirs, direction="no worse", rate_of=ours))
    for delay in (1, 4):
        claimed = (
            f"a delay of {delay} lowers the largest rate, on a quadratic to {sin(pi / (2 * (2 * delay + 1))):.2f} of it"
        )
        agd, sync = entered("agd", BOUND, delay=delay, grid=FINE), entered("sync-sgd", BOUND, grid=FINE)
        found.append(Claim("why-delay", OURS, claimed, "I", agd, sync, "largest rate"))
    words = "a centre that follows four times as fast learns no faster"
    usual, fast = entered("async-easgd", NODE), entered("async-easgd", NODE, moving_rate=3.6)
    found.append(Claim("why-centre", OURS, words, "I", usual, fast, direction="no worse"))
    return found


CLAIMS: tuple[Claim, ...] = (
    *_hierarchical(),
    *_periodic(),
    *_unlike(),
    *_elastic(),
    *_delayed(),
    *_softsync(),
    *_large_batches(),
    *_reasons(),
)
