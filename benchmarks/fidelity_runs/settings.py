"""The configurations of `benchmarks/fidelity.py`: models, ranks, batches, devices, networks, pace, and their scenarios.

Rules of this file:

* A configuration is one method in one setting. All configurations of a cell (model, ranks of each node, network, pace)
  are predicted from one calibration, whose batches are `CALIBRATED`; no setting has one of these batches.
* Learning rates and targets were chosen in simulation only, so that most methods reach the target. They were not
  changed after a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
TARGET, ORDER_TARGET = 0.93, 0.9
"""accuracies; our choice: late enough for differences between methods, early enough for runs of some seconds; the order
is studied to one that in simulation every method reaches within six epochs
"""


def shared_rate(rate: float, workers: int) -> dict[str, Any]:
    """Returns the options of a method that takes a step for each gradient: the rate divided by the workers."""
    return {"learning_rate": rate / workers}


def _given(**options: Any) -> Callable[[float, int], dict[str, Any]]:
    return lambda _rate, _workers: options


OPTIONS: Mapping[str, Callable[[float, int], dict[str, Any]]] = {
    "sync-sgd": _given(),
    "async-sgd": shared_rate,
    "easgd": _given(),
    "sync-easgd3": _given(),
    "hbs-sgd": _given(k1=2, k2=8, group="node"),
    "layerwise-sgd": _given(bucket=None),
    "agd": _given(delay=1),
    "ssp": lambda rate, workers: {"slack": 2, **shared_rate(rate, workers)},
    "k-sync": _given(),
    "dbs-sgd": shared_rate,
    "hogwild-sgd": shared_rate,
}
"""options of each method family, given the setting's rate and number of workers; one method stands for its family"""
ONE_NODE = tuple(name for name in OPTIONS if name != "dbs-sgd")
"""ten methods for equal workers on one node, among which dbs-sgd would be async-sgd"""
SEVERAL_NODES = tuple(name for name in OPTIONS if name != "hogwild-sgd")
"""ten methods that need no memory shared by all workers"""
UNEVEN = ("sync-sgd", "async-sgd", "easgd", "dbs-sgd", "k-sync")


@dataclass(frozen=True, slots=True)
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

        >>> Cell("digits-mlp", (2, 2), "local", paced=True).name
        'digits-mlp-2x2-local-paced'
        """
        ranks = "x".join(map(str, self.nodes))
        return f"{self.model}-{ranks}-{self.network}-{'paced' if self.paced else 'unpaced'}"


@dataclass(frozen=True, slots=True)
class Setting:
    """Some methods on one machine.

    Args:
        name: for tables.
        model: a key of `MODELS`.
        nodes: workers of each node, and the milliseconds of a step on its devices at `DEVICE_BATCH`.
        batch: samples of a gradient.
        epochs: the length of the runs.
        methods: keys of `OPTIONS`.
        quick: the methods that the quick subset runs.
        paced: whether steps are paced to the devices.
        link: the links of the emulated network, each a latency and a bandwidth; None: messages stay on this machine.
        jitter: σ of the lognormal distribution of paced steps.
        longer: runs take so many times as long: learning rates are divided by this number, and epochs and the samples
            between evaluations multiplied. Unpaced runs are short, and the speed of a shared machine changes from
            second to second.
        order: whether it belongs to the study of the methods' order, in which all methods of a setting are predicted,
            then measured together, seed by seed.
    """

    name: str
    model: str
    nodes: tuple[tuple[int, float], ...]
    batch: int
    epochs: float
    methods: tuple[str, ...]
    quick: tuple[str, ...] = ()
    paced: bool = True
    link: tuple[str, str] | None = None
    jitter: float = 0.2
    longer: int = 1
    order: bool = False

    @property
    def workers(self) -> int:
        return sum(workers for workers, _ in self.nodes)

    @property
    def network(self) -> str:
        return "local" if self.link is None else "emulated"

    @property
    def cell(self) -> Cell:
        """The calibration that predicts it."""
        network = "-".join((self.network, *(self.link or ()))).replace(" ", "").replace("/", "")
        return Cell(self.model, tuple(workers for workers, _ in self.nodes), network, self.paced)

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
        """Returns the scenario of some methods, with the setting's batch or another one."""
        rate, network = RATES[self.model] / self.longer, {}
        if self.link is not None:
            latency, bandwidth = self.link
            network = {"network": {"topology": "star", "link": {"latency": latency, "bandwidth": bandwidth}}}
        options = {name: OPTIONS[name](rate, self.workers) for name in methods}
        uses_default = any("learning_rate" not in option for option in options.values())
        return load(
            {
                "name": slug(self.name),
                "algorithms": [{"name": name, **options[name]} for name in methods],
                "hyperparameters": {"learning_rate": rate} if uses_default else {},
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
                "target": {"accuracy": ORDER_TARGET if self.order else TARGET},
                "stop": {"epochs": self.epochs * self.longer},
                "seed": 1,
                "seeds": seeds,
            }
        )


def _node(number: int, workers: int, step_ms: float) -> dict[str, Any]:
    """Returns a node; a fifth of a step is overhead, and the rest is proportional to the batch."""
    per_sample = f"{0.8 * step_ms / DEVICE_BATCH:g} ms"
    device = {"name": f"device-{number}", "overhead": f"{0.2 * step_ms:g} ms", "per_sample": per_sample}
    return {"device": device, "workers_per_node": workers}


def calibration_scenario(settings: tuple[Setting, ...]) -> Scenario:
    """Returns the scenario of a cell's calibration: all methods of its settings, on the devices of the first."""
    methods = dict.fromkeys(name for setting in settings for name in setting.methods)
    return settings[0].scenario(tuple(methods), batch=CALIBRATION_BATCH)


# --- the list ---------------------------------------------------------------------------------------------------------

MLP, CNN, WIDE = MODELS
FAST, SLOW = ("1 ms", "200 Mbit/s"), ("2 ms", "20 Mbit/s")


def _methods(names: str) -> tuple[str, ...]:
    return tuple(names.split())


PACED = (
    Setting(
        "paced, two kinds of device", MLP, ((2, 20), (2, 40)), 24, 16, SEVERAL_NODES,
        _methods("sync-sgd async-sgd easgd hbs-sgd layerwise-sgd agd"), jitter=0.3,
    ),
    Setting("paced, three equal workers", CNN, ((3, 24),), 20, 10, _methods("sync-sgd async-sgd easgd ssp")),
    Setting("paced, three uneven workers", CNN, ((1, 20), (1, 30), (1, 60)), 40, 12, UNEVEN, jitter=0.1),
    Setting(
        "paced, six workers", MLP, ((3, 40), (3, 60)), 12, 8,
        _methods("sync-sgd async-sgd hbs-sgd layerwise-sgd k-sync"),
    ),
    Setting(
        "paced, 0.8 MB of weights", WIDE, ((1, 24), (1, 36)), 48, 10,
        _methods("sync-sgd async-sgd sync-easgd3 layerwise-sgd agd"),
    ),
)  # fmt: skip
UNPACED = (
    Setting(
        "unpaced, digits-mlp, 2 workers", MLP, ((2, 20),), 24, 24, ONE_NODE,
        _methods("sync-sgd async-sgd easgd agd"), longer=6,
    ),
    Setting(
        "unpaced, wide-mlp, 2 workers", WIDE, ((2, 20),), 48, 24, ONE_NODE,
        _methods("sync-sgd async-sgd hbs-sgd layerwise-sgd"), longer=4,
    ),
    Setting(
        "unpaced, wide-mlp, 2 workers, large batch", WIDE, ((2, 20),), 160, 30,
        _methods("sync-sgd async-sgd layerwise-sgd sync-easgd3 hogwild-sgd"), longer=5,
    ),
    Setting(
        "unpaced, digits-cnn, 2 workers", CNN, ((2, 20),), 40, 24,
        _methods("sync-sgd async-sgd easgd hbs-sgd hogwild-sgd"), longer=3,
    ),
    Setting("unpaced, wide-mlp, 1 worker", WIDE, ((1, 20),), 96, 24, _methods("sync-sgd async-sgd"), longer=4),
    Setting(
        "unpaced, wide-mlp, 4 workers", WIDE, ((4, 20),), 48, 24, ONE_NODE,
        _methods("sync-sgd async-sgd easgd layerwise-sgd"), longer=4,
    ),
    Setting(
        "unpaced, digits-cnn, 3 workers", CNN, ((3, 20),), 24, 15,
        _methods("sync-sgd async-sgd easgd hogwild-sgd"), longer=2,
    ),
    Setting(
        "unpaced, digits-mlp, 6 workers", MLP, ((6, 20),), 24, 24,
        _methods("sync-sgd async-sgd hbs-sgd agd"), longer=4,
    ),
    Setting(
        "unpaced, emulated, 2 nodes of 2 workers, 20 Mbit/s", MLP, ((2, 20), (2, 20)), 24, 12, SEVERAL_NODES,
        _methods("sync-sgd async-sgd"), link=SLOW,
    ),
    Setting(
        "unpaced, emulated, 2 nodes of 1 worker, 200 Mbit/s", WIDE, ((1, 20), (1, 20)), 48, 12,
        _methods("sync-sgd async-sgd sync-easgd3 agd"), link=FAST,
    ),
)  # fmt: skip
EMULATED = (
    Setting(
        "emulated, 2 nodes of 2 workers, 20 Mbit/s", MLP, ((2, 36), (2, 48)), 24, 14, SEVERAL_NODES,
        _methods("sync-sgd async-sgd hbs-sgd"), link=SLOW,
    ),
    Setting(
        "emulated, 2 nodes of 2 workers, 200 Mbit/s", WIDE, ((2, 40), (2, 60)), 24, 9,
        _methods("sync-sgd easgd hbs-sgd agd"), link=FAST,
    ),
)  # fmt: skip
ORDER = (
    Setting("order, paced, 4 workers", MLP, ((2, 20), (2, 40)), 24, 8, SEVERAL_NODES, jitter=0.3),
    Setting("order, unpaced, 2 workers", WIDE, ((2, 20),), 48, 16, ONE_NODE, paced=False, longer=4),
    Setting(
        "order, paced, emulated, 2 nodes of 2 workers, 20 Mbit/s", MLP, ((2, 20), (2, 30)), 24, 8, SEVERAL_NODES,
        jitter=0.3, link=SLOW,
    ),
    Setting(
        "order, unpaced, emulated, 2 nodes of 2 workers, 20 Mbit/s", MLP, ((2, 20), (2, 20)), 24, 8, SEVERAL_NODES,
        paced=False, link=SLOW,
    ),
)  # fmt: skip


def cell_by_cell(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Returns settings in an order in which those of a cell follow each other; cells in the order of their first."""
    cells = list(dict.fromkeys(setting.cell for setting in settings))
    return tuple(sorted(settings, key=lambda setting: cells.index(setting.cell)))


SETTINGS = cell_by_cell(
    (
        *PACED,
        *(replace(setting, paced=False) for setting in UNPACED[:-2]),
        *EMULATED,
        *(replace(setting, paced=False) for setting in UNPACED[-2:]),
        *(replace(setting, order=True) for setting in ORDER),
    )
)
"""settings of the same cell follow each other, so that a calibration is close to the runs that it predicts"""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One method in one setting."""

    setting: Setting
    method: str

    @property
    def name(self) -> str:
        """Its name in tables and in the file of results."""
        return f"{self.setting.name}: {self.method}"


def quick_settings(settings: Sequence[Setting] = SETTINGS) -> tuple[Setting, ...]:
    """Returns the settings of the quick subset, with its methods."""
    return tuple(replace(setting, methods=setting.quick) for setting in settings if setting.quick)


def configurations(settings: Sequence[Setting], *, cores: int, only: Sequence[Group] = ()) -> Iterator[Configuration]:
    """Yields the configurations of some groups, by default of all. Groups depend on the cores of this machine."""
    for setting in settings:
        if not only or setting.group(cores) in only:
            for method in setting.methods:
                yield Configuration(setting, method)
