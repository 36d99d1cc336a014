"""Claims on HSGD: its hierarchical strategy against native ones, shared memory, reading, LARS, and the whole system.

Rules of this file:

* A factor is a ratio of images per second on the same nodes, with the same number of images in a step unless LARS is
  part of the claim. What a step's images are worth is not part of it.
* What "the native distributed strategy" was is not known, so there is a claim for each of three readings.
* One input at a time is changed from the central values. The interval of a figure contains all results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from paceline.papers.core.claim import Assertion, Claim, Effort, Predicted
from paceline.papers.hsgd.measured import contiguous_over_scattered, sockets_over_memory
from paceline.papers.hsgd.strategies import (
    LARGE,
    NATIVE,
    SCENARIO,
    SMALL,
    Rate,
    Setting,
    hierarchical,
    images_per_s,
    one_process,
    server,
)

PAPER = "hsgd"
PUBLISHED = 20.0
"""FOUND in the abstract: "about 20 times" the computing efficiency of the native distributed strategy"""
SLOW_SOCKETS = "{name: slow-loopback, latency: 60 us, bandwidth: 1 GB/s}"


def _alternatives(effort: Effort, native: Rate) -> dict[str, Setting]:
    """Returns the settings with one input changed."""
    plain = Setting()
    found = {"16 nodes": replace(plain, nodes=16), "56 nodes": replace(plain, nodes=56)}
    if native is one_process:
        found |= {f"s = {serial:g}": replace(plain, serial=serial) for serial in (0.0, 0.1)}
    if effort.quick:
        return found
    found |= {
        "ResNet-50": replace(plain, model="resnet50"),
        "528 images in a step": replace(plain, images=SMALL // 2),
        "8160 images in a step": replace(plain, images=LARGE),
        "sockets of 1 GB/s": replace(plain, sockets=SLOW_SOCKETS),
    }
    if native is not server:
        found["an all-reduce by halving and doubling"] = replace(plain, allreduce="halving-doubling")
        found["8 replicas on each node"] = replace(plain, replicas=8)
    return found


def over_native(native: Rate, effort: Effort) -> Predicted:
    """Returns the images per second of the hierarchical strategy over those of a native one.

    Args:
        native: The native strategy.
        effort: Decides on the changed inputs.
    """
    central = hierarchical(Setting()) / native(Setting())
    found = {words: hierarchical(one) / native(one) for words, one in _alternatives(effort, native).items()}
    listed = ", ".join(f"{ratio:.3g} with {words}" for words, ratio in found.items())
    every = (central, *found.values())
    bound = (
        " One process over c cores loses at most a factor of the number of replicas against several, by Amdahl's law."
        if native is one_process
        else ""
    )
    return Predicted(
        value=central,
        low=min(every),
        high=max(every),
        reason=f"The native strategy decides, which was not found: {_by_native()}.{bound}",
        details=(f"With one input changed: {listed}.",),
    )


def _by_native() -> str:
    ours = hierarchical(Setting())
    return ", ".join(f"{ours / native(Setting()):.3g} over {words}" for native, words in NATIVE.values())


def _whole_rate(setting: Setting, images: int, changes: tuple[str, ...] = ()) -> float:
    """Returns the images per second of the shipped scenario, with LARS and reading ahead, for a number of images."""
    given = replace(setting, images=images)
    method = (("name", "hsgd"), ("learning_rate", 10))
    return images_per_s(given, method, given.replicas, [*given.changes(given.replicas, link="shared-memory"), *changes])


def lars(_: Effort) -> Predicted:
    """Returns what the larger steps that LARS permits bring: images per second with it over those without."""
    found = {images: _whole_rate(Setting(), images) / hierarchical(Setting()) for images in (4128, LARGE, 16416)}
    return Predicted(
        value=found[LARGE],
        low=min(found.values()),
        high=max(found.values()),
        reason="Communication was not a bottleneck.",
        details=(
            "By images in a step: " + ", ".join(f"{ratio:.3g} with {images}" for images, ratio in found.items()) + ".",
            "That the images of larger steps are worth as much is the claim of LARS's author; it is not tested here.",
        ),
    )


def reading(_: Effort) -> Predicted:
    """Returns what contiguous reading ahead brings to a step: images per second over those of scattered reading."""
    plain = ("workload.reading.strategy=scattered", "workload.reading.prefetch=0")
    found = {}
    for storage in ("lustre", "hdd"):
        one = Setting(storage=storage)
        found[storage] = _whole_rate(one, SMALL) / _whole_rate(one, SMALL, plain)
    return Predicted(
        value=found["lustre"],
        low=min(found.values()),
        high=max(found.values()),
        reason="Reading is a small part of a step.",
        details=(f"{found['lustre']:.3g} from Lustre, {found['hdd']:.3g} from a hard disk in each node.",),
    )


def whole(_: Effort) -> Predicted:
    """Returns the whole system, with LARS and contiguous reading ahead, over native strategies that read scattered."""
    ours = _whole_rate(Setting(), LARGE)
    found = {words: ours / native(Setting()) for native, words in NATIVE.values()}
    listed = ", ".join(f"{ratio:.3g} over {words}" for words, ratio in found.items())
    value = found[NATIVE["sockets"][1]]
    return Predicted(
        value=value,
        low=min(found.values()),
        high=max(found.values()),
        reason=f"The native strategy decides, which was not found: {listed}.",
        details=("The hierarchical strategy, LARS and reading are separate claims.",),
    )


INPUTS = ("machine", "replicas", "law_over_cores", "model", "batch", "sockets")
SENTENCE = "about 20 times the computing efficiency of the native distributed strategy"


def _claim(
    name: str,
    sentence: str,
    holds_if: Assertion,
    predict: Callable[[Effort], Predicted],
    inputs: tuple[str, ...],
    *,
    published: float | None = None,
    measured: bool = False,
) -> Claim:
    return Claim(
        name=f"hsgd-{name}",
        paper=PAPER,
        section="abstract",
        sentence=sentence,
        published=published,
        unit="×",
        hardware="this machine" if measured else "32 nodes of Tianhe-2 with three Xeon Phi 31S1P each, assumed",
        model="none" if measured else "AlexNet, assumed",
        batch="none" if measured else f"{SMALL} images in a step without LARS, {LARGE} with it, assumed",
        scenario=SCENARIO,
        command=f"paceline reproduce hsgd-{name}  # from {SCENARIO}",
        inputs=inputs,
        holds_if=holds_if,
        predict=predict,
        measured=measured,
        shares="" if measured else "hsgd",
    )


CLAIMS = (
    *(
        _claim(
            f"hierarchical-over-{name}",
            f"{SENTENCE}: the hierarchical strategy alone, if native means {words}",
            "within 25 %",
            partial(over_native, native),
            (*INPUTS, f"native_{name.replace('-', '_')}"),
            published=PUBLISHED,
        )
        for name, (native, words) in NATIVE.items()
    ),
    _claim("lars", "LARS permits larger steps", "order", lars, ("machine", "model", "batch", "lars")),
    _claim(
        "reading",
        "parallel reading, as contiguous as possible, helps",
        "order",
        reading,
        ("machine", "model", "storage"),
    ),
    _claim(
        "whole",
        f"{SENTENCE}: the whole system",
        "within 25 %",
        whole,
        (*INPUTS, "lars", "storage", "native_one_process", "native_sockets", "native_server"),
        published=PUBLISHED,
    ),
    _claim(
        "shared-memory",
        "parameters that travel in shared memory have less overhead than over sockets: the time of an all-reduce over "
        "sockets, over that in shared memory",
        "order",
        sockets_over_memory,
        ("this_machine",),
        measured=True,
    ),
    _claim(
        "contiguous",
        "reading as contiguously as possible is faster: records per second, over those of scattered reading",
        "order",
        contiguous_over_scattered,
        ("this_machine",),
        measured=True,
    ),
)
