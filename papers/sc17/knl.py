"""Claims of SC'17 on Knights Landing and on one K20: weak scaling, groups of cores, copies in MCDRAM, days of training.

Rules of this file:

* The jitter of the nodes has a source of its own, not the paper's times.
* Whether communication overlaps is an input: Sync EASGD3 overlaps by its design, but MPI without a progress thread
  does not move large messages meanwhile. Without overlap it takes the times of Sync EASGD2, whose weights are the same.
* The time to an accuracy is that of a step of the chip, times the steps of a true training of a stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np

from paceline.papers.claim import TUNING_SEED, Claim, Curve, Given, claims_like
from paceline.papers.runs import best_rate, rate_of, simulated
from paceline.topologies.catalogue.device_catalogue import SPECS
from paceline.topologies.compute.device_model import device
from paceline.topologies.compute.device_parameters import Library, Software
from paceline.topologies.compute.model_work import footprint
from paceline.workloads import find_model

PAPER = "sc17"
CHIP = SPECS["knl-7250"]
DAY_S = 86400.0


# --- weak scaling -----------------------------------------------------------------------------------------------------

WEAK, GROUPS = "sc17-knl-weak", "sc17-knl-groups"
PUBLISHED_SCALING = [
    (float(nodes), 100 * 1533 / seconds)
    for nodes, seconds in ((2, 1590), (4, 1608), (8, 1641), (16, 1630), (32, 1662), (64, 1674))
]
"""seconds of 300 iterations, 1533 on one node: MEMORY high"""
BATCHES = {"googlenet": "knl-batch", "vgg19": "knl-vgg-batch"}
"""the input with the batch of each network"""
NODES = {"googlenet": "knl-nodes", "vgg19": "knl-vgg-nodes"}
"""the input with the number of nodes of its figure"""


def _sync_easgd(given: Given) -> str:
    """Returns the variant of Sync EASGD whose times are those of the KNL cluster."""
    return "sync-easgd3" if given.word("knl-overlap") == "yes" else "sync-easgd2"


def _node(given: Given, model: str) -> list[str]:
    adding = min(given.number("knl-core-rate") * given.number("knl-mpi-cores"), CHIP.sustained_bytes_per_s / 1e9)
    inside = max(adding, (CHIP.core_cache_bytes_per_s or 0.0) / 1e9)
    return [
        f"workload.model={model}",
        f"workload.batch_per_worker={int(given.number(BATCHES[model]))}",
        f"cluster.charges={{core_bandwidth: {adding} GB/s, core_cache_bandwidth: {inside} GB/s}}",
        "stop.samples=null",
    ]


@cache
def _one_node(given: Given, model: str) -> float:
    """Returns the samples per second of one node, whose steps do not vary."""
    changes = [*_node(given, model), "cluster.step_time=null", "stop.updates=3"]
    (run,) = simulated(WEAK, changes, algorithms=["sequential-sgd"])
    return rate_of(run)


@cache
def _many_nodes(given: Given, model: str, nodes: int, method: str) -> float:
    """Returns the samples per second of many nodes."""
    changes = [
        *_node(given, model),
        f"cluster.nodes={nodes}",
        f"cluster.step_time.sigma={given.number('knl-jitter')}",
        f"stop.updates={given.choose(20, 10)}",
    ]
    (run,) = simulated(WEAK, changes, algorithms=[method], seed=given.seed)
    return rate_of(run)


def efficiency(model: str, given: Given, *, nodes: int = 0, method: str = "") -> float:
    """Returns the rate of a number of nodes over that number of times the rate of one, in per cent.

    Args:
        model: The network.
        given: The inputs.
        nodes: The number of nodes; 0: that of the published figure.
        method: The method; "": Sync EASGD, with or without overlap.
    """
    nodes = nodes or int(given.number(NODES[model]))
    node = (BATCHES[model], "knl-mpi-cores", "knl-core-rate")
    varied = replace(given.only(*node, "knl-jitter"), seed=given.seed)
    many = _many_nodes(varied, model, nodes, method or _sync_easgd(given))
    return 100 * many / (nodes * _one_node(given.only(*node), model))


def lost_efficiency(given: Given) -> float:
    """Returns 100 % minus the efficiency of GoogLeNet: 25 % of 91.5 % would be more than any loss."""
    return 100 - efficiency("googlenet", given)


def over_intel_caffe(model: str, given: Given) -> float:
    """Returns the efficiency of Sync EASGD over that of synchronous SGD as Intel Caffe does it, on as many nodes."""
    nodes = int(given.number("knl-vgg-nodes"))
    rival = efficiency(model, given, nodes=nodes, method=given.word("knl-caffe"))
    return efficiency(model, given, nodes=nodes) / rival


def _both_efficiencies(model: str, given: Given) -> Iterator[str]:
    nodes = int(given.number("knl-vgg-nodes"))
    ours = efficiency(model, given, nodes=nodes)
    rivals = ", ".join(
        f"{method} {efficiency(model, given, nodes=nodes, method=method):.1f} %"
        for method in ("sync-sgd", "layerwise-sgd")
    )
    yield f"Efficiencies on {nodes} nodes, first seed: {_sync_easgd(given)} {ours:.1f} %, {rivals}."


def _scaling(model: str, given: Given) -> Curve:
    """Returns the efficiency over the number of nodes, with and without overlap."""
    most = int(given.number(NODES[model]))
    scale = [8, most] if given.quick else [2**power for power in range(1, most.bit_length())]
    lines = {
        f"{words} overlap": [(float(nodes), efficiency(model, given, nodes=nodes, method=method)) for nodes in scale]
        for words, method in (("without", "sync-easgd2"), ("with", "sync-easgd3"))
    }
    published = {"SC'17 (MEMORY high)": PUBLISHED_SCALING} if model == "googlenet" else {}
    return Curve(x="nodes", y="efficiency, %", lines=lines, published_lines=published, log_x=True)


# --- groups of one chip -----------------------------------------------------------------------------------------------

PUBLISHED_GROUPS = [(1.0, 1.0), (4.0, 1605 / 1025)]
"""FOUND: speed-up of the time to an accuracy of 0.625"""
RATES = tuple(0.0125 * 2**power for power in range(-1, 7))
"""learning rates of the grid, with momentum 0.9"""
MOST_EPOCHS, DIGITS = 6, 1437
"""epochs and samples of a training of the stand-in; if its accuracy is not reached, it counts as reached at the end"""


@cache
def _step_s(given: Given, groups: int) -> float:
    """Returns the seconds of a step of the chip in groups, simulated."""
    part, total = CHIP.part(groups), CHIP.sustained_bytes_per_s / 1e9
    share = min((CHIP.core_bytes_per_s or 0.0) / 1e9 * (part.cores or 1), total / groups)
    batch = int(given.number("groups-batch")) * (groups if given.word("groups-draw") == "own" else 1)
    data = int(given.number("groups-data"))
    changes = [
        f"cluster.nodes[0].groups={{count: {groups}, data: {data} MB, memory_mode: {given.word('groups-mode')}}}",
        f"cluster.charges={{core_bandwidth: {share} GB/s, core_cache_bandwidth: {share} GB/s}}",
        f"workload.model={given.word('groups-network')}",
        f"workload.batch_per_worker={batch}",
        "stop.updates=5",
    ]
    (run,) = simulated(GROUPS, changes)
    return batch / rate_of(run)


@cache
def _steps_at(given: Given, groups: int, rate: float) -> float:
    """Returns the steps of a training of the stand-in in groups to its accuracy, at a learning rate.

    The groups are the workers of sync-sgd: each draws batches of its own, and the gradients of a step are averaged.
    """
    batch = int(given.number("groups-stand-in-batch"))
    target = given.number("groups-accuracy")
    changes = [
        f"cluster.nodes=[{{device: {{name: part, overhead: 1 ms, per_sample: 0 s}}, workers_per_node: {groups}}}]",
        "cluster.charges={}",
        f"workload.model={given.word('groups-stand-in')}",
        "workload.dataset=digits",
        "workload.learning=train",
        f"workload.batch_per_worker={batch}",
        f"hyperparameters={{learning_rate: {rate}, momentum: 0.9}}",
        f"evaluate.every={max(batch * groups, 32)} samples",
        f"stop={{accuracy: {target}, epochs: {MOST_EPOCHS}}}",
    ]
    (run,) = simulated(GROUPS, changes, algorithms=["sync-sgd"], seed=given.seed)
    shots = run.tables.evaluations
    samples, accuracies = shots["samples"].to_numpy(float), np.maximum.accumulate(shots["accuracy"].to_numpy(float))
    first = int(np.argmax(accuracies >= target))
    if accuracies[first] < target:
        return MOST_EPOCHS * DIGITS / (batch * groups)
    before = max(0, first - 1)
    reached = np.interp(target, accuracies[[before, first]], samples[[before, first]])
    return float(reached) / (batch * groups)


@cache
def _best_rate(given: Given, groups: int) -> float:
    """Returns the learning rate with the fewest steps on average, on seeds of its own."""
    seeds = range(TUNING_SEED, TUNING_SEED + given.choose(2, 1))

    def cost(rate: float) -> float:
        return sum(_steps_at(replace(given, seed=seed), groups, rate) for seed in seeds)

    return best_rate(cost, RATES, RATES[3])


def steps_to_accuracy(given: Given, groups: int) -> float:
    """Returns the steps to the accuracy of the stand-in, at the best learning rate of as many groups.

    Args:
        given: The inputs.
        groups: The number of groups, each with a batch of its own, or with a part of one.
    """
    together = groups if given.word("groups-draw") == "own" else 1
    own = given.only("groups-stand-in", "groups-stand-in-batch", "groups-accuracy")
    return _steps_at(replace(own, seed=given.seed), together, _best_rate(own, together))


def time_s(given: Given, groups: int) -> float:
    """Returns the seconds of the chip's steps, as many as the stand-in needs to its accuracy."""
    step = given.only("groups-network", "groups-data", "groups-batch", "groups-draw", "groups-mode")
    return _step_s(step, groups) * steps_to_accuracy(given, groups)


def four_groups(given: Given) -> float:
    """Returns how many times as soon four groups reach the accuracy as one."""
    return time_s(given, 1) / time_s(given, 4)


def _steps_and_times(given: Given) -> Iterator[str]:
    step = given.only("groups-network", "groups-data", "groups-batch", "groups-draw", "groups-mode")
    for groups in (1, 4, 16):
        seeds = [replace(given, seed=seed) for seed in (1, 2, 3)]
        mean = float(np.mean([steps_to_accuracy(one, groups) for one in seeds]))
        yield f"{groups} groups: a step takes {1e3 * _step_s(step, groups):.0f} ms, and {mean:.0f} steps are needed."


def _by_groups(given: Given) -> Curve:
    """Returns the speed-up over the number of groups, by both ways to draw batches."""
    numbers = (1, 4, 16) if given.quick else (1, 2, 4, 8, 16)
    seeds = range(1, given.choose(5, 1) + 1)
    lines = {}
    for draw, words in (("own", "a batch for each group"), ("part", "one batch, divided")):
        drawn = given.with_value("groups-draw", draw)
        every = [[time_s(replace(drawn, seed=seed), 1) / time_s(replace(drawn, seed=seed), groups) for seed in seeds]
                 for groups in numbers]  # fmt: skip
        means = [float(np.exp(np.log(ratios).mean())) for ratios in every]
        lines[words] = list(zip(map(float, numbers), means, strict=True))
    return Curve(
        x="groups of cores",
        y="speed-up of the time to an accuracy",
        lines=lines,
        published_lines={"SC'17": PUBLISHED_GROUPS},
        log_x=True,
    )


def copies_in_mcdram(given: Given) -> float:
    """Returns the largest number of groups whose weights and data fit into MCDRAM, as the paper counts."""
    weights = footprint(CHIP, find_model(given.word("groups-network"))).weights_bytes
    return float((CHIP.memory_bytes or 0.0) // (weights + 1e6 * given.number("groups-data")))


# --- one K20 ----------------------------------------------------------------------------------------------------------

BATCH = 32
MEASURED_S, MEASURED_BATCH, MEASURED_MHZ = 1.6888, 128, 875.0
"""FOUND, BVLC/caffe models/bvlc_googlenet/readme.md: a K40c; the catalogue's K40 has 875 MHz (MEMORY high)"""


def _image_s(chip: str, library: Library) -> float:
    """Returns the seconds of an image of GoogLeNet by the device model."""
    made = device(SPECS[chip], find_model("googlenet"), samples=BATCH, software=Software(library, "caffe"))
    return made.compute_s(BATCH) / BATCH


def days_on_a_k20(given: Given) -> float:
    """Returns the days of training GoogLeNet."""
    match given.word("k20-rate"):
        case "measured":
            slower = _image_s("k20", "early") / _image_s("k40", "early")
            image_s = MEASURED_S / MEASURED_BATCH * slower * given.number("k20-clock-of-k40") / MEASURED_MHZ
        case "own":
            image_s = _image_s("k20", "own")
        case _:
            image_s = _image_s("k20", "early")
    return given.number("k20-epochs") * given.number("k20-images") * image_s / DAY_S


def _rates_of_a_k20(_: Given) -> Iterator[str]:
    own, early = 1 / _image_s("k20", "own"), 1 / _image_s("k20", "early")
    modelled = 1 / _image_s("k40", "early")
    yield (
        f"By the device model, a K20 processes {own:.0f} images/s without cuDNN and {early:.0f} with the first one, "
        f"a K40 {modelled:.0f}; measured on a K40c: {MEASURED_BATCH / MEASURED_S:.0f}."
    )


# --- the claims -------------------------------------------------------------------------------------------------------

SCALING = ("knl-overlap", "knl-jitter", "knl-mpi-cores", "knl-core-rate")
_scaled = claims_like(
    PAPER,
    section="abstract; weak scaling",
    unit="%",
    hardware="Cori, Xeon Phi 7250, Aries",
    model="GoogLeNet, ImageNet",
    batch="not found; 512 per node from the paper's times",
    scenario=WEAK,
    command=f"paceline simulate {WEAK}",
    holds_if="within 25 %",
    bounds=(0.0, 101.0),
    shares="sc17 weak scaling",
)
_grouped = claims_like(
    PAPER,
    section="chip partitioning",
    hardware="Xeon Phi 7250",
    model="AlexNet, CIFAR-10",
    scenario=GROUPS,
)
_whole = claims_like(PAPER, section="abstract")


def _scaling_claims() -> Iterator[Claim]:
    inputs = ("knl-nodes", "knl-batch", *SCALING)
    yield _scaled(
        "knl-weak-scaling",
        "weak scaling of GoogLeNet to 64 Knights Landing nodes has an efficiency of 91.5 %",
        partial(efficiency, "googlenet"),
        published=91.5,
        inputs=inputs,
        curve=partial(_scaling, "googlenet"),
        together="weak scaling",
    )
    yield _scaled(
        "knl-efficiency-lost",
        "of the efficiency, 8.5 % is lost at 64 nodes",
        lost_efficiency,
        kind="supporting",
        published=8.5,
        bounds=(-100.0, 100.0),
        inputs=inputs,
    )
    own = ("knl-vgg-nodes", "knl-vgg-batch", *SCALING)
    vgg = {"model": "VGG-19, ImageNet", "batch": "not found"}
    yield _scaled(
        "knl-vgg-weak-scaling",
        "weak scaling of VGG to 2176 cores has an efficiency of 78.5 % (MEMORY medium)",
        partial(efficiency, "vgg19"),
        kind="supporting",
        published=78.5,
        curve=partial(_scaling, "vgg19"),
        together="weak scaling",
        inputs=own,
        **vgg,
    )
    rival = {"unit": "×", "holds_if": "order", "bounds": (0.0, math.inf)}
    yield _scaled(
        "knl-over-intel-caffe",
        "weak scaling of GoogLeNet is better than that of the best known, Intel Caffe",
        partial(over_intel_caffe, "googlenet"),
        inputs=("knl-vgg-nodes", "knl-batch", "knl-caffe", *SCALING),
        explain=partial(_both_efficiencies, "googlenet"),
        **rival,
    )
    yield _scaled(
        "knl-vgg-over-intel-caffe",
        "weak scaling of VGG is better than that of Intel Caffe (MEMORY medium: 78.5 % against 62 %)",
        partial(over_intel_caffe, "vgg19"),
        kind="supporting",
        explain=partial(_both_efficiencies, "vgg19"),
        inputs=(*own, "knl-caffe"),
        **vgg,
        **rival,
    )


CLAIMS = (
    *_scaling_claims(),
    _grouped(
        "knl-groups",
        "four groups of one chip reach an accuracy of 0.625 after 1025 s, one group after 1605 s",
        four_groups,
        published=1605 / 1025,
        batch="not found",
        command=f'paceline sweep {GROUPS} --vary "cluster.nodes[0].groups.count=1,2,4,8,16"',
        inputs=tuple(
            f"groups-{name}"
            for name in ("network", "data", "batch", "draw", "mode", "stand-in", "stand-in-batch", "accuracy")
        ),
        holds_if="within 25 %",
        explain=_steps_and_times,
        curve=_by_groups,
        shares="sc17 groups",
    ),
    _grouped(
        "knl-copies",
        "16 copies of the weights and the data of AlexNet and CIFAR-10 fit into 16 GB of MCDRAM",
        copies_in_mcdram,
        kind="identity",
        published=16.0,
        unit="groups",
        batch="256",
        command=f"paceline simulate {GROUPS} --set cluster.nodes[0].groups.count=16",
        inputs=("groups-network", "groups-data"),
        holds_if="at least",
        seeds=1,
    ),
    _whole(
        "k20-days",
        "training GoogLeNet on ImageNet takes 21 days on one K20",
        days_on_a_k20,
        published=21.0,
        unit="days",
        hardware="one K20",
        model="GoogLeNet, ImageNet",
        batch="not found",
        scenario="sc17-alexnet-gpu",
        command='paceline simulate sc17-alexnet-gpu --set "cluster.nodes=[{device: k20}]" '
        "--set workload.model=googlenet --set workload.dataset=null --set workload.learning=none "
        "--set workload.stand_in=null --set workload.batch_per_worker=32",
        inputs=("k20-epochs", "k20-images", "k20-rate", "k20-clock-of-k40"),
        holds_if="within 25 %",
        seeds=1,
        all_combinations=True,
        explain=_rates_of_a_k20,
    ),
)
