"""Named machines. Figures that are not published are marked MEMORY, INFERENCE or NOT FOUND in their provenance.

By default a system has the size of the jobs that were measured on it, not of the whole machine, because a picture
cannot show 9,688 nodes; `nodes` sets the number, up to all of them.
"""

from __future__ import annotations

import dataclasses

from paceline.topologies.graphs.compose import compose
from paceline.topologies.graphs.graph import Graph
from paceline.topologies.graphs.links import LinkModel
from paceline.topologies.graphs.machines import (
    ac922_node,
    dgx1,
    knl_node,
    minsky_node,
    nvswitch_node,
    pcie_tree,
    tianhe2_node,
    xeon_node,
)
from paceline.topologies.graphs.network_graphs import dragonfly, leaf_spine, star, whole


def cori_knl(*, nodes: int = 64) -> Graph:
    """Returns Cori's Knights Landing nodes on Aries: 4 nodes a router, 6 × 16 routers a group.

    Nodes are adjacent, router by router: 64 fill a chassis, 384 a group.

    Args:
        nodes: the number of nodes, 2 to 9688.

    >>> cori_knl(nodes=8).describe().nodes  # two routers, and six vertices in a node with its NIC
    42
    """
    whole("nodes", nodes, 2, 9688)
    routers = -(-nodes // 4)
    groups, rows = -(-routers // 96), min(6, -(-routers // 16))
    network = dragonfly(
        groups=groups, rows=rows, columns=min(16, routers), hosts_per_router=4, hosts=nodes, pair_links=4
    )
    where = (
        "node count, routers, Aries rates FOUND (NERSC; CODES guide); global links of a pair of groups NOT FOUND, 4 "
        "INFERENCE; nodes side by side INFERENCE"
    )
    return compose("cori-knl", network, knl_node(parts=1), where)


def summit(*, nodes: int = 36) -> Graph:
    """Returns Summit: AC922 nodes with six V100s, dual-rail EDR, a fat tree without oversubscription.

    The upper two levels, which are inside director switches, are one level here.

    Args:
        nodes: the number of nodes, 2 to 4608, rounded up to full leaves of 18.

    >>> len(summit(nodes=36).endpoints)
    216
    """
    leaves = _leaves(nodes, 4608, 18)
    network = leaf_spine(
        leaves=leaves, spines=6, hosts_per_leaf=18, link="ib-edr", uplink="ib-edr", cables=2, uplinks=6
    )
    where = (
        "node and non-blocking fat tree FOUND (OLCF); 18 nodes a leaf MEMORY high; both rails on one leaf and six "
        "spines INFERENCE"
    )
    return compose("summit", network, ac922_node(), where)


def _leaves(nodes: int, most: int, each: int) -> int:
    """Returns the number of leaf switches for so many nodes, at least two."""
    return max(2, -(-whole("nodes", nodes, 2, most) // each))


def minsky(*, nodes: int = 32) -> Graph:
    """Returns Minsky nodes with four P100s each on EDR; 32 have 128 GPUs.

    Args:
        nodes: the number of nodes, 1 to 36, as many as one switch has ports.

    >>> len(minsky().endpoints)
    128
    """
    where = "32 nodes and 128 P100s FOUND (arXiv 1711.00705); one EDR switch a rail INFERENCE; rate MEMORY low"
    return _on_a_switch("minsky", minsky_node(), whole("nodes", nodes, 1, 36), 2, where)


def _on_a_switch(
    name: str, node: Graph, nodes: int, cables: int, where: str, link: str | LinkModel = "ib-edr"
) -> Graph:
    """Returns a single node unchanged, or several around a switch."""
    if nodes == 1:
        return dataclasses.replace(node, name=name)
    return compose(name, star(hosts=nodes, link=link, cables=cables), node, f"{node.provenance}; {where}")


SWITCH = "several around one switch INFERENCE"


def dgx1_p100(*, nodes: int = 1) -> Graph:
    """Returns DGX-1 with eight P100s: four NVLinks a GPU, four EDR NICs.

    Args:
        nodes: the number of nodes, 1 to 36.

    >>> len(dgx1_p100().endpoints)
    8
    """
    return _on_a_switch("dgx1-p100", dgx1(gpu="p100"), whole("nodes", nodes, 1, 36), 4, SWITCH)


def dgx1_v100(*, nodes: int = 1) -> Graph:
    """Returns DGX-1 with eight V100s: six NVLinks a GPU, four EDR NICs.

    Args:
        nodes: the number of nodes, 1 to 36.

    >>> len(dgx1_v100(nodes=2).endpoints)
    16
    """
    return _on_a_switch("dgx1-v100", dgx1(gpu="v100"), whole("nodes", nodes, 1, 36), 4, SWITCH)


def dgx_a100(*, nodes: int = 1) -> Graph:
    """Returns DGX A100: twelve NVLinks a GPU to six NVSwitches, eight HDR NICs.

    Args:
        nodes: the number of nodes, 1 to 40.

    >>> len(dgx_a100().endpoints)
    8
    """
    node = nvswitch_node(
        gpus=8, links_per_gpu=12, switches=6, link="nvlink3", generation=4, gpu="a100-sxm4-40", cpu="epyc-7742"
    )
    where = "NV12 FOUND (nccl issue 1505); six NVSwitches, PCIe, sockets and eight HDR NICs MEMORY high"
    node = dataclasses.replace(node, provenance=where)
    return _on_a_switch("dgx-a100", node, whole("nodes", nodes, 1, 40), 8, SWITCH, "ib-hdr")


def dgx_h100(*, nodes: int = 1) -> Graph:
    """Returns DGX H100: eighteen NVLinks a GPU to four NVSwitches, eight NDR NICs.

    Args:
        nodes: the number of nodes, 1 to 32.

    >>> len(dgx_h100().endpoints)
    8
    """
    node = nvswitch_node(
        gpus=8,
        links_per_gpu=18,
        switches=4,
        link="nvlink4",
        generation=5,
        between="upi",
        gpu="h100-sxm5",
        cpu="xeon-8480c",
    )
    where = "18 NVLinks MEMORY certain; four NVSwitches, PCIe, sockets and eight NDR NICs MEMORY high"
    node = dataclasses.replace(node, provenance=where)
    return _on_a_switch("dgx-h100", node, whole("nodes", nodes, 1, 32), 8, SWITCH, "ib-ndr")


def tianhe2(*, nodes: int = 56) -> Graph:
    """Returns Tianhe-2: two Xeons and three Xeon Phis a node, TH Express-2, a fat tree under 13 core switches.

    Args:
        nodes: the number of nodes, 2 to 16000, rounded up to full leaves of 28.

    >>> len(tianhe2().endpoints)
    168
    """
    leaves = _leaves(nodes, 16000, 28)
    network = leaf_spine(leaves=leaves, spines=13, hosts_per_leaf=28, link="th-express2", uplink="th-express2")
    where = (
        "16000 nodes FOUND (SMPI, TPDS); 13 core switches of 576 ports MEMORY high; 28 nodes a leaf INFERENCE from "
        "these; routers and measured link rate NOT FOUND"
    )
    return compose("tianhe2", network, tianhe2_node(), where)


def k80_cluster(*, nodes: int = 16) -> Graph:
    """Returns the GPU cluster of You, Buluç and Demmel 2017: two K80 boards a node, which are four devices.

    Args:
        nodes: the number of nodes, 1 to 36.

    >>> len(k80_cluster().endpoints)
    64
    """
    node = dataclasses.replace(
        pcie_tree(roots=1, switches=2, gpus_per_switch=2, nics=1, gpu="k80"),
        provenance="two halves behind each board's own switch",
    )
    where = "16 nodes of two K80s MEMORY medium; FDR from the paper's table MEMORY high; its one switch INFERENCE"
    return _on_a_switch("k80-cluster", node, whole("nodes", nodes, 1, 36), 1, where, "sc17-ib-fdr")


def sandy_bridge_ib(*, nodes: int = 64) -> Graph:
    """Returns the cluster of the PNNL's layer-wise method: dual Sandy Bridge sockets on InfiniBand.

    Args:
        nodes: the number of nodes, 2 to 256, rounded up to full leaves of 16.

    >>> len(sandy_bridge_ib().endpoints)
    128
    """
    leaves = _leaves(nodes, 256, 16)
    network = leaf_spine(leaves=leaves, spines=2, hosts_per_leaf=16, link="ib-fdr", uplink="ib-fdr", uplinks=8)
    where = (
        "64 nodes of 16 threads FOUND (run scripts); Sandy Bridge on InfiniBand FOUND (abstract); FDR and a "
        "non-blocking tree INFERENCE, its rate and shape NOT FOUND"
    )
    return compose("sandy-bridge-ib", network, xeon_node(), where)
