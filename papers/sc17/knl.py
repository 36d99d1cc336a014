"""Claims of SC'17 on Knights Landing and on one K20: weak scaling, groups of cores, copies in MCDRAM, days of training.

Rules of this file:

* The jitter of the nodes has a source of its own, not the paper's times. MPI adds on the cores that the input
  `knl-mpi-cores` says.
* A partition counts its copies of the data. The paper counts weights and data; what gradients, momentum and activations
  add is in the details.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from itertools import product, takewhile
from typing import Any

import numpy as np

from paceline.algorithms.core.errors import InputError
from paceline.papers.claim import (
    Curve,
    Effort,
    Predicted,
    claims_like,
    input_named,
    number_named,
    over_seeds,
    ranging,
    spanning,
)
from paceline.papers.runs import rate_of, simulated
from paceline.topologies.catalogue.device_catalogue import SPECS
from paceline.topologies.compute.chip_groups import partitioned
from paceline.topologies.compute.device_model import device
from paceline.topologies.compute.device_parameters import Software
from paceline.workloads import find_model

PAPER = "sc17"
number = partial(number_named, PAPER)
CORE_GB_PER_S = 8.0
"""memory bandwidth of one core: MEMORY low, as in the catalogue"""
CHIP_GB_PER_S = 480.0
DAY_S = 86400.0


# --- weak scaling -----------------------------------------------------------------------------------------------------


@cache
def efficiency(nodes: int, batch: int, sigma: float, mpi_cores: int, seed: int, gradients: int) -> float:
    """Returns the rate of a number of nodes over that number of times the rate of one, in per cent.

    Args:
        nodes: The number of nodes, 2 or more.
        batch: Samples of one gradient.
        sigma: Of the lognormal distribution of step times.
        mpi_cores: Cores that add received data.
        seed: Of the jitter.
        gradients: Of each node.
    """
    adding = min(CORE_GB_PER_S * mpi_cores, CHIP_GB_PER_S)
    changes = [
        f"cluster.nodes={nodes}",
        f"workload.batch_per_worker={batch}",
        f"cluster.charges={{core_bandwidth: {adding} GB/s, core_cache_bandwidth: {max(adding, 10.0)} GB/s}}",
        f"cluster.step_time.sigma={sigma}",
        "stop.samples=null",
        f"stop.updates={gradients}",
    ]
    (many,) = simulated("sc17-knl-weak", changes, algorithms=["sync-easgd3"], seed=seed)
    (single,) = simulated("sc17-knl-weak", [*changes, "cluster.step_time=null"], algorithms=["sequential-sgd"])
    return 100 * rate_of(many) / (nodes * rate_of(single))


@cache
def weak_scaling(effort: Effort) -> Predicted:
    """Returns the efficiency of 64 nodes over the plausible inputs, with its curve over the number of nodes."""
    nodes, gradients = int(number("knl-nodes")), effort.choose(40, 10)
    batch, sigma, cores = int(number("knl-batch")), number("knl-jitter"), int(number("knl-mpi-cores"))

    def over(*, batch: int = batch, sigma: float = sigma, cores: int = cores, seeds: Iterable[int] = (1,)) -> Predicted:
        return over_seeds([efficiency(nodes, batch, sigma, cores, seed, gradients) for seed in seeds])

    batches, sigmas, counts = (
        input_named(PAPER, name).numbers for name in ("knl-batch", "knl-jitter", "knl-mpi-cores")
    )
    central = over(seeds=range(1, effort.choose(3, 2) + 1))
    others = {f"batch {value:g}": over(batch=int(value)) for value in batches[1:]}
    others |= {f"sigma {value:g}": over(sigma=value) for value in sigmas[1:]}
    others |= {f"{value:g} cores for MPI": over(cores=int(value)) for value in counts[1:]}
    least, most = int(min(batches)), max(sigmas)
    others[f"batch {least} and sigma {most:g}"] = over(batch=least, sigma=most)
    listed = "; ".join(f"{words} {figure.value:.1f} %" for words, figure in others.items())
    scale = [8, nodes] if effort.quick else [2, 4, 8, 16, 32, nodes]
    points = [(float(count), efficiency(count, batch, sigma, cores, 1, gradients)) for count in scale]
    curve = Curve(
        x="nodes",
        y="efficiency, %",
        lines={"Paceline": points, "SC'17 (MEMORY high)": PUBLISHED_SCALING},
        published=91.5,
        log_x=True,
    )
    return spanning(central, *others.values(), reason=f"One input changed: {listed}.", details=(listed,), curve=curve)


def lost_efficiency(effort: Effort) -> Predicted:
    """Returns 100 % minus the efficiency of 64 nodes: 25 % of 91.5 % would be more than any loss."""
    kept = weak_scaling(effort)
    return Predicted(value=100 - kept.value, low=100 - kept.high, high=100 - kept.low, reason=kept.reason)


PUBLISHED_SCALING = [
    (float(nodes), 100 * 1533 / seconds)
    for nodes, seconds in ((2, 1590), (4, 1608), (8, 1641), (16, 1630), (32, 1662), (64, 1674))
]
"""seconds of 300 iterations, 1533 on one node: MEMORY high"""


# --- groups of one chip -----------------------------------------------------------------------------------------------


@cache
def step_s(groups: int, model: str, batch: int, mode: str) -> float:
    """Returns the seconds of a step of one chip in groups, simulated."""
    share = min(CORE_GB_PER_S * (SPECS["knl-7250"].part(groups).cores or 1), CHIP_GB_PER_S / groups)
    changes = [
        f"cluster.nodes[0].groups={{count: {groups}, data: 687 MB, memory_mode: {mode}}}",
        f"cluster.charges={{core_bandwidth: {share} GB/s, core_cache_bandwidth: {share} GB/s}}",
        f"workload.model={model}",
        f"workload.batch_per_worker={batch}",
        "stop.updates=5",
    ]
    (run,) = simulated("sc17-knl-groups", changes)
    return batch / rate_of(run)


def four_groups(_: Effort) -> Predicted:
    """Returns how many times as fast a step is in four groups as in one, over the plausible inputs."""
    batches = [int(size) for size in input_named(PAPER, "groups-batch").numbers]
    batch, mode = batches[0], input_named(PAPER, "groups-mode").value

    def gain(groups: int, model: str, batch: int, mode: str) -> float:
        return step_s(1, model, batch, mode) / step_s(groups, model, batch, mode)

    gains = {f"{case[0]}, batch {case[1]}, {case[2]} mode": gain(4, *case)
             for case in product(("alexnet", "cifar-alexnet"), batches, ("cache", "flat"))}  # fmt: skip
    listed = "; ".join(f"{words} {ratio:.2f}" for words, ratio in gains.items())
    points = [(float(groups), gain(groups, "alexnet", batch, mode)) for groups in (1, 2, 4, 8, 16)]
    curve = Curve(x="groups of cores", y="speed-up", lines={"AlexNet": points}, published=1605 / 1025, log_x=True)
    reason = f"By network, batch and mode of the memory: {listed}."
    central = gain(4, "alexnet", batch, mode)
    return ranging(central, gains.values(), reason=reason, details=(listed,), curve=curve)


def copies_in_mcdram(_: Effort) -> Predicted:
    """Returns the largest number of groups whose weights and data fit into MCDRAM."""
    chip, model = SPECS["knl-7250"], find_model("alexnet")

    def fits(groups: int, **counted: Any) -> bool:
        try:
            parts = partitioned(chip, model, groups, samples=256, data_bytes=687e6, **counted)
        except InputError:
            return False
        return parts.needed_bytes <= (chip.memory_bytes or 0.0)

    def most(**counted: Any) -> int:
        groups = range(1, (chip.cores or 0) // 2 + 1)
        return sum(1 for _ in takewhile(lambda count: fits(count, **counted), groups))

    whole = most(gradients=True, optimizer_copies=1)
    said = f"With gradients, momentum and the activations of 256 images, {whole} groups fit."
    return ranging(float(most(gradients=False, optimizer_copies=0)), (), reason=said, details=(said,))


# --- one K20 ----------------------------------------------------------------------------------------------------------


def days_on_a_k20(_: Effort) -> Predicted:
    """Returns the days of training GoogLeNet, over the software, the epochs and the error of the device model."""
    model, batch, images = find_model("googlenet"), 32, number("k20-images")
    by_words: dict[str, Predicted] = {}
    for words, library in (("Caffe without cuDNN", "own"), ("Caffe with the first cuDNN", "early")):
        made = device(SPECS["k20"], model, samples=batch, software=Software(library, "caffe"))  # type: ignore[arg-type]
        assert made.interval is not None, "the device model has an interval"
        seconds = made.compute_s(batch) / batch * images / DAY_S
        for epochs in input_named(PAPER, "k20-epochs").numbers:
            days = epochs * seconds
            by_words[f"{words}, {epochs:g} epochs"] = ranging(
                days, (days * made.interval.low, days * made.interval.high)
            )
    listed = "; ".join(
        f"{words} {figure.value:.0f} days ({figure.low:.0f} to {figure.high:.0f})" for words, figure in by_words.items()
    )
    middle = float(np.mean([figure.value for words, figure in by_words.items() if " 60 " in words]))
    reason = f"The number of epochs and the software decide, which were not found: {listed}."
    return spanning(ranging(middle, ()), *by_words.values(), reason=reason, details=(listed,))


# --- the claims -------------------------------------------------------------------------------------------------------

_scaled = claims_like(
    PAPER,
    section="abstract; weak scaling",
    unit="%",
    hardware="Cori, 64 Xeon Phi 7250, Aries",
    model="GoogLeNet, ImageNet",
    batch="not found; 512 per node from the paper's times",
    scenario="sc17-knl-weak",
    command="paceline simulate sc17-knl-weak",
    inputs=("knl-model", "knl-nodes", "knl-batch", "knl-jitter", "knl-mpi-cores", "knl-network"),
    holds_if="within 25 %",
    shares="sc17 weak scaling",
)
_grouped = claims_like(
    PAPER,
    section="chip partitioning",
    hardware="Xeon Phi 7250",
    model="AlexNet, CIFAR-10",
    scenario="sc17-knl-groups",
)
_whole = claims_like(PAPER, section="abstract")
CLAIMS = (
    _scaled(
        "knl-weak-scaling",
        "weak scaling of GoogLeNet to 64 Knights Landing nodes has an efficiency of 91.5 %",
        weak_scaling,
        published=91.5,
    ),
    _scaled(
        "knl-efficiency-lost",
        "of the efficiency, 8.5 % is lost at 64 nodes",
        lost_efficiency,
        published=8.5,
    ),
    _grouped(
        "knl-groups",
        "four groups of one chip reach an accuracy of 0.625 after 1025 s, one group after 1605 s",
        four_groups,
        published=1605 / 1025,
        batch="not found",
        command='paceline sweep sc17-knl-groups --vary "cluster.nodes[0].groups.count=1,2,4,8,16"',
        inputs=tuple(
            f"groups-{name}" for name in ("model", "network-input", "data", "batch", "mode", "iterations", "core-rate")
        ),
        holds_if="within 25 %",
        shares="sc17 groups",
    ),
    _grouped(
        "knl-copies",
        "16 copies of the weights and the data of AlexNet and CIFAR-10 fit into 16 GB of MCDRAM",
        copies_in_mcdram,
        published=16.0,
        unit="groups",
        batch="256",
        command="paceline simulate sc17-knl-groups --set cluster.nodes[0].groups.count=16",
        inputs=("groups-model", "groups-data"),
        holds_if="at least",
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
        inputs=("k20-epochs", "k20-images", "k20-rate"),
        holds_if="within 25 %",
    ),
)
