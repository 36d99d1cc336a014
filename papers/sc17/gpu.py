"""Claims of SC'17 on the times of one GPU node: shares of communication, and the steps from Original to Sync EASGD3.

Rules of this file:

* Two accountings of communication. SC'17 measures the parts of one iteration: everything that is neither forward and
  backward nor an update is communication. An iteration of Original EASGD is a turn of one worker, so the turns of other
  workers are no part of it; in Paceline's time fractions they are `wait`. The shares here are SC'17's.
* The factor from Original EASGD to Sync EASGD1 compares the iterations of the paper's table, 5000 turns and 1000 steps.
  The same ratio for equal numbers of gradients is in the details.
* Every combination of the inputs that were not found is simulated, without learning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from paceline.papers.core.claim import Assertion, Claim, Curve, Effort, Predicted
from paceline.papers.runs.simulated_runs import simulated
from paceline.papers.sc17.gpu_times import PAPER, SCENARIO, Times, central, nodes, times, working_share
from paceline.papers.sc17.packing import order_of_packing, packing_one_by_one
from paceline.records import Run

HARDWARE = "one node with GPUs (K80 or M40, 4 or 8)"
INPUTS = (
    "gpu-model",
    "gpu-device",
    "gpu-workers",
    "gpu-node",
    "gpu-batch",
    "gpu-host-copies",
    "gpu-jitter",
)
ORIGINAL = (*INPUTS, "gpu-packing-of-original", "gpu-overlap-of-original")


def over_nodes(
    figure: Callable[[Times], float],
    effort: Effort,
    details: Callable[[], tuple[str, ...]],
    curve: Callable[[], Curve] | None,
) -> Predicted:
    """Returns a figure on the most plausible node, with its range over all nodes.

    Args:
        figure: The figure of one node.
        effort: Whether all combinations are simulated.
        details: Further sentences.
        curve: The figure over an input that the paper does not give.
    """
    found = [(figure(times(node)), node) for node in nodes(effort)]
    (value, node), low, high = found[0], min(found, key=lambda one: one[0]), max(found, key=lambda one: one[0])
    reason = (
        f"Over the inputs that were not found it is {low[0]:.3g} ({low[1].words}) to {high[0]:.3g} ({high[1].words}). "
        f"On {node.words} a turn of Original EASGD takes {times(node).turn_s * 1e3:.3g} ms and a step of Sync EASGD3 "
        f"{times(node).step3_s * 1e3:.3g} ms; the paper's table has 8.2 and 7.7 ms."
    )
    drawn = None if curve is None else curve()
    return Predicted(value=value, low=low[0], high=high[0], reason=reason, details=details(), curve=drawn)


def _shares_apart() -> tuple[str, ...]:
    found = times(central())
    return (
        (
            f"Shares are in SC'17's accounting, in which the turns of other workers are no part of an iteration. In "
            f"Paceline's, a worker of Original EASGD waits {found.waiting_share:.0f} % of its time for other turns."
        ),
    )


RATES_GB_PER_S = (0.3, 1.0, 3.0, 10.0, 30.0)
"""rates of the link of the sweep"""


def _copy_gb_per_s(run: Run) -> float:
    """Returns the rate of the first message of weights, from its sending to its arrival."""
    assert run.trace is not None, "a run that was just simulated has its record"
    sent = next(one for one in run.trace.spans if one.activity == "receive" and one.bytes)
    assert sent.ready_s is not None, "a received message was sent"
    return sent.bytes / (sent.end_s - sent.ready_s) / 1e9


def _share_over_rates() -> Curve:
    """Returns the share of communication over the rate at which weights are copied, which the paper does not give."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for gpu, batch in product(("k80", "m40"), (16, 64)):
        node = replace(central(), gpu=gpu, batch=batch)
        for rate in RATES_GB_PER_S:
            changes = [
                *node.changes[1:],
                f"cluster.nodes=[{{device: {gpu}, workers_per_node: {node.workers}}}]",
                f"cluster.network.intra_node_link={{latency: 10 us, bandwidth: {rate} GB/s}}",
            ]
            (run,) = simulated(SCENARIO, changes, algorithms=["easgd"])
            lines.setdefault(f"{gpu}, batch {batch}", []).append((_copy_gb_per_s(run), 100 * (1 - working_share(run))))
    return Curve(
        x="rate of a copy of weights between host and device, GB/s",
        y="communication of Original EASGD, %",
        lines=lines,
        published=87.0,
        log_x=True,
    )


def _equal_gradients() -> tuple[str, ...]:
    said = []
    for workers in (4, 8):
        found = times(replace(central(), workers=workers))
        said.append(
            f"With {workers} GPUs and equal numbers of gradients ({workers} turns for a step), Sync EASGD1 is "
            f"{workers * found.turn_s / found.step1_s:.3g} times as fast as Original EASGD and Sync EASGD3 "
            f"{workers * found.turn_s / found.step3_s:.3g} times; by the paper's 5000 turns and 1000 steps "
            f"{found.first_factor():.3g} and {found.total_factor():.3g} times."
        )
    overlapped = times(replace(central(), overlap=True))
    said.append(
        f"If Original EASGD overlaps its exchange with the gradient, a turn takes {overlapped.turn_s * 1e3:.3g} ms "
        f"instead of {times(central()).turn_s * 1e3:.3g} ms."
    )
    return tuple(said)


def _nothing() -> tuple[str, ...]:
    return ()


def _claim(
    name: str,
    section: str,
    sentence: str,
    published: float,
    unit: str,
    figure: Callable[[Times], float],
    inputs: tuple[str, ...],
    details: Callable[[], tuple[str, ...]] = _nothing,
    curve: Callable[[], Curve] | None = None,
) -> Claim:
    holds_if: Assertion = "within 25 %"
    return Claim(
        name=f"sc17-{name}",
        paper=PAPER,
        section=section,
        sentence=sentence,
        published=published,
        unit=unit,
        hardware=HARDWARE,
        model="LeNet, MNIST",
        batch="not found",
        scenario=SCENARIO,
        command=f"paceline simulate {SCENARIO} --set workload.learning=none",
        inputs=inputs,
        holds_if=holds_if,
        predict=lambda effort: over_nodes(figure, effort, details, curve),
        shares="sc17 gpu times",
    )


CLAIMS = (
    _claim(
        "original-communication",
        "§5.1, breakdown",
        "communication takes 87 % of the time of Original EASGD",
        87.0,
        "%",
        lambda found: found.original_share,
        ORIGINAL,
        _shares_apart,
        _share_over_rates,
    ),
    _claim(
        "sync3-communication",
        "abstract; §6.1, breakdown",
        "communication takes 14 % of the time of Sync EASGD3",
        14.0,
        "%",
        lambda found: found.sync3_share,
        INPUTS,
    ),
    _claim(
        "factor-1",
        "§6.1.1, breakdown",
        "Sync EASGD1 is 3.7 times as fast as Original EASGD",
        3.7,
        "×",
        Times.first_factor,
        (*ORIGINAL, "gpu-turns", "gpu-steps"),
        _equal_gradients,
    ),
    _claim(
        "factor-2",
        "§6.1.2, breakdown",
        "Sync EASGD2 is 1.3 times as fast as Sync EASGD1",
        1.3,
        "×",
        lambda found: found.step1_s / found.step2_s,
        INPUTS,
    ),
    _claim(
        "factor-3",
        "§6.1.3, breakdown",
        "Sync EASGD3 is 1.1 times as fast as Sync EASGD2",
        1.1,
        "×",
        lambda found: found.step2_s / found.step3_s,
        INPUTS,
    ),
    _claim(
        "factors",
        "abstract; §6.1",
        "Sync EASGD3 is 5.3 times as fast as Original EASGD",
        5.3,
        "×",
        Times.total_factor,
        (*ORIGINAL, "gpu-turns", "gpu-steps"),
    ),
    Claim(
        name="sc17-packing",
        paper=PAPER,
        section="§5.2, packed layers",
        sentence="one message of all layers is faster than one message per layer: trees of a whole method",
        published=None,
        unit="×",
        hardware=HARDWARE,
        model="LeNet, AlexNet, GoogLeNet",
        batch="16",
        scenario="sc17-alexnet-gpu",
        command="paceline simulate sc17-alexnet-gpu",
        inputs=("alexnet-size", "gpu-node"),
        holds_if="order",
        predict=order_of_packing,
    ),
    Claim(
        name="sc17-packing-one-by-one",
        paper=PAPER,
        section="§5.2, packed layers",
        sentence="one message of all layers is faster than one message per layer: messages one after the other",
        published=None,
        unit="×",
        hardware="two nodes on FDR InfiniBand",
        model="LeNet, AlexNet, GoogLeNet, VGG-19",
        batch="any",
        scenario="sc17-alexnet-gpu",
        command="paceline reproduce sc17-packing-one-by-one  # the models of sc17-alexnet-gpu",
        inputs=("alexnet-size", "network"),
        holds_if="order",
        predict=packing_one_by_one,
    ),
)
