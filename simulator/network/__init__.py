"""The networks that an interpreter can use: a cluster's graph, measured costs, an emulated network, or no cost.

Read `network` first.
"""
