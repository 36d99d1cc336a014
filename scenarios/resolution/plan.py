"""A plan: a scenario resolved for one algorithm and one seed, which simulated and real runs execute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Budget, Counted, Job, Learner, PlannedDeath
from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Group, Rank
from paceline.records.figures import significant
from paceline.records.keeping import Choice
from paceline.records.trace import Schedule
from paceline.scenarios.resolution.schema import Scenario
from paceline.scenarios.sections.clusters import Server
from paceline.scenarios.sections.devices import LayerSplit, split_of_given_time
from paceline.scenarios.sections.methods import Algorithms
from paceline.scenarios.sections.runs import Train
from paceline.scenarios.values.mistakes import Problem, raise_all
from paceline.topologies import ClusterModel, DeviceModel
from paceline.topologies.catalogue.device import FORWARD
from paceline.topologies.catalogue.libraries import version_of
from paceline.topologies.faults.step_times import StepTimes
from paceline.topologies.faults.worker_faults import Speed
from paceline.topologies.graphs.routing import Rule
from paceline.topologies.packet_lines import Lines, lines_of
from paceline.workloads.datasets.catalogue import DATA
from paceline.workloads.models.layer_tables import find_model
from paceline.workloads.reading.orders import ReadingSettings

if TYPE_CHECKING:
    from paceline.scenarios.resolution.schema import Scenario


FASTEST_STEP_S = 0.002
"""minimum duration of a paced step, in which the real gradient and two messages of the backend must fit"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """How messages use the graph of the cluster.

    Args:
        all_reduce: the pattern of an all-reduce; "auto": the fastest predicted one.
        routing: the rule that chooses paths.
        library: the library whose protocols collectives use, a name of `LIBRARIES`.
        version: (major, minor) of the library.
    """

    all_reduce: str
    routing: Rule
    library: str
    version: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """What a run needs to know of its workload besides the learner.

    Args:
        model: the name of the model.
        samples: the samples of an epoch of its data set.
        batch: the samples of a worker's gradient that the scenario gives.
        reading: how samples are read from storage; None: they are in memory.
        record_bytes: the bytes of one sample in the file; None if unknown.
        stands_in: which problem is learned in place of the model, in words; None: the model itself.
    """

    model: str
    samples: int
    batch: int
    reading: ReadingSettings | None
    record_bytes: int | None
    stands_in: str | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One planned run, resolved: what engines need of a scenario are its fields.

    It is cheap: plans of the same seed share the learner. Only what is above the engines reads `scenario`: to store it
    with a run, to change it, or to explain it.
    """

    scenario: Scenario
    """the scenario with only this algorithm and seed, so that its dump repeats this run"""
    name: str
    job: Job
    cluster: ClusterModel
    wiring: NetworkRules
    work: WorkloadFacts
    server: Server
    """how the server handles messages"""
    interference: float | None
    """the share of a device that communication takes; None: as the library and the device are known to do"""
    records: Choice
    """which spans and updates a simulation keeps"""
    real: Train
    """how real runs are made"""
    time_dilation: float = 1.0
    """factor on device times: 1, or `train.time_dilation` in a paced run and its prediction"""
    _speeds: dict[Rank, Speed] = field(default_factory=dict, init=False, repr=False, compare=False)
    _places: dict[Rank, tuple[DeviceModel, StepTimes, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _inside: dict[Group, bool] = field(default_factory=dict, init=False, repr=False, compare=False)
    """jitter and faults, computed once from the cluster and the seed"""

    @property
    def seed(self) -> int:
        return self.job.seed

    @property
    def scenario_name(self) -> str:
        return self.scenario.name

    @property
    def document(self) -> dict[str, Any]:
        """The scenario of this run alone as plain data, which is stored with the run and repeats it."""
        return self.scenario.dump()

    @property
    def prefetch(self) -> int | None:
        """Number of batches that are read ahead; None if samples are in memory."""
        return None if self.work.reading is None else self.work.reading.prefetch

    @cached_property
    def lines(self) -> Lines:
        """The lines between the hosts of the ranks, for an emulated network."""
        return lines_of(self.cluster, [me.rank for me in self.job.team], self.wiring.routing, self.time_dilation)

    @property
    def target(self) -> float | None:
        """The target of the time to accuracy."""
        return self.scenario.target_accuracy

    @property
    def target_loss(self) -> float | None:
        """The target of the time to a loss."""
        return self.scenario.target_loss

    @property
    def measured_job(self) -> Job:
        """The job of a real run and of its prediction: see `Budget.measured`."""
        return replace(self.job, budget=self.job.budget.measured())

    def inside(self, group: Group) -> bool:
        """Whether a real run performs the collectives of a group in the shared memory of one node."""
        if group not in self._inside:
            nodes = {me.node for me in self.job.team if me.role == "worker"}
            own = any(all(rank in node for rank in group) for node in nodes)
            self._inside[group] = own and self.real.shared_memory
        return self._inside[group]

    def same_host(self, rank: Rank, other: Rank) -> bool:
        """Whether two ranks, workers or servers, are on one host, so that a real run uses memory for their messages."""
        team = self.job.team
        return self.real.shared_memory and team[rank].host == team[other].host

    def schedule(self) -> Schedule:
        """Returns a new schedule of evaluations and other records; a schedule has state, since it counts updates."""
        record = self.scenario.record
        evaluations = self.scenario.evaluate.every.schedule(self.job.learner.num_samples)
        return replace(evaluations, probes=record.loss_change, drift=record.drift)

    def compute_s(self, rank: Rank, step: int, samples: int, start_s: float = 0.0) -> float:
        """Returns the seconds of one gradient outside of slowdowns.

        Device time × the factor of this rank, step and time × the factor of a slow place × the stretch

        Args:
            rank: the rank.
            step: its step.
            samples: the samples of the gradient.
            start_s: when it begins, in seconds on the run's clock.
        """
        device, step_times, slowness = self.varying(rank)
        node, at_s = self.cluster.node_of(rank), start_s / self.time_dilation
        factor = step_times.factor(self.seed, int(rank), node, step, at_s)
        return device.compute_s(samples) * factor * slowness * self.time_dilation

    def speed_of(self, rank: Rank) -> Speed:
        """Returns the slowdowns of a rank over time."""
        if rank not in self._speeds:
            self._speeds[rank] = self.cluster.speed_of(rank, self.seed)
        return self._speeds[rank]

    def end_s(self, rank: Rank, start_s: float, work_s: float) -> float:
        """Returns the time when `work_s` seconds of work end that begin at `start_s`, on the run's own clock."""
        return self.speed_of(rank).end_s(start_s, work_s)

    def asked_s(self, rank: Rank, step: int, start_s: float) -> float:
        """Returns the seconds of a rank's gradient that begins at `start_s`."""
        return self.end_s(rank, start_s, self.compute_s(rank, step, self.job.batches[rank], start_s)) - start_s

    def slowed_s(self, rank: Rank, start_s: float, end_s: float) -> float:
        """Returns the seconds that slowdowns added to work that lasted from `start_s` to `end_s`."""
        return end_s - start_s - self.speed_of(rank).work_s(start_s, end_s)

    def varying(self, rank: Rank) -> tuple[DeviceModel, StepTimes, float]:
        """Returns the device of a rank, the distribution of its steps, and the factor by which it is always slower."""
        if (known := self._places.get(rank)) is None:
            step_times = self.cluster.step_times_of(rank, self.seed)
            known = self.cluster.device_of(rank), step_times, self.cluster.slowness_of(rank, self.seed)
            self._places[rank] = known
        return known

    @cached_property
    def gradients(self) -> Counter[tuple[DeviceModel, int]]:
        """The number of workers with each device and batch, in the order of their first ranks."""
        batches = self.job.batches
        return Counter((self.cluster.device_of(Rank(rank)), batches[rank]) for rank in self.job.team[0].workers)

    def layer_shares(self) -> tuple[Sequence[float], Sequence[float]]:
        """Each layer's fraction of a gradient's time, forward and backward, first layer first; the sum is 1."""
        forward, backward, _ = self.layer_split()
        return forward, backward

    def layer_split(self) -> LayerSplit:
        """Returns each layer's fraction of a gradient's time, and how it was determined.

        The first device that has shares of layers, computed or measured, determines them for all. If none has, the
        given time is divided by the operations and bytes of each layer, and for a learning problem without layers of a
        model by the parameters.
        """
        layout, workload = self.job.learner.layout, self.scenario.workload
        for node in self.cluster.nodes:
            if len(node.device.forward_shares) == len(layout.layers):
                return LayerSplit(node.device.forward_shares, node.device.backward_shares, "")
        sizes = [layer.stop - layer.start for layer in layout.layers]
        data = DATA.get(workload.dataset or "")
        model = find_model(workload.model, None if data is None else data.shape)
        if sizes == [layer.parameters for layer in model.layers]:
            device = self.cluster.nodes[0].device
            split = split_of_given_time(device.like or device.name, model, workload.compute_dtype, self.job.batches[0])
            if split is not None:
                return split
        shares = [size / layout.size for size in sizes]
        words = "by their parameters, a third of it forward"
        return LayerSplit([FORWARD * share for share in shares], [(1 - FORWARD) * share for share in shares], words)


def plans(scenario: Scenario, *, paced: bool) -> list[Plan]:
    """Returns one plan per algorithm and seed; see `Scenario.plans`.

    Args:
        scenario: the scenario.
        paced: whether the plans are for paced real runs and their predictions.
    """
    paced = paced and scenario.train.pace == "device"
    if paced:
        _check_pace(scenario)
    algorithms = Algorithms.of(scenario.algorithms)
    needs = [(method.optimizer_copies, max(1, method.num_servers)) for method in algorithms]
    clusters = {
        (copies, servers): replace(scenario.cluster.build(scenario.workload, copies), servers=servers)
        for copies, servers in sorted(set(needs))
    }
    seeds = range(scenario.seed, scenario.seed + scenario.seeds)
    learners = {seed: scenario.workload.learner(seed) for seed in seeds}
    network, workload = scenario.cluster.network, scenario.workload
    wiring = NetworkRules(
        all_reduce=network.allreduce_algorithm,
        routing=network.routing,
        library=network.library,
        version=version_of(network.library_version),
    )
    work = WorkloadFacts(
        model=workload.model,
        samples=workload.num_samples,
        batch=workload.batch_per_worker,
        reading=None if workload.reading is None else workload.reading.settings(),
        record_bytes=None if workload.reading is None else workload.record_bytes,
        stands_in=workload.stood_in_words,
    )
    return [
        Plan(
            scenario=scenario.model_copy(update={"algorithms": algorithms.only(index), "seed": seed, "seeds": 1}),
            name=name,
            job=_job(scenario, method, clusters[needs[index]], learners[seed], seed),
            cluster=clusters[needs[index]],
            wiring=wiring,
            work=work,
            server=scenario.cluster.server,
            interference=scenario.cluster.interference,
            records=scenario.records,
            real=scenario.train,
            time_dilation=scenario.train.time_dilation if paced else 1.0,
        )
        for index, (name, method) in enumerate(zip(algorithms.labels, algorithms, strict=True))
        for seed in seeds
    ]


def _job(scenario: Scenario, method: Method, cluster: ClusterModel, learner: Learner, seed: int) -> Job:
    stop, batches = scenario.stop, scenario.cluster.batches(scenario.workload)
    job = Job.of(method, cluster.placement, learner, batch=batches, budget=Budget(), seed=seed)
    limits: dict[Counted, int | None] = {
        "epochs": None if stop.epochs is None else max(1, round(stop.epochs * learner.num_samples)),
        "samples": stop.samples,
        "updates": None if stop.updates is None else job.samples_in(stop.updates),
    }
    given = [(samples, counted) for counted, samples in limits.items() if samples is not None]
    budget = Budget(seconds=stop.seconds, accuracy=stop.accuracy, loss=stop.loss, divergence=stop.divergence)
    if given:
        samples, counted = min(given, key=lambda limit: limit[0])
        budget = replace(budget, samples=samples, counted=counted)
    deaths = [
        PlannedDeath(me.rank, at_s=death.at_s, step=death.step, detection_s=death.detection_s)
        for me in (job.team if cluster.faults.deaths else ())
        if me.role == "worker"
        for death in cluster.deaths_of(me.rank, seed)
    ]
    return replace(job, budget=budget, deaths=tuple(deaths))


def names_of(methods: Sequence[Method]) -> list[str]:
    """Returns the label of each algorithm of a scenario; methods alone have automatic ones, see `Algorithms`.

    >>> from paceline.algorithms import find
    >>> names_of([find("sync-sgd")(), find("agd")(delay=2), find("agd")(delay=4)])
    ['sync-sgd', 'agd delay=2', 'agd delay=4']
    """
    return list(Algorithms.of(methods).labels)


def _check_pace(scenario: Scenario) -> None:
    problems = []
    cluster, workload = scenario.cluster, scenario.workload
    for (place, device), batch in zip(cluster.devices(workload), cluster.batches_of_kinds(workload), strict=True):
        step_s = device.compute_s(batch)
        if step_s * scenario.train.time_dilation < FASTEST_STEP_S:
            problems.append(Problem(("cluster", *place), _too_fast(device.name, step_s)))
    if problems:
        raise_all(scenario.name, problems)


def _too_fast(name: str, step_s: float) -> str:
    time_dilation = (
        f"give `train.time_dilation: {math.ceil(10 * FASTEST_STEP_S / step_s)}` to stretch the clock, or "
        if step_s
        else ""
    )
    return (
        f"found {significant(step_s * 1e3)} ms a step on {name}, too fast to be paced on this machine; expected at "
        f"least {FASTEST_STEP_S * 1e3:g} ms ({time_dilation}run `paceline train` with `train.pace: none`)"
    )


def refuse_simulated_only(scenario: Scenario) -> None:
    """Raises `InputError` if a scenario for a real run has crashes, server threads, probes, drift, extrapolation
    or a stand-in."""
    problems = []
    if scenario.cluster.crashes is not None:
        problems.append(
            "cluster.crashes: found crashes, which only a simulation has; for a real run expected "
            "none (`--set cluster.crashes=null`; stragglers, slowdowns and step_time are supported)"
        )
    if scenario.cluster.server.threads > 1:
        problems.append(
            f"cluster.server.threads: found {scenario.cluster.server.threads}, which only a simulation has; for a real "
            "run expected 1 (`--set cluster.server.threads=1`)"
        )
    several = [method.name for method in Algorithms.of(scenario.algorithms) if method.num_servers > 1]
    if several and scenario.evaluate.every.unit == "seconds":
        problems.append(
            f"evaluate.every: found {scenario.evaluate.every.text!r} for {several[0]} with several servers, whose "
            "clocks differ; expected updates, samples or epochs (`--set evaluate.every='1 epoch'`)"
        )
    for key in scenario.record.asked:
        problems.append(
            f"record.{key}: found {getattr(scenario.record, key)}, which only a simulation measures, at no cost in "
            f"virtual time; for a real run expected none (`--set record.{key}=null`)"
        )
    if scenario.extrapolate is not None:
        problems.append(
            "extrapolate: found a section that only a simulation has; for a real run expected none "
            "(`--set extrapolate=null`)"
        )
    if (stand_in := scenario.workload.stood_in) is not None:
        problems.append(
            f"workload.stand_in: found {stand_in.words} in place of a data set whose folder is missing, which only a "
            "simulation can use; for a real run expected workload.data_dir, or a model whose data set is bundled"
        )
    if problems:
        raise InputError("\n".join(f"{scenario.name}: {problem}" for problem in problems))
