"""Starts torchrun on nodes of a Ray cluster: ray job submit --working-dir . -- python ray_train.py 2 3 train my.yaml

Arguments: the number of nodes, the processes on each, and those of paceline. All nodes need Paceline and the scenario.
"""

import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PORT = 29400


@ray.remote
def address() -> str:
    return ray.util.get_node_ip_address()


@ray.remote(max_retries=0)  # a failed rank ends the run
def torchrun(node: int, nodes: int, processes: int, host: str, arguments: list[str]) -> int:
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={processes}"]
    meeting = ["--rdzv-backend=c10d", "--rdzv-id=paceline", f"--rdzv-endpoint={host}:{PORT}"]
    meeting.append(f"--rdzv-conf=is_host={node == 0}")  # torchrun may not know this address as its own
    command = ["--no-python", "--", sys.executable, "-m", "paceline", *arguments]
    return subprocess.run([*launcher, *meeting, *command], check=False).returncode


if __name__ == "__main__":
    nodes, processes, arguments = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ray.init()
    group = placement_group([{"CPU": processes}] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node) for node in range(nodes)]
    host = ray.get(address.options(num_cpus=0, scheduling_strategy=places[0]).remote())
    ended = [
        torchrun.options(num_cpus=processes, scheduling_strategy=place).remote(node, nodes, processes, host, arguments)
        for node, place in enumerate(places)
    ]
    sys.exit(max(ray.get(ended)))
