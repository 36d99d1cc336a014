"""One launch of each way to train that `benchmarks/backend.py` compares: plain torch, torch.distributed, and Paceline.

Rules of this file:

* All ways have the same number of processes, forked from one parent, with one torch thread each; the same initial
  weights; and the same batches, loaded by the same `Learner.load` at the beginning of each step.
* A step is timed by the clock of each rank, from its beginning (where its batch is loaded) to the beginning of the
  next. The first steps do not count. The figure of a launch is the mean over its steps and ranks.
* Each launch is made by a new process, forked from one that has made no launch and holds only the learner. The memory
  management of the C library depends on what a process has freed, and a fork inherits this state. So no launch depends
  on those before it.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import SGD

from paceline.algorithms import find
from paceline.algorithms.core.job import Budget, Evaluation, Job, Learner, OneByOne
from paceline.algorithms.core.values import Layer, Layout, Rank, Samples
from paceline.backend.local.launch import Launch, run_job
from paceline.records.trace import Schedule, Trace
from paceline.workloads.batches.examples import Examples, LabelledBatch
from paceline.workloads.learners.torch_learner import TorchLearner

WORKERS = 2
BATCH = 32
RATE = 0.01
PERIOD = 8
WARMUP = 2 * PERIOD
INTERFACE = "lo"
SEED = 1
EXAMPLES = 4096
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Timed:
    """The result of a launch.

    Args:
        step_s: Mean seconds of a step.
        weights: Of each rank, at the end.
    """

    step_s: float
    weights: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The number of steps to run."""

    learner: TorchLearner
    steps: int
    """number of timed steps"""

    @property
    def all_steps(self) -> int:
        return WARMUP + self.steps


# --- models -----------------------------------------------------------------------------------------------------------


def mlp(*widths: int) -> nn.Module:
    """Returns dense layers from 784 inputs to 10 classes."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip((784, *widths), widths, strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def cnn() -> nn.Module:
    """Two convolutions and two dense layers for pictures of 28 × 28."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 122),
        nn.ReLU(),
        nn.Linear(122, CLASSES),
    )


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the length of its runs.

    Args:
        make: Builds the module.
        steps: The number of timed steps in each launch; whole periods of averaging.
    """

    make: Callable[[], nn.Module]
    steps: int


MODELS = {
    "mlp": Model(lambda: mlp(256), 320),
    "cnn": Model(cnn, 64),
    "mlp-10m": Model(lambda: mlp(2800, 2700), 32),
}
"""784-256-10 of 204 thousand parameters, 215 thousand, and 784-2800-2700-10 of 9.8 million"""


def learner_of(name: str) -> TorchLearner:
    """Returns the model on random pictures with random labels, because the timing does not depend on them."""
    torch.manual_seed(SEED)
    module = MODELS[name].make()
    pictures, labels = torch.randn(EXAMPLES, 784), torch.randint(CLASSES, (EXAMPLES,))
    train = LabelledBatch(pictures, labels)
    examples = Examples(train, train.at(slice(0, CLASSES)), CLASSES)
    start = parameters_to_vector(module.parameters()).detach().clone()
    return TorchLearner(module, examples, start, seed=SEED)


@dataclass(frozen=True)
class Nothing(OneByOne):
    """A learner without arithmetic: the time of a step is the overhead of the run."""

    layers: int = 4
    num_samples: int = EXAMPLES

    @property
    def layout(self) -> Layout:
        return Layout(tuple(Layer(f"layer{place}", place, place + 1) for place in range(self.layers)))

    def initial(self) -> Any:
        return torch.zeros(self.layers)

    def load(self, samples: Samples) -> Any:
        return None

    def gradient(self, vector: Any, data: Any) -> tuple[Any, float]:
        return vector.clone(), 0.0

    def layer_gradients(self, vector: Any, data: Any, ready: Callable[[str, Any], None]) -> float:
        gradient = vector.clone()
        for layer in reversed(self.layout.layers):
            ready(layer.name, gradient[layer.part])
        return 0.0

    def evaluate(self, vector: Any) -> Evaluation:
        return Evaluation(0.0, None)


# --- by torch ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Setting:
    """One rank of a torch program."""

    module: nn.Module
    learner: TorchLearner
    stamps: list[float]

    def step(self, module: nn.Module, step: int) -> None:
        """Loads the batch and computes its gradient."""
        self.stamps.append(time.monotonic())
        batch = self.learner.load(Samples(dist.get_rank(), WORKERS, step, BATCH))
        self.learner.loss(module(batch.inputs), batch.labels).backward()


def no_communication(setting: Setting, steps: int) -> None:
    """Trains each rank separately in plain torch."""
    optimizer = SGD(setting.module.parameters(), lr=RATE)
    for step in range(steps):
        optimizer.zero_grad()
        setting.step(setting.module, step)
        optimizer.step()


def flat_loop(setting: Setting, steps: int) -> None:
    """Exchanges all gradients in one flat vector, by one blocking all-reduce of gloo."""
    parameters = list(setting.module.parameters())
    weights = parameters_to_vector(parameters).detach()
    gradient = torch.zeros_like(weights)
    at = 0
    for parameter in parameters:
        part = slice(at, at + parameter.numel())
        parameter.data, parameter.grad = weights[part].view_as(parameter), gradient[part].view_as(parameter)
        at = part.stop
    for step in range(steps):
        gradient.zero_()
        setting.step(setting.module, step)
        dist.all_reduce(gradient)
        weights.add_(gradient, alpha=-RATE / WORKERS)


def ddp(setting: Setting, steps: int) -> None:
    """Uses torch's DistributedDataParallel with its defaults."""
    module = DistributedDataParallel(setting.module)
    optimizer = SGD(module.parameters(), lr=RATE)
    for step in range(steps):
        optimizer.zero_grad()
        setting.step(module, step)
        optimizer.step()


def post_local(setting: Setting, steps: int) -> None:
    """Uses torch's post-local SGD, local from the first step on: the hook that leaves gradients local, and its
    optimizer.
    """
    module = DistributedDataParallel(setting.module)
    state = PostLocalSGDState(None, None, start_localSGD_iter=0, post_local_gradient_allreduce=False)
    module.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)  # after PERIOD steps, not after the first
    optimizer = PostLocalSGDOptimizer(optim=SGD(module.parameters(), lr=RATE), averager=averager)
    for step in range(steps):
        optimizer.zero_grad()
        setting.step(module, step)
        optimizer.step()


def averager(setting: Setting, steps: int) -> None:
    """Uses torch's averager without DistributedDataParallel."""
    parameters = list(setting.module.parameters())
    optimizer = SGD(parameters, lr=RATE)
    averager = PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD - 1)
    for step in range(steps):
        optimizer.zero_grad()
        setting.step(setting.module, step)
        optimizer.step()
        averager.average_parameters(parameters)


TORCH: Mapping[str, Callable[[Setting, int], None]] = {
    "no communication": no_communication,
    "flat gloo loop": flat_loop,
    "DDP": ddp,
    "torch's PostLocalSGD": post_local,
    "torch's PeriodicModelAverager": averager,
}


def by_torch(name: str, rounds: Rounds) -> Timed:
    """Makes one launch of a torch program."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        ends = [context.Pipe(duplex=False) for _ in range(WORKERS)]
        children = [
            context.Process(target=_rank, args=(name, rank, rounds, Path(folder) / "store", sender), daemon=True)
            for rank, (_, sender) in enumerate(ends)
        ]
        with _killed(children):
            for (_, sender), child in zip(ends, children, strict=True):
                child.start()
                sender.close()
            timings = [receiver.recv() for receiver, _ in ends]
            for child in children:
                child.join()
    step_s = fmean(seconds for seconds, _ in timings)
    return Timed(step_s, tuple(torch.from_numpy(weights) for _, weights in timings))


@contextmanager
def _killed(children: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for child in children:
            if child.pid is not None and child.is_alive():
                child.kill()


def _rank(name: str, rank: int, rounds: Rounds, store: Path, answer: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORKERS)
    module = copy.deepcopy(rounds.learner.module)
    vector_to_parameters(rounds.learner.initial().clone(), module.parameters())
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()  # each rank has its own memory, as in any torch program
    setting = Setting(module, rounds.learner, [])
    dist.barrier()
    TORCH[name](setting, rounds.all_steps)
    dist.barrier()
    seconds = (setting.stamps[-1] - setting.stamps[WARMUP]) / (rounds.steps - 1)
    answer.send((seconds, parameters_to_vector(module.parameters()).detach().numpy()))


# --- by Paceline ------------------------------------------------------------------------------------------------------

OURS: Mapping[str, Mapping[str, Any]] = {
    "sync-sgd": {},
    "layerwise-sgd": {},  # its buckets are those of DistributedDataParallel
    "post-local-sgd": {"switch": 0, "period": PERIOD},
}
"""methods, and their hyper-parameters beside the learning rate"""
TRANSPORTS = {"gloo": False, "shared memory": True}
"""transports of the methods; whether each is shared memory"""


def run(name: str, learner: Learner, *, workers: int, steps: int, shared_memory: bool) -> Trace:
    """Makes one launch of a method by the same call as `paceline train`; weights are not evaluated."""
    method = find(name)(learning_rate=RATE, **OURS[name])
    job = Job.of(
        method,
        [[Rank(rank) for rank in range(workers)]],
        learner,
        batch=BATCH,
        budget=Budget(samples=steps * BATCH * workers),
    )
    return run_job(Launch(job=job, schedule=lambda: Schedule(every=float("inf")), shared_memory=shared_memory))


def step_s(trace: Trace, workers: int, steps: int) -> float:
    """Returns the mean seconds of the last `steps` steps."""
    each = []
    for rank in range(workers):
        begins = [span.start_s for span in trace.spans if span.activity == "load" and span.rank == rank][-steps:]
        each.append((begins[-1] - begins[0]) / (len(begins) - 1))
    return fmean(each)


def by_paceline(name: str, rounds: Rounds, *, shared_memory: bool) -> Timed:
    """Makes one launch of a method."""
    trace = run(name, rounds.learner, workers=WORKERS, steps=rounds.all_steps, shared_memory=shared_memory)
    weights = tuple(trace.states[Rank(rank)].weights.vector for rank in range(WORKERS))
    return Timed(step_s(trace, WORKERS, rounds.steps), weights)


# --- launches ---------------------------------------------------------------------------------------------------------

Launching = Callable[[Rounds], Timed]
"""makes a launch, in the process that calls it"""


class Maker:
    """Makes launches of a model, each in a new process. The process that forks them does nothing else.

    Args:
        learner: Builds the learner, in that process.
        steps: The number of timed steps.
        ways: The launches, by name.
    """

    def __init__(self, learner: Callable[[], TorchLearner], steps: int, ways: Mapping[Any, Launching]) -> None:
        context = multiprocessing.get_context("fork")
        self.steps = steps
        asked, self._ask = context.Pipe(duplex=False)
        self._answered, answer = context.Pipe(duplex=False)

        def body() -> None:
            self._ask.close()
            torch.set_num_threads(1)  # before any fork, so that no child inherits a thread pool without its threads
            rounds = Rounds(learner(), steps)
            with suppress(EOFError, KeyboardInterrupt):
                while True:
                    name = asked.recv()
                    launcher = context.Process(target=lambda name=name: _launched(ways[name], rounds, answer))
                    launcher.start()
                    launcher.join()
                    if launcher.exitcode:
                        answer.send(None)

        self._process = context.Process(target=body)
        self._process.start()
        asked.close()
        answer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask.close()
        self._process.join()

    def launch(self, name: Any) -> Timed:
        """Makes one launch."""
        self._ask.send(name)
        if (answer := self._answered.recv()) is None:
            sys.exit(f"error: a launch of {name} has failed")
        step_s, weights = answer
        return Timed(step_s, tuple(map(torch.from_numpy, weights)))


def _launched(way: Launching, rounds: Rounds, answer: Connection) -> None:
    timed = way(rounds)
    answer.send((timed.step_s, [weight.numpy() for weight in timed.weights]))
