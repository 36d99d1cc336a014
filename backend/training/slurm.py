"""A Slurm script for a scenario: as many nodes as its cluster has, and a task for every rank on each node."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from paceline.scenarios.resolution.schema import Scenario

SCRIPT = """\
#!/bin/bash
# Trains {name} on {nodes} node{s} with Slurm. Written by `paceline train --slurm`; adapt it to your site,
# then: sbatch THIS_FILE
#SBATCH --job-name={job}
#SBATCH --nodes={nodes}
# {why}
#SBATCH --ntasks-per-node={tasks}
# train.torch_threads of the scenario
#SBATCH --cpus-per-task={threads}
{gpus}# No node is shared: other jobs would slow single ranks, and all wait for the slowest.
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
# Perhaps also: --partition, --account, --constraint{perhaps}.

# The environment that has paceline: `module load …`, or `source …/bin/activate`.

# Each task is one rank. Tasks find each other by the variables that srun sets: the first node hosts their store, at a
# port derived from the job's number; set MASTER_ADDR and MASTER_PORT to have it elsewhere, and
# GLOO_SOCKET_IFNAME (such as ib0) if messages should use another network than the one to the first node.
export OMP_NUM_THREADS="$SLURM_CPUS_PER_TASK"

# The runs' folder is written by the first task: --out has to be on a file system that outlives the job.
# --kill-on-bad-exit ends all tasks when one has failed; --cpu-bind=none lets train.cpu_affinity decide about cores.
srun --kill-on-bad-exit=1 --cpu-bind=none {command}
"""

GPUS = """\
# {whose}; all tasks of a node see all of its GPUs and use them in order
#SBATCH --gpus-per-node={count}
"""
WHOSE = {False: "a GPU for each task", True: "train.share_gpus: one is enough for all tasks of a node"}


def script(scenario: Scenario, arguments: Sequence[str]) -> str:
    """Returns the script.

    Args:
        scenario: the scenario with its changes.
        arguments: the arguments of the `paceline` command that runs it: the scenario's name and all options.
    """
    plans = scenario.plans()
    placed = scenario.cluster.build(scenario.workload).placement
    workers, served = max(map(len, placed)), any(plan.job.method.has_server for plan in plans)
    one = f"{workers} worker{'s' * (workers > 1)}"
    why = f"{one} on each node of the scenario's cluster"
    if served:
        why += "; one task more, since the first node also has the server: on other nodes it takes no part"
    tasks, train = workers + served, scenario.train
    gpus = 1 if train.share_gpus else tasks
    return SCRIPT.format(
        name=scenario.name,
        job=scenario.name.replace(" ", "-"),
        nodes=len(placed),
        s="s" * (len(placed) > 1),
        why=why,
        tasks=tasks,
        threads=train.torch_threads,
        gpus=GPUS.format(count=gpus, whose=WHOSE[train.share_gpus]) if train.device == "cuda" else "",
        perhaps=f", --gpus-per-node={gpus} (train.device is auto)" if train.device == "auto" else "",
        command=shlex.join(["paceline", *arguments]),
    )
