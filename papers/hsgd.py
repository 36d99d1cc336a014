"""Claims on HSGD: its hierarchical strategy against native ones, shared memory, reading, LARS, and the whole system.

Rules of this file:

* A factor is a ratio of images per second on the same nodes, with the same number of images in a step unless LARS is
  part of the claim. What a step's images are worth is not part of it.
* What "the native distributed strategy" was is not known, so there is a claim for each of three readings.
* One input at a time is changed from the central values. The interval of a figure contains all results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from paceline.papers.claim import Assertion, Claim, Effort, Predicted
from paceline.papers.hsgd_measured import contiguous_over_scattered, sockets_over_memory
from paceline.papers.step_times import step_s
from paceline.scenarios import load
from paceline.scenarios.sections.devices import device_of
from paceline.topologies.catalogue.device_names import named

PAPER = "hsgd"
SCENARIO = "hsgd-tianhe2"
PUBLISHED = 20.0
"""FOUND in the abstract: "about 20 times" the computing efficiency of the native distributed strategy"""
PHI, CORES, PHIS = "xeon-phi-31s1p", 57, 3
SLOW_SOCKETS = "{name: slow-loopback, latency: 60 us, bandwidth: 1 GB/s}"
SMALL, LARGE = 1056, 8160
"""images in a step without and with LARS, as in the inputs file"""


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine, a model and a batch.

    Args:
        nodes: The number of nodes.
        replicas: Replicas on each node, which share its 171 cores.
        serial: s of Amdahl's law over cores.
        model: The model.
        images: Images in a step of all nodes.
        sockets: The link between processes of a node over sockets.
        storage: The storage.
        allreduce: The all-reduce of native strategies.
    """

    nodes: int = 32
    replicas: int = PHIS
    serial: float = 0.01
    model: str = "alexnet"
    images: int = SMALL
    sockets: str = "loopback"
    storage: str = "lustre"
    allreduce: str = "ring"

    def changes(self, replicas: int, *, link: str) -> list[str]:
        """Returns the changes of the scenario.

        Args:
            replicas: Replicas on each node; 1 is one process over all cores.
            link: The link between processes of a node.
        """
        return [
            f"cluster.nodes=[{{device: {self.device(replicas)}, workers_per_node: {replicas}, count: {self.nodes}}}]",
            f"workload.model={self.model}",
            f"workload.batch_per_worker={max(1, round(self.images / self.nodes / replicas))}",
            f"cluster.network.intra_node_link={link}",
            f"cluster.storage={self.storage}",
        ]

    def device(self, replicas: int) -> str:
        """Returns a device with its part of a node's cores, as YAML.

        The catalogue's Phi gives the time of 57 cores for a third of a node's images. Each core computes as many images
        however the cores are divided, so its efficiency is the same, and Amdahl's law gives the rest:

            t(c, b) = t(57, B / 3) · b / (B / 3) · (s + (1 − s) / c) / (s + (1 − s) / 57)

        Args:
            replicas: Replicas on each node.
        """
        if replicas == PHIS:
            return PHI
        workload = load(SCENARIO, [f"workload.model={self.model}"]).workload
        phi_s = device_of(PHI, workload).compute_s(max(1, round(self.images / self.nodes / PHIS)))
        law = self._amdahl(PHIS * CORES / replicas) / self._amdahl(CORES)
        memory = named(PHI).sustained_bytes_per_s * PHIS / replicas / 1e9
        return (
            f"{{name: cores-{PHIS * CORES // replicas}, overhead: {phi_s * PHIS / replicas * law!r} s, "
            f"per_sample: 0 s, memory_bandwidth: {memory!r} GB/s}}"
        )

    def _amdahl(self, cores: float) -> float:
        return self.serial + (1 - self.serial) / cores


Rate = Callable[[Setting], float]
"""images per second of a strategy"""


def _rate(
    setting: Setting, algorithm: str | tuple[tuple[str, object], ...], replicas: int, changes: list[str]
) -> float:
    each = max(1, round(setting.images / setting.nodes / replicas))
    return each * replicas * setting.nodes / step_s(SCENARIO, algorithm, changes, steps=4)


@cache
def hierarchical(setting: Setting) -> float:
    """Returns the images per second of two-level sums through shared memory, without LARS."""
    changes = setting.changes(setting.replicas, link="shared-memory")
    return _rate(setting, (("name", "hsgd"), ("lars", "null")), setting.replicas, changes)


@cache
def one_process(setting: Setting) -> float:
    """Returns the images per second of native (a): one process over all cores of a node, a ring among the nodes."""
    changes = [*setting.changes(1, link=setting.sockets), f"cluster.network.allreduce_algorithm={setting.allreduce}"]
    return _rate(setting, "sync-sgd", 1, changes)


@cache
def sockets(setting: Setting) -> float:
    """Returns the images per second of native (b): a replica for each NUMA domain, a flat ring over sockets."""
    changes = setting.changes(setting.replicas, link=setting.sockets)
    changes.append(f"cluster.network.allreduce_algorithm={setting.allreduce}")
    return _rate(setting, "sync-sgd", setting.replicas, changes)


@cache
def server(setting: Setting) -> float:
    """Returns the images per second of native (c): a parameter server on one node, every replica for itself."""
    return _rate(setting, "sync-sgd-ps", setting.replicas, setting.changes(setting.replicas, link=setting.sockets))


NATIVE: dict[str, tuple[Rate, str]] = {
    "one-process": (one_process, "one process over all cores of a node"),
    "sockets": (sockets, "one replica for each NUMA domain, over sockets"),
    "server": (server, "a parameter server, every replica for itself"),
}


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
    return _rate(given, method, given.replicas, [*given.changes(given.replicas, link="shared-memory"), *changes])


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
        command=f"paceline simulate {SCENARIO}; paceline reproduce hsgd-{name}",
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
