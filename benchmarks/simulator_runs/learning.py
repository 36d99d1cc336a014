"""What training in virtual time costs beside plain torch, and when it is faster to compute gradients together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from common.harness import in_turn
from paceline.algorithms.core.job import Budget, Job, Learner
from paceline.algorithms.core.values import Samples
from paceline.scenarios import load
from paceline.simulator.interpreter.interpreter import simulate_job
from paceline.simulator.kernel.garbage_collection import collected_seldom
from paceline.simulator.network.network import ClusterNetwork
from paceline.simulator.runs.plan_timing import PlanTiming
from paceline.workloads.batches.examples import Examples, LabelledBatch
from paceline.workloads.learners.stand_in import TimingOnly
from paceline.workloads.learners.torch_building import uniform
from paceline.workloads.learners.torch_learner import RECORDED_AFTER, TorchLearner
from paceline.workloads.models.paper_networks import digits_cnn

BATCH, CLASSES, POPULATION = 32, 10, 8192
MOST_WORK = 128 * 64 * 1.6e6
"""operations of 64 gradients above which a cell of `together` is left out, because it would take minutes"""


def mlp(*widths: int) -> nn.Module:
    """Returns dense layers with ReLU between them."""
    layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Module:
    """Returns two convolutions and a dense layer for colour pictures of 32 × 32."""
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32 * 8 * 8, CLASSES))


def made_up(shape: tuple[int, ...], num_samples: int) -> Examples:
    """Returns random examples. The cost does not depend on their content."""
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, *shape, generator=source)
    train = LabelledBatch(inputs, torch.randint(CLASSES, (num_samples,), generator=source))
    return Examples(train, train.at(slice(0, 256)), classes=CLASSES)


# --- a run that learns ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and the amount of work to time."""

    name: str
    module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """of a sample"""
    workers: tuple[int, ...]
    gradients: int
    """in one round"""
    num_samples: int = 4096


MODELS = (
    Model(
        name="mlp-64-64-10", module=partial(mlp, 64, 64, CLASSES), shape=(64,), workers=(16, 64, 256, 1024),
        gradients=32_768, num_samples=65_536,
    ),
    Model(name="cnn-3x32x32", module=cnn, shape=(3, 32, 32), workers=(16, 64), gradients=192),
    Model(
        name="mlp-784-1024-512-10", module=partial(mlp, 784, 1024, 512, CLASSES), shape=(784,), workers=(16,),
        gradients=192,
    ),
)  # fmt: skip
"""small enough for gradients to be computed together; too much work for that (100 million operations); too many weights
for that (1.3 million, with little work for each)"""
LEARNING = {
    "model": "model", "algorithm": "algorithm", "workers": "workers:,", "whole": "whole_us:.0f",
    "overhead": "overhead_us:.0f", "bare": "bare_us:.0f", "whole / bare": "ratio:.2f",
    "learning / bare": "learning_ratio:.2f",
}  # fmt: skip


def learning(short: bool, rounds: int, workers: list[int] | None) -> list[dict[str, Any]]:
    """Returns a row for each model, method and number of workers."""
    torch.set_num_threads(1)
    models = (replace(MODELS[0], gradients=2048, workers=(16,)),) if short else MODELS
    _learning_row(replace(MODELS[0], gradients=512), "async-sgd", 64, 1)  # pays for what torch loads at first use
    return [
        _learning_row(model, algorithm, count, rounds)
        for model in models
        for algorithm in ("async-sgd", "sync-sgd")
        for count in workers or model.workers
    ]


def _learning_row(model: Model, algorithm: str, workers: int, rounds: int) -> dict[str, Any]:
    def training() -> TorchLearner:
        module = model.module()
        return TorchLearner(module, made_up(model.shape, model.num_samples), uniform(module, 1), seed=1)

    def nothing() -> TimingOnly:
        return TimingOnly(training().layout, model.num_samples)

    ways = {
        "whole_us": lambda: _simulated_us(algorithm, workers, training(), model.gradients),
        "overhead_us": lambda: _simulated_us(algorithm, workers, nothing(), model.gradients),
        "bare_us": lambda: _bare_us(model, workers),
    }
    times = {name: median(of_way) for name, of_way in in_turn(ways, rounds).items()}
    learning_us = times["whole_us"] - times["overhead_us"]
    ratios = {"ratio": times["whole_us"] / times["bare_us"], "learning_ratio": learning_us / times["bare_us"]}
    return {"model": model.name, "algorithm": algorithm, "workers": workers, **times, **ratios}


def _simulated_us(algorithm: str, workers: int, learner: Learner, gradients: int) -> float:
    """Returns the time of a simulated run on a star of machines with jitter, divided by its number of gradients."""
    device = {"name": "made-up", "overhead": "4 ms", "per_sample": "0.5 ms"}
    scenario = {
        "name": "learning",
        "algorithms": [algorithm],
        "workload": {"model": "digits-mlp", "learning": "none", "batch_per_worker": 1},
        "cluster": {
            "nodes": [{"device": device, "count": workers}],
            "network": {"topology": "star", "link": "eth-10g"},
            "step_time": {"distribution": "lognorm", "sigma": 0.1},
        },
        "evaluate": {"every": "1000000 s"},
        "stop": {"updates": 1},
    }
    (plan,) = load(scenario).plans()
    budget = Budget(samples=gradients * BATCH)
    plan = replace(plan, job=Job.of(plan.job.method, plan.cluster.placement, learner, batch=BATCH, budget=budget))
    network, timing, schedule = ClusterNetwork(plan.cluster), PlanTiming(plan), plan.schedule()
    start_s = time.process_time()
    with collected_seldom():
        trace = simulate_job(plan.job, timing, network, schedule)
    spent_s = time.process_time() - start_s
    return spent_s / sum(span.activity == "compute" for span in trace.spans) * 1e6


def _bare_us(model: Model, workers: int) -> float:
    """Returns the time of one gradient in plain torch, at the weights of its own worker."""
    train = made_up(model.shape, model.num_samples).train
    modules = [model.module() for _ in range(workers)]
    order = torch.randperm(model.num_samples, generator=torch.Generator().manual_seed(1)).view(-1, BATCH)
    start_s = time.process_time()
    for number in range(model.gradients):
        module, places = modules[number % workers], order[number % len(order)]
        module.zero_grad()
        loss = F.cross_entropy(module(train.inputs[places]), train.labels[places])
        loss.backward()
        loss.item()
    return (time.process_time() - start_s) / model.gradients * 1e6


# --- gradients together -----------------------------------------------------------------------------------------------

TIMED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP 64-64-10": (partial(mlp, 64, 64, CLASSES), (64,)),
    "CNN, 1 x 8 x 8": (digits_cnn, (1, 8, 8)),
    "MLP 64-256-10": (partial(mlp, 64, 256, CLASSES), (64,)),
    "MLP 784-32-10": (partial(mlp, 784, 32, CLASSES), (784,)),
    "CNN, 3 x 32 x 32": (cnn, (3, 32, 32)),
    "MLP 64-256-128-10": (partial(mlp, 64, 256, 128, CLASSES), (64,)),
    "MLP 784-64-10": (partial(mlp, 784, 64, CLASSES), (784,)),
    "MLP 784-128-10": (partial(mlp, 784, 128, CLASSES), (784,)),
    "MLP 784-256-10": (partial(mlp, 784, 256, CLASSES), (784,)),
}
"""the module and the shape of a sample, the smallest model first"""
TOGETHER = {
    "model": "model", "parameters": "parameters:,", "batch": "batch:", "16 in one block": "sixteen:.2f",
    "64 in blocks of 32": "blocks:.2f",
}  # fmt: skip


def together(short: bool, rounds: int) -> list[dict[str, Any]]:
    """Returns a row for each model and batch; the size rule of docs/workloads.md is disabled."""
    torch.set_num_threads(1)
    rows = []
    for name in list(TIMED)[: 2 if short else None]:
        learner = _learner(name, 1)
        for batch in (32,) if short else (1, 8, 32, 128):
            if 64 * batch * learner.forward_flops < MOST_WORK:
                sixteen, blocks = (
                    _together_ratio(name, batch, count, block, rounds) for count, block in ((16, 16), (64, 32))
                )
                sizes = {"model": name, "parameters": learner.layout.size, "batch": batch}
                rows.append({**sizes, "sixteen": sixteen, "blocks": blocks})
    return rows


def _learner(name: str, block: int) -> TorchLearner:
    make, shape = TIMED[name]
    module = make()
    return TorchLearner(module, made_up(shape, POPULATION), uniform(module, 1), seed=1, together=block)


def _together_ratio(name: str, batch: int, count: int, block: int, rounds: int) -> float:
    sides = {block: _learner(name, block), 1: _learner(name, 1)}
    vectors = [sides[block].initial() * (1 + number / 100) for number in range(count)]
    samples = [Samples(number, count, 0, batch) for number in range(count)]
    for _ in range(RECORDED_AFTER + 1):  # from then on the block's recorded operations are repeated
        sides[block].gradients(vectors[:block], samples[:block])

    def spent_s(side: TorchLearner) -> float:
        start_s = time.process_time()
        side.gradients(vectors, samples)
        return time.process_time() - start_s

    times = in_turn({size: partial(spent_s, side) for size, side in sides.items()}, rounds)
    return median(times[block]) / median(times[1])
