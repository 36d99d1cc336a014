"""How a process detects the launcher that started it."""

from __future__ import annotations

import pytest

from paceline.algorithms.core.errors import InputError
from paceline.backend.transports.launchers import FIRST_PORT, PORTS, LaunchedProcess, first_host, joined

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NODELIST": "gpu[07-09]",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}


def test_torchrun() -> None:
    assert joined(TORCHRUN) == LaunchedProcess(
        launcher="torchrun",
        process=3,
        processes=4,
        local=1,
        address="node-a",
        port=29400,
        node=1,
        hosted=True,
        restarts=2,
    )


def test_mpirun_on_one_host_needs_no_address() -> None:
    found = joined(MPIRUN)
    assert found is not None
    assert (found.launcher, found.process, found.local, found.address) == ("mpirun", 2, 2, "127.0.0.1")
    assert found.node is None and not found.hosted and found.restarts == 0


def test_mpirun_on_several_hosts_is_told_where_the_first_one_is() -> None:
    several = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(InputError, match=r"found no MASTER_ADDR .* `mpirun -x MASTER_ADDR=…`"):
        joined(several)
    found = joined({**several, "MASTER_ADDR": "node-b", "MASTER_PORT": "1234"})
    assert found is not None and (found.address, found.port) == ("node-b", 1234)


def test_srun_meets_at_its_first_node() -> None:
    found = joined(SRUN)
    assert found is not None
    assert (found.launcher, found.process, found.processes, found.local, found.node) == ("srun", 5, 6, 1, 2)
    assert found.address == "gpu07" and FIRST_PORT <= found.port < FIRST_PORT + PORTS


def test_every_task_of_a_step_finds_the_same_port_and_other_steps_another() -> None:
    ports = [joined({**SRUN, "SLURM_PROCID": str(task), "SLURM_LOCALID": "0"}) for task in range(6)]
    assert len({one.port for one in ports if one is not None}) == 1
    other = joined({**SRUN, "SLURM_STEP_ID": "1"})
    assert other is not None and ports[0] is not None and other.port != ports[0].port


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"MASTER_ADDR": "left over"},
        {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script: srun has not run yet
        {**SRUN, "SLURM_STEP_NUM_TASKS": "1"},  # the shell of a user
    ],
)
def test_a_plain_start_joins_nothing(environment: dict[str, str]) -> None:
    assert joined(environment) is None


def test_the_innermost_launcher_counts() -> None:
    for environment, launcher in (
        (SRUN | MPIRUN | TORCHRUN, "torchrun"),
        (SRUN | MPIRUN, "mpirun"),
        (SRUN, "srun"),
    ):
        found = joined(environment)
        assert found is not None and found.launcher == launcher


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        *((TORCHRUN, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")),
        *((MPIRUN, name) for name in MPIRUN),
        *((SRUN, name) for name in ("SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS")),
    ],
)
def test_a_missing_variable_is_named(environment: dict[str, str], name: str) -> None:
    broken = {key: value for key, value in environment.items() if key != name}
    stand_in = {"SLURM_STEP_NODELIST": "SLURM_JOB_NODELIST", "SLURM_STEP_NUM_TASKS": "SLURM_NTASKS"}
    with pytest.raises(InputError, match=rf"found no {stand_in.get(name, name)} in the environment"):
        joined(broken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": "x"}, r"torchrun: found RANK='x', expected a number from 0 on below 4"),
        ({"RANK": "4"}, r"found RANK='4', expected a number from 0 on below 4"),
        ({"RANK": "-1"}, r"found RANK='-1'"),
        ({"WORLD_SIZE": "0"}, r"found WORLD_SIZE=0, expected 1 or more"),
        ({"MASTER_PORT": "70000"}, r"found MASTER_PORT='70000', expected a number from 0 on below 65536"),
    ],
)
def test_nonsense_is_said(change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        joined(TORCHRUN | change)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("a[1-3],b", "a1"), ("a[01,5-6]x,b", "a01x"), ("r[10-11]n[2,4]", "r10n2")],
)
def test_the_first_of_a_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first
