"""The public functions on scenarios; each returns a typed result. What they do is in the modules that they import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paceline.checking.own_methods import BrokenPromises, check_own_methods
from paceline.records import Run
from paceline.records.keeping import Choice
from paceline.reports.results.run_results import MeasuredRuns, SimulatedRuns
from paceline.scenarios import Scenario, load

if TYPE_CHECKING:
    from paceline.backend.multihost.world import World
    from paceline.backend.status.rank_logs import Echo
    from paceline.backend.training.run import Watcher
    from paceline.reports.comparison.predict import Stage
    from paceline.reports.results.comparison_result import ComparisonResult
    from paceline.reports.results.sweep_result import SweepResult
    from paceline.reports.sweeps.sweep import Engine as SweepEngine
    from paceline.scenarios.resolution.grid import Scaling
    from paceline.scenarios.sections.machine_file import MachinePart
    from paceline.simulator.network.network import Network
    from paceline.simulator.runs.engine import Engine
    from paceline.simulator.runs.run import Measured

Source = Scenario | Mapping[str, Any] | str | Path
"""a scenario, or an argument of `paceline.load`"""
Report = Callable[[str, float], None]
"""called with what is running and the completed share of all runs, 0 … 1"""


def simulate(
    scenario: Source,
    *,
    network: Network | Measured | None = None,
    jitter: bool = True,
    message_cost: bool = True,
    progress: Report | None = None,
    records: Choice | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    engine: Engine = "auto",
) -> SimulatedRuns:
    """Simulates every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        network: the network or measured machine to use instead of the scenario's.
        jitter: whether step times vary; if not, each step takes the mean.
        message_cost: whether messages and collectives take time.
        progress: called with the algorithm and the completed share of all runs.
        records: which spans and updates are kept, instead of the scenario's `records`.
        keep: called with each run when it ends, to store it; returns the stored run.
        engine: the interpreter: `events`, `cohort`, or the fastest that can do the run.

    Returns:
        The runs, one for each algorithm and seed.

    Raises:
        ScenarioError: the scenario has errors; all are reported.

    >>> import paceline
    >>> runs = paceline.simulate(paceline.load("quickstart", ["stop.epochs=1"], algorithms=["agd"]))
    >>> runs.frame()[["algorithm", "updates", "staleness_max"]].values.tolist()
    [['agd', 11, 1]]
    """
    from paceline.simulator.runs.run import simulate as run

    loaded, broken = _checked(scenario)
    runs = run(
        loaded,
        network=network,
        jitter=jitter,
        message_cost=message_cost,
        progress=progress,
        records=records,
        keep=broken.marking(keep),
        engine=engine,
    )
    return SimulatedRuns(runs)


def train(
    scenario: Source,
    *,
    progress: Report | None = None,
    watch: Watcher | None = None,
    echo: Echo | None = None,
    keep: Callable[[Run], Run] = lambda run: run,
    out: Path = Path("runs"),
    resume: Path | str | None = None,
    world: World | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> MeasuredRuns:
    """Runs every algorithm and seed of a scenario with one process per rank; see `paceline.backend.training.run`.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        progress: called with what is running and the completed share of all runs.
        watch: called some ten times per second with the progress of all ranks of a run.
        echo: called with each line that a rank writes to its log.
        keep: called with each run when it ends, to store it; returns the stored run.
        out: the folder of checkpoints until the run is stored, if the scenario has checkpoints.
        resume: resumes the run in this folder from its latest checkpoint; no other run is made.
        world: the processes that are the ranks, if a launcher has started them; None: ranks are forked.
        note: called with lines about the placement of ranks, if a launcher has started them.

    Returns:
        One measured run per algorithm and seed.

    Raises:
        InputError: the scenario needs what only a simulation has, or what this machine does not have.
        RunsFailed: a rank died or failed; the error has the earlier runs and what was recorded until then.
    """
    from paceline.backend.training.run import train as run

    loaded, broken = _checked(scenario)
    runs = run(
        loaded,
        progress=progress,
        watch=watch,
        echo=echo,
        keep=broken.marking(keep),
        out=out,
        resume=resume,
        world=world,
        note=note,
    )
    return MeasuredRuns(runs)


def compare(
    scenario: Source,
    *,
    machine: MachinePart | None = None,
    stage: Stage = lambda _: None,
    keep: Callable[[Run], Run] = lambda run: run,
) -> ComparisonResult:
    """Predicts and measures every algorithm and seed of a scenario.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        machine: the machine as `paceline calibrate` measured it; None: that of the scenario, or else it is probed.
        stage: called with the name of each stage; returns the stage's progress callback.
        keep: called with each simulated and measured run after its stage, to store it; returns the stored run.

    Returns:
        The comparison.

    Raises:
        InputError: the scenario is wrong, does not fit this machine, or needs what only a simulation has.
        RunsFailed: a measured run failed.
    """
    from paceline.reports.comparison.compare import compare as run
    from paceline.reports.results.comparison_result import ComparisonResult

    return ComparisonResult.of(run(scenario, machine=machine, stage=stage, keep=keep))


def sweep(
    scenario: Source,
    vary: Sequence[str] | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    algorithms: Sequence[str] | None = None,
    scaling: Scaling | None = None,
    jobs: int | None = None,
    records: Path | None = None,
    store: Path | None = None,
    engine: SweepEngine = "processes",
    scheduler: str | None = None,
    progress: Report | None = None,
) -> SweepResult:
    """Simulates every point of a grid with every algorithm and seed, in processes of this machine or on a Dask cluster.

    A script that calls this needs ``if __name__ == "__main__":``, like every script that starts processes. A method of
    your own has to be in a file, so that the processes find it.

    Args:
        scenario: a scenario, or an argument of `paceline.load`.
        vary: the axes of the grid: values by path, such as ``{"cluster.nodes[0].count": [1, 2, 4]}`` or ``"1..4x2"``;
            or texts ``path=values``, as on the command line.
        overrides: changes ``path=value`` for all points.
        algorithms: the algorithms to run, of the scenario or others.
        scaling: ``strong``: the total batch stays when the number of workers changes; ``weak`` or None: that of each.
        jobs: number of parallel processes; default: the number of cores.
        records: a folder for the record of every run; None: records are not kept.
        store: a folder for the results of runs, from which a later sweep takes those that it needs; None: none.
        engine: ``processes`` of this machine, or ``dask``.
        scheduler: with ``dask``: address of the scheduler; None: a cluster on this machine.
        progress: called with the number of completed runs as text, and their fraction.

    Returns:
        The sweep, with the runs that failed.

    Raises:
        ScenarioError: a point is wrong; with all mistakes of all points, before anything runs.
    """
    from paceline.reports.results.sweep_result import SweepResult
    from paceline.reports.sweeps.sweep import sweep as run

    swept = run(
        scenario,
        axes_of(vary),
        overrides=overrides,
        algorithms=algorithms,
        scaling=scaling,
        jobs=jobs,
        records=records,
        store=store,
        engine=engine,
        scheduler=scheduler,
        progress=progress,
    )
    return SweepResult.of(swept)


def axes_of(vary: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Returns the axes of a grid as texts ``path=values``.

    Args:
        vary: texts, or values by path: a list, a single value, or a range as text.

    >>> axes_of({"cluster.nodes[0].count": [1, 2], "stop.epochs": "1..3", "train.shared_memory": [True, False]})
    ['cluster.nodes[0].count=1,2', 'stop.epochs=1..3', 'train.shared_memory=true,false']
    """
    if not isinstance(vary, Mapping):
        return [vary] if isinstance(vary, str) else list(vary)
    listed = {path: values if isinstance(values, list | tuple | range) else [values] for path, values in vary.items()}
    return [f"{path}={','.join(map(_as_yaml, values))}" for path, values in listed.items()]


def _as_yaml(value: Any) -> str:
    """Returns a value of an axis as YAML."""
    words: Mapping[Any, Literal["true", "false", "null"]] = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _checked(scenario: Source) -> tuple[Scenario, BrokenPromises]:
    """Loads a scenario and refuses methods of the user's own that a checkpoint would break.

    Returns it with the promises that its methods break. `compare` and `sweep` do so themselves.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    return scenario, check_own_methods(scenario)
