"""The settings of `paceline fidelity`: models, ranks, batches, devices, networks, pace, and their scenarios.

* A setting is one scenario with several methods and seeds, which `paceline.reports.comparison.compare` predicts and
  measures. A configuration is one method in one setting.
* Learning rates and targets were chosen in simulation only, so that most methods reach the target. They were not
  changed after a measurement.
* The length of a run is no part of a setting: unpaced runs take as long as the time of the study allows
  (`run_lengths`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.records.store import slug
from paceline.scenarios import Scenario, load

Group = Literal["unpaced-within-cores", "unpaced-beyond-cores", "paced", "emulated", "emulated-unpaced"]
GROUPS: tuple[Group, ...] = get_args(Group)
STEP_AIMS: Mapping[Group, float] = {
    "unpaced-within-cores": 0.08, "unpaced-beyond-cores": 0.12, "paced": 0.03, "emulated": 0.03,
    "emulated-unpaced": 0.12,
}  # fmt: skip
"""the mean error of the step time that is aimed at; our choice"""
DEVICE_BATCH = 32
"""the batch at which a device takes the time that a setting gives"""
EVALUATE = 192
"""samples between evaluations of a run of length 1"""
TARGET = 0.9
"""accuracy; our choice: late enough for differences between methods, early enough for runs of some seconds"""

MODELS = {
    "digits-mlp": "digits-mlp",
    "digits-cnn": "digits-cnn",
    "wide-mlp": "paceline.validation.fidelity.wide_mlp:wide_mlp",
}
"""the value of `workload.model` by the name in tables"""
RATES = {"digits-mlp": 0.12, "digits-cnn": 0.2, "wide-mlp": 0.12}
"""learning rates of methods that average gradients or weights, for runs of length 1; our choice"""


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


@dataclass(frozen=True, slots=True)
class Setting:
    """Some methods on one machine.

    Args:
        name: for tables and files.
        model: a key of `MODELS`.
        nodes: workers of each node, and the milliseconds of a step on its devices at `DEVICE_BATCH`.
        batch: samples of a gradient.
        epochs: of a run of length 1.
        methods: keys of `OPTIONS`.
        paced: whether steps are paced to the devices.
        link: the links of the emulated network, each a latency and a bandwidth; None: messages stay on this machine.
        jitter: σ of the lognormal distribution of paced steps.
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

    @property
    def workers(self) -> int:
        return sum(workers for workers, _ in self.nodes)

    def group(self, cores: int) -> Group:
        """Returns the group, on a machine with this many cores."""
        if self.link is not None:
            return "emulated" if self.paced else "emulated-unpaced"
        if self.paced:
            return "paced"
        return "unpaced-within-cores" if self.workers <= cores else "unpaced-beyond-cores"

    def scenario(self, *, seeds: int = 1, length: int = 1) -> Scenario:
        """Returns the scenario.

        Args:
            seeds: their number.
            length: runs take so many times as long: learning rates are divided by it, and epochs and the samples
                between evaluations multiplied.
        """
        rate, network = RATES[self.model] / length, {}
        if self.link is not None:
            latency, bandwidth = self.link
            network = {"network": {"topology": "star", "link": {"latency": latency, "bandwidth": bandwidth}}}
        options = {name: OPTIONS[name](rate, self.workers) for name in self.methods}
        uses_default = any("learning_rate" not in option for option in options.values())
        return load(
            {
                "name": slug(self.name),
                "algorithms": [{"name": name, **options[name]} for name in self.methods],
                "hyperparameters": {"learning_rate": rate} if uses_default else {},
                "workload": {"model": MODELS[self.model], "dataset": "digits", "batch_per_worker": self.batch},
                "cluster": {
                    "nodes": [_node(number, *node) for number, node in enumerate(self.nodes)],
                    "step_time": {"distribution": "lognorm", "sigma": self.jitter},
                    **network,
                },
                "train": {
                    "pace": "device" if self.paced else "none",
                    "network": "local" if self.link is None else "emulated",
                },
                "evaluate": {"every": f"{EVALUATE * length} samples"},
                "target": {"accuracy": TARGET},
                "stop": {"epochs": self.epochs * length},
                "seed": 1,
                "seeds": seeds,
            }
        )


def _node(number: int, workers: int, step_ms: float) -> dict[str, Any]:
    """Returns a node; a fifth of a step is overhead, and the rest is proportional to the batch."""
    per_sample = f"{0.8 * step_ms / DEVICE_BATCH:g} ms"
    device = {"name": f"device-{number}", "overhead": f"{0.2 * step_ms:g} ms", "per_sample": per_sample}
    return {"device": device, "workers_per_node": workers}


# --- all settings -----------------------------------------------------------------------------------------------------

MLP, CNN, WIDE = MODELS
FAST, SLOW = ("1 ms", "200 Mbit/s"), ("2 ms", "20 Mbit/s")
UNPACED_MS = 20.0
"""the milliseconds of a step on the devices of an unpaced setting, which its runs do not use"""


def _methods(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _unpaced(
    name: str, model: str, workers: tuple[int, ...], batch: int, epochs: float, methods: tuple[str, ...],
    link: tuple[str, str] | None = None,
) -> Setting:  # fmt: skip
    nodes = tuple((count, UNPACED_MS) for count in workers)
    return Setting(name, model, nodes, batch, epochs, methods, paced=False, link=link)


COMPLETE = (
    _unpaced("unpaced, digits-mlp, 2 workers", MLP, (2,), 24, 24, ONE_NODE),
    _unpaced("unpaced, wide-mlp, 2 workers", WIDE, (2,), 48, 24, ONE_NODE),
    _unpaced("unpaced, wide-mlp, 2 workers, large batch", WIDE, (2,), 160, 30, ONE_NODE),
    _unpaced("unpaced, digits-cnn, 2 workers", CNN, (2,), 40, 24, ONE_NODE),
    _unpaced("unpaced, wide-mlp, 1 worker", WIDE, (1,), 96, 24, _methods("sync-sgd async-sgd")),
    _unpaced("unpaced, wide-mlp, 4 workers", WIDE, (4,), 48, 24, ONE_NODE),
    _unpaced("unpaced, digits-cnn, 3 workers", CNN, (3,), 24, 15, ONE_NODE),
    _unpaced("unpaced, digits-mlp, 6 workers", MLP, (6,), 24, 24, ONE_NODE),
    Setting("paced, two kinds of device", MLP, ((2, 20), (2, 40)), 24, 24, SEVERAL_NODES, jitter=0.3),
    Setting("paced, three equal workers", CNN, ((3, 24),), 20, 10, _methods("sync-sgd async-sgd easgd ssp")),
    Setting(
        "paced, three uneven workers", CNN, ((1, 20), (1, 30), (1, 60)), 40, 12,
        _methods("sync-sgd async-sgd easgd dbs-sgd k-sync"), jitter=0.1,
    ),
    Setting(
        "paced, six workers", MLP, ((3, 40), (3, 60)), 12, 8,
        _methods("sync-sgd async-sgd hbs-sgd layerwise-sgd k-sync"),
    ),
    Setting(
        "paced, 0.8 MB of weights", WIDE, ((1, 24), (1, 36)), 48, 10,
        _methods("sync-sgd async-sgd sync-easgd3 layerwise-sgd agd"),
    ),
    Setting(
        "emulated, 2 nodes of 2 workers, 20 Mbit/s", MLP, ((2, 36), (2, 48)), 24, 14, SEVERAL_NODES, link=SLOW
    ),
    Setting("emulated, 2 nodes of 2 workers, 200 Mbit/s", WIDE, ((2, 40), (2, 60)), 24, 9, SEVERAL_NODES, link=FAST),
    _unpaced(
        "unpaced, emulated, 2 nodes of 2 workers, 20 Mbit/s", MLP, (2, 2), 24, 12, SEVERAL_NODES, SLOW
    ),
    _unpaced(
        "unpaced, emulated, 2 nodes of 1 worker, 200 Mbit/s", WIDE, (1, 1), 48, 12, SEVERAL_NODES, FAST
    ),
)  # fmt: skip
COMPLETE_SEEDS, STANDARD_SEEDS, QUICK_SEEDS = 3, 2, 1
STANDARD_MINUTES, QUICK_MINUTES = 20.0, 5.0
SHORT_EPOCHS = 8.0
"""of paced runs of the standard set, which cannot be made shorter otherwise; twice what the slowest method needs"""
QUICK_METHODS = _methods("sync-sgd async-sgd easgd")
MOST_BEYOND = 16
"""the most ranks of the standard set; INFERENCE: above it, starting the ranks takes longer than their runs"""


def standard_settings(cores: int) -> tuple[Setting, ...]:
    """Returns the standard set for a machine: the small and the large model within and beyond its cores, a paced and an
    emulated setting. The first has few methods, so that little time is lost if guesses about the machine are wrong.

    Args:
        cores: the cores that runs may use.
    """
    known = {setting.name: setting for setting in COMPLETE}
    small, large = known["unpaced, digits-mlp, 2 workers"], known["unpaced, wide-mlp, 2 workers"]
    paced = replace(
        known["paced, two kinds of device"], epochs=SHORT_EPOCHS,
        methods=_methods("sync-sgd async-sgd easgd hbs-sgd layerwise-sgd k-sync"),
    )  # fmt: skip
    emulated = replace(
        known["emulated, 2 nodes of 2 workers, 20 Mbit/s"], epochs=SHORT_EPOCHS,
        methods=_methods("sync-sgd async-sgd hbs-sgd"),
    )  # fmt: skip
    few, many = _methods("sync-sgd async-sgd agd"), _methods("sync-sgd async-sgd hbs-sgd layerwise-sgd")
    beyond = []
    if (workers := 2 * cores) <= MOST_BEYOND:
        beyond = [
            replace(
                setting, name=f"unpaced, {setting.model}, {workers} workers", nodes=((workers, UNPACED_MS),),
                methods=methods,
            )
            for setting, methods in ((small, few), (large, many))
        ]  # fmt: skip
    return (replace(small, methods=few), large, *beyond, paced, emulated)


def quick_settings(cores: int) -> tuple[Setting, ...]:
    """Returns the standard set with the few methods that every setting has."""
    return tuple(
        replace(setting, methods=tuple(name for name in QUICK_METHODS if name in setting.methods))
        for setting in standard_settings(cores)
    )


def in_groups(settings: Sequence[Setting], cores: int, only: Sequence[Group]) -> tuple[Setting, ...]:
    """Returns the settings of some groups, of all if none is given."""
    return tuple(setting for setting in settings if not only or setting.group(cores) in only)


def groups_named(names: Sequence[str]) -> tuple[Group, ...]:
    """Returns the groups of these names.

    Raises:
        InputError: names are unknown; with all of them.
    """
    if unknown := [name for name in names if name not in GROUPS]:
        expected = f"expected some of {', '.join(GROUPS)}"
        raise InputError("\n".join(f"--only: found {name!r}{near_miss(name, GROUPS)}; {expected}" for name in unknown))
    return tuple(group for group in GROUPS if group in names)
