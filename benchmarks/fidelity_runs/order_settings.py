"""The settings in which the order of ten methods by time to accuracy is predicted."""

from __future__ import annotations

from fidelity_runs.settings import ONE_NODE, SEVERAL_NODES, Setting

SLOW_LINK = ("2 ms", "20 Mbit/s")
ORDER_TARGET = 0.9
"""accuracy of the study of the methods' order; our choice: in simulation, every method reaches it within six epochs"""

ORDER_SETTINGS = (
    Setting(
        name="order, paced, 4 workers",
        model="digits-mlp",
        nodes=((2, 20), (2, 40)),
        batch=24,
        epochs=8,
        methods=SEVERAL_NODES,
        jitter=0.3,
        target=ORDER_TARGET,
        order=True,
    ),
    Setting(
        name="order, unpaced, 2 workers",
        model="wide-mlp",
        nodes=((2, 20),),
        batch=48,
        epochs=16,
        methods=ONE_NODE,
        paced=False,
        longer=4,
        target=ORDER_TARGET,
        order=True,
    ),
    Setting(
        name="order, paced, emulated, 2 nodes of 2 workers, 20 Mbit/s",
        model="digits-mlp",
        nodes=((2, 20), (2, 30)),
        batch=24,
        epochs=8,
        methods=SEVERAL_NODES,
        jitter=0.3,
        link=SLOW_LINK,
        target=ORDER_TARGET,
        order=True,
    ),
    Setting(
        name="order, unpaced, emulated, 2 nodes of 2 workers, 20 Mbit/s",
        model="digits-mlp",
        nodes=((2, 20), (2, 20)),
        batch=24,
        epochs=8,
        methods=SEVERAL_NODES,
        paced=False,
        link=SLOW_LINK,
        target=ORDER_TARGET,
        order=True,
    ),
)
