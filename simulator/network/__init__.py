"""Networks that an interpreter can use: a cluster's graph, measured costs, an emulation, or no cost.

Read `network` first.
"""
