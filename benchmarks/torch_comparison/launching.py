"""Makes the launches that `benchmarks/backend.py` compares.

Rules of this file: each launch is made by a new process, forked from one that has made no launch and holds only the
learner. The memory management of the C library depends on what a process has freed, and a fork inherits this state. So
no launch depends on those before it.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

import torch

from paceline.workloads.learners.torch_learner import TorchLearner
from torch_comparison.runs import Rounds, Timed

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
    answer.send((timed.step_s, [one.numpy() for one in timed.weights]))
