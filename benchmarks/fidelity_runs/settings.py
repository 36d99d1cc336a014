"""The settings of the benchmark and their scenarios: models, ranks, batches, devices, networks, pace.

Rules of this file:

* A configuration is one method in one setting. All configurations of a cell (model, ranks of each node, network, pace)
  are predicted from one calibration, whose batches are `CALIBRATED`; no setting has one of these batches.
* Learning rates and targets were chosen in simulation only, so that most methods reach the target. They were not
  changed after a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from paceline.records.store import slug
from paceline.scenarios import Scenario, load

Group = Literal["paced", "unpaced-within-cores", "unpaced-beyond-cores", "emulated", "emulated-unpaced", "order"]
GROUPS: tuple[Group, ...] = get_args(Group)
CALIBRATED = (16, 64, 256)
"""batches at which gradients are measured"""
CALIBRATION_BATCH = 32
"""the batch of calibration runs; device times in them are those of this batch"""
DEVICE_BATCH = 32
"""the batch at which a device takes the time that a setting gives"""
EVALUATE = 192
"""samples between evaluations"""

MODELS = {
    "digits-mlp": "digits-mlp",
    "digits-cnn": "digits-cnn",
    "wide-mlp": f"{Path(__file__).with_name('wide_mlp.py')}:wide_mlp",
}
"""the value of `workload.model` by the name in tables"""
RATES = {"digits-mlp": 0.12, "digits-cnn": 0.2, "wide-mlp": 0.12}
"""learning rates of methods that average gradients or weights; our choice"""
TARGET = 0.93
"""accuracy; our choice: late enough for differences between methods, early enough for runs of some seconds"""


def shared_rate(rate: float, workers: int) -> dict[str, Any]:
    """Returns the options of a method that takes a step for each gradient: the rate divided by the workers."""
    return {"learning_rate": rate / workers}


OPTIONS: Mapping[str, Callable[[float, int], dict[str, Any]]] = {
    "sync-sgd": lambda _rate, _workers: {},
    "async-sgd": shared_rate,
    "easgd": lambda _rate, _workers: {},
    "sync-easgd3": lambda _rate, _workers: {},
    "hbs-sgd": lambda _rate, _workers: {"k1": 2, "k2": 8, "group": "node"},
    "layerwise-sgd": lambda _rate, _workers: {"bucket": None},
    "agd": lambda _rate, _workers: {"delay": 1},
    "ssp": lambda rate, workers: {"slack": 2, **shared_rate(rate, workers)},
    "k-sync": lambda _rate, _workers: {},
    "dbs-sgd": shared_rate,
    "hogwild-sgd": shared_rate,
}
"""options of each method family, given the setting's rate and number of workers; one method stands for its family"""
ONE_NODE = tuple(name for name in OPTIONS if name != "dbs-sgd")
"""ten methods for equal workers on one node, among which dbs-sgd would be async-sgd"""
SEVERAL_NODES = tuple(name for name in OPTIONS if name != "hogwild-sgd")
"""ten methods that need no memory shared by all workers"""
UNEVEN = ("sync-sgd", "async-sgd", "easgd", "dbs-sgd", "k-sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Configurations that one calibration predicts."""

    model: str
    nodes: tuple[int, ...]
    """workers of each node"""
    network: str
    paced: bool

    @property
    def name(self) -> str:
        """A name for files.

        >>> Cell(model="digits-mlp", nodes=(2, 2), network="local", paced=True).name
        'digits-mlp-2x2-local-paced'
        """
        ranks = "x".join(map(str, self.nodes))
        return f"{self.model}-{ranks}-{self.network}-{'paced' if self.paced else 'unpaced'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Some methods on one machine.

    Args:
        name: for tables.
        model: a key of `MODELS`.
        nodes: workers of each node, and the milliseconds of a step on its devices at `DEVICE_BATCH`.
        batch: samples of a gradient.
        epochs: the length of the runs.
        methods: keys of `OPTIONS`.
        paced: whether steps are paced to the devices.
        link: the links of the emulated network, each a latency and a bandwidth; None: messages stay on this machine.
        jitter: σ of the lognormal distribution of paced steps.
        quick: the methods that the quick subset runs.
        target: the accuracy to be reached.
        order: whether it belongs to the study of the methods' order, in which all methods of a setting are predicted,
            then measured together, seed by seed.
        longer: runs take so many times as long: learning rates are divided by this number, and epochs and the samples
            between evaluations multiplied. Unpaced runs are short, and the speed of a shared machine changes from
            second to second.
    """

    name: str
    model: str
    nodes: tuple[tuple[int, float], ...]
    batch: int
    epochs: float
    methods: tuple[str, ...]
    paced: bool = True
    link: tuple[str, str] | None = None
    jitter: float = 0.2
    quick: tuple[str, ...] = ()
    target: float = TARGET
    order: bool = False
    longer: int = 1

    @property
    def workers(self) -> int:
        return sum(workers for workers, _ in self.nodes)

    @property
    def network(self) -> str:
        return "local" if self.link is None else "emulated"

    @property
    def cell(self) -> Cell:
        """The calibration that predicts it."""
        nodes = tuple(workers for workers, _ in self.nodes)
        network = "local" if self.link is None else "-".join(("emulated", *self.link)).replace(" ", "").replace("/", "")
        return Cell(model=self.model, nodes=nodes, network=network, paced=self.paced)

    def group(self, cores: int) -> Group:
        """Returns the group, on a machine with this many cores."""
        if self.order:
            return "order"
        if self.link is not None:
            return "emulated" if self.paced else "emulated-unpaced"
        if self.paced:
            return "paced"
        return "unpaced-within-cores" if self.workers <= cores else "unpaced-beyond-cores"

    def scenario(self, methods: tuple[str, ...], *, seeds: int = 1, batch: int | None = None) -> Scenario:
        """Returns the scenario of some methods.

        Args:
            methods: keys of `OPTIONS`.
            seeds: the number of seeds.
            batch: the batch, if it is another one than that of the setting.
        """
        rate, network = RATES[self.model] / self.longer, {}
        if self.link is not None:
            latency, bandwidth = self.link
            network = {"network": {"topology": "star", "link": {"latency": latency, "bandwidth": bandwidth}}}
        return load(
            {
                "name": slug(self.name),
                "algorithms": [{"name": name, **OPTIONS[name](rate, self.workers)} for name in methods],
                "hyperparameters": {"learning_rate": rate} if _uses_default(methods) else {},
                "workload": {
                    "model": MODELS[self.model],
                    "dataset": "digits",
                    "batch_per_worker": batch or self.batch,
                },
                "cluster": {
                    "nodes": [_node(number, *node) for number, node in enumerate(self.nodes)],
                    "step_time": {"distribution": "lognorm", "sigma": self.jitter},
                    **network,
                },
                "train": {"pace": "device" if self.paced else "none", "network": self.network},
                "evaluate": {"every": f"{EVALUATE * self.longer} samples"},
                "target": {"accuracy": self.target},
                "stop": {"epochs": self.epochs * self.longer},
                "seed": 1,
                "seeds": seeds,
            }
        )


def _uses_default(methods: tuple[str, ...]) -> bool:
    """Whether one of the methods has no learning rate of its own."""
    return any("learning_rate" not in OPTIONS[name](1.0, 1) for name in methods)


def _node(number: int, workers: int, step_ms: float) -> dict[str, Any]:
    """Returns a node; a fifth of a step is overhead, and the rest is proportional to the batch."""
    return {
        "device": {
            "name": f"device-{number}",
            "overhead": f"{0.2 * step_ms:g} ms",
            "per_sample": f"{0.8 * step_ms / DEVICE_BATCH:g} ms",
        },
        "workers_per_node": workers,
    }


def calibration_scenario(settings: tuple[Setting, ...]) -> Scenario:
    """Returns the scenario of a cell's calibration: all methods of its settings, on the devices of the first.

    Args:
        settings: the settings of one cell.
    """
    methods = dict.fromkeys(name for setting in settings for name in setting.methods)
    return settings[0].scenario(tuple(methods), batch=CALIBRATION_BATCH)
