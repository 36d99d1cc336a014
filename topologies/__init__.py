"""Clusters: devices, spread, nodes, links, and the closed forms of collectives on them."""
