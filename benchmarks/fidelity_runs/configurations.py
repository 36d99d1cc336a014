"""The list of configurations, and the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fidelity_runs.order_settings import ORDER_SETTINGS, SLOW_LINK
from fidelity_runs.settings import ONE_NODE, SEVERAL_NODES, UNEVEN, Group, Setting

FAST_LINK = ("1 ms", "200 Mbit/s")

ONE_BY_ONE = (
    Setting(
        name="paced, two kinds of device",
        model="digits-mlp",
        nodes=((2, 20), (2, 40)),
        batch=24,
        epochs=16,
        methods=SEVERAL_NODES,
        jitter=0.3,
        quick=("sync-sgd", "async-sgd", "easgd", "hbs-sgd", "layerwise-sgd", "agd"),
    ),
    Setting(
        name="paced, three equal workers",
        model="digits-cnn",
        nodes=((3, 24),),
        batch=20,
        epochs=10,
        methods=("sync-sgd", "async-sgd", "easgd", "ssp"),
    ),
    Setting(
        name="paced, three uneven workers",
        model="digits-cnn",
        nodes=((1, 20), (1, 30), (1, 60)),
        batch=40,
        epochs=12,
        methods=UNEVEN,
        jitter=0.1,
    ),
    Setting(
        name="paced, six workers",
        model="digits-mlp",
        nodes=((3, 40), (3, 60)),
        batch=12,
        epochs=8,
        methods=("sync-sgd", "async-sgd", "hbs-sgd", "layerwise-sgd", "k-sync"),
    ),
    Setting(
        name="paced, 0.8 MB of weights",
        model="wide-mlp",
        nodes=((1, 24), (1, 36)),
        batch=48,
        epochs=10,
        methods=("sync-sgd", "async-sgd", "sync-easgd3", "layerwise-sgd", "agd"),
    ),
    Setting(
        name="unpaced, digits-mlp, 2 workers",
        model="digits-mlp",
        nodes=((2, 20),),
        batch=24,
        epochs=24,
        methods=ONE_NODE,
        paced=False,
        longer=6,
        quick=("sync-sgd", "async-sgd", "easgd", "agd"),
    ),
    Setting(
        name="unpaced, wide-mlp, 2 workers",
        model="wide-mlp",
        nodes=((2, 20),),
        batch=48,
        epochs=24,
        methods=ONE_NODE,
        paced=False,
        longer=4,
        quick=("sync-sgd", "async-sgd", "hbs-sgd", "layerwise-sgd"),
    ),
    Setting(
        name="unpaced, wide-mlp, 2 workers, large batch",
        model="wide-mlp",
        nodes=((2, 20),),
        batch=160,
        epochs=30,
        methods=("sync-sgd", "async-sgd", "layerwise-sgd", "sync-easgd3", "hogwild-sgd"),
        paced=False,
        longer=5,
    ),
    Setting(
        name="unpaced, digits-cnn, 2 workers",
        model="digits-cnn",
        nodes=((2, 20),),
        batch=40,
        epochs=24,
        methods=("sync-sgd", "async-sgd", "easgd", "hbs-sgd", "hogwild-sgd"),
        paced=False,
        longer=3,
    ),
    Setting(
        name="unpaced, wide-mlp, 1 worker",
        model="wide-mlp",
        nodes=((1, 20),),
        batch=96,
        epochs=24,
        methods=("sync-sgd", "async-sgd"),
        paced=False,
        longer=4,
    ),
    Setting(
        name="unpaced, wide-mlp, 4 workers",
        model="wide-mlp",
        nodes=((4, 20),),
        batch=48,
        epochs=24,
        methods=ONE_NODE,
        paced=False,
        longer=4,
        quick=("sync-sgd", "async-sgd", "easgd", "layerwise-sgd"),
    ),
    Setting(
        name="unpaced, digits-cnn, 3 workers",
        model="digits-cnn",
        nodes=((3, 20),),
        batch=24,
        epochs=15,
        methods=("sync-sgd", "async-sgd", "easgd", "hogwild-sgd"),
        paced=False,
        longer=2,
    ),
    Setting(
        name="unpaced, digits-mlp, 6 workers",
        model="digits-mlp",
        nodes=((6, 20),),
        batch=24,
        epochs=24,
        methods=("sync-sgd", "async-sgd", "hbs-sgd", "agd"),
        paced=False,
        longer=4,
    ),
    Setting(
        name="emulated, 2 nodes of 2 workers, 20 Mbit/s",
        model="digits-mlp",
        nodes=((2, 36), (2, 48)),
        batch=24,
        epochs=14,
        methods=SEVERAL_NODES,
        link=SLOW_LINK,
        quick=("sync-sgd", "async-sgd", "hbs-sgd"),
    ),
    Setting(
        name="emulated, 2 nodes of 2 workers, 200 Mbit/s",
        model="wide-mlp",
        nodes=((2, 40), (2, 60)),
        batch=24,
        epochs=9,
        methods=("sync-sgd", "easgd", "hbs-sgd", "agd"),
        link=FAST_LINK,
    ),
    Setting(
        name="unpaced, emulated, 2 nodes of 2 workers, 20 Mbit/s",
        model="digits-mlp",
        nodes=((2, 20), (2, 20)),
        batch=24,
        epochs=12,
        methods=SEVERAL_NODES,
        paced=False,
        link=SLOW_LINK,
        quick=("sync-sgd", "async-sgd"),
    ),
    Setting(
        name="unpaced, emulated, 2 nodes of 1 worker, 200 Mbit/s",
        model="wide-mlp",
        nodes=((1, 20), (1, 20)),
        batch=48,
        epochs=12,
        methods=("sync-sgd", "async-sgd", "sync-easgd3", "agd"),
        paced=False,
        link=FAST_LINK,
    ),
)
"""settings whose methods are measured one by one"""


def cell_by_cell(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Returns settings in an order in which those of a cell follow each other; cells in the order of their first."""
    cells = list(dict.fromkeys(setting.cell for setting in settings))
    return tuple(sorted(settings, key=lambda setting: cells.index(setting.cell)))


SETTINGS = cell_by_cell((*ONE_BY_ONE, *ORDER_SETTINGS))
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
    """Yields the configurations of settings.

    Args:
        settings: the settings.
        cores: the cores of this machine, on which groups depend.
        only: the groups; by default all.
    """
    for setting in settings:
        if not only or setting.group(cores) in only:
            for method in setting.methods:
                yield Configuration(setting, method)
